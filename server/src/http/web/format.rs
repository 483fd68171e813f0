//! Facts as text for people: spans of time, sizes, and the classes that colour states.

use protocol::Timestamp;

use crate::clock;
use crate::http::present::shapes::Time;
pub(crate) use crate::http::present::size::bytes;
pub(crate) use crate::http::present::span::{span, span_ms};

/// An instant for a page: relative, with the exact instant in the title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// RFC 3339 in UTC.
    pub(crate) exact: String,
    /// `3m ago` or `in 2h`, at the time of rendering. The script keeps it current.
    pub(crate) relative: String,
}

impl Moment {
    /// The exact instant for people, to the second: `2026-03-01 09:30:00 UTC`. The script writes it in the zone of the browser.
    pub(crate) fn text(&self) -> String {
        let to_the_second = self.exact.split('.').next().unwrap_or_default();
        format!("{} UTC", to_the_second.trim_end_matches('Z').replace('T', " "))
    }
}

/// A value on a page of details: a long one is folded.
#[derive(Clone, Debug)]
pub(crate) struct ShownValue {
    pub(crate) text: String,
    /// The beginning of a long value, and its size; empty for a short one.
    pub(crate) summary: String,
}

impl ShownValue {
    pub(crate) fn of(text: String) -> Self {
        let lines = text.lines().count();
        let is_long = lines > LINES_MAX || text.chars().nth(CHARS_MAX).is_some();
        let summary = is_long.then(|| {
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let size = bytes(text.len() as u64);
            let size = if lines > 1 { format!("{lines} lines, {size}") } else { size };
            match first.char_indices().nth(SUMMARY_CHARS) {
                Some((end, _)) => format!("{}… ({size})", &first[..end]),
                None => format!("{first} … ({size})"),
            }
        });
        Self { summary: summary.unwrap_or_default(), text }
    }
}

/// A value that is longer is folded.
const LINES_MAX: usize = 10;
const CHARS_MAX: usize = 600;
/// Characters of its beginning that stand for it.
const SUMMARY_CHARS: usize = 60;

/// The moment of an instant, as seen now.
pub(crate) fn moment(time: Time) -> Moment {
    Moment { exact: time.to_string(), relative: relative(time.0, clock::now().utc) }
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    let (distance, is_future) = if at > now { (at.since(now), true) } else { (now.since(at), false) };
    let seconds = distance.as_secs();
    // The script of the pages writes the same.
    let text = match seconds {
        0 => return "now".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        _ => span(distance),
    };
    if is_future { format!("in {text}") } else { format!("{text} ago") }
}

/// The class by which the style sheet colours a state or an outcome.
pub(crate) fn tone(state: &str) -> &'static str {
    match state {
        "succeeded" | "ready" | "active" | "fired" | "caught_up" | "able" | "has_it" => "good",
        "failed" | "lost" | "expired" | "unreachable" | "cloned" | "revoked" | "missed" | "unable" => "bad",
        "quarantined" | "disconnected" | "draining" | "paused" | "skipped" | "stale" | "slow" | "suspect" => {
            "warn"
        }
        "running" | "assigned" | "joining" => "live",
        _ => "plain",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_two_largest_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_250, "1.25s"),
            (59_999, "59s"),
            (200_000, "3m 20s"),
            (18_120_000, "5h 2m"),
            (349_200_000, "4d 1h"),
        ] {
            assert_eq!(span_ms(ms), text);
        }
    }

    #[test]
    fn a_moment_is_seen_from_now() {
        let now = Timestamp(1_000_000);
        assert_eq!(relative(Timestamp(1_000_000), now), "now");
        assert_eq!(relative(Timestamp(1_000_000 + 7_800_000), now), "in 2h 10m");
        assert_eq!(relative(Timestamp(940_000), now), "1m ago");
        assert_eq!(relative(Timestamp(1_005_500), now), "in 5s");
    }

    #[test]
    fn a_moment_is_also_written_in_full() {
        let moment = moment(Time(Timestamp(1_772_357_400_120)));
        assert_eq!(moment.text(), "2026-03-01 09:30:00 UTC");
    }

    #[test]
    fn a_long_value_has_a_summary() {
        let summary = |text: String| ShownValue::of(text).summary;
        assert_eq!(summary("a\n".repeat(10)), "");
        assert_eq!(summary("a\n".repeat(11)), "a … (11 lines, 22 B)");
        assert_eq!(summary("é".repeat(600)), "");
        assert_eq!(summary("é".repeat(601)), format!("{}… (1.1 KiB)", "é".repeat(60)));
    }

    #[test]
    fn sizes_have_a_binary_unit() {
        for (size, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (150 << 20, "150 MiB"),
            (u64::MAX, "16777215 TiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }
}
