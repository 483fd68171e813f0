//! The step of `cargo xtask test` that compares the answers of a server with `/openapi.json`: schemathesis makes requests from the
//! description, right ones and wrong ones, and looks at status, content type and shape of each answer.
//!
//! schemathesis is installed into a virtual environment under `target/`, once. The server listens on a free loopback port; its data and
//! its worker's are in a temporary directory.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::children::Process;
use crate::http::Api;
use crate::when::When;
use crate::{build, step};

/// Runs the step, or prints in one line why it is left out.
///
/// # Errors
/// An answer is not as described; or the step is required, and Python or schemathesis cannot be had.
pub(crate) async fn run(root: &Path, wanted: When) -> anyhow::Result<()> {
    if wanted.is_off("openapi", LEFT_OUT) {
        return Ok(());
    }
    match provide(root).await {
        Ok(program) => step::run("API description", check(root, &program)).await,
        Err(missing) => wanted.leave_out("openapi", missing, LEFT_OUT),
    }
}

const LEFT_OUT: &str = "answers are not compared with the description of the API";

/// The program. What is missing is told in one line, with how to get it.
async fn provide(root: &Path) -> anyhow::Result<PathBuf> {
    let version = "import sys; sys.exit(sys.version_info < (3, 10))";
    if !step::is_installed(&["python3", "-c", version]).await {
        bail!("there is no python3 of version 3.10 or later (apt-get install python3 python3-venv)");
    }
    let place = root.join("target").join(format!("schemathesis-{VERSION}"));
    let program = place.join("bin/schemathesis");
    let mut has = Command::new(&program);
    has.arg("--version");
    if !step::succeeds_silently(has).await {
        let mut create = step::command(root, &["python3", "-m", "venv", "--clear"]);
        create.arg(&place);
        if !step::succeeds_silently(create).await {
            bail!("`python3 -m venv` fails (apt-get install python3-venv)");
        }
        let package = format!("schemathesis=={VERSION}");
        let mut install = Command::new(place.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &package]);
        if !step::succeeds_silently(install).await {
            bail!("`pip install {package}` fails: is there a network?");
        }
    }
    Ok(program)
}

async fn check(root: &Path, program: &Path) -> anyhow::Result<()> {
    let binary = build::as_for_tests(root, "longshore").await?;
    let directory = tempfile::Builder::new().prefix("longshore-openapi-").tempdir()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let api = Api::new(TcpListener::bind(address)?.local_addr()?);
    let longshore = || {
        let mut command = Command::new(&binary);
        let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LONGSHORE_"));
        for (name, _) in ours {
            command.env_remove(name);
        }
        command
    };
    let mut server = longshore();
    server
        .args(["server", "--listen", &api.address.to_string(), "--data"])
        .arg(directory.path().join("data"));
    server.arg("--jobs").arg(root.join("xtask/openapi/jobs.yaml"));
    let mut worker = longshore();
    worker.args(["worker", "--server", &api.address.to_string(), "--name", "rack-1", "--slots", "4"]);
    worker.args(["--no-docker", "--allow-process", "--on-term", "interrupt", "--state-dir"]);
    worker.arg(directory.path().join("worker"));

    let mut server = Process::start("server", server, directory.path())?;
    let mut worker = match Process::start("worker", worker, directory.path()) {
        Ok(worker) => worker,
        Err(error) => {
            server.stop(GRACE).await;
            return Err(error);
        }
    };
    let outcome = check_against(&mut server, &api, root, program, directory.path()).await;
    if outcome.is_err() {
        eprintln!("── last lines of the server\n{}", server.log_tail());
    }
    worker.stop(GRACE).await;
    server.stop(GRACE).await;
    outcome
}

async fn check_against(
    server: &mut Process,
    api: &Api,
    root: &Path,
    program: &Path,
    directory: &Path,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_MAX;
    while !has_worker(api).await {
        server.must_be_alive()?;
        if Instant::now() > deadline {
            bail!("the server has no worker after {READY_MAX:?}");
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    println!("schemathesis {VERSION}, seed {SEED}, {EXAMPLES} examples");
    let mut requests = Command::new(program);
    requests.current_dir(directory).kill_on_drop(true).arg("--no-color").arg("--config-file");
    requests.arg(root.join("xtask/openapi/schemathesis.toml")).arg("run").arg(api.url("/openapi.json"));
    requests
        .env("SCHEMATHESIS_HOOKS", root.join("xtask/openapi/hooks.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    requests.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--checks",
        CHECKS,
        "--generation-database",
        "none",
    ]);
    requests.args([
        "--seed",
        SEED,
        "--max-examples",
        EXAMPLES,
        "--request-timeout",
        "30",
        "--warnings",
        "off",
    ]);
    requests.args(["--suppress-health-check", "all", "--continue-on-failure"]);
    tokio::time::timeout(CHECK_MAX, step::succeed(requests))
        .await
        .with_context(|| format!("schemathesis took longer than {CHECK_MAX:?}"))??;
    server.must_be_alive()
}

async fn has_worker(api: &Api) -> bool {
    let workers = api.get("/api/workers").await.ok();
    workers.is_some_and(|workers| workers[0]["state"] == "ready")
}

const VERSION: &str = "4.32.5";
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
/// The same requests each time.
const SEED: &str = "20261124";
/// Of each operation.
const EXAMPLES: &str = "100";
const READY_MAX: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(50);
const CHECK_MAX: Duration = Duration::from_secs(900);
const GRACE: Duration = Duration::from_secs(10);
