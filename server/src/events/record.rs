//! One event: its kind, its time, and small facts about what it is about. `http::present` turns it into JSON, once for all readers.

use std::sync::{Arc, OnceLock};

use protocol::order::StopCause;
use protocol::report::{Outcome, ReleaseCause};
use protocol::{AttemptNo, ClusterId, Fence, JobId, Revision, Timestamp, Usage, WorkerId};
use scheduler::expectations::ExpectationRow;
use scheduler::fleet::row::WorkerRow;
use scheduler::hooks::HookRow;
use scheduler::job::State;
use scheduler::pauses::{PauseChange, PauseTarget};
use scheduler::schedules::FireRow;
use scheduler::snapshot::WorkerFacts;

use super::id::EventId;
use crate::store::JobSlot;

/// All kinds of events, in the order of the docs.
pub const KINDS: [&str; 48] = [
    "job.accepted",
    "job.assigned",
    "job.started",
    "job.stopping",
    "job.cancel_requested",
    "job.queued",
    "job.scheduled",
    "job.quarantined",
    "job.released",
    "job.updated",
    "job.ended",
    "job.confirmed",
    "attempt.ended",
    "attempt.lost",
    "attempt.released",
    "attempt.unreachable",
    "attempt.returned",
    "attempt.late_report",
    "attempt.gone",
    "batch.accepted",
    "batch.ended",
    "batch.paused",
    "batch.resumed",
    "hook.made",
    "hook.left_out",
    "schedule.fired",
    "schedule.skipped",
    "schedule.missed",
    "schedule.paused",
    "schedule.resumed",
    "definition.changed",
    "definition.removed",
    "expectation.missed",
    "expectation.met",
    "definition.paused",
    "definition.resumed",
    "worker.joined",
    "worker.changed",
    "worker.joining",
    "worker.ready",
    "worker.suspect",
    "worker.draining",
    "worker.disconnected",
    "worker.unreachable",
    "worker.cloned",
    "worker.revoked",
    "worker.left",
    "worker.forgotten",
];

/// One event.
#[derive(Debug)]
pub struct EventRecord {
    /// Its place in the order of all events.
    pub id: EventId,
    /// Wall-clock time of the change.
    pub at: Timestamp,
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// The object of the event.
    pub subject: Subject,
    /// An estimate of the bytes that it takes, with its JSON.
    pub(super) bytes: usize,
    json: OnceLock<Box<str>>,
}

/// The object of an event.
#[derive(Debug)]
pub enum Subject {
    /// A job, and the attempt concerned.
    Job(Box<JobSubject>),
    /// An attempt of a job that has ended before, or of none.
    Attempt {
        /// The attempt.
        attempt: AttemptSubject,
        /// The number of its job.
        job: JobId,
    },
    /// A large batch that has become visible, or a batch that has ended.
    Batch {
        /// Its first job.
        first: JobId,
        /// The number of its jobs.
        count: u64,
        /// The definition, if all jobs of a large batch have the same one.
        name: Option<Arc<DefinitionRef>>,
    },
    /// A hook that was decided.
    Hook(Box<HookRow>),
    /// Slots of a schedule.
    Fire(Box<FireRow>),
    /// Jobs and schedules that were paused, with the origin of the pause, or resumed.
    Pause(PauseTarget, PauseChange),
    /// A definition with its new revision, or the last one if it was removed.
    Definition(Arc<DefinitionRef>),
    /// The state of an expectation.
    Expectation(Box<ExpectationRow>),
    /// A worker as the snapshot shows it.
    Worker(Box<WorkerFacts>, ClusterId),
    /// The stored row of a worker.
    WorkerRow {
        /// The row.
        row: Box<WorkerRow>,
        /// The name of its state.
        state: &'static str,
        /// The end of its cordon, if that has ended by itself.
        cordon_ended: Option<Timestamp>,
    },
    /// A worker that was removed.
    WorkerRef(WorkerName),
}

/// A revision of a definition, with its name.
#[derive(Debug, PartialEq, Eq)]
pub struct DefinitionRef {
    /// The name of the definition.
    pub name: Box<str>,
    /// The revision.
    pub revision: Revision,
}

/// Number and name of a worker.
#[derive(Clone, Debug)]
pub struct WorkerName {
    /// The worker's number.
    pub id: WorkerId,
    /// The worker's name.
    pub name: Arc<str>,
}

/// The facts about a job that its events show.
#[derive(Debug)]
pub struct JobSubject {
    /// The job's number.
    pub job: JobId,
    /// Its definition.
    pub definition: Arc<DefinitionRef>,
    /// Its state after the change.
    pub state: State,
    /// Higher goes first.
    pub priority: i8,
    /// Wall-clock time of the acceptance.
    pub created_at: Timestamp,
    /// Earliest start of the (next) attempt.
    pub due_at: Timestamp,
    /// The number of its attempts.
    pub attempts: u32,
    /// The first job of its batch.
    pub batch: Option<JobId>,
    /// The job in whose place it runs on one of several workers.
    pub parent: Option<JobId>,
    /// The current or the just ended attempt.
    pub attempt: Option<AttemptSubject>,
    /// Wall-clock time of the first start of a member, if it runs on several workers.
    pub members_started_at: Option<Timestamp>,
    /// Facts that only its acceptance shows.
    pub accepted: Option<Box<AcceptedSubject>>,
    /// Facts that only its end shows.
    pub end: Option<Box<EndSubject>>,
    /// The requester of the change.
    pub by: Option<Box<str>>,
}

/// Facts that only the acceptance of a job shows.
#[derive(Debug)]
pub struct AcceptedSubject {
    /// Labels for people and filters.
    pub labels: Vec<(String, String)>,
    /// The ended job that it repeats.
    pub retry_of: Option<JobId>,
    /// The name of the requester, if it is known.
    pub submitted_by: Option<Arc<str>>,
    /// The slot that it is for.
    pub slot: Option<JobSlot>,
}

/// Facts that only the end of a job shows.
#[derive(Debug)]
pub struct EndSubject {
    /// Wall-clock time of the end.
    pub at: Timestamp,
    /// The reason in one line; empty for success.
    pub reason: String,
    /// For a cancelled job: its container is known to be gone.
    pub confirmed: bool,
}

/// The facts about an attempt that events show.
#[derive(Clone, Debug)]
pub struct AttemptSubject {
    /// Its number within its job; 0 if it is not known.
    pub number: AttemptNo,
    /// Its fence.
    pub fence: Fence,
    /// The worker that has or had it.
    pub worker: WorkerName,
    /// Wall-clock time of the assignment.
    pub assigned_at: Option<Timestamp>,
    /// Wall-clock time of the start of its container.
    pub started_at: Option<Timestamp>,
    /// The runtime's name for its container.
    pub container: Box<str>,
    /// The cause for which it is being stopped.
    pub stopping: Option<StopCause>,
    /// The end of the attempt.
    pub end: Option<Box<AttemptEnd>>,
    /// The content of a late report.
    pub said: Option<Box<str>>,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct AttemptEnd {
    /// Wall-clock time of the end.
    pub at: Timestamp,
    /// The outcome.
    pub outcome: Outcome,
    /// The cause of a release.
    pub released: Option<ReleaseCause>,
    /// The program's exit code, if it ran.
    pub exit_code: Option<i32>,
    /// Explanation for people, in one line.
    pub message: String,
    /// Bytes of standard output and standard error.
    pub output: (u64, u64),
    /// Resources that it has used.
    pub usage: Usage,
}

impl EventRecord {
    /// An event.
    #[must_use]
    pub fn new(id: EventId, at: Timestamp, kind: &'static str, subject: Subject) -> Self {
        // JSON repeats the texts once.
        let bytes = size_of::<Self>() + JSON_BYTES + 2 * subject.bytes();
        Self { id, at, kind, subject, bytes, json: OnceLock::new() }
    }

    /// The event as JSON, made by the first reader.
    pub fn json(&self, make: impl FnOnce(&Self) -> String) -> &str {
        self.json.get_or_init(|| make(self).into())
    }

    /// The name of the definition that it is about.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.subject {
            Subject::Job(job) => Some(&job.definition.name),
            Subject::Batch { name, .. } => name.as_ref().map(|definition| &*definition.name),
            Subject::Fire(row) => Some(&row.definition),
            Subject::Hook(row) => Some(&row.target),
            Subject::Pause(PauseTarget::Definition(name) | PauseTarget::Schedule(name, _), _) => Some(name),
            Subject::Definition(definition) => Some(&definition.name),
            Subject::Expectation(row) => Some(&row.definition),
            _ => None,
        }
    }

    /// The name of the state of the job or worker that it is about.
    #[must_use]
    pub fn state(&self) -> Option<&'static str> {
        match &self.subject {
            Subject::Job(job) => Some(job.state.name()),
            Subject::Worker(..) if self.kind == "worker.left" => Some("gone"),
            Subject::Worker(facts, _) => Some(facts.state.name()),
            Subject::WorkerRow { state, .. } => Some(state),
            _ => None,
        }
    }

    /// The worker that it is about.
    #[must_use]
    pub fn worker(&self) -> Option<WorkerId> {
        match &self.subject {
            Subject::Job(job) => job.attempt.as_ref().map(|attempt| attempt.worker.id),
            Subject::Attempt { attempt, .. } => Some(attempt.worker.id),
            Subject::Worker(facts, _) => Some(facts.id),
            Subject::WorkerRow { row, .. } => Some(row.worker),
            Subject::WorkerRef(worker) => Some(worker.id),
            _ => None,
        }
    }

    /// The batch that it is about.
    #[must_use]
    pub fn batch(&self) -> Option<JobId> {
        match &self.subject {
            Subject::Job(job) => job.batch,
            Subject::Batch { first, .. } => Some(*first),
            _ => None,
        }
    }

    /// True if it is about this job or about one of its members.
    pub(super) fn is_of_parent(&self, parent: JobId) -> bool {
        matches!(&self.subject, Subject::Job(job) if job.job == parent || job.parent == Some(parent))
    }
}

impl Subject {
    /// An estimate of the bytes that it takes outside of this enum.
    fn bytes(&self) -> usize {
        match self {
            Self::Job(job) => {
                let labels =
                    job.accepted.iter().flat_map(|it| &it.labels).map(|(k, v)| k.len() + v.len() + 64);
                let names = job.accepted.as_ref().map_or(0, |it| {
                    let by = it.submitted_by.as_ref().map_or(0, |name| name.len());
                    by + it.slot.as_ref().map_or(0, |slot| slot.schedule.len() + size_of::<JobSlot>())
                });
                let end = job.end.as_ref().map_or(0, |end| end.reason.len());
                let attempt = job.attempt.as_ref().map_or(0, AttemptSubject::bytes);
                size_of::<JobSubject>() + labels.sum::<usize>() + names + end + attempt
            }
            Self::Attempt { attempt, .. } => attempt.bytes(),
            Self::Worker(facts, _) => {
                let labels = facts.own_labels.iter().chain(&facts.set_labels);
                size_of::<WorkerFacts>() + labels.map(|(k, v)| k.len() + v.len() + 64).sum::<usize>()
            }
            _ => 0,
        }
    }
}

impl AttemptSubject {
    fn bytes(&self) -> usize {
        let said = self.said.as_ref().map_or(0, |text| text.len());
        self.container.len()
            + said
            + self.end.as_ref().map_or(0, |end| size_of::<AttemptEnd>() + end.message.len())
    }
}

/// The JSON of an event without long texts.
const JSON_BYTES: usize = 512;
