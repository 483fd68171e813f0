//! The wall clock as retention trusts it.
//!
//! A wall clock that is set a year ahead by mistake would let everything be too old at once, and what is deleted does not come back. So a
//! clock that is far ahead of what was last believed, also by an earlier process, has to go on steadily for some hours first. Until then
//! time goes on from what was believed. A clock that is set back only makes retention late, which does no harm.

use std::time::Duration;

use protocol::{Now, Timestamp, Uptime};

/// The time to go by.
#[derive(Debug)]
pub(super) struct TrustedClock {
    /// The last time that was believed, and when that was; nothing if there has never been any.
    trusted: Option<Now>,
    /// A wall clock that is far ahead: since when it has gone on steadily, and what it said last.
    claim: Option<(Uptime, Now)>,
    written: Option<Uptime>,
}

impl TrustedClock {
    /// Goes on from what an earlier process had believed and written down, if one has.
    pub(super) fn new(kept: Option<Timestamp>, now: Now) -> Self {
        Self { trusted: kept.map(|utc| Now { utc, up: now.up }), claim: None, written: None }
    }

    /// The time that retention goes by.
    pub(super) fn time(&mut self, now: Now) -> Timestamp {
        let Some(trusted) = self.trusted else { return self.trust(now) };
        let expected = trusted.utc + now.up.since(trusted.up);
        if now.utc <= expected + AHEAD_MAX {
            return self.trust(now);
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
        if now.up.since(since) < TRUSTED_AFTER {
            return expected;
        }
        tracing::info!("the wall clock has gone on steadily: what is old is deleted by it again");
        self.trust(now)
    }

    /// The time to store now; none if it was stored less than an hour ago.
    pub(super) fn to_write(&self, now: Uptime) -> Option<Timestamp> {
        let is_due = self.written.is_none_or(|at| now.since(at) >= WRITTEN_EVERY);
        self.trusted.filter(|_| is_due).map(|trusted| trusted.utc)
    }

    /// It is written down.
    pub(super) const fn wrote(&mut self, now: Uptime) {
        self.written = Some(now);
    }

    fn trust(&mut self, now: Now) -> Timestamp {
        self.claim = None;
        self.trusted = Some(now);
        now.utc
    }
}

/// True if the wall clock has moved as far as the monotonic one.
fn is_steady(last: Now, now: Now) -> bool {
    let expected = last.utc + now.up.since(last.up);
    now.utc.0.abs_diff(expected.0) <= STEADY_MS_MAX
}

/// The farthest that a clock may be ahead at once, as after a night off or while a machine slept. A fault of a day is little next to longer ones.
const AHEAD_MAX: Duration = Duration::from_secs(86_400);
/// An operator who sets a clock wrongly, or a machine without a clock battery, is corrected sooner.
const TRUSTED_AFTER: Duration = Duration::from_secs(6 * 3_600);
/// Between two looks, some seconds apart: what a time service corrects in small steps is less.
const STEADY_MS_MAX: u64 = 60_000;
/// Each costs a commit.
const WRITTEN_EVERY: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;
    const YEAR: i64 = 365 * DAY;

    /// After this number of minutes, with a wall clock that was set ahead by this time.
    fn at(minutes: u64, ahead: i64) -> Now {
        let wall = 50 * YEAR + (minutes * 60_000).cast_signed() + ahead;
        Now { utc: Timestamp(wall), up: Uptime(minutes * 60_000_000_000) }
    }

    #[test]
    fn clock_set_a_year_ahead_is_trusted_after_hours_only() {
        let mut trusted_clock = TrustedClock::new(None, at(0, 0));
        assert_eq!(
            trusted_clock.time(at(0, 0)),
            at(0, 0).utc,
            "there is nothing to hold against the first one"
        );
        for minutes in 1..=360 {
            assert_eq!(trusted_clock.time(at(minutes, YEAR)), at(minutes, 0).utc, "minute {minutes}");
        }
        assert_eq!(trusted_clock.time(at(361, YEAR)), at(361, YEAR).utc);
        assert_eq!(trusted_clock.time(at(362, YEAR)), at(362, YEAR).utc);
    }

    #[test]
    fn corrected_clock_has_to_prove_itself_anew_the_next_time() {
        let mut trusted_clock = TrustedClock::new(None, at(0, 0));
        trusted_clock.time(at(0, 0));
        for minutes in 1..300 {
            trusted_clock.time(at(minutes, YEAR));
        }
        assert_eq!(trusted_clock.time(at(300, 0)), at(300, 0).utc);
        assert_eq!(trusted_clock.time(at(301, YEAR)), at(301, 0).utc);
        // Set again, and differently: that is no steady clock.
        for minutes in 302..900_u64 {
            let ahead = YEAR + (minutes / 300).cast_signed() * DAY;
            assert_eq!(trusted_clock.time(at(minutes, ahead)), at(minutes, 0).utc, "minute {minutes}");
        }
    }

    #[test]
    fn time_of_an_earlier_process_counts_and_a_night_off_is_no_jump() {
        let kept = Some(at(0, 0).utc);
        let mut trusted_clock = TrustedClock::new(kept, at(0, 0));
        assert_eq!(trusted_clock.time(at(0, DAY / 2)), at(0, DAY / 2).utc);
        let mut trusted_clock = TrustedClock::new(kept, at(0, 0));
        assert_eq!(
            trusted_clock.time(at(5, YEAR)),
            at(5, 0).utc,
            "it was wrong already when the process began"
        );
        assert_eq!(trusted_clock.time(at(6, -YEAR)), at(6, -YEAR).utc, "late does no harm");
    }

    #[test]
    fn trusted_time_is_stored_once_an_hour() {
        let mut trusted_clock = TrustedClock::new(None, at(0, 0));
        assert_eq!(trusted_clock.to_write(at(0, 0).up), None);
        trusted_clock.time(at(0, 0));
        assert_eq!(trusted_clock.to_write(at(0, 0).up), Some(at(0, 0).utc));
        trusted_clock.wrote(at(0, 0).up);
        trusted_clock.time(at(30, 0));
        assert_eq!(trusted_clock.to_write(at(30, 0).up), None);
        trusted_clock.time(at(60, YEAR));
        assert_eq!(trusted_clock.to_write(at(60, 0).up), Some(at(30, 0).utc), "never what is only claimed");
    }
}
