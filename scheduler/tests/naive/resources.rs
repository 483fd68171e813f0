//! Reserved resources: what a worker has left is summed up each time, over its current attempts and its lost ones that may still run.

use super::{Job, Model, Worker};
use crate::world::protocol::Token;
use crate::world::protocol::container::Resources;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::step::Assigned;

/// An attempt that was assigned.
#[derive(Debug)]
pub(super) struct Granted {
    token: Token,
    resources: Resources,
    gpus: Vec<String>,
}

pub(super) fn reserves(definition: &Definition) -> bool {
    let Resources { cpus_milli, memory_bytes, gpus, ref custom, .. } = definition.container.resources;
    cpus_milli.is_some() || memory_bytes.is_some() || gpus > 0 || !custom.is_empty()
}

/// An idle worker with these resources has enough.
pub(super) fn is_offered(worker: &Worker, definition: &Definition) -> bool {
    fits(worker, definition, &[])
}

fn fits(worker: &Worker, definition: &Definition, taken: &[&Granted]) -> bool {
    let (offer, wanted) = (&worker.offer, &definition.container.resources);
    let sum = |of: &dyn Fn(&Resources) -> u64| taken.iter().map(|it| of(&it.resources)).sum::<u64>();
    let memory = wanted.memory_bytes.unwrap_or(0);
    let memory_fits = memory == 0
        || offer.memory_bytes.is_none_or(|all| sum(&|it| it.memory_bytes.unwrap_or(0)) + memory <= all);
    let free = offer.gpus.iter().filter(|id| !taken.iter().any(|it| it.gpus.contains(id))).count();
    let amount = |list: &[(String, u32)], name: &str| {
        list.iter().filter(|(it, _)| it == name).map(|(_, amount)| u64::from(*amount)).sum::<u64>()
    };
    let custom_fits = wanted.custom.iter().all(|(name, wanted)| {
        sum(&|it| amount(&it.custom, name)) + u64::from(*wanted) <= amount(&offer.custom, name)
    });
    memory_fits && free >= wanted.gpus as usize && custom_fits
}

impl Model {
    /// The reservations on a worker.
    fn taken(&self, worker: &Worker) -> Vec<&Granted> {
        let is_current = |token: Token| {
            let attempt = self.job(token.job.0).and_then(Job::attempt);
            attempt.is_some_and(|it| it.token == token && it.worker == worker.id)
        };
        let may_run = |token: Token| {
            worker.doubts.iter().any(|(it, _)| *it == token)
                && self.job(token.job.0).is_some_and(|job| job.unconfirmed.contains(&token))
        };
        self.granted.iter().filter(|it| is_current(it.token) || may_run(it.token)).collect()
    }

    pub(super) fn has_left(&self, worker: &Worker, definition: &Definition) -> bool {
        !reserves(definition) || fits(worker, definition, &self.taken(worker))
    }

    /// Has enough left of what this definition reserves, and beside it enough of that for another one.
    pub(super) fn has_left_with(&self, worker: &Worker, definition: &Definition, other: &Definition) -> bool {
        let (own, kept) = (&definition.container.resources, &other.container.resources);
        let amount = |list: &[(String, u32)], name: &str| {
            list.iter().filter(|(it, _)| it == name).map(|(_, amount)| *amount).sum::<u32>()
        };
        let memory = own.memory_bytes.map(|bytes| bytes + kept.memory_bytes.unwrap_or(0));
        let both = Resources {
            memory_bytes: memory.filter(|_| own.memory_bytes != Some(0)),
            gpus: if own.gpus > 0 { own.gpus + kept.gpus } else { 0 },
            custom: own
                .custom
                .iter()
                .map(|(name, own)| (name.clone(), own + amount(&kept.custom, name)))
                .collect(),
            ..own.clone()
        };
        let mut joint = definition.clone();
        joint.container.resources = both;
        self.has_left(worker, &joint)
    }

    /// Takes note of the GPUs that an attempt gets, if nobody else has them.
    pub(super) fn reserve(&mut self, id: u64, assigned: &Assigned) -> Result<(), String> {
        let resources = self.job(id).expect("it waits").definition.container.resources.clone();
        let worker = self.worker(assigned.worker).expect("it may take it");
        let free: Vec<&String> = worker
            .offer
            .gpus
            .iter()
            .filter(|id| !self.taken(worker).iter().any(|it| it.gpus.contains(id)))
            .collect();
        let first: Vec<&String> = free.into_iter().take(resources.gpus as usize).collect();
        if first != assigned.gpus.iter().collect::<Vec<_>>() {
            return Err(format!("{} gets GPUs {:?}, not {first:?}", assigned.token, assigned.gpus));
        }
        self.granted.push(Granted { token: assigned.token, resources, gpus: assigned.gpus.clone() });
        Ok(())
    }

    pub(super) fn gpus_of(&self, token: Token) -> Vec<String> {
        let granted = self.granted.iter().find(|it| it.token == token);
        granted.map(|it| it.gpus.clone()).unwrap_or_default()
    }
}
