//! `cargo xtask compose-test`: docker-compose.yml for real, under a project name, port, image names and job label of its own.
//!
//! Images are built, three workers come, a job runs; then jobs run on while their worker's container is replaced, killed, and while
//! the server restarts. At the end nothing may be left: no container of a job, no service, no volume.

mod sizes;
mod stack;

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::Value;
use tokio::process::Command;

use crate::{docker, images, step};
use stack::{Stack, strs};

#[derive(Args)]
pub(crate) struct Options {
    /// Build with the optimisations of a release instead of the quickest way
    #[arg(long)]
    release: bool,
    /// The compose to test: `docker-compose`, `docker compose`, or a program's path; by default the plugin, else `docker-compose`
    #[arg(long, value_name = "PROGRAM")]
    compose: Option<String>,
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    docker::version().await?;
    step::run("images", async {
        images::provide_bases(root).await?;
        images::provide_job_image(root).await
    })
    .await?;
    let stack = Stack::new(root, options.compose.as_deref()).await?;
    let outcome = exercise(&stack, options).await;
    if outcome.is_err() {
        stack.print_log_tails().await;
    }
    let cleared = step::run("down", stack.clear()).await;
    outcome.and(cleared)
}

async fn exercise(stack: &Stack, options: &Options) -> anyhow::Result<()> {
    step::run("build", stack.build(!options.release)).await?;
    step::run("sizes", async {
        sizes::check(stack::SERVER_IMAGE, options.release).await?;
        sizes::check(stack::WORKER_IMAGE, options.release).await
    })
    .await?;
    step::run("up", stack.compose(UP)).await?;
    step::run("three workers come", wait_for_workers(stack)).await?;
    step::run("all are healthy", wait_for_health(stack)).await?;
    step::run("a job runs", run_a_job(stack)).await?;
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
            docker::query(&[&["kill", "--"], &*strs(&stack.workers().await?)].concat()).await?;
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

/// As `docker-compose ps` shows them.
async fn wait_for_health(stack: &Stack) -> anyhow::Result<()> {
    let workers = stack.workers().await?;
    let ask = [&["inspect", "--format", "{{.State.Health.Status}}", "--"], &*strs(&workers)].concat();
    let is_healthy =
        async || docker::query(&ask).await.is_ok_and(|said| said.lines().all(|it| it == "healthy"));
    stack.wait_until("three workers are healthy", is_healthy).await
}

/// As a user would: `curl` makes it and waits for its end.
async fn run_a_job(stack: &Stack) -> anyhow::Result<()> {
    let url = stack.api.url("/api/jobs/hello?wait=60s");
    let output =
        Command::new("curl").args(["-fsS", "-X", "POST", &url]).output().await.context("cannot run curl")?;
    let answer = String::from_utf8_lossy(&output.stdout);
    println!("{answer}");
    ensure!(output.status.success(), "curl failed: {}", String::from_utf8_lossy(&output.stderr));
    let job: Value = serde_json::from_str(&answer)?;
    ensure!(job["state"] == "succeeded", "the job should have succeeded");
    expect_output(stack, number(&job)?, &["hello"]).await
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
