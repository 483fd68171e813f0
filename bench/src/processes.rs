//! `true` as a plain process, per second. The kernel's work for a process that does nothing is nearly all of it.

use crate::backlog;
use crate::database::Counts;
use crate::load::Load;
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, WorkerCapacity, WorkerPool};
use crate::throughput::CpuTime;
use crate::waiting;

/// Takes the figure.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    log_progress(&format!("{jobs} processes"));
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    let pool = WorkerPool { workers: 1, capacity: Some(CAPACITY), allow: Some("--allow-process") };
    let workers = run_dir.workers(&server, &pool).await?;
    let load = Load { name: "true", ..backlog::load(jobs) };
    let used = CpuTime::now(&server, &workers)?;
    let submitted = load.submit(server.address).await?;
    let ended = waiting::until_all_ended(&server).await?;
    let used = CpuTime::now(&server, &workers)?.since(used);
    let seconds = ended.duration_since(submitted.began).as_secs_f64();

    for worker in workers {
        worker.stop().await?;
    }
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), 0)?;
    counts.require_success(load.total())?;
    let total = load.total() as f64;
    let mut record = Record::new("processes");
    record.set("jobs", load.total());
    record.set("slots", CAPACITY.slots);
    record.set("backlog", CAPACITY.backlog);
    record.figure("seconds", seconds);
    record.figure("jobs_per_s", total / seconds);
    record.figure("server_cpu_us_per_job", used.server / total);
    record.figure("worker_cpu_us_per_job", used.workers / total);
    record.set("verified", counts);
    record.print();
    Ok(())
}

const JOBS_FILE: &str = "\
version: 1
jobs:
  'true': { runtime: process, command: [/bin/true] }
";
/// Two slots for each of two cores: a core has a process to run while the worker records the end of another one.
const CAPACITY: WorkerCapacity = WorkerCapacity { slots: 4, backlog: 64 };
