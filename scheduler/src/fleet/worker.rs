//! A worker as the scheduler holds it: stored row, connection, lease, capacity, attempts, and the state of its session.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::Configure;
use protocol::report::{Availability, Phase};
use protocol::{JobId, ReportNo, Revision, RuntimeKind, SessionId, Timestamp, Token, Uptime};

use super::Link;
use super::breaker::Breaker;
use super::claims::Claims;
use super::classes::{ClassFacts, ClassId, Classes};
use crate::placement::exclusion::Exclusions;
use crate::placement::rules::{EXCLUSIVE, exclusive_labels};
use crate::queue::QueueKey;
use crate::step::WorkerRow;

/// A worker with its current session.
#[derive(Debug)]
pub struct Worker {
    /// The stored part.
    pub row: WorkerRow,
    /// The connection.
    pub link: Link,
    /// Time of its last frame.
    pub last_heard: Uptime,
    /// Time of its last message that was read. A suspension of the server renews the lease, but not this.
    pub last_message: Uptime,
    /// Wall-clock time of the last connect or disconnect.
    pub since: Timestamp,
    /// Begin of its lease: the last completed reconcile, or the last frame after one. A Hello alone does not renew it, so a worker
    /// that connects and drops again and again is lost like a silent one.
    pub contact: Uptime,
    /// Time of its first Hello since its last completed reconcile, while it is not reconciled.
    pub unreconciled_since: Option<Uptime>,
    /// Time of the lease alarm, if it is set.
    pub lease_end: Option<Uptime>,
    /// The lease has expired.
    pub unreachable: bool,
    /// Its process finishes its attempts and leaves.
    pub leaving: bool,
    /// Containers that may run at once, as the worker says.
    pub slots: u32,
    /// Attempts that may wait in its backlog.
    pub backlog: u32,
    /// Runtimes and their availability.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Facts for people.
    pub info: WorkerInfo,
    /// Other processes that claim to be this worker.
    pub claims: Claims,
    /// The last report of its process; unknown after a restart of the server.
    pub last_report: Option<ReportNo>,
    /// Jobs whose current attempt it holds.
    pub held: BTreeSet<JobId>,
    /// The prefetched ones of these, which wait in its backlog.
    pub prefetched: BTreeSet<QueueKey>,
    /// Definitions that were sent in this session.
    pub sent_definitions: BTreeSet<Revision>,
    /// Heartbeat interval that this session was asked for, if it is shorter than the server's.
    pub heartbeat: Option<Duration>,
    /// Jobs that it gets none of for a while.
    pub exclusions: Exclusions,
    /// Its circuit breaker.
    pub breaker: Breaker,
    /// Lost attempts whose containers may still exist.
    pub unconfirmed: BTreeMap<Token, UnconfirmedAttempt>,
    /// The inventory received so far.
    pub inventory: Vec<(Token, Phase)>,
    /// Attempts of the inventory that the archive does not contain.
    pub unknown: BTreeSet<Token>,
    /// Unmanaged attempts: they run until an operator decides.
    pub unmanaged: Arc<BTreeMap<Token, Phase>>,
    /// Its class; absent until it connects for the first time in this life of the server.
    pub(super) class: Option<ClassId>,
    /// Load and tie-breaker under which the fleet lists it, if it has room.
    pub(super) load: Option<(u32, u32)>,
}

/// A lost attempt whose container may still exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnconfirmedAttempt {
    /// Its runtime.
    pub runtime: RuntimeKind,
    /// The session in which it was lost, if it may have been sent in that session.
    pub session: Option<SessionId>,
}

/// Facts that a worker reports about itself, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Its own labels, without those that an operator set or a join token granted.
    pub labels: Vec<(String, String)>,
    /// Version of its program.
    pub version: String,
    /// Network address.
    pub address: String,
}

impl Worker {
    /// Creates a disconnected worker.
    #[must_use]
    pub fn away(row: WorkerRow, last_heard: Uptime) -> Self {
        Self {
            link: Link::Away,
            last_heard,
            last_message: last_heard,
            contact: last_heard,
            unreconciled_since: None,
            since: row.seen_at,
            lease_end: None,
            unreachable: false,
            leaving: false,
            slots: 0,
            backlog: 0,
            runtimes: Vec::new(),
            info: WorkerInfo::default(),
            claims: Claims::default(),
            last_report: None,
            held: BTreeSet::new(),
            prefetched: BTreeSet::new(),
            sent_definitions: BTreeSet::new(),
            heartbeat: None,
            exclusions: Exclusions::default(),
            breaker: Breaker::default(),
            unconfirmed: BTreeMap::new(),
            inventory: Vec::new(),
            unknown: BTreeSet::new(),
            unmanaged: Arc::default(),
            class: None,
            load: None,
            row,
        }
    }

    /// Its slots: those that an operator set, or its own.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.row.slots.unwrap_or(self.slots)
    }

    /// It finishes its attempts and leaves, by its own or an operator's decision.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.leaving || self.row.drain.is_some()
    }

    /// The settings that the server has decided for it.
    #[must_use]
    pub const fn settings(&self) -> Configure {
        Configure { slots: self.row.slots, drain: self.row.drain.is_some(), intervals: None }
    }

    /// It is not ready, and its lease lasts: it may connect or reconcile soon.
    #[must_use]
    pub fn may_reconnect(&self) -> bool {
        !matches!(self.link, Link::Ready(_)) && !self.unreachable && self.row.revoked_at.is_none()
    }

    /// It may get attempts.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.link, Link::Ready(_)) && !self.row.cordoned && !self.leaving && !self.unreachable
    }

    /// Its labels: those that an operator set, those that its join token granted, and its own. Of one name the first counts.
    fn labels(&self) -> impl Iterator<Item = &(String, String)> {
        self.row.labels.iter().chain(&self.row.granted).chain(&self.info.labels)
    }

    /// The value of a label: that which an operator set, that which was granted, or its own.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// Its class; absent until it connects for the first time in this life of the server.
    #[must_use]
    pub const fn class(&self) -> Option<ClassId> {
        self.class
    }

    /// Load and tie-breaker, if it has room.
    pub(crate) const fn position(&self) -> Option<(u32, u32)> {
        self.load
    }

    /// The facts by which it is put into a class.
    pub(super) fn class_facts(&self, classes: &Classes) -> ClassFacts {
        let names = self.labels().map(|(name, _)| name);
        let names: BTreeSet<&String> = names.filter(|name| classes.names_label(name)).collect();
        let label = |name: &String| Some((name.clone(), String::from(self.label(name)?)));
        let exclusive: BTreeSet<String> = exclusive_labels(self.label(EXCLUSIVE)).collect();
        ClassFacts {
            runtimes: RuntimeKind::ALL.into_iter().filter(|runtime| self.offers(*runtime)).collect(),
            labels: names.into_iter().filter_map(label).collect(),
            exclusive: exclusive.into_iter().collect(),
        }
    }

    /// It reports this runtime as available.
    #[must_use]
    pub fn offers(&self, runtime: RuntimeKind) -> bool {
        self.runtimes.iter().any(|(kind, availability)| *kind == runtime && availability.is_available())
    }

    /// It has this runtime, available or not.
    #[must_use]
    pub fn has(&self, runtime: RuntimeKind) -> bool {
        self.runtimes.iter().any(|(kind, _)| *kind == runtime)
    }

    /// Sets its runtimes. A runtime that has become available is not excluded any longer.
    pub fn set_runtimes(&mut self, runtimes: Vec<(RuntimeKind, Availability)>) {
        let before = RuntimeKind::ALL.map(|runtime| self.offers(runtime));
        self.runtimes = runtimes;
        for (runtime, was_available) in RuntimeKind::ALL.into_iter().zip(before) {
            if !was_available && self.offers(runtime) {
                self.exclusions.lift(runtime);
            }
        }
    }

    /// There is room for one more attempt in its slots or backlog.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.slots() > 0 && self.held_count() < self.slots().saturating_add(self.backlog)
    }

    /// Number of attempts beyond its slots.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.held_count().saturating_sub(self.slots())
    }

    /// Number of attempts, unmanaged ones included.
    #[must_use]
    pub fn held_count(&self) -> u32 {
        u32::try_from(self.held.len() + self.unmanaged.len()).unwrap_or(u32::MAX)
    }

    /// It is trusted, or may get a probe.
    #[must_use]
    pub fn is_trusted_with_more(&self) -> bool {
        !self.breaker.is_suspect() || (self.breaker.probe().is_none() && !self.exclusions.is_suspended())
    }

    /// Attempts per 1,000 slots, if there is room for one more.
    pub(super) fn load_now(&self) -> Option<u32> {
        let held = u64::from(self.held_count());
        (self.is_open() && self.has_room() && self.is_trusted_with_more())
            .then(|| u32::try_from(held * u64::from(FULL) / u64::from(self.slots())).unwrap_or(u32::MAX))
    }
}

/// Load at which all slots are taken.
pub(crate) const FULL: u32 = 1_000;
