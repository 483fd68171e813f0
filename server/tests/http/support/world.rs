//! The state of the stand-in engine, which tests inspect and change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longshore_server::catalogue::Definitions;
use longshore_server::engine::JobWatches;
use longshore_server::storage::Storage;
use longshore_server::store::{
    BatchCounts, BatchRow, BatchState, FailureStatus, FireFilter, FireRecord, JobRecord, JobRow,
    ScheduleState, StoredDefinition,
};
use protocol::report::Outcome;
use protocol::{AttemptNo, JobId, Revision, Timestamp, WorkerId};
use scheduler::explain::Explanation;
use scheduler::fleet::row::WorkerRow;
use scheduler::input::{KeyHolder, Operation};
use scheduler::job::State;
use scheduler::limits::{LimitSelection, LimitsReport};
use scheduler::new_jobs::NewJob;
use scheduler::origin::Origin;
use scheduler::pauses::PauseTarget;
use scheduler::step::{Answer, PendingReason, Rejection};
use tokio::sync::{Barrier, oneshot};

use super::facts::attempt;

/// The state of the stand-in engine.
#[derive(Default)]
pub(crate) struct World {
    /// The cursor of all schedules, for backfills.
    pub(crate) decided_until: Option<protocol::Timestamp>,
    pub(crate) jobs: Vec<JobRecord>,
    pub(crate) keys: HashMap<String, KeyHolder>,
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) operations: Vec<(WorkerId, Operation)>,
    pub(crate) waiting: HashMap<JobId, Vec<oneshot::Sender<State>>>,
    pub(crate) pending: Option<PendingReason>,
    /// The job that has the unique key of all new ones.
    pub(crate) duplicate: Option<JobId>,
    /// Met twice with each submission: when it has come, and before it is answered.
    pub(crate) submission_gate: Option<Arc<Barrier>>,
    pub(crate) explanation: Option<Explanation>,
    pub(crate) unreadable: bool,
    /// The disk is full from this number of jobs on.
    pub(crate) fills_disk_at: Option<(usize, Arc<Storage>)>,
    /// Reads of one job with its attempts.
    pub(crate) job_reads: u32,
    /// Lookups of unknown attempts that fail before one succeeds.
    pub(crate) failing_lookups: u32,
    /// Wakes followers when a test changes a job.
    pub(crate) watches: JobWatches,
    /// Every definition that it was ever told.
    pub(crate) stored: HashMap<Revision, StoredDefinition>,
    pub(crate) schedules: ScheduleState,
    pub(crate) fires: Vec<FireRecord>,
    pub(crate) pauses: Vec<(PauseTarget, bool)>,
    /// Their origins.
    pub(crate) pause_origins: Vec<Origin>,
    pub(crate) pause_ends: Vec<Option<Timestamp>>,
    /// The answer about limits, and what was asked for.
    pub(crate) limits: LimitsReport,
    pub(crate) limit_selections: Vec<LimitSelection>,
    /// Revisions in the order in which they were stored.
    pub(crate) revisions: Vec<Revision>,
}

impl World {
    /// jobs.yaml was read.
    pub(crate) fn define(&mut self, definitions: &Definitions) {
        for entry in definitions.iter() {
            let revision = entry.definition.revision;
            if self.stored.insert(revision, (*entry.stored).clone()).is_none() {
                self.revisions.push(revision);
            }
        }
    }

    /// Ends a job, and notifies waiting requests.
    pub(crate) fn end(&mut self, id: u64, state: State, exit_code: i32) {
        let row = &mut self.record(id).row;
        row.state = state;
        row.failure = if state.is_failure() { FailureStatus::Unresolved } else { FailureStatus::None };
        row.ended_at = Some(Timestamp(9_000));
        row.reason = if exit_code == 0 { String::new() } else { format!("exit code {exit_code}") };
        if let Some(attempt) = &mut row.attempt {
            attempt.ended_at = Some(Timestamp(9_000));
            attempt.exit_code = Some(exit_code);
            attempt.outcome = Some(if exit_code == 0 { Outcome::Succeeded } else { Outcome::Failed });
        }
        for waiting in self.waiting.remove(&JobId(id)).unwrap_or_default() {
            // The waiting test may have ended.
            let _ = waiting.send(state);
        }
    }

    /// Gives a job to worker 1.
    pub(crate) fn start(&mut self, id: u64) {
        let row = &mut self.record(id).row;
        row.state = State::Running;
        row.attempts = AttemptNo(1);
        row.attempt = Some(attempt(1, 100 + id));
    }

    pub(crate) fn record(&mut self, id: u64) -> &mut JobRecord {
        // Followers read only after the test lets go of the world.
        self.watches.notify(&[JobId(id)]);
        self.jobs.iter_mut().find(|record| record.row.job == JobId(id)).expect("the job exists")
    }

    pub(super) fn add(&mut self, new: NewJob, batch: Option<JobId>) -> JobId {
        let id = JobId(self.jobs.len() as u64 + 1);
        let details = new.details.unwrap_or_default();
        let earlier = self.jobs.iter().find(|job| Some(job.row.job) == new.retry_of);
        let due_at = new.run_at.map_or(CREATED_AT, |start| start.resolve(CREATED_AT));
        let row = JobRow {
            job: id,
            definition: self.stored[&new.revision].name.clone(),
            revision: new.revision,
            state: if due_at > CREATED_AT { State::Scheduled } else { State::Queued },
            priority: new.priority.unwrap_or_default(),
            created_at: CREATED_AT,
            due_at,
            expires_at: None,
            timeout: new.timeout,
            batch,
            position: batch.map(|batch| id.0 - batch.0),
            retry_of: new.retry_of,
            submitted_by: new.submitted_by.as_deref().map(str::to_owned),
            slot: earlier.and_then(|earlier| earlier.row.slot.clone()),
            waits_for: None,
            run_on_role: Default::default(),
            labels: details.labels,
            narrowing: new.narrowing,
            ended_at: None,
            reason: String::new(),
            confirmed: true,
            failure: FailureStatus::None,
            attempts: AttemptNo(0),
            attempt: None,
        };
        if let Some(JobId(of)) = new.retry_of {
            self.record(of).row.failure = FailureStatus::None;
        }
        self.jobs.push(JobRecord {
            row,
            overrides: details.overrides,
            params: details.params.given,
            past: Vec::new(),
            notes: Vec::new(),
            late_left_out: 0,
            retry_of_removed: false,
            retried_as: None,
            parent: None,
            hooks: Vec::new(),
            after: Vec::new(),
            dependents: Vec::new(),
        });
        if let Some((_, storage)) = self.fills_disk_at.take_if(|(count, _)| self.jobs.len() >= *count) {
            storage.note(0, 1 << 40);
        }
        id
    }

    /// Cancels the members of a batch that wait; the others are being stopped.
    pub(super) fn cancel_batch(&mut self, first: JobId) -> Answer {
        let members = self.jobs.iter().map(|record| &record.row);
        let members = members.filter(|row| row.batch == Some(first) && !row.state.has_ended());
        let live: Vec<(JobId, State)> = members.map(|row| (row.job, row.state)).collect();
        let waiting = live.iter().filter(|(_, state)| *state != State::Running);
        let waiting: Vec<JobId> = waiting.map(|(job, _)| *job).collect();
        waiting.iter().for_each(|job| self.end(job.0, State::Cancelled, 0));
        match live.is_empty() {
            true => Answer::Rejected(Rejection::NotLive),
            false => Answer::BatchCancelRequested { live: live.len() as u32, ended: waiting.len() as u32 },
        }
    }

    /// A batch with its members by state. It never ends.
    pub(super) fn batch(&self, first: JobId) -> Option<BatchRow> {
        let members = self.jobs.iter().filter(|record| record.row.batch == Some(first));
        let (mut counts, mut count) = (BatchCounts::default(), 0);
        let mut definitions = members.clone().map(|record| &record.row.definition);
        let (definition, last) = (definitions.next().cloned(), definitions.next_back());
        let definitions_differ = last.is_some_and(|last| Some(last) != definition.as_ref());
        for member in members {
            count += 1;
            match member.row.state {
                State::Running => counts.running += 1,
                State::Succeeded => counts.succeeded += 1,
                State::Failed => counts.failed += 1,
                State::Cancelled => counts.cancelled += 1,
                _ => counts.queued += 1,
            }
        }
        (count > 0).then_some(BatchRow {
            first,
            name: None,
            definition,
            definitions_differ,
            created_at: CREATED_AT,
            count,
            cancelled_by: None,
            cancelled_at: None,
            unique_key: None,
            on_duplicate: None,
            replaced_by: None,
            max_failures: None,
            concurrency: None,
            retry_of: None,
            unique_key: None,
            on_duplicate: None,
            replaced_by: None,
            submitted_by: None,
            retried_as: None,
            ended_at: None,
            state: BatchState::Running,
            removed: 0,
            skipped: 0,
            counts,
        })
    }

    /// The number of failures that nobody has dealt with, by definition.
    pub(super) fn unresolved(&self) -> BTreeMap<String, u64> {
        let unresolved = self.jobs.iter().filter(|job| job.row.failure == FailureStatus::Unresolved);
        let mut totals = BTreeMap::new();
        unresolved.for_each(|job| *totals.entry(job.row.definition.clone()).or_default() += 1);
        totals
    }

    /// Rows of the ledger, the newest first.
    pub(super) fn fires_of(&self, definition: &str, filter: &FireFilter, limit: usize) -> Vec<FireRecord> {
        let fits = |fire: &&FireRecord| {
            *fire.row.definition == *definition
                && filter.before.is_none_or(|before| fire.id < before)
                && filter.schedule.as_ref().is_none_or(|id| *id == fire.row.schedule.as_str())
                && filter.since.is_none_or(|since| fire.row.to >= since)
                && filter.until.is_none_or(|until| fire.row.from < until)
        };
        self.fires.iter().rev().filter(fits).take(limit).cloned().collect()
    }
}

/// All jobs of the stand-in are accepted at this instant.
pub(super) const CREATED_AT: Timestamp = Timestamp(1_000);
