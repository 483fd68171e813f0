//! How long single POSTs take while a large batch is accepted, against those when none is: a batch must not be noticed by others.
//!
//! The batch is sent by a thread of its own, so that what is measured is not this process putting its body on the wire. Once with
//! entries that are as short as can be, once with as much in them as one request may hold.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::database::Counts;
use crate::load::{Connection, JSON, NDJSON, Retries};
use crate::record::{Record, log_progress};
use crate::run_dir::BenchEnv;
use crate::workload::{JOBS_FILE, SILENT};

/// Takes the figures, for batches with this number of jobs.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    for (kind, line) in [("short", short()), ("long", long(jobs))] {
        log_progress(&format!("single jobs beside batches of {jobs} {kind} entries"));
        let run_dir = env.run_dir(JOBS_FILE)?;
        let (server, _) = run_dir.server().await?;
        let body = Bytes::from(line.repeat(usize::try_from(jobs)?));
        let body_bytes = body.len();
        // Connections, statements and tables are there before anything is measured.
        let mut singles = beside(server.address, None).await?.len() as u64;

        let mut quiet_ms = beside(server.address, None).await?;
        singles += quiet_ms.len() as u64;
        let (mut during_ms, mut batch_ms) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let times = beside(server.address, Some(body.clone())).await?;
            batch_ms.push(began.elapsed().as_secs_f64() * 1_000.0);
            singles += times.len() as u64;
            during_ms.extend(times);
        }
        server.process.stop().await?;
        let counts = Counts::read(&run_dir.data(), 0)?;
        ensure!(counts.live == singles + ROUNDS * jobs, "the database says {counts:?}");

        let mut record = Record::new("batch-stall");
        record.set("entries", kind);
        record.set("batch", jobs);
        record.set("body_bytes", body_bytes);
        record.set("connections", CONNECTIONS);
        record.set("pause_ms", PAUSE.as_millis() as u64);
        record.set("singles_quiet", quiet_ms.len());
        record.quantiles("quiet", &mut quiet_ms);
        record.set("singles_during", during_ms.len());
        record.quantiles("during", &mut during_ms);
        record.quantiles("batch", &mut batch_ms);
        record.set("verified", counts);
        record.print();
    }
    Ok(())
}

/// How long single POSTs take, in milliseconds: while this batch is accepted, or for a while.
async fn beside(address: SocketAddr, batch: Option<Bytes>) -> anyhow::Result<Vec<f64>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let connection = Connection::open(address).await?;
        clients.spawn(singles(connection, is_over.clone()));
    }
    match batch {
        Some(body) => send(address, body, is_over)?,
        None => {
            tokio::time::sleep(QUIET).await;
            is_over.store(true, Ordering::Relaxed);
        }
    }
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client??);
    }
    Ok(times)
}

/// Posts one job after the other until it is over.
async fn singles(mut connection: Connection, is_over: Arc<AtomicBool>) -> anyhow::Result<Vec<f64>> {
    let path = format!("/api/jobs/{SILENT}");
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        connection.post(&path, JSON, &Bytes::new(), &mut Retries::default()).await?;
        times.push(began.elapsed().as_secs_f64() * 1_000.0);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(times)
}

/// Posts a batch; once it is answered, it is over.
fn send(address: SocketAddr, body: Bytes, is_over: Arc<AtomicBool>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let post = async move {
        let mut connection = Connection::open(address).await?;
        connection.post("/api/jobs", NDJSON, &body, &mut Retries::default()).await
    };
    thread::Builder::new()
        .name("batch".into())
        .spawn(move || {
            if let Err(error) = runtime.block_on(post) {
                // The counts at the end say so, too.
                log_progress(&format!("the batch was not accepted: {error:#}"));
            }
            is_over.store(true, Ordering::Relaxed);
        })
        .context("cannot start a thread")?;
    Ok(())
}

fn short() -> String {
    format!("{{\"name\":\"{SILENT}\"}}\n")
}

/// As long as 64 MiB hold `jobs` of them.
fn long(jobs: u64) -> String {
    let room = (BODY_BYTES_MAX / jobs.max(1)).saturating_sub(64).min(64 << 10);
    let word = "x".repeat(usize::try_from(room).unwrap_or(0));
    format!("{{\"name\":\"{SILENT}\",\"args\":[\"{word}\"]}}\n")
}

/// How often a batch is sent.
const ROUNDS: u64 = 5;
/// How long single jobs are posted when there is no batch.
const QUIET: Duration = Duration::from_secs(3);
const CONNECTIONS: u64 = 4;
/// Between an answer and the next request on its connection: the server has time left.
const PAUSE: Duration = Duration::from_millis(2);
/// The largest request body that the server takes.
const BODY_BYTES_MAX: u64 = 64 << 20;
