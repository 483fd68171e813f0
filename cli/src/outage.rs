//! The time for which a verb goes on without an answer of the server.
//!
//! A server that is restarted, moved or rebooted comes back, and the jobs go on meanwhile. So a verb that waits tries again until the outage
//! has lasted [`OUTAGE_MAX`], also if the server was away at its first request. Until the first answer, an error that a wait does not mend ends
//! the verb at once: a name that does not exist, a certificate that is not trusted.

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
    /// The server has answered the verb before.
    was_reached: bool,
    /// The last failure since the last answer, and when it was noticed.
    last: Option<(Instant, anyhow::Error)>,
    /// The pause that the server asked for with its last refusal.
    asked_pause: Duration,
    /// The time of the whole verb, which counts from `started_at`.
    limit: Option<Duration>,
    started_at: Instant,
}

impl Default for Outage {
    fn default() -> Self {
        Self::of_at_most(OUTAGE_MAX)
    }
}

impl Outage {
    /// An outage that may last this long, of a server that has answered before.
    pub(crate) fn of_at_most(max: Duration) -> Self {
        Self { was_reached: true, ..Self::of_unreached(max) }
    }

    /// An outage of a server that has not answered yet. The limit is that of the whole verb, and counts from now.
    pub(crate) fn before_first_answer(limit: Option<Duration>) -> Self {
        Self { limit, ..Self::of_unreached(limit.unwrap_or(OUTAGE_MAX).min(OUTAGE_MAX)) }
    }

    fn of_unreached(max: Duration) -> Self {
        Self {
            max,
            began_at: None,
            failures: 0,
            was_reached: false,
            last: None,
            asked_pause: Duration::ZERO,
            limit: None,
            started_at: Instant::now(),
        }
    }

    /// The rest of the limit of the verb; `None` if it has none.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.started_at.elapsed()))
    }

    /// Ends the outage: the server has answered.
    pub(crate) fn end(&mut self) {
        let (limit, started_at) = (self.limit, self.started_at);
        *self = Self { limit, started_at, ..Self::of_at_most(self.max) };
    }

    /// The reason for which no request was answered. `None` after an answer, and if none has failed: a server may answer late.
    pub(crate) fn into_failure(mut self) -> Option<anyhow::Error> {
        if self.was_reached { None } else { self.take_last() }
    }

    /// The error when the limit of the verb is up before the answer to a request that is not a wait.
    pub(crate) fn time_is_up(&mut self) -> Failure {
        let limit = self.limit.unwrap_or(self.max);
        let silent = || {
            let text = format!("the time of {limit:?} is up: the server has not answered");
            Failure::new(Exit::TimedOut, text)
        };
        self.take_last().and_then(|error| error.downcast().ok()).unwrap_or_else(silent)
    }

    /// The last failure, unless a request has been without an answer since then: it has reached the server.
    fn take_last(&mut self) -> Option<anyhow::Error> {
        let silence = self.asked_pause + SILENCE_MIN;
        let (_, error) = self.last.take().filter(|(failed_at, _)| failed_at.elapsed() < silence)?;
        Some(match error.downcast::<Failure>() {
            Ok(failure) => failure.prefix(&format!("gave up after {}: ", in_words(self.max))).into(),
            Err(error) => error,
        })
    }

    /// The pause before the next try: about a second, or what the server asked for.
    pub(crate) fn pause(&self) -> Duration {
        let left =
            self.max.saturating_sub(self.began_at.map_or(Duration::ZERO, |began_at| began_at.elapsed()));
        self.growing_pause(PAUSE_MIN, PAUSE_MAX).max(self.asked_pause.min(left))
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
        let Some(failure) = error.downcast_ref::<Failure>().filter(|it| it.exit == Exit::Unavailable) else {
            return Err(error);
        };
        if !self.was_reached && failure.is_persistent {
            return Err(error);
        }
        self.asked_pause = failure.retry_after.unwrap_or_default();
        if self.began_at.get_or_insert_with(Instant::now).elapsed() >= self.max {
            return Err(self.give_up(error, awaited));
        }
        self.failures = self.failures.saturating_add(1);
        match (self.failures, self.was_reached) {
            (1, true) => screen::note("longshore: the connection broke; reconnecting"),
            (1, false) => {
                let (why, time) = (failure.text(), in_words(self.max));
                screen::note(&format!("longshore: {why}; trying again for {time}"));
            }
            _ => {}
        }
        self.last = Some((Instant::now(), error));
        Ok(())
    }

    fn give_up(&self, error: anyhow::Error, awaited: Awaited) -> anyhow::Error {
        let next = match awaited {
            _ if !self.was_reached => String::new(),
            Awaited::Job(id) => format!("job {id} goes on: longshore logs -f {id}"),
            Awaited::Batch(id) => format!("batch {id} goes on: longshore batch {id} --wait"),
            Awaited::FollowedBatch(id) => format!("batch {id} goes on: longshore batch {id} --follow"),
            Awaited::Several => "they go on: 'longshore wait' with their ids waits again".to_owned(),
            Awaited::Drain => "the drain goes on: 'longshore workers --all' shows its state".to_owned(),
            Awaited::Nothing => return error,
        };
        match error.downcast::<Failure>() {
            Ok(failure) => {
                let failure = failure.prefix(&format!("gave up after {}: ", in_words(self.max)));
                // The hint of an error says how to reach the server.
                if self.was_reached { failure.hint(next) } else { failure }.into()
            }
            Err(error) => error,
        }
    }
}

/// Repeats a request that changes nothing until the server answers. Without an outage it is sent once, as by a verb that does not wait.
///
/// # Errors
/// The request was refused, the outage has lasted too long, or the limit of the verb is up.
pub(crate) async fn until_answered<T>(
    outage: Option<&mut Outage>,
    awaited: Awaited,
    mut ask: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(outage) = outage else { return ask().await };
    let left = outage.left();
    let answered = async {
        loop {
            match ask().await {
                Ok(answer) => {
                    outage.end();
                    return Ok(answer);
                }
                Err(error) => outage.retry_or_fail(error, awaited)?,
            }
            tokio::time::sleep(outage.pause()).await;
        }
    };
    match within(left, answered).await {
        Some(answer) => answer,
        None => Err(outage.time_is_up().into()),
    }
}

/// Returns `None` if the time is up first.
pub(crate) async fn within<T>(left: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match left {
        Some(left) => tokio::time::timeout(left, work).await.ok(),
        None => Some(work.await),
    }
}

/// A limit for people: `15 minutes`, or `90s`.
fn in_words(limit: Duration) -> String {
    match limit.as_secs() {
        seconds if seconds > 0 && seconds % 60 == 0 && limit.subsec_nanos() == 0 => {
            screen::counted(seconds / 60, "minute")
        }
        _ => format!("{limit:?}"),
    }
}

/// Longer than a reboot of the server, and short enough for a machine that will not come back.
const OUTAGE_MAX: Duration = Duration::from_secs(15 * 60);
/// A request that fails to connect does so in 5 s; the pause before it lasts 2 s at most. This is longer than both.
const SILENCE_MIN: Duration = Duration::from_secs(8);
/// A server that is started beside the verb answers soon.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Short enough for people, and cheap for a server with hundreds of clients.
const PAUSE_MAX: Duration = Duration::from_secs(1);

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

    #[test]
    fn a_server_that_has_not_answered_yet_may_be_away_as_long() {
        let mut outage = Outage::before_first_answer(None);
        outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap();
        assert_eq!(outage.max, OUTAGE_MAX);
        outage.began_at = Instant::now().checked_sub(OUTAGE_MAX);
        let error = outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap_err();
        let text = "gave up after 15 minutes: no answer from http://a/: refused; check it";
        assert_eq!(error.to_string(), text, "nobody knows whether the job goes on");
        assert_eq!(crate::failure::exit_of(&error), Exit::Unavailable);
        assert_eq!(Outage::before_first_answer(Some(Duration::from_secs(7))).max, Duration::from_secs(7));
        assert_eq!(Outage::before_first_answer(Some(OUTAGE_MAX * 2)).max, OUTAGE_MAX);
    }

    #[test]
    fn an_error_that_a_wait_does_not_mend_ends_a_verb_until_the_first_answer() {
        let wrong = || -> anyhow::Error { Failure::new(Exit::Unavailable, "no TLS").persistent().into() };
        let mut outage = Outage::before_first_answer(None);
        assert_eq!(outage.retry_or_fail(wrong(), Awaited::Nothing).unwrap_err().to_string(), "no TLS");
        outage.end();
        outage.retry_or_fail(wrong(), Awaited::Nothing).unwrap();
    }

    #[test]
    fn only_a_request_that_failed_is_the_reason_for_a_wait_without_an_answer() {
        let mut outage = Outage::before_first_answer(None);
        outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap();
        assert!(outage.into_failure().is_some());
        assert!(Outage::before_first_answer(None).into_failure().is_none(), "it answers late");
        let mut outage = Outage::before_first_answer(None);
        outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap();
        outage.end();
        outage.retry_or_fail(unavailable(), Awaited::Job(5)).unwrap();
        assert!(outage.into_failure().is_none(), "it has answered before");
    }

    #[test]
    fn a_server_that_is_silent_after_a_refusal_is_not_away() {
        let limit = Duration::from_secs(30);
        let silent_for = |silence| {
            let mut outage = Outage::before_first_answer(Some(limit));
            outage.retry_or_fail(unavailable(), Awaited::Nothing).unwrap();
            let (failed_at, _) = outage.last.as_mut().unwrap();
            *failed_at = Instant::now().checked_sub(silence).unwrap();
            outage
        };
        assert!(silent_for(SILENCE_MIN).into_failure().is_none());
        let failure = silent_for(SILENCE_MIN).time_is_up();
        let text = "the time of 30s is up: the server has not answered";
        assert_eq!((failure.exit, failure.text()), (Exit::TimedOut, text));
        let failure = silent_for(Duration::ZERO).time_is_up();
        assert!(failure.text().starts_with("gave up after 30s: no answer from"), "{failure}");
    }

    #[test]
    fn an_answer_does_not_renew_the_limit_of_the_verb() {
        let mut outage = Outage::before_first_answer(Some(Duration::from_secs(30)));
        outage.started_at = Instant::now().checked_sub(Duration::from_secs(20)).unwrap();
        outage.end();
        assert!(outage.left().is_some_and(|left| left <= Duration::from_secs(10)));
        assert_eq!(Outage::before_first_answer(None).left(), None);
    }

    #[test]
    fn the_pause_is_what_the_server_asked_for_within_the_limit() {
        let busy = |seconds| -> anyhow::Error {
            Failure::new(Exit::Unavailable, "busy").retry_after(Some(Duration::from_secs(seconds))).into()
        };
        let mut outage = Outage::before_first_answer(None);
        outage.retry_or_fail(busy(30), Awaited::Nothing).unwrap();
        assert_eq!(outage.pause(), Duration::from_secs(30));
        outage.retry_or_fail(busy(1_000_000), Awaited::Nothing).unwrap();
        assert!(outage.pause() <= OUTAGE_MAX);
    }
}
