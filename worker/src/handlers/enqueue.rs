//! Accepts attempts and definitions from the server.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::{Assignment, Definition};
use protocol::report::ReleaseCause;
use protocol::secret::{AttemptSecrets, SecretValues};
use protocol::{RuntimeKind, Token, Uptime};

use crate::attempt::{Attempt, Granted, Stage};
use crate::backlog::QueuePosition;
use crate::core::Worker;
use core::cmp::Reverse;

/// Queues attempts while there is room, and releases the others.
pub(crate) fn on_enqueue(worker: &mut Worker, now: Uptime, assignments: Vec<Assignment>) {
    for assignment in assignments {
        let token = assignment.token;
        if let Some(known) = worker.attempts.get(&token) {
            worker.notices.status.push((token, known.phase()));
        } else if worker.outbox.is_released(token) {
            // The order was sent again before the server had the answer. The attempt may be elsewhere by now.
        } else if worker.shutdown_mode().is_some() {
            worker.outbox.released(token, ReleaseCause::Draining, String::new());
        } else if !has_room(worker) {
            worker.outbox.released(token, ReleaseCause::Full, String::new());
        } else if let Some(id) = foreign_gpu(worker, &assignment) {
            // Another process of this identity offered it: one before a restart, or that of a copied state directory. The job may have one of
            // this worker's own GPUs, so the cause must not keep it away for good.
            let why = format!("this worker does not offer the GPU `{}`", id.escape_debug());
            worker.outbox.released(token, ReleaseCause::Full, why);
        } else if let Some(AttemptSecrets::Withheld(why)) = assignment.secrets {
            worker.outbox.released(token, ReleaseCause::Secrets, why);
        } else {
            accept(worker, now, assignment);
        }
    }
}

/// Stores definitions and queues the attempts that waited for them.
pub(crate) fn on_definitions(worker: &mut Worker, definitions: Vec<Definition>) {
    for definition in definitions {
        let revision = definition.revision;
        let known = worker.definitions.insert(definition, &worker.config.policy);
        for token in worker.backlog.unpark(revision) {
            if let Some(attempt) = worker.attempts.get_mut(&token)
                && let Stage::WaitingForDefinition { granted } = &attempt.stage
            {
                attempt.definition = Some(known.clone().with_granted(granted));
                attempt.stage = Stage::Waiting;
                queue(worker, token);
            }
        }
    }
}

/// The id of a GPU that this worker does not offer. Only ids that its operator has named may reach the engine.
fn foreign_gpu<'a>(worker: &Worker, assignment: &'a Assignment) -> Option<&'a str> {
    let offered = &worker.config.resources.gpus;
    assignment.gpus.iter().find(|id| !offered.contains(id)).map(String::as_str)
}

fn has_room(worker: &Worker) -> bool {
    let (busy, queued) = worker.load();
    u64::from(busy) + u64::from(queued) < u64::from(worker.slots.count()) + u64::from(worker.config.backlog)
}

fn accept(worker: &mut Worker, now: Uptime, assignment: Assignment) {
    let Assignment { token, revision, .. } = assignment;
    let granted = Granted { memory_bytes: assignment.memory_bytes, gpus: assignment.gpus.clone() };
    let definition = worker.definitions.find(revision).map(|known| known.with_granted(&granted));
    let stage = if definition.is_some() { Stage::Waiting } else { Stage::WaitingForDefinition { granted } };
    let position = QueuePosition {
        priority: Reverse(assignment.priority),
        due: due(now, &assignment),
        arrival: worker.next_arrival(),
    };
    let is_resolved = definition.is_some();
    let secrets = match assignment.secrets {
        Some(AttemptSecrets::Given(values)) => values,
        Some(AttemptSecrets::Withheld(_)) | None => SecretValues::default(),
    };
    worker.attempts.insert(
        token,
        Attempt {
            position,
            revision,
            overrides: assignment.overrides,
            secrets: secrets.into(),
            time_left: assignment.time_left,
            definition,
            stage,
            stop: None,
            alarm: None,
            output_done: false,
        },
    );
    if is_resolved {
        queue(worker, token);
        return;
    }
    if !worker.backlog.is_wanted(revision) {
        worker.notices.wanted.push(revision);
    }
    worker.backlog.park(revision, token);
}

/// Queues an attempt with a known definition, or releases it if its runtime is not available or the policy forbids it.
fn queue(worker: &mut Worker, token: Token) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    let forbidden = attempt.definition.as_ref().and_then(|definition| definition.forbidden.as_ref());
    let forbidden = forbidden.map(|why| (ReleaseCause::Policy, String::from(&**why)));
    match forbidden.or_else(|| obstacle(worker, attempt.runtime())) {
        None => worker.backlog.push(attempt.position, token),
        Some((cause, why)) => {
            worker.attempts.remove(&token);
            worker.outbox.released(token, cause, why);
        }
    }
}

fn obstacle(worker: &Worker, runtime: RuntimeKind) -> Option<(ReleaseCause, String)> {
    match worker.config.runtimes.iter().find(|(kind, _)| *kind == runtime) {
        Some((_, own)) => worker.fault_of(own).map(|why| (ReleaseCause::RuntimeUnavailable, why)),
        None => Some((ReleaseCause::Policy, format!("this worker does not offer the runtime {runtime}"))),
    }
}

fn due(now: Uptime, assignment: &Assignment) -> i64 {
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    now.saturating_sub(i64::try_from(assignment.waited.as_nanos()).unwrap_or(i64::MAX))
}
