//! Workers that are not connected and may be allowed to run a job.

use scheduler::explain::{Explanation, Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::snapshot::Snapshot;
use scheduler::step::PendingReason;

use super::REASONS_NAMED;
use super::obstacle_text::name_of;
use crate::http::present::departed::{KnownWorker, departed_text};

/// The workers that have left and that the job, or else its definition, asks for by id.
pub(super) fn departed(explanation: &Explanation, snapshot: &Snapshot) -> Option<String> {
    if !matches!(explanation.pending, Some(PendingReason::NoMatch | PendingReason::NoWorker)) {
        return None;
    }
    let of_job = explanation.narrowing.as_ref().map(|narrowing| &narrowing.workers);
    let asked = of_job.filter(|asked| !asked.is_empty()).unwrap_or(&explanation.definition.placement.workers);
    let is_connected = |id| snapshot.workers.get(id).is_some_and(|worker| worker.session.is_some());
    let known = explanation.workers.iter().map(|it| KnownWorker {
        id: it.worker,
        name: &it.name,
        is_connected: is_connected(it.worker),
    });
    departed_text(asked, &known.collect::<Vec<_>>())
}

/// The workers that are not connected and may be allowed to run a job that no connected worker is allowed to run. The labels of a worker are
/// unknown from the start of the server until it connects.
pub(super) fn text(explanation: &Explanation, pending: PendingReason) -> Option<String> {
    let asks = explanation.narrowing.as_ref().is_some_and(|narrowing| !narrowing.workers.is_empty());
    if pending != PendingReason::NoMatch || asks {
        return None;
    }
    let may_fit = |worker: &&WorkerVerdict| match &worker.verdict {
        PlacementVerdict::Unable(all) => {
            let is_away = matches!(all.first(), Some(Obstacle::Offline | Obstacle::Unreachable));
            let is_unfit = |it: &Obstacle| {
                matches!(it, Obstacle::Requirement(_) | Obstacle::Condition(_) | Obstacle::Exclusive)
            };
            is_away && worker.revoked_at.is_none() && !all.iter().any(is_unfit)
        }
        _ => false,
    };
    let mut away = explanation.workers.iter().filter(may_fit);
    let named: Vec<String> =
        away.by_ref().take(REASONS_NAMED).map(|it| name_of(explanation, it.worker)).collect();
    let others = if away.next().is_some() { " and others" } else { "" };
    (!named.is_empty()).then(|| {
        format!(
            "no connected worker is allowed to run it; {}{others} may be, and {} not connected",
            named.join(", "),
            if named.len() == 1 { "is" } else { "are" }
        )
    })
}
