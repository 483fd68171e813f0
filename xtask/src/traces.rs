//! The step of `cargo xtask test` for the cargo feature `otel`, which nothing else builds: lints of the code behind it, and its tests against
//! a collector. Only the program and these tests are built again.

use std::path::Path;

use crate::step;
use crate::when::When;

/// Runs the step, or prints in one line that it is left out. It needs nothing but cargo.
///
/// # Errors
/// A lint or a test fails.
pub(crate) async fn run(root: &Path, wanted: When) -> anyhow::Result<()> {
    if wanted.is_off("traces", "the export of traces is not tested") {
        return Ok(());
    }
    step::run("traces", check(root)).await
}

async fn check(root: &Path) -> anyhow::Result<()> {
    let clippy = [&["cargo", "clippy", "--bin", "longshore"], TARGETS, &["--quiet", "--", "-D", "warnings"]];
    step::program(root, &clippy.concat()).await?;
    let tests = match step::is_installed(&["cargo", "nextest", "--version"]).await {
        true => [&["cargo", "nextest", "run"], TARGETS, &["--no-fail-fast", "--status-level", "slow"]],
        false => [&["cargo", "test"], TARGETS, &["--no-fail-fast"]],
    };
    step::program(root, &tests.concat()).await
}

/// All packages are named, although two are built: the libraries then have the same features as in the other steps, which have built them.
const TARGETS: &[&str] = &["--workspace", "--features", "longshore-cli/otel", "--test", "traces", "--locked"];
