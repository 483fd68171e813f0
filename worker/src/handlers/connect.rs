//! The connection: opened, welcomed, reconciled, closed.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{GoAway, ReconcileVerdict, Reconciled, Refused, Welcome};
use protocol::report::Hello;
use protocol::{Report, ReportNo, Token, Uptime, VERSIONS};

use crate::attempt::{Attempt, Stage};
use crate::core::{PendingNotices, Worker};
use crate::handlers::end;
use crate::handlers::stop;
use crate::session::State;
use crate::step::Effect;

/// The socket is open; sends Hello.
pub(crate) fn on_connected(worker: &mut Worker, now: Uptime) {
    drop_connection(worker);
    worker.link.await_welcome(now);
    let hello = hello(worker);
    worker.effects.push(Effect::Send(Report::Hello(hello)));
}

/// The socket was closed or could not be opened; reconnects later.
pub(crate) fn on_disconnected(worker: &mut Worker) {
    let after = worker.link.backoff();
    let reason = match worker.link.state {
        State::Down => "there was no connection to the server",
        State::AwaitingWelcome { .. } => "the connection was lost before the server said Welcome",
        State::Joined | State::Reconciled => "the connection was lost",
    };
    reconnect(worker, after, None, reason.to_string());
}

/// The server accepted Hello; repeats unacknowledged reports and sends the inventory.
pub(crate) fn on_welcome(worker: &mut Worker, now: Uptime, welcome: Welcome) {
    let State::AwaitingWelcome { since } = worker.link.state else {
        return;
    };
    worker.link.join(now, since, welcome.intervals);
    worker.config.cluster = Some(welcome.cluster);
    worker.effects.push(Effect::Joined { cluster: welcome.cluster, worker: welcome.worker });
    end::resume_reports(worker, now, welcome.last_report);
    let mut running = core::mem::take(&mut worker.notices.running);
    if welcome.last_report == ReportNo(0) {
        report_running_again(worker, &mut running);
    }
    worker.notices = PendingNotices {
        inventory: true,
        // Hello has no field for it.
        condition: worker.shutdown_mode().is_some(),
        running,
        wanted: worker.backlog.wanted(),
        ..PendingNotices::default()
    };
}

/// A restarted server knows the start of a container by its wall clock only, which may have been set. Reports
/// all starts again.
fn report_running_again(worker: &Worker, running: &mut Vec<Token>) {
    let waiting: BTreeSet<Token> = running.iter().copied().chain(worker.outbox.runnings()).collect();
    let is_running = |attempt: &Attempt| matches!(attempt.stage, Stage::Running { .. });
    let known = worker.attempts.iter().filter(|(token, it)| is_running(it) && !waiting.contains(token));
    running.extend(known.map(|(token, _)| *token));
}

/// The server answered a heartbeat.
pub(crate) fn on_pulse(worker: &mut Worker, number: u64) {
    if worker.link.renew(number) {
        worker.persist_contact();
    }
}

/// The server has compared the inventory; attempts may start.
pub(crate) fn on_reconciled(worker: &mut Worker, now: Uptime, reconciled: Reconciled) {
    for (token, verdict) in reconciled.attempts {
        match verdict {
            ReconcileVerdict::Keep => {}
            ReconcileVerdict::Stop => stop::supersede(worker, now, token),
            // Its report may still be on the way and is handled first.
            ReconcileVerdict::Forget if has_ended(worker, token) => end::on_output_done(worker, token),
            // It still runs, so it must be stopped.
            ReconcileVerdict::Forget => stop::supersede(worker, now, token),
        }
    }
    if reconciled.last {
        worker.link.reconciled();
        worker.persist_contact();
    }
}

/// The server refused this worker; it tries again, because a person may repair the cause.
pub(crate) fn on_refused(worker: &mut Worker, refused: Refused) {
    // The server names the delay; earlier failures do not lengthen it.
    let after = refused.retry_after.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
    let after = after + worker.link.up_to(after / 5);
    reconnect(worker, after, None, format!("refused ({}): {}", refused.code, refused.text));
}

/// The server shuts down or has too many workers.
pub(crate) fn on_go_away(worker: &mut Worker, go: GoAway) {
    let after = go.reconnect_after.min(RETRY_AFTER_MAX);
    let after = after + worker.link.up_to(after);
    reconnect(worker, after, go.elsewhere, "the server asked us to reconnect".to_string());
}

/// Closes the connection and opens a new one later.
pub(crate) fn reconnect(worker: &mut Worker, after: Duration, elsewhere: Option<String>, reason: String) {
    drop_connection(worker);
    worker.effects.push(Effect::Reconnect { after, elsewhere, reason });
}

/// Drops messages that the next Inventory contains; a Running report that was not sent is kept.
fn drop_connection(worker: &mut Worker) {
    worker.link.disconnect();
    worker.incomplete.clear();
    let running = core::mem::take(&mut worker.notices.running);
    worker.notices = PendingNotices { running, ..PendingNotices::default() };
}

fn hello(worker: &Worker) -> Hello {
    let config = &worker.config;
    Hello {
        versions: VERSIONS,
        name: config.name.clone(),
        secret: config.secret,
        cluster: config.cluster,
        rejoin: config.rejoin,
        incarnation: config.incarnation,
        process: config.process,
        engine: config.engine.clone(),
        version: config.version.clone(),
        slots: worker.slots.count(),
        backlog: config.backlog,
        labels: config.labels.clone(),
        runtimes: worker.runtimes(),
        resources: config.resources.clone(),
    }
}

fn has_ended(worker: &Worker, token: Token) -> bool {
    worker.attempts.get(&token).is_some_and(|attempt| matches!(attempt.stage, Stage::Ended(_)))
}

/// Bounds for the delay that a server asks for.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(200);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
