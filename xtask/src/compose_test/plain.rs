//! docker-compose.yml: nobody is served without a token, three workers come, a job runs; then jobs run on while their worker's container is
//! replaced, killed, and while the server restarts.

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::stack::{Stack, strs};
use super::wait_for_health;
use crate::{docker, step};

/// Runs the composition; the caller removes it.
///
/// # Errors
/// It does not do what it should.
pub(crate) async fn exercise(stack: &mut Stack) -> anyhow::Result<()> {
    step::run("up", stack.compose(UP)).await?;
    step::run("a request without a token is refused", expect_closed(stack)).await?;
    stack.api.token = Some(stack.copy_out("server", "/var/lib/longshore/admin.token").await?);
    let stack = &*stack;
    step::run("three workers come", wait_for_workers(stack)).await?;
    step::run("all are healthy", async {
        wait_for_health(stack, "server").await?;
        wait_for_health(stack, "worker").await
    })
    .await?;
    step::run(
        "no token is in an environment, and the server is not root",
        stack.expect_no_token_and_no_root(),
    )
    .await?;
    step::run("a job runs", run_a_job(stack)).await?;
    step::run("a job gets its input and leaves a result", stack.exchange_files()).await?;
    step::run(
        "a job outlives the replacement of its worker",
        outlive(stack, async || {
            stack.compose(&[UP, &["--no-deps", "--force-recreate", "worker"]].concat()).await
        }),
    )
    .await?;
    step::run(
        "a job outlives the death of its worker",
        outlive(stack, async || {
            docker::query(&[&["kill", "--"], &*strs(&stack.containers("worker").await?)].concat()).await?;
            stack.compose(UP).await
        }),
    )
    .await?;
    step::run(
        "a job outlives a restart of the server",
        outlive(stack, async || stack.compose(&["restart", "server"]).await),
    )
    .await?;
    step::run(
        "no container of a job remains",
        stack.wait_until("all are removed", async || {
            docker::labelled(&stack.label()).await.is_ok_and(|ids| ids.is_empty())
        }),
    )
    .await
}

/// Exactly three, with three names: replaced containers have taken up the identities of those before them.
async fn wait_for_workers(stack: &Stack) -> anyhow::Result<()> {
    stack
        .wait_until("three workers are connected", async || {
            let workers = stack.api.get("/api/workers").await.ok();
            let workers = workers
                .as_ref()
                .and_then(|workers| workers.as_array())
                .map_or(&[] as &[Value], Vec::as_slice);
            workers.len() == 3 && workers.iter().all(|worker| worker["connected"] == true)
        })
        .await
}

async fn expect_closed(stack: &Stack) -> anyhow::Result<()> {
    match stack.api.get("/api/jobs").await {
        Ok(answer) => bail!("the server answers everybody: {answer}"),
        Err(error) => ensure!(error.to_string().contains("status 401"), "{error:#}"),
    }
    Ok(())
}

/// As a user would: `curl` makes it and waits for its end. Then the command line, as README has it.
async fn run_a_job(stack: &Stack) -> anyhow::Result<()> {
    let url = stack.api.url("/api/jobs/hello?wait=60s");
    let token = format!("Authorization: Bearer {}", stack.api.token.as_deref().unwrap_or_default());
    let output = Command::new("curl")
        .args(["-fsS", "-X", "POST", "-H", &token, &url])
        .output()
        .await
        .context("cannot run curl")?;
    let answer = String::from_utf8_lossy(&output.stdout);
    println!("{answer}");
    ensure!(output.status.success(), "curl failed: {}", String::from_utf8_lossy(&output.stderr));
    let job: Value = serde_json::from_str(&answer)?;
    ensure!(job["state"] == "succeeded", "the job should have succeeded");
    expect_output(stack, number(&job)?, &["hello"]).await?;
    let said = stack.client(&["run", "hello", "--follow"]).await?;
    ensure!(said.lines().any(|line| line == "hello"), "the client should show the output: {said}");
    Ok(())
}

/// Starts a job, disturbs it while it runs, and expects its true end: succeeded, at the first attempt, every line once.
async fn outlive(stack: &Stack, disturb: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let job = number(&*stack.api.post("/api/jobs/count").await?)?;
    let path = format!("/api/jobs/{job}");
    let is = async |state: &str| stack.api.get(&path).await.is_ok_and(|job| job["state"] == state);
    stack.wait_until("the job runs", async || is("running").await).await?;
    disturb().await?;
    stack.wait_until("the job has succeeded", async || is("succeeded").await).await?;
    let attempts = stack.api.get(&path).await?["attempt_count"].clone();
    ensure!(attempts == 1, "the job should have needed one attempt, and needed {attempts}");
    let lines: Vec<String> = (1..=COUNT_TO).map(|number| number.to_string()).collect();
    expect_output(stack, job, &strs(&lines)).await?;
    wait_for_workers(stack).await
}

const READ_AGAIN: &str = "longshore: what follows of stdout was read again from the engine's log";

async fn expect_output(stack: &Stack, job: u64, expected: &[&str]) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    stack
        .api
        .follow("GET", &format!("/api/jobs/{job}/logs?follow=1"), |line| lines.push(line.to_owned()))
        .await?;
    // A worker that takes over from another one has what came meanwhile from its engine, and that is said.
    lines.retain(|line| line != READ_AGAIN);
    let last = format!("longshore: job {job} succeeded");
    let expected: Vec<&str> = expected.iter().copied().chain([last.as_str()]).collect();
    if lines != expected {
        bail!("job {job} should have printed {expected:?}, and printed {lines:?}");
    }
    Ok(())
}

fn number(job: &Value) -> anyhow::Result<u64> {
    job["id"].as_u64().with_context(|| format!("no number of a job in {job}"))
}

const UP: &[&str] = &["up", "-d", "--no-build", "--scale", "worker=3"];
/// Seconds that a disturbed job runs: replacing three containers takes up to ten.
const COUNT_TO: u32 = 15;
