//! The three kinds of rules, and how they are read: `cron`, `every`, `at`.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt;
use core::time::Duration;

use jiff::civil;
use protocol::Timestamp;

use super::zone::millis;
use super::{Cron, CronError, Every, Zone};

/// The instants that a schedule names.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// `cron: "0 2 * * *"`.
    Cron(Cron),
    /// `every: 10m`.
    Every(Every),
    /// `at: "10:11"` or `at: "monday 08:30"`: as the cron rule that it stands for.
    Daily(Cron),
    /// `at: 2026-12-24T18:00:00Z`, or a local date and time.
    Once {
        /// The instant.
        at: Timestamp,
    },
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// Of `cron`.
    Cron(CronError),
    /// Of `every`: it is no duration.
    Every,
    /// Of `every`: shorter than [`super::EVERY_MIN`], or longer than centuries.
    EveryOutOfRange,
    /// Of `at`.
    At,
}

impl Rule {
    /// Reads a `cron`.
    ///
    /// # Errors
    /// It is malformed or never fires.
    pub fn cron(text: &str) -> Result<Self, RuleError> {
        Cron::parse(text).map(Self::Cron).map_err(RuleError::Cron)
    }

    /// Reads an `every`: `500ms`, `1h30m`, `2 days`, `1w`.
    ///
    /// # Errors
    /// It is no duration, or out of range.
    pub fn every(text: &str) -> Result<Self, RuleError> {
        let span: jiff::Span = text.trim().parse().map_err(|_| RuleError::Every)?;
        let duration =
            span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| RuleError::Every)?;
        let duration = Duration::try_from(duration).map_err(|_| RuleError::EveryOutOfRange)?;
        if duration.subsec_nanos() % 1_000_000 != 0 {
            return Err(RuleError::EveryOutOfRange);
        }
        Every::new(duration).map(Self::Every).ok_or(RuleError::EveryOutOfRange)
    }

    /// Reads an `at`: a time of day, a weekday with a time, an instant, or a date and time in `zone`.
    ///
    /// # Errors
    /// It is none of these.
    pub fn at(text: &str, zone: &Zone) -> Result<Self, RuleError> {
        let text = text.trim();
        if let Ok(instant) = text.parse::<jiff::Timestamp>() {
            return Ok(Self::Once { at: millis(instant) });
        }
        if text.starts_with(|first: char| first.is_ascii_digit()) && text.contains('-') {
            let civil: civil::DateTime = text.parse().map_err(|_| RuleError::At)?;
            if !text.contains(':') {
                return Err(RuleError::At);
            }
            return zone.first_instant(civil).map(|at| Self::Once { at }).ok_or(RuleError::At);
        }
        let (day, time) = match text.rsplit_once(char::is_whitespace) {
            Some((day, time)) => (Some(weekday(day.trim()).ok_or(RuleError::At)?), time),
            None => (None, text),
        };
        let (hour, minute, second) = time_of_day(time).ok_or(RuleError::At)?;
        let day = day.map_or_else(|| "*".to_owned(), |day| day.to_string());
        let cron = format!("{second} {minute} {hour} * * {day}");
        Cron::parse(&cron).map(Self::Daily).map_err(RuleError::Cron)
    }

    /// True if its slots depend on the zone.
    #[must_use]
    pub const fn depends_on_zone(&self) -> bool {
        matches!(self, Self::Cron(_) | Self::Daily(_))
    }

    /// For people: in words.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Cron(cron) | Self::Daily(cron) => cron.describe(),
            Self::Every(_) => self.to_string(),
            Self::Once { .. } => format!("once {self}"),
        }
    }
}

/// As a person would write it; also what the derived identity of a schedule is made of, so it must stay as it is.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(cron) => write!(f, "cron {}", cron.text()),
            Self::Every(every) => {
                let interval = jiff::SignedDuration::try_from(every.interval()).unwrap_or_default();
                write!(f, "every {interval:#}")
            }
            Self::Daily(cron) => {
                let fields = cron.fields();
                let [second, minute, hour, _, _, day] = fields[..] else { return Ok(()) };
                let day = day.parse().ok().and_then(|day: usize| WEEKDAYS.get(day));
                f.write_str("at ")?;
                if let Some(day) = day {
                    write!(f, "{day} ")?;
                }
                write!(f, "{hour:0>2}:{minute:0>2}")?;
                if second == "0" { Ok(()) } else { write!(f, ":{second:0>2}") }
            }
            Self::Once { at } => match jiff::Timestamp::from_millisecond(at.0) {
                Ok(at) => write!(f, "at {at}"),
                Err(_) => write!(f, "at {} ms", at.0),
            },
        }
    }
}

const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// The number that cron gives a day, by its English name or the first three letters.
fn weekday(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    WEEKDAYS.iter().position(|day| *day == name || day[..3] == name)
}

/// Hour, minute, second of `10:11` or `10:11:12`.
fn time_of_day(text: &str) -> Option<(u8, u8, u8)> {
    let mut parts = text.split(':').map(|part| {
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u8>().ok()).flatten()
    });
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    (parts.next().is_none() && hour < 24 && minute < 60 && second < 60).then_some((hour, minute, second))
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(error) => error.fmt(f),
            Self::Every => f.write_str("no duration; write it like 500ms, 90s, 1h30m or 2 days"),
            Self::EveryOutOfRange => f.write_str("whole milliseconds, 100ms to 400 years, are expected"),
            Self::At => f.write_str(
                "expected 10:11, monday 08:30, 2026-12-24 18:00, or an instant like 2026-12-24T18:00:00Z",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> Zone {
        Zone::named("Europe/Berlin").expect("a zone")
    }

    fn at(text: &str) -> Result<String, RuleError> {
        Rule::at(text, &berlin()).map(|rule| rule.to_string())
    }

    #[test]
    fn times_of_day_weekdays_and_instants_are_read() {
        assert_eq!(at("10:11").as_deref(), Ok("at 10:11"));
        assert_eq!(at("9:05:30").as_deref(), Ok("at 09:05:30"));
        assert_eq!(at("Monday 08:30").as_deref(), Ok("at monday 08:30"));
        assert_eq!(at("sun 23:59").as_deref(), Ok("at sunday 23:59"));
        assert_eq!(at("2026-12-24T18:00:00+01:00").as_deref(), Ok("at 2026-12-24T17:00:00Z"));
        assert_eq!(at("2026-12-24 18:00").as_deref(), Ok("at 2026-12-24T17:00:00Z"));
        assert_eq!(at("2026-03-29 02:30").as_deref(), Ok("at 2026-03-29T01:00:00Z"));
    }

    #[test]
    fn anything_else_is_no_at() {
        for wrong in
            ["", "25:00", "10:60", "10", "10:11:12:13", "someday 10:00", "2026-12-24", "+1:00", "10:011"]
        {
            assert_eq!(at(wrong), Err(RuleError::At), "{wrong}");
        }
    }

    #[test]
    fn intervals_are_read_and_bounded() {
        let every = |text: &str| Rule::every(text).map(|rule| rule.to_string());
        assert_eq!(every("500ms").as_deref(), Ok("every 500ms"));
        assert_eq!(every("1h30m").as_deref(), Ok("every 1h 30m"));
        assert_eq!(every("2 days").as_deref(), Ok("every 48h"));
        for wrong in ["99ms", "0s", "-5m", "150us", "400000 days"] {
            assert_eq!(every(wrong), Err(RuleError::EveryOutOfRange), "{wrong}");
        }
        for wrong in ["", "5 parsecs", "1 month", "1 year"] {
            assert_eq!(every(wrong), Err(RuleError::Every), "{wrong}");
        }
    }

    #[test]
    fn a_rule_is_described_in_words() {
        assert_eq!(Rule::cron("0 2 * * *").expect("good").describe(), "At 02:00.");
        assert_eq!(Rule::every("90s").expect("good").describe(), "every 1m 30s");
    }
}
