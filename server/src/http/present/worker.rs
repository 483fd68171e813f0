//! Fills the JSON of workers from the snapshot, and from rows of the store for those that are gone.

use protocol::report::Availability;
use protocol::{ClusterId, Uptime};
use scheduler::fleet::breaker::{FAILURES_MAX, SUSPECT_BACKOFF};
use scheduler::fleet::row::WorkerRow;
use scheduler::placement::exclusion::Excluded;
use scheduler::snapshot::{Snapshot, Suspicion, WorkerFacts};

use crate::clock;
use crate::http::present::presenter;
use crate::http::present::shapes::{self, Time};
use crate::http::present::span::span;
use crate::http::request::labels;
use crate::http::state::AppState;

/// The JSON of a worker as the snapshot shows it.
pub(crate) fn live_worker(state: &AppState, facts: &WorkerFacts, cluster: ClusterId) -> shapes::Worker {
    let machine = facts.session.and_then(|session| state.services.machines.of(session)).unwrap_or_default();
    shapes::Worker {
        id: facts.id.0,
        name: facts.name.to_string(),
        working: facts.busy > 0,
        connected: facts.session.is_some(),
        state: facts.state.name().into(),
        suspect: facts.suspect.as_ref().map(suspicion),
        exclusions: Vec::new(),
        cordoned: facts.cordoned,
        cordon: facts.cordon.as_ref().map(shapes::Intervention::of),
        drain_deadline: facts.drain_deadline.map(Time),
        slots: facts.slots,
        busy: facts.busy,
        backlog: facts.backlog,
        queued: facts.queued,
        since: Time(facts.since),
        labels: labels::merge_labels(&[&facts.own_labels, &facts.granted_labels, &facts.set_labels]),
        labels_set: facts.set_labels.iter().cloned().collect(),
        labels_granted: facts.granted_labels.iter().cloned().collect(),
        revoked_at: facts.revoked_at.map(Time),
        resources: Some(resources(facts)),
        set_aside_for: facts.set_aside_for.map(|job| job.0),
        runtimes: facts
            .runtimes
            .iter()
            .map(|(kind, availability)| shapes::Runtime {
                name: kind.name().into(),
                available: availability.is_available(),
                reason: match availability {
                    Availability::Available => None,
                    Availability::Unavailable(why) => Some(why.clone()),
                },
            })
            .collect(),
        version: facts.version.clone(),
        address: facts.address.clone(),
        engine_id: machine.engine.map(|id| id.to_string()),
        load_milli: machine.load_milli,
        disk_free_bytes: machine.disk_free_bytes,
        unmanaged: facts
            .unmanaged
            .iter()
            .take(UNMANAGED_MAX)
            .map(|(token, phase)| shapes::Unmanaged {
                job: token.job.0,
                fence: token.fence.0,
                container: token.container_name(cluster),
                phase: presenter::phase(*phase),
            })
            .collect(),
        copies: facts.clone_addresses.clone(),
        joined_at: None,
    }
}

fn resources(facts: &WorkerFacts) -> shapes::WorkerResources {
    let (offer, in_use) = (&facts.offer, &facts.in_use);
    let offered = shapes::ResourceAmounts {
        cpus_milli: offer.cpus_milli.map(u64::from),
        memory_bytes: offer.memory_bytes,
        gpus: offer.gpus.clone(),
        custom: offer.custom.iter().map(|(name, amount)| (name.clone(), u64::from(*amount))).collect(),
    };
    let reserved = shapes::ResourceAmounts {
        cpus_milli: Some(in_use.cpus_milli),
        memory_bytes: Some(in_use.memory_bytes),
        gpus: in_use.gpus.keys().cloned().collect(),
        custom: in_use.custom.clone(),
    };
    shapes::WorkerResources { offered, reserved }
}

fn suspicion(suspicion: &Suspicion) -> shapes::Suspicion {
    let now = clock::now();
    shapes::Suspicion {
        since: Time(suspicion.since),
        cause: suspicion.cause.clone(),
        rule: suspect_rule(),
        until: suspicion.until.map(|until| Time(now.utc + until.since(now.up))),
    }
}

/// The thresholds of the circuit breaker.
pub(crate) fn suspect_rule() -> String {
    let (first, max) = (span(SUSPECT_BACKOFF.first), span(SUSPECT_BACKOFF.max));
    format!(
        "a worker that fails to start jobs of {FAILURES_MAX} definitions in a row is suspect: it gets nothing for {first}, twice as long after each failed probe, at most {max}"
    )
}

/// The JSON of an exclusion.
pub(crate) fn exclusion((of, until): (Excluded, Option<Uptime>), snapshot: &Snapshot) -> shapes::Exclusion {
    let now = clock::now();
    let until = until.map(|until| Time(now.utc + until.since(now.up)));
    let (name, revision) = match of {
        Excluded::Anything | Excluded::Suspect => (None, None),
        Excluded::Runtime(kind) => (Some(kind.name().to_owned()), None),
        Excluded::Revision(revision) => {
            let definition = snapshot.definitions.get(&revision);
            (definition.map(|definition| definition.name.clone()), Some(revision.to_string()))
        }
    };
    let (of, reason) = match of {
        Excluded::Anything => ("anything", "it gave work back"),
        Excluded::Suspect => {
            ("anything", "it is suspect: it failed to start jobs of several definitions in a row")
        }
        Excluded::Runtime(_) => ("runtime", "it gave a job of this runtime back"),
        Excluded::Revision(_) => ("revision", "it could not start this revision, or does not allow it"),
    };
    shapes::Exclusion { of: of.into(), name, revision, reason: reason.into(), until }
}

/// The JSON of a worker that has no connection and no attempts.
pub(crate) fn stored_worker(row: &WorkerRow) -> shapes::Worker {
    shapes::Worker {
        id: row.worker.0,
        name: row.name.to_string(),
        state: match (row.revoked_at, row.drain) {
            (Some(_), _) => "revoked".into(),
            (None, Some(_)) => "drained".into(),
            (None, None) => "gone".into(),
        },
        cordoned: row.cordoned,
        cordon: row.cordon.as_ref().map(shapes::Intervention::of),
        slots: row.slots.unwrap_or_default(),
        labels: labels::merge_labels(&[&row.granted, &row.labels]),
        labels_set: row.labels.iter().cloned().collect(),
        labels_granted: row.granted.iter().cloned().collect(),
        revoked_at: row.revoked_at.map(Time),
        since: Time(row.seen_at),
        ..shapes::Worker::default()
    }
}

/// Unmanaged attempts shown of one worker.
const UNMANAGED_MAX: usize = 1_000;
