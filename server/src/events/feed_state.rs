//! The facts that the feed knows beside a group: names of definitions and workers, and the jobs that have not ended. It follows them by the
//! same changes of which it makes events, and never asks the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use protocol::report::Outcome;
use protocol::{Epoch, JobId, Revision, Timestamp, WorkerId};
use scheduler::expectations::ExpectationRow;
use scheduler::fleet::facts::WorkerState;
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::pauses::{PauseChange, PauseTarget};
use scheduler::restore::LiveJob;
use scheduler::run_on::LiveParent;
use scheduler::schedules::FireVerdict;
use scheduler::snapshot::{Snapshot, WorkerFacts};
use scheduler::step::Change;

use super::id::EventId;
use super::live_jobs::{DefinitionIndex, JobFacts, LiveJobs};
use super::record::{AttemptSubject, DefinitionRef, EventRecord, Subject, WorkerName};
use crate::metrics::Metrics;
use crate::store::{DefinitionHashes, Group, JobOrigin, StoredDefinition};

/// The state of the feed. The engine fills it while it loads the store.
#[derive(Debug, Default)]
pub struct FeedState {
    pub(super) last: EventId,
    pub(super) jobs: LiveJobs,
    /// The current attempts of jobs.
    pub(super) attempts: HashMap<JobId, AttemptSubject>,
    definitions: Vec<Arc<DefinitionRef>>,
    by_revision: HashMap<Revision, DefinitionIndex>,
    /// The definitions in force; absent until they were loaded for the first time.
    current: Option<Arc<DefinitionHashes>>,
    workers: HashMap<WorkerId, WorkerRow>,
    /// Large batches that are not complete, by their first job.
    pub(super) pending: HashMap<JobId, PendingCount>,
    /// Jobs that run in the place of a parent, with it.
    pub(super) members: HashMap<JobId, JobId>,
    /// The jobs of the present group that schedules have made.
    pub(super) fired: HashSet<JobId>,
    /// Jobs on several workers that have started, with the first start of a member.
    pub(super) started_parents: HashMap<JobId, Timestamp>,
    /// Expectations that are not met, by the name of their definition.
    missed: HashMap<Arc<str>, ExpectationRow>,
    published: Arc<Snapshot>,
    pub(super) metrics: Arc<Metrics>,
}

/// The members of a large batch so far.
#[derive(Debug, Default)]
pub(super) struct PendingCount {
    pub(super) count: u64,
    /// The definition of the members, while all have the same one.
    pub(super) definition: Option<DefinitionIndex>,
}

/// Collects the events of one group.
#[derive(Debug)]
pub(super) struct EventSink<'s> {
    last: &'s mut EventId,
    records: &'s mut Vec<EventRecord>,
}

impl EventSink<'_> {
    /// Adds an event after the others.
    pub(super) fn add(&mut self, at: Timestamp, kind: &'static str, subject: Subject) {
        self.last.index += 1;
        self.records.push(EventRecord::new(*self.last, at, kind, subject));
    }
}

impl FeedState {
    /// Nothing but the place of the first event: after the last committed group, in this epoch.
    #[must_use]
    pub fn at(epoch: Epoch, group: GroupNo) -> Self {
        Self { last: EventId { epoch, group, index: 0 }, ..Self::default() }
    }

    /// Adds a definition from the store.
    pub fn restore_definition(&mut self, stored: &StoredDefinition) {
        self.learn(stored.revision, &stored.name);
    }

    /// Adds a parent and its members from the store, before the jobs.
    pub fn restore_parent(&mut self, parent: &LiveParent) {
        self.members.extend(parent.members.iter().map(|member| (member.job, member.parent)));
        if let Some(at) = parent.row.started_at {
            self.started_parents.insert(parent.row.job, at);
        }
    }

    /// Adds a worker from the store.
    pub fn restore_worker(&mut self, row: &WorkerRow) {
        self.workers.insert(row.worker, row.clone());
    }

    /// Adds a job from the store.
    pub fn restore_job(&mut self, live: &LiveJob, origin: JobOrigin) {
        let definition = self.definition_index(live.revision);
        let times = (origin.created_at, live.due_at);
        let mut facts = JobFacts::new(live.job, origin.batch, definition, times);
        (facts.state, facts.priority, facts.attempts) = (live.state, live.priority, live.attempts.0);
        // Its row stays queued.
        if self.started_parents.contains_key(&live.job) {
            facts.state = State::Running;
        }
        self.jobs.insert(live.job, facts);
        if let Some(attempt) = &live.attempt {
            let restored = AttemptSubject {
                number: live.attempts,
                fence: attempt.token.fence,
                worker: self.worker_name(attempt.worker),
                assigned_at: Some(attempt.assigned_at),
                started_at: attempt.started_at,
                container: Box::default(),
                stopping: attempt.stopping,
                end: None,
                said: None,
            };
            self.attempts.insert(live.job, restored);
        }
    }

    /// Sets the state of workers and expectations at the start, after the jobs. No events are made of it.
    pub fn restore_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.count_jobs();
        self.missed = snapshot.missed.iter().map(|row| (row.definition.clone(), row.clone())).collect();
        self.published = snapshot;
    }

    /// The counters that follow the same changes.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// The id of the last event.
    pub(super) const fn last_id(&self) -> EventId {
        self.last
    }

    /// Notes the name of a revision.
    pub(super) fn learn(&mut self, revision: Revision, name: &str) {
        let index = self.definition_index(revision);
        let known = &mut self.definitions[index.0 as usize];
        if *known.name != *name {
            *known = Arc::new(DefinitionRef { name: name.into(), revision });
        }
    }

    /// Forgets the jobs, because changes of them up to this id were lost.
    pub(super) fn forget_jobs(&mut self, lost: EventId) {
        self.last = lost;
        self.jobs.clear();
        self.attempts.clear();
        self.pending.clear();
        self.members.clear();
        self.started_parents.clear();
    }

    /// Makes events of a committed group.
    pub(super) fn group(&mut self, group: &Group, records: &mut Vec<EventRecord>) {
        self.last = EventId::before_group(group);
        let mut last = self.last;
        let mut sink = EventSink { last: &mut last, records };
        for stored in &group.definitions {
            self.learn(stored.revision, &stored.name);
        }
        if let Some(loaded) = &group.loaded {
            self.load(loaded, group.at, &mut sink);
        }
        // The row of a slot comes after its job.
        self.fired.clear();
        self.fired.extend(group.changes.iter().filter_map(|change| match change {
            Change::Fire(row) => row.verdict.job(),
            _ => None,
        }));
        for change in &group.changes {
            match change {
                Change::Worker(row) => self.worker_row(row, None, group.at, &mut sink),
                Change::CordonEnded { row, until } => {
                    self.worker_row(row, Some(*until), group.at, &mut sink);
                }
                Change::WorkerForgotten(worker) => {
                    let subject = Subject::WorkerRef(self.worker_name(*worker));
                    self.workers.remove(worker);
                    sink.add(group.at, "worker.forgotten", subject);
                }
                Change::Fire(row) => {
                    let hash = self.current.as_ref().and_then(|names| names.get(&*row.definition));
                    let definition = hash.and_then(|hash| self.published.definitions.get(&hash.revision));
                    self.metrics.slots_decided(row, definition.map(|definition| &**definition));
                    let kind = match row.verdict {
                        FireVerdict::Fired(_) | FireVerdict::CaughtUp(_) | FireVerdict::Backfilled(_) => {
                            "schedule.fired"
                        }
                        FireVerdict::Skipped(_) => "schedule.skipped",
                        FireVerdict::Missed(_) => "schedule.missed",
                    };
                    sink.add(row.at, kind, Subject::Fire(Box::new(row.clone())));
                }
                // `batch.ended` says so.
                Change::Paused { pause: PauseChange::BatchEnded, .. } => {}
                Change::Paused { target, pause } => {
                    let (paused, resumed) = match target {
                        PauseTarget::Schedules | PauseTarget::Schedule(..) => {
                            ("schedule.paused", "schedule.resumed")
                        }
                        PauseTarget::Batch(_) => ("batch.paused", "batch.resumed"),
                        PauseTarget::Server | PauseTarget::Group(_) | PauseTarget::Definition(_) => {
                            ("definition.paused", "definition.resumed")
                        }
                    };
                    let kind = if pause.in_force().is_some() { paused } else { resumed };
                    sink.add(group.at, kind, Subject::Pause(target.clone(), pause.clone()));
                }
                Change::Expectation(row) => self.expectation(row, group.at, &mut sink),
                Change::ExpectationDropped { definition } => drop(self.missed.remove(definition)),
                Change::Hook(row) => {
                    let kind = if row.result.job().is_some() { "hook.made" } else { "hook.left_out" };
                    sink.add(row.at, kind, Subject::Hook(Box::new(row.clone())));
                }
                // Cursors of schedules, idempotency keys and skipped numbers are bookkeeping. Of dependencies people see the start or the
                // cancellation that follows.
                Change::Dependency(_)
                | Change::DependenciesDropped { .. }
                | Change::ResultsTaken { .. }
                | Change::WorkerUsed(_)
                | Change::Schedule(_)
                | Change::IdempotencyKeyStored { .. }
                | Change::NumbersSkipped { .. }
                | Change::BatchAdded(_)
                | Change::BatchCancelled { .. }
                | Change::BatchReplaced { .. }
                | Change::BatchChanged { .. } => {}
                change => self.job_change(change, group.at, &mut sink),
            }
        }
        self.metrics.group(group.changes.len());
        self.count_jobs();
        self.last = last;
    }

    fn count_jobs(&mut self) {
        for (definition, change) in self.jobs.take_running_changes() {
            self.metrics.running_changed(&self.definition(definition).name, change);
        }
        self.metrics.set_oldest_due(self.jobs.oldest_queued());
        self.metrics.set_running(self.jobs.running());
        self.metrics.set_quarantined(self.jobs.quarantined());
    }

    /// Makes events of what differs from the last published snapshot: the states of workers.
    pub(super) fn snapshot(&mut self, snapshot: Arc<Snapshot>, records: &mut Vec<EventRecord>) {
        let before = std::mem::replace(&mut self.published, snapshot.clone());
        let mut last = self.last;
        let mut sink = EventSink { last: &mut last, records };
        let worker = |facts: &WorkerFacts| Subject::Worker(Box::new(facts.clone()), snapshot.cluster);
        let at = crate::clock::now().utc;
        for (was, is) in snapshot.workers.differences(&before.workers) {
            match (was, is) {
                (Some(left), None) => sink.add(at, "worker.left", worker(left)),
                (was, Some(facts)) if was.map(|it| it.state) != Some(facts.state) => {
                    self.metrics.worker_changed(facts.state.name());
                    sink.add(at, worker_kind(facts.state), worker(facts));
                }
                _ => {}
            }
        }
        self.last = last;
    }

    /// The definition with this index.
    pub(super) fn definition(&self, index: DefinitionIndex) -> &Arc<DefinitionRef> {
        // Indices come from `definition_index`, and no entry is ever removed.
        &self.definitions[index.0 as usize]
    }

    /// The index of a revision. Its name is empty until it is learnt.
    pub(super) fn definition_index(&mut self, revision: Revision) -> DefinitionIndex {
        if let Some(index) = self.by_revision.get(&revision) {
            return *index;
        }
        let index = DefinitionIndex(u32::try_from(self.definitions.len()).unwrap_or(u32::MAX));
        self.definitions.push(Arc::new(DefinitionRef { name: Box::default(), revision }));
        self.by_revision.insert(revision, index);
        index
    }

    /// Number and name of a worker; its number stands for an unknown name.
    pub(super) fn worker_name(&self, id: WorkerId) -> WorkerName {
        let name = self.workers.get(&id).map_or_else(|| id.to_string().into(), |row| row.name.clone());
        WorkerName { id, name }
    }

    /// Makes events of what differs between the definitions before and after a load. The first load of a process has none.
    fn load(&mut self, loaded: &Arc<DefinitionHashes>, at: Timestamp, sink: &mut EventSink<'_>) {
        let Some(before) = self.current.replace(loaded.clone()) else { return };
        let subject = |name: &str, revision| {
            Subject::Definition(Arc::new(DefinitionRef { name: name.into(), revision }))
        };
        for (name, hash) in loaded.iter().filter(|(name, hash)| before.get(*name) != Some(hash)) {
            sink.add(at, "definition.changed", subject(name, hash.revision));
        }
        for (name, hash) in before.iter().filter(|(name, _)| !loaded.contains_key(*name)) {
            sink.add(at, "definition.removed", subject(name, hash.revision));
        }
    }

    /// Makes events of what differs: a definition became stale or slow, or is as expected again.
    fn expectation(&mut self, row: &ExpectationRow, at: Timestamp, sink: &mut EventSink<'_>) {
        let before = match row.is_met() {
            true => self.missed.remove(&row.definition),
            false => self.missed.insert(row.definition.clone(), row.clone()),
        };
        let (was_stale, was_slow) =
            before.as_ref().map_or((false, false), |row| (row.stale_since.is_some(), row.slow.is_some()));
        let is_new = row.stale_since.is_some() && !was_stale || row.slow.is_some() && !was_slow;
        let kind = match row.is_met() {
            true if before.is_some() => "expectation.met",
            false if is_new => "expectation.missed",
            _ => return,
        };
        sink.add(at, kind, Subject::Expectation(Box::new(row.clone())));
    }

    /// Makes the event of a row. `cordon_ended` is the end of a cordon that has ended by itself.
    fn worker_row(
        &mut self,
        row: &WorkerRow,
        cordon_ended: Option<Timestamp>,
        at: Timestamp,
        sink: &mut EventSink<'_>,
    ) {
        let before = self.workers.insert(row.worker, row.clone());
        let kind = match &before {
            None => "worker.joined",
            Some(before) if is_heartbeat(before, row) => return,
            Some(_) => "worker.changed",
        };
        let state = match self.published.workers.get(row.worker) {
            Some(facts) => facts.state.name(),
            None if before.is_none() => "joining",
            None if row.revoked_at.is_some() => "revoked",
            None => "gone",
        };
        sink.add(at, kind, Subject::WorkerRow { row: Box::new(row.clone()), state, cordon_ended });
    }
}

/// True if two rows of a worker differ only in what a session changes by itself.
fn is_heartbeat(before: &WorkerRow, after: &WorkerRow) -> bool {
    let WorkerRow { seen_at, process, .. } = *after;
    let same = WorkerRow { seen_at, process, ..before.clone() };
    same == *after
}

const fn worker_kind(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Joining => "worker.joining",
        WorkerState::Ready => "worker.ready",
        WorkerState::Suspect => "worker.suspect",
        WorkerState::Draining => "worker.draining",
        WorkerState::Disconnected => "worker.disconnected",
        WorkerState::Unreachable => "worker.unreachable",
        WorkerState::Cloned => "worker.cloned",
        WorkerState::Revoked => "worker.revoked",
    }
}

/// True if the worker, its host or its Docker daemon failed, and not the job.
pub(super) const fn is_loss(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::KINDS;

    #[test]
    fn each_state_of_a_worker_has_an_event_of_its_name() {
        for state in WorkerState::ALL {
            let kind = worker_kind(state);
            assert_eq!(kind, format!("worker.{}", state.name()));
            assert!(KINDS.contains(&kind), "{kind} is not listed");
        }
    }
}
