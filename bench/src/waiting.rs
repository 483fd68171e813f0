//! Waiting until a server has nothing left to do, without keeping it busy with questions.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::run_dir::Server;

/// Waits until every job has ended; the instant at which it was seen.
///
/// # Errors
/// The server does not answer, or for a minute neither the load of the workers nor the newest job has changed.
pub(crate) async fn until_all_ended(server: &Server) -> anyhow::Result<Instant> {
    let mut connection = server.connect().await?;
    let mut last_progress = Instant::now();
    let mut last_newest = None;
    let mut last_load = None;
    loop {
        // The workers are asked first: that is a snapshot in memory. Only when they are idle the rows are looked at.
        let workers = connection.read("/api/workers").await?;
        let load: Option<Vec<_>> = workers.as_array().map(|all| all.iter().map(load_of).collect());
        let is_idle = load.as_ref().is_some_and(|load| load.iter().all(|(busy, queued)| busy + queued == 0));
        let seen = Instant::now();
        if load != last_load {
            (last_load, last_progress) = (load, seen);
        }
        if is_idle {
            let live = connection.read(LIVE).await?;
            let newest = live.as_array().and_then(|jobs| jobs.first()).map(|job| job["id"].clone());
            if newest.is_none() {
                return Ok(seen);
            }
            if newest != last_newest {
                (last_newest, last_progress) = (newest, seen);
            }
        }
        if last_progress.elapsed() > STANDSTILL_MAX {
            let stuck = connection.read(LIVE).await?;
            bail!(
                "nothing has moved for {STANDSTILL_MAX:?}; the newest of those left: {stuck}; workers: {workers}"
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Attempts of a worker that run, and that wait in its backlog.
fn load_of(worker: &serde_json::Value) -> (u64, u64) {
    let number = |key: &str| worker[key].as_u64().unwrap_or(0);
    (number("busy"), number("queued"))
}

const LIVE: &str = "/api/jobs?state=scheduled,queued,assigned,running,quarantined&limit=1";
/// Fine enough for runs of seconds, and rare enough to cost the server less than a hundredth of a core.
const PAUSE: Duration = Duration::from_millis(20);
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
