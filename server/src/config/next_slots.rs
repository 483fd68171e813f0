//! The next slots of a rule that stands nowhere yet: what `longshore next --cron` answers without a server.

use jiff::civil::Date;
use protocol::Timestamp;
use scheduler::schedule::{Rule, Schedule, Zone};

use crate::clock;
use crate::config::jobs_file::grammar;
use crate::rfc3339::Time;

/// A rule as a person writes it.
#[derive(Clone, Copy, Debug)]
pub enum RuleText<'t> {
    /// `0 2 * * *`.
    Cron(&'t str),
    /// `15m`.
    Every(&'t str),
    /// `monday 08:30`.
    At(&'t str),
}

/// A slot, in UTC and as clocks in its zone show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// RFC 3339 in UTC.
    pub utc: String,
    /// By the clock of the zone.
    pub local: String,
}

/// The next `count` slots by the clock of `zone`: from now on, or at or after `from`, in RFC 3339 or a date of the zone.
///
/// # Errors
/// The zone is unknown, the rule is malformed or never fires, or `from` is no instant or day; says which and why.
pub fn next_slots(
    rule: RuleText<'_>,
    zone: &str,
    from: Option<&str>,
    count: usize,
) -> Result<Vec<Slot>, String> {
    let zone = zone_named(zone)?;
    let rule = match rule {
        RuleText::Cron(text) => Rule::cron(text),
        RuleText::Every(text) => Rule::every(text),
        RuleText::At(text) => Rule::at(text, &zone),
    };
    let schedule = Schedule::new("", None, rule.map_err(|error| error.to_string())?, zone);
    let mut last = match from {
        Some(from) => {
            let from = match Date::strptime("%Y-%m-%d", from) {
                Ok(date) => schedule.zone.first_instant(date.at(0, 0, 0, 0)),
                Err(_) => Some(instant(from)?),
            };
            Timestamp(from.ok_or("there is no such day in the zone")?.0.saturating_sub(1))
        }
        None => clock::now().utc,
    };
    let next = || {
        last = schedule.next_slot_after(last)?;
        Some(Slot { utc: Time(last).to_string(), local: schedule.zone.text(last)? })
    };
    Ok(std::iter::from_fn(next).take(count).collect())
}

/// An instant in RFC 3339 by the clock of `zone`, with its distance from UTC; nothing if one of them is unknown.
#[must_use]
pub fn local_text(zone: &str, utc: &str) -> Option<String> {
    Zone::named(zone)?.text(instant(utc).ok()?)
}

/// Checks that a time zone is known.
///
/// # Errors
/// It is not; the text names it.
pub fn check_zone(zone: &str) -> Result<(), String> {
    zone_named(zone).map(drop)
}

fn instant(text: &str) -> Result<Timestamp, String> {
    let instant = text.parse::<jiff::Timestamp>();
    let instant = instant.map_err(|_| format!("\"{}\" is no instant", crate::excerpt::excerpt(text)))?;
    Ok(Timestamp(instant.as_millisecond()))
}

fn zone_named(zone: &str) -> Result<Zone, String> {
    Zone::named(zone).ok_or_else(|| {
        let all = Zone::all();
        let hint = match grammar::nearest(zone, all.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => "write one like Europe/Berlin".to_owned(),
        };
        format!("\"{}\" is no time zone; {hint}", crate::excerpt::excerpt(zone))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shown_by_both_clocks() {
        let slots = next_slots(RuleText::At("monday 08:30"), "Europe/Berlin", None, 3).expect("a good rule");
        assert_eq!(slots.len(), 3);
        for slot in slots {
            assert!(slot.local.starts_with("Mon ") && slot.local.contains(" 08:30:00 +0"), "{slot:?}");
            assert!(slot.utc.ends_with(":30:00.000Z"), "{slot:?}");
        }
    }

    #[test]
    fn an_hour_that_comes_twice_is_told_apart() {
        let from = Some("2026-10-25T00:30:00Z");
        let slots = next_slots(RuleText::Cron("30 * * * *"), "Europe/Berlin", from, 2).expect("a good rule");
        let shown: Vec<_> = slots.iter().map(|slot| (slot.utc.as_str(), slot.local.as_str())).collect();
        let expected = [
            ("2026-10-25T00:30:00.000Z", "Sun 2026-10-25 02:30:00 +02:00"),
            ("2026-10-25T01:30:00.000Z", "Sun 2026-10-25 02:30:00 +01:00"),
        ];
        assert_eq!(shown, expected);
        assert_eq!(local_text("Europe/Berlin", expected[1].0).as_deref(), Some(expected[1].1));
        assert_eq!(local_text("Mars/Base", expected[1].0), None);
    }

    #[test]
    fn a_wrong_rule_says_what_is_wrong() {
        assert!(
            next_slots(RuleText::Cron("0 0 30 2 *"), "UTC", None, 1)
                .is_err_and(|it| it.contains("never fires"))
        );
        assert!(
            next_slots(RuleText::Every("5m"), "Mars/Base", None, 1).is_err_and(|it| it.contains("time zone"))
        );
    }
}
