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

mod bodies;
mod handle;
mod load;
mod perform;
mod sessions;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use protocol::{ClusterId, Epoch, Now, SessionId};
use scheduler::Scheduler;
use scheduler::input::{CancelRequest, GroupNo, Input, Submit, Ticket};
use scheduler::snapshot::Snapshot;
use scheduler::step::{Change, Effect, Step};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use bodies::Bodies;
pub use handle::{Busy, Command, CommitClock, Handle};
pub use sessions::{FromSession, Heard, Inlet, Outbox, ToSession, WeakOutbox, queue};

use crate::catalogue::Definitions;
use crate::clock;
use crate::store::{CommitError, Group, LoadError, StoredDefinition};
use perform::Performer;
use writer::Writer;

/// How many inputs are stepped before the engine looks at its writer again.
const INPUTS_PER_TURN: usize = 512;
/// An open group with this many changes takes no more inputs until the writer is free: memory stays bounded on a slow disk.
const CHANGES_MAX: usize = 100_000;
/// The engine never sleeps for longer, whatever its timers say: a bound on the harm of a clock that jumped.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// Snapshots are at least this far apart.
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
    epoch: Epoch,
    open: Open,
    under_way: Option<Effects>,
    commit: CommitClock,
    next_group: GroupNo,
    next_ticket: u64,
    snapshot_at: Instant,
    snapshot_due: bool,
}

/// The group that is being decided.
#[derive(Debug, Default)]
struct Open {
    changes: Vec<Change>,
    definitions: Vec<Arc<StoredDefinition>>,
    effects: Effects,
}

/// Inputs that were taken out of their inboxes and are to be stepped, the next one at the end.
#[derive(Debug, Default)]
struct Turn {
    commands: Vec<Command>,
    reports: Vec<FromSession>,
}

impl Turn {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.reports.is_empty()
    }
}

/// What is done after a group's commit.
#[derive(Debug, Default)]
struct Effects {
    list: Vec<Effect>,
    /// Wishes to hear the end of jobs that had already left the scheduler: dropped once their end is durable.
    too_late: Vec<oneshot::Sender<scheduler::job::State>>,
    snapshot: Option<Arc<Snapshot>>,
}

impl Effects {
    fn is_empty(&self) -> bool {
        self.list.is_empty() && self.too_late.is_empty() && self.snapshot.is_none()
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
    /// The installation.
    pub cluster: ClusterId,
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
                () = tokio::time::sleep(wake), if has_room => self.tick(),
                () = stop.cancelled() => break,
            }
            self.take_turn(&mut turn);
        }
        self.finish().await
    }

    /// Steps what had piled up, until the open group is full: one command may be as large as a whole group.
    fn take_turn(&mut self, turn: &mut Turn) {
        // One stamp for all of it: it happened before.
        let now = clock::now();
        self.scheduler.begin(self.next_group);
        while self.has_room()
            && let Some(command) = turn.commands.pop()
        {
            self.command(now, command);
        }
        while self.has_room()
            && let Some(report) = turn.reports.pop()
        {
            self.hear_session(now, report);
        }
    }

    fn has_room(&self) -> bool {
        self.open.changes.len() < CHANGES_MAX
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
            Command::Operate { worker, operation, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Operate(ticket, worker, operation));
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

    fn hear_session(&mut self, now: Now, message: FromSession) {
        match message {
            FromSession::Opened { hello, outbox, heard } => {
                self.performer.sessions.add(hello.session, outbox, heard);
                self.step(now, Input::Connected(*hello));
            }
            FromSession::Said(session, reports) => {
                for report in reports {
                    self.step(now, Input::Reported(session, report));
                }
            }
            FromSession::Closed(session) => self.closed(now, session),
        }
    }

    fn closed(&mut self, now: Now, session: SessionId) {
        self.performer.sessions.remove(session);
        self.step(now, Input::Disconnected(session));
    }

    fn tick(&mut self) {
        let now = clock::now();
        self.scheduler.begin(self.next_group);
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
            self.perform_under_way();
            return;
        }
        let now = clock::now();
        self.commit.begin(now.up);
        self.writer.hand_over(Group {
            epoch: self.epoch,
            number: self.next_group,
            at: now.utc,
            definitions: open.definitions,
            changes: open.changes,
        });
        self.next_group = GroupNo(self.next_group.0 + 1);
    }

    fn perform_under_way(&mut self) {
        self.commit.end();
        if let Some(effects) = self.under_way.take() {
            self.performer.perform(effects);
        }
    }

    /// Adds a snapshot to the open group if something has changed, but not too often.
    fn take_snapshot(&mut self) {
        self.snapshot_due |= self.scheduler.take_changed();
        if self.snapshot_due && self.snapshot_at.elapsed() >= SNAPSHOT_EVERY {
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
        [by_wall, by_uptime, by_snapshot].into_iter().flatten().fold(SLEEP_MAX, Duration::min)
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

/// Appends without copying where the target is empty.
fn append<T>(to: &mut Vec<T>, mut from: Vec<T>) {
    if to.is_empty() {
        *to = from;
    } else {
        to.append(&mut from);
    }
}
