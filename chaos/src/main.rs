//! `longshore-chaos`: injects faults into real servers and workers and checks that every promise was kept.
//!
//! Each round prints its seed at its start and one line of JSON at its end. The exit code is 0 if no violation was found.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use longshore_chaos::round::{self, Plan};
use longshore_chaos::stats::RoundStats;
use longshore_chaos::system::RoundPaths;
use longshore_chaos::{check, engine, plans};
use testkit::SeededRng;
use tokio::signal::unix::{SignalKind, signal};

/// Inject faults into real servers and workers, and check that every promise was kept
#[derive(Debug, Parser)]
struct Flags {
    /// Directory for the rounds. The directory of a round with findings is kept.
    #[arg(long, default_value = "target/chaos", value_name = "DIR", global = true)]
    dir: PathBuf,
    /// The longshore program [default: the one of this build, which is built first].
    #[arg(long, value_name = "FILE", global = true)]
    longshore: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Play one round without privileges: 100 kills of the server, 30 of workers, and a few other faults
    Short {
        /// Seed for all random choices [default: a random one, which is printed].
        #[arg(long, env = "LONGSHORE_SEED")]
        seed: Option<u64>,
        /// Run no containers.
        #[arg(long)]
        no_docker: bool,
    },
    /// Play rounds of every kind until the targets are reached or the time is up; can be interrupted and continued. Needs root
    Long {
        /// File to which the result of each round is appended.
        #[arg(long, default_value = "target/chaos/results.jsonl", value_name = "FILE")]
        results: PathBuf,
        /// Start no round after this many minutes.
        #[arg(long, value_name = "N")]
        minutes: Option<u64>,
        /// Seed from which the seeds of the rounds are drawn [default: a random one]. The result of a round has its own seed.
        #[arg(long, env = "LONGSHORE_SEED")]
        seed: Option<u64>,
    },
    /// Play one round of the long run, by its name
    Round {
        /// The name of the round.
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(plans::names()))]
        name: String,
        /// Seed for all random choices [default: a random one, which is printed].
        #[arg(long, env = "LONGSHORE_SEED")]
        seed: Option<u64>,
        /// File to which the result is appended.
        #[arg(long, value_name = "FILE")]
        results: Option<PathBuf>,
    },
    /// Sum the results of the long run and show how much of the targets is reached
    Report {
        /// File with the results.
        #[arg(default_value = "target/chaos/results.jsonl", value_name = "FILE")]
        results: PathBuf,
    },
    /// Check a round again whose directory was kept
    Check {
        /// The directory of the round.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Flags::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("longshore-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns true if no violation was found.
fn run(flags: Flags) -> anyhow::Result<bool> {
    match &flags.verb {
        Verb::Short { seed, no_docker } => {
            let plan = plans::short(seed.unwrap_or_else(SeededRng::random_seed), !no_docker);
            let stats = run_round(&plan, &prepare(&flags)?)?;
            println!("{}", serde_json::to_string(&stats)?);
            Ok(stats.is_clean())
        }
        Verb::Long { results, minutes, seed } => {
            let paths = prepare(&flags)?;
            let until = minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
            let mut rng = SeededRng::new(seed.unwrap_or_else(SeededRng::random_seed));
            loop {
                let sum = RoundStats::sum(results)?;
                let is_done = plans::progress(&sum).iter().all(|(_, count, target)| count >= target);
                if is_done || until.is_some_and(|until| Instant::now() > until) {
                    return report(&sum);
                }
                let stats = run_round(&plans::long(sum.rounds, rng.below(u64::MAX)), &paths)?;
                println!("{}", serde_json::to_string(&stats)?);
                stats.append(results)?;
            }
        }
        Verb::Round { name, seed, results } => {
            let seed = seed.unwrap_or_else(SeededRng::random_seed);
            let plan = plans::named(name, seed).context("no such round")?;
            let stats = run_round(&plan, &prepare(&flags)?)?;
            println!("{}", serde_json::to_string(&stats)?);
            if let Some(results) = results {
                stats.append(results)?;
            }
            Ok(stats.is_clean())
        }
        Verb::Report { results } => report(&RoundStats::sum(results)?),
        Verb::Check { directory } => {
            let findings = check::check(&round::read_evidence(directory)?);
            for finding in &findings {
                println!("{finding}");
            }
            println!("{} findings", findings.len());
            Ok(findings.is_empty())
        }
    }
}

/// Plays a round. A round that panics is a result, too; an interrupted one cleans up and is none.
fn run_round(plan: &Plan, paths: &RoundPaths) -> anyhow::Result<RoundStats> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (round, paths) = (plan.clone(), paths.clone());
    let played = std::thread::spawn(move || {
        let round = async {
            tokio::select! {
                stats = round::run(&round, &paths) => Some(stats),
                () = shutdown_signal() => None,
            }
        };
        runtime.block_on(tokio::task::LocalSet::new().run_until(round))
    });
    let broken = |_| {
        println!("  the round failed with a panic");
        Some(RoundStats {
            profile: plan.profile.clone(),
            seed: plan.seed,
            rounds: 1,
            broken: 1,
            ..RoundStats::default()
        })
    };
    played.join().unwrap_or_else(broken).context("interrupted")
}

/// Waits for Ctrl-C or SIGTERM, or forever if the signals cannot be received.
async fn shutdown_signal() {
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn report(sum: &RoundStats) -> anyhow::Result<bool> {
    println!("{}", serde_json::to_string_pretty(sum)?);
    for (name, count, target) in plans::progress(sum) {
        println!("{count:>7} of {target:>6} {name}");
    }
    Ok(sum.is_clean())
}

fn prepare(flags: &Flags) -> anyhow::Result<RoundPaths> {
    std::fs::create_dir_all(&flags.dir).with_context(|| format!("cannot make {}", flags.dir.display()))?;
    let directory = flags.dir.canonicalize()?;
    let longshore = match &flags.longshore {
        Some(given) => given.canonicalize()?,
        None => built()?,
    };
    Ok(RoundPaths { longshore, test_job: engine::build_test_job(&directory), directory })
}

/// Builds the program and returns its path.
fn built() -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--quiet", "--package", "longshore-cli"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    if !cargo.status()?.success() {
        bail!("cannot build the program; name one with --longshore");
    }
    Ok(std::env::current_exe()?.with_file_name("longshore"))
}
