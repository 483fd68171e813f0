//! Why a job waits, and the workers that it asks for.

use protocol::JobId;
use protocol::report::Outcome;
use scheduler::definition::Definition;
use scheduler::job::State;
use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use scheduler::placement::narrowing::Narrowing;
use scheduler::placement::rules::LabelRule;
use scheduler::snapshot::Snapshot;
use scheduler::step::PendingReason;

use crate::catalogue::Definitions;
use crate::http::present::pending_text::pending_text;
use crate::http::present::shapes::{self, Time};
use crate::store::JobRow;

/// Code and text of a pending reason.
pub(crate) fn pending(reason: PendingReason) -> shapes::Reason {
    shapes::Reason { code: reason.name().into(), text: pending_text(reason).into() }
}

/// The reason of a job that waits for its next attempt, after one that failed. An attempt that was given back unstarted has not failed.
pub(super) fn backoff(row: &JobRow) -> Option<shapes::Reason> {
    let attempt = row.attempt.as_ref().filter(|_| row.state == State::Scheduled)?;
    let outcome = attempt.outcome.filter(|outcome| *outcome != Outcome::Released)?;
    let why = if attempt.message.is_empty() { String::new() } else { format!(" ({})", attempt.message) };
    let text = format!(
        "attempt {} ended as {}{why}; the next one is not due before {}",
        row.attempts.0,
        outcome.name(),
        Time(row.due_at)
    );
    Some(shapes::Reason { code: "backoff".into(), text: text.into() })
}

/// The reason of a job that waits for its time.
pub(super) fn not_due(row: &JobRow) -> shapes::Reason {
    let what = match row.attempts.0 {
        0 => "it".to_owned(),
        past => format!("its attempt {}", past + 1),
    };
    let text = format!("{what} is not due before {}", Time(row.due_at)).into();
    shapes::Reason { text, ..pending(PendingReason::NotDue) }
}

/// As [`pending`], of a job that asks for these workers: the text names them where workers are the reason.
pub(crate) fn pending_of(reason: PendingReason, narrowing: Option<&Narrowing>) -> shapes::Reason {
    let of_workers = pending(reason);
    let Some(narrowing) = narrowing else { return of_workers };
    let text = match reason {
        reason if narrowing.workers.len() == 1 && is_of_allowed_worker(reason) => {
            format!("this job asks for {narrowing}: {}", only_worker_text(reason))
        }
        PendingReason::NoMatch => {
            format!("no connected worker is allowed to run it: this job asks for {narrowing}")
        }
        PendingReason::NoWorker
        | PendingReason::NoRuntime
        | PendingReason::TooLarge
        | PendingReason::Cordoned
        | PendingReason::RuntimeUnavailable
        | PendingReason::Excluded
        | PendingReason::Busy
        | PendingReason::Resources
        | PendingReason::SetAside => format!("{}; this job asks for {narrowing}", of_workers.text),
        _ => return of_workers,
    };
    shapes::Reason { text: text.into(), ..of_workers }
}

/// The command that tells what the text of a reason leaves open.
pub(crate) fn explain_hint(reason: PendingReason, job: JobId) -> Option<String> {
    let open = match reason {
        PendingReason::TooLarge => "which resource",
        PendingReason::NoMatch => "more of each worker, also of those that are not connected",
        PendingReason::Excluded => "why",
        _ => return None,
    };
    Some(format!("'longshore explain {job}' tells {open}"))
}

/// Returns whether the reason is about a worker that is allowed to run the job. Such a reason is shown rather than that no worker is allowed.
pub(crate) fn is_of_allowed_worker(reason: PendingReason) -> bool {
    matches!(
        reason,
        PendingReason::TooLarge
            | PendingReason::Cordoned
            | PendingReason::RuntimeUnavailable
            | PendingReason::Excluded
            | PendingReason::Busy
            | PendingReason::Resources
            | PendingReason::SetAside
    )
}

/// The text of such a reason if only one worker is allowed.
const fn only_worker_text(reason: PendingReason) -> &'static str {
    match reason {
        PendingReason::TooLarge => "it offers less of a resource than the job reserves",
        PendingReason::Cordoned => "it is cordoned or draining",
        PendingReason::RuntimeUnavailable => {
            "it can start nothing now: its container engine (runtime) does not answer, or its disk is full"
        }
        PendingReason::Excluded => "it has refused the job, or failed to start it",
        PendingReason::Busy => "all its slots are taken",
        PendingReason::Resources => {
            "it has too little left of a resource that the job reserves: other jobs hold it"
        }
        PendingReason::SetAside => "it is set aside for an earlier job that needs more of a resource",
        other => pending_text(other),
    }
}

/// The pauses that hold a job back, in words: each with its beginning, its end, its requester and its reason. `None` if there are none.
pub(crate) fn paused_by<'p>(
    pauses: impl IntoIterator<Item = (PauseTarget, &'p Intervention)>,
    reason_chars_max: usize,
) -> Option<String> {
    let sentence = |(target, pause)| shapes::Pause::of(&target, pause).sentence(reason_chars_max);
    let sentences: Vec<String> = pauses.into_iter().map(sentence).collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

/// As [`pending`], of a job with this definition, which may be unknown, and of this batch. The text names the pauses that hold it back.
pub(crate) fn paused(
    snapshot: &Snapshot,
    definition: Option<&Definition>,
    batch: Option<JobId>,
) -> shapes::Reason {
    let reason = pending(PendingReason::Paused);
    // The pause may have ended since.
    let Some(text) = pauses_of(snapshot, definition, batch) else { return reason };
    shapes::Reason { text: text.into(), ..reason }
}

/// The pauses of a definition, which may be unknown, and of a batch, in words.
pub(crate) fn pauses_of(
    snapshot: &Snapshot,
    definition: Option<&Definition>,
    batch: Option<JobId>,
) -> Option<String> {
    let of_definition = definition.into_iter().flat_map(|it| snapshot.pauses.of_jobs(it));
    let of_batch = batch.and_then(|first| snapshot.pauses.of_batch(first));
    paused_by(of_definition.chain(of_batch), LISTED_REASON_CHARS_MAX)
}

/// The text for a job that waits and whose definition is not in jobs.yaml any more.
pub(crate) fn removal_text(current: &Definitions, row: &JobRow) -> Option<String> {
    let waits = matches!(row.state, State::Scheduled | State::Queued | State::Quarantined);
    (waits && current.find(&row.definition).is_none()).then(|| {
        format!(
            "its definition is not in jobs.yaml any more, and the job keeps its revision: \
             cancel it with 'longshore cancel {}', or put the definition back",
            row.job
        )
    })
}

/// Characters of the reason of a pause beside each job of a list. An explanation has all of them.
const LISTED_REASON_CHARS_MAX: usize = 80;

/// Names and ids of the workers that a job asks for.
pub(crate) fn asked_workers(narrowing: Option<&Narrowing>) -> Vec<String> {
    narrowing.into_iter().flat_map(|it| &it.workers).map(ToString::to_string).collect()
}

/// The conditions on labels that a job has itself, as jobs.yaml writes them.
pub(crate) fn asked_labels(narrowing: Option<&Narrowing>) -> Vec<String> {
    narrowing.into_iter().flat_map(|it| &it.requires).map(LabelRule::in_grammar).collect()
}
