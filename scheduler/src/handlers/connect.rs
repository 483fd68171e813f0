//! Connections of workers: identity, session, lease.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Refused, Welcome};
use protocol::{Now, Order, SessionId, Timestamp, Uptime, VERSIONS, WorkerId};

use crate::core::Scheduler;
use crate::fleet::capacity::Capacity;
use crate::fleet::health::Health;
use crate::fleet::row::{Process, WorkerRow};
use crate::fleet::{Worker, WorkerInfo};
use crate::handlers::refusal::refused;
use crate::handlers::{drain, forget, reload, revoke, worker_identity, worker_names};
use crate::ids::JoinTokenId;
use crate::input::{Connected, JoinPermit};
use crate::step::{Change, CloseReason, Effect};

/// Interval at which a worker's `seen_at` is stored (docs/design/storage.md, S12).
const SEEN_EVERY: Duration = Duration::from_secs(60);

pub(crate) fn connect(scheduler: &mut Scheduler, now: Now, hello: Connected) {
    match admit(scheduler, now, &hello) {
        Ok((id, version)) => welcome(scheduler, now, id, version, hello),
        Err(refused) => {
            scheduler.send(hello.session, Order::Refused(refused));
            scheduler.effect(Effect::Close(hello.session, CloseReason::Refused));
        }
    }
}

/// Identifies the worker and decides whether it may join.
fn admit(scheduler: &mut Scheduler, now: Now, hello: &Connected) -> Result<(WorkerId, u16), Refused> {
    let Some(version) = VERSIONS.common(hello.versions) else {
        let (ours, theirs) = (VERSIONS, hello.versions);
        let text = format!(
            "this server speaks protocol versions {} to {}, the worker {} to {}: upgrade the older one",
            ours.lowest, ours.highest, theirs.lowest, theirs.highest
        );
        return Err(refused("unsupported_version", text));
    };
    let known = scheduler.fleet.by_secret(&hello.secret_hash);
    if let JoinPermit::OnlyAs(proven) = hello.join
        && known != Some(proven)
    {
        let text = format!("the connection was let in as worker {proven}, and the Hello has another secret");
        return Err(refused("unknown_worker", text));
    }
    if let Some(id) = known {
        revoke::check(scheduler, id, hello.rejoin)?;
        if let Some(cluster) =
            hello.cluster.filter(|cluster| !hello.rejoin && *cluster != scheduler.config.cluster)
        {
            let text = format!(
                "worker {:?} belongs to cluster {cluster}, this is {}: start it with --rejoin",
                hello.name, scheduler.config.cluster
            );
            return Err(refused("wrong_cluster", text));
        }
        worker_identity::claim(scheduler, now, id, hello)?;
        return worker_names::check_name(scheduler, Some(id), hello).map(|()| (id, version));
    }
    if let Some(cluster) = hello.cluster.filter(|_| !hello.rejoin) {
        let text = if cluster == scheduler.config.cluster {
            format!(
                "worker {:?} was joined before, but this server does not know it: start it with --rejoin",
                hello.name
            )
        } else {
            format!(
                "worker {:?} belongs to cluster {cluster}, this is {}: start it with --rejoin",
                hello.name, scheduler.config.cluster
            )
        };
        let is_ours = cluster == scheduler.config.cluster;
        return Err(refused(if is_ours { "unknown_worker" } else { "wrong_cluster" }, text));
    }
    let JoinPermit::Granted { token, labels } = &hello.join else {
        let text = String::from(
            "this token lets no more workers join: as many have joined as may, or it was revoked; an administrator makes another one with: longshore token create",
        );
        return Err(refused("token_used_up", text));
    };
    worker_names::check_name(scheduler, None, hello)?;
    Ok((join(scheduler, now, hello, *token, labels.clone()), version))
}

fn join(
    scheduler: &mut Scheduler,
    now: Now,
    hello: &Connected,
    join_token: Option<JoinTokenId>,
    granted: Vec<(String, String)>,
) -> WorkerId {
    scheduler.counters.worker = WorkerId(scheduler.counters.worker.0 + 1);
    let row = WorkerRow {
        worker: scheduler.counters.worker,
        name: hello.name.clone(),
        secret_hash: hello.secret_hash,
        joined_at: now.utc,
        seen_at: now.utc,
        cordoned: false,
        cordon: None,
        slots: None,
        drain: None,
        labels: Vec::new(),
        process: None,
        join_token,
        granted,
        revoked_at: None,
    };
    scheduler.fleet.add(Worker::away(row, now.up));
    forget::arm_worker_expiry(scheduler, scheduler.counters.worker);
    scheduler.counters.worker
}

fn welcome(scheduler: &mut Scheduler, now: Now, id: WorkerId, version: u16, hello: Connected) {
    let old_session = scheduler.fleet.worker(id).and_then(|worker| worker.link.session());
    if let Some(old) = old_session {
        scheduler.effect(Effect::Close(old, CloseReason::Replaced));
    }
    scheduler.fleet.connect(id, hello.session);
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        return;
    };
    let process = Process { incarnation: hello.incarnation, number: hello.process };
    if worker.row.process.replace(process) != Some(process) {
        // Another process numbers its reports from one; after a restart of the server the last number is
        // unknown.
        worker.last_report = None;
        // The cause of the exclusions may have been repaired before the restart.
        worker.health = Health::default();
    }
    worker.lease.unreconciled_since.get_or_insert(now.up);
    worker.row.seen_at = now.utc;
    worker.since = now.utc;
    worker.capacity = Capacity {
        slots: hello.slots,
        backlog: hello.backlog,
        runtimes: hello.runtimes,
        offer: hello.resources,
    };
    worker.info = WorkerInfo {
        labels: hello.labels,
        version: hello.version,
        address: hello.address,
        protocol: version,
    };
    let last_report = worker.last_report.unwrap_or_default();
    scheduler.fleet.rename(id, hello.name);
    reload::on_renamed(scheduler, id);
    scheduler.fleet.reclassify(id);
    drain::update_on_hello(scheduler, id, hello.incarnation);
    if let Some(row) = scheduler.fleet.worker(id).map(|worker| worker.row.clone()) {
        scheduler.change(Change::Worker(row));
    }
    record_message(scheduler, id, now.up);
    let welcome = Welcome {
        version,
        session: hello.session,
        epoch: scheduler.config.epoch,
        cluster: scheduler.config.cluster,
        worker: id,
        intervals: scheduler.config.intervals,
        last_report,
    };
    scheduler.send(hello.session, Order::Welcome(welcome));
}

pub(crate) fn disconnect(scheduler: &mut Scheduler, now: Now, session: SessionId) {
    let Some(id) = scheduler.fleet.by_session(session) else {
        scheduler.evicted_sessions.remove(&session);
        return;
    };
    scheduler.fleet.close(id);
    if let Some(worker) = scheduler.fleet.worker_mut(id) {
        worker.since = now.utc;
    }
    scheduler.changed = true;
}

/// Records the arrival times of frames before a Tick checks the leases.
pub(crate) fn record_frames(scheduler: &mut Scheduler, sessions: &[(SessionId, Uptime)]) {
    for (session, at) in sessions {
        match scheduler.fleet.by_session(*session) {
            Some(id) => renew_lease(scheduler, id, *at),
            None => worker_identity::renew_claim(scheduler, *session, *at),
        }
    }
}

/// Records a message of this worker that was read.
pub(crate) fn record_message(scheduler: &mut Scheduler, id: WorkerId, at: Uptime) {
    if let Some(worker) = scheduler.fleet.heard_mut(id) {
        worker.lease.record_message(at);
    }
    renew_lease(scheduler, id, at);
}

/// Renews the lease by a heartbeat, even while the inventory is being received: for [`RECONCILE_LEASES`] after the first Hello.
pub(crate) fn renew_contact(scheduler: &mut Scheduler, id: WorkerId, at: Uptime) {
    let renewed_for = scheduler.config.intervals.lease * RECONCILE_LEASES;
    if let Some(worker) = scheduler.fleet.heard_mut(id) {
        worker.lease.record_heartbeat(at, renewed_for);
    }
}

/// Leases for which heartbeats of a worker count that is not reconciled, over all its connections. An inventory of the largest worker takes
/// seconds. A worker whose report or inventory is refused each time would otherwise hold its attempts for ever.
const RECONCILE_LEASES: u32 = 10;

/// Records the receipt of a frame. On a reconciled session it renews the lease.
pub(crate) fn renew_lease(scheduler: &mut Scheduler, id: WorkerId, at: Uptime) {
    let Some(worker) = scheduler.fleet.heard_mut(id) else {
        return;
    };
    worker.lease.record_frame(at, worker.link.is_ready());
    if worker.lease.alarm.is_none() {
        scheduler.arm_lease(id);
    }
}

/// Stores `seen_at`, at most once a minute.
pub(crate) fn record_seen(scheduler: &mut Scheduler, id: WorkerId, now: Timestamp) {
    let Some(worker) = scheduler.fleet.heard_mut(id) else {
        return;
    };
    if now.since(worker.row.seen_at) >= SEEN_EVERY {
        worker.row.seen_at = now;
        let row = worker.row.clone();
        scheduler.change(Change::Worker(row));
    }
}
