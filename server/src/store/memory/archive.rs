//! The read side: everything is looked at, nothing is indexed.

use std::sync::Arc;

use protocol::container::Body;
use protocol::{JobId, Revision, Token, WorkerId};
use scheduler::input::{GroupNo, KeyHolder};
use scheduler::step::WorkerRow;

use super::{MemoryStore, World};
use crate::store::{
    Archive, AttemptRow, JOBS_MAX, JobFilter, JobRecord, JobRow, LAST_AMONG, ReadError, StoredDefinition,
};

impl World {
    fn named(&self, mut attempt: AttemptRow) -> AttemptRow {
        attempt.worker_name = self.names.get(&attempt.worker).cloned().unwrap_or_else(|| Arc::from(""));
        attempt
    }

    fn shown(&self, row: &JobRow) -> JobRow {
        JobRow { attempt: row.attempt.clone().map(|attempt| self.named(attempt)), ..row.clone() }
    }

    fn find<'w>(&'w self, filter: &'w JobFilter) -> impl Iterator<Item = JobRow> + 'w {
        let rows = self.jobs.values().rev().map(|kept| &kept.record.row);
        rows.filter(|row| is_meant(filter, row)).map(|row| self.shown(row))
    }
}

fn is_meant(filter: &JobFilter, row: &JobRow) -> bool {
    (filter.states.is_empty() || filter.states.contains(&row.state))
        && filter.name.as_ref().is_none_or(|name| *name == row.definition)
        && filter
            .worker
            .is_none_or(|worker| row.attempt.as_ref().is_some_and(|attempt| attempt.worker == worker))
        && filter.label.as_ref().is_none_or(|label| row.labels.contains(label))
        && filter.batch.is_none_or(|batch| row.batch == Some(batch))
        && filter.since.is_none_or(|since| row.created_at >= since)
        && filter.until.is_none_or(|until| row.created_at < until)
        && filter.before.is_none_or(|before| row.job < before)
}

impl Archive for MemoryStore {
    fn job(&self, id: JobId) -> Result<Option<JobRecord>, ReadError> {
        let world = self.world();
        Ok(world.jobs.get(&id).map(|kept| JobRecord {
            row: world.shown(&kept.record.row),
            past: kept.record.past.iter().cloned().map(|attempt| world.named(attempt)).collect(),
            retry_of_removed: kept.record.row.retry_of.is_some_and(|of| !world.jobs.contains_key(&of)),
            ..kept.record.clone()
        }))
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, ReadError> {
        Ok(self.world().find(filter).take(filter.limit.min(JOBS_MAX)).collect())
    }

    fn key(&self, key: &str) -> Result<(Option<KeyHolder>, GroupNo), ReadError> {
        let world = self.world();
        Ok((world.keys.get(key).map(|(holder, _)| *holder), world.loaded.group))
    }

    fn bodies(&self, ids: &[JobId]) -> Result<Vec<(JobId, Body)>, ReadError> {
        let world = self.world();
        let body = |id: &JobId| Some((*id, world.jobs.get(id)?.record.body.clone()));
        Ok(ids.iter().filter_map(body).filter(|(_, body)| !body.is_empty()).collect())
    }

    fn attempts_of(&self, worker: WorkerId, tokens: &[Token]) -> Result<Vec<Token>, ReadError> {
        let world = self.world();
        let is_its = |token: &&Token| {
            world.jobs.get(&token.job).is_some_and(|kept| {
                let mut attempts = kept.record.past.iter().chain(&kept.record.row.attempt);
                attempts.any(|it| (it.fence, it.nonce, it.worker) == (token.fence, token.nonce, worker))
            })
        };
        Ok(tokens.iter().filter(is_its).copied().collect())
    }

    fn strangers(&self, tokens: &[Token]) -> Result<Vec<Token>, ReadError> {
        let world = self.world();
        let is_strange = |token: &&Token| {
            let Some(kept) = world.jobs.get(&token.job) else {
                return !world.was_given(token.job);
            };
            let mut attempts = kept.record.past.iter().chain(&kept.record.row.attempt);
            !attempts.any(|it| (it.fence, it.nonce) == (token.fence, token.nonce))
        };
        Ok(tokens.iter().filter(is_strange).copied().collect())
    }

    fn definition(&self, revision: Revision) -> Result<Option<StoredDefinition>, ReadError> {
        Ok(self.world().definitions.get(&revision).cloned())
    }

    fn workers(&self) -> Result<Vec<WorkerRow>, ReadError> {
        Ok(self.world().workers.values().cloned().collect())
    }

    fn worker_named(&self, name: &str) -> Result<Option<WorkerId>, ReadError> {
        let world = self.world();
        let named = world.names.iter().filter(|(_, known)| &***known == name).map(|(id, _)| *id);
        Ok(named.max_by_key(|id| (world.workers.contains_key(id), *id)))
    }

    fn first_kept(&self, ids: &[JobId]) -> Result<Option<JobId>, ReadError> {
        let world = self.world();
        Ok(ids.iter().copied().find(|id| world.jobs.contains_key(id)))
    }

    fn was_removed(&self, id: JobId) -> Result<bool, ReadError> {
        let world = self.world();
        let mut forming = world.forming.iter();
        let is_forming = forming.any(|(first, batch)| (*first..=batch.last).contains(&id));
        Ok(world.was_given(id) && !is_forming && !world.jobs.contains_key(&id))
    }

    fn last_ended(&self, definition: &str) -> Result<Option<JobRow>, ReadError> {
        let world = self.world();
        let filter = JobFilter { name: Some(definition.to_owned()), ..JobFilter::default() };
        let ended = world.find(&filter).filter(|row| row.state.has_ended()).take(LAST_AMONG);
        Ok(ended.max_by_key(|row| (row.ended_at, row.job)))
    }
}
