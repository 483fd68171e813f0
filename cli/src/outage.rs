//! The time for which a verb goes on without an answer of the server.
//!
//! A server that is restarted, moved or rebooted comes back, and the jobs go on meanwhile. So a verb that has reached the server tries again
//! until the outage has lasted [`OUTAGE_MAX`].

use std::time::{Duration, Instant};

use crate::failure::{Exit, Failure};
use crate::screen;

/// The aim of a wait; the last message of a verb that gives up names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The end of a job.
    Job(u64),
    /// The end of a batch.
    Batch(u64),
    /// The end of a batch whose output is followed.
    FollowedBatch(u64),
    /// The ends of several jobs or batches.
    Several,
    /// The end of drains.
    Drain,
    /// Nothing that goes on by itself.
    Nothing,
}

/// The failures in a row since the server answered last.
#[derive(Debug)]
pub(crate) struct Outage {
    max: Duration,
    /// When the first of the failures was noticed.
    began_at: Option<Instant>,
    failures: u32,
}

impl Default for Outage {
    fn default() -> Self {
        Self::of_at_most(OUTAGE_MAX)
    }
}

impl Outage {
    /// An outage that may last this long.
    pub(crate) const fn of_at_most(max: Duration) -> Self {
        Self { max, began_at: None, failures: 0 }
    }

    /// Ends the outage: the server has answered.
    pub(crate) const fn end(&mut self) {
        (self.began_at, self.failures) = (None, 0);
    }

    /// The pause before the next try, which grows with the square of the failures.
    pub(crate) fn growing_pause(&self, min: Duration, max: Duration) -> Duration {
        min.saturating_mul(self.failures.saturating_mul(self.failures)).min(max)
    }

    /// Returns Ok if the request shall be sent again: the server is unavailable, and was not for too long. The first failure is noted.
    ///
    /// # Errors
    /// The outage has lasted too long, or the error is none that passes.
    pub(crate) fn retry_or_fail(&mut self, error: anyhow::Error, awaited: Awaited) -> anyhow::Result<()> {
        if error.downcast_ref::<Failure>().is_none_or(|failure| failure.exit != Exit::Unavailable) {
            return Err(error);
        }
        if self.began_at.get_or_insert_with(Instant::now).elapsed() >= self.max {
            return Err(self.give_up(error, awaited));
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            screen::note("longshore: the connection broke; reconnecting");
        }
        Ok(())
    }

    fn give_up(&self, error: anyhow::Error, awaited: Awaited) -> anyhow::Error {
        let next = match awaited {
            Awaited::Job(id) => format!("job {id} goes on: longshore logs -f {id}"),
            Awaited::Batch(id) => format!("batch {id} goes on: longshore batch {id} --wait"),
            Awaited::FollowedBatch(id) => format!("batch {id} goes on: longshore batch {id} --follow"),
            Awaited::Several => "they go on: 'longshore wait' with their ids waits again".to_owned(),
            Awaited::Drain => "the drain goes on: 'longshore workers --all' shows its state".to_owned(),
            Awaited::Nothing => return error,
        };
        let limit = screen::counted(self.max.as_secs() / 60, "minute");
        match error.downcast::<Failure>() {
            Ok(failure) => failure.prefix(&format!("gave up after {limit}: ")).hint(next).into(),
            Err(error) => error,
        }
    }
}

/// Longer than a reboot of the server, and short enough for a machine that will not come back.
const OUTAGE_MAX: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> anyhow::Error {
        Failure::new(Exit::Unavailable, "no answer from http://a/: refused").hint("check it").into()
    }

    #[test]
    fn an_outage_may_last_its_time_however_many_requests_fail() {
        let mut outage = Outage::default();
        for failures in 1..=1_000 {
            outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap();
            assert_eq!(outage.failures, failures);
        }
        outage.began_at = Instant::now().checked_sub(OUTAGE_MAX);
        let error = outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap_err();
        let text =
            "gave up after 15 minutes: no answer from http://a/: refused; job 5 goes on: longshore logs -f 5";
        assert_eq!(error.to_string(), text);
        assert_eq!(crate::failure::exit_of(&error), Exit::Unavailable);
        let error = outage.retry_or_fail(unavailable(), Awaited::Batch(7)).unwrap_err();
        assert!(error.to_string().ends_with("; batch 7 goes on: longshore batch 7 --wait"), "{error}");
        outage.end();
        outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap();
    }

    #[test]
    fn an_error_that_does_not_pass_is_returned_at_once() {
        let refused = Failure::new(Exit::Auth, "no").into();
        assert_eq!(Outage::default().retry_or_fail(refused, Awaited::Job(5)).unwrap_err().to_string(), "no");
        let error = Outage::of_at_most(Duration::ZERO).retry_or_fail(unavailable(), Awaited::Nothing);
        assert_eq!(error.unwrap_err().to_string(), "no answer from http://a/: refused; check it");
    }
}
