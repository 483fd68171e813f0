//! The binary `longshore` for the commands that start it: built, and found where cargo has put it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::step;

/// Builds `longshore` with the libraries that it needs and nothing else, and asks cargo where it is.
///
/// # Errors
/// It does not compile.
pub(crate) async fn longshore(root: &Path, release: bool) -> anyhow::Result<PathBuf> {
    let mut build = step::command(root, &["cargo", "build", "--package", "longshore-cli"]);
    build.args(release.then_some("--release"));
    executable(build, "longshore").await
}

/// Finds a binary of the workspace among those that the tests have used, or builds it as they do. Libraries have more features there than
/// in a build of the binary alone, which would compile most of them once more.
///
/// # Errors
/// It does not compile.
pub(crate) async fn as_for_tests(root: &Path, binary: &str) -> anyhow::Result<PathBuf> {
    // A test among the targets gives the libraries the features that tests need.
    let build = step::command(root, &["cargo", "build", "--workspace", "--test", "usage"]);
    executable(build, binary).await
}

async fn executable(mut build: Command, binary: &str) -> anyhow::Result<PathBuf> {
    build.args(["--bin", binary, "--locked", "--quiet", "--message-format", "json-render-diagnostics"]);
    let output =
        build.stdin(Stdio::null()).stderr(Stdio::inherit()).output().await.context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{binary} does not compile");
    }
    let messages = String::from_utf8(output.stdout)?;
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == binary)
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    executable.context("cargo did not say where the binary is")
}
