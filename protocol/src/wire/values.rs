//! Validity of single values, whichever message they are in.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use super::InvalidField;
use super::limits::{
    DURATION_MAX, INNER_ENTRIES_MAX, OFFSET_MAX, PLAIN_BYTES_MAX, SHOWN_BYTES_MAX, SLOTS_MAX,
};
use crate::container::RuntimeKind;
use crate::report::Availability;

pub(super) type Checked = Result<(), InvalidField>;

pub(super) fn runtimes(runtimes: &[(RuntimeKind, Availability)]) -> Checked {
    for (index, (kind, _)) in runtimes.iter().enumerate() {
        ensure(runtimes[..index].iter().all(|(other, _)| other != kind), "runtimes", || {
            format!("{kind} is given twice")
        })?;
    }
    Ok(())
}

pub(super) fn slots(field: &'static str, count: u32) -> Checked {
    ensure(count <= SLOTS_MAX, field, || format!("{count} is not between 0 and {SLOTS_MAX}"))
}

pub(super) fn duration(field: &'static str, duration: Duration) -> Checked {
    ensure(duration <= DURATION_MAX, field, || format!("{} s is more than ten years", duration.as_secs()))
}

pub(super) fn offset(field: &'static str, offset: u64) -> Checked {
    ensure(offset <= OFFSET_MAX, field, || format!("{offset} is above {OFFSET_MAX}"))
}

pub(super) fn inner(field: &'static str, count: usize) -> Checked {
    ensure(count <= INNER_ENTRIES_MAX, field, || {
        format!("there are {count} entries, at most {INNER_ENTRIES_MAX} are allowed")
    })
}

/// A short text on one line without control characters.
pub(super) fn plain(field: &'static str, text: &str, bytes_min: usize) -> Checked {
    let fits = (bytes_min..=PLAIN_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    ensure(fits, field, || {
        format!(
            "{:?} is not {bytes_min} to {PLAIN_BYTES_MAX} bytes without control characters",
            shortened(text)
        )
    })
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

#[inline]
pub(super) fn ensure(holds: bool, field: &'static str, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(InvalidField { field, why: why() }) }
}
