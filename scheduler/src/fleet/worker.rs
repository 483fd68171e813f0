//! A worker as the scheduler holds it. Each part has its own file: connection with session, lease, capacity, attempts, health.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::Configure;
use protocol::report::Availability;
use protocol::{JobId, ReportNo, RuntimeKind, Timestamp, Uptime};

use super::Link;
use super::capacity::Capacity;
use super::claims::Claims;
use super::classes::{ClassFacts, ClassId, Classes, Position, ReservationId};
use super::health::Health;
use super::holdings::Holdings;
use super::lease::Lease;
use super::set_aside::SetAside;
use crate::fleet::row::WorkerRow;
use crate::placement::rules::{EXCLUSIVE, exclusive_labels};
use crate::reservation::InUse;

/// A worker with its current session.
#[derive(Debug)]
pub struct Worker {
    /// The stored part.
    pub row: WorkerRow,
    /// The connection, with the state of the session.
    pub link: Link,
    /// Wall-clock time of the last connect or disconnect.
    pub since: Timestamp,
    /// When it was heard, and its lease.
    pub lease: Lease,
    /// Slots, backlog and runtimes as the worker says.
    pub capacity: Capacity,
    /// Its attempts.
    pub holdings: Holdings,
    /// Consequences of its failures.
    pub health: Health,
    /// Its own description.
    pub info: WorkerInfo,
    /// Other processes that claim to be this worker.
    pub claims: Claims,
    /// The last report of its process; unknown after a restart of the server.
    pub last_report: Option<ReportNo>,
    /// Its class; absent until it connects for the first time since the server started.
    pub(super) class: Option<ClassId>,
    /// Load and tie-breaker under which the fleet lists it, unless it is set aside; absent if it may get no further attempt.
    pub(super) listed_at: Option<(u32, u32)>,
    /// Reservations that fit into the resources it has left, ordered.
    pub(super) fitting: Vec<ReservationId>,
    /// The waiting job that it is set aside for.
    pub(super) set_aside: Option<SetAside>,
}

/// The description that a worker gives when it connects. Jobs are placed by its labels; the rest is for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Its own labels, without those that an operator set or a join token granted.
    pub labels: Vec<(String, String)>,
    /// Version of its program.
    pub version: String,
    /// Network address.
    pub address: String,
    /// Protocol version of its session.
    pub protocol: u16,
}

impl Worker {
    /// Creates a disconnected worker.
    #[must_use]
    pub fn away(row: WorkerRow, last_heard: Uptime) -> Self {
        Self {
            link: Link::Away,
            since: row.seen_at,
            lease: Lease::beginning(last_heard),
            capacity: Capacity::default(),
            holdings: Holdings::default(),
            health: Health::default(),
            info: WorkerInfo::default(),
            claims: Claims::default(),
            last_report: None,
            class: None,
            listed_at: None,
            fitting: Vec::new(),
            set_aside: None,
            row,
        }
    }

    /// Its slots: those that an operator set, or its own.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.row.slots.unwrap_or(self.capacity.slots)
    }

    /// It finishes its attempts and leaves, by its own or an operator's decision.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.link.is_leaving() || self.row.drain.is_some()
    }

    /// The settings that the server has decided for it.
    #[must_use]
    pub const fn settings(&self) -> Configure {
        Configure { slots: self.row.slots, drain: self.row.drain.is_some(), intervals: None }
    }

    /// It is not ready and not revoked, and its lease lasts: it may connect or reconcile soon.
    #[must_use]
    pub fn may_reconnect(&self) -> bool {
        !self.link.is_ready() && !self.lease.is_expired && self.row.revoked_at.is_none()
    }

    /// It is ready, not cordoned, not leaving, and its lease lasts. Room and health decide besides whether it gets attempts.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link.is_ready() && !self.row.cordoned && !self.link.is_leaving() && !self.lease.is_expired
    }

    /// Its labels: those that an operator set, those that its join token granted, and its own. Of labels with the same name the first one
    /// counts.
    fn labels(&self) -> impl Iterator<Item = &(String, String)> {
        self.row.labels.iter().chain(&self.row.granted).chain(&self.info.labels)
    }

    /// The value of a label: that which an operator set, that which was granted, or its own.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// Its class; absent until it connects for the first time since the server started.
    #[must_use]
    pub const fn class(&self) -> Option<ClassId> {
        self.class
    }

    /// Load and tie-breaker under which the fleet lists it, unless it is set aside; absent if it may get no further attempt.
    pub(crate) const fn listed_at(&self) -> Option<(u32, u32)> {
        self.listed_at
    }

    /// Its position among the workers with room; absent if it has none, or is set aside.
    pub(crate) fn listing(&self) -> Option<Position> {
        let listed_at = self.listed_at.filter(|_| self.set_aside.is_none());
        listed_at.map(|(load, tie)| (load, tie, self.row.worker))
    }

    /// The waiting job that it is set aside for.
    #[must_use]
    pub const fn set_aside(&self) -> Option<&SetAside> {
        self.set_aside.as_ref()
    }

    /// The number of that job.
    #[must_use]
    pub fn set_aside_for(&self) -> Option<JobId> {
        self.set_aside.as_ref().map(SetAside::job)
    }

    /// A reservation fits into the resources that it has left.
    pub(crate) fn fits(&self, reservation: ReservationId) -> bool {
        self.fitting.binary_search(&reservation).is_ok()
    }

    /// Reservations that fit into the resources that it has left, ordered.
    pub(super) fn compute_fitting(&self, classes: &Classes) -> Vec<ReservationId> {
        classes.fitting(&self.capacity.offer, self.holdings.in_use())
    }

    /// The facts by which it is put into a class.
    pub(super) fn class_facts(&self, classes: &Classes) -> ClassFacts {
        let names = self.labels().map(|(name, _)| name);
        let names: BTreeSet<&String> = names.filter(|name| classes.names_label(name)).collect();
        let label = |name: &String| Some((name.clone(), String::from(self.label(name)?)));
        let exclusive: BTreeSet<String> = exclusive_labels(self.label(EXCLUSIVE)).collect();
        ClassFacts {
            runtimes: RuntimeKind::ALL.into_iter().filter(|runtime| self.capacity.offers(*runtime)).collect(),
            protocol: self.info.protocol,
            labels: names.into_iter().filter_map(label).collect(),
            exclusive: exclusive.into_iter().collect(),
            fitting: classes.fitting(&self.capacity.offer, &InUse::default()),
            conditions: classes.conditions_met(|name| self.label(name)),
        }
    }

    /// Sets its runtimes. A runtime that has become available is not excluded any longer.
    pub fn set_runtimes(&mut self, runtimes: Vec<(RuntimeKind, Availability)>) {
        for runtime in self.capacity.set_runtimes(runtimes) {
            self.health.exclusions.lift(runtime);
        }
    }

    /// There is room for one more attempt in its slots or backlog.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.slots() > 0 && self.holdings.count() < self.slots().saturating_add(self.capacity.backlog)
    }

    /// One of its slots is free.
    #[must_use]
    pub fn has_free_slot(&self) -> bool {
        self.holdings.count() < self.slots()
    }

    /// Number of attempts beyond its slots.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.holdings.count().saturating_sub(self.slots())
    }

    /// Attempts per 1,000 slots, if there is room for one more.
    pub(super) fn compute_load(&self) -> Option<u32> {
        let held = u64::from(self.holdings.count());
        (self.is_open() && self.health.allows_more() && self.has_room())
            .then(|| u32::try_from(held * u64::from(FULL) / u64::from(self.slots())).unwrap_or(u32::MAX))
    }
}

/// Load at which all slots are taken.
pub(crate) const FULL: u32 = 1_000;
