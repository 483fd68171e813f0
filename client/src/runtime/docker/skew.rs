//! How far the engine's clock is from ours, where it runs on another machine (DOCKER_HOST).
//!
//! Containers begin and end by the engine's clock, stops by ours. With one second between them, a job that was cancelled would have ended
//! by itself before anybody wanted that. So the engine is asked for its time now and then, and told apart by as much as that shows.
//!
//! On one clock nothing may be told apart at all, or a job that ended by itself just before its stop would be taken for stopped. There the
//! engine's answer lies between the question and its return, whatever they take. What is known stays as long as an answer is possible with
//! it, and at first that the clocks are one: so an engine on our clock is never corrected, not by a millisecond, and one on another clock no
//! worse than by half of how long an answer takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use protocol::{Now, Timestamp};

use super::Shared;
use crate::clock;

/// How many milliseconds the engine's clock is ahead of ours; below zero: behind.
#[derive(Default)]
pub(super) struct Skew(AtomicI64);

impl Skew {
    /// Now, by the engine's clock on the wall: what it says of instants is to be understood by this.
    pub(super) fn engine(&self, now: Now) -> Now {
        Now { utc: self.of_engine(now.utc), ..now }
    }

    /// An instant of ours, as the engine would tell it.
    pub(super) fn of_engine(&self, ours: Timestamp) -> Timestamp {
        Timestamp(ours.0.saturating_add(self.0.load(Ordering::Relaxed)))
    }

    /// The engine has told its time between these two instants.
    pub(super) fn heard(&self, before: Now, engine: Timestamp, after: Now) {
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
                "the engine has a clock of its own, which is not right by ours"
            );
            self.0.store(found, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// Now, by the engine's clock on the wall and by ours that nobody sets.
    pub(super) fn engine_now(&self) -> Now {
        self.skew.engine(clock::now())
    }

    /// Asks the engine for its time, now and then. An answer that does not come, or makes no sense, is no sign of anything.
    pub(super) async fn ask_for_time(self: Arc<Self>) {
        loop {
            self.health.wait_until_up().await;
            let before = clock::now();
            let answer = self.cli.call(["info", "--format", "{{.SystemTime}}"], ANSWER_LIMIT).await;
            if let Some(time) = answer.ok().and_then(|it| instant(&it.stdout)) {
                self.skew.heard(before, time, clock::now());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}

/// What the engine tells as its time.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.trim().parse().ok()?;
    Some(Timestamp(at.as_millisecond()))
}

/// Clocks are read in whole milliseconds.
const ROUNDED_MILLIS: i64 = 2;

/// An answer costs some 50 ms of CPU; two clocks drift apart by a few milliseconds meanwhile.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// What takes longer tells little about the time.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

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
            skew.heard(at(*before), at(*engine).utc, at(*after));
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
    fn another_clock_is_known_by_half_of_what_an_answer_takes_and_stays_as_long_as_it_is_possible() {
        assert_eq!(ahead_after(&[(0, -1_000, 60)]), -1_030);
        assert_eq!(ahead_after(&[(0, 3_600_030, 60)]), 3_600_000);
        // An answer that takes long tells less, and takes back nothing.
        assert_eq!(ahead_after(&[(0, -970, 60), (1_000, 1_000, 4_000)]), -1_000);
        // One that was wrong is corrected, also to none.
        assert_eq!(ahead_after(&[(0, -970, 60), (1_000, 1_030, 1_060)]), 0);
    }

    #[test]
    fn what_our_own_clock_was_set_by_meanwhile_is_not_the_engines() {
        let (skew, set_back) = (Skew::default(), Now { utc: at(-1_000).utc, ..at(60) });
        skew.heard(at(0), at(30).utc, set_back);
        assert_eq!(skew.engine(at(0)), at(0));
    }

    #[test]
    fn the_engines_words_for_its_time_are_read() {
        assert_eq!(instant("2026-01-01T00:00:05.123456789Z\n"), Some(Timestamp(1_767_225_605_123)));
        assert_eq!(instant("2026-01-01T01:00:05+01:00"), Some(Timestamp(1_767_225_605_000)));
        assert_eq!(instant(""), None);
    }
}
