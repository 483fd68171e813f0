//! The server: a process that owns a scheduler, and the disk that outlives it.
//!
//! As in the real server, inputs that have piled up are stepped into the open group. Once the writer is free, the group is handed over and the
//! next one is opened. Its effects follow its commit and those of all earlier groups. A crash can come between any two of these.

mod engine;
mod life;
mod perform;
mod sessions;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use protocol::order::Intervals;
use protocol::{Epoch, SessionId};
use scheduler::definition::Definition;
use scheduler::ids::GroupNo;
use scheduler::input::Input;
use scheduler::step::Effect;
use scheduler::{Config, PriorityAgeing, Scheduler};

use crate::agenda::Event;
use crate::clock::{Clock, Moment};
use crate::connection::ConnectionNo;
use crate::dice::Dice;
use crate::disk::{Disk, Group};

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// Grows with each start and each end of a process, so that events and connections of an earlier process are recognised.
    pub(crate) generation: u32,
    /// The time after which a waiting job gains a step of priority, with the present process.
    pub(crate) ageing: Option<Duration>,
    /// The wait for resources after which it sets a worker aside, with the present process.
    pub(crate) set_aside_after: Option<Duration>,
    pub(crate) process: Option<Process>,
    /// Events that came while the process was frozen; absent if it is not.
    pub(crate) frozen: Option<VecDeque<Event>>,
    /// Sockets have been read up to then: a process that goes on after a freeze may look at its timers first.
    pub(crate) read_until: Moment,
    pub(crate) frozen_at: Moment,
    /// The point at which the process crashes, and the time until the next start.
    pub(crate) planned_crash: Option<(CrashPoint, Duration)>,
    /// Until then the engine takes a while to look at its inbox.
    pub(crate) slow_until: Moment,
    /// Since when the server can be heard and answer without a break.
    pub(crate) attentive_since: Moment,
    /// When it last decided something.
    decided_at: Moment,
    /// When it last may have renewed all leases: it had not decided for a while, or a commit took long.
    disturbed_at: Moment,
    dice: Dice,
}

/// The point at which the server's process crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// After the next decision that changes something, before its group is handed to the store.
    AfterDecision,
    /// While the next group is being synced: nothing of it is durable.
    DuringSync,
    /// When the store refuses the next group. The scheduler contradicts the store, so only a new start from the store can go on.
    AtStoreRefusal,
    /// After the sync of the next group, before any of its effects.
    AfterSync,
    /// After this number of further effects.
    AfterEffects(u32),
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) scheduler: Scheduler,
    epoch: Epoch,
    open: Group,
    open_effects: Vec<Effect>,
    in_flight: Option<InFlight>,
    next_group: GroupNo,
    pub(crate) inbox: VecDeque<Input>,
    /// Open sessions, in the order of their numbers.
    pub(crate) sessions: Vec<(SessionId, ConnectionNo)>,
    sessions_given: u64,
    /// Time of the engine's next event. An event at another time was replaced by this one, and is ignored.
    wake: Moment,
    ticked: Moment,
    /// Set during a graceful stop: the process exits after all effects; the value is the downtime.
    shutdown: Option<Duration>,
}

#[derive(Debug)]
struct InFlight {
    group: Option<Group>,
    effects: Vec<Effect>,
    began: Moment,
}

impl Server {
    pub(crate) fn new(clock: Clock, disk: Disk, dice: Dice) -> Self {
        Self {
            clock,
            disk,
            generation: 0,
            ageing: None,
            set_aside_after: None,
            process: None,
            frozen: None,
            read_until: Moment::NEVER,
            frozen_at: Moment(0),
            planned_crash: None,
            slow_until: Moment(0),
            attentive_since: Moment(0),
            decided_at: Moment(0),
            disturbed_at: Moment(0),
            dice,
        }
    }

    /// Since when the server can be heard and answer without a break: not while a commit takes long.
    fn attentive_since(&self, now: Moment) -> Moment {
        let in_flight = self.process.as_ref().and_then(|process| process.in_flight.as_ref());
        let is_stalled = in_flight.is_some_and(|it| now.since(it.began) > UNANSWERED_MAX);
        if is_stalled { now } else { self.attentive_since }
    }

    /// Records a decision at `now`. Returns the time since which the server renewed only the leases of workers that it heard.
    fn record_decision(&mut self, now: Moment) -> Moment {
        let commit = self.process.as_ref().and_then(|process| process.in_flight.as_ref());
        let is_slow = commit.is_some_and(|it| now.since(it.began) > UNDISTURBED_MAX);
        if is_slow || now.since(self.decided_at) > UNDISTURBED_MAX {
            self.disturbed_at = now;
        }
        self.decided_at = now;
        self.disturbed_at.max(self.attentive_since)
    }

    fn config(&mut self, slice: usize) -> Config {
        Config {
            cluster: self.disk.cluster,
            epoch: Epoch(0),
            intervals: Intervals::default(),
            seed: self.dice.any(),
            slice,
            // Refused submissions exercise nothing.
            jobs_max: usize::MAX,
            server_limits: scheduler::ServerLimits::default(),
            priority_ageing: self.ageing.and_then(PriorityAgeing::every).unwrap_or_default(),
            set_aside_after: self.set_aside_after,
            params_of_result: scheduler::results::ignore_result,
        }
    }
}

impl Process {
    /// Definitions that jobs of the open group, or later ones, refer to.
    pub(crate) fn define(&mut self, definitions: &[Arc<Definition>]) {
        self.open.definitions.extend(definitions.iter().cloned());
    }
}

// The scheduler counts as suspended, and renews all leases, after 10 s without a decision or of one commit: twice `TICK_WITHIN`, by the
// clock of the server. A clock of the simulation is at most 5 % too fast or too slow, so these are 9.5 s to 10.6 s of true time.

/// After a commit of this true time the scheduler counts as suspended by any clock: more than 10.6 s.
const UNANSWERED_MAX: Duration = Duration::from_secs(12);
/// Within this true time the scheduler does not count as suspended by any clock: less than 9.5 s.
const UNDISTURBED_MAX: Duration = Duration::from_secs(8);
