//! A store in memory, for tests and trials: forgets everything when its last handle is dropped.
//!
//! It applies one change after the other, without folding and without any cleverness, so that it can be held against the others.

mod archive;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::report::OutputLengths;
use protocol::{ClusterId, Epoch, Fence, JobId, Revision, SessionId, Timestamp, Token, WorkerId};
use scheduler::definition::RetryPolicy;
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended, Note, WorkerRow};

use super::fold::{Expected, expectation};
use super::{
    AttemptRow, CommitError, Group, JobRecord, JobRow, LiveAttempt, LiveJob, LoadError, Loaded, Store,
    StoredDefinition, late, losses,
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
    keys: BTreeMap<String, KeyHolder>,
    workers: BTreeMap<WorkerId, WorkerRow>,
    names: BTreeMap<WorkerId, Arc<str>>,
}

#[derive(Clone, Debug)]
struct Kept {
    record: JobRecord,
    session: SessionId,
    own_failures: u32,
    losses: Vec<Timestamp>,
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
        let live: Vec<&Kept> =
            world.jobs.values().filter(|kept| !kept.record.row.state.has_ended()).collect();
        live.iter().for_each(|kept| visit(kept.live()));
        let used = |definition: &&StoredDefinition| {
            live.iter().any(|kept| kept.record.row.revision == definition.revision)
        };
        let mut definitions: Vec<StoredDefinition> =
            world.definitions.values().filter(used).cloned().collect();
        definitions.sort_by(|one, other| (&one.name, one.revision).cmp(&(&other.name, other.revision)));
        Ok(Loaded { workers: world.workers.values().cloned().collect(), definitions, ..world.loaded.clone() })
    }

    fn commit(&mut self, group: &Group) -> Result<(), CommitError> {
        let mut world = self.world();
        if group.epoch != world.loaded.epoch {
            return Err(CommitError::Fenced { ours: group.epoch });
        }
        if group.number <= world.loaded.group {
            return Ok(());
        }
        let mut draft = Draft { world: &world, group, jobs: BTreeMap::new(), keys: BTreeMap::new() };
        for change in &group.changes {
            draft.apply(change).map_err(CommitError::Refused)?;
        }
        let Draft { jobs, keys, .. } = draft;
        world.accept(group, jobs, keys);
        Ok(())
    }
}

/// What a group would make of the world.
struct Draft<'w> {
    world: &'w World,
    group: &'w Group,
    jobs: BTreeMap<JobId, Kept>,
    keys: BTreeMap<String, KeyHolder>,
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
                    attempt.stopping = attempt.stopping.or(Some(*cause));
                }
            }
            Change::Waiting { job, closed, due_at, state } => self.job(*job)?.wait(closed, *due_at, *state),
            Change::Due { job } => self.job(*job)?.record.row.state = State::Queued,
            Change::Ended(ended) => self.job(ended.job)?.end(ended),
            Change::Noted { job, at, note } => self.note(*job, *at, note),
            Change::Keyed { key, holder, .. } => {
                let taken = self.world.keys.contains_key(&**key)
                    || self.keys.insert((**key).to_owned(), *holder).is_some();
                if taken {
                    return Err(format!("the key {key} was given before"));
                }
            }
            Change::Worker(_) | Change::WorkerForgotten(_) => {}
        }
        Ok(())
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
            let is_new = expected == Expected::Absent && job > self.world.loaded.last_job;
            return if is_new {
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
        let record = JobRecord { row, body: details.body, past: Vec::new(), notes: Vec::new() };
        self.jobs
            .insert(added.job, Kept { record, session: SessionId(0), own_failures: 0, losses: Vec::new() });
        Ok(())
    }

    /// A note on a job that is not there (any more) is of no use to anyone.
    fn note(&mut self, job: JobId, at: Timestamp, note: &Note) {
        if let Ok(kept) = self.job(job)
            && !kept.repeats(note)
        {
            kept.record.notes.push((at, note.clone()));
        }
    }
}

impl Kept {
    fn current(&self) -> Option<Token> {
        let attempt = self.record.row.attempt.as_ref().filter(|attempt| attempt.outcome.is_none())?;
        Some(Token { job: self.record.row.job, fence: attempt.fence, nonce: attempt.nonce })
    }

    /// Whether it is a late report of what its attempt's row says already.
    fn repeats(&self, note: &Note) -> bool {
        let Note::LateReport { token, worker, said } = note else { return false };
        let attempts = self.record.past.iter().chain(&self.record.row.attempt);
        attempts
            .filter(|it| (it.fence, it.nonce, it.worker) == (token.fence, token.nonce, *worker))
            .any(|it| late::repeats(said, it.started_at.is_some(), it.outcome))
    }

    fn assign(&mut self, assigned: &Assigned) {
        let row = &mut self.record.row;
        row.state = State::Assigned;
        row.attempts = assigned.number;
        self.session = assigned.session;
        let attempt = AttemptRow {
            number: assigned.number,
            fence: assigned.token.fence,
            nonce: assigned.token.nonce,
            worker: assigned.worker,
            worker_name: Arc::from(""),
            assigned_at: assigned.at,
            started_at: None,
            container: String::new(),
            stopping: None,
            ended_at: None,
            outcome: None,
            exit_code: None,
            message: String::new(),
            output: OutputLengths::default(),
            result: None,
            released: None,
        };
        self.record.past.extend(row.attempt.replace(attempt));
    }

    fn start(&mut self, at: Timestamp, container: &str) {
        self.record.row.state = State::Running;
        if let Some(attempt) = &mut self.record.row.attempt {
            attempt.started_at = Some(at);
            container.clone_into(&mut attempt.container);
        }
    }

    fn wait(&mut self, closed: &ClosedAttempt, due_at: Timestamp, state: State) {
        self.close(closed);
        self.own_failures += u32::from(RetryPolicy::OWN_BUDGET.contains(&closed.outcome));
        if losses::counts(closed.outcome) {
            self.losses = losses::with(std::mem::take(&mut self.losses), closed.ended_at);
        }
        let row = &mut self.record.row;
        (row.state, row.due_at) = (state, due_at);
    }

    fn end(&mut self, ended: &Ended) {
        if let Some(closed) = &ended.closed {
            self.close(closed);
        }
        let row = &mut self.record.row;
        (row.state, row.ended_at, row.confirmed) = (ended.state, Some(ended.at), ended.confirmed);
        row.reason.clone_from(&ended.reason);
    }

    fn close(&mut self, closed: &ClosedAttempt) {
        let Some(attempt) = &mut self.record.row.attempt else { return };
        attempt.started_at = closed.started_at.or(attempt.started_at);
        attempt.ended_at = Some(closed.ended_at);
        attempt.outcome = Some(closed.outcome);
        attempt.exit_code = closed.exit_code;
        attempt.message.clone_from(&closed.message);
        attempt.output = closed.output;
        attempt.result.clone_from(&closed.result);
        attempt.released = closed.released;
    }

    fn live(&self) -> LiveJob {
        let row = &self.record.row;
        let attempt = row.attempt.as_ref().zip(self.current()).map(|(attempt, token)| LiveAttempt {
            token,
            worker: attempt.worker,
            session: self.session,
            assigned_at: attempt.assigned_at,
            started_at: attempt.started_at,
            stopping: attempt.stopping,
        });
        LiveJob {
            job: row.job,
            revision: row.revision,
            state: row.state,
            priority: row.priority,
            due_at: row.due_at,
            timeout: row.timeout,
            has_body: !self.record.body.is_empty(),
            own_failures: self.own_failures,
            losses: self.losses.clone(),
            attempts: row.attempts,
            last_worker: row.attempt.as_ref().map(|attempt| attempt.worker),
            attempt,
        }
    }
}

impl World {
    fn accept(&mut self, group: &Group, jobs: BTreeMap<JobId, Kept>, keys: BTreeMap<String, KeyHolder>) {
        for definition in &group.definitions {
            self.definitions.entry(definition.revision).or_insert_with(|| (**definition).clone());
        }
        self.loaded.group = group.number;
        self.loaded.last_job = jobs.keys().copied().fold(self.loaded.last_job, JobId::max);
        self.jobs.extend(jobs);
        self.keys.extend(keys);
        for change in &group.changes {
            match change {
                Change::Assigned(assigned) => {
                    self.loaded.last_fence = Fence::max(self.loaded.last_fence, assigned.token.fence);
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
