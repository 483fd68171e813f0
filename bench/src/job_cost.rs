//! Single POSTs to a server with few and with many workers, and beside jobs that wait for a worker which does not come: processor time
//! of the server for each job, in turns, as ratios.
//!
//! One request after the other makes a message for each job, whatever the number of workers. Of many requests at once, few workers get several
//! jobs in a message.

use std::time::{Duration, Instant};

use crate::database::Counts;
use crate::fleet::percent_of_a_core;
use crate::load::{Load, NDJSON, Pace, Retries};
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, Server};
use crate::singles::CONNECTIONS;
use crate::swarm::{AttemptHandling, Swarm, SwarmSettings};
use crate::turns::{TURNS, medians};

/// Workers and waiting jobs beside the measured jobs.
#[derive(Clone, Copy, Debug)]
struct Surroundings {
    workers: u64,
    /// Definitions whose jobs wait.
    waiting: u64,
}

/// Two runs: a fifth of the jobs, submitted one after the other; then all of them, over many connections at once.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64, workers: u64) -> anyhow::Result<()> {
    compare(env, (jobs / 5, 1), workers).await?;
    compare(env, (jobs, CONNECTIONS), workers).await
}

/// Takes the figures. The load is a number of jobs and of connections.
async fn compare(env: &BenchEnv, load: (u64, u64), workers: u64) -> anyhow::Result<()> {
    let few = Surroundings { workers: FEW_WORKERS, waiting: 0 };
    let many = Surroundings { workers, ..few };
    let beside = Surroundings { waiting: WAITING_DEFINITIONS, ..few };
    let [[few], [many], [beside]] =
        medians([few, many, beside], async |around| Ok([take(env, load, around).await?])).await?;
    let mut record = Record::new("job cost ratios");
    record.set("jobs", load.0);
    record.set("connections", load.1);
    record.set("turns", TURNS);
    record.set("few_workers", FEW_WORKERS);
    record.set("many_workers", workers);
    record.set("waiting_definitions", WAITING_DEFINITIONS);
    record.figure("server_cpu_us_per_job", few);
    record.figure("many_workers_to_few", many / few);
    record.figure("beside_waiting_to_alone", beside / few);
    record.print();
    Ok(())
}

/// Processor time of the server for each job in microseconds, without that of idle workers.
async fn take(env: &BenchEnv, (jobs, connections): (u64, u64), around: Surroundings) -> anyhow::Result<f64> {
    log_progress(&format!("{connections} at once, {around:?}"));
    let run_dir = env.run_dir(&jobs_file(around.waiting))?;
    let (server, _) = run_dir.server().await?;
    let settings = SwarmSettings { workers: around.workers, slots: SLOTS, attempts: AttemptHandling::Finish };
    let swarm = Swarm::start(server.address, settings)?;
    swarm.until_ready().await?;
    submit_waiting(&server, around.waiting).await?;
    // A few workers cost a thousandth of a core.
    let idle = if around.workers > FEW_WORKERS { percent_of_a_core(&server).await? / 100.0 } else { 0.0 };

    let load = Load { jobs, batch: 1, connections, name: "measured", pace: Pace::Accepted };
    let (before, began) = (server.process.cpu_us()?, Instant::now());
    load.submit(server.endpoint.clone()).await?;
    swarm.until_arrived(jobs).await?;
    tokio::time::sleep(SETTLE).await;
    let (cpu, elapsed) = (server.process.cpu_us()? - before, began.elapsed());
    drop(swarm);
    server.process.stop().await?;

    let waiting = around.waiting * WAITING_EACH;
    let counts = Counts::read(&run_dir.data(), 0)?;
    anyhow::ensure!(counts.live == waiting, "{} jobs wait instead of {waiting}", counts.live);
    Counts { live: 0, ..counts }.require_success(jobs)?;
    let cost = (cpu - idle * elapsed.as_micros() as f64) / jobs as f64;
    let mut record = Record::new("job cost");
    record.set("jobs", jobs);
    record.set("connections", connections);
    record.set("workers", around.workers);
    record.set("slots", SLOTS);
    record.set("waiting_definitions", around.waiting);
    record.set("waiting_jobs", waiting);
    record.figure("seconds", elapsed.as_secs_f64());
    record.figure("idle_percent_of_a_core", idle * 100.0);
    record.figure("server_cpu_us_per_job", cost);
    record.set("verified", counts);
    record.print();
    Ok(cost)
}

/// Submits jobs that no worker may take.
async fn submit_waiting(server: &Server, definitions: u64) -> anyhow::Result<()> {
    let mut connection = server.connect().await?;
    for _ in 0..if definitions == 0 { 0 } else { WAITING_EACH } {
        let lines: String = (0..definitions).map(|n| format!("{{\"name\":\"waiting-{n}\"}}\n")).collect();
        connection.post("/api/jobs", NDJSON, &lines.into(), &mut Retries::default()).await?;
    }
    Ok(())
}

fn jobs_file(waiting: u64) -> String {
    let entries = (0..waiting).map(|n| format!("  waiting-{n}: {{ runtime: fake, requires: [absent] }}\n"));
    format!("version: 1\njobs:\n  measured: {{ runtime: fake }}\n{}", entries.collect::<String>())
}

const FEW_WORKERS: u64 = 10;
/// Enough that ten workers have room for the requests of all connections.
const SLOTS: u32 = 16;
const WAITING_DEFINITIONS: u64 = 5_000;
const WAITING_EACH: u64 = 4;
/// The last reports are committed within milliseconds.
const SETTLE: Duration = Duration::from_millis(200);
