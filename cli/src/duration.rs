//! Lengths of time as people write them on a command line: `90s`, `1h30m`, `500ms`.

use std::time::Duration;

/// Reads a length of time, at least a millisecond.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let expected = || "write it like 90s, 1h30m or 500ms".to_owned();
    let signed: jiff::SignedDuration = text.parse().map_err(|_| expected())?;
    let length = Duration::try_from(signed).map_err(|_| expected())?;
    if length < Duration::from_millis(1) { Err(expected()) } else { Ok(length) }
}

/// Writes a length of time in at most two units: `1h30m`, `12s`, `340ms`.
pub(crate) fn show(length_ms: i64) -> String {
    let ms = length_ms.max(0);
    let (s, m, h, d) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..10_000 => format!("{}.{}s", s, ms % 1_000 / 100),
        10_000..60_000 => format!("{s}s"),
        60_000..3_600_000 => format!("{m}m{:02}s", s % 60),
        3_600_000..86_400_000 => format!("{h}h{:02}m", m % 60),
        _ => format!("{d}d{:02}h", h % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["-5s", "0s", "5 parsecs", "1e99h", "", "banana"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lengths_are_shown_in_at_most_two_units() {
        let shown = [-4, 340, 2_340, 59_999, 61_000, 5_400_000, 90_000_000].map(show);
        assert_eq!(shown, ["0ms", "340ms", "2.3s", "59s", "1m01s", "1h30m", "1d01h"]);
    }
}
