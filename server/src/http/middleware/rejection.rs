//! Problems for the rejections of the scheduler.

use scheduler::step::Rejection;

use super::code::ProblemCode;
use super::problem::{Problem, UNKNOWN_WORKER_HINT};
use crate::engine::Busy;
use crate::http::present::pending_text::pending_text;

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::UnknownDefinition => {
                Self::new(ProblemCode::UnknownJob, "the definition has just been removed")
            }
            Rejection::Disabled => {
                Self::new(ProblemCode::DefinitionDisabled, "the definition has \"enabled: false\"")
                    .hint("enable it in jobs.yaml, and reload that")
            }
            Rejection::KeyMismatch(holder) => Self::new(
                ProblemCode::IdempotencyMismatch,
                format!("this key made job {} by another request", holder.job),
            )
            .field("Idempotency-Key")
            .hint("use a new key for a new request"),
            Rejection::KeyReadingTooOld
            | Rejection::PredecessorEnded(_)
            | Rejection::LedgerReadingTooOld
            | Rejection::HolderLookupTooOld
            | Rejection::TooManyPendingBatches => Self::from(Busy),
            Rejection::BatchKeyPending => {
                Self::new(ProblemCode::Busy, "a large batch with this unique key is being made")
                    .hint("try again in a second; an Idempotency-Key makes that safe")
                    .retry_after(1)
            }
            Rejection::DuplicateBatch { batch } => {
                Self::new(ProblemCode::DuplicateBatch, format!("batch {batch} has the unique key of this one"))
                    .batch(batch.0)
                    .hint("wait until it has ended, or cancel it")
            }
            Rejection::QueueFull { jobs_max, asked } if asked > jobs_max => Self::new(
                ProblemCode::QueueFull,
                format!("these are {asked} jobs, of which {jobs_max} at once may not have ended"),
            )
            .hint("divide the batch, or start the server with a larger --max-jobs"),
            Rejection::QueueFull { jobs_max, .. } => Self::new(
                ProblemCode::QueueFull,
                format!("with these there would be more than {jobs_max} jobs that have not ended"),
            )
            .hint("let some end, cancel some, or start the server with a larger --max-jobs")
            .retry_after(10),
            Rejection::TooManyQueued { queued_max, asked, of_definition } => {
                let (whose, remedy) = match of_definition {
                    true => ("of this definition", "raise its max_queued"),
                    false => ("of the server", "start the server with a larger --max-queued"),
                };
                let problem = Self::new(
                    ProblemCode::TooManyQueued,
                    format!("with these more than {queued_max} jobs {whose} would wait"),
                );
                match asked > queued_max {
                    true => problem.hint(format!("divide the batch, or {remedy}")),
                    false => problem.hint(format!("let some start, or {remedy}")).retry_after(10),
                }
            }
            Rejection::LimitFull { limit, permits } => Self::new(
                ProblemCode::LimitFull,
                match permits {
                    1 => format!("the limit {limit} has 1 permit, and one job that has not ended"),
                    _ => format!(
                        "the limit {limit} has {permits} permits, and as many jobs that have not ended"
                    ),
                },
            )
            .hint("try again when one has ended; with \"on_full: queue\" the job would wait")
            .retry_after(10),
            Rejection::Duplicate { job: Some(job) } => {
                Self::new(ProblemCode::DuplicateJob, format!("job {job} has the unique key of this one"))
                    .job(job.0)
                    .hint("wait until it has ended, or cancel it; if it has ended, retry or release it")
            }
            Rejection::Duplicate { job: None } => {
                Self::new(ProblemCode::DuplicateJob, "two jobs of this request have the same unique key")
                    .hint("leave one of them out, or give them different keys")
            }
            Rejection::TooManyUnique { max } => Self::new(
                ProblemCode::UniqueBatch,
                format!("the definition has \"unique\", and such a request makes {max} jobs at most"),
            )
            .hint("divide the request"),
            Rejection::TooManyNarrowings => Self::new(
                ProblemCode::TooManyNarrowings,
                "jobs that have not ended ask for too many different workers or labels",
            )
            .hint("try again when some have ended; to run a job on many workers, give its definition \"run_on\"")
            .retry_after(10),
            Rejection::UniqueBackfill => {
                Self::new(ProblemCode::UniqueBatch, "definitions with \"unique\" cannot be backfilled")
                    .hint("submit the jobs one by one")
            }
            Rejection::NoWorker(reason) => Self::new(ProblemCode::NoWorker, pending_text(reason)).retry_after(5),
            Rejection::NotLive => Self::new(ProblemCode::JobNotFound, "there is no such job"),
            Rejection::NothingToRelease(state) => Self::new(
                ProblemCode::NothingToRelease,
                format!("the job is {} on a worker that answers for it", state.name()),
            )
            .state(state.name())
            .hint("to end it, cancel it"),
            Rejection::NotWaiting(state) => {
                Self::new(ProblemCode::NotWaiting, format!("the job is {}", state.name()))
                    .state(state.name())
                    .hint("only a job that is scheduled or queued can be changed; to end this one, cancel it")
            }
            Rejection::UnknownSchedule => {
                Self::new(ProblemCode::UnknownSchedule, "no schedule of jobs.yaml is called so")
                    .hint("GET /api/schedules lists them")
            }
            Rejection::UnknownWorker => {
                Self::new(ProblemCode::UnknownWorker, "there is no such worker").hint(UNKNOWN_WORKER_HINT)
            }
            Rejection::RefusedBefore => Self::new(
                ProblemCode::RefusedByStore,
                "what this request leads to was refused twice by the server's store",
            )
            .hint("the server's operator finds more in its log and its data directory"),
            Rejection::TooManyLabels => {
                Self::new(ProblemCode::TooLong, "a worker has at most 64 labels that are set here").field("labels")
            }
            Rejection::TooManyPausedBatches { max } => {
                Self::new(ProblemCode::TooManyPaused, format!("{max} batches are paused, and more may not be at once"))
                    .hint("resume or cancel one of them (GET /api/pauses lists them), or pause a definition or a group")
            }
            Rejection::WorkerAway => Self::new(ProblemCode::WorkerAway, "it is not connected, and cannot be told")
                .hint("ask again when it is back"),
            Rejection::NotUnmanaged => {
                Self::new(ProblemCode::UnknownAttempt, "it has no such attempt that this server never gave")
                    .hint("'unmanaged' of the worker lists them")
            }
            Rejection::WorkerConnected => {
                Self::new(ProblemCode::WorkerConnected, "it is connected, or still has attempts")
                    .hint("stop it, or drain it, first; what waits for it can be released")
            }
        }
    }
}
