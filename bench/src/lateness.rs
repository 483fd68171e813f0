//! Jobs with a start time: how late they reach a worker, what they cost while they wait, and how long a start with them takes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;

use crate::database::Counts;
use crate::load::{NDJSON, Retries};
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, Server};
use crate::swarm::{AttemptHandling, Swarm, SwarmSettings, wall_us};
use crate::workload::{JOBS_FILE, SILENT};

/// Takes the figures for jobs that become due one after the other within a minute.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    let jobs = jobs.div_ceil(BATCH) * BATCH;
    log_progress(&format!("{jobs} jobs that are due within {DUE_WITHIN:?}"));
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, empty_start) = run_dir.server().await?;
    let empty = server.process.memory_bytes()?;
    let lead = LEAD_MIN + Duration::from_micros(jobs * LEAD_US_PER_JOB);
    let first_due_us = (wall_us() / 1_000) * 1_000 + i64::try_from(lead.as_micros())?;
    let due = DueTimes { first_us: first_due_us, jobs };
    let accepted_in = submit(&server, &due).await?;

    let address = server.address;
    server.process.stop().await?;
    let (server, start) = run_dir.server_at(address).await?;
    let start_cpu = server.process.cpu_us()?;
    let bytes_per_job = server.process.memory_bytes()?.saturating_sub(empty) as f64 / jobs as f64;
    let settings = SwarmSettings { workers: WORKERS, slots: SLOTS, attempts: AttemptHandling::Finish };
    let swarm = Swarm::start(server.address, settings)?;
    swarm.until_ready().await?;
    tokio::time::sleep(SETTLE).await;
    let (before, began) = (server.process.cpu_us()?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let idle = (server.process.cpu_us()? - before) / began.elapsed().as_micros() as f64 * 100.0;
    anyhow::ensure!(wall_us() < first_due_us, "this machine is so slow that jobs are due too early");

    let cpu = server.process.cpu_us()?;
    swarm.until_arrived(jobs).await?;
    let cpu = server.process.cpu_us()? - cpu;
    let mut late_ms: Vec<f64> =
        swarm.take_arrivals().into_iter().map(|(job, at)| (at - due.of_job(job)) as f64 / 1e3).collect();
    let early = late_ms.iter().filter(|late| **late < 0.0).count();
    crate::waiting::until_all_ended(&server).await?;
    drop(swarm);
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), 0)?;
    counts.require_success(jobs)?;

    let mut record = Record::new("lateness");
    record.set("jobs", jobs);
    record.set("due_within_s", DUE_WITHIN.as_secs());
    record.set("workers", WORKERS);
    record.set("slots", SLOTS);
    record.figure("accepted_s", accepted_in.as_secs_f64());
    record.figure("start_empty_s", empty_start.as_secs_f64());
    record.figure("start_s", start.as_secs_f64());
    record.figure("start_cpu_s", start_cpu / 1e6);
    record.figure("bytes_per_waiting_job_after_start", bytes_per_job);
    record.figure("idle_percent_of_a_core", idle);
    record.set("early", early);
    record.quantiles("late", &mut late_ms);
    record.figure("server_cpu_us_per_job", cpu / jobs as f64);
    record.set("verified", counts);
    record.print();
    Ok(())
}

/// The start times of the jobs: evenly spread, in the order of their numbers, in whole milliseconds.
struct DueTimes {
    first_us: i64,
    jobs: u64,
}

impl DueTimes {
    /// Microseconds since 1970.
    fn of_job(&self, job: u64) -> i64 {
        let offset_ms = (job - 1) * DUE_WITHIN.as_millis() as u64 / self.jobs;
        self.first_us + i64::try_from(offset_ms).unwrap_or(0) * 1_000
    }
}

/// Submits all jobs over one connection, so that their numbers are those of their start times; how long it took.
async fn submit(server: &Server, due: &DueTimes) -> anyhow::Result<Duration> {
    let mut connection = server.connect().await?;
    let mut took = Duration::ZERO;
    for first in (1..=due.jobs).step_by(BATCH as usize) {
        let mut lines = String::new();
        for job in first..first + BATCH {
            let at = rfc3339(due.of_job(job)).context("a start time out of range")?;
            writeln!(lines, "{{\"name\":\"{SILENT}\",\"run_at\":\"{at}\"}}")?;
        }
        let began = Instant::now();
        let body = Bytes::from(lines);
        let answer = connection.post("/api/jobs", NDJSON, &body, &mut Retries::default()).await?;
        took += began.elapsed();
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        anyhow::ensure!(answer["first"] == first, "job {first} got another number: {answer}");
    }
    Ok(took)
}

fn rfc3339(us: i64) -> Option<String> {
    let time = jiff::Timestamp::from_microsecond(us).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

const DUE_WITHIN: Duration = Duration::from_secs(60);
/// Time in which all jobs can be submitted, the server can be started again, and nothing is due yet.
const LEAD_MIN: Duration = Duration::from_secs(30);
const LEAD_US_PER_JOB: u64 = 40;
const BATCH: u64 = 1_000;
const WORKERS: u64 = 20;
const SLOTS: u32 = 64;
const SETTLE: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_are_spread_over_a_minute() {
        let due = DueTimes { first_us: 1_000_000, jobs: 60_000 };
        assert_eq!((due.of_job(1), due.of_job(2), due.of_job(60_000)), (1_000_000, 1_001_000, 60_999_000));
        assert_eq!(rfc3339(due.of_job(2)).as_deref(), Some("1970-01-01T00:00:01.001Z"));
    }
}
