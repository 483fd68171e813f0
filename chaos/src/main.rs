//! `longshore-chaos`: strikes real servers and workers, and tells whether every promise was kept.
//!
//! Each round prints its seed before it begins and one line of JSON when it is over. The exit code is 0 if nothing was wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use longshore_chaos::figures::Figures;
use longshore_chaos::round::{self, Place, Plan};
use longshore_chaos::stage::Dice;
use longshore_chaos::{check, engine, form};
use tokio::signal::unix::{SignalKind, signal};

/// Strike real servers and workers with faults, and compare what they said with what truly happened.
#[derive(Debug, Parser)]
struct Flags {
    /// Where rounds take place; that of a round in which something was wrong is kept.
    #[arg(long, default_value = "target/chaos", value_name = "DIR", global = true)]
    dir: PathBuf,
    /// The program to strike; by default the one of this build, made if it is missing or old.
    #[arg(long, value_name = "FILE", global = true)]
    longshore: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// One round: 100 kills of the server, 30 of workers, and a few of everything that needs no privileges
    Short {
        /// Of all chance in it; a fresh one is printed.
        #[arg(long, env = "LONGSHORE_SEED")]
        seed: Option<u64>,
        /// Run no containers.
        #[arg(long)]
        no_docker: bool,
    },
    /// Rounds of every kind until the bar is reached or time is up; can be broken off and gone on with. Needs root
    Long {
        /// Where results are added, a line for each round.
        #[arg(long, default_value = "target/chaos/results.jsonl", value_name = "FILE")]
        results: PathBuf,
        /// Begin no round after so many minutes.
        #[arg(long, value_name = "N")]
        minutes: Option<u64>,
        /// Of the first round.
        #[arg(long, env = "LONGSHORE_SEED")]
        seed: Option<u64>,
    },
    /// One round of the long form: by its name
    Round {
        /// Which.
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(form::names()))]
        name: String,
        /// Of all chance in it; a fresh one is printed.
        #[arg(long, env = "LONGSHORE_SEED")]
        seed: Option<u64>,
        /// Where its result is added, if anywhere.
        #[arg(long, value_name = "FILE")]
        results: Option<PathBuf>,
    },
    /// Sum the results of the long form, and say how far it has come
    Report {
        /// The results.
        #[arg(default_value = "target/chaos/results.jsonl", value_name = "FILE")]
        results: PathBuf,
    },
    /// Look again at a round that was kept
    Check {
        /// Its directory.
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

/// Whether nothing was wrong.
fn run(flags: Flags) -> anyhow::Result<bool> {
    match &flags.verb {
        Verb::Short { seed, no_docker } => {
            let plan = form::short(seed.unwrap_or_else(Dice::fresh_seed), !no_docker);
            let figures = play(&plan, &prepare(&flags)?)?;
            println!("{}", serde_json::to_string(&figures)?);
            Ok(figures.is_clean())
        }
        Verb::Long { results, minutes, seed } => {
            let place = prepare(&flags)?;
            let until = minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
            let mut dice = Dice::new(seed.unwrap_or_else(Dice::fresh_seed));
            loop {
                let sum = Figures::sum(results)?;
                let is_done = form::reached(&sum).iter().all(|(_, count, bar)| count >= bar);
                if is_done || until.is_some_and(|until| Instant::now() > until) {
                    return report(&sum);
                }
                let figures = play(&form::long(sum.rounds, dice.below(u64::MAX)), &place)?;
                println!("{}", serde_json::to_string(&figures)?);
                figures.append(results)?;
            }
        }
        Verb::Round { name, seed, results } => {
            let seed = seed.unwrap_or_else(Dice::fresh_seed);
            let plan = form::named(name, seed).context("a round of the long form")?;
            let figures = play(&plan, &prepare(&flags)?)?;
            println!("{}", serde_json::to_string(&figures)?);
            if let Some(results) = results {
                figures.append(results)?;
            }
            Ok(figures.is_clean())
        }
        Verb::Report { results } => report(&Figures::sum(results)?),
        Verb::Check { directory } => {
            let findings = check::check(&round::gather(directory)?);
            for finding in &findings {
                println!("{finding}");
            }
            println!("{} findings", findings.len());
            Ok(findings.is_empty())
        }
    }
}

/// Plays a round; one that breaks is a result too. One that is broken off leaves nothing behind, and is none.
fn play(plan: &Plan, place: &Place) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (round, place) = (plan.clone(), place.clone());
    let played = std::thread::spawn(move || {
        let round = async {
            tokio::select! {
                figures = round::play(&round, &place) => Some(figures),
                () = told_to_end() => None,
            }
        };
        runtime.block_on(tokio::task::LocalSet::new().run_until(round))
    });
    let broken = |_| {
        println!("  the round broke");
        Some(Figures { form: plan.form.clone(), seed: plan.seed, rounds: 1, broken: 1, ..Figures::default() })
    };
    played.join().unwrap_or_else(broken).context("broken off")
}

/// Waits for Ctrl-C or SIGTERM; for ever, if they cannot be waited for.
async fn told_to_end() {
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn report(sum: &Figures) -> anyhow::Result<bool> {
    println!("{}", serde_json::to_string_pretty(sum)?);
    for (name, count, bar) in form::reached(sum) {
        println!("{count:>7} of {bar:>6} {name}");
    }
    Ok(sum.is_clean())
}

fn prepare(flags: &Flags) -> anyhow::Result<Place> {
    std::fs::create_dir_all(&flags.dir).with_context(|| format!("cannot make {}", flags.dir.display()))?;
    let directory = flags.dir.canonicalize()?;
    let longshore = match &flags.longshore {
        Some(given) => given.canonicalize()?,
        None => built()?,
    };
    Ok(Place { longshore, witness: engine::build_witness(&directory), directory })
}

/// The program of this build.
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
