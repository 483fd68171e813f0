//! Time zones, compiled in, and how civil times of a rule become instants. jiff's clock and the system's zone are never asked.
//!
//! | rule | clock goes forward: the hour 02:00 to 03:00 is missing | clock goes back: 02:00 to 03:00 comes twice |
//! |---|---|---|
//! | fixed hours (`30 2 * * *`, `0,30 2-4 * * 1`, `at: "02:30"`) | all missing times fire once, together, at 03:00 | each fires once, the first time |
//! | any hour (`*/15 * * * *`, `0 */2 * * *`) | missing times do not fire; it goes on at 03:00 | fires both times |
//! | `every` | elapsed time; not affected | elapsed time; not affected |
//! | a local date and time (`at: "2026-03-29 02:30"`) | at 03:00 | the first time |
//!
//! A missing day (Apia, 30 December 2011) is a gap of 24 hours under the same rules.

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;

use jiff::civil;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use protocol::Timestamp;

/// A time zone of the IANA database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Shared by the schedules of a file.
    name: Arc<str>,
    rules: TimeZone,
}

impl Zone {
    /// The zone UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".into(), rules: TimeZone::UTC }
    }

    /// The zone with this name, in any case of its letters; absent if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("utc") {
            return Some(Self::utc());
        }
        let rules = TimeZoneDatabase::bundled().get(name).ok()?;
        let name = rules.iana_name().unwrap_or(name).into();
        Some(Self { name, rules })
    }

    /// Names of all zones.
    #[must_use]
    pub fn all() -> alloc::vec::Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect()
    }

    /// As the database spells it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Local time at an instant.
    #[must_use]
    pub fn civil(&self, at: Timestamp) -> Option<civil::DateTime> {
        Some(self.offset(at)?.to_datetime(stamp(at)?))
    }

    /// Local time at an instant as text, with its distance from UTC: in autumn clocks show an hour twice.
    #[must_use]
    pub fn text(&self, at: Timestamp) -> Option<String> {
        let zoned = stamp(at)?.to_zoned(self.rules.clone());
        Some(zoned.strftime("%a %F %T %:z").to_string())
    }

    /// The instant at which clocks show this for the first time; the end of the gap if they never do.
    #[must_use]
    pub fn first_instant(&self, civil: civil::DateTime) -> Option<Timestamp> {
        let ambiguous = self.rules.to_ambiguous_timestamp(civil);
        let earlier = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Fold { before, .. } => before,
            AmbiguousOffset::Gap { after, .. } => {
                // By the later offset the missing time is before the transition that made it missing.
                let before_gap = after.to_timestamp(civil).ok()?;
                return self.transition_after(millis(before_gap));
            }
        };
        Some(millis(earlier.to_timestamp(civil).ok()?))
    }

    /// The first change of the rules of this zone later than an instant.
    pub(super) fn transition_after(&self, at: Timestamp) -> Option<Timestamp> {
        let next = self.rules.following(stamp(at)?).next()?;
        Some(millis(next.timestamp()))
    }

    pub(super) fn offset(&self, at: Timestamp) -> Option<Offset> {
        Some(self.rules.to_offset(stamp(at)?))
    }
}

/// Absent outside of the years −9999 to 9999.
fn stamp(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(at.0).ok()
}

pub(super) fn millis(at: jiff::Timestamp) -> Timestamp {
    Timestamp(at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_unknown_ones_are_not() {
        assert_eq!(Zone::named("europe/berlin").expect("a zone").name(), "Europe/Berlin");
        assert_eq!(Zone::named("utc"), Some(Zone::utc()));
        assert_eq!(Zone::named("Mars/Base"), None);
        assert!(Zone::all().len() > 400);
    }

    #[test]
    fn a_missing_time_is_the_end_of_the_gap_and_a_repeated_one_is_the_first() {
        let berlin = Zone::named("Europe/Berlin").expect("a zone");
        let at = |civil| berlin.first_instant(civil).and_then(stamp).expect("in range").to_string();
        assert_eq!(at(date(2026, 3, 29).at(2, 30, 0, 0)), "2026-03-29T01:00:00Z");
        assert_eq!(at(date(2026, 3, 29).at(3, 0, 0, 0)), "2026-03-29T01:00:00Z");
        assert_eq!(at(date(2026, 10, 25).at(2, 30, 0, 0)), "2026-10-25T00:30:00Z");
        let text = |at: &str| berlin.text(millis(at.parse().expect("an instant"))).expect("in range");
        assert_eq!(text("2026-10-25T00:30:00Z"), "Sun 2026-10-25 02:30:00 +02:00");
        assert_eq!(text("2026-10-25T01:30:00Z"), "Sun 2026-10-25 02:30:00 +01:00");
        let apia = Zone::named("Pacific/Apia").expect("a zone");
        let after = apia.first_instant(date(2011, 12, 30).at(12, 0, 0, 0)).and_then(stamp);
        assert_eq!(after.expect("in range").to_string(), "2011-12-30T10:00:00Z");
    }
}
