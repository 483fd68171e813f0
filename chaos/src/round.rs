//! One round: a world, a load, faults in an order by chance, then quiet, and the comparison of everything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::check::{self, Evidence, Finding};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::history::{self, Event};
use crate::load::Desk;
use crate::load::jobs::runtime_in;
use crate::stage::{Dice, within};
use crate::store::Kept;
use crate::truth;
use crate::world::{Ways, World};

/// What a round needs of its surroundings.
#[derive(Clone, Debug)]
pub struct Place {
    /// The program.
    pub longshore: PathBuf,
    /// The static witness.
    pub witness: PathBuf,
    /// Where directories are made.
    pub directory: PathBuf,
}

/// Which engine runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containers {
    /// None do.
    Nowhere,
    /// The machine's own.
    Machine,
    /// A daemon of the round's own.
    Private {
        /// Whether containers outlive their daemon.
        live_restore: bool,
    },
}

/// What happens in a round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For people: which kind of round this is.
    pub form: String,
    /// Of all chance in it.
    pub seed: u64,
    /// How often each fault strikes.
    pub faults: BTreeMap<Fault, u32>,
    /// Where containers run.
    pub containers: Containers,
    /// What leads from workers to the server.
    pub ways: Ways,
    /// Whether the server's data lies on a small disk of its own, which can be filled.
    pub small_disk: bool,
    /// How many faults may be on at once.
    pub at_once: usize,
}

/// Plays a round, and says what came of it. If something is wrong, its directory is kept and named. Must be called in a
/// [`LocalSet`](tokio::task::LocalSet): faults take turns on one thread.
pub async fn play(plan: &Plan, place: &Place) -> Figures {
    let began = Instant::now();
    println!("{}: seed {}", plan.form, plan.seed);
    let engine = match plan.containers {
        Containers::Nowhere => None,
        Containers::Machine => Some(Engine::of_machine()),
        Containers::Private { live_restore } => Some(Engine::private(&place.directory, live_restore).await),
    };
    let mut dice = Dice::new(plan.seed);
    let world = Arc::new(World::begin(place, engine, plan, WORKERS).await);
    let desk = Desk::open(world.stage.api(), Arc::clone(&world.history));
    let runs = [world.witnessed.as_slice(); RUNS].concat();
    let clients = desk.clients(FLOODS, &runs, &mut dice);
    strike(plan, &world, &desk, &mut dice).await;
    desk.close();
    let joined = tokio::task::spawn_blocking(|| {
        clients.into_iter().map(std::thread::JoinHandle::join).all(|it| it.is_ok())
    });
    assert!(joined.await.unwrap(), "a client has failed");
    let (evidence, cleared) = settle(&world).await;
    let findings = check::check(&evidence);
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        println!("  {finding}");
    }
    let mut world = Arc::into_inner(world).expect("nobody else holds it: all faults and clients are over");
    if !findings.is_empty() {
        world.stage.keep();
        println!("  {} findings; everything is kept in {}", findings.len(), world.stage.path("").display());
    }
    figures(plan, &world, &evidence, &findings, (began.elapsed(), cleared))
}

/// All faults in an order by chance, some at the same time, with progress in between.
async fn strike(plan: &Plan, world: &Arc<World>, desk: &Desk, dice: &mut Dice) {
    let mut order: Vec<Fault> =
        plan.faults.iter().flat_map(|(fault, times)| std::iter::repeat_n(*fault, *times as usize)).collect();
    dice.shuffle(&mut order);
    let mut under_way = JoinSet::new();
    for fault in order {
        while under_way.len() >= plan.at_once {
            under_way.join_next().await.unwrap().unwrap();
        }
        let enough = desk.acknowledged() + dice.below(PROGRESS);
        within(PROGRESS_PATIENCE, async || (desk.acknowledged() >= enough).then_some(())).await;
        let (world, dice) = (Arc::clone(world), dice.split());
        under_way.spawn_local(async move { fault.strike(&world, dice).await });
    }
    while let Some(ended) = under_way.join_next().await {
        ended.unwrap();
    }
}

/// Waits until all jobs have ended and nothing of them is left, lets everybody leave, and gathers what there is to compare. Also how
/// long it took until the last container was gone.
async fn settle(world: &World) -> (Evidence, Duration) {
    all_end(world).await;
    let ended = Instant::now();
    let mut left = containers_gone(world).await;
    let cleared = ended.elapsed();
    for worker in &world.workers {
        worker.role.turn().await.leave().await;
    }
    world.server.turn().await.leave().await;
    let all_gone = async || world.stage.processes().is_empty().then_some(());
    if within(PROCESSES_GONE_WITHIN, all_gone).await.is_none() {
        left.extend(world.stage.processes().iter().map(|pid| format!("process {}", pid.as_raw_nonzero())));
    }
    let kept = Kept::read(&world.stage.path("data"));
    write(&world.stage.path("store.json"), &kept);
    write(&world.stage.path("left.json"), &left);
    (gather(&world.stage.path("")).unwrap(), cleared)
}

/// Reads what a round has left in its directory.
///
/// # Errors
/// A part is missing, or is not what it should be.
pub fn gather(directory: &Path) -> anyhow::Result<Evidence> {
    let json = |name: &str| anyhow::Ok(std::fs::read(directory.join(name))?);
    Ok(Evidence {
        history: history::read(&directory.join("history.jsonl"))?,
        truth: truth::read(&directory.join("truth/marks"))?,
        kept: serde_json::from_slice(&json("store.json")?)?,
        left: serde_json::from_slice(&json("left.json")?)?,
    })
}

/// Waits until no job is left that has not ended, for as long as there is any change among them.
async fn all_end(world: &World) {
    let api = world.stage.api();
    let live = "/api/jobs?state=scheduled,queued,assigned,running,quarantined&limit=500";
    let mut before = Value::Null;
    loop {
        let changed = within(STUCK_AFTER, async || {
            let answer = api.ask(reqwest::Method::GET, live, None, None).await.ok()?;
            Some(answer.body).filter(|now| answer.status == 200 && *now != before)
        });
        match changed.await {
            Some(now) if now == serde_json::json!([]) => return,
            Some(now) => before = now,
            None => return,
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Those that are still there when their time is up.
async fn containers_gone(world: &World) -> Vec<String> {
    let Some(engine) = &world.engine else { return Vec::new() };
    let engine = engine.lock().await;
    let began = Instant::now();
    loop {
        let left = engine.containers(&world.witnessed);
        if left.is_empty() || began.elapsed() > CONTAINERS_GONE_WITHIN {
            return left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn figures(
    plan: &Plan,
    world: &World,
    evidence: &Evidence,
    findings: &[Finding],
    times: (Duration, Duration),
) -> Figures {
    let mut jobs = BTreeMap::new();
    for job in &evidence.kept.jobs {
        *jobs.entry(runtime_in(&job.name).to_owned()).or_default() += 1;
    }
    let mut outcomes = BTreeMap::new();
    for attempt in &evidence.kept.attempts {
        *outcomes.entry(attempt.outcome.clone().unwrap_or_default()).or_default() += 1;
    }
    let (mut requests, mut answers) = (0, BTreeMap::new());
    for event in &evidence.history {
        match event {
            Event::Submit { .. } => requests += 1,
            Event::Answered { status, .. } => *answers.entry(*status).or_default() += 1,
            Event::Cancelled { .. } | Event::Seen { .. } | Event::Fault { .. } => {}
        }
    }
    Figures {
        form: plan.form.clone(),
        seed: plan.seed,
        rounds: 1,
        seconds: times.0.as_secs(),
        faults: world.tally(),
        requests,
        answers,
        jobs,
        outcomes,
        starts_witnessed: evidence.truth.iter().filter(|it| it.mark == truth::Kind::Start).count() as u64,
        late_reports: evidence.kept.late_reports,
        slowest_clearing_s: times.1.as_secs(),
        verdicts: check::count(findings),
        broken: 0,
    }
}

fn write(path: &Path, value: &impl serde::Serialize) {
    std::fs::write(path, serde_json::to_vec(value).unwrap()).unwrap();
}

const WORKERS: u32 = 2;
const FLOODS: u64 = 2;
/// Jobs of each witnessed definition that are under way at any time.
const RUNS: usize = 2;
/// Up to so many more requests are accepted between two faults.
const PROGRESS: u64 = 40;
const PROGRESS_PATIENCE: Duration = Duration::from_secs(20);
/// A job may wait for a worker that is passed over for some minutes.
const STUCK_AFTER: Duration = Duration::from_secs(240);
/// Sweepers look every minute, and at nothing that is younger than two.
const CONTAINERS_GONE_WITHIN: Duration = Duration::from_secs(180);
const PROCESSES_GONE_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const FINDINGS_SHOWN: usize = 20;
