//! How long a server needs until it is ready when many jobs wait: after it was stopped, and after it was killed.

use crate::backlog::load;
use crate::database::Counts;
use crate::record::{Record, log_progress};
use crate::run_dir::BenchEnv;
use crate::workload::JOBS_FILE;

/// Takes the figures.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    log_progress(&format!("restart with {jobs} waiting jobs"));
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, empty) = run_dir.server().await?;
    load(jobs).submit(server.address).await?;
    server.process.stop().await?;
    let (server, after_stop) = run_dir.server().await?;
    server.process.crash().await?;
    let (server, after_crash) = run_dir.server().await?;
    let cpu = server.process.cpu_us()?;
    let (memory, peak) = (server.process.memory_bytes()?, server.process.peak_memory_bytes()?);
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), 0)?;
    anyhow::ensure!(counts.live == load(jobs).total(), "the database says {counts:?}");

    let mut record = Record::new("restart");
    record.set("waiting", load(jobs).total());
    record.figure("empty_s", empty.as_secs_f64());
    record.figure("after_stop_s", after_stop.as_secs_f64());
    record.figure("after_crash_s", after_crash.as_secs_f64());
    record.figure("after_crash_cpu_s", cpu / 1e6);
    record.figure("memory_mib", memory as f64 / 1_048_576.0);
    record.figure("peak_memory_mib", peak as f64 / 1_048_576.0);
    record.set("verified", counts);
    record.print();
    Ok(())
}
