//! Two budgets, and what is left of them decides how a job goes on.

use std::time::Duration;

use super::{DAY, Job};
use crate::world::protocol::Timestamp;
use crate::world::protocol::order::StopCause;
use crate::world::protocol::report::Outcome;
use crate::world::scheduler::definition::{Backoff, Definition, Delays, OnLost};
use crate::world::scheduler::job::State;

/// A worker does not know which exit codes are a success.
pub(super) fn believed(definition: &Definition, outcome: Outcome, exit_code: Option<i32>) -> Outcome {
    let is_success = exit_code.is_some_and(|code| definition.success_exit_codes.contains(&code));
    if outcome == Outcome::Failed && is_success { Outcome::Succeeded } else { outcome }
}

/// The next state of a job after an attempt.
pub(super) enum Then {
    End(State),
    /// Another attempt, after at most this long.
    Again(Duration),
    /// Another attempt, as if there had been none.
    InItsPlace,
    Hold,
}

/// Two budgets, never mixed (docs/design/scheduling.md, Q2): counts what is used of them.
pub(super) fn what_then(job: &mut Job, now: Timestamp, outcome: Outcome, exit_code: Option<i32>) -> Then {
    let cancelled = job.attempt().is_some_and(|it| it.stopping == Some(StopCause::Cancel));
    let is_stopping = job.attempt().is_some_and(|it| it.stopping.is_some());
    let has_run = exit_code.is_some() || job.attempt().is_some_and(|it| it.started.is_some());
    let is_away = job.attempt().is_some_and(|it| job.unconfirmed.contains(&it.token));
    let retry = &job.definition.retry;
    match outcome {
        Outcome::Succeeded => Then::End(State::Succeeded),
        Outcome::Cancelled => Then::End(State::Cancelled),
        Outcome::Failed
        | Outcome::OomKilled
        | Outcome::TimedOut
        | Outcome::PullFailed
        | Outcome::StartFailed => {
            job.job_failures += 1;
            job.oom_kills += u32::from(outcome == Outcome::OomKilled);
            let wrong_code = outcome == Outcome::Failed
                && !retry.exit_codes.is_empty()
                && !retry.exit_codes.iter().any(|it| exit_code == Some(*it));
            let is_meant = retry.when.contains(&outcome) && !wrong_code;
            if cancelled || !is_meant || job.job_failures > retry.max {
                Then::End(State::Failed)
            } else {
                Then::Again(ceiling(&retry.backoff, job.job_failures))
            }
        }
        _ if cancelled => Then::End(State::Cancelled),
        Outcome::Lost if job.definition.loss.on_lost == OnLost::Fail => Then::End(State::Lost),
        Outcome::Lost if job.definition.loss.on_lost == OnLost::Wait && is_away => Then::End(State::Lost),
        Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed => {
            job.losses.retain(|at| now.since(*at) < DAY);
            job.losses.push(now);
            let losses = job.losses.len() as u32;
            if losses < job.definition.loss.limit {
                Then::Again(ceiling(&PLATFORM, losses))
            } else {
                Then::Hold
            }
        }
        Outcome::Interrupted | Outcome::Released if !has_run && job.expires.is_some_and(|at| at <= now) => {
            Then::End(State::Expired)
        }
        // Nobody had asked for that: its worker had lost the server.
        Outcome::Interrupted if !is_stopping && job.definition.container.self_fence.is_some() => {
            Then::Again(ceiling(&PLATFORM, 1))
        }
        Outcome::Interrupted | Outcome::Released => Then::InItsPlace,
    }
}

/// `memory * factor^kills`, once it was killed for that.
pub(super) fn memory(job: &Job) -> Option<u64> {
    let (memory, factor) =
        (job.definition.container.resources.memory_bytes?, job.definition.retry.memory_factor_milli?);
    let factor = f64::from(factor) / 1_000.0;
    (job.oom_kills > 0).then(|| (memory as f64 * factor.powi(job.oom_kills as i32)) as u64)
}

const PLATFORM: Backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60), 2_000);

/// The longest wait after this number of failures.
fn ceiling(backoff: &Backoff, failures: u32) -> Duration {
    match &backoff.delays {
        Delays::Exponential { initial, max, factor_milli } => {
            let factor = f64::from(*factor_milli) / 1_000.0;
            let ceiling = initial.as_secs_f64() * factor.powi(failures as i32 - 1);
            Duration::from_secs_f64(ceiling.min(max.as_secs_f64()))
        }
        Delays::Linear { initial, max } => (*initial * failures).min(*max),
        Delays::Fixed(delay) => *delay,
        Delays::List(list) => list[list.len().min(failures as usize) - 1],
    }
}

/// How long its worker may be silent before the job is given up. With `on_lost: wait` that is for ever, unless the definition says otherwise.
pub(super) fn given_up_after(job: &Job, is_cancelled: bool) -> Option<Duration> {
    let after = job.definition.loss.after;
    if is_cancelled || job.definition.loss.on_lost != OnLost::Wait {
        return Some(after);
    }
    job.definition.waits.silent_worker.map(|limit| limit.max(after))
}
