//! The shutdown of the worker process, and changes of settings by the server.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::{Configure, StopCause};
use protocol::report::ReleaseCause;
use protocol::{Token, Uptime};

use crate::attempt::Attempt;
use crate::core::{Exiting, Worker};
use crate::handlers::{pull, stop};
use crate::input::ShutdownMode;
use crate::step::Effect;

/// The operator of this machine asks the process to shut down. A stronger request replaces a weaker one.
pub(crate) fn on_shutdown(worker: &mut Worker, now: Uptime, mode: ShutdownMode) {
    if worker.requested_shutdown >= Some(mode) {
        return;
    }
    worker.requested_shutdown = Some(mode);
    release_unstarted(worker);
    match mode {
        ShutdownMode::Drain => {}
        ShutdownMode::Interrupt => {
            for token in tokens(worker, |attempt| attempt.is_prepared_or_run() && attempt.stop.is_none()) {
                stop::begin_stop(worker, now, token, StopCause::Drain, None);
            }
        }
        ShutdownMode::Detach => worker.exit = Exiting::Now,
    }
}

/// The server changed settings.
pub(crate) fn on_configure(worker: &mut Worker, configure: Configure) {
    if let Some(slots) = configure.slots {
        worker.slots.resize(slots);
        pull::begin_pulls(worker);
        worker.notices.condition = true;
    }
    if let Some(intervals) = configure.intervals {
        worker.link.set_intervals(intervals);
    }
    if configure.drain == worker.drain_ordered {
        return;
    }
    worker.drain_ordered = configure.drain;
    if worker.drain_ordered {
        release_unstarted(worker);
    } else {
        worker.notices.condition = true;
    }
}

/// Releases all unstarted attempts of a worker that shuts down.
fn release_unstarted(worker: &mut Worker) {
    worker.notices.condition = true;
    for token in tokens(worker, |attempt| attempt.is_unstarted()) {
        worker.release(token, ReleaseCause::Draining, String::new());
    }
}

/// Emits the exit effect once when nothing is left to do.
pub(crate) fn exit_if_done(worker: &mut Worker) {
    if worker.exit == Exiting::No && is_done(worker) {
        worker.exit = Exiting::Now;
    }
    if worker.exit == Exiting::Now {
        worker.exit = Exiting::Sent;
        worker.effects.push(Effect::Exit);
    }
}

fn is_done(worker: &Worker) -> bool {
    // The server concludes the release from the next Inventory.
    let is_told = worker.outbox.is_empty() || !worker.link.is_joined();
    match worker.shutdown_mode() {
        None => false,
        Some(ShutdownMode::Drain) => worker.attempts.is_empty() && is_told,
        // The next start reports these ends from their directories.
        Some(ShutdownMode::Interrupt) => {
            !worker.attempts.values().any(Attempt::is_prepared_or_run) && is_told
        }
        Some(ShutdownMode::Detach) => true,
    }
}

fn tokens(worker: &Worker, which: impl Fn(&Attempt) -> bool) -> Vec<Token> {
    worker.attempts.iter().filter(|(_, attempt)| which(attempt)).map(|(token, _)| *token).collect()
}
