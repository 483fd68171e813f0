//! Rows and facts of the tests.

use std::sync::Arc;
use std::time::Duration;

use longshore_server::catalogue::Entry;
use longshore_server::events::FeedState;
use longshore_server::store::{AttemptRow, StoredDefinition};
use protocol::container::ContainerSpec;
use protocol::report::{Availability, OutputLengths, Phase};
use protocol::{
    AttemptNo, ClusterId, Epoch, Fence, JobId, Nonce, Revision, RuntimeKind, SessionId, Timestamp, Token,
    WorkerId,
};
use scheduler::definition::{Definition, Expect, LossPolicy, RetryPolicy, WaitLimits};
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::placement::rules::PlacementRules;
use scheduler::schedule::Timetable;
use scheduler::snapshot::{Snapshot, Waiting, WorkerFacts, WorkerState};
use scheduler::step::PendingReason;

/// The state of the event feed before the first group: definitions and workers, no job.
pub(crate) fn event_state() -> FeedState {
    let mut known = FeedState::at(Epoch(3), GroupNo(10));
    definitions().iter().for_each(|entry| known.restore_definition(&entry.stored));
    known.restore_worker(&worker_row(1, "w1"));
    known.restore_snapshot(Arc::new(snapshot()));
    known
}

/// An attempt that runs on worker 1.
pub(crate) fn attempt(number: u32, fence: u64) -> AttemptRow {
    AttemptRow {
        number: AttemptNo(number),
        fence: Fence(fence),
        nonce: Nonce(7),
        worker: WorkerId(1),
        worker_name: "w1".into(),
        assigned_at: Timestamp(2_000),
        started_at: Some(Timestamp(3_000)),
        container: "c1".into(),
        stopping: None,
        ended_at: None,
        outcome: None,
        exit_code: None,
        message: String::new(),
        output: OutputLengths::default(),
        usage: Default::default(),
        result: None,
        released: None,
    }
}

pub(crate) fn definitions() -> Vec<Entry> {
    ["resize", "resize-all", "backup", "off"]
        .into_iter()
        .zip(1..)
        .map(|(name, revision)| entry(name, revision))
        .collect()
}

fn entry(name: &str, revision: u128) -> Entry {
    let environment = vec![("PASSWORD".to_owned(), "hunter2".to_owned())];
    let definition = Definition {
        name: name.to_owned(),
        revision: Revision(revision),
        enabled: name != "off",
        priority: 5,
        timeout: Some(Duration::from_secs(3600)),
        retry: RetryPolicy::default(),
        success_exit_codes: Vec::new(),
        loss: LossPolicy::default(),
        waits: WaitLimits::default(),
        expect: Expect::default(),
        placement: PlacementRules::default(),
        timetable: Timetable::default(),
        hooks: Default::default(),
        submission: Default::default(),
        limits: scheduler::limits::rules::LimitRules::default(),
        secrets: Default::default(),
        container: ContainerSpec { image: "resize:1".to_owned(), environment, ..ContainerSpec::default() },
    };
    let stored =
        StoredDefinition { revision: Revision(revision), name: name.to_owned(), entry: "{}".to_owned() };
    Entry {
        definition: Arc::new(definition),
        stored: Arc::new(stored),
        file: None,
        params_in_order: Vec::new(),
        description: Some("Makes pictures smaller".to_owned()),
        owner: None,
        tags: Vec::new(),
        notify: Default::default(),
        retention: Default::default(),
    }
}

pub(crate) fn worker_row(id: u64, name: &str) -> WorkerRow {
    WorkerRow {
        worker: WorkerId(id),
        name: name.into(),
        secret_hash: [0; 32],
        joined_at: Timestamp(10),
        seen_at: Timestamp(20),
        cordoned: false,
        cordon: None,
        slots: None,
        drain: None,
        labels: Vec::new(),
        process: None,
        join_token: None,
        granted: Vec::new(),
        revoked_at: None,
    }
}

const UNMANAGED: Token = Token { job: JobId(70), fence: Fence(80), nonce: Nonce(9) };

pub(crate) fn snapshot() -> Snapshot {
    let worker = WorkerFacts {
        in_use: Default::default(),
        offer: Default::default(),
        id: WorkerId(1),
        name: "w1".into(),
        session: Some(SessionId(1)),
        state: WorkerState::Ready,
        since: Timestamp(500),
        slots: 4,
        busy: 1,
        backlog: 4,
        queued: 0,
        suspect: None,
        exclusions: Vec::new(),
        cordoned: false,
        cordon: None,
        drain_deadline: None,
        own_labels: vec![("zone".to_owned(), "a".to_owned()), ("disk".to_owned(), "ssd".to_owned())],
        granted_labels: Vec::new(),
        set_labels: Vec::new(),
        revoked_at: None,
        runtimes: vec![(RuntimeKind::Docker, Availability::Available)],
        version: "0.1.0".to_owned(),
        address: "127.0.0.1:5".to_owned(),
        unmanaged: Arc::new([(UNMANAGED, Phase::Running)].into_iter().collect()),
        clone_addresses: Vec::new(),
        set_aside_for: None,
    };
    Snapshot {
        cluster: ClusterId(7),
        workers: [worker].into_iter().collect(),
        waiting: vec![
            waiting(None, PendingReason::Busy, 3),
            waiting(Some(2), PendingReason::PinnedWorkerAway, 1),
            waiting(Some(3), PendingReason::PinnedWorkerAway, 2),
        ],
        definitions: Arc::new(
            definitions().into_iter().map(|it| (it.definition.revision, it.definition)).collect(),
        ),
        ..Snapshot::default()
    }
}

pub(crate) fn waiting(pinned_to: Option<u64>, reason: PendingReason, count: u64) -> Waiting {
    Waiting { revision: Revision(1), narrowing: None, pinned_to: pinned_to.map(WorkerId), reason, count }
}

/// Changes the first worker of a snapshot.
pub(crate) fn change_worker(snapshot: &mut Snapshot, change: impl FnOnce(&mut WorkerFacts)) {
    let mut first = snapshot.workers.iter().next().expect("a worker").clone();
    change(&mut first);
    snapshot.workers.set(first.id, Some(first));
}
