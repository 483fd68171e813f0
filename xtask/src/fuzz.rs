//! `cargo xtask fuzz`: runs all fuzz targets one after the other, and prints the results as a table.
//!
//! It needs a nightly compiler and cargo-fuzz. The inputs that a run has found are kept in `fuzz/corpus`; it goes on from there, and from
//! the seeds of the repository. The compiler of the workspace checks the doors that targets knock at, the nightly one all the rest.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::step;

#[derive(Args)]
pub(crate) struct Options {
    /// For how many seconds each target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Names of targets; all of them if none is given
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// A target, and where it finds seeds beside its own.
struct Target {
    name: &'static str,
    seeds: &'static [&'static str],
    words: Option<&'static str>,
}

const fn target(name: &'static str) -> Target {
    Target { name, seeds: &[], words: None }
}

const TARGETS: [Target; 9] = [
    target("wire_orders"),
    target("wire_reports"),
    target("strange_server"),
    target("strange_worker"),
    Target {
        name: "jobs_yaml",
        seeds: &["examples", "server/tests/jobs_files/bad"],
        words: Some("fuzz/jobs_yaml.dict"),
    },
    target("http_bodies"),
    target("http_requests"),
    target("docker_answers"),
    target("attempt_records"),
];

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    ensure!(
        step::is_installed(&["cargo", "+nightly", "fuzz", "--version"]).await,
        "this needs a nightly compiler and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz"
    );
    for name in &options.targets {
        ensure!(TARGETS.iter().any(|target| target.name == name), "there is no target `{name}`");
    }
    let is_meant = |target: &&Target| {
        options.targets.is_empty() || options.targets.iter().any(|name| name == target.name)
    };
    let mut lines = Vec::new();
    let mut found = 0;
    for target in TARGETS.iter().filter(is_meant) {
        println!("── {}", target.name);
        let outcome = fuzz(root, target, options.seconds).await?;
        found += usize::from(!outcome.is_clean);
        let verdict = if outcome.is_clean { "nothing found" } else { "FOUND SOMETHING, see above" };
        lines.push(format!(
            "{:<16} {:>12} inputs {:>8}/s {:>7} edges   {verdict}",
            target.name,
            outcome.executed,
            outcome.executed / options.seconds.max(1),
            outcome.edges
        ));
    }
    println!("\n{}", lines.join("\n"));
    match found {
        0 => Ok(()),
        _ => bail!(
            "{found} targets have found something; `cargo +nightly fuzz run TARGET fuzz/artifacts/TARGET/…` repeats it"
        ),
    }
}

/// The result of one target.
#[derive(Default)]
struct Outcome {
    executed: u64,
    /// Places in the program that were reached.
    edges: u64,
    is_clean: bool,
}

async fn fuzz(root: &Path, target: &Target, seconds: u64) -> anyhow::Result<Outcome> {
    let corpus = format!("fuzz/corpus/{}", target.name);
    let own_seeds = format!("fuzz/seeds/{}", target.name);
    std::fs::create_dir_all(root.join(&corpus)).with_context(|| corpus.clone())?;
    // The lowest priority but one: the machine stays usable while it fuzzes.
    let mut command =
        step::command(root, &["nice", "-n", "15", "cargo", "+nightly", "fuzz", "run", target.name, &corpus]);
    if root.join(&own_seeds).exists() {
        command.arg(own_seeds);
    }
    command.args(target.seeds).arg("--").args(LIMITS).arg(format!("-max_total_time={seconds}"));
    command.args(target.words.map(|words| format!("-dict={words}")));
    let mut child = command.stderr(Stdio::piped()).spawn().context("cannot run `cargo fuzz`")?;
    let mut lines = BufReader::new(child.stderr.take().context("no standard error")?).lines();
    let mut outcome = Outcome::default();
    while let Some(line) = lines.next_line().await? {
        // A line for each input that reaches something new is too much to read.
        let is_chatter =
            line.starts_with('#') && [" NEW ", "REDUCE", " pulse "].iter().any(|word| line.contains(word));
        if let Some(number) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.executed = number.trim().parse().unwrap_or_default();
        }
        if let Some(edges) = line.split_once("cov: ").and_then(|(_, rest)| rest.split(' ').next()) {
            outcome.edges = edges.parse().unwrap_or(outcome.edges);
        }
        if !is_chatter {
            println!("   {line}");
        }
    }
    outcome.is_clean = child.wait().await?.success();
    Ok(outcome)
}

/// Limits of each run: no input may make the target take a gigabyte, ask for 256 MiB at once, or run for ten seconds.
const LIMITS: [&str; 4] =
    ["-rss_limit_mb=1024", "-malloc_limit_mb=256", "-timeout=10", "-print_final_stats=1"];
