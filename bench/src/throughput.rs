//! Batches of 1,000 jobs through two workers, from the first request to the last end: durably accepted, durably
//! ended. The bench also waits for their output, and reports it beside.

use anyhow::Context as _;
use server::logs::OutputTotals;

use crate::database::{self, Counts};
use crate::load::{Load, Pace};
use crate::output;
use crate::record::{Record, log_progress};
use crate::run_dir::{Access, BenchEnv, Process, RunDir, Server, WorkerCapacity, WorkerPool};
use crate::stream_readers::StreamReaders;
use crate::waiting;
use crate::workload::{self, BATCH, CONNECTIONS, SILENT, TALKATIVE, WorkerSettings, Workload};

/// Parameters that differ between runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Name of the run in the results.
    pub(crate) bench: &'static str,
    /// The submissions.
    pub(crate) load: LoadSize,
    /// The definitions and the output of the jobs.
    pub(crate) workload: Workload,
    /// Ended jobs in the store before it begins.
    pub(crate) history: u64,
    /// Slots and backlog of the workers.
    pub(crate) settings: WorkerSettings,
    /// Protection of the server.
    pub(crate) access: Access,
    /// True if a dashboard is open and metrics are scraped meanwhile.
    pub(crate) is_watched: bool,
}

/// The size of the submissions of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSize {
    /// Number of jobs.
    pub(crate) jobs: u64,
    /// Jobs in one request.
    pub(crate) batch: u64,
    /// Number of connections.
    pub(crate) connections: u64,
    /// When each of them sends its next batch.
    pub(crate) pace: Pace,
}

/// Figures that runs are compared by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunFigures {
    /// Processor time of the server for each job, in microseconds.
    pub(crate) server_cpu_us: f64,
    /// Jobs that ended in a second.
    pub(crate) jobs_per_s: f64,
}

/// Measures each variant with batches of 1,000 jobs.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64, history: u64) -> anyhow::Result<()> {
    let load = LoadSize { jobs, batch: BATCH, connections: CONNECTIONS, pace: Pace::Accepted };
    for (settings, workload, history) in variants(history) {
        let access = Access::Open;
        let run = Run { bench: "throughput", load, workload, history, settings, access, is_watched: false };
        take(env, run).await?;
    }
    Ok(())
}

/// Tuned before default settings, without output before with, on an empty store before a full one.
pub(crate) fn variants(history: u64) -> Vec<(WorkerSettings, Workload, u64)> {
    let mut all = Vec::new();
    for ended in [0, history] {
        for settings in [WorkerSettings::Tuned, WorkerSettings::Default] {
            all.extend([(settings, Workload::Silent, ended), (settings, Workload::Talkative, ended)]);
        }
        if history == 0 {
            break;
        }
    }
    all
}

/// Measures one run.
pub(crate) async fn take(env: &BenchEnv, run: Run) -> anyhow::Result<RunFigures> {
    log_progress(&format!("{run:?}"));
    let run_dir = env.run_dir(&run.workload.jobs_file())?.with_access(run.access)?;
    let (server, _) = run_dir.server().await?;
    let pool = WorkerPool { workers: 2, capacity: run.settings.capacity(), allow: Some("--allow-fake") };
    let workers = run_dir.workers(&server, &pool).await?;
    let before = grow_history(&server, run.history).await?;
    let mut readers =
        if run.is_watched { Some(StreamReaders::dashboard(&server.endpoint).await?) } else { None };

    let LoadSize { jobs, batch, connections, pace } = run.load;
    let output_bytes_per_job = run.workload.output_bytes_per_job();
    let has_output = output_bytes_per_job > 0;
    let name = if has_output { TALKATIVE } else { SILENT };
    let load = Load { jobs, batch, connections, name, pace };
    let cpu = CpuTime::now(&server, &workers)?;
    let submitted = match run.workload {
        Workload::Silent | Workload::Talkative => load.submit(server.endpoint.clone()).await?,
        Workload::Many | Workload::Ruled => {
            load.send(server.endpoint.clone(), "/api/jobs", workload::batch_of_many(batch).into()).await?
        }
    };
    let ended = waiting::until_all_ended(&server).await?;
    let written = written(output_bytes_per_job, load.total())?;
    let stored = if has_output { Some(output::until_stored(&run_dir.data(), written).await?) } else { None };
    let cpu = CpuTime::now(&server, &workers)?.since(cpu);
    let was_watched = readers.as_mut().is_none_or(|readers| !readers.take_ended());
    anyhow::ensure!(was_watched, "the dashboard or the scraper has given up");
    drop(readers);

    let seconds = ended.duration_since(submitted.began).as_secs_f64();
    let total = load.total() as f64;
    let mut record = Record::new(run.bench);
    record.set("access", run.access.name());
    record.set("is_watched", run.is_watched);
    record.set("settings", run.settings.name());
    record.set("workers", pool.workers);
    if let Some(WorkerCapacity { slots, backlog }) = pool.capacity {
        record.set("slots", slots);
        record.set("backlog", backlog);
    }
    record.set("jobs", load.total());
    record.set("batch", batch);
    record.set("connections", connections);
    record.set("pace", format!("{pace:?}").to_lowercase());
    record.set("output_bytes_per_job", output_bytes_per_job);
    record.set("history", before);
    record.figure("seconds", seconds);
    if let Some(stored) = stored {
        // Jobs do not wait for their output: it may be there before the last of them has ended.
        record.figure("output_seconds", stored.duration_since(submitted.began).as_secs_f64());
    }
    let figures = RunFigures { server_cpu_us: cpu.server / total, jobs_per_s: total / seconds };
    record.set("workload", format!("{:?}", run.workload).to_lowercase());
    record.figure("jobs_per_s", figures.jobs_per_s);
    record.figure("accepted_per_s", total / submitted.took.as_secs_f64());
    record.figure("server_cpu_us_per_job", figures.server_cpu_us);
    record.figure("workers_cpu_us_per_job", cpu.workers / total);
    record.figure("load_cpu_us_per_job", cpu.load / total);
    record.set("requests_sent_again", submitted.retries);
    record.figure("server_memory_mib", server.process.memory_bytes()? as f64 / 1_048_576.0);
    close(&run_dir, server, workers, before, &load, written, record).await?;
    Ok(figures)
}

/// Stops everything, asks the database, and prints the result if the database confirms it.
async fn close(
    run_dir: &RunDir,
    server: Server,
    workers: Vec<Process>,
    before: u64,
    load: &Load,
    written: OutputTotals,
    mut record: Record,
) -> anyhow::Result<()> {
    for worker in workers {
        worker.stop().await?;
    }
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), before)?;
    counts.require_success(load.total())?;
    anyhow::ensure!(
        counts.output_bytes == written.bytes,
        "{} bytes of output instead of {}, by the final reports",
        counts.output_bytes,
        written.bytes
    );
    output::require(&run_dir.data(), written)?;
    record.set("verified", counts);
    record.set("stored_bytes", written.bytes);
    record.figure("database_mib", database::bytes(&run_dir.data())? as f64 / 1_048_576.0);
    record.print();
    Ok(())
}

/// The output of jobs that write this number of bytes each.
fn written(bytes: u64, jobs: u64) -> anyhow::Result<OutputTotals> {
    Ok(match bytes {
        0 => OutputTotals::default(),
        bytes => OutputTotals { attempts: usize::try_from(jobs)?, bytes: jobs * bytes },
    })
}

/// Fills a store with ended jobs, by running them; the number of the last one.
async fn grow_history(server: &Server, jobs: u64) -> anyhow::Result<u64> {
    if jobs == 0 {
        return Ok(0);
    }
    log_progress(&format!("running {jobs} jobs first, for the history"));
    let load = Load { jobs, batch: BATCH, connections: CONNECTIONS, name: SILENT, pace: Pace::Accepted };
    load.submit(server.endpoint.clone()).await?;
    waiting::until_all_ended(server).await?;
    let newest = server.connect().await?.read("/api/jobs?limit=1").await?;
    newest[0]["id"].as_u64().context("the list of jobs has no id")
}

/// Processor time since the start of each process, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    /// Of the server.
    pub(crate) server: f64,
    /// Of all workers together.
    pub(crate) workers: f64,
    /// Of this program.
    pub(crate) load: f64,
}

impl CpuTime {
    /// Reads the processor time so far.
    pub(crate) fn now(server: &Server, workers: &[Process]) -> anyhow::Result<Self> {
        let mut sum = 0.0;
        for worker in workers {
            sum += worker.cpu_us()?;
        }
        let load = crate::probe::cpu_us(std::process::id())?;
        Ok(Self { server: server.process.cpu_us()?, workers: sum, load })
    }

    /// The difference to an earlier reading.
    pub(crate) fn since(self, then: Self) -> Self {
        Self {
            server: self.server - then.server,
            workers: self.workers - then.workers,
            load: self.load - then.load,
        }
    }
}
