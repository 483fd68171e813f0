//! Durations, sizes and decimal numbers: from text and back.

use std::fmt;
use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

use super::fault::FaultCode;
use super::grammar::ValueFault;

type Checked<T> = Result<T, ValueFault>;

/// A duration between two limits, in whole milliseconds: `90s`, `1h30m`, `2 days`.
pub(crate) fn duration(text: &str, from: Duration, to: Duration) -> Checked<Duration> {
    let limits = || format!("{} to {}", DurationText(from), DurationText(to));
    let wrong = || {
        let hint = match is_bare_number(text) {
            true => "give it a unit, such as 90s",
            false => "write 90s, 1h30m or 2 days",
        };
        ValueFault::input(
            FaultCode::InvalidDuration,
            text,
            format!("is not a duration from {}; {hint}", limits()),
        )
    };
    let span = SpanParser::new().parse_span(text).map_err(|_| wrong())?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    let duration = Duration::try_from(exact).map_err(|_| wrong())?;
    if duration < from || duration > to {
        return Err(ValueFault::input(
            FaultCode::InvalidDuration,
            text,
            format!("is not within {}", limits()),
        ));
    }
    Ok(Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000))
}

/// A duration without limits.
pub(crate) fn any_duration(text: &str) -> Option<Duration> {
    duration(text, Duration::ZERO, Duration::MAX).ok()
}

/// A size in bytes, not below `from` and not above `to`: `512m`, `1g`, `1048576`. A kibibyte is `k`, `kb` or `kib`.
pub(crate) fn size(text: &str, from: u64, to: u64) -> Checked<u64> {
    let refused = |reason: &str| {
        // People who write 32 rarely mean bytes.
        let unit = match is_bare_number(text) && reason == TOO_SMALL {
            true => "; a number without a unit is bytes: 64m are mebibytes",
            false => "",
        };
        let told = format!("{reason} (min {}, max {}){unit}", bytes(from), bytes(to));
        ValueFault::input(FaultCode::InvalidSize, text, told)
    };
    let wrong = || refused("is not a size such as 64m or 512m");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let amount: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].trim_start().to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => return Err(wrong()),
    };
    match amount.checked_mul(1024_u64.pow(power)) {
        Some(size) if size < from => Err(refused(TOO_SMALL)),
        Some(size) if size <= to => Ok(size),
        _ => Err(refused("is too large")),
    }
}

const TOO_SMALL: &str = "is too small";

/// Digits without a unit. A hint never repeats them: they may come from a variable.
fn is_bare_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A size as it is written in the file.
pub(crate) fn bytes(size: u64) -> String {
    let units = [(1_u64 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    match units.iter().find(|(unit, _)| size >= *unit && size.is_multiple_of(*unit)) {
        Some((unit, letter)) => format!("{}{letter}", size / unit),
        None => size.to_string(),
    }
}

/// A decimal number as thousandths: `0.5` is 500. At most three decimals.
pub(crate) fn thousandths(text: &str, from: u32, to: u32) -> Checked<u32> {
    let wrong = || {
        let (from, to) = (f64::from(from) / 1000.0, f64::from(to) / 1000.0);
        let form = format!("is not a number from {from} to {to} with at most three decimals");
        ValueFault::input(FaultCode::OutOfRange, text, form)
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || !is_digits(whole)
        || !is_digits(decimals)
        || decimals.len() > 3
        || text.ends_with('.')
    {
        return Err(wrong());
    }
    let amount = format!("{whole}{decimals:0<3}").parse().map_err(|_| wrong())?;
    if (from..=to).contains(&amount) { Ok(amount) } else { Err(wrong()) }
}

/// A duration as it is written in the file.
pub(crate) struct DurationText(pub(crate) Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            _ if seconds == 0 || self.0.subsec_millis() > 0 => write!(f, "{}ms", self.0.as_millis()),
            _ if seconds.is_multiple_of(86_400) => write!(f, "{}d", seconds / 86_400),
            _ if seconds.is_multiple_of(3_600) => write!(f, "{}h", seconds / 3_600),
            _ if seconds.is_multiple_of(60) => write!(f, "{}m", seconds / 60),
            _ => write!(f, "{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MONTH: Duration = Duration::from_secs(30 * 86_400);

    #[test]
    fn durations_need_a_unit_and_stay_within_limits() {
        for (text, seconds) in
            [("90s", 90), ("1h30m", 5400), ("2 days", 172_800), ("30d", 2_592_000), ("1 hour", 3600)]
        {
            assert_eq!(duration(text, SECOND, MONTH), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in
            ["-5s", "0", "0s", "5 parsecs", "1e99h", "31d", "", "90", "1mo", "99999999999999999999h", "500ms"]
        {
            assert_eq!(
                duration(bad, SECOND, MONTH).expect_err(bad).code,
                FaultCode::InvalidDuration,
                "{bad}"
            );
        }
    }

    #[test]
    fn sizes_count_in_powers_of_1024() {
        for (text, size_bytes) in [("6m", 6 << 20), ("1g", 1 << 30), ("1 GiB", 1 << 30), ("6291456", 6 << 20)]
        {
            assert_eq!(size(text, 6 << 20, 1 << 40), Ok(size_bytes), "{text}");
        }
        for bad in
            ["12 potatoes", "1", "", "m", "-1g", "1.5g", "99999999999999999999", "18446744073709551615t"]
        {
            assert_eq!(size(bad, 6 << 20, 1 << 40).expect_err(bad).code, FaultCode::InvalidSize, "{bad}");
        }
    }

    #[test]
    fn thousandths_keep_three_decimals() {
        assert_eq!(thousandths("0.5", 10, 1_000_000), Ok(500));
        assert_eq!(thousandths("2", 10, 1_000_000), Ok(2000));
        assert_eq!(thousandths("1.125", 10, 1_000_000), Ok(1125));
        for bad in ["", ".", "1.", "1.2345", "-1", "1e3", "0", "99999999999"] {
            assert!(thousandths(bad, 10, 1_000_000).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whole_seconds_survive_being_written(seconds in 1_u64..2_592_000) {
            let written = DurationText(Duration::from_secs(seconds)).to_string();
            prop_assert_eq!(duration(&written, SECOND, MONTH), Ok(Duration::from_secs(seconds)));
        }

        #[test]
        fn sizes_survive_being_written(size_bytes in 1_u64..(1 << 50)) {
            prop_assert_eq!(size(&bytes(size_bytes), 1, 1 << 50), Ok(size_bytes));
        }

        #[test]
        fn no_text_makes_a_quantity_panic(text in "\\PC{0,40}") {
            let _ = (duration(&text, SECOND, MONTH), size(&text, 1, 1 << 40), thousandths(&text, 1, 5));
        }
    }
}
