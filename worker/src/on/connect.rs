//! The connection comes, is answered, is reconciled, and goes.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{GoAway, Reconciled, Refused, Verdict, Welcome};
use protocol::report::Hello;
use protocol::{Report, ReportNo, Token, Uptime, VERSIONS};

use crate::attempt::{Attempt, Stage};
use crate::link::State;
use crate::on::end;
use crate::on::stop;
use crate::step::Effect;
use crate::worker::{Notices, Worker};

/// The socket is open: Hello.
pub(crate) fn connected(worker: &mut Worker, now: Uptime) {
    hang_up(worker);
    worker.link.greet(now);
    let hello = hello(worker);
    worker.effects.push(Effect::Send(Report::Hello(hello)));
}

/// The socket is gone, or could not be opened: once more, later.
pub(crate) fn disconnected(worker: &mut Worker) {
    let after = worker.link.backoff();
    let reason = match worker.link.state {
        State::Down => "the server could not be reached",
        State::Greeting { .. } => "the connection was lost before the server said Welcome",
        State::Joined | State::Reconciled => "the connection was lost",
    };
    reconnect(worker, after, None, reason.to_string());
}

/// The server knows us: it hears what it has not acknowledged, and everything that we know of.
pub(crate) fn welcome(worker: &mut Worker, now: Uptime, welcome: Welcome) {
    let State::Greeting { since } = worker.link.state else {
        return;
    };
    worker.link.join(now, since, welcome.intervals);
    worker.config.cluster = Some(welcome.cluster);
    worker.effects.push(Effect::Joined { cluster: welcome.cluster, worker: welcome.worker });
    worker.keep_contact();
    end::begin_again(worker, now, welcome.last_report);
    let mut running = core::mem::take(&mut worker.notices.running);
    if welcome.last_report == ReportNo(0) {
        tell_running_again(worker, &mut running);
    }
    worker.notices = Notices {
        inventory: true,
        // What Hello cannot say.
        condition: worker.leaving().is_some(),
        running,
        wanted: worker.backlog.wanted(),
        ..Notices::default()
    };
}

/// A server that has just started knows since when its containers run by the clock on its wall only, and that may have been set.
fn tell_running_again(worker: &Worker, running: &mut Vec<Token>) {
    let waiting: BTreeSet<Token> = running.iter().copied().chain(worker.outbox.runnings()).collect();
    let is_running = |attempt: &Attempt| matches!(attempt.stage, Stage::Running { .. });
    let known = worker.attempts.iter().filter(|(token, it)| is_running(it) && !waiting.contains(token));
    running.extend(known.map(|(token, _)| *token));
}

/// The server has answered a heartbeat.
pub(crate) fn pulse(worker: &mut Worker, number: u64) {
    if worker.link.renew(number) {
        worker.keep_contact();
    }
}

/// The server has compared our inventory with what it knows: from here on attempts may start.
pub(crate) fn reconciled(worker: &mut Worker, now: Uptime, reconciled: Reconciled) {
    for (token, verdict) in reconciled.attempts {
        match verdict {
            Verdict::Keep => {}
            Verdict::Stop => stop::supersede(worker, now, token),
            // A report of it that is still on its way is treated first.
            Verdict::Forget if has_ended(worker, token) => end::output_done(worker, token),
            // It lives although the server is done with it: that is what Stop is for.
            Verdict::Forget => stop::supersede(worker, now, token),
        }
    }
    if reconciled.last {
        worker.link.reconciled();
    }
}

/// The server does not want us now. We keep trying: whatever it is, somebody may repair it.
pub(crate) fn refused(worker: &mut Worker, refused: Refused) {
    // The server knows what it waits for: as often as it says, whatever happened before.
    let after = refused.retry_after.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
    let after = after + worker.link.up_to(after / 5);
    reconnect(worker, after, None, format!("refused ({}): {}", refused.code, refused.text));
}

/// The server leaves, or has too many of us.
pub(crate) fn go_away(worker: &mut Worker, go: GoAway) {
    let after = go.reconnect_after.min(RETRY_AFTER_MAX);
    let after = after + worker.link.up_to(after);
    reconnect(worker, after, go.elsewhere, "the server asked us to reconnect".to_string());
}

/// Gives the connection up, for a new one.
pub(crate) fn reconnect(worker: &mut Worker, after: Duration, elsewhere: Option<String>, reason: String) {
    hang_up(worker);
    worker.effects.push(Effect::Reconnect { after, elsewhere, reason });
}

/// What was only a fact of the moment is gone with its connection; a Running not yet said is kept.
fn hang_up(worker: &mut Worker) {
    worker.link.lose();
    worker.incomplete.clear();
    let running = core::mem::take(&mut worker.notices.running);
    worker.notices = Notices { running, ..Notices::default() };
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
        runtimes: config.runtimes.clone(),
    }
}

fn has_ended(worker: &Worker, token: Token) -> bool {
    worker.attempts.get(&token).is_some_and(|attempt| matches!(attempt.stage, Stage::Ended(_)))
}

/// A server that says "at once" is not obeyed, nor one that says "in a year".
const RETRY_AFTER_MIN: Duration = Duration::from_millis(200);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
