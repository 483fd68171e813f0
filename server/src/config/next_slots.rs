//! The next slots of a rule that stands nowhere yet: what `longshore next --cron` answers without a server.

use scheduler::schedule::{Rule, Schedule, Zone};

use crate::clock;
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

/// The next `count` slots from now on, by the clock of `zone`.
///
/// # Errors
/// The zone is unknown, or the rule is malformed or never fires; says which and why.
pub fn next_slots(rule: RuleText<'_>, zone: &str, count: usize) -> Result<Vec<Slot>, String> {
    let zone = zone_named(zone)?;
    let rule = match rule {
        RuleText::Cron(text) => Rule::cron(text),
        RuleText::Every(text) => Rule::every(text),
        RuleText::At(text) => Rule::at(text, &zone),
    };
    let schedule = Schedule::new("", None, rule.map_err(|error| error.to_string())?, zone);
    let mut last = clock::now().utc;
    let next = || {
        last = schedule.next_slot_after(last)?;
        let local = schedule.zone.civil(last)?.strftime("%a %F %T").to_string();
        Some(Slot { utc: Time(last).to_string(), local })
    };
    Ok(std::iter::from_fn(next).take(count).collect())
}

/// Checks that a time zone is known.
///
/// # Errors
/// It is not; the text names it.
pub fn check_zone(zone: &str) -> Result<(), String> {
    zone_named(zone).map(drop)
}

fn zone_named(zone: &str) -> Result<Zone, String> {
    Zone::named(zone).ok_or_else(|| {
        format!("\"{}\" is no time zone; write one like Europe/Berlin", crate::excerpt::excerpt(zone))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shown_by_both_clocks() {
        let slots = next_slots(RuleText::At("monday 08:30"), "Europe/Berlin", 3).expect("a good rule");
        assert_eq!(slots.len(), 3);
        for slot in slots {
            assert!(slot.local.starts_with("Mon ") && slot.local.ends_with(" 08:30:00"), "{slot:?}");
            assert!(slot.utc.ends_with(":30:00.000Z"), "{slot:?}");
        }
    }

    #[test]
    fn a_wrong_rule_says_what_is_wrong() {
        assert!(
            next_slots(RuleText::Cron("0 0 30 2 *"), "UTC", 1).is_err_and(|it| it.contains("never fires"))
        );
        assert!(next_slots(RuleText::Every("5m"), "Mars/Base", 1).is_err_and(|it| it.contains("time zone")));
    }
}
