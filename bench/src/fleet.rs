//! Ten thousand connected workers: what they cost while nothing happens, and how long it takes until all are back after a crash of the
//! server, beside jobs that wait.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::load::{NDJSON, Retries};
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, Server};
use crate::swarm::{AttemptHandling, Swarm, SwarmSettings};

/// Takes the figures with this number of workers.
pub(crate) async fn measure(env: &BenchEnv, workers: u64) -> anyhow::Result<()> {
    log_progress(&format!("{workers} simulated workers"));
    let run_dir = env.run_dir(&jobs_file())?;
    let (server, _) = run_dir.server().await?;
    let empty = server.process.memory_bytes()?;
    let settings = SwarmSettings { workers, slots: SLOTS, attempts: AttemptHandling::HoldForever };
    let swarm = Swarm::start(server.address, settings)?;
    let joined = swarm.until_ready().await?;
    log_progress("idle");
    let idle = percent_of_a_core(&server).await?;
    let memory = server.process.memory_bytes()?.saturating_sub(empty);

    let running = workers * u64::from(SLOTS);
    let waiting = submit(&server, running + workers * WAITING_PER_WORKER).await? - running;
    swarm.until_arrived(running).await?;
    log_progress("idle, with waiting jobs");
    let idle_waiting = percent_of_a_core(&server).await?;
    let address = server.address;
    server.process.crash().await?;
    let crashed = Instant::now();
    let (server, started) = run_dir.server_at(address).await?;
    let ready = Instant::now();
    swarm.until_ready().await?;
    let (since_crash, since_ready) = (crashed.elapsed(), ready.elapsed());
    let cpu = server.process.cpu_us()?;
    let held = server.connect().await?.read("/api/jobs?state=running&limit=1").await?;
    anyhow::ensure!(held.as_array().is_some_and(|jobs| !jobs.is_empty()), "no job runs after the reconnect");
    drop(swarm);
    server.process.stop().await?;

    let mut record = Record::new("fleet");
    record.set("workers", workers);
    record.set("slots", SLOTS);
    record.set("running", running);
    record.set("waiting", waiting);
    record.set("definitions", DEFINITIONS);
    record.figure("joined_s", joined.as_secs_f64());
    record.figure("idle_percent_of_a_core", idle);
    record.figure("idle_percent_of_a_core_with_waiting", idle_waiting);
    record.figure("memory_bytes_per_worker", memory as f64 / workers as f64);
    record.figure("start_s", started.as_secs_f64());
    record.figure("reconnected_s_since_ready", since_ready.as_secs_f64());
    record.figure("reconnected_s_since_crash", since_crash.as_secs_f64());
    record.figure("start_and_reconnect_cpu_s", cpu / 1e6);
    record.print();
    Ok(())
}

/// Processor time of the server in percent of one core, over some heartbeats.
pub(crate) async fn percent_of_a_core(server: &Server) -> anyhow::Result<f64> {
    tokio::time::sleep(SETTLE).await;
    let (began, before) = (Instant::now(), server.process.cpu_us()?);
    tokio::time::sleep(IDLE).await;
    Ok((server.process.cpu_us()? - before) / began.elapsed().as_micros() as f64 * 100.0)
}

/// Submits at least this number of jobs, in whole batches, of all definitions in turn. Returns how many.
async fn submit(server: &Server, jobs: u64) -> anyhow::Result<u64> {
    let lines: String = (0..BATCH).map(|n| format!("{{\"name\":\"job-{}\"}}\n", n % DEFINITIONS)).collect();
    let body = Bytes::from(lines);
    let mut connection = server.connect().await?;
    let batches = jobs.div_ceil(BATCH);
    for _ in 0..batches {
        connection.post("/api/jobs", NDJSON, &body, &mut Retries::default()).await?;
    }
    Ok(batches * BATCH)
}

fn jobs_file() -> String {
    let entries: String = (0..DEFINITIONS).map(|n| format!("  job-{n}: {{ runtime: fake }}\n")).collect();
    format!("version: 1\njobs:\n{entries}")
}

/// The default of a worker.
const SLOTS: u32 = 2;
const WAITING_PER_WORKER: u64 = 10;
const DEFINITIONS: u64 = 1_000;
const BATCH: u64 = 1_000;
const SETTLE: Duration = Duration::from_secs(6);
/// Four heartbeats.
const IDLE: Duration = Duration::from_secs(20);
