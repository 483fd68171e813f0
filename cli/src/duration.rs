//! Durations on the command line: `90s`, `1h30m`, `500ms`.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

/// Parses a duration from 1 ms to 3650 d. As in jobs.yaml, a day has 24 hours.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let Some(length) = read(text) else {
        // If it parses with small numbers, the form is right and the range is wrong.
        return Err(if read(&with_ones(text)).is_some() { RANGE } else { FORM }.to_owned());
    };
    if (SHORTEST..=LONGEST).contains(&length) { Ok(length) } else { Err(RANGE.to_owned()) }
}

fn read(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text).ok()?;
    Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

/// Replaces each number by 1.
fn with_ones(text: &str) -> String {
    let mut in_number = false;
    let small = |c: char| {
        let begins = c.is_ascii_digit() && !std::mem::replace(&mut in_number, c.is_ascii_digit());
        in_number = c.is_ascii_digit();
        match c.is_ascii_digit() {
            true => begins.then_some('1'),
            false => Some(c),
        }
    };
    text.trim_start_matches('-').chars().filter_map(small).collect()
}

const FORM: &str = "write it like 90s, 1h30m or 500ms";
const RANGE: &str = "it must be from 1ms to 3650d";
const SHORTEST: Duration = Duration::from_millis(1);
/// Ten years.
const LONGEST: Duration = Duration::from_hours(3650 * 24);

/// Formats a duration in at most two units: `1h30m`, `12s`, `340ms`.
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
        assert_eq!(parse("2 days"), Ok(Duration::from_hours(48)));
        for wrong in ["5 parsecs", "1e99h", "", "banana", "90"] {
            assert_eq!(parse(wrong), Err(FORM.to_owned()), "{wrong}");
        }
        for wrong in ["-5s", "0s", "0.1ms", "99999d", "99999999999999999999h"] {
            assert_eq!(parse(wrong), Err(RANGE.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn lengths_are_shown_in_at_most_two_units() {
        let shown = [-4, 340, 2_340, 59_999, 61_000, 5_400_000, 90_000_000].map(show);
        assert_eq!(shown, ["0ms", "340ms", "2.3s", "59s", "1m01s", "1h30m", "1d01h"]);
    }
}
