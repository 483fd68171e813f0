//! Helpers of the suite: a store under test, and constructors of changes.

use std::sync::Arc;

use protocol::container::Overrides;
use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{
    AttemptNo, Epoch, Fence, Incarnation, JobId, Nonce, Revision, SessionId, Timestamp, Token, WorkerId,
};
use scheduler::fleet::row::{Process, WorkerRow};
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::origin::{Intervention, Origin};
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended};

use super::Backend;
use crate::store::{
    Archive, CommitError, DefinitionRemoval, Group, JobFilter, LiveJob, LoadItem, Loaded, RecordChange,
    Removed, RetentionCutoffs, Store, StoredDefinition,
};

/// A store under test, with what its engine would know.
pub(in crate::store) struct Harness<'b> {
    pub(super) backend: &'b mut dyn Backend,
    pub(super) store: Option<Box<dyn Store>>,
    pub(super) archive: Option<Box<dyn Archive>>,
    pub(super) epoch: Epoch,
    pub(super) group: GroupNo,
    /// The definitions that the last restart handed out.
    pub(super) definitions: Vec<StoredDefinition>,
}

impl<'b> Harness<'b> {
    pub(in crate::store) fn new(backend: &'b mut dyn Backend) -> Self {
        let mut harness = Self {
            backend,
            store: None,
            archive: None,
            epoch: Epoch(0),
            group: GroupNo(0),
            definitions: Vec::new(),
        };
        harness.restart();
        harness
    }

    pub(in crate::store) fn restart(&mut self) -> (Loaded, Vec<LiveJob>) {
        (self.store, self.archive) = (None, None);
        let (mut store, archive) = self.backend.open();
        let mut live = Vec::new();
        self.definitions.clear();
        let mut definitions = Vec::new();
        let mut base = None;
        let loaded = store
            .load(&mut |item| match item {
                LoadItem::Base(loaded) => base = Some(loaded.last_job),
                LoadItem::Definition(definition) => definitions.push(definition.clone()),
                LoadItem::Job(job, _) => {
                    assert!(
                        base.is_some() && definitions.iter().any(|known| known.revision == job.revision),
                        "a job comes after the base and its definition"
                    );
                    live.push(job);
                }
            })
            .unwrap();
        self.definitions = definitions;
        (self.epoch, self.group) = (loaded.epoch, loaded.group);
        (self.store, self.archive) = (Some(store), Some(archive));
        (loaded, live)
    }

    pub(in crate::store) fn group(&self, changes: Vec<Change>) -> Group {
        Group {
            epoch: self.epoch,
            number: GroupNo(self.group.0 + 1),
            at: Timestamp(0),
            definitions: vec![definition(1), definition(2)],
            changes,
            ..Group::default()
        }
    }

    pub(in crate::store) fn commit_group(&mut self, group: &Group) -> Result<(), CommitError> {
        self.store.as_mut().unwrap().commit(group)
    }

    pub(in crate::store) fn commit(&mut self, changes: Vec<Change>) {
        let group = self.group(changes);
        self.commit_group(&group).unwrap();
        self.group = group.number;
    }

    pub(in crate::store) fn refused(&mut self, changes: Vec<Change>) -> String {
        let group = self.group(changes);
        match self.commit_group(&group) {
            Err(CommitError::Refused(why)) => why,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    pub(super) fn remove(&mut self, cutoffs: RetentionCutoffs) -> Removed {
        self.store.as_mut().unwrap().remove(self.epoch, &cutoffs).unwrap()
    }

    /// Step by step until nothing more is due; how many jobs went.
    pub(super) fn remove_all(&mut self, cutoffs: RetentionCutoffs) -> u64 {
        let mut jobs = 0;
        loop {
            let removed = self.remove(cutoffs);
            jobs += removed.jobs;
            if !removed.more {
                return jobs;
            }
        }
    }

    pub(super) fn remove_by_definition(&mut self, removal: &DefinitionRemoval) -> Removed {
        self.store.as_mut().unwrap().remove_by_definition(self.epoch, removal).unwrap()
    }

    pub(super) fn change_record(&mut self, change: &RecordChange) {
        self.store.as_mut().unwrap().change_record(self.epoch, change).unwrap();
    }

    pub(in crate::store) fn archive(&self) -> &dyn Archive {
        self.archive.as_deref().unwrap()
    }

    /// The overrides of those of these jobs that have any.
    pub(in crate::store) fn sent(&self, jobs: &[JobId]) -> Vec<(JobId, Overrides)> {
        self.archive().overrides(jobs).unwrap()
    }

    pub(in crate::store) fn state(&self, job: u64) -> State {
        self.archive().job(JobId(job)).unwrap().unwrap().row.state
    }

    pub(in crate::store) fn list(&self, filter: JobFilter) -> Vec<u64> {
        let limit = if filter.limit == 0 { 500 } else { filter.limit };
        self.archive().jobs(&JobFilter { limit, ..filter }).unwrap().iter().map(|row| row.job.0).collect()
    }
}

pub(in crate::store) fn definition(number: u128) -> Arc<StoredDefinition> {
    let name = if number % 2 == 1 { "resize" } else { "mail" };
    Arc::new(StoredDefinition { revision: Revision(number), name: name.into(), entry: "{}".into() })
}

pub(in crate::store) fn token(job: u64, fence: u64) -> Token {
    // Nonces use all 64 bits.
    Token { job: JobId(job), fence: Fence(fence), nonce: Nonce(u64::MAX - fence) }
}

pub(in crate::store) fn job(job: u64) -> AddedJob {
    AddedJob {
        job: JobId(job),
        revision: Revision(1),
        state: State::Queued,
        priority: -3,
        created_at: Timestamp(1_000 + job.cast_signed()),
        due_at: Timestamp(2_000),
        timeout: None,
        batch: None,
        retry_of: None,
        submitted_by: None,
        narrowing: None,
        keys: None,
        details: None,
    }
}

pub(in crate::store) fn added(number: u64) -> Change {
    Change::Added(job(number))
}

pub(in crate::store) fn assigned(job: u64, fence: u64) -> Change {
    assigned_as(job, fence, 1, 1)
}

pub(in crate::store) fn assigned_as(job: u64, fence: u64, number: u32, worker: u64) -> Change {
    Change::Assigned(Assigned {
        gpus: Default::default(),
        token: token(job, fence),
        number: AttemptNo(number),
        worker: WorkerId(worker),
        session: SessionId(70 + worker),
        at: Timestamp(3_000),
    })
}

pub(in crate::store) fn started(job: u64, fence: u64) -> Change {
    Change::Started { token: token(job, fence), at: Timestamp(4_000), container: format!("c{fence}") }
}

pub(in crate::store) fn stopping(job: u64, fence: u64, cause: StopCause) -> Change {
    Change::Stopping { token: token(job, fence), cause, at: Timestamp(4_500), by: "someone".into() }
}

pub(in crate::store) fn closed(job: u64, fence: u64, outcome: Outcome) -> ClosedAttempt {
    ClosedAttempt {
        token: token(job, fence),
        outcome,
        exit_code: (outcome == Outcome::Failed).then_some(3),
        message: if outcome == Outcome::Succeeded { String::new() } else { "it broke".into() },
        started_at: Some(Timestamp(4_001)),
        ended_at: Timestamp(5_000),
        output: OutputLengths { stdout: 10, stderr: 20 },
        usage: Default::default(),
        result: (outcome == Outcome::Succeeded).then(|| "{\"n\":1}".into()),
        released: (outcome == Outcome::Released).then_some(ReleaseCause::Full),
    }
}

pub(in crate::store) fn waiting(closed: ClosedAttempt, state: State) -> Change {
    Change::AttemptClosed { job: closed.token.job, closed, due_at: Timestamp(9_000), state }
}

pub(in crate::store) fn ended(job: u64, state: State, closed: Option<ClosedAttempt>) -> Change {
    let reason = if state == State::Succeeded { String::new() } else { "because".into() };
    Change::Ended(Ended { job: JobId(job), state, at: Timestamp(5_001), reason, closed, confirmed: true })
}

pub(super) fn ended_at(job: u64, state: State, at: i64) -> Change {
    let reason = String::new();
    Change::Ended(Ended { job: JobId(job), state, at: Timestamp(at), reason, closed: None, confirmed: true })
}

/// Keeps everything.
pub(super) const KEEP: RetentionCutoffs = RetentionCutoffs {
    ended_since: Timestamp(0),
    ended_max: u64::MAX,
    keyed_since: Timestamp(0),
    late_since: Timestamp(0),
    rows_max: 100,
    by: None,
};

pub(in crate::store) fn succeeded(job: u64, fence: u64) -> Change {
    ended(job, State::Succeeded, Some(closed(job, fence, Outcome::Succeeded)))
}

pub(in crate::store) fn worker(number: u64, name: &str) -> Change {
    Change::Worker(WorkerRow {
        worker: WorkerId(number),
        name: name.into(),
        secret_hash: [7; 32],
        joined_at: Timestamp(1),
        seen_at: Timestamp(2),
        cordoned: true,
        cordon: Some(Intervention {
            since: Timestamp(3),
            until: None,
            origin: Origin { by: "anna".into(), reason: Some("disk swap".into()) },
        }),
        slots: Some(4),
        drain: None,
        labels: Vec::new(),
        process: Some(Process { incarnation: Incarnation(u64::MAX), number: u64::MAX - 1 }),
        join_token: None,
        granted: Vec::new(),
        revoked_at: None,
    })
}
