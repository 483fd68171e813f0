//! The one task that owns the scheduler: stamp, step, commit, perform.
//!
//! Inputs that have piled up are stepped into the *open group*. As soon as the writer is free the open group is handed over as one
//! transaction, and the next one is opened: while a group is being synced, the next is being decided. A group's effects are performed
//! only after its commit, in the order of the groups; one without changes waits its turn like any other.
//!
//! ```text
//! commands, reports, time ──▶ step ──▶ open group ──▶ writer (one under way) ──▶ effects: replies, orders, snapshot
//! ```
//!
//! So: group commit under load, no added delay when idle, and nothing is said to anyone that a crash could unsay.
//!
//! What the store has refused before is not gathered with others: see `turn` and `refused`.

mod bodies;
mod evidence;
mod handle;
mod load;
mod perform;
mod refused;
mod sessions;
mod turn;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use protocol::{ClusterId, Epoch, Now, SessionId, Timestamp, Token};
use scheduler::explain::Explanation;
use scheduler::input::{CancelRequest, GroupNo, Input, ReleaseRequest, Submit, Ticket};
use scheduler::snapshot::Snapshot;
use scheduler::step::{Change, Effect, Step};
use scheduler::{Scheduler, TICK_WITHIN};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use bodies::Bodies;
pub use handle::{Busy, Command, CommitClock, Handle};
pub use sessions::{FromSession, Heard, Inlet, Outbox, ToSession, WeakOutbox, queue};
pub use writer::{Remover, Step as RemovalStep};

use crate::catalogue::Definitions;
use crate::clock;
use crate::store::{CommitError, Group, LoadError, StoredDefinition};
use perform::Performer;
use refused::{Mark, Marks, Refused};
use turn::Turn;
use writer::Writer;

/// How many inputs are stepped before the engine looks at its writer again.
const INPUTS_PER_TURN: usize = 512;
/// An open group with this many changes takes no more inputs until the writer is free: memory stays bounded on a slow disk.
const CHANGES_MAX: usize = 100_000;
/// Snapshots that nobody waits for are at least this far apart.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(20);

/// The engine ended, and not because it was told to.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Another epoch writes.
    #[error("another server has taken over this store")]
    Fenced(#[source] CommitError),
    /// The system gives no thread.
    #[error("cannot start the store's thread")]
    Thread(#[source] std::io::Error),
}

/// Where sessions hand in what their workers say.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Full: the session reads no further.
    pub inbox: mpsc::Sender<FromSession>,
    /// The term of this server.
    pub epoch: Epoch,
}

/// The engine, ready to run.
#[derive(Debug)]
pub struct Engine {
    scheduler: Scheduler,
    writer: Writer,
    performer: Performer,
    commands: mpsc::Receiver<Command>,
    reports: mpsc::Receiver<FromSession>,
    bodies: Arc<Bodies>,
    refused: Arc<Refused>,
    /// Requests for many jobs that are not answered yet: what they lead to comes in several groups.
    carried: Vec<(Ticket, Mark)>,
    epoch: Epoch,
    open: Open,
    under_way: Option<Effects>,
    commit: CommitClock,
    next_group: GroupNo,
    next_ticket: u64,
    snapshot_at: Instant,
    snapshot_due: bool,
    /// Whether what the open group leads to must not be answered before the snapshot shows it.
    snapshot_urgent: bool,
    clock: clock::Watch,
}

/// The group that is being decided.
#[derive(Debug, Default)]
struct Open {
    changes: Vec<Change>,
    definitions: Vec<Arc<StoredDefinition>>,
    effects: Effects,
    /// What its inputs are known by, if it should be refused.
    marks: Vec<Mark>,
    /// Whether it takes no more inputs: one of them is suspected, or the next one is.
    closed: bool,
}

/// What is done after a group's commit.
#[derive(Debug, Default)]
struct Effects {
    list: Vec<Effect>,
    /// Wishes to hear the end of jobs that had already left the scheduler: dropped once their end is durable.
    too_late: Vec<oneshot::Sender<scheduler::job::State>>,
    /// Wishes to know why a job is where it is: they may be built on what is not durable yet.
    explained: Vec<(oneshot::Sender<Option<Explanation>>, Option<Explanation>)>,
    snapshot: Option<Arc<Snapshot>>,
}

impl Effects {
    fn is_empty(&self) -> bool {
        self.list.is_empty()
            && self.too_late.is_empty()
            && self.explained.is_empty()
            && self.snapshot.is_none()
    }
}

/// What the engine leaves to the rest of the server.
#[derive(Debug)]
pub struct Ends {
    /// For HTTP.
    pub handle: Handle,
    /// For sessions.
    pub gate: Gate,
    /// For sessions: what recently submitted jobs add to their definitions.
    pub bodies: Arc<Bodies>,
    /// For retention.
    pub remover: Remover,
    /// The installation.
    pub cluster: ClusterId,
    /// The time that retention went by, as it was last written down.
    pub retention_by: Option<Timestamp>,
}

impl Engine {
    /// Runs until told to stop. What was decided by then is committed and said.
    ///
    /// # Errors
    /// Another server has taken over: nothing of what was not yet committed has been said to anyone.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), EngineError> {
        let mut turn = Turn::default();
        loop {
            self.hand_over();
            let wake = self.wake_in();
            let has_room = self.has_room();
            tokio::select! {
                result = self.writer.committed(), if self.under_way.is_some() => {
                    result.map_err(EngineError::Fenced)?;
                    self.perform_under_way();
                    continue;
                }
                () = std::future::ready(()), if has_room && !turn.is_empty() => {}
                _ = self.commands.recv_many(&mut turn.commands, INPUTS_PER_TURN), if has_room && turn.is_empty() => {
                    turn.commands.reverse();
                }
                _ = self.reports.recv_many(&mut turn.reports, INPUTS_PER_TURN), if has_room && turn.is_empty() => {
                    turn.reports.reverse();
                }
                () = rest(wake), if has_room => self.tick(),
                () = stop.cancelled() => break,
            }
            self.take_turn(&mut turn);
        }
        self.finish().await
    }

    fn has_room(&self) -> bool {
        !self.open.closed && self.open.changes.len() < CHANGES_MAX
    }

    async fn finish(mut self) -> Result<(), EngineError> {
        while self.under_way.is_some() || !self.open.is_empty() {
            self.hand_over();
            if self.under_way.is_some() {
                self.writer.committed().await.map_err(EngineError::Fenced)?;
                self.perform_under_way();
            }
        }
        let writer = self.writer;
        // Closing the store checkpoints it, which may take a moment of disk time.
        let _ = tokio::task::spawn_blocking(move || writer.stop()).await;
        Ok(())
    }

    fn command(&mut self, now: Now, command: Command) {
        match command {
            Command::Submit { jobs, batch, require_worker, key, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Submit(Submit { ticket, jobs, batch, require_worker, key }));
            }
            Command::Cancel { job, by, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Cancel(CancelRequest { ticket, job, by }));
            }
            Command::Release { job, by, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Release(ReleaseRequest { ticket, job, by }));
            }
            Command::Operate { worker, operation, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Operate(ticket, worker, operation));
                self.snapshot_urgent = true;
            }
            Command::Explain { job, reply } => {
                let explanation = self.scheduler.explain(job);
                self.open.effects.explained.push((reply, explanation));
            }
            Command::AwaitEnd { job, reply } => {
                if self.scheduler.is_live(job) {
                    self.performer.await_end(job, reply);
                } else {
                    self.open.effects.too_late.push(reply);
                }
            }
            Command::Learn { definition } => self.step(now, Input::Learn(definition)),
            Command::Define { definitions } => self.define(&definitions),
        }
    }

    fn closed(&mut self, now: Now, session: SessionId, unsent: Vec<Token>) {
        self.performer.sessions.remove(session, unsent);
        self.step(now, Input::Disconnected(session));
        self.take_back_unsent(now);
    }

    fn take_back_unsent(&mut self, now: Now) {
        for (session, unsent) in self.performer.sessions.take_unsent() {
            self.step(now, Input::Unsent(session, unsent));
        }
    }

    /// What the clocks say. Due times and backoff follow the wall clock wherever it is set; leases and run timeouts do not.
    fn now(&mut self) -> Now {
        let now = clock::now();
        if let Some((by_ms, times)) = self.clock.look(now) {
            tracing::warn!(by_ms, times, "the wall clock was set; what is due later follows it");
        }
        now
    }

    fn tick(&mut self) {
        let now = self.now();
        let wake = self.scheduler.wake_at();
        if wake.up.is_some_and(|at| at <= now.up) {
            let heard = self.performer.sessions.heard();
            self.step(now, Input::Heard(heard));
        }
        self.step(now, Input::Tick);
    }

    fn define(&mut self, definitions: &Definitions) {
        self.open.definitions.extend(definitions.iter().map(|entry| entry.stored.clone()));
        let current = definitions.iter().map(|entry| entry.definition.clone()).collect();
        self.step(clock::now(), Input::Define(current));
    }

    fn step(&mut self, now: Now, input: Input) {
        let Step { changes, effects } = self.scheduler.step(now, input);
        for change in &changes {
            if let Change::Added(added) = change
                && let Some(details) = added.details.as_ref().filter(|details| !details.body.is_empty())
            {
                self.bodies.put(added.job, &details.body);
            }
        }
        append(&mut self.open.changes, changes);
        append(&mut self.open.effects.list, effects);
    }

    /// Closes the open group if the writer is free: hands its changes over, or performs it at once if it has none.
    fn hand_over(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        self.take_snapshot();
        if self.open.is_empty() {
            return;
        }
        let open = std::mem::take(&mut self.open);
        self.under_way = Some(open.effects);
        if open.changes.is_empty() && open.definitions.is_empty() {
            self.refused.pardon(&open.marks);
            self.perform_under_way();
            // What could not be said may have been taken back.
            return self.hand_over();
        }
        let carried = self.carried.iter().map(|(_, mark)| *mark).collect();
        let now = clock::now();
        self.commit.begin(now.up);
        self.scheduler.commit_began(now.up);
        let group = Group {
            epoch: self.epoch,
            number: self.next_group,
            at: now.utc,
            definitions: open.definitions,
            changes: open.changes,
        };
        self.writer.hand_over(group, Marks { own: open.marks, carried });
        self.next_group = GroupNo(self.next_group.0 + 1);
        self.scheduler.begin(self.next_group);
    }

    fn perform_under_way(&mut self) {
        self.commit.end();
        self.scheduler.commit_ended(clock::now().up);
        if let Some(effects) = self.under_way.take() {
            self.performer.perform(effects);
        }
        self.take_back_unsent(clock::now());
        self.settle_carried();
    }

    /// Adds a snapshot to the open group if something has changed, but not too often: only who has just joined, and what an operator has
    /// ordered, is shown at once.
    fn take_snapshot(&mut self) {
        self.snapshot_due |= self.scheduler.take_changed();
        let urgent = std::mem::take(&mut self.snapshot_urgent);
        if self.snapshot_due && (urgent || self.snapshot_at.elapsed() >= SNAPSHOT_EVERY) {
            self.snapshot_due = false;
            self.snapshot_at = Instant::now();
            self.open.effects.snapshot = Some(Arc::new(self.scheduler.snapshot()));
        }
    }

    fn wake_in(&self) -> Duration {
        let now = clock::now();
        let wake = self.scheduler.wake_at();
        let by_wall = wake.utc.map(|at| at.since(now.utc));
        let by_uptime = wake.up.map(|at| at.since(now.up));
        // While a commit is under way a snapshot could go nowhere: its end wakes us anyway.
        let by_snapshot = (self.snapshot_due && self.under_way.is_none())
            .then(|| SNAPSHOT_EVERY.saturating_sub(self.snapshot_at.elapsed()));
        [by_wall, by_uptime, by_snapshot].into_iter().flatten().fold(TICK_WITHIN, Duration::min)
    }

    fn ticket(&mut self, reply: oneshot::Sender<scheduler::step::Answer>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.performer.await_answer(ticket, reply);
        ticket
    }
}

impl Open {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.definitions.is_empty() && self.effects.is_empty()
    }
}

/// Sleeps; does not even look up if there is no time for it, where the system's timer would take a millisecond.
async fn rest(time: Duration) {
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
