//! [`Worker`]: the brain itself. [`Worker::step`] is its table of contents; each verb has its file in `on/`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use protocol::order::{Intervals, Order};
use protocol::report::{Availability, Foreign, Phase, ReleaseCause};
use protocol::{ClusterId, Incarnation, Now, Revision, RuntimeKind, Token, Uptime};

use crate::attempt::{Attempt, Ended, Stage};
use crate::backlog::Backlog;
use crate::definitions::Definitions;
use crate::input::{Input, Leave, RuntimeEvent};
use crate::link::Link;
use crate::on;
use crate::outbox::Outbox;
use crate::slots::Slots;
use crate::step::{Effect, Launch, Step};

/// What a worker is told about itself at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// What people call it.
    pub name: String,
    /// The secret of its state directory.
    pub secret: [u8; 32],
    /// The installation that its state directory was joined to, if it was.
    pub cluster: Option<ClusterId>,
    /// Join although the server does not know the secret.
    pub rejoin: bool,
    /// Which start of the worker this is.
    pub incarnation: Incarnation,
    /// Drawn when this process began.
    pub process: u64,
    /// The Docker engine's own id, if there is one.
    pub engine: Option<String>,
    /// The version of the program.
    pub version: String,
    /// How many containers may run at once.
    pub slots: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// What jobs may require of it.
    pub labels: Vec<(String, String)>,
    /// What it offers at all, and whether that answers now. A runtime that is not in here is refused as policy.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
}

/// The brain of a worker.
#[derive(Debug)]
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) link: Link,
    pub(crate) attempts: BTreeMap<Token, Attempt>,
    pub(crate) backlog: Backlog,
    pub(crate) slots: Slots,
    pub(crate) definitions: Definitions,
    pub(crate) outbox: Outbox,
    /// One entry per attempt at most, equal to its `alarm`.
    pub(crate) alarms: BTreeSet<(Uptime, Token)>,
    /// Attempts that the server has cleared for their start while the gate was closed.
    pub(crate) cleared: BTreeSet<Token>,
    /// Attempts whose runtime has all that it needs, and must not make the container while the gate is closed.
    pub(crate) prepared: BTreeSet<Token>,
    /// Live attempts that must not outlive our contact with the server.
    pub(crate) fenced: BTreeSet<Token>,
    /// Definitions that could not be started, since the last start that worked.
    pub(crate) failed_starts: BTreeMap<RuntimeKind, BTreeSet<Revision>>,
    pub(crate) foreign: Vec<Foreign>,
    /// Runtimes of which the last Inventory of this connection could not tell everything.
    pub(crate) incomplete: BTreeSet<RuntimeKind>,
    /// Facts of the moment, told at the next flush.
    pub(crate) notices: Notices,
    /// Output waits on a disk that is nearly full.
    pub(crate) disk_is_low: bool,
    /// What our own operator wants.
    pub(crate) leave: Option<Leave>,
    /// What the server's operator wants, until it says otherwise.
    pub(crate) drained: bool,
    pub(crate) exit: Exiting,
    arrivals: u64,
    pub(crate) effects: Vec<Effect>,
}

/// Facts of the moment. They are dropped with the connection: the Inventory of the next one says them all.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) inventory: bool,
    pub(crate) condition: bool,
    pub(crate) running: Vec<Token>,
    pub(crate) status: Vec<(Token, Phase)>,
    pub(crate) progress: BTreeSet<Token>,
    pub(crate) wanted: Vec<Revision>,
    pub(crate) foreign: bool,
}

/// Whether the process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exiting {
    No,
    /// With the next flush.
    Now,
    /// It has been said.
    Said,
}

impl Worker {
    /// A worker that has not been connected yet. The seed decides its jitter and nothing else.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            slots: Slots::new(config.slots),
            config,
            link: Link::new(seed),
            attempts: BTreeMap::new(),
            backlog: Backlog::default(),
            definitions: Definitions::default(),
            outbox: Outbox::default(),
            alarms: BTreeSet::new(),
            cleared: BTreeSet::new(),
            prepared: BTreeSet::new(),
            fenced: BTreeSet::new(),
            failed_starts: BTreeMap::new(),
            foreign: Vec::new(),
            incomplete: BTreeSet::new(),
            notices: Notices::default(),
            disk_is_low: false,
            leave: None,
            drained: false,
            exit: Exiting::No,
            arrivals: 0,
            effects: Vec::new(),
        }
    }

    /// Something happened: what must be done about it at once. What there is to say waits for [`Worker::flush`].
    pub fn step(&mut self, now: Now, input: Input) -> Step {
        let now = now.up;
        match input {
            Input::Restored { attempts, foreign, contact } => {
                on::restore::restored(self, now, attempts, foreign, contact)
            }
            Input::Connected => on::connect::connected(self, now),
            Input::Disconnected => on::connect::disconnected(self),
            Input::Ordered(order) => self.ordered(now, order),
            Input::Happened(event) => self.happened(now, event),
            Input::OutputDone(token) => on::end::output_done(self, token),
            Input::DiskIsLow(is_low) => on::end::disk_is_low(self, now, is_low),
            Input::Leave(leave) => on::leave::leave(self, now, leave),
            Input::Tick => on::tick::tick(self, now),
        }
        self.run_prepared(now);
        self.fill_slots(now);
        Step { effects: mem::take(&mut self.effects) }
    }

    /// What there is to say, packed: to be called after a batch of steps, before waiting.
    pub fn flush(&mut self, now: Now) -> Step {
        if self.link.is_joined() {
            self.say(now.up);
        }
        on::leave::exit_if_done(self);
        Step { effects: mem::take(&mut self.effects) }
    }

    /// When the next [`Input::Tick`] is due, if nothing happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Uptime> {
        let alarm = self.alarms.first().map(|(at, _)| *at);
        [alarm, self.link.wake_at(), on::tick::next_self_fence(self)].into_iter().flatten().min()
    }

    /// When the server's last promise runs out, as we can count it: until then we count as connected.
    #[must_use]
    pub fn lease_end(&self) -> Option<Uptime> {
        self.link.lease_from.map(|from| from + self.link.intervals.lease)
    }

    /// How many reports are not acknowledged, said or not.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.outbox.len()
    }

    /// How many slots are in use and how many attempts wait in front of them.
    #[must_use]
    pub fn load(&self) -> (u32, u32) {
        (self.slots.busy(), u32::try_from(self.backlog.len()).unwrap_or(u32::MAX))
    }

    fn ordered(&mut self, now: Uptime, order: Order) {
        match order {
            Order::Welcome(it) => return on::connect::welcome(self, now, it),
            Order::Refused(it) => return on::connect::refused(self, it),
            Order::GoAway(it) => return on::connect::go_away(self, it),
            _ => {}
        }
        if !self.link.is_joined() {
            return; // Said before Welcome, or to a connection that we have given up: nobody may rely on it.
        }
        match order {
            Order::Definitions(list) => on::enqueue::definitions(self, list),
            Order::Enqueue(list) => on::enqueue::enqueue(self, now, list),
            Order::Reconciled(list) => on::connect::reconciled(self, now, list),
            Order::Cancel(it) => on::stop::cancel(self, now, it),
            Order::Recall(tokens) => on::stop::recall(self, tokens),
            Order::Acknowledge(last) => on::end::acknowledged(self, now, last),
            Order::Pulse(number) => on::connect::pulse(self, number),
            Order::Configure(it) => on::leave::configure(self, it),
            // Output bypasses the brain; the body has it already.
            Order::OutputAcknowledge(_) | Order::Welcome(_) | Order::Refused(_) | Order::GoAway(_) => {}
        }
    }

    fn happened(&mut self, now: Uptime, event: RuntimeEvent) {
        match event {
            RuntimeEvent::Progressed(token, phase) => on::run::progressed(self, token, phase),
            RuntimeEvent::Prepared(token) => on::run::prepared(self, token),
            RuntimeEvent::Started { token, container, at } => {
                on::run::started(self, now, token, container, at)
            }
            RuntimeEvent::Ended { token, exit, output, at } => on::end::ended(self, token, exit, output, at),
            RuntimeEvent::Overdue(token) => on::stop::overdue(self, now, token),
            RuntimeEvent::Refused { token, cause, why } => on::end::refused(self, now, token, cause, why),
            RuntimeEvent::Surveyed { attempts, foreign } => {
                on::restore::surveyed(self, now, attempts, foreign)
            }
            RuntimeEvent::Foreign(foreign) => on::run::looked_around(self, foreign),
            RuntimeEvent::Availability(kind, availability) => on::run::availability(self, kind, availability),
        }
    }

    /// Lets containers be made whose attempts were launched before. That may be long ago: the image was pulled meanwhile, the promise
    /// has run out, and there may be a successor; then it is for the server to say so, or to renew the promise. Who drains finishes them.
    fn run_prepared(&mut self, now: Uptime) {
        if self.exit != Exiting::No || !self.link.gate_is_open(now) {
            return;
        }
        while let Some(token) = self.prepared.pop_first() {
            if let Some(attempt) = self.attempts.get_mut(&token) {
                attempt.stage = Stage::Launched(Phase::Starting);
                let runtime = attempt.runtime();
                self.effects.push(Effect::Run { token, runtime });
            }
        }
    }

    /// Starts what may start: nothing while the server's promise runs out, is absent, or reports pile up unacknowledged.
    fn fill_slots(&mut self, now: Uptime) {
        if self.leaving().is_some() || !self.link.gate_is_open(now) || self.outbox.len() >= UNACKNOWLEDGED_MAX
        {
            return;
        }
        while let Some(token) = self.cleared.pop_first() {
            self.launch(token);
        }
        while self.slots.has_room()
            && let Some(token) = self.backlog.pop()
        {
            self.slots.take();
            let Some(attempt) = self.attempts.get_mut(&token) else {
                continue;
            };
            if attempt.known.as_ref().is_some_and(|known| known.spec.ask_before_start) {
                attempt.stage = Stage::Asking { cleared: false };
                self.outbox.starting(token);
            } else {
                self.launch(token);
            }
        }
    }

    /// Hands an attempt that holds a slot to its runtime.
    fn launch(&mut self, token: Token) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return;
        };
        let Some(known) = attempt.known.clone() else {
            return;
        };
        attempt.stage = Stage::Launched(Phase::Starting);
        if known.spec.self_fence.is_some() {
            self.fenced.insert(token);
            self.effects.extend(self.link.lease_from.map(Effect::Contact));
        }
        self.effects.push(Effect::Start(Launch {
            token,
            revision: attempt.revision,
            name: known.name,
            spec: known.spec,
            body: attempt.body.take(),
            time_left: attempt.time_left,
        }));
    }

    /// Whether the process is to leave, and how: whoever wants it more decides.
    pub(crate) fn leaving(&self) -> Option<Leave> {
        self.leave.max(self.drained.then_some(Leave::Drain))
    }

    pub(crate) fn intervals(&self) -> Intervals {
        self.link.intervals
    }

    pub(crate) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Lets an attempt wait for this instant, and for no other.
    pub(crate) fn set_alarm(&mut self, token: Token, at: Option<Uptime>) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return;
        };
        if let Some(before) = attempt.alarm.take() {
            self.alarms.remove(&(before, token));
        }
        attempt.alarm = at;
        if let Some(at) = at {
            self.alarms.insert((at, token));
        }
    }

    /// Has it kept since when the server is silent, if anything must not outlive that.
    pub(crate) fn keep_contact(&mut self) {
        if !self.fenced.is_empty() {
            self.effects.extend(self.link.lease_from.map(Effect::Contact));
        }
    }

    /// Takes an unstarted attempt out of wherever it waits; it holds nothing any more, and the caller decides what becomes of it.
    pub(crate) fn withdraw(&mut self, token: Token) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return;
        };
        match attempt.stage {
            Stage::Parked { .. } => self.backlog.leave(attempt.revision, token),
            Stage::Waiting => self.backlog.remove(attempt.place, token),
            Stage::Asking { .. } => {
                self.slots.give_back();
                self.cleared.remove(&token);
                self.outbox.not_starting(token);
            }
            Stage::Launched(_) | Stage::Prepared | Stage::Running { .. } | Stage::Ended(_) => {}
        }
    }

    /// Gives an attempt back unstarted: from here on it is not ours.
    pub(crate) fn release(&mut self, token: Token, cause: ReleaseCause, why: String) {
        self.withdraw(token);
        self.set_alarm(token, None);
        self.attempts.remove(&token);
        self.outbox.released(token, cause, why);
    }

    /// Everything about an ended attempt is durable, or given up: what is left of it is removed.
    pub(crate) fn forget(&mut self, token: Token) {
        self.set_alarm(token, None);
        let Some(attempt) = self.attempts.remove(&token) else {
            return;
        };
        if let Stage::Ended(Ended { launched: true, output_done, .. }) = attempt.stage {
            let runtime = attempt.runtime();
            self.effects.push(Effect::Forget { token, runtime, give_up_output: !output_done });
        }
    }
}

/// A server that takes so many reports without acknowledging any gets no more of them made.
const UNACKNOWLEDGED_MAX: usize = 65_536;
