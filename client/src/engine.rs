//! The one task that owns [`Worker`]: takes all inputs that have piled up, stamps the time, steps, performs what was decided, and
//! lets it say what there is to say once per batch. It decides nothing itself.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Report, RuntimeKind, Token, Uptime};
use tokio::sync::mpsc;
use tokio::time::Instant;
use worker::input::{Leave, RuntimeEvent};
use worker::{Effect, Input, Worker};

use crate::clock;
use crate::config::OnTerm;
use crate::health::HealthFile;
use crate::identity::Identity;
use crate::logs::Logs;
use crate::machine::{self, Room};
use crate::runtime::{Membership, Runtime};
use crate::ws::{Address, Dialer, Link, LinkEvent};

/// What the engine owns.
pub(crate) struct Engine {
    pub(crate) worker: Worker,
    pub(crate) identity: Identity,
    pub(crate) runtimes: Vec<Arc<dyn Runtime>>,
    pub(crate) dialer: Dialer,
    pub(crate) logs: Logs,
    pub(crate) on_term: OnTerm,
    pub(crate) inbox: Inbox,
    pub(crate) link: Option<Link>,
    pub(crate) terms: u32,
    pub(crate) exit: bool,
    pub(crate) room: Room,
    pub(crate) health: Option<HealthFile>,
}

/// Where inputs come from, beside the link.
pub(crate) struct Inbox {
    pub(crate) runtime: mpsc::UnboundedReceiver<RuntimeEvent>,
    pub(crate) output_done: mpsc::UnboundedReceiver<Token>,
    /// Each item is one wish that the process leave.
    pub(crate) terms: mpsc::Receiver<()>,
}

impl Engine {
    /// Runs until there is nothing left to do and somebody wants it to end.
    pub(crate) async fn run(mut self, first: Input) {
        self.step(first);
        loop {
            self.take_what_piled_up();
            self.tick();
            let said = self.worker.flush(clock::now());
            self.perform(said.effects);
            if let Some(file) = &mut self.health {
                file.keep(self.worker.lease_end());
            }
            if self.exit {
                break;
            }
            self.wait().await;
        }
        if let Some(link) = self.link.take() {
            link.close(CLOSE_PATIENCE).await;
        }
        self.remove_the_rest().await;
        tracing::info!("left");
    }

    /// What was to be forgotten last is still being removed, and nobody would look for it here again: a moment is enough for an engine that
    /// is well. Who wants the process to leave at once does not wait.
    async fn remove_the_rest(&mut self) {
        if self.terms > 0 && self.leave() == Leave::Detach {
            return;
        }
        let removed = futures_util::future::join_all(self.runtimes.iter().map(|it| it.settled()));
        tokio::select! {
            _ = removed => {}
            Some(()) = self.inbox.terms.recv() => {}
            () = tokio::time::sleep(REMOVE_PATIENCE) => tracing::warn!("not everything that is over could be removed"),
        }
    }

    /// Waits for one input, or until the brain wants to be called, and steps it.
    async fn wait(&mut self) {
        let wake = self.worker.wake_at().map_or(NAP_MAX, |at| at.since(clock::now().up).min(NAP_MAX));
        let link = self.link.as_mut();
        let heard = async move {
            match link {
                Some(link) => link.next().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(()) = self.inbox.terms.recv() => self.term(),
            event = heard => self.heard(event),
            Some(event) = self.inbox.runtime.recv() => self.step(Input::Happened(event)),
            Some(token) = self.inbox.output_done.recv() => self.step(Input::OutputDone(token)),
            () = tokio::time::sleep(wake) => {}
        }
    }

    /// Steps what is already here, bounded so that the rest is said and done in between.
    fn take_what_piled_up(&mut self) {
        for _ in 0..BATCH {
            let Some(event) = self.link.as_mut().and_then(Link::try_next) else { break };
            self.heard(Some(event));
        }
        for _ in 0..BATCH {
            let Ok(event) = self.inbox.runtime.try_recv() else { break };
            self.step(Input::Happened(event));
        }
        for _ in 0..BATCH {
            let Ok(token) = self.inbox.output_done.try_recv() else { break };
            self.step(Input::OutputDone(token));
        }
    }

    fn tick(&mut self) {
        if let Some(is_low) = self.room.changed(Instant::now()) {
            self.step(Input::DiskIsLow(is_low));
        }
        if self.worker.wake_at().is_some_and(|at| at <= clock::now().up) {
            self.step(Input::Tick);
        }
    }

    fn heard(&mut self, event: Option<LinkEvent>) {
        match event {
            Some(LinkEvent::Connected) => self.step(Input::Connected),
            Some(LinkEvent::Ordered(order)) => self.step(Input::Ordered(order)),
            Some(LinkEvent::Lost(why)) => {
                tracing::warn!(server = %self.dialer.address(), "no connection: {why}");
                self.link = None;
                self.step(Input::Disconnected);
            }
            // The task died without a word: as good as lost.
            None => {
                self.link = None;
                self.step(Input::Disconnected);
            }
        }
    }

    /// Somebody wants the process to leave: each time more than before.
    fn term(&mut self) {
        self.terms += 1;
        let leave = self.leave();
        tracing::info!(?leave, "asked to leave");
        self.step(Input::Leave(leave));
    }

    /// What the wishes so far mean.
    fn leave(&self) -> Leave {
        match (self.terms, self.on_term) {
            (1, OnTerm::Drain) => Leave::Drain,
            (1, OnTerm::Interrupt) | (2, OnTerm::Drain) => Leave::Interrupt,
            _ => Leave::Detach,
        }
    }

    fn step(&mut self, input: Input) {
        let step = self.worker.step(clock::now(), input);
        self.perform(step.effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(report) => self.say(report),
                Effect::Contact(at) => self.note_contact(at),
                Effect::Start(launch) => {
                    tracing::debug!(attempt = %launch.token, name = %launch.name, "starts");
                    if let Some(runtime) = self.runtime(launch.spec.runtime) {
                        runtime.start(launch);
                    }
                }
                Effect::Run { token, runtime } => {
                    if let Some(runtime) = self.runtime(runtime) {
                        runtime.run(token);
                    }
                }
                Effect::Stop { token, runtime, cause, step } => {
                    tracing::info!(attempt = %token, cause = cause.name(), ?step, "stops");
                    if let Some(runtime) = self.runtime(runtime) {
                        runtime.stop(token, cause, step);
                    }
                }
                Effect::Forget { token, runtime, give_up_output } => {
                    if give_up_output {
                        self.logs.abandon(token);
                    }
                    if let Some(runtime) = self.runtime(runtime) {
                        runtime.forget(token);
                    }
                }
                Effect::Evict(token) => {
                    tracing::warn!(attempt = %token, "the server wants a container stopped that another worker has left here");
                    self.runtimes.iter().for_each(|runtime| runtime.evict(token));
                }
                Effect::Probe { like, why } => {
                    tracing::error!(runtime = %like.runtime, "no job starts here any more until a probe has worked: {why}");
                    if let Some(runtime) = self.runtime(like.runtime) {
                        runtime.probe(like, why);
                    }
                }
                Effect::Joined { cluster, worker } => self.joined(Membership { cluster, worker }),
                Effect::Reconnect { after, elsewhere, reason } => self.reconnect(after, elsewhere, &reason),
                Effect::Exit => self.exit = true,
            }
        }
    }

    fn say(&self, mut report: Report) {
        if let Report::Heartbeat(beat) = &mut report {
            let machine = machine::measure(self.identity.dir());
            beat.load_milli = Some(machine.load_milli);
            beat.disk_free_bytes = machine.disk_free_bytes;
        }
        if let Some(link) = &self.link {
            link.say(report);
        }
    }

    fn note_contact(&self, at: Uptime) {
        if let Err(error) = self.identity.note_contact(at) {
            // The next process takes it for the worst, and stops what must not outlive the contact.
            tracing::error!("cannot keep when the server was heard: {}", crate::ws::chain(&error));
        }
    }

    fn joined(&mut self, membership: Membership) {
        tracing::info!(server = %self.dialer.address(), cluster = %membership.cluster, worker = %membership.worker, "joined");
        if let Err(error) = self.identity.remember(membership) {
            // It is told again at each Welcome; without it a restart cannot list its containers before it has joined.
            tracing::error!("cannot keep what was joined: {}", crate::ws::chain(&error));
        }
        for runtime in &self.runtimes {
            runtime.joined(membership);
        }
    }

    fn reconnect(&mut self, after: Duration, elsewhere: Option<String>, reason: &str) {
        tracing::info!(server = %self.dialer.address(), after_ms = after.as_millis(), "connecting: {reason}");
        let dialer = match elsewhere.as_deref().map(Address::parse) {
            Some(Ok(address)) => self.dialer.elsewhere(address),
            Some(Err(error)) => {
                tracing::warn!("the server sends us to no address: {error}");
                self.dialer.clone()
            }
            None => self.dialer.clone(),
        };
        self.link = Some(Link::open(dialer, after, self.logs.clone()));
    }

    fn runtime(&self, kind: RuntimeKind) -> Option<&Arc<dyn Runtime>> {
        self.runtimes.iter().find(|runtime| runtime.kind() == kind)
    }
}

/// Inputs of one kind that are stepped before anything is said.
const BATCH: usize = 4096;
/// The engine looks at the clock this often whatever the brain says: a suspended machine wakes up late.
const NAP_MAX: Duration = Duration::from_secs(5);
/// For what was said last, and for the server's goodbye.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// For the removal of what was forgotten last: 20 ms each, or 5 ms in a batch.
const REMOVE_PATIENCE: Duration = Duration::from_secs(5);
