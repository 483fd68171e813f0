//! Memory that a waiting job costs, and whether jobs are accepted as fast when many wait. No worker is there.
//!
//! Memory is read twice: as it is after submission, with whatever the allocator holds back (nobody outside of the process can have that
//! given back), and after a restart, when nothing but the waiting jobs has ever been in it. The rate at each size is that of the jobs that
//! come next, so few of them that the size is still what it is called, on nine stores, each filled anew: the median, and the slowest one, in
//! which the store's log was written back or a table grew.

use crate::database::Counts;
use crate::load::{Load, Pace};
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, RunDir, Server};
use crate::workload::{JOBS_FILE, SILENT};

/// Takes the figures at a hundredth, a tenth and all of `jobs`.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    let empty_restarted = after_restart(env, 0).await?;
    for waiting in [jobs / 100, jobs / 10, jobs] {
        log_progress(&format!("{waiting} waiting jobs"));
        let submitted = after_submission(env, waiting).await?;
        let restarted = after_restart(env, waiting).await?.saturating_sub(empty_restarted);
        let mut rates = Vec::with_capacity(WINDOWS);
        for _ in 0..WINDOWS {
            rates.push(rate(env, waiting).await?);
        }
        rates.sort_unstable_by(f64::total_cmp);

        let mut record = Record::new("backlog");
        // Whole batches may be more than what was asked for.
        let total = load(waiting).total();
        record.set("waiting", total);
        record.figure("bytes_per_job", submitted as f64 / total as f64);
        record.figure("bytes_per_job_restarted", restarted as f64 / total as f64);
        record.set("window", window(waiting).total());
        record.set("windows", WINDOWS);
        record.figure("accepted_per_s", rates[WINDOWS / 2]);
        record.figure("accepted_per_s_slowest", rates[0]);
        record.print();
    }
    Ok(())
}

/// The memory that this number of jobs adds to a server which has seen some already.
async fn after_submission(env: &BenchEnv, waiting: u64) -> anyhow::Result<u64> {
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    // One-time memory of the server (connections, statements, threads) is not charged to waiting jobs.
    load(WARM_UP).submit(server.address).await?;
    let before = server.process.memory_bytes()?;
    load(waiting).submit(server.address).await?;
    let after = server.process.memory_bytes()?;
    close(&run_dir, server, load(WARM_UP).total() + load(waiting).total()).await?;
    Ok(after.saturating_sub(before))
}

/// The memory of a server that has just been started with this number of waiting jobs.
async fn after_restart(env: &BenchEnv, waiting: u64) -> anyhow::Result<u64> {
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    load(waiting).submit(server.address).await?;
    server.process.stop().await?;
    let (server, _) = run_dir.server().await?;
    let bytes = server.process.memory_bytes()?;
    close(&run_dir, server, load(waiting).total()).await?;
    Ok(bytes)
}

/// How many jobs a second are accepted behind this number of waiting ones.
async fn rate(env: &BenchEnv, waiting: u64) -> anyhow::Result<f64> {
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    load(waiting).submit(server.address).await?;
    let window = window(waiting);
    let took = window.submit(server.address).await?.took;
    close(&run_dir, server, load(waiting).total() + window.total()).await?;
    Ok(window.total() as f64 / took.as_secs_f64())
}

/// Stops the server, and fails unless exactly this number of jobs waits in its database.
async fn close(run_dir: &RunDir, server: Server, live: u64) -> anyhow::Result<()> {
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), 0)?;
    anyhow::ensure!(counts == Counts { live, ..Counts::default() }, "the database says {counts:?}");
    Ok(())
}

/// The jobs by which the rate is taken: as many for each connection, and less than half of those that wait.
fn window(waiting: u64) -> Load {
    load((waiting * 2 / 5).min(WINDOW_MAX))
}

/// Batches of 1,000, if there are as many, over four connections.
pub(crate) fn load(jobs: u64) -> Load {
    Load { jobs, batch: jobs.clamp(1, 1_000), connections: 4, name: SILENT, pace: Pace::Accepted }
}

const WARM_UP: u64 = 5_000;
/// A multiple of what all connections carry at once.
const WINDOW_MAX: u64 = 40_000;
const WINDOWS: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_small_against_what_waits_and_the_same_for_each_connection() {
        for (waiting, jobs) in [(10_000, 4_000), (100_000, 40_000), (1_000_000, 40_000)] {
            let window = window(waiting);
            assert_eq!((window.total(), window.total() % (window.batch * window.connections)), (jobs, 0));
            assert!(window.total() * 2 < waiting);
        }
    }
}
