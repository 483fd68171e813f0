//! Rules in time that stand in a file more than once: each text is parsed once, and each rule is searched for close slots once.
//!
//! A parsed cron rule takes five kilobytes, nearly all of it a table of years. Schedules with the same text share one. Only what is valid is
//! kept here: a fault ends the reading of its value.

use std::collections::HashMap;
use std::time::Duration;

use protocol::Timestamp;
use scheduler::schedule::{Rule, RuleError, Schedule, Zone};

/// The rules and zones of one file.
#[derive(Default)]
pub(super) struct RuleCache {
    crons: HashMap<String, Rule>,
    zones: HashMap<String, Zone>,
    /// The shortest distance between two slots, by rule and name of the zone.
    distances: HashMap<(String, String), Option<Duration>>,
}

impl RuleCache {
    /// As [`Rule::cron`].
    ///
    /// # Errors
    /// As [`Rule::cron`].
    pub(super) fn cron(&mut self, text: &str) -> Result<Rule, RuleError> {
        if let Some(known) = self.crons.get(text) {
            return Ok(known.clone());
        }
        let rule = Rule::cron(text)?;
        self.crons.insert(text.to_owned(), rule.clone());
        Ok(rule)
    }

    /// As [`Zone::named`].
    pub(super) fn zone(&mut self, name: &str) -> Option<Zone> {
        if let Some(known) = self.zones.get(name) {
            return Some(known.clone());
        }
        let zone = Zone::named(name)?;
        self.zones.insert(name.to_owned(), zone.clone());
        Some(zone)
    }

    /// As [`Schedule::shortest_distance`]. Schedules with bounds are searched each for itself.
    pub(super) fn shortest_distance(&mut self, schedule: &Schedule, now: Timestamp) -> Option<Duration> {
        let (Rule::Cron(_) | Rule::Daily(_), None, None) =
            (&schedule.rule, schedule.start_at, schedule.end_at)
        else {
            return schedule.shortest_distance(now);
        };
        let key = (schedule.rule.to_string(), schedule.zone.name().to_owned());
        *self.distances.entry(key).or_insert_with(|| schedule.shortest_distance(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_seen_before_means_the_same_and_faults_stay_faults() {
        let mut cache = RuleCache::default();
        for text in ["0 2 * * *", "@daily", "0 2 * * *", "* * * * * *"] {
            assert_eq!(cache.cron(text), Rule::cron(text));
        }
        assert_eq!(cache.crons.len(), 3);
        for _ in 0..2 {
            assert_eq!(cache.cron("61 * * * *"), Rule::cron("61 * * * *"));
            assert_eq!(cache.zone("europe/berlin"), Zone::named("Europe/Berlin"));
            assert_eq!(cache.zone("Mars/Base"), None);
        }
    }

    #[test]
    fn distances_are_those_of_rule_zone_and_bounds() {
        let mut cache = RuleCache::default();
        let now = Timestamp(1_774_600_000_000);
        let mut distance = |rule: &str, zone: &str, end_at| {
            let rule = Rule::cron(rule).expect("a good rule");
            let schedule = Schedule::new("a", None, rule, Zone::named(zone).expect("a zone"));
            let schedule = Schedule { end_at, ..schedule };
            let cached = cache.shortest_distance(&schedule, now);
            assert_eq!(cached, schedule.shortest_distance(now));
            cached
        };
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
        for _ in 0..2 {
            assert_eq!(distance("0 2 * * *", "UTC", None), hours(24));
            // The clock goes forward within the next slots.
            assert_eq!(distance("0 2 * * *", "Europe/Berlin", None), hours(23));
            assert_eq!(distance("0 2,3 * * *", "UTC", None), hours(1));
            assert_eq!(distance("0 2 * * *", "UTC", Some(Timestamp(now.0 + 1_000))), None);
        }
    }
}
