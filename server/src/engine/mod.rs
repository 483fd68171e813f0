//! The one task that owns the scheduler: stamp, step, commit, perform.
//!
//! Waiting inputs are stepped into the *open group*. When the writer is free, the open group is handed over as one transaction and the
//! next one is opened: while one group is being synced, the next is being decided. A group's effects are performed only after its commit
//! and those of all earlier groups, also if it has no changes.
//!
//! ```text
//! commands, reports, time ──▶ step ──▶ open group ──▶ writer (one under way) ──▶ effects: replies, orders, snapshot
//! ```
//!
//! This gives group commit under load and no added delay when idle, and no answer is sent that a crash could undo.
//! Inputs that the store refused earlier get a group of their own: see `inputs` and `refused`.

mod command;
mod commands;
mod dispatch;
mod error;
mod group;
mod handle;
mod health;
mod inputs;
mod joins;
mod load;
mod overrides;
mod rebuild;
mod refused;
mod refused_group;
mod restored;
mod sessions;
mod snapshots;
mod watch;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::{ClusterId, Epoch, JobId, Now, SessionId, Timestamp, Token};
use scheduler::explain::Explanation;
use scheduler::ids::{GroupNo, Ticket};
use scheduler::input::Input;
use scheduler::step::{Change, Step};
use scheduler::{Scheduler, TICK_WITHIN};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use command::Command;
pub use error::EngineError;
pub use handle::{Busy, CommitClock, DefinePermit, Handle};
pub use health::Health;
pub use overrides::OverridesCache;
pub use rebuild::JobSettings;
pub(crate) use refused::{RefusedCounts, counts_in as refused_inputs};
pub use sessions::{
    FromSession, LastHeard, Outbox, OutboxReceiver, RefusedSession, ToSession, Unqueued, WeakOutbox, queue,
};
pub use watch::{JobWatch, JobWatches};
pub use writer::{RecordWriter, Removal, RemovalStep, Remover};

use crate::auth::workers::WorkerRegistry;
use crate::catalogue::Definitions;
use crate::clock;
use crate::events::{EventFeed, Events};
use crate::metrics::Metrics;
use crate::store::{Group, NotifyRules, hook_parent};
use dispatch::EffectDispatcher;
use group::{GroupEffects, OpenGroup};
use inputs::InputBatch;
use joins::JoinLimiter;
use refused::{Fingerprint, GroupFingerprints, Refused};
use writer::StoreWriter;

/// Inputs that are stepped before the engine checks its writer again.
const INPUTS_PER_TURN: usize = 512;
/// An open group with this many changes takes no more inputs until the writer is free: memory stays bounded on a slow disk.
const CHANGES_MAX: usize = 100_000;
/// Snapshots that no request waits for are at least this far apart.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(20);

/// The engine's inbox for messages of sessions.
#[derive(Clone, Debug)]
pub struct SessionInbox {
    /// While it is full, sessions do not read their sockets.
    pub inbox: mpsc::Sender<FromSession>,
    /// The epoch of this server.
    pub epoch: Epoch,
}

/// The engine, ready to run.
#[derive(Debug)]
pub struct Engine {
    scheduler: Scheduler,
    writer: StoreWriter,
    dispatcher: EffectDispatcher,
    commands: mpsc::Receiver<Command>,
    reports: mpsc::Receiver<FromSession>,
    overrides: Arc<OverridesCache>,
    refused: Arc<Refused>,
    /// Batches that are not answered yet: their changes come in several groups.
    unanswered: Vec<(Ticket, Fingerprint)>,
    epoch: Epoch,
    notify: Arc<NotifyRules>,
    joins: JoinLimiter,
    workers: Arc<WorkerRegistry>,
    open: OpenGroup,
    in_flight: Option<GroupEffects>,
    commit: CommitClock,
    next_group: GroupNo,
    next_ticket: u64,
    snapshot_at: Instant,
    snapshot_due: bool,
    /// True if the answers of the open group must not be sent before the snapshot shows their effect.
    snapshot_urgent: bool,
    /// Requests for explanations. Each is answered together with the next snapshot, so that both show the same moment.
    explains: Vec<(JobId, oneshot::Sender<Option<Explanation>>)>,
    clock: clock::Watch,
    last_turn: Arc<AtomicU64>,
}

/// The handles by which the rest of the server reaches the engine.
#[derive(Debug)]
pub struct EngineHandles {
    /// The handle of the HTTP API.
    pub handle: Handle,
    /// The inbox of worker sessions.
    pub session_inbox: SessionInbox,
    /// The cache of overrides, for worker sessions.
    pub overrides: Arc<OverridesCache>,
    /// The handle for tokens and the audit log.
    pub record_writer: RecordWriter,
    /// The handle of retention.
    pub remover: Remover,
    /// The cluster's id.
    pub cluster: ClusterId,
    /// The time that retention went by, as it was last written down.
    pub last_retention_time: Option<Timestamp>,
    /// The secrets of workers, and the join tokens.
    pub workers: Arc<WorkerRegistry>,
    /// The task that makes events; it runs beside the engine.
    pub event_feed: EventFeed,
    /// The kept events.
    pub events: Events,
    /// Counters of everything that happens.
    pub metrics: Arc<Metrics>,
}

impl Engine {
    /// Runs until it is stopped. Everything decided by then is committed and answered.
    ///
    /// # Errors
    /// Another server has taken over the store. Changes that were not committed have been answered to nobody.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), EngineError> {
        let mut batch = InputBatch::default();
        loop {
            self.hand_over();
            self.last_turn.store(clock::now().up.0, Ordering::Relaxed);
            let wake = self.wake_in();
            let has_room = self.has_room();
            tokio::select! {
                result = self.writer.committed(), if self.in_flight.is_some() => {
                    result?;
                    self.perform_in_flight();
                    continue;
                }
                () = std::future::ready(()), if has_room && !batch.is_empty() => {}
                _ = self.commands.recv_many(&mut batch.commands, INPUTS_PER_TURN), if has_room && batch.is_empty() => {
                    batch.commands.reverse();
                }
                _ = self.reports.recv_many(&mut batch.reports, INPUTS_PER_TURN), if has_room && batch.is_empty() => {
                    batch.reports.reverse();
                }
                () = sleep_unless_zero(wake), if has_room => self.tick(),
                // The store is slow, and nothing more fits: this task waits for it, and is alive.
                () = sleep_unless_zero(TICK_WITHIN), if !has_room => continue,
                () = stop.cancelled() => break,
            }
            self.process_inputs(&mut batch);
        }
        self.finish().await
    }

    /// The uptime in nanoseconds at which the engine last began a turn; zero before the first. It makes one every few seconds, also
    /// without inputs and while the store is slow.
    pub fn last_turn(&self) -> Arc<AtomicU64> {
        self.last_turn.clone()
    }

    fn has_room(&self) -> bool {
        !self.open.closed && self.open.changes.len() < CHANGES_MAX
    }

    async fn finish(mut self) -> Result<(), EngineError> {
        while self.in_flight.is_some() || !self.open.is_empty() {
            self.hand_over();
            if self.in_flight.is_some() {
                self.writer.committed().await?;
                self.perform_in_flight();
            }
        }
        let writer = self.writer;
        // Closing the store checkpoints it, which may take a moment of disk time.
        let _ = tokio::task::spawn_blocking(move || writer.stop()).await;
        Ok(())
    }

    fn session_closed(&mut self, now: Now, session: SessionId, unsent: Vec<Token>) {
        self.dispatcher.sessions.remove(session, unsent);
        self.step(now, Input::Disconnected(session));
        self.take_back_unsent(now);
    }

    fn take_back_unsent(&mut self, now: Now) {
        for (session, unsent) in self.dispatcher.sessions.take_unsent() {
            self.step(now, Input::Unsent(session, unsent));
        }
    }

    /// Reads both clocks. Due times and backoff follow the wall clock even when it is set; leases and run timeouts do not.
    fn now(&mut self) -> Now {
        let now = clock::now();
        if let Some((by_ms, times)) = self.clock.look(now) {
            tracing::warn!(by_ms, times, "the wall clock was set; due times follow it, leases do not");
        }
        now
    }

    fn tick(&mut self) {
        let now = self.now();
        let heard = self.dispatcher.sessions.heard(self.scheduler.sessions_to_check(now));
        if !heard.is_empty() {
            self.step(now, Input::SessionsActive(heard));
        }
        self.step(now, Input::Tick);
    }

    fn define(&mut self, now: Now, definitions: &Definitions) {
        self.open.definitions.extend(definitions.iter().map(|entry| entry.stored.clone()));
        (self.notify, self.open.loaded) = (definitions.notify_rules(), Some(definitions.hashes()));
        let current = definitions.iter().map(|entry| entry.definition.clone()).collect();
        self.step(now, Input::ReplaceDefinitions(current));
    }

    fn step(&mut self, now: Now, input: Input) {
        let Step { changes, effects } = self.scheduler.step(now, input);
        for change in &changes {
            self.joins.apply_change(change);
            self.workers.apply_change(change);
            restored::log_skipped_numbers(change);
            if let Change::Added(added) = change
                && let Some(details) = added.details.as_ref().filter(|details| details.has_overrides())
                // The store adds how its predecessors ended, and to the job of a hook the slot of its parent.
                && !details.has_predecessors
                && hook_parent(added).is_none()
            {
                self.overrides.put(added.job, details.effective_overrides());
            }
        }
        append(&mut self.open.changes, changes);
        append(&mut self.open.effects.list, effects);
    }

    /// Closes the open group if the writer is free: hands its changes over, or performs it at once if it has none.
    fn hand_over(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        self.take_snapshot();
        if self.open.is_empty() {
            return;
        }
        let mut open = std::mem::take(&mut self.open);
        open.effects.changed_jobs = watch::changed_jobs(&open.changes);
        if open.changes.is_empty() && open.definitions.is_empty() {
            self.refused.clear(&open.fingerprints);
            self.in_flight = Some(open.effects);
            self.perform_in_flight();
            // Grants that could not be sent may have been taken back by a further step.
            return self.hand_over();
        }
        let unanswered = self.unanswered.iter().map(|(_, fingerprint)| *fingerprint).collect();
        let now = clock::now();
        self.commit.begin(now.up);
        self.scheduler.commit_began(now.up);
        let (epoch, number, notify) = (self.epoch, self.next_group, self.notify.clone());
        let group = Arc::new(Group { epoch, number, notify, ..open.take_changes(now.utc) });
        open.effects.group = Some(group.clone());
        self.in_flight = Some(open.effects);
        self.writer.hand_over(group, GroupFingerprints { own: open.fingerprints, unanswered });
        self.next_group = GroupNo(self.next_group.0 + 1);
        self.scheduler.begin(self.next_group);
    }

    fn perform_in_flight(&mut self) {
        let now = clock::now().up;
        if let Some(began) = self.commit.end() {
            self.dispatcher.events.metrics().committed(now.since(began));
        }
        self.scheduler.commit_ended(now);
        if let Some(effects) = self.in_flight.take() {
            self.dispatcher.perform(effects);
        }
        self.take_back_unsent(clock::now());
        self.clear_answered();
    }

    fn wake_in(&self) -> Duration {
        let now = clock::now();
        let wake = self.scheduler.wake_at();
        let by_wall = wake.utc.map(|at| at.since(now.utc));
        let by_uptime = wake.up.map(|at| at.since(now.up));
        // While a commit is under way no snapshot can be published; the end of the commit wakes the engine.
        let by_snapshot = (self.snapshot_due && self.in_flight.is_none())
            .then(|| SNAPSHOT_EVERY.saturating_sub(self.snapshot_at.elapsed()));
        [by_wall, by_uptime, by_snapshot].into_iter().flatten().fold(TICK_WITHIN, Duration::min)
    }

    fn ticket(&mut self, reply: oneshot::Sender<scheduler::step::Answer>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.dispatcher.await_answer(ticket, reply);
        ticket
    }
}

/// Sleeps, but returns at once for zero, where the timer would take a millisecond.
async fn sleep_unless_zero(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Appends without copying where the target is empty.
fn append<T>(to: &mut Vec<T>, mut from: Vec<T>) {
    if to.is_empty() {
        *to = from;
    } else {
        to.append(&mut from);
    }
}
