//! The effect of an operation of the engine on one job.

use protocol::JobId;
use scheduler::job::State as JobState;
use scheduler::new_jobs::NewJob;
use scheduler::step::{Answer, Rejection};

use super::command::JobCommand;
use super::keys::key_of;
use super::verb::EngineVerb;
use super::{Effect, Operation};
use crate::http::api::jobs::{already_finished, check_scope, find};
use crate::http::api::repeat::repeat_of;
use crate::http::middleware::problem::Problem;
use crate::http::request::idempotency_key::submit_with_key;
use crate::http::request::job_request::JobRequest;
use crate::http::request::submit_params::MembersChoice;

impl Operation {
    pub(super) async fn apply_to(&self, job: JobId, verb: EngineVerb) -> Result<Effect, Problem> {
        match verb {
            EngineVerb::Cancel => self.cancel(job).await,
            EngineVerb::Release => self.release(job).await,
            EngineVerb::Retry => self.retry(job).await,
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

    async fn retry(&self, job: JobId) -> Result<Effect, Problem> {
        let (definition, new) =
            repeat_of(&self.state, job, self.revision, MembersChoice::All, JobRequest::default()).await?;
        let new = NewJob { revision: definition.revision, ..new };
        let key = self.key.as_ref().map(|(key, digest)| (key_of(key, job).into(), *digest));
        match submit_with_key(&self.state, vec![new], None, false, key).await? {
            Answer::Accepted(accepted) => Ok(Effect::Made(accepted.first)),
            Answer::Replayed(holder) => Ok(Effect::Made(holder.job)),
            Answer::Duplicate(other) => Ok(Effect::Existing(other)),
            Answer::Rejected(rejection) => Err(rejection.into()),
            answer => Err(Problem::unexpected_answer(&answer)),
        }
    }
}
