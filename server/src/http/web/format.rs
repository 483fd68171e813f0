//! Facts as text for people: spans of time, sizes, and the classes that colour states.

use std::time::Duration;

use protocol::Timestamp;

use crate::clock;
use crate::http::present::shapes::Time;

/// An instant for a page: relative, with the exact instant in the title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// RFC 3339 in UTC.
    pub(crate) exact: String,
    /// `3m ago` or `in 2h`, at the time of rendering. The script keeps it current.
    pub(crate) relative: String,
}

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

/// A duration in milliseconds, as the API has it.
pub(crate) fn span_ms(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

/// A number of bytes with a binary unit.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = bytes;
    let mut tenths = 0;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{whole} B"),
        _ if whole >= 100 => format!("{whole} {}", UNITS[unit]),
        _ => format!("{whole}.{tenths} {}", UNITS[unit]),
    }
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
