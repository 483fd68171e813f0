//! How bytes become a row of acts.

/// Splits what the fuzzer made into acts: a kind, two bytes of length, and that many bytes.
pub(crate) fn acts(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&kind, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (act, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        Some((kind, act))
    })
}

/// The first bytes of an act as a number.
pub(crate) fn number(act: &[u8]) -> u64 {
    act.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
