//! (c) What a waiting job costs in memory, and whether jobs are accepted as fast when many wait. No worker is there.
//!
//! Memory is read twice: as it is after submission, with whatever the allocator holds back (nobody outside of the process can have that
//! given back), and after a restart, when nothing but the waiting jobs has ever been in it. The rate at each size is taken over nine
//! windows of 50,000 jobs that follow: the median, and the slowest one, in which the store's log was written back or a table grew.

use crate::database::Counts;
use crate::load::Load;
use crate::record::{Record, tell};
use crate::stage::Place;
use crate::throughput::{JOBS_FILE, SILENT};

/// Takes the figures at a hundredth, a tenth and all of `jobs`.
pub(crate) async fn measure(place: &Place, jobs: u64) -> anyhow::Result<()> {
    let empty_restarted = after_restart(place, 0).await?;
    for waiting in [jobs / 100, jobs / 10, jobs] {
        tell(&format!("{waiting} waiting jobs"));
        let stage = place.stage(JOBS_FILE)?;
        let (server, _) = stage.server().await?;
        // What the server needs once (connections, statements, threads) is not charged to waiting jobs.
        load(WARM_UP).submit(server.address).await?;
        let before = server.process.memory_bytes()?;
        load(waiting).submit(server.address).await?;
        let after = server.process.memory_bytes()?;
        let mut rates = Vec::with_capacity(WINDOWS);
        for _ in 0..WINDOWS {
            let window = load(WINDOW).submit(server.address).await?;
            rates.push(WINDOW as f64 / window.took.as_secs_f64());
        }
        rates.sort_unstable_by(f64::total_cmp);
        server.process.stop().await?;
        let counts = Counts::read(&stage.data(), 0)?;
        anyhow::ensure!(
            counts.live == WARM_UP + load(waiting).total() + WINDOW * WINDOWS as u64,
            "the database says {counts:?}"
        );

        let restarted = after_restart(place, waiting).await?;
        let mut record = Record::new("backlog");
        record.set("waiting", waiting);
        record.figure("bytes_per_job", after.saturating_sub(before) as f64 / waiting as f64);
        record.figure(
            "bytes_per_job_restarted",
            restarted.saturating_sub(empty_restarted) as f64 / waiting as f64,
        );
        record.set("window", WINDOW);
        record.set("windows", WINDOWS);
        record.figure("accepted_per_s", rates[WINDOWS / 2]);
        record.figure("accepted_per_s_slowest", rates[0]);
        record.set("verified", counts);
        record.print();
    }
    Ok(())
}

/// The memory of a server that has just been started with so many waiting jobs.
async fn after_restart(place: &Place, waiting: u64) -> anyhow::Result<u64> {
    let stage = place.stage(JOBS_FILE)?;
    let (server, _) = stage.server().await?;
    load(waiting).submit(server.address).await?;
    server.process.stop().await?;
    let (server, _) = stage.server().await?;
    let bytes = server.process.memory_bytes()?;
    server.process.stop().await?;
    Ok(bytes)
}

/// Batches of 1,000, if there are as many, over four connections.
pub(crate) fn load(jobs: u64) -> Load {
    Load { jobs, batch: jobs.clamp(1, 1_000), connections: 4, name: SILENT }
}

const WARM_UP: u64 = 5_000;
const WINDOW: u64 = 50_000;
const WINDOWS: usize = 9;
