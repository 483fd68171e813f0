//! Cron rules. croner reads them and finds matching civil times; [`super::zone`] has the rules for clock changes, which are ours: croner
//! would skip `0 2,14 * * *` in a missing hour, because it counts a list of hours as an interval.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use croner::parser::{CronParser, Seconds, Year};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use protocol::Timestamp;

use super::Zone;
use super::zone::millis;

/// How long the text of a rule may be, in bytes.
const TEXT_MAX: usize = 256;

/// How many clock changes one search crosses: forty years of two a year. No date of the calendar is rarer.
const TRANSITIONS_MAX: usize = 80;

const FIELDS: [&str; 6] = ["second", "minute", "hour", "day of month", "month", "day of week"];

/// A rule of five or six fields (seconds first), or a nickname like `@daily`.
#[derive(Clone)]
pub struct Cron {
    text: Arc<str>,
    matcher: Arc<croner::Cron>,
    /// The field of the hour is `*`, also with a step: in an hour that a clock change repeats it fires twice.
    hour_is_wildcard: bool,
}

/// Why a text is no cron rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CronError {
    /// It cannot be read.
    Invalid {
        /// The field at fault, if it is one: `minute`, `day of week`, …
        field: Option<&'static str>,
        /// For people, in one line.
        detail: String,
    },
    /// It names a date that does not exist, as 30 February.
    NeverFires,
}

impl Cron {
    /// Reads a rule.
    ///
    /// # Errors
    /// It is malformed, or no instant ever matches it.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let text = text.trim();
        if text.len() > TEXT_MAX {
            let detail = format!("longer than {TEXT_MAX} bytes");
            return Err(CronError::Invalid { field: None, detail });
        }
        let plain = nickname(text)?.unwrap_or(text);
        let count = plain.split_whitespace().count();
        if !(5..=6).contains(&count) {
            let detail = format!("5 fields, or 6 with seconds first, are expected; there are {count}");
            return Err(CronError::Invalid { field: None, detail });
        }
        let matcher = read(plain).map_err(|error| invalid(plain, &error))?;
        let hour = plain.split_whitespace().nth(count - 4).unwrap_or("*");
        let hour_is_wildcard = hour.starts_with(['*', '?']) || hour == "0-23";
        let cron = Self { text: text.into(), matcher: Arc::new(matcher), hour_is_wildcard };
        let start = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        cron.next_civil(start, true).is_some().then_some(cron).ok_or(CronError::NeverFires)
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// For people, in English.
    #[must_use]
    pub fn describe(&self) -> String {
        self.matcher.describe()
    }

    /// Returns whether it names both a day of the month and a day of the week: either of them is enough.
    pub(super) fn names_either_day(&self) -> bool {
        let pattern = &self.matcher.pattern;
        !pattern.is_dom_wildcard() && !pattern.is_dow_wildcard() && !pattern.matches_dom_and_dow()
    }

    /// Returns whether it names one hour, one minute and one second, so each of its slots is on a day of its own.
    pub(super) fn names_one_time_of_day(&self) -> bool {
        self.fields().iter().take(3).all(|field| field.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Returns whether one of its months lacks this day, at least in some years.
    pub(super) fn names_month_without(&self, day: u8) -> bool {
        let months = (1..).zip([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
        months
            .filter(|(_, days)| *days < day)
            .any(|(month, _)| self.matcher.pattern.month_match(month).unwrap_or(false))
    }

    /// Returns whether it names two hours of which one follows on the other.
    pub(super) fn names_adjacent_hours(&self) -> bool {
        let is_named = |hour: u32| self.matcher.pattern.hour_match(hour % 24).unwrap_or(false);
        (0..24).any(|hour| is_named(hour) && is_named(hour + 1))
    }

    /// Returns whether it names two minutes of an hour of which one follows on the other.
    pub(super) fn names_adjacent_minutes(&self) -> bool {
        let is_named = |minute: u32| self.matcher.pattern.minute_match(minute % 60).unwrap_or(false);
        (0..60).any(|minute| is_named(minute) && is_named(minute + 1))
    }

    /// The fields as croner numbers them: second, minute, hour, day of month, month, day of week.
    pub(super) fn fields(&self) -> Vec<&str> {
        let plain = nickname(&self.text).ok().flatten().unwrap_or(&self.text);
        let fields: Vec<&str> = plain.split_whitespace().collect();
        if fields.len() == 5 { core::iter::once("0").chain(fields).collect() } else { fields }
    }

    pub(super) fn next_after(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        if self.hour_is_wildcard { self.next_elapsed(after, zone) } else { self.next_fixed(after, zone) }
    }

    /// Fixed hours: each civil time is one instant, [`Zone::first_instant`], which never decreases with civil time.
    fn next_fixed(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut civil = zone.civil(after)?;
        // In the second pass of a repeated hour all candidates of that hour are in the past.
        loop {
            civil = self.next_civil(civil, false)?;
            let at = zone.first_instant(civil)?;
            if at > after {
                return Some(at);
            }
        }
    }

    /// Any hour: an instant is a slot if the clock on the wall matches, so each stretch between two clock changes is searched for itself.
    fn next_elapsed(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut from = after;
        let mut inclusive = false;
        for _ in 0..TRANSITIONS_MAX {
            let offset = zone.offset(from)?;
            let end = zone.transition_after(from);
            let found = self
                .next_civil(zone.civil(from)?, inclusive)
                .and_then(|civil| offset.to_timestamp(civil).ok())
                .map(millis);
            match (found, end) {
                (Some(at), Some(end)) if at < end => return Some(at),
                (_, Some(end)) => (from, inclusive) = (end, true),
                (found, None) => return found,
            }
        }
        None
    }

    /// The next civil time that matches: at or after `from` if `inclusive`, else after it. Slots are whole seconds, so with `inclusive` a fraction
    /// of a second is rounded up.
    fn next_civil(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        let mut from = from;
        if inclusive && from.subsec_nanosecond() > 0 {
            from = from.checked_add(SignedDuration::from_secs(1)).ok()?;
        }
        self.matcher.find_next_occurrence(&from, inclusive).ok()
    }
}

fn read(text: &str) -> Result<croner::Cron, croner::errors::CronError> {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(text)
}

/// The rule that a nickname stands for.
fn nickname(text: &str) -> Result<Option<&'static str>, CronError> {
    let Some(name) = text.strip_prefix('@') else { return Ok(None) };
    let rule = match name.to_ascii_lowercase().as_str() {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        _ => {
            let detail = "unknown nickname; known are @yearly, @monthly, @weekly, @daily, @hourly".into();
            return Err(CronError::Invalid { field: None, detail });
        }
    };
    Ok(Some(rule))
}

/// croner does not tell which field is wrong: the first one that cannot stand alone is.
fn invalid(text: &str, error: &croner::errors::CronError) -> CronError {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let skipped = FIELDS.len() - fields.len();
    let wrong = fields.iter().zip(&FIELDS[skipped..]).enumerate().find(|(index, (field, _))| {
        let alone: Vec<&str> = (0..fields.len()).map(|at| if at == *index { *field } else { "*" }).collect();
        read(&alone.join(" ")).is_err()
    });
    let range = |name: &str| match name {
        "second" | "minute" => "0 to 59, or *",
        "hour" => "0 to 23, or *",
        "day of month" => "1 to 31, L, 15W, or *",
        "month" => "1 to 12, JAN to DEC, or *",
        _ => "0 to 7, SUN to SAT, 5L, 1#2, or *",
    };
    match wrong {
        Some((_, (field, name))) => CronError::Invalid {
            field: Some(name),
            detail: format!("\"{field}\" is no {name}: {}", range(name)),
        },
        None => CronError::Invalid { field: None, detail: error.to_string() },
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cron").field(&self.text).finish()
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { detail, .. } => f.write_str(detail),
            Self::NeverFires => f.write_str("it never fires: there is no such date"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let cron = Cron::parse(text).expect("a good rule");
        let zone = Zone::named(zone).expect("a zone");
        let mut at = millis(after.parse().expect("an instant"));
        let next = || {
            at = cron.next_after(at, &zone)?;
            Some(jiff::Timestamp::from_millisecond(at.0).ok()?.to_string())
        };
        core::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn fields_nicknames_and_modifiers_are_read() {
        let utc = |text| slots(text, "UTC", "2026-01-01T00:00:00Z", 2);
        assert_eq!(utc("0 2 * * *"), ["2026-01-01T02:00:00Z", "2026-01-02T02:00:00Z"]);
        assert_eq!(utc("*/20 * * * * *"), ["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"]);
        assert_eq!(utc("@midnight"), ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]);
        assert_eq!(utc("0 0 L * *"), ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"]);
        assert_eq!(utc("0 9 * * MON#1"), ["2026-01-05T09:00:00Z", "2026-02-02T09:00:00Z"]);
        assert_eq!(utc("0 9 * * 5L"), ["2026-01-30T09:00:00Z", "2026-02-27T09:00:00Z"]);
        assert_eq!(utc("0 9 15W 2,3 *"), ["2026-02-16T09:00:00Z", "2026-03-16T09:00:00Z"]);
        assert_eq!(utc("0 0 29 2 *"), ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    }

    #[test]
    fn a_missing_hour_fires_fixed_hours_once_at_its_end() {
        let spring = |text| slots(text, "Europe/Berlin", "2026-03-28T23:30:00Z", 3);
        let thirty = ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"];
        assert_eq!(spring("30 2 * * *"), thirty);
        let both = ["2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z", "2026-03-30T00:00:00Z"];
        assert_eq!(spring("0 2,14 * * *"), both);
        let hourly = ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"];
        assert_eq!(spring("0 * * * *"), hourly);
    }

    #[test]
    fn a_repeated_hour_fires_fixed_hours_once_and_any_hour_twice() {
        let autumn = |text| slots(text, "Europe/Berlin", "2026-10-24T23:45:00Z", 3);
        let thirty = ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"];
        assert_eq!(autumn("30 2 * * *"), thirty);
        let half = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"];
        assert_eq!(autumn("30 * * * *"), half);
    }

    #[test]
    fn the_faulty_field_is_named() {
        let fault = |text: &str| match Cron::parse(text) {
            Err(CronError::Invalid { field, detail }) => (field, detail),
            other => panic!("{other:?}"),
        };
        assert_eq!(fault("61 * * * *").0, Some("minute"));
        assert_eq!(fault("0 0 * * FUNDAY").0, Some("day of week"));
        assert_eq!(fault("0 0 0 0 * *").0, Some("day of month"));
        assert_eq!(
            fault("* * *"),
            (None, "5 fields, or 6 with seconds first, are expected; there are 3".into())
        );
        assert!(fault("@never").1.contains("@daily"));
        assert!(fault(&"1,".repeat(200)).1.contains("256"));
    }

    #[test]
    fn dates_that_do_not_exist_are_found() {
        for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 *"] {
            assert_eq!(Cron::parse(never).expect_err("no such date"), CronError::NeverFires, "{never}");
        }
        assert!(Cron::parse("0 0 29 2 *").is_ok());
    }
}
