//! Labels, lists and images of workers against those that definitions ask for.

use std::sync::Arc;

use super::{Job, Model, Worker};
use crate::world::protocol::WorkerId;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::placement::narrowing::Narrowing;
use crate::world::scheduler::placement::rules::{LabelRule, PlacementStrategy, WorkerSelector};

fn label<'w>(worker: &'w Worker, name: &str) -> Option<&'w str> {
    let mut labels = worker.labels_set.iter().chain(&worker.labels);
    labels.find(|(label, _)| label == name).map(|(_, value)| value.as_str())
}

/// The workers that a job asks for.
pub(super) type Asked = Option<Arc<Narrowing>>;

/// The worker is one of those that a job asks for by their names.
pub(super) fn is_asked_for(worker: &Worker, asked: &Asked) -> bool {
    let listed = asked.iter().flat_map(|narrowing| &narrowing.workers);
    let mut listed = listed.peekable();
    listed.peek().is_none() || listed.any(|it| is_selected(worker, it))
}

/// The worker has the labels that a job asks for.
pub(super) fn has_asked_labels(worker: &Worker, asked: &Asked) -> bool {
    let mut rules = asked.iter().flat_map(|narrowing| &narrowing.requires);
    worker.is_known && rules.all(|rule| rule.holds(label(worker, &rule.label)))
}

fn is_selected(worker: &Worker, selector: &WorkerSelector) -> bool {
    match selector {
        WorkerSelector::Id(id) => *id == worker.id,
        WorkerSelector::Name(name) => **name == *worker.name,
    }
}

/// It speaks a protocol version that has all options of the container.
pub(super) fn is_new_enough(worker: &Worker, definition: &Definition) -> bool {
    worker.protocol >= definition.container.protocol_version()
}

/// It is new enough, its labels are as the definition requires, and none of them is kept for others.
pub(super) fn matches(worker: &Worker, definition: &Definition) -> bool {
    let requires = &definition.placement.requires;
    let holds = |rule: &LabelRule| rule.holds(label(worker, &rule.label));
    let asks = |name: &str| requires.iter().any(|rule| rule.label == name && rule.asks_for_label());
    let mut exclusive = label(worker, "exclusive").into_iter().flat_map(|list| list.split(','));
    worker.is_known && is_new_enough(worker, definition) && requires.iter().all(holds) && exclusive.all(asks)
}

pub(super) fn is_listed(worker: &Worker, definition: &Definition) -> bool {
    let workers = &definition.placement.workers;
    workers.is_empty() || workers.iter().any(|it| is_selected(worker, it))
}

pub(super) fn score(worker: &Worker, definition: &Definition) -> i32 {
    let prefers = definition.placement.prefers.iter();
    prefers.filter(|it| it.rule.holds(label(worker, &it.rule.label))).map(|it| it.weight).sum()
}

impl Job {
    /// Jobs that wait for the same: those of a revision that ask for the same workers.
    pub(super) fn kind(&self) -> (u128, Asked) {
        (self.definition.revision.0, self.narrowing.clone())
    }

    /// The worker is one that its definition lists, and that it asks for by its name.
    pub(super) fn may_be_on(&self, worker: &Worker) -> bool {
        is_listed(worker, &self.definition) && is_asked_for(worker, &self.narrowing)
    }
}

impl Model {
    /// The worker of this job's attempt lacks a protocol version for it.
    pub(super) fn is_on_too_old_a_worker(&self, job: u64) -> bool {
        let job = self.job(job).expect("it is held");
        let worker = job.attempt().and_then(|attempt| self.worker(attempt.worker));
        worker.is_some_and(|worker| !is_new_enough(worker, &job.definition))
    }

    /// The worker is known to have the image. A random choice does not ask.
    pub(super) fn has_image(&self, worker: &Worker, definition: &Definition) -> bool {
        let image = &definition.container.image;
        definition.placement.strategy != PlacementStrategy::Random
            && self.images.iter().any(|(id, known)| *id == worker.id && known == image)
    }

    /// A container of it has run there. Of each image the last eight workers are known.
    pub(super) fn use_image(&mut self, worker: WorkerId, definition: &Definition) {
        let image = &definition.container.image;
        if image.is_empty() {
            return;
        }
        self.images.retain(|known| *known != (worker, image.clone()));
        self.images.push((worker, image.clone()));
        if self.images.iter().filter(|(_, known)| known == image).count() > 8 {
            let oldest = self.images.iter().position(|(_, known)| known == image);
            self.images.remove(oldest.expect("there are nine"));
        }
    }
}
