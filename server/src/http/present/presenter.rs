//! Fills the JSON of jobs from rows and the snapshot: state and pending reason. `ending` says how a job ended, `timeline` tells their
//! history.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use protocol::order::phase_name;
use protocol::report::{Outcome, Phase};
use protocol::{JobId, Revision, WorkerId};
use scheduler::batches::BatchMember;
use scheduler::definition::Definition;
use scheduler::dependencies::PredecessorId;
use scheduler::hooks::{HookResult, HookRow};
use scheduler::job::{AttemptTimeout, State};
use scheduler::params::JobParam;
use scheduler::placement::narrowing::Narrowing;
use scheduler::retry::{self, RetryBudget};
use scheduler::snapshot::{Snapshot, Waiting, WorkerFacts, WorkerState};
use scheduler::step::PendingReason;

use crate::http::present::earlier;
use crate::http::present::members::{self, member_of};
use crate::http::present::shapes::{self, Time};
use crate::http::present::timeline::{Timeline, ran_ms, worker_of};
use crate::http::present::waiting;
pub(crate) use crate::http::present::waiting::{
    asked_labels, asked_workers, explain_hint, paused, paused_by, pauses_of, pending, pending_of,
};
use crate::http::request::trace_context;
use crate::http::state::AppState;
use crate::params;
use crate::store::{
    AttemptRow, BatchState, DependencyRecord, FailureStatus, GivenParams, JobRecord, JobRow, RunOnRole,
    parent_slot_in,
};
use crate::ws::MissingByRevision;

/// Waiting jobs that have the same reason.
type WaitingKey = (Revision, Option<WorkerId>, Option<Arc<Narrowing>>);

/// Presents jobs with the facts of one snapshot.
pub(crate) struct Presenter {
    pub(super) snapshot: Arc<Snapshot>,
    phases: HashMap<JobId, Phase>,
    /// Pending reasons by revision, for unpinned jobs and for those pinned to a worker, by the workers that they ask for.
    waiting: BTreeMap<WaitingKey, PendingReason>,
    /// The definitions whose secrets the server does not have.
    missing_secrets: Arc<MissingByRevision>,
    pub(super) lease: Duration,
}

/// Parameters with their values, unless they are secret.
fn shown_params(params: &[JobParam]) -> BTreeMap<String, serde_json::Value> {
    let shown = |param: &JobParam| match param.secret {
        true => params::SECRET.into(),
        false => params::to_json(&param.value),
    };
    params.iter().map(|param| (param.name.clone(), shown(param))).collect()
}

/// A text as JSON. One that is not JSON is shown as text.
fn shown_json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

impl AppState {
    /// A presenter with the present snapshot.
    pub(crate) fn presenter(&self) -> Presenter {
        let snapshot = self.services.engine.snapshot();
        let phases = snapshot.phases.iter().copied().collect();
        let key = |it: &Waiting| (it.revision, it.pinned_to, it.narrowing.clone());
        let waiting = snapshot.waiting.iter().map(|it| (key(it), it.reason)).collect();
        let missing_secrets = self.services.missing_secrets.found();
        Presenter { snapshot, phases, waiting, missing_secrets, lease: self.services.intervals.lease }
    }
}

impl Presenter {
    /// A job as in lists.
    pub(crate) fn job(&self, row: JobRow) -> shapes::Job {
        let attempt = row.attempt.as_ref();
        let live = live(&row);
        let (unresolved, acknowledged) = match row.failure {
            FailureStatus::None => (false, None),
            FailureStatus::Unresolved => (true, None),
            FailureStatus::Acknowledged(ref it) => (false, Some(shapes::Acknowledgement::of(it))),
        };
        shapes::Job {
            unresolved,
            acknowledged,
            stopping: live.and_then(|attempt| attempt.stopping).map(|cause| cause.name().into()),
            pending_reason: self.waits_for(&row),
            phase: (row.state == State::Assigned).then(|| self.phase(row.job)).flatten(),
            assigned_at: live
                .filter(|_| row.state == State::Assigned)
                .map(|attempt| Time(attempt.assigned_at)),
            worker_unreachable_since: live.and_then(|attempt| self.unreachable_since(attempt)),
            priority: row.priority,
            due_at: Time(row.due_at),
            expires_at: row.expires_at.map(Time),
            started_at: attempt
                .and_then(|attempt| attempt.started_at)
                .or(members::started_at(&row))
                .map(Time),
            ended_at: row.ended_at.map(Time),
            ran_ms: attempt.and_then(ran_ms).or_else(|| members::ran_ms(&row)),
            attempt_count: row.attempts.0,
            worker: attempt.map(worker_of),
            outcome: attempt.and_then(|attempt| attempt.outcome).map(|outcome| outcome.name().into()),
            exit_code: attempt.and_then(|attempt| attempt.exit_code),
            confirmed: (row.state == State::Cancelled).then_some(row.confirmed),
            timeout: row.timeout.map(timeout),
            batch: row.batch.map(|job| job.0),
            member_of: member_of(&row).map(|member| member.parent.0),
            workers: asked_workers(row.narrowing.as_deref()),
            requires: asked_labels(row.narrowing.as_deref()),
            pinned_worker: member_of(&row).and_then(|member| member.pinned).map(|worker| worker.0),
            members: members::of(&row.run_on_role),
            retry_of: row.retry_of.map(|job| job.0),
            labels: row.labels.into_iter().collect(),
            reason: row.reason,
            scheduled_at: row.slot.as_ref().map(|slot| Time(slot.at)),
            schedule: row.slot.map(|slot| slot.schedule),
            submitted_by: row.submitted_by,
            ..job_in_state(row.job, row.definition, row.revision.to_string(), row.state, Time(row.created_at))
        }
    }

    /// A job with its position in its batch.
    pub(crate) fn member(&self, row: JobRow) -> shapes::ListedJob {
        shapes::ListedJob { index: row.position, job: self.job(row), ..shapes::ListedJob::default() }
    }

    /// A job with what it was given and what it left.
    pub(crate) fn with_result(&self, row: JobRow, given: &GivenParams) -> shapes::ListedJob {
        let attempt = row.attempt.as_ref();
        let remark =
            attempt.filter(|it| it.outcome == Some(Outcome::Succeeded)).map(|it| it.message.as_str());
        shapes::ListedJob {
            index: given.index.or(row.position),
            params: shown_params(&given.params),
            result: attempt.and_then(|attempt| attempt.result.as_deref()).map(shown_json),
            note: remark.filter(|text| !text.is_empty()).map(str::to_owned),
            job: self.job(row),
        }
    }

    /// A job with attempts and timeline.
    pub(crate) fn full(&self, record: JobRecord) -> shapes::FullJob {
        let JobRecord {
            row,
            overrides,
            params,
            past,
            notes,
            late_left_out,
            retry_of_removed,
            retried_as,
            parent,
            hooks,
            ..
        } = record;
        let attempts: Vec<AttemptRow> = past.into_iter().chain(row.attempt.clone()).collect();
        let timeline = Timeline { row: &row, attempts: &attempts, notes: &notes, hooks: &hooks };
        let result = attempts.last().and_then(|attempt| attempt.result.as_deref());
        // A retry was told the position of the member that it repeats.
        let told = overrides.environment.iter().find(|(name, _)| name == BatchMember::INDEX_VARIABLE);
        let told = told.and_then(|(_, index)| index.parse().ok());
        shapes::FullJob {
            index: told.or(row.position),
            parent_scheduled_at: parent_slot_in(&overrides.environment).map(Time),
            traceparent: trace_context::trace_of(&overrides.environment).map(str::to_owned),
            request_id: trace_context::request_of(&overrides.environment).map(str::to_owned),
            args: overrides.args,
            params: shown_params(&params),
            input: overrides.input.as_deref().map(shown_json),
            environment: overrides.environment.into_iter().map(|(name, _)| name).collect(),
            result: result.map(shown_json),
            cancel: timeline.is_cancelled_too_late().then(|| "too_late".into()),
            timeline: timeline.events(),
            late_reports: timeline.late_reports(),
            late_reports_left_out: (late_left_out > 0).then_some(late_left_out),
            retry_of_removed,
            retried_as: retried_as.map(|(retry, _)| retry.0),
            retried_as_state: retried_as.map(|(_, state)| state.name().into()),
            parent: parent.map(|it| shapes::Parent { job: it.parent.0, hook: it.event.name().into() }),
            after: record.after.iter().map(dependency).collect(),
            dependents: record.dependents.iter().map(dependency).collect(),
            hooks: hooks.iter().map(|it| hook(&it.row, it.state)).collect(),
            attempts: timeline.attempts(),
            job: self.job(row),
        }
    }

    /// The reason why a job waits: its due time, a slot, an operator, or an unreachable worker or runtime.
    pub(crate) fn waits_for(&self, row: &JobRow) -> Option<shapes::Reason> {
        match self.pending(row) {
            Some(PendingReason::NotDue) => {
                let another = || earlier::waits_for_another(row, &self.snapshot);
                Some(waiting::backoff(row).or_else(another).unwrap_or_else(|| waiting::not_due(row)))
            }
            Some(PendingReason::PinnedWorkerAway) => Some(self.pinned_worker_away(row, |only| {
                self.snapshot.workers.get(only).map(|worker| worker.name.to_string())
            })),
            Some(PendingReason::SecretsMissing) => Some(self.secrets_missing(row)),
            Some(PendingReason::Paused) => {
                Some(paused(&self.snapshot, self.definition(row), self.batch_of(row)))
            }
            Some(PendingReason::Members) => {
                let pauses = pauses_of(&self.snapshot, self.definition(row), self.batch_of(row));
                Some(pending(PendingReason::Members).and(pauses))
            }
            Some(reason) => {
                Some(pending_of(reason, row.narrowing.as_deref()).and(explain_hint(reason, row.job)))
            }
            None => {
                let attempt = live(row)?;
                self.absence(row, attempt).or_else(|| self.silence(row, attempt))
            }
        }
    }

    /// The reason of a job whose secrets the server does not have, with the name of the secret.
    pub(crate) fn secrets_missing(&self, row: &JobRow) -> shapes::Reason {
        let reason = pending(PendingReason::SecretsMissing);
        match self.missing_secrets.get(&row.revision) {
            Some(missing) => shapes::Reason { text: missing.reason.clone().into(), ..reason },
            None => reason,
        }
    }

    /// The reason of a job that waits for the only worker that may run it.
    pub(crate) fn pinned_worker_away(
        &self,
        row: &JobRow,
        name: impl FnOnce(WorkerId) -> Option<String>,
    ) -> shapes::Reason {
        let reason = pending(PendingReason::PinnedWorkerAway);
        let last = row.attempt.as_ref();
        let (only, cause) = match (member_of(row).and_then(|member| member.pinned), last) {
            (Some(own), _) => (own, "it is its own as a member (run_on)"),
            (None, Some(last)) => (last.worker, "its last attempt was there (retry.on: same)"),
            (None, None) => return reason,
        };
        let of_attempt = || last.filter(|last| last.worker == only).map(|last| last.worker_name.to_string());
        let name = name(only).or_else(of_attempt).filter(|name| !name.is_empty());
        let worker = name.unwrap_or_else(|| format!("worker {only}"));
        let text = format!("it may only run on {worker}, which is not connected: {cause}").into();
        shapes::Reason { text, ..reason }
    }

    /// True if a release gives the current attempt up: its worker, or its runtime there, cannot say what became of it. The snapshot may be
    /// slightly older than the scheduler's own decision.
    pub(crate) fn is_releasable(&self, row: &JobRow) -> bool {
        let Some(attempt) = live(row) else { return false };
        !self.worker(attempt).is_some_and(is_reconciled) || self.silence(row, attempt).is_some()
    }

    fn pending(&self, row: &JobRow) -> Option<PendingReason> {
        match row.state {
            State::Scheduled => Some(PendingReason::NotDue),
            State::Quarantined => Some(PendingReason::Quarantined),
            State::Queued if matches!(row.run_on_role, RunOnRole::Parent(_)) => Some(PendingReason::Members),
            State::Queued if self.batch_of(row).is_some_and(|first| self.is_batch_paused(first)) => {
                Some(PendingReason::Paused)
            }
            State::Queued => {
                // A job has an entry of its own only if it is pinned to its last worker, unless that attempt failed for infrastructure.
                let is_own = |outcome| retry::budget(outcome) != RetryBudget::Infrastructure;
                let last =
                    row.attempt.as_ref().filter(|it| it.outcome.is_none_or(is_own)).map(|it| it.worker);
                let last = member_of(row).and_then(|member| member.pinned).or(last);
                let of = |pinned| self.waiting.get(&(row.revision, pinned, row.narrowing.clone()));
                let pinned = last.and_then(|last| of(Some(last)));
                let reason = pinned.or_else(|| of(None));
                Some(reason.copied().unwrap_or(PendingReason::Soon))
            }
            _ => None,
        }
    }

    /// The batch of a job. That of a member of a job on several workers is the one of its parent, and is known here while it is paused.
    fn batch_of(&self, row: &JobRow) -> Option<JobId> {
        match member_of(row) {
            Some(member) => self.snapshot.pauses.batch_of(member.parent),
            None => row.batch,
        }
    }

    fn is_batch_paused(&self, first: JobId) -> bool {
        self.snapshot.pauses.of_batch(first).is_some()
    }

    fn phase(&self, job: JobId) -> Option<shapes::Phase> {
        phase(*self.phases.get(&job)?)
    }

    /// The definition in the job's own revision.
    pub(super) fn definition(&self, row: &JobRow) -> Option<&Definition> {
        self.snapshot.definitions.get(&row.revision).map(Arc::as_ref)
    }

    pub(super) fn worker(&self, attempt: &AttemptRow) -> Option<&WorkerFacts> {
        self.snapshot.workers.get(attempt.worker)
    }

    pub(super) fn unreachable_since(&self, attempt: &AttemptRow) -> Option<Time> {
        let worker = self.worker(attempt)?;
        let is_away =
            matches!(worker.state, WorkerState::Unreachable | WorkerState::Cloned | WorkerState::Revoked);
        is_away.then_some(Time(worker.since))
    }
}

/// The worker is connected, and the server knows what it has.
pub(super) const fn is_reconciled(worker: &WorkerFacts) -> bool {
    matches!(worker.state, WorkerState::Ready | WorkerState::Suspect | WorkerState::Draining)
}

/// The current attempt, if a worker has it.
fn live(row: &JobRow) -> Option<&AttemptRow> {
    row.attempt.as_ref().filter(|attempt| attempt.ended_at.is_none() && !row.state.has_ended())
}

/// The JSON of a phase; `None` if it is unknown.
pub(crate) fn phase(phase: Phase) -> Option<shapes::Phase> {
    let (percent, failures) = match phase {
        Phase::Pulling { percent, failures } => (percent, failures),
        Phase::Unknown => return None,
        _ => (None, 0),
    };
    let failures = (failures > 0).then_some(failures);
    Some(shapes::Phase { name: phase_name(phase).into(), percent, failures })
}

/// A job of which little more than the state is known.
pub(crate) fn job_in_state(
    job: JobId,
    name: String,
    revision: String,
    state: State,
    created_at: Time,
) -> shapes::Job {
    shapes::Job {
        id: job.0,
        name,
        revision,
        state: state.name().into(),
        queuing: matches!(state, State::Scheduled | State::Queued | State::Assigned | State::Quarantined),
        running: state == State::Running,
        success: state == State::Succeeded,
        created_at,
        due_at: created_at,
        ..shapes::Job::default()
    }
}

/// The result of a hook; `state` is that of the job that was made.
pub(crate) fn hook(row: &HookRow, state: Option<State>) -> shapes::Hook {
    let left_out = match row.result {
        HookResult::Made { .. } => None,
        HookResult::LeftOut(refusal) => {
            Some(shapes::Reason { code: refusal.name().into(), text: refusal.words().into() })
        }
    };
    shapes::Hook {
        hook: row.event.name().into(),
        name: row.target.to_string(),
        at: Time(row.at),
        job: row.result.job().map(|job| job.0),
        state: state.map(|state| state.name().into()),
        left_out,
    }
}

/// One end of a dependency.
pub(crate) fn dependency(record: &DependencyRecord) -> shapes::Dependency {
    let (job, batch) = match record.other {
        PredecessorId::Job(job) => (Some(job.0), None),
        PredecessorId::Batch(first) => (None, Some(first.0)),
    };
    shapes::Dependency {
        job,
        batch,
        name: Some(record.name.clone()).filter(|name| !name.is_empty()),
        outcome: record.requires.name().into(),
        state: record.state.map(|state| match state {
            // See `BatchState::as_job`.
            State::Queued if batch.is_some() => BatchState::Waiting.name().into(),
            state => state.name().into(),
        }),
    }
}

/// The JSON of a timeout.
pub(crate) fn timeout(timeout: AttemptTimeout) -> shapes::Timeout {
    timeout.limit().map_or(shapes::Timeout::Never, shapes::Timeout::After)
}
