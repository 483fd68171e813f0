//! Reads `run_on`, also called `concurrent_worker_cnt`: `one`, `all`, or a number of workers.

use scheduler::limits::rules::{LimitRules, OnFull};
use scheduler::placement::rules::{PlacementRules, RunOn, WorkerSelector};

use super::fault::FaultCode;
use super::grammar::ValueFault;
use super::reader::Reader;
use super::scope::Scope;
use super::tree::Node;

/// The key.
const KEY: &str = "run_on";

pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> RunOn {
    scope.find(KEY).and_then(|node| value(node, reader)).unwrap_or_default()
}

fn value(node: &Node, reader: &mut Reader<'_>) -> Option<RunOn> {
    let text = reader.loose_text(node)?;
    let count = text.parse().ok().filter(|count| (1..=RunOn::COUNT_MAX).contains(count));
    let found = match (text.as_str(), count) {
        ("one", _) | (_, Some(1)) => Some(RunOn::One),
        ("all", _) => Some(RunOn::All),
        (_, count) => count.map(RunOn::Count),
    };
    if found.is_none() {
        let form = format!("is neither one, all, nor a number of workers in 1..{}", RunOn::COUNT_MAX);
        reader.accept::<()>(node.at, Err(ValueFault::input(FaultCode::InvalidValue, &text, form)));
    }
    found
}

/// Checks `run_on` against the other keys of a job.
pub(super) fn check(
    scope: Scope<'_>,
    placement: &PlacementRules,
    limits: &LimitRules,
    is_job: bool,
    reader: &mut Reader<'_>,
) {
    let Some(node) = scope.find(KEY).filter(|_| is_job && placement.run_on != RunOn::One) else { return };
    let on_full = limits.concurrency.as_ref().map_or(OnFull::Queue, |concurrency| concurrency.on_full);
    if on_full != OnFull::Queue {
        let text = "on several workers each member takes a permit of its own, so concurrency.on_full must be queue: \
                    with any other the members would refuse or cancel each other";
        reader.fault(node.at, FaultCode::InvalidValue, text);
    }
    let are_ids = placement.workers.iter().all(|worker| matches!(worker, WorkerSelector::Id(_)));
    let listed = placement.workers.len();
    if let RunOn::Count(count) = placement.run_on
        && are_ids
        && listed > 0
        && (count as usize) > listed
    {
        let count = reader.as_written(node.at, &count.to_string());
        let text =
            format!("the job needs {count} workers, and `workers` lists {listed}: list more, or write all");
        reader.fault(node.at, FaultCode::InvalidValue, text);
    }
}
