//! Output that is not shown, in words: one wording for the texts and events of the API, the dashboard and the command line.

/// Missing output of a stream, or of both. Without a number of bytes, it is unknown how much is missing; `cut_at` is the `log.max_bytes` at
/// which it was cut.
#[must_use]
pub fn missing_text(stream: Option<&str>, bytes: Option<u64>, cut_at: Option<u64>) -> String {
    let source = stream.unwrap_or("output");
    match (bytes, cut_at.map(exact_size)) {
        (Some(bytes), Some(limit)) => {
            format!("longshore: {bytes} bytes of {source} cut at log.max_bytes ({limit})")
        }
        (None, Some(limit)) => format!("longshore: {source} cut at log.max_bytes ({limit})"),
        (Some(bytes), None) => format!("longshore: {bytes} bytes of {source} are missing"),
        (None, None) => format!("longshore: some of {source} is missing"),
    }
}

/// Output of a running attempt beyond these bytes, which its worker keeps until the end.
#[must_use]
pub fn withheld_text(shown_bytes: u64, max_bytes: u64) -> String {
    let (shown, limit) = (exact_size(shown_bytes), exact_size(max_bytes));
    format!(
        "longshore: output beyond {shown} is not shown while the attempt runs; its last part follows at the end (log.max_bytes is {limit})"
    )
}

/// The output of an attempt that was cut: for each stream its name, the bytes that were written, and those that are stored, if known.
#[must_use]
pub fn cut_text(max_bytes: u64, streams: &[(&str, u64, Option<u64>)]) -> String {
    let part = |(stream, written, stored): &(&str, u64, Option<u64>)| match stored {
        Some(stored) => format!("{stored} of {written} bytes of {stream} are stored"),
        None => format!("{written} bytes of {stream} were written"),
    };
    let parts: Vec<String> = streams.iter().filter(|(_, written, _)| *written > 0).map(part).collect();
    format!("cut at log.max_bytes ({}): {}", exact_size(max_bytes), parts.join(", "))
}

/// A size in the largest unit that divides it.
fn exact_size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fits = UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{bytes} bytes"), |(name, unit)| format!("{} {name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_output_is_named_by_stream_and_number_and_a_cut_by_its_limit() {
        assert_eq!(missing_text(Some("stdout"), Some(7), None), "longshore: 7 bytes of stdout are missing");
        assert_eq!(missing_text(Some("stderr"), None, None), "longshore: some of stderr is missing");
        let middle = missing_text(Some("stdout"), Some(7), Some(1 << 20));
        assert_eq!(middle, "longshore: 7 bytes of stdout cut at log.max_bytes (1 MiB)");
        let end = missing_text(None, None, Some(64 << 10));
        assert_eq!(end, "longshore: output cut at log.max_bytes (64 KiB)");
        assert_eq!(exact_size(65_537), "65537 bytes");
    }

    #[test]
    fn a_cut_says_what_is_stored_of_each_stream_that_was_written() {
        let one = cut_text(64 << 10, &[("stdout", 100_000, Some(57_344)), ("stderr", 0, Some(0))]);
        assert_eq!(one, "cut at log.max_bytes (64 KiB): 57344 of 100000 bytes of stdout are stored");
        let unknown = cut_text(64 << 10, &[("stdout", 100_000, None), ("stderr", 9, None)]);
        assert!(unknown.ends_with("100000 bytes of stdout were written, 9 bytes of stderr were written"));
    }
}
