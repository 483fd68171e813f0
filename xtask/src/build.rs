//! The binary `longshore` for the commands that start it: built, and found where cargo has put it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::step;

/// Builds `longshore` and asks cargo where it is.
///
/// # Errors
/// It does not compile.
pub(crate) async fn longshore(root: &Path, release: bool) -> anyhow::Result<PathBuf> {
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
