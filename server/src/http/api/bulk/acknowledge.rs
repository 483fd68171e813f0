//! Acknowledgements of many failures: one change of the store for each slice, since the engine has no part in it.

use std::collections::BTreeMap;

use protocol::JobId;
use scheduler::job::State as JobState;

use super::verb::Verb;
use super::{Detail, Effect, Operation};
use crate::auth::actor::Actor;
use crate::http::api::acknowledge::{check_failed, write};
use crate::http::api::jobs::find;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::store::{AcknowledgementChange, FailureStatus};

impl Operation {
    /// Acknowledges the failures of a slice, or takes that back.
    ///
    /// # Errors
    /// Those of a read and of the change; nothing was changed then.
    pub(super) async fn apply_acknowledgement(
        &self,
        jobs: Vec<JobId>,
        result: &mut shapes::BulkResult,
        detail: Detail,
    ) -> Result<(), Problem> {
        let ids = jobs.clone();
        let found = self.state.read(move |archive| archive.states(&ids)).await?;
        let found: BTreeMap<JobId, (String, JobState)> =
            found.into_iter().map(|(job, definition, state)| (job, (definition, state))).collect();
        let (mut effects, mut changed) = (Vec::with_capacity(jobs.len()), Vec::new());
        for job in jobs {
            let effect = self.check(job, found.get(&job)).await;
            if effect.is_ok() {
                changed.push(job);
            }
            effects.push((job, effect));
        }
        if !changed.is_empty() {
            let change = match &self.acknowledgement {
                Some(acknowledgement) => AcknowledgementChange::Add(changed, acknowledgement.clone()),
                None => AcknowledgementChange::Remove(changed),
            };
            write(&self.state, change).await?;
        }
        for (job, effect) in effects {
            self.record(job, effect.map(Effect::Done), result, detail);
        }
        Ok(())
    }

    async fn check(&self, job: JobId, found: Option<&(String, JobState)>) -> Result<JobState, Problem> {
        let (definition, state) = match found {
            Some(found) => found.clone(),
            // It says whether there was one.
            None => find(&self.state, job).await.map(|record| (record.row.definition, record.row.state))?,
        };
        Actor::current().check_scope(&definition)?;
        check_failed(job, state)?;
        Ok(state)
    }
}

/// True if the operation would change the attention that a job needs.
pub(super) fn would_change(verb: Verb, state: JobState, status: &FailureStatus) -> bool {
    let is_acknowledged = matches!(status, FailureStatus::Acknowledged(_));
    state.is_failure() && is_acknowledged == (verb == Verb::TakeBack)
}
