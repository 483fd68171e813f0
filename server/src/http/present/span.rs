//! Durations for people.

use std::time::Duration;

/// A duration in its two largest units: `1.25s`, `3m 20s`, `5h 2m`, `4d 1h`.
pub(crate) fn span(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match seconds {
        0 => format!("{millis}ms"),
        1..10 => format!("{seconds}.{:02}s", millis / 10),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A duration that somebody has set, without units of which it has none: `40m`, `1d 2h`, `1.50s`.
pub(crate) fn round(duration: Duration) -> String {
    let text = span(duration);
    let zero_unit = text.rsplit_once(' ').filter(|(_, last)| last.starts_with('0'));
    match (zero_unit, text.strip_suffix(".00s")) {
        (Some((first, _)), _) => first.to_owned(),
        (None, Some(seconds)) => format!("{seconds}s"),
        (None, None) => text,
    }
}

/// A duration in milliseconds, as the API has it.
pub(crate) fn span_ms(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_that_was_set_has_no_zeros() {
        let round = |ms| round(Duration::from_millis(ms));
        let words = [500, 1_000, 1_500, 90_000, 2_400_000, 93_600_000, 86_400_000].map(round);
        assert_eq!(words, ["500ms", "1s", "1.50s", "1m 30s", "40m", "1d 2h", "1d"]);
    }
}
