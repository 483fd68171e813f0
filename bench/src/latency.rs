//! How long it takes from a POST to the job's start on a worker when nothing else is going on.
//!
//! The fake runtime writes the instant at which it starts a job as the job's output, in nanoseconds of the same clock that is read
//! here before the POST; both are processes of one machine.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;

use crate::database::Counts;
use crate::load::{Connection, JSON, Retries};
use crate::output;
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, WorkerPool};
use crate::waiting;

/// Takes the figure.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    log_progress(&format!("latency of {jobs} jobs"));
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    let pool = WorkerPool { workers: 1, capacity: None, allow: Some("--allow-fake") };
    let workers = run_dir.workers(&server, &pool).await?;
    let mut connection = server.connect().await?;

    let mut answered_ms = Vec::new();
    let mut sent = Vec::new();
    for _ in 0..jobs {
        let began = now();
        let answer = connection.post("/api/jobs/stamp", JSON, &Bytes::new(), &mut Retries::default()).await?;
        answered_ms.push(ms(now().saturating_sub(began)));
        sent.push((id(&answer)?, began));
        tokio::time::sleep(PAUSE).await;
    }
    waiting::until_all_ended(&server).await?;
    output::until_attempts(&run_dir.data(), sent.len()).await?;
    let mut started_ms = Vec::new();
    for (job, began) in sent {
        started_ms.push(ms(stamp(&mut connection, job).await?.saturating_sub(began)));
    }

    for worker in workers {
        worker.stop().await?;
    }
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), 0)?;
    counts.require_success(jobs)?;
    let mut record = Record::new("latency");
    record.set("jobs", jobs);
    record.set("pause_ms", PAUSE.as_millis() as u64);
    record.quantiles("post_to_start", &mut started_ms);
    record.quantiles("post_to_answer", &mut answered_ms);
    record.set("verified", counts);
    record.print();
    Ok(())
}

/// Reads the start time that the job printed.
async fn stamp(connection: &mut Connection, job: u64) -> anyhow::Result<Duration> {
    let path = format!("/api/jobs/{job}/logs?stream=stdout");
    let text = connection.get(&path).await?;
    let text = String::from_utf8_lossy(&text);
    let ns =
        text.trim().parse().with_context(|| format!("job {job} wrote {text:?} instead of nanoseconds"))?;
    Ok(Duration::from_nanos(ns))
}

fn id(answer: &[u8]) -> anyhow::Result<u64> {
    let job: serde_json::Value = serde_json::from_slice(answer)?;
    job["id"].as_u64().context("the answer to a submission has no id")
}

/// Since the machine's boot, as the worker counts.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // The clock counts up from zero, and nanoseconds are below a billion.
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

const JOBS_FILE: &str = "\
version: 1
jobs:
  stamp: { runtime: fake, environment: { FAKE_STAMP: '1' } }
";
/// Long enough that the job before has ended and everything sleeps.
const PAUSE: Duration = Duration::from_millis(5);
