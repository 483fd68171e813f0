//! Lengths of time as systemd and Go write them, and as jobs.yaml does.

/// A time span of systemd in milliseconds: `90`, `5min 20s`, `1h30min`, `1 day`. `infinity` is none of them.
pub(super) fn of_systemd(text: &str) -> Option<u64> {
    sum(text, |unit| {
        Some(match unit {
            "us" | "usec" | "µs" => 0.001,
            "ms" | "msec" => 1.0,
            "" | "s" | "sec" | "second" | "seconds" => SECOND,
            "m" | "min" | "minute" | "minutes" => 60.0 * SECOND,
            "h" | "hr" | "hour" | "hours" => 3_600.0 * SECOND,
            "d" | "day" | "days" => 86_400.0 * SECOND,
            "w" | "week" | "weeks" => 7.0 * 86_400.0 * SECOND,
            "M" | "month" | "months" => 30.44 * 86_400.0 * SECOND,
            "y" | "year" | "years" => 365.25 * 86_400.0 * SECOND,
            _ => return None,
        })
    })
}

/// A duration of Go in milliseconds, as compose and Go's cron take it: `1h30m`, `1.5h`, `10s`.
pub(super) fn of_go(text: &str) -> Option<u64> {
    sum(text, |unit| {
        Some(match unit {
            "us" | "µs" => 0.001,
            "ms" => 1.0,
            "s" => SECOND,
            "m" => 60.0 * SECOND,
            "h" => 3_600.0 * SECOND,
            _ => return None,
        })
    })
}

/// Numbers with units, added up.
fn sum(text: &str, unit_millis: impl Fn(&str) -> Option<f64>) -> Option<u64> {
    let mut total = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        total += amount * unit_millis(&rest[..letters])?;
        rest = rest[letters..].trim_start();
    }
    // Ten thousand years: beyond that a number of milliseconds would not be exact.
    (total < 3.2e14).then_some(total.round() as u64)
}

/// As jobs.yaml writes it, in the largest unit that needs no fraction.
pub(super) fn shown(millis: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    match units.iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit)) {
        Some((unit, letter)) => format!("{}{letter}", millis / unit),
        None => format!("{millis}ms"),
    }
}

/// A number of seconds as jobs.yaml writes it; other text as it is, for the server's reader to refuse.
pub(super) fn of_seconds(text: &str) -> String {
    text.parse::<u32>().map_or_else(|_| format!("{text}s"), |seconds| shown(u64::from(seconds) * 1_000))
}

const SECOND: f64 = 1_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_both_kinds_are_added_up() {
        for (text, expected) in [
            ("90", Some("90s")),
            ("5min 20s", Some("320s")),
            ("1h30min", Some("90m")),
            ("2 days", Some("2d")),
            ("500ms", Some("500ms")),
            ("infinity", None),
            ("", None),
            ("5 parsecs", None),
        ] {
            assert_eq!(of_systemd(text).map(shown).as_deref(), expected, "{text}");
        }
        for (text, expected) in [("1h30m", Some("90m")), ("1.5h", Some("90m")), ("10", None), ("1d", None)] {
            assert_eq!(of_go(text).map(shown).as_deref(), expected, "{text}");
        }
    }
}
