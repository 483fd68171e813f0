//! The worker leaves, or the server changes its settings.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::{Configure, StopCause};
use protocol::report::ReleaseCause;
use protocol::{Token, Uptime};

use crate::input::Leave;
use crate::on::stop;
use crate::step::Effect;
use crate::worker::{Exiting, Worker};

/// Our own operator wants this process to leave. A stronger wish replaces a weaker one, never the other way round.
pub(crate) fn leave(worker: &mut Worker, now: Uptime, leave: Leave) {
    if worker.leave >= Some(leave) {
        return;
    }
    worker.leave = Some(leave);
    give_back(worker);
    match leave {
        Leave::Drain => {}
        Leave::Interrupt => {
            for token in tokens(worker, |attempt| attempt.is_live() && attempt.stop.is_none()) {
                stop::ask(worker, now, token, StopCause::Drain, None);
            }
        }
        Leave::Detach => worker.exit = Exiting::Now,
    }
}

/// Settings that changed.
pub(crate) fn configure(worker: &mut Worker, configure: Configure) {
    if let Some(slots) = configure.slots {
        worker.slots.resize(slots);
        worker.notices.condition = true;
    }
    if let Some(intervals) = configure.intervals {
        worker.link.set_intervals(intervals);
    }
    if configure.drain == worker.drained {
        return;
    }
    worker.drained = configure.drain;
    if worker.drained {
        give_back(worker);
    } else {
        worker.notices.condition = true;
    }
}

/// Who leaves takes nothing new, and starts nothing.
fn give_back(worker: &mut Worker) {
    worker.notices.condition = true;
    for token in tokens(worker, |attempt| attempt.is_unstarted()) {
        worker.release(token, ReleaseCause::Draining, String::new());
    }
}

/// Says that the process is to end, once, when nothing is left for it to do.
pub(crate) fn exit_if_done(worker: &mut Worker) {
    if worker.exit == Exiting::No && is_done(worker) {
        worker.exit = Exiting::Now;
    }
    if worker.exit == Exiting::Now {
        worker.exit = Exiting::Said;
        worker.effects.push(Effect::Exit);
    }
}

fn is_done(worker: &Worker) -> bool {
    // What is given back and cannot be said is said by its absence from the next Inventory.
    let is_told = worker.outbox.is_empty() || !worker.link.is_joined();
    match worker.leaving() {
        None => false,
        Some(Leave::Drain) => worker.attempts.is_empty() && is_told,
        // Ends that nobody takes now are told by the next start, from the ledger.
        Some(Leave::Interrupt) => worker.slots.busy() == 0 && is_told,
        Some(Leave::Detach) => true,
    }
}

fn tokens(worker: &Worker, which: impl Fn(&crate::attempt::Attempt) -> bool) -> Vec<Token> {
    worker.attempts.iter().filter(|(_, attempt)| which(attempt)).map(|(token, _)| *token).collect()
}
