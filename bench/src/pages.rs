//! Questions to a server with a million ended and a hundred thousand waiting jobs: its metrics, the pages of the dashboard, and lists
//! whose filters match nothing.

use std::time::Instant;

use bytes::Bytes;
use hyper::Method;

use crate::backlog::load;
use crate::load::{Connection, JSON, Load};
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, WorkerPool};
use crate::waiting;
use crate::workload::CAPACITY;

/// Takes the figures with this number of ended jobs, and a tenth of that waiting.
pub(crate) async fn measure(env: &BenchEnv, ended: u64) -> anyhow::Result<()> {
    log_progress(&format!("pages with {ended} ended jobs"));
    let run_dir = env.run_dir(JOBS_FILE)?;
    let (server, _) = run_dir.server().await?;
    let pool = WorkerPool { workers: 2, capacity: Some(CAPACITY), allow: Some("--allow-fake") };
    let workers = run_dir.workers(&server, &pool).await?;
    load(ended).submit(server.address).await?;
    waiting::until_all_ended(&server).await?;
    let waiting = Load { name: "absent", ..load(ended / 10) };
    waiting.submit(server.address).await?;

    let mut connection = server.connect().await?;
    for path in PATHS {
        let mut record = ask(&mut connection, &path.replace("{id}", &(ended / 2).to_string())).await?;
        record.set("ended", ended);
        record.set("waiting", waiting.total());
        record.print();
    }
    for worker in workers {
        worker.stop().await?;
    }
    server.process.stop().await
}

/// The same question some times, one after the other.
async fn ask(connection: &mut Connection, path: &str) -> anyhow::Result<Record> {
    let (mut times_ms, mut bytes) = (Vec::new(), 0);
    for _ in 0..QUESTIONS {
        let began = Instant::now();
        let (status, body) = connection.ask(Method::GET, path, JSON, Bytes::new()).await?;
        times_ms.push(began.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(status.is_success(), "GET {path} was answered {status}");
        bytes = body.len();
    }
    let mut record = Record::new("pages");
    record.set("path", path);
    record.set("bytes", bytes);
    record.figure("first_ms", times_ms[0]);
    record.quantiles("took", &mut times_ms);
    Ok(record)
}

const JOBS_FILE: &str = "\
version: 1
jobs:
  noop: { runtime: fake }
  absent: { runtime: fake, requires: { place: nowhere } }
";
/// Most of the filters match nothing.
const PATHS: [&str; 19] = [
    "/metrics",
    "/",
    "/jobs",
    "/jobs?state=failed",
    "/jobs?state=queued",
    "/jobs/{id}",
    "/workers",
    "/definitions",
    "/definitions/noop",
    "/schedules",
    "/batches",
    "/api/jobs",
    "/api/jobs?state=failed",
    "/api/jobs?state=lost,expired&name=noop",
    "/api/jobs?label=team%3Dnobody",
    "/api/jobs?exit_code=77",
    "/api/jobs?outcome=oom_killed",
    "/api/jobs?ended_until=2020-01-01T00:00:00Z",
    "/api/jobs?text=never",
];
const QUESTIONS: u32 = 21;
