//! An array: many jobs alike in one request.

use std::time::Instant;

use bytes::Bytes;

use crate::database::Counts;
use crate::load::{JSON, Retries};
use crate::record::{Record, log_progress};
use crate::run_dir::BenchEnv;
use crate::workload::{JOBS_FILE, SILENT};

/// Takes the figure: from the request until all jobs are durable and visible.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    log_progress(&format!("arrays of {jobs} jobs"));
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    let mut connection = server.connect().await?;
    let body = Bytes::from(format!("{{\"count\":{jobs}}}"));
    let path = format!("/api/jobs/{SILENT}");
    let mut times_ms = Vec::new();
    let cpu = server.process.cpu_us()?;
    for _ in 0..ARRAYS {
        let began = Instant::now();
        connection.post(&path, JSON, &body, &mut Retries::default()).await?;
        times_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let cpu = server.process.cpu_us()? - cpu;
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), 0)?;
    anyhow::ensure!(
        counts == Counts { live: jobs * ARRAYS, ..Counts::default() },
        "the database says {counts:?}"
    );

    let mut record = Record::new("array");
    record.set("jobs", jobs);
    record.set("arrays", ARRAYS);
    record.quantiles("accepted", &mut times_ms);
    record.figure("server_cpu_us_per_job", cpu / (jobs * ARRAYS) as f64);
    record.print();
    Ok(())
}

const ARRAYS: u64 = 9;
