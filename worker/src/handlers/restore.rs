//! Adopts attempts of an earlier process of this worker from directories and runtimes.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use alloc::string::ToString;
use protocol::report::{Foreign, ReleaseCause};
use protocol::{Token, Uptime};

use crate::attempt::{Attempt, ResolvedDefinition, Stage};
use crate::backlog::QueuePosition;
use crate::core::Worker;
use crate::end_facts::EndFacts;
use crate::handlers::{connect, end, stop};
use crate::input::{Found, Restored, Stopping};
use crate::step::Effect;

/// Adopts what was found at the start. The first connection is opened after that, so that all of it is
/// reconciled.
pub(crate) fn on_restored(
    worker: &mut Worker,
    now: Uptime,
    attempts: Vec<Restored>,
    foreign: Vec<Foreign>,
    contact: Option<Uptime>,
) {
    // An earlier process may have lost the server long before. If the time of the last contact is unknown, a
    // container with `self_fence` may have a successor already.
    worker.link.lease_from = Some(contact.unwrap_or_default().min(now));
    on_surveyed(worker, now, attempts, foreign);
    connect::reconnect(worker, Duration::ZERO, None, "what runs here is known".to_string());
}

/// Adopts what was found, at the start or when a silent engine answers again.
pub(crate) fn on_surveyed(worker: &mut Worker, now: Uptime, attempts: Vec<Restored>, foreign: Vec<Foreign>) {
    worker.foreign = foreign;
    for restored in attempts {
        let token = restored.launch.token;
        if !worker.attempts.contains_key(&token) {
            adopt(worker, now, token, restored);
        }
    }
}

fn adopt(worker: &mut Worker, now: Uptime, token: Token, restored: Restored) {
    let Restored { launch, stopping, found } = restored;
    let runtime = launch.spec.runtime;
    if found == Found::Unstarted {
        // The server may know that it was about to start; only this worker knows that it never did.
        let why = "its worker was restarted before it had started it".to_string();
        worker.outbox.released(token, ReleaseCause::Recalled, why);
        worker.effects.push(Effect::Forget { token, runtime, give_up_output: true });
        return;
    }
    // It was started before whatever waits here now.
    let position = QueuePosition { priority: Reverse(0), due: i64::MIN, arrival: worker.next_arrival() };
    let has_self_fence = launch.spec.self_fence.is_some();
    let time_left = launch.time_left;
    worker.attempts.insert(
        token,
        Attempt {
            position,
            revision: launch.revision,
            overrides: None,
            secrets: Default::default(),
            time_left,
            definition: Some(ResolvedDefinition { name: launch.name, spec: launch.spec, forbidden: None }),
            stage: Stage::Launched,
            stop: None,
            alarm: None,
            output_done: false,
        },
    );
    worker.slots.take();
    if has_self_fence {
        worker.armed_self_fences.insert(token);
    }
    match found {
        Found::Running { container, at } => {
            crate::handlers::run::on_started(worker, now, token, container, at)
        }
        Found::Ended { exit, output, usage, at } => {
            let facts = EndFacts { output, usage, at: at.min(now) };
            end::report_restored_end(worker, token, exit, stopping, facts);
            return;
        }
        Found::Unstarted | Found::Unknown => {}
    }
    if let Some(Stopping { cause, at }) = stopping {
        stop::begin_stop(worker, now, token, cause, None);
        if let Some(stop) = worker.attempts.get_mut(&token).and_then(|attempt| attempt.stop.as_mut()) {
            stop.at = at.min(now);
        }
    }
}
