//! The few words that are spoken to Docker here. Each has a time limit: an engine that hangs must not hang us.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;
use tokio::time::timeout;

/// The version of the engine that answers.
///
/// # Errors
/// In one line, what is missing.
pub(crate) async fn version() -> anyhow::Result<String> {
    if Command::new("docker").arg("--version").output().await.is_err() {
        bail!("there is no `docker` command in the PATH");
    }
    query(&["version", "--format", "{{.Server.Version}}"]).await.context("the Docker engine does not answer")
}

/// Returns true if the engine has an image.
pub(crate) async fn has_image(name: &str) -> bool {
    query(&["image", "inspect", "--format", "{{.Id}}", "--", name]).await.is_ok()
}

/// Fetches an image from its registry, quietly. Says whether it worked.
pub(crate) async fn pull(name: &str, limit: Duration) -> bool {
    let mut pull = Command::new("docker");
    pull.args(["pull", "--quiet", "--", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    matches!(timeout(limit, pull.status()).await, Ok(Ok(status)) if status.success())
}

/// Builds an image from a directory with a Dockerfile; what it prints is shown only if it fails.
///
/// # Errors
/// The engine's own words.
pub(crate) async fn build(tag: &str, directory: &Path) -> anyhow::Result<()> {
    let mut build = Command::new("docker");
    build.args(["build", "--force-rm", "--tag", tag]).arg(directory);
    quietly(build).await
}

/// Makes an image of one layer from a tar archive.
///
/// # Errors
/// The engine's own words.
pub(crate) async fn import(archive: &Path, change: Option<&str>, tag: &str) -> anyhow::Result<()> {
    let mut import = Command::new("docker");
    import.arg("import").args(change.iter().flat_map(|change| ["--change", change])).arg(archive).arg(tag);
    quietly(import).await
}

/// Returns true if an image can run a program on this machine.
pub(crate) async fn runs(image: &str, words: &[&str]) -> bool {
    let mut run = Command::new("docker");
    run.args(["run", "--rm", "--network", "none", "--pull", "never", "--", image]).args(words);
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    matches!(timeout(RUN_MAX, run.status()).await, Ok(Ok(status)) if status.success())
}

/// The ids of the containers that carry a label `name=value`, in whatever state.
///
/// # Errors
/// The engine's own words.
pub(crate) async fn labelled(label: &str) -> anyhow::Result<Vec<String>> {
    let filter = format!("label={label}");
    let ids = query(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]).await?;
    Ok(ids.lines().map(str::to_owned).collect())
}

/// Removes the containers that carry a label, with their anonymous volumes. Says how many there were.
///
/// # Errors
/// The engine's own words.
pub(crate) async fn remove_labelled(label: &str) -> anyhow::Result<usize> {
    let ids = labelled(label).await?;
    if !ids.is_empty() {
        let words: Vec<&str> =
            ["rm", "--force", "--volumes", "--"].into_iter().chain(ids.iter().map(String::as_str)).collect();
        query(&words).await?;
    }
    Ok(ids.len())
}

/// A short question to the engine; its answer without the final newline.
///
/// # Errors
/// The engine's own words, or that it took too long.
pub(crate) async fn query(words: &[impl AsRef<OsStr>]) -> anyhow::Result<String> {
    let mut command = Command::new("docker");
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(QUERY_MAX, command.output())
        .await
        .with_context(|| format!("docker took longer than {QUERY_MAX:?}"))??;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Runs a command whose output matters only if it fails.
///
/// # Errors
/// The combined output of the command.
pub(crate) async fn quietly(mut command: Command) -> anyhow::Result<()> {
    let line = crate::step::display(&command);
    let output =
        command.stdin(Stdio::null()).output().await.with_context(|| format!("cannot run `{line}`"))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("`{line}` ended with {}:\n{out}{err}", output.status);
    }
    Ok(())
}

/// A busy engine answers `ps` within a second; a stuck one never does.
const QUERY_MAX: Duration = Duration::from_secs(30);
const RUN_MAX: Duration = Duration::from_secs(60);
