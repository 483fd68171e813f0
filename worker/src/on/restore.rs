//! Attempts of an earlier process of this worker come back: from directories and runtimes, the ledgers that outlive us.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use alloc::string::ToString;
use protocol::report::{Foreign, Phase, ReleaseCause};
use protocol::{Token, Uptime};

use crate::attempt::{Attempt, Known, Place, Stage};
use crate::input::{Found, Restored, Stopping};
use crate::on::{connect, end, stop};
use crate::step::Effect;
use crate::worker::Worker;

/// Adopts what is found. The first connection is opened when that is done, so that all of it is reconciled.
pub(crate) fn restored(
    worker: &mut Worker,
    now: Uptime,
    attempts: Vec<Restored>,
    foreign: Vec<Foreign>,
    contact: Option<Uptime>,
) {
    // An earlier process may have lost the server long before us. Where that is not known, a container that must not outlive it may
    // have a successor already.
    worker.link.lease_from = Some(contact.unwrap_or_default().min(now));
    surveyed(worker, now, attempts, foreign);
    connect::reconnect(worker, Duration::ZERO, None, "what runs here is known".to_string());
}

/// Adopts what is found, at the start or when an engine that was silent then is back.
pub(crate) fn surveyed(worker: &mut Worker, now: Uptime, attempts: Vec<Restored>, foreign: Vec<Foreign>) {
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
        // The server may have heard that it was about to start: that it never did, nobody else can tell.
        let why = "its worker was restarted before it had started it".to_string();
        worker.outbox.released(token, ReleaseCause::Recalled, why);
        worker.effects.push(Effect::Forget { token, runtime, give_up_output: true });
        return;
    }
    let place = Place { priority: Reverse(0), due: 0, arrival: worker.next_arrival() };
    let is_fenced = launch.spec.self_fence.is_some();
    let time_left = launch.time_left;
    worker.attempts.insert(
        token,
        Attempt {
            place,
            revision: launch.revision,
            body: None,
            time_left,
            known: Some(Known { name: launch.name, spec: launch.spec }),
            stage: Stage::Launched(Phase::Starting),
            stop: None,
            alarm: None,
            output_done: false,
        },
    );
    worker.slots.take();
    if is_fenced {
        worker.fenced.insert(token);
    }
    match found {
        Found::Running { container, at } => crate::on::run::started(worker, now, token, container, at),
        Found::Ended { exit, output, at } => {
            end::restored_end(worker, token, exit, stopping, output, at.min(now));
            return;
        }
        Found::Unstarted | Found::Unknown => {}
    }
    if let Some(Stopping { cause, at }) = stopping {
        stop::ask(worker, now, token, cause, None);
        if let Some(stop) = worker.attempts.get_mut(&token).and_then(|attempt| attempt.stop.as_mut()) {
            stop.at = at.min(now);
        }
    }
}
