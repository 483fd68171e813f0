//! Clients that only listen: a thousand followers of events and a thousand of output while nothing happens, and jobs per second with an open
//! dashboard and scraped metrics, in turns with nobody there.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;

use crate::fleet::percent_of_a_core;
use crate::load::{Connection, JSON, Pace, Retries};
use crate::record::{Record, log_progress};
use crate::run_dir::{Access, BenchEnv, WorkerPool};
use crate::stream_readers::StreamReaders;
use crate::throughput::{self, LoadSize, Run};
use crate::turns::{TURNS, medians};
use crate::workload::{BATCH, CONNECTIONS, WorkerSettings, Workload};

/// Takes all figures.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    quiet(env).await?;
    let [[alone], [watched]] = medians([false, true], async |is_watched| {
        let load = LoadSize { jobs, batch: BATCH, connections: CONNECTIONS, pace: Pace::Accepted };
        let (workload, access) = (Workload::Silent, Access::Open);
        let run = Run {
            bench: "followers",
            load,
            workload,
            history: 0,
            settings: WorkerSettings::Tuned,
            access,
            is_watched,
        };
        Ok([throughput::take(env, run).await?.jobs_per_s])
    })
    .await?;
    let mut record = Record::new("followers ratios");
    record.set("jobs", jobs);
    record.set("turns", TURNS);
    record.figure("alone_jobs_per_s", alone);
    record.figure("watched_to_alone", watched / alone);
    record.print();
    Ok(())
}

async fn quiet(env: &BenchEnv) -> anyhow::Result<()> {
    log_progress(&format!("{FOLLOWERS} followers of events and {FOLLOWERS} of output"));
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    let pool = WorkerPool { workers: 1, capacity: None, allow: Some("--allow-fake") };
    let workers = run_dir.workers(&server, &pool).await?;
    let mut connection = server.connect().await?;
    let answer = connection.post("/api/jobs/long", JSON, &Bytes::new(), &mut Retries::default()).await?;
    let job: serde_json::Value = serde_json::from_slice(&answer)?;
    let output = format!("/api/jobs/{}/logs?follow=1", job["id"].as_u64().context("no job was made")?);
    until_started(&mut connection).await?;
    let alone = percent_of_a_core(&server).await?;
    let empty = server.process.memory_bytes()?;
    let mut readers = StreamReaders::default();
    for _ in 0..FOLLOWERS {
        readers.follow(server.endpoint.clone(), "/api/events").await?;
        readers.follow(server.endpoint.clone(), &output).await?;
    }
    let share = percent_of_a_core(&server).await?;
    let bytes = server.process.memory_bytes()?.saturating_sub(empty);
    anyhow::ensure!(!readers.take_ended(), "the server has closed streams");
    drop(readers);
    for worker in workers {
        worker.stop().await?;
    }
    server.process.stop().await?;
    let mut record = Record::new("followers");
    record.set("of_events", FOLLOWERS);
    record.set("of_output", FOLLOWERS);
    record.figure("without_followers_percent_of_a_core", alone);
    record.figure("with_followers_percent_of_a_core", share);
    record.figure("memory_bytes_per_follower", bytes as f64 / (2 * FOLLOWERS) as f64);
    record.print();
    Ok(())
}

async fn until_started(connection: &mut Connection) -> anyhow::Result<()> {
    let began = Instant::now();
    while connection.read("/api/jobs?state=running").await?.as_array().is_none_or(Vec::is_empty) {
        anyhow::ensure!(began.elapsed() < START_MAX, "the job does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

const JOBS_FILE: &str = "\
version: 1
jobs:
  long: { runtime: fake, environment: { FAKE_SLEEP: 30m, FAKE_STDOUT: begun } }
";
const FOLLOWERS: u64 = 1_000;
const START_MAX: Duration = Duration::from_secs(30);
