//! The server hands over attempts, and the definitions they need.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::{Assignment, Definition};
use protocol::report::{Availability, ReleaseCause};
use protocol::{RuntimeKind, Token, Uptime};

use crate::attempt::{Attempt, Place, Stage};
use crate::worker::Worker;
use core::cmp::Reverse;

/// Queues what there is room for; the rest goes back.
pub(crate) fn enqueue(worker: &mut Worker, now: Uptime, assignments: Vec<Assignment>) {
    for assignment in assignments {
        let token = assignment.token;
        if let Some(known) = worker.attempts.get(&token) {
            worker.notices.status.push((token, known.phase()));
        } else if worker.leaving().is_some() {
            worker.outbox.released(token, ReleaseCause::Draining, String::new());
        } else if !has_room(worker) {
            worker.outbox.released(token, ReleaseCause::Full, String::new());
        } else {
            accept(worker, now, assignment);
        }
    }
}

/// Keeps definitions, and queues the attempts that waited for them.
pub(crate) fn definitions(worker: &mut Worker, definitions: Vec<Definition>) {
    for definition in definitions {
        let revision = definition.revision;
        let known = worker.definitions.insert(definition);
        for token in worker.backlog.unpark(revision) {
            if let Some(attempt) = worker.attempts.get_mut(&token)
                && let Stage::Parked { memory_bytes } = attempt.stage
            {
                attempt.known = Some(known.clone().with_memory(memory_bytes));
                attempt.stage = Stage::Waiting;
                queue(worker, token);
            }
        }
    }
}

fn has_room(worker: &Worker) -> bool {
    let (busy, queued) = worker.load();
    u64::from(busy) + u64::from(queued) < u64::from(worker.slots.count()) + u64::from(worker.config.backlog)
}

fn accept(worker: &mut Worker, now: Uptime, assignment: Assignment) {
    let Assignment { token, revision, .. } = assignment;
    let memory_bytes = assignment.memory_bytes;
    let known = worker.definitions.find(revision).map(|known| known.with_memory(memory_bytes));
    let stage = if known.is_some() { Stage::Waiting } else { Stage::Parked { memory_bytes } };
    let place = Place {
        priority: Reverse(assignment.priority),
        due: due(now, &assignment),
        arrival: worker.next_arrival(),
    };
    let is_known = known.is_some();
    worker.attempts.insert(
        token,
        Attempt {
            place,
            revision,
            body: assignment.body,
            time_left: assignment.time_left,
            known,
            stage,
            stop: None,
            alarm: None,
            output_done: false,
        },
    );
    if is_known {
        queue(worker, token);
        return;
    }
    if !worker.backlog.is_wanted(revision) {
        worker.notices.wanted.push(revision);
    }
    worker.backlog.park(revision, token);
}

/// Queues an attempt whose definition is known, unless this worker cannot run it.
fn queue(worker: &mut Worker, token: Token) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    match obstacle(worker, attempt.runtime()) {
        None => worker.backlog.push(attempt.place, token),
        Some((cause, why)) => {
            worker.attempts.remove(&token);
            worker.outbox.released(token, cause, why);
        }
    }
}

fn obstacle(worker: &Worker, runtime: RuntimeKind) -> Option<(ReleaseCause, String)> {
    match worker.config.runtimes.iter().find(|(kind, _)| *kind == runtime) {
        Some((_, Availability::Available)) => None,
        Some((_, Availability::Unavailable(why))) => Some((ReleaseCause::RuntimeUnavailable, why.clone())),
        None => Some((ReleaseCause::Policy, format!("this worker does not offer the runtime {runtime}"))),
    }
}

fn due(now: Uptime, assignment: &Assignment) -> i64 {
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    now.saturating_sub(i64::try_from(assignment.waited.as_nanos()).unwrap_or(i64::MAX))
}
