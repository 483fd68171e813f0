//! `cargo xtask sim`: the brains against each other, in a release build, because only that is fast enough to mean something.

use std::path::Path;

use clap::Args;

use crate::step;

#[derive(Args)]
pub(crate) struct Options {
    /// How many transitions to make
    #[arg(long, value_name = "N", default_value = CHANGE)]
    transitions: String,
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    simulate(root, &options.transitions).await
}

/// What is simulated for each change.
pub(crate) async fn for_a_change(root: &Path) -> anyhow::Result<()> {
    simulate(root, CHANGE).await
}

async fn simulate(root: &Path, transitions: &str) -> anyhow::Result<()> {
    let words = ["cargo", "run", "--release", "--locked", "--quiet", "--package", "longshore-sim", "--"];
    let words: Vec<&str> = words.into_iter().chain(["--transitions", transitions]).collect();
    step::program(root, &words).await
}

/// Twenty million: enough to hit every move of a job and every fault many times.
const CHANGE: &str = "20M";
