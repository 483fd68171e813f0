//! `cargo xtask sim`: both state machines against each other. The step of `cargo xtask test` runs the binary of the dev profile, in
//! which the state machines are optimized: a release build of its own would take longer than it spares.

use std::path::Path;

use clap::Args;
use tokio::process::Command;

use crate::{build, step};

#[derive(Args)]
pub(crate) struct Options {
    /// How many transitions to make
    #[arg(long, value_name = "N", default_value = CHANGE)]
    transitions: String,
    /// The first seed; by default taken from the clock
    #[arg(long, value_name = "S")]
    seed: Option<String>,
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    simulate(root, &options.transitions, options.seed.as_deref()).await
}

/// Runs the simulation that every change must pass. Its seeds are always the same, so that a change is judged by itself and not by luck;
/// `cargo xtask sim` draws new ones.
pub(crate) async fn for_a_change(root: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(build::as_for_tests(root, "longshore-sim").await?);
    command.args(["--transitions", CHANGE, "--seed", SEED]).current_dir(root);
    step::succeed(command).await
}

async fn simulate(root: &Path, transitions: &str, seed: Option<&str>) -> anyhow::Result<()> {
    let mut words =
        vec!["cargo", "run", "--release", "--locked", "--quiet", "--package", "longshore-sim", "--"];
    words.extend(["--transitions", transitions]);
    words.extend(seed.into_iter().flat_map(|seed| ["--seed", seed]));
    step::program(root, &words).await
}

/// Twenty million: enough to hit every move of a job and every fault many times.
const CHANGE: &str = "20M";

/// The first seed of a change's simulation: the run of seeds in which CI found the unconfirmed cancel of a forgotten worker.
const SEED: &str = "1795393934888000";
