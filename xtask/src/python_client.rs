//! The step `python client` of `cargo xtask test`: the tests of `clients/python`, which start servers and workers themselves.
//!
//! The client needs no package, so they run with the machine's Python.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::python_worker::{self, Python};
use crate::{build, step};

/// Runs the step, or prints in one line why it is left out.
///
/// # Errors
/// A test failed; or the step is required, and there is no Python.
pub(crate) async fn run(root: &Path, wanted: Python) -> anyhow::Result<()> {
    if wanted == Python::Off {
        println!("── python client: off");
        return Ok(());
    }
    match python_worker::find_python().await {
        Ok(()) => step::run("python client", test(root)).await,
        Err(missing) if wanted == Python::Required => Err(missing.context("--python required")),
        Err(missing) => {
            println!("── python client: left out, {missing:#}");
            Ok(())
        }
    }
}

async fn test(root: &Path) -> anyhow::Result<()> {
    let binary = build::longshore(root, false).await?;
    // No compiled files beside the sources; a connection that is left open is an error.
    let words = "python3 -B -W error::ResourceWarning -m unittest discover -s clients/python/tests -t clients/python";
    let words: Vec<&str> = words.split(' ').collect();
    let mut tests = step::command(root, &words);
    tests.env("LONGSHORE_BINARY", binary).kill_on_drop(true);
    tokio::time::timeout(TESTS_MAX, step::succeed(tests))
        .await
        .with_context(|| format!("the tests of clients/python took longer than {TESTS_MAX:?}"))?
}

/// They take eight seconds on a quiet machine.
const TESTS_MAX: Duration = Duration::from_secs(300);
