//! The effect of an operation of the engine on each job.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use protocol::JobId;
use scheduler::input::IdempotencyKey;
use scheduler::job::State as JobState;
use scheduler::new_jobs::NewJob;
use scheduler::step::{Answer, Rejection};

use super::command::JobCommand;
use super::keys::key_of;
use super::verb::EngineVerb;
use super::{AT_ONCE, Effect, Operation};
use crate::http::api::jobs::{already_finished, check_scope, find};
use crate::http::api::repeat::repeat_of;
use crate::http::middleware::problem::Problem;
use crate::http::request::idempotency_key::{look_up, submit_looked_up_first};
use crate::http::request::job_request::JobRequest;
use crate::http::request::submit_params::MembersChoice;

impl Operation {
    /// The effects of an operation on jobs, in their order; some of them are under way at once.
    pub(super) fn effects(
        self: &Arc<Self>,
        jobs: Vec<JobId>,
        verb: EngineVerb,
    ) -> BoxStream<'static, JobEffect> {
        let operation = Arc::clone(self);
        let jobs = stream::iter(jobs);
        match verb {
            EngineVerb::Cancel => jobs
                .map(move |job| {
                    let operation = Arc::clone(&operation);
                    async move { (job, operation.cancel(job).await) }
                })
                .buffered(AT_ONCE)
                .boxed(),
            EngineVerb::Release => jobs
                .map(move |job| {
                    let operation = Arc::clone(&operation);
                    async move { (job, operation.release(job).await) }
                })
                .buffered(AT_ONCE)
                .boxed(),
            EngineVerb::Retry => {
                let maker = Arc::clone(self);
                let prepared = jobs.map(move |job| {
                    let operation = Arc::clone(&operation);
                    async move { (job, operation.prepare_retry(job).await) }
                });
                // A new job is sent to the engine when its future is polled first, which is in the order of the jobs: so they get their
                // numbers in this order.
                let made = prepared.buffered(AT_ONCE).map(move |(job, prepared)| {
                    let operation = Arc::clone(&maker);
                    async move {
                        match prepared {
                            Ok((new, key)) => (job, operation.make_retry(new, key).await),
                            Err(problem) => (job, Err(problem)),
                        }
                    }
                });
                made.buffered(AT_ONCE).boxed()
            }
        }
    }

    async fn cancel(&self, job: JobId) -> Result<Effect, Problem> {
        check_scope(&self.state, job).await?;
        match self.ask_engine(job, JobCommand::Cancel).await? {
            Answer::CancelRequested { state } if state.has_ended() => Ok(Effect::Done(state)),
            Answer::CancelRequested { state } => Ok(Effect::Stopping(state)),
            Answer::Rejected(Rejection::NotLive) => {
                let record = find(&self.state, job).await?;
                match record.row.state {
                    JobState::Cancelled => Ok(Effect::Done(JobState::Cancelled)),
                    _ => Err(already_finished(&record)),
                }
            }
            Answer::Rejected(rejection) => Err(rejection.into()),
            answer => Err(Problem::unexpected_answer(&answer)),
        }
    }

    async fn release(&self, job: JobId) -> Result<Effect, Problem> {
        check_scope(&self.state, job).await?;
        match self.ask_engine(job, JobCommand::Release).await? {
            Answer::Done => Ok(Effect::Done(find(&self.state, job).await?.row.state)),
            Answer::Rejected(Rejection::NotLive) => Err(already_finished(&find(&self.state, job).await?)),
            Answer::Rejected(rejection) => Err(rejection.into()),
            answer => Err(Problem::unexpected_answer(&answer)),
        }
    }

    /// Reads all that a retry needs.
    async fn prepare_retry(&self, job: JobId) -> Result<(NewJob, Option<IdempotencyKey>), Problem> {
        let (definition, new) =
            repeat_of(&self.state, job, self.revision, MembersChoice::All, JobRequest::default()).await?;
        let key = match &self.key {
            Some((key, digest)) => Some(look_up(&self.state, key_of(key, job).into(), *digest).await?),
            None => None,
        };
        Ok((NewJob { revision: definition.revision, ..new }, key))
    }

    async fn make_retry(&self, new: NewJob, key: Option<IdempotencyKey>) -> Result<Effect, Problem> {
        match submit_looked_up_first(&self.state, new, key).await? {
            Answer::Accepted(accepted) => Ok(Effect::Made(accepted.first)),
            Answer::Replayed(holder) => Ok(Effect::Made(holder.job)),
            Answer::Duplicate(other) => Ok(Effect::Existing(other)),
            Answer::Rejected(rejection) => Err(rejection.into()),
            answer => Err(Problem::unexpected_answer(&answer)),
        }
    }
}

/// A job with the effect on it.
type JobEffect = (JobId, Result<Effect, Problem>);
