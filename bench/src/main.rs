//! Measures Longshore as its users meet it: real server and worker processes, HTTP and WebSocket on loopback, SQLite on disk.
//!
//! Each result is one line of JSON on standard output, with every parameter that it depends on; progress is printed on
//! standard error. After each run the database is read again, and every job, attempt and stored byte of output is counted; a figure is
//! printed only if the counts are right.
//! `docs/performance.md` quotes what this prints.

mod access;
mod array;
mod backlog;
mod containers;
mod database;
mod decisions;
mod fleet;
mod followers;
mod job_cost;
mod latency;
mod lateness;
mod load;
mod output;
mod pages;
mod probe;
mod processes;
mod record;
mod restart;
mod rules;
mod run_dir;
mod schedules;
mod singles;
mod stall;
mod stream_readers;
mod swarm;
mod throughput;
mod turns;
mod waiting;
mod workload;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::decisions::Scale;
use crate::run_dir::BenchEnv;

/// Measure Longshore on this machine. Stop everything else first.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  cargo run --release -p longshore-bench -- throughput > results.jsonl")]
struct Flags {
    /// The measurement to run.
    #[arg(value_enum)]
    what: What,
    /// Parent of the data directories, on a real disk; they are removed afterwards.
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    dir: PathBuf,
    /// The program to measure; by default the release build, which is built first.
    #[arg(long, value_name = "FILE")]
    longshore: Option<PathBuf>,
    /// How many jobs (of `decisions`: cycles; of `schedules`: schedules), instead of the number that the measurement is defined with.
    #[arg(long, value_name = "N")]
    jobs: Option<u64>,
    /// The only question of `decisions` to answer, as its results name it, for a profile of it.
    #[arg(long, value_name = "NAME")]
    question: Option<String>,
    /// How many simulated workers `fleet` and `job-cost` have.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    workers: u64,
    /// How many times each figure is taken.
    #[arg(long, default_value_t = 1, value_name = "N")]
    repeat: u32,
    /// Measure `throughput` and `singles` also on a store with this many ended jobs; 0 leaves it out.
    #[arg(long, default_value_t = 2_000_000, value_name = "N")]
    history: u64,
    /// The image for `containers`, already pulled, with the command `true`.
    #[arg(long, default_value = "busybox", value_name = "IMAGE")]
    image: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Batches of 1,000, end to end.
    Throughput,
    /// A request per job, end to end, over 64 connections.
    Singles,
    /// The time from a POST to the job's start on an idle server.
    Latency,
    /// How long single POSTs take while batches of 100,000 are accepted, and while none is.
    BatchStall,
    /// Memory per waiting job, and how fast they are accepted, at 10,000, 100,000 and 1,000,000.
    Backlog,
    /// The time until a restarted server with 1,000,000 waiting jobs is ready.
    Restart,
    /// Docker containers, against `docker run` itself.
    Containers,
    /// The command `true` as a plain process, without a container.
    Processes,
    /// Processor time of the scheduler's decisions at different sizes, as ratios; nothing else is started.
    Decisions,
    /// 10,000 connected workers: idle, and after a crash of the server.
    Fleet,
    /// Single POSTs with 10 and with 10,000 workers, and beside 5,000 definitions whose jobs wait, in turns.
    JobCost,
    /// Batches with limits, labels and priorities of 1,000 definitions, in turns with batches without.
    Rules,
    /// 1,000,000 jobs with start times within a minute.
    Lateness,
    /// 100,000 schedules that fire once an hour.
    Schedules,
    /// 100,000 jobs in one request.
    Array,
    /// Metrics, pages and lists with 1,000,000 ended and 100,000 waiting jobs.
    Pages,
    /// Single POSTs to a server that is open, with tokens, and with TLS as well, in turns.
    Access,
    /// 1,000 followers of events and of output while nothing happens; batches with an open dashboard, in turns.
    Followers,
    /// All of them.
    All,
}

fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    if matches!(flags.what, What::Decisions | What::All) {
        for _ in 0..flags.repeat {
            let cycles = flags.jobs.unwrap_or(CYCLES_PER_WINDOW);
            decisions::measure(cycles, Scale::full(), flags.question.as_deref())?;
        }
    }
    if flags.what == What::Decisions {
        return Ok(());
    }
    let env = BenchEnv::prepare(&flags.dir, flags.longshore.as_deref())?;
    // One thread: the load generator shares two cores with what it measures.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(&flags, &env))
}

async fn measure(flags: &Flags, env: &BenchEnv) -> anyhow::Result<()> {
    let wanted = |what| flags.what == what || flags.what == What::All;
    for _ in 0..flags.repeat {
        if wanted(What::Throughput) {
            throughput::measure(env, flags.jobs.unwrap_or(500_000), flags.history).await?;
        }
        if wanted(What::Singles) {
            singles::measure(env, flags.jobs.unwrap_or(500_000), flags.history).await?;
        }
        if wanted(What::Latency) {
            latency::measure(env, flags.jobs.unwrap_or(1_000)).await?;
        }
        if wanted(What::BatchStall) {
            stall::measure(env, flags.jobs.unwrap_or(100_000)).await?;
        }
        if wanted(What::Backlog) {
            backlog::measure(env, flags.jobs.unwrap_or(1_000_000)).await?;
        }
        if wanted(What::Restart) {
            restart::measure(env, flags.jobs.unwrap_or(1_000_000)).await?;
        }
        if wanted(What::Containers) {
            containers::measure(env, flags.jobs.unwrap_or(42), &flags.image).await?;
        }
        if wanted(What::Processes) {
            processes::measure(env, flags.jobs.unwrap_or(4_000)).await?;
        }
        if wanted(What::Fleet) {
            fleet::measure(env, flags.workers).await?;
        }
        if wanted(What::JobCost) {
            job_cost::measure(env, flags.jobs.unwrap_or(50_000), flags.workers).await?;
        }
        if wanted(What::Rules) {
            rules::measure(env, flags.jobs.unwrap_or(500_000)).await?;
        }
        if wanted(What::Lateness) {
            lateness::measure(env, flags.jobs.unwrap_or(1_000_000)).await?;
        }
        if wanted(What::Schedules) {
            schedules::measure(env, flags.jobs.unwrap_or(100_000)).await?;
        }
        if wanted(What::Array) {
            array::measure(env, flags.jobs.unwrap_or(100_000)).await?;
        }
        if wanted(What::Access) {
            access::measure(env, flags.jobs.unwrap_or(100_000)).await?;
        }
        if wanted(What::Followers) {
            followers::measure(env, flags.jobs.unwrap_or(500_000)).await?;
        }
        if wanted(What::Pages) {
            pages::measure(env, flags.jobs.unwrap_or(1_000_000)).await?;
        }
    }
    Ok(())
}

/// They take tens of milliseconds, far more than the clock's step.
const CYCLES_PER_WINDOW: u64 = 10_000;
