//! The one task that owns [`Worker`]. It takes all pending inputs, stamps the time, steps the state machine and performs its effects. It
//! decides nothing itself.

use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::order::Refused;
use protocol::{Now, Order, Report, RuntimeKind, Token, Uptime, UsageSample};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use worker::input::{RuntimeEvent, ShutdownMode};
use worker::{Effect, Input, Worker};

use crate::clock;
use crate::config::OnTerm;
use crate::health::HealthFile;
use crate::identity::Identity;
use crate::latest_file::LatestFile;
use crate::logs::Logs;
use crate::machine::{self, DiskSpace};
use crate::runtime::docker::image_gc::WantedQuestion;
use crate::runtime::{Membership, Runtime};
use crate::ws::{Address, Connection, ConnectionEvent, Connector};

/// The loop of a worker process, with all that it owns.
pub(crate) struct WorkerLoop {
    pub(crate) worker: Worker,
    /// The time of the last message that the server answered: see [`Effect::Contact`].
    pub(crate) last_answer_file: LatestFile<Uptime>,
    pub(crate) membership: LatestFile<Membership>,
    /// Locks the state directory.
    pub(crate) identity: Identity,
    pub(crate) rejoin: bool,
    pub(crate) runtimes: Vec<Arc<dyn Runtime>>,
    pub(crate) connector: Connector,
    pub(crate) logs: Logs,
    pub(crate) on_term: OnTerm,
    pub(crate) inputs: LoopInputs,
    pub(crate) connection: Option<Connection>,
    pub(crate) shutdown_requests: u32,
    pub(crate) exit: bool,
    pub(crate) disk_space: DiskSpace,
    pub(crate) health: Option<HealthFile>,
    /// See [`run`](crate::run).
    pub(crate) last_turn: Arc<AtomicU64>,
}

/// Sources of inputs beside the connection.
pub(crate) struct LoopInputs {
    pub(crate) runtime: mpsc::UnboundedReceiver<RuntimeEvent>,
    pub(crate) output_done: mpsc::UnboundedReceiver<Token>,
    /// Samples of running attempts.
    pub(crate) usage: mpsc::Receiver<Vec<UsageSample>>,
    /// The reason why the state directory records no attempts.
    pub(crate) storage_fault: watch::Receiver<Option<String>>,
    /// Questions of the clean-up of images.
    pub(crate) wanted_images: mpsc::Receiver<WantedQuestion>,
    /// Each item is one request that the process shut down.
    pub(crate) shutdown_requests: mpsc::Receiver<()>,
}

impl WorkerLoop {
    /// Runs until the state machine says that the process may end.
    pub(crate) async fn run(mut self, first: Input) {
        self.step(first);
        loop {
            self.last_turn.store(clock::now().up.0, Ordering::Relaxed);
            self.step_pending_inputs();
            self.tick();
            let now = clock::now();
            let said = self.worker.flush(now);
            self.perform(now, said.effects);
            if let Some(file) = &self.health {
                file.record_lease_end(self.worker.lease_end());
            }
            if self.exit {
                break;
            }
            self.wait().await;
        }
        if let Some(connection) = self.connection.take() {
            connection.close(CLOSE_TIMEOUT).await;
        }
        self.wait_for_removals().await;
        let health = self.health.take();
        let removed = async {
            if let Some(health) = health {
                health.close(CLOSE_TIMEOUT).await;
            }
        };
        tokio::join!(
            self.last_answer_file.close(CLOSE_TIMEOUT),
            self.membership.close(CLOSE_TIMEOUT),
            removed
        );
        tracing::info!("the worker has left");
    }

    /// Waits a moment for removals that are under way, because nobody would look for these containers on this worker again. A detaching
    /// worker does not wait.
    async fn wait_for_removals(&mut self) {
        if self.shutdown_requests > 0 && self.shutdown_mode() == ShutdownMode::Detach {
            return;
        }
        let removed = futures_util::future::join_all(self.runtimes.iter().map(|it| it.wait_for_removals()));
        tokio::select! {
            _ = removed => {}
            Some(()) = self.inputs.shutdown_requests.recv() => {}
            () = tokio::time::sleep(REMOVE_TIMEOUT) => tracing::warn!("leaving although some ended containers are not removed; the next start removes them"),
        }
    }

    /// Waits for one input, or until the state machine has a timer due, and steps it.
    async fn wait(&mut self) {
        let wake = self.worker.wake_at().map_or(SLEEP_MAX, |at| at.since(clock::now().up).min(SLEEP_MAX));
        let connection = self.connection.as_mut();
        let heard = async move {
            match connection {
                Some(connection) => connection.next().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(()) = self.inputs.shutdown_requests.recv() => self.on_shutdown_request(),
            event = heard => self.on_connection_event(event),
            Some(event) = self.inputs.runtime.recv() => self.step(Input::Happened(event)),
            Some(token) = self.inputs.output_done.recv() => self.step(Input::OutputDone(token)),
            Ok(()) = self.inputs.storage_fault.changed() => {
                let fault = self.inputs.storage_fault.borrow_and_update().clone();
                self.step(Input::StorageFault(fault));
            }
            // These pass by the state machine, as output does.
            Some(samples) = self.inputs.usage.recv() => self.send_report(Report::Usage(samples)),
            // Asked once for each image that is removed. The clean-up may have gone.
            Some(question) = self.inputs.wanted_images.recv() => drop(question.send(self.worker.wanted_images())),
            () = tokio::time::sleep(wake) => {}
        }
    }

    /// Steps inputs that are here already. Their number is bounded, so that reports and effects go out in between.
    fn step_pending_inputs(&mut self) {
        for _ in 0..BATCH {
            let Some(event) = self.connection.as_mut().and_then(Connection::try_next) else { break };
            self.on_connection_event(Some(event));
        }
        for _ in 0..BATCH {
            let Ok(event) = self.inputs.runtime.try_recv() else { break };
            self.step(Input::Happened(event));
        }
        for _ in 0..BATCH {
            let Ok(token) = self.inputs.output_done.try_recv() else { break };
            self.step(Input::OutputDone(token));
        }
    }

    fn tick(&mut self) {
        if let Some(is_low) = self.disk_space.changed() {
            self.step(Input::DiskIsLow(is_low));
        }
        if self.worker.wake_at().is_some_and(|at| at <= clock::now().up) {
            self.step(Input::Tick);
        }
    }

    fn on_connection_event(&mut self, event: Option<ConnectionEvent>) {
        match event {
            Some(ConnectionEvent::Connected) => self.step(Input::Connected),
            Some(ConnectionEvent::Ordered(order)) => {
                if let Order::Refused(Refused { code, text, .. }) = &order {
                    tracing::warn!(server = %self.connector.address(), code, "the server refused this worker, which tries again: {text}");
                }
                self.renew_identity_if_revoked(&order);
                self.step(Input::Ordered(order));
            }
            Some(ConnectionEvent::Lost { why, message_refused }) => {
                tracing::warn!(server = %self.connector.address(), "no connection to the server: {why}");
                self.connection = None;
                if message_refused {
                    self.step(Input::MessageRefused);
                }
                self.step(Input::Disconnected);
            }
            // The task panicked: the connection is lost.
            None => {
                self.connection = None;
                self.step(Input::Disconnected);
            }
        }
    }

    /// Shuts down as asked. Each one goes one step further than the one before: drain, interrupt, detach.
    fn on_shutdown_request(&mut self) {
        self.shutdown_requests += 1;
        let mode = self.shutdown_mode();
        tracing::info!(leave = ?mode, "asked to leave");
        self.step(Input::Shutdown(mode));
    }

    /// The meaning of the requests so far.
    fn shutdown_mode(&self) -> ShutdownMode {
        match (self.shutdown_requests, self.on_term) {
            (1, OnTerm::Drain) => ShutdownMode::Drain,
            (1, OnTerm::Interrupt) | (2, OnTerm::Drain) => ShutdownMode::Interrupt,
            _ => ShutdownMode::Detach,
        }
    }

    fn step(&mut self, input: Input) {
        let now = clock::now();
        let step = self.worker.step(now, input);
        self.perform(now, step.effects);
    }

    fn perform(&mut self, now: Now, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(report) => self.send_report(report),
                Effect::Contact(at) => self.last_answer_file.record(at),
                Effect::Start(launch) => {
                    tracing::debug!(attempt = %launch.token, name = %launch.name, "starting an attempt");
                    if let Some(runtime) = self.runtime(launch.spec.runtime) {
                        runtime.start(launch);
                    }
                }
                Effect::Pull { token, runtime } => {
                    if let Some(runtime) = self.runtime(runtime) {
                        runtime.pull(token);
                    }
                }
                Effect::Run { token, runtime } => {
                    if let Some(runtime) = self.runtime(runtime) {
                        runtime.run(token);
                    }
                }
                Effect::Stop { token, runtime, cause, step } => {
                    tracing::info!(attempt = %token, cause = cause.name(), ?step, "stopping an attempt");
                    if let Some(runtime) = self.runtime(runtime) {
                        runtime.stop(token, cause, step, now);
                    }
                }
                Effect::Forget { token, runtime, give_up_output } => {
                    if give_up_output {
                        self.logs.give_up(token);
                    }
                    if let Some(runtime) = self.runtime(runtime) {
                        runtime.forget(token);
                    }
                }
                Effect::RemoveForeign(token) => {
                    tracing::warn!(attempt = %token, "removing a foreign container, by order of the server");
                    self.runtimes.iter().for_each(|runtime| runtime.remove_foreign(token));
                }
                Effect::Probe { like, why } => {
                    tracing::error!(runtime = %like.runtime, "several starts failed; no jobs start until a probe container has started: {why}");
                    if let Some(runtime) = self.runtime(like.runtime) {
                        runtime.probe(like, why);
                    }
                }
                Effect::Joined { cluster, worker } => self.set_membership(Membership { cluster, worker }),
                Effect::Reconnect { after, elsewhere, reason } => self.reconnect(after, elsewhere, &reason),
                Effect::Exit => self.exit = true,
            }
        }
    }

    fn send_report(&self, mut report: Report) {
        if let Report::Heartbeat(beat) = &mut report {
            beat.load_milli = Some(machine::load_milli());
            beat.disk_free_bytes = self.disk_space.free_bytes(Instant::now());
        }
        if let Some(connection) = &self.connection {
            connection.send(report);
        }
    }

    /// Makes a new secret if the server has revoked the old one and the worker may join again. The next connection joins with the token.
    fn renew_identity_if_revoked(&mut self, order: &Order) {
        let is_revoked = matches!(order, Order::Refused(refused) if refused.code == REVOKED);
        if !is_revoked || !self.rejoin {
            return;
        }
        match self.identity.renew() {
            Ok(()) => {
                tracing::warn!(
                    "the server has revoked this worker; joining as a new one, because of --rejoin"
                );
                self.connector.set_proof(None);
                self.worker.renew_secret(self.identity.secret());
            }
            Err(error) => {
                tracing::error!(%error, "the server has revoked this worker, and a new secret cannot be written")
            }
        }
    }

    fn set_membership(&mut self, membership: Membership) {
        tracing::info!(server = %self.connector.address(), cluster = %membership.cluster, worker = %membership.worker, "joined the server");
        self.membership.record(membership);
        self.connector.set_proof(Some((membership.worker, self.identity.secret())));
        for runtime in &self.runtimes {
            runtime.set_membership(membership);
        }
    }

    fn reconnect(&mut self, after: Duration, elsewhere: Option<String>, reason: &str) {
        tracing::info!(server = %self.connector.address(), after_ms = after.as_millis(), "connecting to the server: {reason}");
        let connector = match elsewhere.as_deref().map(Address::parse) {
            Some(Ok(address)) => self.connector.with_address(address),
            Some(Err(error)) => {
                tracing::warn!("the server named an invalid address; using the configured one: {error}");
                self.connector.clone()
            }
            None => self.connector.clone(),
        };
        self.connection = Some(Connection::open(connector, after, self.logs.clone()));
    }

    fn runtime(&self, kind: RuntimeKind) -> Option<&Arc<dyn Runtime>> {
        self.runtimes.iter().find(|runtime| runtime.kind() == kind)
    }
}

/// The code of a refusal of a revoked worker.
const REVOKED: &str = "worker_revoked";
/// Inputs of one kind that are stepped before reports are sent.
const BATCH: usize = 4096;
/// The loop looks at the clock at least this often, because timers stand still while the machine is suspended.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// Time for the last reports and for the server's close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the last removals: enough for some 250 containers, each of which takes up to 20 ms.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);
