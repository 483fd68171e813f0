//! What time it is, as far as that is believed by whoever deletes what is old.
//!
//! A wall clock that is set a year ahead by mistake would let everything be too old at once, and what is deleted does not come back. So a
//! clock that is far ahead of what was last believed, also by an earlier process, has to go on steadily for some hours first. Until then
//! time goes on from what was believed. A clock that is set back only makes retention late, which does no harm.

use std::time::Duration;

use protocol::{Now, Timestamp, Uptime};

/// The time to go by.
#[derive(Debug)]
pub(super) struct Calendar {
    /// The last time that was believed, and when that was; nothing if there has never been any.
    believed: Option<Now>,
    /// A wall clock that is far ahead: since when it has gone on steadily, and what it said last.
    claim: Option<(Uptime, Now)>,
    written: Option<Uptime>,
}

impl Calendar {
    /// Goes on from what an earlier process had believed and written down, if one has.
    pub(super) fn new(kept: Option<Timestamp>, now: Now) -> Self {
        Self { believed: kept.map(|utc| Now { utc, up: now.up }), claim: None, written: None }
    }

    /// What time it is.
    pub(super) fn time(&mut self, now: Now) -> Timestamp {
        let Some(believed) = self.believed else { return self.believe(now) };
        let expected = believed.utc + now.up.since(believed.up);
        if now.utc <= expected + AHEAD_MAX {
            return self.believe(now);
        }
        let since = match self.claim {
            Some((since, last)) if is_steady(last, now) => since,
            _ => {
                tracing::warn!(
                    ahead_s = now.utc.since(expected).as_secs(),
                    "the wall clock is far ahead of what it was: nothing is deleted by it before it has gone on so for hours"
                );
                now.up
            }
        };
        self.claim = Some((since, now));
        if now.up.since(since) < BELIEVED_AFTER {
            return expected;
        }
        tracing::info!("the wall clock has gone on steadily: what is old is deleted by it again");
        self.believe(now)
    }

    /// What is to be written down now, if it is time for that.
    pub(super) fn to_write(&self, now: Uptime) -> Option<Timestamp> {
        let is_due = self.written.is_none_or(|at| now.since(at) >= WRITTEN_EVERY);
        self.believed.filter(|_| is_due).map(|believed| believed.utc)
    }

    /// It is written down.
    pub(super) const fn wrote(&mut self, now: Uptime) {
        self.written = Some(now);
    }

    fn believe(&mut self, now: Now) -> Timestamp {
        self.claim = None;
        self.believed = Some(now);
        now.utc
    }
}

/// Whether the wall clock has moved as the monotonic one has.
fn is_steady(last: Now, now: Now) -> bool {
    let expected = last.utc + now.up.since(last.up);
    now.utc.0.abs_diff(expected.0) <= STEADY_MS_MAX
}

/// So far ahead a clock may be at once: a server that was off overnight, a machine that slept. So much too early is little next to days.
const AHEAD_MAX: Duration = Duration::from_secs(86_400);
/// Whoever sets a clock wrongly, or a machine that has just started without a battery for its clock, is found out sooner.
const BELIEVED_AFTER: Duration = Duration::from_secs(6 * 3_600);
/// Between two looks, some seconds apart: what a time service corrects in small steps is less.
const STEADY_MS_MAX: u64 = 60_000;
/// Each costs a commit.
const WRITTEN_EVERY: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;
    const YEAR: i64 = 365 * DAY;

    /// After so many minutes, with a wall clock that was set ahead by so much.
    fn at(minutes: u64, ahead: i64) -> Now {
        let wall = 50 * YEAR + (minutes * 60_000).cast_signed() + ahead;
        Now { utc: Timestamp(wall), up: Uptime(minutes * 60_000_000_000) }
    }

    #[test]
    fn a_clock_that_is_set_a_year_ahead_is_believed_only_after_hours() {
        let mut calendar = Calendar::new(None, at(0, 0));
        assert_eq!(calendar.time(at(0, 0)), at(0, 0).utc, "there is nothing to hold against the first one");
        for minutes in 1..=360 {
            assert_eq!(calendar.time(at(minutes, YEAR)), at(minutes, 0).utc, "minute {minutes}");
        }
        assert_eq!(calendar.time(at(361, YEAR)), at(361, YEAR).utc);
        assert_eq!(calendar.time(at(362, YEAR)), at(362, YEAR).utc);
    }

    #[test]
    fn one_that_is_put_right_again_has_done_no_harm_and_begins_anew_the_next_time() {
        let mut calendar = Calendar::new(None, at(0, 0));
        calendar.time(at(0, 0));
        for minutes in 1..300 {
            calendar.time(at(minutes, YEAR));
        }
        assert_eq!(calendar.time(at(300, 0)), at(300, 0).utc);
        assert_eq!(calendar.time(at(301, YEAR)), at(301, 0).utc);
        // Set again, and differently: that is no steady clock.
        for minutes in 302..900_u64 {
            let ahead = YEAR + (minutes / 300).cast_signed() * DAY;
            assert_eq!(calendar.time(at(minutes, ahead)), at(minutes, 0).utc, "minute {minutes}");
        }
    }

    #[test]
    fn what_an_earlier_process_believed_counts_and_a_night_off_is_no_jump() {
        let kept = Some(at(0, 0).utc);
        let mut calendar = Calendar::new(kept, at(0, 0));
        assert_eq!(calendar.time(at(0, DAY / 2)), at(0, DAY / 2).utc);
        let mut calendar = Calendar::new(kept, at(0, 0));
        assert_eq!(calendar.time(at(5, YEAR)), at(5, 0).utc, "it was wrong already when the process began");
        assert_eq!(calendar.time(at(6, -YEAR)), at(6, -YEAR).utc, "late does no harm");
    }

    #[test]
    fn what_is_believed_is_written_down_once_an_hour() {
        let mut calendar = Calendar::new(None, at(0, 0));
        assert_eq!(calendar.to_write(at(0, 0).up), None);
        calendar.time(at(0, 0));
        assert_eq!(calendar.to_write(at(0, 0).up), Some(at(0, 0).utc));
        calendar.wrote(at(0, 0).up);
        calendar.time(at(30, 0));
        assert_eq!(calendar.to_write(at(30, 0).up), None);
        calendar.time(at(60, YEAR));
        assert_eq!(calendar.to_write(at(60, 0).up), Some(at(30, 0).utc), "never what is only claimed");
    }
}
