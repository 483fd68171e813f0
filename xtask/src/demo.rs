//! `cargo xtask demo`: the whole path on real parts, from `curl` to a container and back, on free loopback ports.
//!
//! `runtime.rs` decides where the jobs run, `stage.rs` owns what was started, `script.rs` prints what happens. However it ends (the script
//! fails, Ctrl-C, SIGTERM), the stage is cleared: processes by their id, containers by a label that only this demonstration used.

mod runtime;
mod script;
mod stage;

use std::path::Path;

use anyhow::bail;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::build;

#[derive(Args)]
pub(crate) struct Options {
    /// End by itself after the script; the exit code tells whether everything happened as it should
    #[arg(long)]
    once: bool,
    /// Run the jobs as plain processes: needs no Docker
    #[arg(long)]
    process: bool,
    /// The port of the server; by default a free one
    #[arg(long)]
    port: Option<u16>,
    /// Build with optimisations; takes some minutes the first time
    #[arg(long)]
    release: bool,
    /// Run the program that the tests have used, with the features of their libraries
    #[arg(long, conflicts_with = "release")]
    as_for_tests: bool,
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let runtime = runtime::choose(root, options.process).await?;
    println!("jobs run    {runtime}");
    println!("building    longshore (the first time takes a few minutes)");
    let binary = match options.as_for_tests {
        true => build::as_for_tests(root, "longshore").await?,
        false => build::longshore(root, options.release).await?,
    };
    println!("binary      {}", binary.strip_prefix(root).unwrap_or(&binary).display());

    let mut stage = stage::Stage::new(binary, runtime, options.port)?;
    let outcome = tokio::select! {
        outcome = play(&mut stage, options.once) => outcome,
        interrupted = interrupted() => interrupted.and_then(|()| if options.once { bail!("interrupted") } else { Ok(()) }),
    };
    if outcome.is_err() {
        stage.print_log_tails();
    }
    stage.clear().await;
    outcome
}

async fn play(stage: &mut stage::Stage, once: bool) -> anyhow::Result<()> {
    stage.set_up().await?;
    script::run(stage).await?;
    if once {
        return Ok(());
    }
    script::print_suggestions(stage);
    std::future::pending().await
}

async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => (),
    }
    println!();
    Ok(())
}
