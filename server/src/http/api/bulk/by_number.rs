//! Bulk operations on jobs that a request names by number: each job counts once, and the answer has the effect on each.

use std::collections::HashSet;

use protocol::JobId;
use scheduler::job::State as JobState;

use super::acknowledge::would_change;
use super::{Detail, Effect, EngineVerb, Operation, SLICE};
use crate::auth::actor::Actor;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::submit_params::RevisionChoice;

impl Operation {
    /// Applies the operation to these jobs. A dry run counts those that it would change. An error after the first slice is the refusal
    /// of all jobs from there on, because the answer has to tell the effect on those before.
    pub(super) async fn run_by_number(
        self: &std::sync::Arc<Self>,
        ids: &[u64],
        result: &mut shapes::BulkResult,
    ) -> Result<(), Problem> {
        let mut seen = HashSet::new();
        let jobs: Vec<JobId> = ids.iter().copied().filter(|id| seen.insert(*id)).map(JobId).collect();
        if result.dry_run {
            for slice in jobs.chunks(SLICE) {
                result.matched += self.count(slice.to_vec()).await?;
            }
            return Ok(());
        }
        let mut refused_by = None::<Problem>;
        for slice in jobs.chunks(SLICE) {
            if refused_by.is_none() {
                match self.apply(slice.to_vec(), result, Detail::EachJob).await {
                    Ok(_) => {}
                    Err(problem) if result.matched > 0 => refused_by = Some(problem),
                    Err(problem) => return Err(problem),
                }
            }
            if let Some(problem) = &refused_by {
                for job in slice {
                    self.record(*job, Err(problem.clone()), result, Detail::EachJob);
                }
            }
            result.matched += slice.len() as u64;
        }
        Ok(())
    }

    /// The number of those jobs that the operation would change.
    async fn count(&self, jobs: Vec<JobId>) -> Result<u64, Problem> {
        let states = self.state.read(move |archive| archive.states(&jobs)).await?;
        let actor = Actor::current();
        let Some(verb) = self.verb.of_engine() else {
            let ids: Vec<JobId> = states.iter().map(|(job, ..)| *job).collect();
            let found = self.state.read(move |archive| archive.failures(&ids)).await?;
            let changes = states.iter().zip(&found).filter(|((_, definition, state), status)| {
                actor.check_scope(definition).is_ok() && would_change(self.verb, *state, status)
            });
            return Ok(changes.count() as u64);
        };
        let mut count = 0;
        for (job, definition, state) in states {
            if actor.check_scope(&definition).is_ok()
                && self.would_change(job, verb, &definition, state).await?
            {
                count += 1;
            }
        }
        Ok(count)
    }

    async fn would_change(
        &self,
        job: JobId,
        verb: EngineVerb,
        definition: &str,
        state: JobState,
    ) -> Result<bool, Problem> {
        match verb {
            EngineVerb::Cancel => Ok(!state.has_ended()),
            EngineVerb::Retry => {
                let definitions = self.state.services.catalogue.current();
                let can_run = match definitions.find(definition) {
                    Some(entry) => entry.definition.enabled,
                    None => self.revision == RevisionChoice::Original,
                };
                Ok(state.has_ended() && can_run)
            }
            EngineVerb::Release => match state {
                JobState::Quarantined => Ok(true),
                JobState::Assigned | JobState::Running => {
                    let found = self.state.read(move |archive| archive.job(job)).await?;
                    Ok(found.is_some_and(|record| self.state.presenter().is_releasable(&record.row)))
                }
                _ => Ok(false),
            },
        }
    }
}

/// The effect on one job as the answer shows it.
pub(super) fn shown(
    job: JobId,
    effect: &Result<Effect, Problem>,
    base_path: &str,
    request_id: &str,
) -> shapes::BulkEffect {
    let shown = shapes::BulkEffect { job: job.0, ..shapes::BulkEffect::default() };
    match effect {
        Ok(Effect::Done(state) | Effect::Stopping(state)) => {
            shapes::BulkEffect { state: Some(state.name().into()), ..shown }
        }
        Ok(Effect::Made(made)) => shapes::BulkEffect { made: Some(made.0), ..shown },
        Ok(Effect::Existing(other)) => shapes::BulkEffect { made: Some(other.0), duplicate: true, ..shown },
        Err(problem) => {
            let document = problem.clone().into_document(base_path, request_id);
            shapes::BulkEffect { problem: Some(Box::new(document)), ..shown }
        }
    }
}
