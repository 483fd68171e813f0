//! The offset of the engine's clock, which matters if the engine runs on another machine (DOCKER_HOST).
//!
//! Starts and ends of containers come by the engine's clock, stops by ours. With one second between them, a cancelled job would seem to
//! have ended before its cancel. So the engine is asked for its time now and then.
//!
//! With one common clock the offset must be exactly zero, or a job that ended just before its stop would count as stopped. There the
//! engine's time lies between the question and the answer. A known offset stays as long as an answer is possible with it, beginning with
//! zero. So a common clock is never corrected, and another clock is known to half of the time of an answer.

use std::sync::atomic::{AtomicI64, Ordering};

use protocol::{Now, Timestamp};

/// Milliseconds by which the engine's clock is ahead of ours; negative: behind.
#[derive(Default)]
pub(super) struct Skew(AtomicI64);

impl Skew {
    /// Now by the engine's wall clock, together with our monotonic clock.
    pub(super) fn engine(&self, now: Now) -> Now {
        Now { utc: self.of_engine(now.utc), ..now }
    }

    /// One of our instants by the engine's clock.
    pub(super) fn of_engine(&self, ours: Timestamp) -> Timestamp {
        Timestamp(ours.0.saturating_add(self.0.load(Ordering::Relaxed)))
    }

    /// Takes an answer of the engine that came between two instants.
    pub(super) fn add_sample(&self, before: Now, engine: Timestamp, after: Now) {
        let took_millis = i64::try_from(after.up.since(before.up).as_millis()).unwrap_or(i64::MAX);
        if (after.utc.0 - before.utc.0).abs_diff(took_millis) > ROUNDED_MILLIS.unsigned_abs() {
            return; // Our own clock was set meanwhile.
        }
        let least = engine.0.saturating_sub(after.utc.0) - ROUNDED_MILLIS;
        let most = engine.0.saturating_sub(before.utc.0) + ROUNDED_MILLIS;
        let known = self.0.load(Ordering::Relaxed);
        if !(least..=most).contains(&known) {
            let found = least.midpoint(most);
            tracing::warn!(
                ahead_millis = found,
                "the clock of the engine differs from the clock of this worker; times are corrected"
            );
            self.0.store(found, Ordering::Relaxed);
        }
    }
}

/// Parses the engine's time.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.trim().parse().ok()?;
    Some(Timestamp(at.as_millisecond()))
}

/// Clocks are read in whole milliseconds.
const ROUNDED_MILLIS: i64 = 2;

#[cfg(test)]
mod tests {
    use protocol::Uptime;

    use super::*;

    fn at(millis: i64) -> Now {
        Now { utc: Timestamp(1_700_000_000_000 + millis), up: Uptime(millis.unsigned_abs() * 1_000_000) }
    }

    fn ahead_after(answers: &[(i64, i64, i64)]) -> i64 {
        let skew = Skew::default();
        for (before, engine, after) in answers {
            skew.add_sample(at(*before), at(*engine).utc, at(*after));
        }
        skew.engine(at(0)).utc.0 - at(0).utc.0
    }

    #[test]
    fn an_engine_on_our_own_clock_is_never_corrected() {
        for (before, engine, after) in [(0, 0, 0), (0, 40, 40), (0, 0, 9_000), (0, 9_000, 9_000), (5, 7, 60)]
        {
            assert_eq!(ahead_after(&[(before, engine, after)]), 0, "{before} {engine} {after}");
        }
    }

    #[test]
    fn another_clock_is_known_to_half_of_the_answer_time_and_stays_while_possible() {
        assert_eq!(ahead_after(&[(0, -1_000, 60)]), -1_030);
        assert_eq!(ahead_after(&[(0, 3_600_030, 60)]), 3_600_000);
        // A slow answer is less precise and changes nothing.
        assert_eq!(ahead_after(&[(0, -970, 60), (1_000, 1_000, 4_000)]), -1_000);
        // A wrong offset is corrected, also to zero.
        assert_eq!(ahead_after(&[(0, -970, 60), (1_000, 1_030, 1_060)]), 0);
    }

    #[test]
    fn a_step_of_our_own_clock_is_not_the_engines_offset() {
        let (skew, set_back) = (Skew::default(), Now { utc: at(-1_000).utc, ..at(60) });
        skew.add_sample(at(0), at(30).utc, set_back);
        assert_eq!(skew.engine(at(0)), at(0));
    }

    #[test]
    fn the_engines_time_is_parsed() {
        assert_eq!(instant("2026-01-01T00:00:05.123456789Z\n"), Some(Timestamp(1_767_225_605_123)));
        assert_eq!(instant("2026-01-01T01:00:05+01:00"), Some(Timestamp(1_767_225_605_000)));
        assert_eq!(instant(""), None);
    }
}
