//! deploy/compose-tls: a server with a certificate of its own authority, workers beside it, and a worker as on another machine.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::stack::{SERVER_USER, Stack};
use super::wait_for_health;
use crate::{docker, step};

/// Runs the composition; the caller removes it.
///
/// # Errors
/// It does not do what it should.
pub(crate) async fn exercise(stack: &mut Stack) -> anyhow::Result<()> {
    plant_secret(stack).await?;
    step::run("up, with TLS", stack.compose(UP)).await?;
    let authority = stack.copy_out("server", "/etc/longshore/tls/ca.pem").await?;
    fs::write(stack.scratch.path().join("ca.pem"), &authority)?;
    stack.api.token = Some(stack.copy_out("server", "/var/lib/longshore/admin.token").await?);
    let stack = &*stack;
    step::run("two workers come", wait_for_workers(stack, 2)).await?;
    step::run("all are healthy", async {
        wait_for_health(stack, "server").await?;
        wait_for_health(stack, "worker").await
    })
    .await?;
    step::run("only TLS and tokens open it", expect_closed(stack)).await?;
    step::run(
        "no token is in an environment, and the server is not root",
        stack.expect_no_token_and_no_root(),
    )
    .await?;
    step::run("the server has no key of the authority", expect_no_authority_key(stack)).await?;
    step::run("a job runs", async {
        let said = stack.client(&["run", "hello", "--follow"]).await?;
        ensure!(said.lines().any(|line| line == "hello"), "the client should show the output: {said}");
        Ok(())
    })
    .await?;
    step::run("a job gets its input and leaves a result", stack.exchange_files()).await?;
    step::run("a job gets a secret", expect_secret(stack)).await?;
    step::run("a second `up` renews the certificate and keeps the authority and the token", async {
        let before = stack.copy_out("server", "/etc/longshore/tls/server.pem").await?;
        stack.compose(UP).await?;
        ensure!(stack.copy_out("server", "/etc/longshore/tls/server.pem").await? != before, "not renewed");
        ensure!(
            stack.copy_out("server", "/etc/longshore/tls/ca.pem").await? == authority,
            "another authority"
        );
        let tokens: Value = serde_json::from_str(&stack.client(&["token", "ls", "-o", "json"]).await?)?;
        ensure!(tokens.as_array().is_some_and(|tokens| tokens.len() == 2), "{tokens}");
        wait_for_workers(stack, 2).await
    })
    .await?;
    step::run("a worker of another machine comes", with_worker_beside(stack)).await
}

/// A secret with the owner and the modes that README.md gives it, and a job that names it.
async fn plant_secret(stack: &Stack) -> anyhow::Result<()> {
    let (directory, file) = (stack.secrets_dir(), stack.secrets_dir().join("sealed"));
    fs::write(&file, SECRET)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400))?;
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
    // Only root may give files away; the engine's containers are root.
    let mount = format!("{}:/secrets", directory.display());
    let owner = format!("{SERVER_USER}:{SERVER_USER}");
    let chown =
        ["run", "--rm", "--network", "none", "-v", &mount, "busybox", "chown", "-R", &owner, "/secrets"];
    docker::query(&chown).await?;
    let mut jobs = fs::OpenOptions::new().append(true).open(stack.jobs_file())?;
    jobs.write_all(SEALED_JOB.as_bytes())?;
    Ok(())
}

/// The job has its secret as a file and as a variable. Its output is masked.
async fn expect_secret(stack: &Stack) -> anyhow::Result<()> {
    let said = stack.client(&["run", "sealed", "--follow"]).await?;
    let lines: Vec<&str> = said.lines().take(2).collect();
    ensure!(lines == ["alike", &*"*".repeat(SECRET.len())], "the job should have had its secret: {said}");
    Ok(())
}

/// Starts worker.yml with a token that admits one worker, and removes it again.
async fn with_worker_beside(stack: &Stack) -> anyhow::Result<()> {
    let words = ["token", "create", "beside", "--role", "worker", "--uses", "1", "--expires", "1h"];
    let token = stack.scratch.path().join("worker.token");
    fs::write(&token, stack.client(&words).await?)?;
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600))?;
    // The port is published on the loopback address of this machine, which stands for the other one.
    let host: PathBuf = stack.scratch.path().join("host.yml");
    fs::write(&host, "services: { worker: { network_mode: host } }\n")?;
    let files = [Path::new("worker.yml"), &host];
    let outcome = async {
        stack.compose_beside(&files, &["up", "-d"]).await?;
        wait_for_workers(stack, 3).await
    }
    .await;
    if outcome.is_err() {
        // They explain the failure; the worker is removed also without them.
        let _ = stack.compose_beside(&files, &["logs", "--tail", "60"]).await;
    }
    let cleared = stack.compose_beside(&files, &["down", "--volumes", "--timeout", "10"]).await;
    outcome.and(cleared)
}

async fn wait_for_workers(stack: &Stack, expected: usize) -> anyhow::Result<()> {
    stack
        .wait_until("the workers are connected", async || {
            let text = stack.client(&["workers", "-o", "json"]).await.unwrap_or_default();
            let workers: Value = serde_json::from_str(&text).unwrap_or_default();
            let workers = workers.as_array().map_or(&[] as &[Value], Vec::as_slice);
            workers.iter().filter(|worker| worker["connected"] == true).count() == expected
        })
        .await
}

/// As `curl` sees it from this machine.
async fn expect_closed(stack: &Stack) -> anyhow::Result<()> {
    let url = format!("https://localhost:{}/api/jobs", stack.api.address.port());
    let ca = stack.scratch.path().join("ca.pem").display().to_string();
    let bearer = format!("Authorization: Bearer {}", stack.api.token.as_deref().unwrap_or_default());
    let plain = url.replace("https", "http");
    expect_status(&["-H", &bearer, &plain], "400").await?;
    // Zero: the connection was given up before there was an answer.
    expect_status(&["-H", &bearer, &url], "000").await?;
    expect_status(&["--cacert", &ca, &url], "401").await?;
    expect_status(&["--cacert", &ca, "-H", &bearer, &url], "200").await
}

async fn expect_status(words: &[&str], expected: &str) -> anyhow::Result<()> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}"]).args(words);
    let output = curl.output().await.context("cannot run curl")?;
    let status = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(status == expected, "{:?} should give {expected}, and gives {status}: {said}", words.last());
    Ok(())
}

/// The image has an empty directory in the place where `certificate` has the authority's files.
async fn expect_no_authority_key(stack: &Stack) -> anyhow::Result<()> {
    for service in ["server", "worker"] {
        for container in stack.containers(service).await? {
            let mounts =
                docker::query(&["inspect", "--format", "{{json .Mounts}}", "--", &container]).await?;
            ensure!(!mounts.contains("authority"), "{service} has the authority: {mounts}");
        }
    }
    let key = stack.copy_out("certificate", "/etc/longshore/authority/ca-key.pem").await?;
    ensure!(key.contains("PRIVATE KEY"), "the authority has no key");
    Ok(())
}

const UP: &[&str] = &["up", "-d", "--no-build", "--scale", "worker=2"];
const SECRET: &str = "correct horse";
const SEALED_JOB: &str = "  sealed:
    secrets: [sealed]
    environment: { SEALED: { secret: sealed } }
    command: [sh, -c, '[ \"$$(cat /run/secrets/sealed)\" = \"$$SEALED\" ] && echo alike; cat /run/secrets/sealed']
";
