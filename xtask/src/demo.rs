//! `cargo xtask demo`: the whole path on real parts, from `curl` to a container and back, on free loopback ports.
//!
//! `place.rs` decides where the jobs run, `stage.rs` owns what was started, `story.rs` tells what happens. However it ends (the story
//! fails, Ctrl-C, SIGTERM), the stage is cleared: processes by their id, containers by a label that only this demonstration used.

mod place;
mod stage;
mod story;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::step;

#[derive(Args)]
pub(crate) struct Options {
    /// End by itself after the story; the exit code tells whether everything happened as it should
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
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let place = place::choose(root, options.process).await?;
    println!("jobs run    {place}");
    let binary = build(root, options.release).await?;
    println!("binary      {}", binary.strip_prefix(root).unwrap_or(&binary).display());

    let mut stage = stage::Stage::new(binary, place, options.port)?;
    let outcome = tokio::select! {
        outcome = play(&mut stage, options.once) => outcome,
        interrupted = interrupted() => interrupted.and_then(|()| if options.once { bail!("interrupted") } else { Ok(()) }),
    };
    if outcome.is_err() {
        stage.tell_last_words();
    }
    stage.clear().await;
    outcome
}

async fn play(stage: &mut stage::Stage, once: bool) -> anyhow::Result<()> {
    stage.set_up().await?;
    story::tell(stage).await?;
    if once {
        return Ok(());
    }
    story::tell_what_to_try(stage);
    std::future::pending().await
}

/// Builds `longshore` and asks cargo where it has put it.
async fn build(root: &Path, release: bool) -> anyhow::Result<PathBuf> {
    println!("building    longshore (the first time takes a few minutes)");
    let mut build =
        step::command(root, &["cargo", "build", "--quiet", "--locked", "--package", "longshore-cli"]);
    build
        .args(["--bin", "longshore", "--message-format", "json-render-diagnostics"])
        .args(release.then_some("--release"));
    let output =
        build.stdin(Stdio::null()).stderr(Stdio::inherit()).output().await.context("cannot run cargo")?;
    if !output.status.success() {
        bail!("longshore does not compile");
    }
    let messages = String::from_utf8(output.stdout)?;
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    executable.context("cargo did not say where the binary is")
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
