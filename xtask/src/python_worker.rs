//! The steps of `cargo xtask test` that need Python: the worker of `examples/worker-python` checks itself against a server, and the client of
//! `clients/python` runs its tests.
//!
//! The worker's package `websockets` is installed into a virtual environment under `target/`, once. Its server listens on a free
//! loopback port and keeps its data in a temporary directory.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::children::Process;
use crate::http::Api;
use crate::when::When;
use crate::{build, freeze, step};

/// Runs the step, or prints in one line why it is left out.
///
/// # Errors
/// The check failed; or it is required, and Python or the package cannot be had.
pub(crate) async fn run(root: &Path, wanted: When) -> anyhow::Result<()> {
    if wanted.is_off("python", LEFT_OUT) {
        return Ok(());
    }
    match provide(root).await {
        Ok(python) => {
            let binary = build::as_for_tests(root, "longshore").await?;
            let example = root.join("examples/worker-python");
            step::run("python worker", check(&binary, &python, &example)).await?;
            for frozen in workers_of_frozen_versions(root)? {
                let name = format!("the worker in {}", frozen.display());
                step::run(&name, check(&binary, &python, &frozen)).await?;
            }
            step::run("python client", test_client(root, &python)).await
        }
        Err(missing) => wanted.leave_out("python", missing, LEFT_OUT),
    }
}

const LEFT_OUT: &str = "the worker and the client in Python are not tested";

/// A Python that has the package. What is missing is told in one line, with how to get it.
async fn provide(root: &Path) -> anyhow::Result<PathBuf> {
    let version = "import sys; sys.exit(sys.version_info < (3, 9))";
    if !step::is_installed(&["python3", "-c", version]).await {
        bail!("there is no python3 of version 3.9 or later (apt-get install python3 python3-venv)");
    }
    let place = root.join("target/python-worker");
    let python = place.join("bin/python");
    if !has_package(&python).await {
        let mut create = step::command(root, &["python3", "-m", "venv", "--clear"]);
        create.arg(&place);
        if !step::succeeds_silently(create).await {
            bail!("`python3 -m venv` fails (apt-get install python3-venv)");
        }
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]);
        if !step::succeeds_silently(install).await {
            bail!("`pip install {PACKAGE}` fails: is there a network?");
        }
    }
    Ok(python)
}

async fn has_package(python: &Path) -> bool {
    let mut import = Command::new(python);
    import.args(["-c", "import websockets.asyncio.client"]);
    step::succeeds_silently(import).await
}

/// The workers that `cargo xtask freeze` has kept, as far as they speak today's format. A release always does.
fn workers_of_frozen_versions(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let format = |worker: &Path| {
        let codec = std::fs::read_to_string(worker.join("codec.py")).ok()?;
        codec.lines().find_map(|line| line.strip_prefix("WIRE_FORMAT = ").map(str::to_owned))
    };
    let today = format(&root.join("examples/worker-python"));
    let mut workers = Vec::new();
    for entry in std::fs::read_dir(root.join("frozen"))? {
        let entry = entry?;
        let is_release = !entry.file_name().to_string_lossy().contains('-');
        let worker = entry.path().join(freeze::WORKER);
        if worker.is_dir() && (is_release || format(&worker) == today) {
            workers.push(worker);
        } else if worker.is_dir() {
            let version = entry.file_name().to_string_lossy().into_owned();
            println!(
                "python: the draft {version} has another wire format and is not tested; cargo xtask freeze {version} renews it"
            );
        }
    }
    workers.sort();
    Ok(workers)
}

async fn check(binary: &Path, python: &Path, example: &Path) -> anyhow::Result<()> {
    let directory = tempfile::Builder::new().prefix("longshore-python-").tempdir()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let api = Api::new(TcpListener::bind(address)?.local_addr()?);

    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LONGSHORE_"))
    {
        command.env_remove(name);
    }
    command.args(["server", "--listen", &api.address.to_string(), "--data"]);
    command.arg(directory.path().join("data")).arg("--jobs").arg(example.join("jobs.yaml"));
    let mut server = Process::start("server", command, directory.path())?;
    let outcome = check_against(&mut server, &api, python, example).await;
    if outcome.is_err() {
        eprintln!("── last lines of the server\n{}", server.log_tail());
    }
    server.stop(SERVER_GRACE).await;
    outcome
}

/// The tests of the client start their servers and workers themselves.
async fn test_client(root: &Path, python: &Path) -> anyhow::Result<()> {
    let binary = build::as_for_tests(root, "longshore").await?;
    let mut tests = Command::new(python);
    tests.current_dir(root.join("clients/python")).env("LONGSHORE_BINARY", binary).kill_on_drop(true);
    tests.args([
        "-B",
        "-m",
        "unittest",
        "discover",
        "--start-directory",
        "tests",
        "--top-level-directory",
        ".",
    ]);
    tokio::time::timeout(CHECK_MAX, step::succeed(tests))
        .await
        .with_context(|| format!("the tests of clients/python took longer than {CHECK_MAX:?}"))?
}

async fn check_against(server: &mut Process, api: &Api, python: &Path, example: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_MAX;
    while !api.is_ready().await {
        server.must_be_alive()?;
        if Instant::now() > deadline {
            bail!("the server is not ready after {READY_MAX:?}");
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    let mut check = Command::new(python);
    // No compiled files beside the sources.
    check.arg("-B").arg(example.join("check.py")).args(["--server", &api.url("")]).kill_on_drop(true);
    tokio::time::timeout(CHECK_MAX, step::succeed(check))
        .await
        .with_context(|| format!("check.py took longer than {CHECK_MAX:?}"))?
}

/// Releases from 13 on have the interface that the worker uses.
const PACKAGE: &str = "websockets>=13";
const READY_MAX: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// The worker takes three seconds on a quiet machine; the client took a minute on a busy one with two cores.
const CHECK_MAX: Duration = Duration::from_secs(300);
const SERVER_GRACE: Duration = Duration::from_secs(10);
