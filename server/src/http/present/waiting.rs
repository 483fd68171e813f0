//! Why a job waits, and the workers that it asks for.

use scheduler::placement::narrowing::Narrowing;
use scheduler::placement::rules::LabelRule;
use scheduler::step::PendingReason;

use crate::http::middleware::problem::pending_text;
use crate::http::present::shapes;

/// Code and text of a pending reason.
pub(crate) fn pending(reason: PendingReason) -> shapes::Reason {
    shapes::Reason { code: reason.name().into(), text: pending_text(reason).into() }
}

/// As [`pending`], of a job that asks for these workers: the text names them where workers are the reason.
pub(crate) fn pending_of(reason: PendingReason, narrowing: Option<&Narrowing>) -> shapes::Reason {
    let of_workers = pending(reason);
    let Some(narrowing) = narrowing else { return of_workers };
    let text = match reason {
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

/// Names and ids of the workers that a job asks for.
pub(crate) fn asked_workers(narrowing: Option<&Narrowing>) -> Vec<String> {
    narrowing.into_iter().flat_map(|it| &it.workers).map(ToString::to_string).collect()
}

/// The conditions on labels that a job has itself, as jobs.yaml writes them.
pub(crate) fn asked_labels(narrowing: Option<&Narrowing>) -> Vec<String> {
    narrowing.into_iter().flat_map(|it| &it.requires).map(LabelRule::in_grammar).collect()
}
