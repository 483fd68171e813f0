//! A store in memory, for tests and trials: forgets everything when its last handle is dropped.
//!
//! It applies one change after the other, without folding and without any cleverness, so that it can be held against the others.

mod archive;
mod kept;
mod remove;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{ClusterId, Epoch, Fence, JobId, Revision, SessionId, Timestamp, Token, WorkerId};
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::{AddedJob, Change, Ended, Note, WorkerRow};

use kept::Kept;

use super::fold::{Expected, expectation, stop_cause};
use super::{
    CommitError, Group, JobRecord, JobRow, Keep, LiveJob, LoadError, Loaded, Removed, Store,
    StoredDefinition, Unconfirmed,
};

/// Both sides of the store; clones share it. Loading it again is a restart.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    world: Arc<Mutex<World>>,
}

#[derive(Debug, Default)]
struct World {
    loaded: Loaded,
    definitions: BTreeMap<Revision, StoredDefinition>,
    jobs: BTreeMap<JobId, Kept>,
    /// Large batches whose members are being made, by their first ones: nobody looks here.
    forming: BTreeMap<JobId, Forming>,
    keys: BTreeMap<String, (KeyHolder, Timestamp)>,
    workers: BTreeMap<WorkerId, WorkerRow>,
    names: BTreeMap<WorkerId, Arc<str>>,
    /// After the first, up to and with the second: numbers of jobs that were left out.
    gaps: Vec<(JobId, JobId)>,
}

#[derive(Clone, Debug)]
struct Forming {
    last: JobId,
    members: BTreeMap<JobId, Kept>,
}

impl MemoryStore {
    /// An empty store of a new installation.
    #[must_use]
    pub fn new() -> Self {
        let store = Self::default();
        store.world().loaded.cluster = ClusterId(rand::random_range(1..=u32::MAX));
        store
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn load(&mut self, visit: &mut dyn FnMut(LiveJob)) -> Result<Loaded, LoadError> {
        let mut world = self.world();
        world.loaded.epoch = Epoch(world.loaded.epoch.0 + 1);
        // Nobody was promised what was not finished.
        let unfinished = std::mem::take(&mut world.forming);
        world.gaps.extend(unfinished.iter().map(|(first, batch)| (JobId(first.0 - 1), batch.last)));
        let live: Vec<&Kept> =
            world.jobs.values().filter(|kept| !kept.record.row.state.has_ended()).collect();
        live.iter().for_each(|kept| visit(kept.live()));
        let mut unconfirmed: Vec<Unconfirmed> = world.jobs.values().flat_map(Kept::unconfirmed).collect();
        unconfirmed.sort_by_key(|it| (it.worker, it.token.job, it.token.fence));
        let used = |definition: &&StoredDefinition| {
            live.iter().any(|kept| kept.record.row.revision == definition.revision)
                || unconfirmed.iter().any(|it| it.revision == definition.revision)
        };
        let mut definitions: Vec<StoredDefinition> =
            world.definitions.values().filter(used).cloned().collect();
        definitions.sort_by(|one, other| (&one.name, one.revision).cmp(&(&other.name, other.revision)));
        let workers = world.workers.values().cloned().collect();
        Ok(Loaded { workers, definitions, unconfirmed, ..world.loaded.clone() })
    }

    fn commit(&mut self, group: &Group) -> Result<(), CommitError> {
        let mut world = self.world();
        if group.epoch != world.loaded.epoch {
            return Err(CommitError::Fenced { ours: group.epoch });
        }
        if group.number <= world.loaded.group {
            return Ok(());
        }
        let forming = world.forming.clone();
        let mut draft = Draft { world: &world, group, jobs: BTreeMap::new(), forming, keys: BTreeMap::new() };
        for change in &group.changes {
            draft.apply(change).map_err(CommitError::Refused)?;
        }
        let Draft { jobs, forming, keys, .. } = draft;
        world.forming = forming;
        world.accept(group, jobs, keys);
        Ok(())
    }

    fn remove(&mut self, epoch: Epoch, keep: &Keep) -> Result<Removed, CommitError> {
        let mut world = self.world();
        if epoch != world.loaded.epoch {
            return Err(CommitError::Fenced { ours: epoch });
        }
        world.loaded.retention_by = keep.by.or(world.loaded.retention_by);
        Ok(world.remove(keep))
    }
}

/// What a group would make of the world.
struct Draft<'w> {
    world: &'w World,
    group: &'w Group,
    jobs: BTreeMap<JobId, Kept>,
    forming: BTreeMap<JobId, Forming>,
    keys: BTreeMap<String, (KeyHolder, Timestamp)>,
}

impl Draft<'_> {
    fn apply(&mut self, change: &Change) -> Result<(), String> {
        if let Some((job, expected)) = expectation(change) {
            if self.is_settled(change) {
                return Ok(());
            }
            self.check(job, expected)?;
        }
        match change {
            Change::Added(added) => self.add(added)?,
            Change::Assigned(assigned) => self.job(assigned.token.job)?.assign(assigned),
            Change::Started { token, at, container } => self.job(token.job)?.start(*at, container),
            Change::Stopping { token, cause, .. } => {
                if let Some(attempt) = &mut self.job(token.job)?.record.row.attempt {
                    attempt.stopping = Some(stop_cause(attempt.stopping, *cause));
                }
            }
            Change::Waiting { job, closed, due_at, state } => self.job(*job)?.wait(closed, *due_at, *state),
            Change::Due { job } => self.job(*job)?.record.row.state = State::Queued,
            Change::Freed { job } => {
                let kept = self.job(*job)?;
                kept.record.row.state = State::Queued;
                kept.losses.clear();
            }
            Change::Ended(ended) => self.job(ended.job)?.end(ended),
            Change::Confirmed { token, worker, at } => self.confirm(*token, *worker, *at),
            Change::Noted { job, at, note } => self.note(*job, *at, note),
            Change::Keyed { key, holder, at } => {
                let taken = self.world.keys.contains_key(&**key)
                    || self.keys.insert((**key).to_owned(), (*holder, *at)).is_some();
                if taken {
                    return Err(format!("the key {key} was given before"));
                }
            }
            Change::Forming { first, last } => self.form(*first, *last)?,
            Change::Formed { first } => self.formed(*first)?,
            Change::Skipped { .. } | Change::Worker(_) | Change::WorkerForgotten(_) => {}
        }
        Ok(())
    }

    fn form(&mut self, first: JobId, last: JobId) -> Result<(), String> {
        if first <= self.world.loaded.last_job {
            return Err(format!("a batch from {first} on: expected new numbers, but they were given before"));
        }
        self.forming.insert(first, Forming { last, members: BTreeMap::new() });
        Ok(())
    }

    fn formed(&mut self, first: JobId) -> Result<(), String> {
        let made = self.forming.remove(&first).filter(|batch| batch.members.contains_key(&batch.last));
        let refusal = || format!("a batch from {first} on: expected it to be forming, up to its last member");
        self.jobs.extend(made.ok_or_else(refusal)?.members);
        Ok(())
    }

    /// The batch that set this number aside.
    fn forming(&mut self, job: JobId) -> Option<&mut Forming> {
        let (_, batch) = self.forming.range_mut(..=job).next_back()?;
        (job <= batch.last).then_some(batch)
    }

    fn find(&self, job: JobId) -> Option<&Kept> {
        self.jobs.get(&job).or_else(|| self.world.jobs.get(&job))
    }

    fn job(&mut self, job: JobId) -> Result<&mut Kept, String> {
        if !self.jobs.contains_key(&job) {
            let kept =
                self.world.jobs.get(&job).cloned().ok_or_else(|| format!("job {job}: it does not exist"))?;
            self.jobs.insert(job, kept);
        }
        self.jobs.get_mut(&job).ok_or_else(|| format!("job {job}: it does not exist"))
    }

    fn check(&self, job: JobId, expected: Expected) -> Result<(), String> {
        let Some(kept) = self.find(job) else {
            return if expected == Expected::Absent && self.is_free(job) {
                Ok(())
            } else {
                Err(format!("job {job}: expected {expected}, but it does not exist"))
            };
        };
        let row = &kept.record.row;
        if expected.accepts(row.state, kept.current()) {
            Ok(())
        } else {
            Err(format!("job {job}: expected {expected}, but it is {}", row.state.name()))
        }
    }

    /// Whether a job may have this number: it was never given, or was set aside for it.
    fn is_free(&self, job: JobId) -> bool {
        let batch = self.forming.range(..=job).next_back().map(|(_, batch)| batch);
        job > self.world.loaded.last_job
            || batch.is_some_and(|batch| job <= batch.last && !batch.members.contains_key(&job))
    }

    /// Whether this is the end that a job of an earlier group has come to already.
    fn is_settled(&self, change: &Change) -> bool {
        let Change::Ended(Ended { job, state, closed: Some(closed), .. }) = change else { return false };
        let Some(row) = self.world.jobs.get(job).map(|kept| &kept.record.row) else { return false };
        row.state == *state
            && row.attempt.as_ref().is_some_and(|attempt| {
                (attempt.fence, attempt.nonce, attempt.outcome)
                    == (closed.token.fence, closed.token.nonce, Some(closed.outcome))
            })
    }

    fn add(&mut self, added: &AddedJob) -> Result<(), String> {
        let stored = self.group.definitions.iter().map(|it| &**it).find(|it| it.revision == added.revision);
        let definition = stored
            .or_else(|| self.world.definitions.get(&added.revision))
            .ok_or_else(|| format!("definition {} was never stored", added.revision))?;
        let details = added.details.as_deref().cloned().unwrap_or_default();
        let row = JobRow {
            job: added.job,
            definition: definition.name.clone(),
            revision: added.revision,
            state: added.state,
            priority: added.priority,
            created_at: added.created_at,
            due_at: added.due_at,
            timeout: added.timeout,
            batch: added.batch,
            retry_of: added.retry_of,
            labels: details.labels,
            ended_at: None,
            reason: String::new(),
            confirmed: false,
            attempts: protocol::AttemptNo(0),
            attempt: None,
        };
        let record = JobRecord {
            row,
            body: details.body,
            past: Vec::new(),
            notes: Vec::new(),
            late_left_out: 0,
            retry_of_removed: false,
        };
        let kept = Kept { record, session: SessionId(0), own_failures: 0, losses: Vec::new() };
        match self.forming(added.job) {
            Some(batch) => batch.members.insert(added.job, kept),
            None => self.jobs.insert(added.job, kept),
        };
        Ok(())
    }

    /// Where it is confirmed already, or not kept any more, nothing changes.
    fn confirm(&mut self, token: Token, worker: WorkerId, at: Timestamp) {
        if let Ok(kept) = self.job(token.job)
            && kept.is_unconfirmed()
            && kept.was_given(token, worker)
        {
            kept.record.row.confirmed = true;
            kept.record.notes.push((at, Note::Confirmed { token, worker }));
        }
    }

    /// A note on a job that is not there (any more) is of no use to anyone.
    fn note(&mut self, job: JobId, at: Timestamp, note: &Note) {
        if let Ok(kept) = self.job(job)
            && !kept.repeats(note)
        {
            kept.record.notes.push((at, note.clone()));
            kept.leave_out_surplus();
        }
    }
}

impl World {
    /// Whether this is the number of a job that is or was here.
    fn was_given(&self, job: JobId) -> bool {
        let is_left_out = |(after, until): &(JobId, JobId)| *after < job && job <= *until;
        (JobId(1)..=self.loaded.last_job).contains(&job) && !self.gaps.iter().any(is_left_out)
    }

    fn accept(
        &mut self,
        group: &Group,
        jobs: BTreeMap<JobId, Kept>,
        keys: BTreeMap<String, (KeyHolder, Timestamp)>,
    ) {
        for definition in &group.definitions {
            self.definitions.entry(definition.revision).or_insert_with(|| (**definition).clone());
        }
        self.loaded.group = group.number;
        let set_aside = self.forming.values().map(|batch| batch.last);
        self.loaded.last_job = jobs.keys().copied().chain(set_aside).fold(self.loaded.last_job, JobId::max);
        self.jobs.extend(jobs);
        self.keys.extend(keys);
        for change in &group.changes {
            match change {
                Change::Assigned(assigned) => {
                    self.loaded.last_fence = Fence::max(self.loaded.last_fence, assigned.token.fence);
                }
                Change::Skipped { after, job, fence, .. } => {
                    self.loaded.last_job = self.loaded.last_job.max(*job);
                    self.loaded.last_fence = self.loaded.last_fence.max(*fence);
                    self.gaps.push((*after, *job));
                }
                Change::Worker(row) => {
                    self.loaded.last_worker = WorkerId::max(self.loaded.last_worker, row.worker);
                    self.workers.insert(row.worker, row.clone());
                    self.names.insert(row.worker, Arc::clone(&row.name));
                }
                Change::WorkerForgotten(worker) => drop(self.workers.remove(worker)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Archive;
    use crate::store::conformance::{Backend, conforms};

    impl Backend for MemoryStore {
        fn open(&mut self) -> (Box<dyn Store>, Box<dyn Archive>) {
            (Box::new(self.clone()), Box::new(self.clone()))
        }
    }

    conforms!(MemoryStore::new());
}
