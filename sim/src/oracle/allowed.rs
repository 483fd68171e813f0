//! A job is placed on a worker that its definition allows: labels, exclusive labels, the list of workers; and that it asks for itself.

use std::sync::Arc;

use protocol::{JobId, Revision};
use scheduler::Scheduler;
use scheduler::definition::Definition;
use scheduler::placement::narrowing::Narrowing;
use scheduler::placement::rules::{EXCLUSIVE, WorkerSelector, exclusive_labels};
use scheduler::reservation::Reservation;
use scheduler::snapshot::WorkerFacts;
use scheduler::step::{Assigned, Change, Step};

use super::Oracle;
use crate::clock::Moment;
use crate::disk::Disk;
use crate::workload::Workload;

impl Oracle {
    /// A step of the scheduler. Labels are those after the step: the step that changes them places jobs after that.
    pub(super) fn check_placement_rules(
        &mut self,
        now: Moment,
        (disk, workload): (&Disk, &Workload),
        scheduler: &Scheduler,
        step: &Step,
    ) {
        let assigned: Vec<&Assigned> = step
            .changes
            .iter()
            .filter_map(|change| if let Change::Assigned(it) = change { Some(it) } else { None })
            .collect();
        if assigned.is_empty() {
            return;
        }
        let workers: Vec<WorkerFacts> = scheduler.worker_facts().collect();
        for it in assigned {
            let Some(revision) = revision_of(disk, step, it.token.job) else { continue };
            let definition = workload.definition(revision);
            let lists = workload.of_name(&definition.name).map(|it| &it.placement.workers[..]);
            let worker = workers.iter().find(|facts| facts.id == it.worker);
            let narrowing = narrowing_of(disk, step, it.token.job);
            let is_listed = |facts: &WorkerFacts| lists.clone().any(|list| lists_worker(list, facts));
            let is_asked_for =
                |facts: &WorkerFacts| narrowing.as_ref().is_none_or(|asked| is_asked_for(facts, asked));
            if !worker
                .is_some_and(|facts| meets(facts, definition) && is_listed(facts) && is_asked_for(facts))
            {
                let what = format!("{} of {} goes to worker {}", it.token, definition.name, it.worker);
                self.violated(now, "placement: a job runs where its definition allows it", what);
            }
            let is_over = |facts: &&WorkerFacts| {
                Reservation::is_made_by(&definition.container.resources)
                    && (is_overbooked(facts) || lacks_gpu(facts, it))
            };
            if let Some(facts) = worker.filter(is_over) {
                let what = format!(
                    "{} leaves worker {} with {:?} of {:?}",
                    it.token, it.worker, facts.in_use, facts.offer
                );
                self.violated(
                    now,
                    "resources: attempts reserve no more than their worker offers, and no GPU twice",
                    what,
                );
            }
        }
    }
}

/// The workers that a job asks for, which is new in this step, or was there before it.
fn narrowing_of(disk: &Disk, step: &Step, job: JobId) -> Option<Arc<Narrowing>> {
    let added = step.changes.iter().find_map(|change| match change {
        Change::Added(added) if added.job == job => Some(added.narrowing.clone()),
        _ => None,
    });
    added.or_else(|| disk.row(job).map(|row| row.narrowing.clone())).flatten()
}

/// The revision of a job that is new in this step, or was there before it.
pub(super) fn revision_of(disk: &Disk, step: &Step, job: JobId) -> Option<Revision> {
    let added = step.changes.iter().find_map(|change| match change {
        Change::Added(added) if added.job == job => Some(added.revision),
        _ => None,
    });
    added.or_else(|| disk.row(job).map(|row| row.revision))
}

/// More is reserved than the worker offers, or a GPU twice.
fn is_overbooked(facts: &WorkerFacts) -> bool {
    let (offer, used) = (&facts.offer, &facts.in_use);
    let is_offered = |name: &String, amount: u64| {
        offer.custom.iter().any(|(offered, most)| offered == name && amount <= u64::from(*most))
    };
    offer.memory_bytes.is_some_and(|most| used.memory_bytes > most)
        || used.gpus.values().any(|holders| *holders > 1)
        || used.custom.iter().any(|(name, amount)| !is_offered(name, *amount))
}

/// The attempt has a GPU that the worker does not offer. Earlier attempts may: another process of the worker may offer less.
fn lacks_gpu(facts: &WorkerFacts, it: &Assigned) -> bool {
    it.gpus.iter().any(|gpu| !facts.offer.gpus.contains(gpu))
}

fn label_of<'f>(facts: &'f WorkerFacts, name: &str) -> Option<&'f str> {
    let mut labels = facts.set_labels.iter().chain(&facts.own_labels);
    labels.find(|(label, _)| label == name).map(|(_, value)| value.as_str())
}

fn is_asked_for(facts: &WorkerFacts, asked: &Narrowing) -> bool {
    lists_worker(&asked.workers, facts)
        && asked.requires.iter().all(|rule| rule.holds(label_of(facts, &rule.label)))
}

fn meets(facts: &WorkerFacts, definition: &Definition) -> bool {
    let label = |name: &str| label_of(facts, name);
    let requires = &definition.placement.requires;
    let asks = |name: &String| requires.iter().any(|rule| rule.label == *name && rule.asks_for_label());
    requires.iter().all(|rule| rule.holds(label(&rule.label)))
        && exclusive_labels(label(EXCLUSIVE)).all(|name| asks(&name))
}

/// A list of one revision of the definition, of which any may be in force.
fn lists_worker(list: &[WorkerSelector], facts: &WorkerFacts) -> bool {
    list.is_empty()
        || list.iter().any(|selector| match selector {
            WorkerSelector::Id(id) => *id == facts.id,
            WorkerSelector::Name(name) => **name == *facts.name,
        })
}
