//! [`Worker`] holds the state. `dispatch` calls the handler of each input.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::Intervals;
use protocol::report::{Availability, CANNOT_START, Foreign, Phase, ReleaseCause};
use protocol::resources::OfferedResources;
use protocol::{ClusterId, Incarnation, Revision, RuntimeKind, Token, Uptime};

use crate::attempt::{Attempt, Ended, Stage};
use crate::backlog::Backlog;
use crate::definitions::Definitions;
use crate::input::ShutdownMode;
use crate::outbox::Outbox;
use crate::policy::Policy;
use crate::pulls::Pulls;
use crate::session::Link;
use crate::slots::Slots;
use crate::step::Effect;
use crate::unsent_output::UnsentOutput;

/// Settings of a worker process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The worker's name.
    pub name: String,
    /// The secret of its state directory.
    pub secret: [u8; 32],
    /// The cluster that the state directory joined, if any.
    pub cluster: Option<ClusterId>,
    /// Join even if the server does not know the secret.
    pub rejoin: bool,
    /// Start counter of the state directory.
    pub incarnation: Incarnation,
    /// Random number of this process.
    pub process: u64,
    /// Id of the container engine, if there is one.
    pub engine: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Containers that may run at once.
    pub slots: u32,
    /// Attempts that may wait in the backlog.
    pub backlog: u32,
    /// Images that may be pulled at once.
    pub pull_slots: u32,
    /// The rules that forbid definitions.
    pub policy: Policy,
    /// The worker's labels.
    pub labels: Vec<(String, String)>,
    /// Resources that jobs may reserve.
    pub resources: OfferedResources,
    /// Runtimes and their availability. Attempts of a runtime that is not listed are released as `policy`.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
}

/// State of a worker.
#[derive(Debug)]
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) link: Link,
    pub(crate) attempts: BTreeMap<Token, Attempt>,
    pub(crate) backlog: Backlog,
    pub(crate) slots: Slots,
    pub(crate) pulls: Pulls,
    pub(crate) definitions: Definitions,
    pub(crate) outbox: Outbox,
    pub(crate) unsent_output: UnsentOutput,
    /// Alarms of attempts; at most one entry per attempt, equal to its `alarm`.
    pub(crate) alarms: BTreeSet<(Uptime, Token)>,
    /// Attempts that the server has cleared for their start while the gate was closed.
    pub(crate) cleared: BTreeSet<Token>,
    /// Attempts whose runtime is ready and may not create the container while the gate is closed.
    pub(crate) prepared: BTreeSet<Token>,
    /// Live attempts that are stopped if the server is silent for too long. One whose stop has begun is not here any more.
    pub(crate) armed_self_fences: BTreeSet<Token>,
    /// Revisions that failed to start since the last successful start, by runtime.
    pub(crate) failed_starts: BTreeMap<RuntimeKind, BTreeSet<Revision>>,
    pub(crate) foreign: Vec<Foreign>,
    /// Runtimes whose part of the last Inventory was incomplete.
    pub(crate) incomplete: BTreeSet<RuntimeKind>,
    /// Messages for the next flush.
    pub(crate) notices: PendingNotices,
    /// The disk that holds unsent output is nearly full.
    pub(crate) disk_is_low: bool,
    /// The reason why the state directory cannot record new attempts.
    pub(crate) storage_fault: Option<String>,
    /// The shutdown that the operator of this machine asked for.
    pub(crate) requested_shutdown: Option<ShutdownMode>,
    /// The server has ordered a drain.
    pub(crate) drain_ordered: bool,
    pub(crate) exit: Exiting,
    arrivals: u64,
    pub(crate) effects: Vec<Effect>,
}

/// Messages that are not numbered. They are dropped with the connection, because the next Inventory contains
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct PendingNotices {
    pub(crate) inventory: bool,
    pub(crate) condition: bool,
    pub(crate) running: Vec<Token>,
    pub(crate) status: Vec<(Token, Phase)>,
    pub(crate) progress: BTreeSet<Token>,
    pub(crate) wanted: Vec<Revision>,
    pub(crate) foreign: bool,
}

/// Progress of the process exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exiting {
    No,
    /// With the next flush.
    Now,
    /// The exit effect was emitted.
    Sent,
}

impl Worker {
    /// Creates a disconnected worker. The seed decides the jitter only.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            slots: Slots::new(config.slots),
            pulls: Pulls::new(config.pull_slots),
            config,
            link: Link::new(seed),
            attempts: BTreeMap::new(),
            backlog: Backlog::default(),
            definitions: Definitions::default(),
            outbox: Outbox::default(),
            unsent_output: UnsentOutput::default(),
            alarms: BTreeSet::new(),
            cleared: BTreeSet::new(),
            prepared: BTreeSet::new(),
            armed_self_fences: BTreeSet::new(),
            failed_starts: BTreeMap::new(),
            foreign: Vec::new(),
            incomplete: BTreeSet::new(),
            notices: PendingNotices::default(),
            disk_is_low: false,
            storage_fault: None,
            requested_shutdown: None,
            drain_ordered: false,
            exit: Exiting::No,
            arrivals: 0,
            effects: Vec::new(),
        }
    }

    /// Uses another secret from the next Hello on: the server has revoked the old one. The worker joins as a new one.
    pub fn renew_secret(&mut self, secret: [u8; 32]) {
        self.config.secret = secret;
        self.config.cluster = None;
    }

    /// The runtimes as the server sees them: none takes jobs while the state directory cannot record new attempts.
    pub(crate) fn runtimes(&self) -> Vec<(RuntimeKind, Availability)> {
        let told = |own| match self.fault_of(own) {
            None => Availability::Available,
            Some(why) => Availability::Unavailable(why),
        };
        self.config.runtimes.iter().map(|(kind, own)| (*kind, told(own))).collect()
    }

    /// The reason why a runtime with this availability of its own takes no jobs.
    pub(crate) fn fault_of(&self, own: &Availability) -> Option<String> {
        match own {
            Availability::Unavailable(why) => Some(why.clone()),
            Availability::Available => self.storage_fault.as_ref().map(|why| format!("{CANNOT_START}{why}")),
        }
    }

    /// End of the lease by this machine's clock.
    #[must_use]
    pub fn lease_end(&self) -> Option<Uptime> {
        self.link.lease_from.map(|from| from + self.link.intervals.lease)
    }

    /// Number of reports that are not acknowledged, sent or not.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.outbox.len()
    }

    /// Slots in use, and attempts that wait: for a slot, their definition or their image.
    #[must_use]
    pub fn load(&self) -> (u32, u32) {
        let waiting = self.backlog.len() + self.pulls.len();
        (self.slots.busy(), u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    /// The images of all attempts that have not ended, as their definitions write them. It walks all attempts, so it is for rare questions.
    #[must_use]
    pub fn wanted_images(&self) -> BTreeSet<String> {
        let live = self.attempts.values().filter(|attempt| !matches!(attempt.stage, Stage::Ended(_)));
        live.filter_map(|attempt| Some(attempt.definition.as_ref()?.spec.image.clone())).collect()
    }

    /// The way in which the worker shuts down, if it does: the stronger of the operator's request and the server's drain.
    pub(crate) fn shutdown_mode(&self) -> Option<ShutdownMode> {
        self.requested_shutdown.max(self.drain_ordered.then_some(ShutdownMode::Drain))
    }

    pub(crate) fn intervals(&self) -> Intervals {
        self.link.intervals
    }

    pub(crate) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Replaces the alarm of an attempt.
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

    /// Stores the time of the last contact if an attempt has `self_fence`.
    pub(crate) fn persist_contact(&mut self) {
        if !self.armed_self_fences.is_empty() {
            self.effects.extend(self.link.lease_from.map(Effect::Contact));
        }
    }

    /// Removes an unstarted attempt from its queue and frees its slot. The caller decides what follows.
    pub(crate) fn remove_unstarted(&mut self, token: Token) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return;
        };
        match attempt.stage {
            Stage::WaitingForDefinition { .. } => self.backlog.unpark_one(attempt.revision, token),
            Stage::Waiting => self.backlog.remove(attempt.position, token),
            Stage::AwaitingStartAck { .. } => {
                self.slots.release();
                self.cleared.remove(&token);
                self.outbox.not_starting(token);
            }
            Stage::WaitingForPullSlot => self.pulls.stop_waiting(attempt.position, token),
            Stage::Launched
            | Stage::Pulling { .. }
            | Stage::Pulled
            | Stage::Prepared
            | Stage::Running { .. }
            | Stage::Ended(_) => {}
        }
    }

    /// Releases an unstarted attempt.
    pub(crate) fn release(&mut self, token: Token, cause: ReleaseCause, why: String) {
        self.remove_unstarted(token);
        self.set_alarm(token, None);
        if let Some(attempt) = self.attempts.remove(&token)
            && attempt.is_in_runtime()
        {
            let runtime = attempt.runtime();
            self.effects.push(Effect::Forget { token, runtime, give_up_output: true });
        }
        self.outbox.released(token, cause, why);
    }

    /// Removes an ended attempt whose report and output are acknowledged or given up.
    pub(crate) fn forget(&mut self, token: Token) {
        self.set_alarm(token, None);
        let Some(attempt) = self.attempts.remove(&token) else {
            return;
        };
        let Stage::Ended(Ended { needs_removal, output_done, unsent, .. }) = attempt.stage else {
            return;
        };
        if let Some(number) = unsent {
            self.unsent_output.remove(number);
        }
        if needs_removal {
            let runtime = attempt.runtime();
            self.effects.push(Effect::Forget { token, runtime, give_up_output: !output_done });
        }
    }
}
