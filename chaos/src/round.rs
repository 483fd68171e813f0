//! One round: start the system, put it under load, inject faults in random order, wait until all jobs end, and check the records.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::check::{self, Finding, RoundRecords};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::history::{self, Event};
use crate::load::Clients;
use crate::load::jobs::runtime_in;
use crate::marks;
use crate::stats::RoundStats;
use crate::store::StoreContents;
use crate::system::{NetworkKind, RoundPaths, TestSystem};
use testkit::{SeededRng, wait_at_most};

/// The engine that runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containers {
    /// No containers run.
    Nowhere,
    /// The engine of this machine.
    Machine,
    /// A private daemon.
    Private {
        /// Containers survive a restart of the daemon.
        live_restore: bool,
    },
}

/// The settings of a round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the kind of round, for people.
    pub profile: String,
    /// Seed for all random choices.
    pub seed: u64,
    /// Number of times that each fault is injected.
    pub faults: BTreeMap<Fault, u32>,
    /// The engine.
    pub containers: Containers,
    /// The kind of network between workers and server.
    pub network: NetworkKind,
    /// The server's data is on a small disk, which can be filled.
    pub small_disk: bool,
    /// Number of faults that may be active at once.
    pub at_once: usize,
}

/// Plays a round and returns its result. The directory of a round with findings is kept. Must be called in a
/// [`LocalSet`](tokio::task::LocalSet), because faults share one thread.
pub async fn run(plan: &Plan, paths: &RoundPaths) -> RoundStats {
    let began = Instant::now();
    println!("{}: seed {}", plan.profile, plan.seed);
    let engine = match plan.containers {
        Containers::Nowhere => None,
        Containers::Machine => Some(Engine::host()),
        Containers::Private { live_restore } => Some(Engine::private(&paths.directory, live_restore).await),
    };
    let mut rng = SeededRng::new(plan.seed);
    let system = Arc::new(TestSystem::start(paths, engine, plan.network, plan.small_disk, WORKERS).await);
    let clients = Clients::new(system.cluster.api(), Arc::clone(&system.history));
    let runs = [system.marking_definitions.as_slice(); RUNS].concat();
    let threads = clients.spawn(FLOODS, &runs, &mut rng);
    inject(plan, &system, &clients, &mut rng).await;
    clients.stop();
    let joined = tokio::task::spawn_blocking(|| {
        threads.into_iter().map(std::thread::JoinHandle::join).all(|it| it.is_ok())
    });
    assert!(joined.await.unwrap(), "a client has failed");
    let (records, cleared) = finish_and_collect(&system).await;
    let findings = check::check(&records);
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        println!("  {finding}");
    }
    let mut system = Arc::into_inner(system).expect("all faults and clients have ended");
    if !findings.is_empty() {
        system.cluster.keep_directory();
        println!(
            "  {} findings; the directory is kept: {}",
            findings.len(),
            system.cluster.path("").display()
        );
    }
    stats(plan, &system, &records, &findings, (began.elapsed(), cleared))
}

/// Injects all faults in random order, several at once, with accepted requests in between.
async fn inject(plan: &Plan, system: &Arc<TestSystem>, clients: &Clients, rng: &mut SeededRng) {
    let mut order: Vec<Fault> =
        plan.faults.iter().flat_map(|(fault, times)| std::iter::repeat_n(*fault, *times as usize)).collect();
    rng.shuffle(&mut order);
    let mut in_flight = JoinSet::new();
    for fault in order {
        while in_flight.len() >= plan.at_once {
            in_flight.join_next().await.unwrap().unwrap();
        }
        let enough = clients.accepted_requests() + rng.below(PROGRESS);
        wait_at_most(PROGRESS_TIMEOUT, async || (clients.accepted_requests() >= enough).then_some(())).await;
        let (system, rng) = (Arc::clone(system), rng.fork());
        in_flight.spawn_local(async move { fault.inject(&system, rng).await });
    }
    while let Some(ended) = in_flight.join_next().await {
        ended.unwrap();
    }
}

/// Waits until all jobs have ended and their containers are gone, stops all processes, and collects the records. Also returns how long the
/// removal of the containers took.
async fn finish_and_collect(system: &TestSystem) -> (RoundRecords, Duration) {
    wait_until_jobs_end(system).await;
    let ended = Instant::now();
    let mut left = wait_until_containers_are_gone(system).await;
    let cleared = ended.elapsed();
    for worker in &system.workers {
        worker.process.lock().await.terminate().await;
    }
    system.server.lock().await.terminate().await;
    let all_gone = async || system.cluster.processes().is_empty().then_some(());
    if wait_at_most(PROCESSES_GONE_WITHIN, all_gone).await.is_none() {
        left.extend(system.cluster.processes().iter().map(|pid| format!("process {}", pid.as_raw_nonzero())));
    }
    let store = StoreContents::read(&system.cluster.path("data"));
    write(&system.cluster.path("store.json"), &store);
    write(&system.cluster.path("leftovers.json"), &left);
    (read_evidence(&system.cluster.path("")).unwrap(), cleared)
}

/// Reads the records of a round from its directory.
///
/// # Errors
/// A file is missing or cannot be parsed.
pub fn read_evidence(directory: &Path) -> anyhow::Result<RoundRecords> {
    let json = |name: &str| anyhow::Ok(std::fs::read(directory.join(name))?);
    Ok(RoundRecords {
        history: history::read(&directory.join("history.jsonl"))?,
        marks: marks::read(&directory.join("marks/marks.jsonl"))?,
        store: serde_json::from_slice(&json("store.json")?)?,
        leftovers: serde_json::from_slice(&json("leftovers.json")?)?,
    })
}

/// Waits until all jobs have ended, or until their list has not changed for a while.
async fn wait_until_jobs_end(system: &TestSystem) {
    let api = system.cluster.api();
    let live = "/api/jobs?state=scheduled,queued,assigned,running,quarantined&limit=500";
    let mut before = Value::Null;
    loop {
        let changed = wait_at_most(STUCK_AFTER, async || {
            let answer = api.request(reqwest::Method::GET, live, None, None).await.ok()?;
            Some(answer.body).filter(|now| answer.status == 200 && *now != before)
        });
        match changed.await {
            Some(now) if now == serde_json::json!([]) => return,
            Some(now) => before = now,
            None => return,
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the containers that still exist at the deadline.
async fn wait_until_containers_are_gone(system: &TestSystem) -> Vec<String> {
    let Some(engine) = &system.engine else { return Vec::new() };
    let engine = engine.lock().await;
    let began = Instant::now();
    loop {
        let left = engine.containers(&system.marking_definitions);
        if left.is_empty() || began.elapsed() > CONTAINERS_GONE_WITHIN {
            return left;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn stats(
    plan: &Plan,
    system: &TestSystem,
    records: &RoundRecords,
    findings: &[Finding],
    times: (Duration, Duration),
) -> RoundStats {
    let mut jobs = BTreeMap::new();
    for job in &records.store.jobs {
        *jobs.entry(runtime_in(&job.name).to_owned()).or_default() += 1;
    }
    let mut outcomes = BTreeMap::new();
    for attempt in &records.store.attempts {
        *outcomes.entry(attempt.outcome.clone().unwrap_or_default()).or_default() += 1;
    }
    let (mut requests, mut answers) = (0, BTreeMap::new());
    for event in &records.history {
        match event {
            Event::Submit { .. } => requests += 1,
            Event::Answered { status, .. } => *answers.entry(*status).or_default() += 1,
            Event::Cancelled { .. } | Event::Seen { .. } | Event::Fault { .. } => {}
        }
    }
    RoundStats {
        profile: plan.profile.clone(),
        seed: plan.seed,
        rounds: 1,
        seconds: times.0.as_secs(),
        faults: system.counts(),
        requests,
        answers,
        jobs,
        outcomes,
        starts_marked: records.marks.iter().filter(|it| it.mark == marks::MarkKind::Start).count() as u64,
        late_reports: records.store.late_reports,
        slowest_clearing_s: times.1.as_secs(),
        violations: check::count_by_violation(findings),
        broken: 0,
    }
}

fn write(path: &Path, value: &impl serde::Serialize) {
    std::fs::write(path, serde_json::to_vec(value).unwrap()).unwrap();
}

const WORKERS: u32 = 2;
const FLOODS: u64 = 2;
/// Jobs of each definition with marks that run at any time.
const RUNS: usize = 2;
/// At most this many requests are accepted between two faults.
const PROGRESS: u64 = 40;
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(20);
/// A worker may be excluded from a job for some minutes.
const STUCK_AFTER: Duration = Duration::from_secs(240);
/// The worker's sweep for unknown containers runs every minute and skips those younger than two.
const CONTAINERS_GONE_WITHIN: Duration = Duration::from_secs(180);
const PROCESSES_GONE_WITHIN: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const FINDINGS_SHOWN: usize = 20;
