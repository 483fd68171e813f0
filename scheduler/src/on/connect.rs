//! A worker arrives, returns, falls silent or leaves: identity, session, lease.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Refused, Welcome};
use protocol::{Now, Order, SessionId, Timestamp, Uptime, VERSIONS, WorkerId};

use crate::fleet::{Card, Link, Worker};
use crate::input::Connected;
use crate::on::{claim, drain, names};
use crate::scheduler::Scheduler;
use crate::step::{Change, CloseReason, Effect, Process, WorkerRow};
use crate::timers::Alarm;

/// How long a refused worker waits before it tries again: what is wrong needs a person.
const REFUSED_RETRY: Duration = Duration::from_secs(15);

/// How often a worker's last-seen time is written (DESIGN.md section 4).
const SEEN_EVERY: Duration = Duration::from_secs(60);

pub(crate) fn connect(it: &mut Scheduler, now: Now, hello: Connected) {
    match admit(it, now, &hello) {
        Ok((id, version)) => welcome(it, now, id, version, hello),
        Err(refused) => {
            it.send(hello.session, Order::Refused(refused));
            it.effect(Effect::Close(hello.session, CloseReason::Refused));
        }
    }
}

/// Finds out who this is, and whether it may come in.
fn admit(it: &mut Scheduler, now: Now, hello: &Connected) -> Result<(WorkerId, u16), Refused> {
    let Some(version) = VERSIONS.common(hello.versions) else {
        let (ours, theirs) = (VERSIONS, hello.versions);
        let text = format!(
            "this server speaks protocol versions {} to {}, the worker {} to {}: upgrade the older one",
            ours.lowest, ours.highest, theirs.lowest, theirs.highest
        );
        return Err(refused("unsupported_version", text));
    };
    let known = it.fleet.iter().find(|(_, worker)| worker.row.secret_hash == hello.secret_hash);
    if let Some(id) = known.map(|(id, _)| id) {
        claim::claim(it, now, id, hello)?;
        return names::find_free(it, Some(id), hello).map(|()| (id, version));
    }
    if let Some(cluster) = hello.cluster.filter(|_| !hello.rejoin) {
        let text = if cluster == it.config.cluster {
            format!(
                "worker {:?} was joined before, but this server does not know it: start it with --rejoin",
                hello.name
            )
        } else {
            format!(
                "worker {:?} belongs to cluster {cluster}, this is {}: start it with --rejoin",
                hello.name, it.config.cluster
            )
        };
        let is_ours = cluster == it.config.cluster;
        return Err(refused(if is_ours { "unknown_worker" } else { "wrong_cluster" }, text));
    }
    names::find_free(it, None, hello)?;
    Ok((join(it, now, hello), version))
}

pub(crate) fn refused(code: &str, text: String) -> Refused {
    Refused { code: code.to_string(), text, retry_after: REFUSED_RETRY }
}

fn join(it: &mut Scheduler, now: Now, hello: &Connected) -> WorkerId {
    it.last.worker = WorkerId(it.last.worker.0 + 1);
    let row = WorkerRow {
        worker: it.last.worker,
        name: hello.name.clone(),
        secret_hash: hello.secret_hash,
        joined_at: now.utc,
        seen_at: now.utc,
        cordoned: false,
        slots: None,
        drain: None,
        labels: Vec::new(),
        process: None,
    };
    it.fleet.add(Worker::away(row, now.up));
    it.last.worker
}

fn welcome(it: &mut Scheduler, now: Now, id: WorkerId, version: u16, hello: Connected) {
    let old_session = it.fleet.worker(id).and_then(|worker| worker.link.session());
    if let Some(old) = old_session {
        it.effect(Effect::Close(old, CloseReason::Replaced));
    }
    it.fleet.connect(id, hello.session);
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    let process = Process { incarnation: hello.incarnation, number: hello.process };
    if worker.row.process.replace(process) != Some(process) {
        // Another process numbers its reports anew; after a start of the server, nobody here knows where it is.
        worker.last_report = None;
        // What kept jobs away from the one before may have been mended.
        worker.exclusions.clear();
    }
    // Who leaves says so again before its inventory; that it does not any more may have been lost.
    worker.leaving = false;
    worker.row.name = hello.name;
    worker.row.seen_at = now.utc;
    worker.since = now.utc;
    worker.slots = hello.slots;
    worker.backlog = hello.backlog;
    worker.runtimes = hello.runtimes;
    worker.card = Card { labels: hello.labels, version: hello.version, address: hello.address };
    worker.told.clear();
    worker.heartbeat = None;
    let last_report = worker.last_report.unwrap_or_default();
    drain::greet(it, id, hello.incarnation);
    if let Some(row) = it.fleet.worker(id).map(|worker| worker.row.clone()) {
        it.change(Change::Worker(row));
    }
    spoke(it, id, now.up);
    let welcome = Welcome {
        version,
        session: hello.session,
        epoch: it.config.epoch,
        cluster: it.config.cluster,
        worker: id,
        intervals: it.config.intervals,
        last_report,
    };
    it.send(hello.session, Order::Welcome(welcome));
}

pub(crate) fn disconnect(it: &mut Scheduler, now: Now, session: SessionId) {
    let Some(id) = it.fleet.by_session(session) else {
        it.shut.remove(&session);
        return;
    };
    it.fleet.close(id);
    if let Some(worker) = it.fleet.worker_mut(id) {
        worker.since = now.utc;
    }
    it.changed = true;
}

/// Takes in when sessions were last heard of, before a Tick judges their leases.
pub(crate) fn hear(it: &mut Scheduler, sessions: &[(SessionId, Uptime)]) {
    for (session, at) in sessions {
        match it.fleet.by_session(*session) {
            Some(id) => heard(it, id, *at),
            None => claim::heard(it, *session, *at),
        }
    }
}

/// It has said something, and we have read it.
pub(crate) fn spoke(it: &mut Scheduler, id: WorkerId, at: Uptime) {
    if let Some(worker) = it.fleet.worker_mut(id) {
        worker.spoke = worker.spoke.max(at);
    }
    heard(it, id, at);
}

/// A frame came in: the lease is renewed from its receipt.
pub(crate) fn heard(it: &mut Scheduler, id: WorkerId, at: Uptime) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    worker.heard = worker.heard.max(at);
    if worker.lease_end.is_none() {
        it.watch_lease(id);
    }
}

/// Writes down that a worker was seen, once a minute.
pub(crate) fn note_seen(it: &mut Scheduler, id: WorkerId, now: Timestamp) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    if now.since(worker.row.seen_at) >= SEEN_EVERY {
        worker.row.seen_at = now;
        let row = worker.row.clone();
        it.change(Change::Worker(row));
    }
}

impl Scheduler {
    /// Watches a worker's lease: the alarm is moved on when it fires, not at every frame.
    pub(crate) fn watch_lease(&mut self, id: WorkerId) {
        let lease = self.config.intervals.lease;
        let Some(worker) = self.fleet.worker_mut(id) else {
            return;
        };
        let end = worker.heard + lease;
        if let Some(old) = worker.lease_end.replace(end) {
            self.timers.clear_alarm(old, Alarm::LeaseEnd(id));
        }
        self.timers.set_alarm(end, Alarm::LeaseEnd(id));
    }

    /// Whether this worker's inventory is settled; its session, if so.
    pub(crate) fn ready_session(&self, id: WorkerId) -> Option<SessionId> {
        match self.fleet.worker(id)?.link {
            Link::Ready(session) => Some(session),
            Link::Away | Link::Joining(_) => None,
        }
    }
}
