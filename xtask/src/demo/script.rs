//! The script of the demonstration: a job that succeeds, one that fails, a schedule, then the lists of workers and jobs. The reader can type every
//! line that begins with a dollar sign.

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::runtime::JobRuntime;
use super::stage::Stage;
use crate::step;

/// Runs the jobs and checks what comes back.
///
/// # Errors
/// Something did not happen as it should.
pub(crate) async fn run(stage: &mut Stage) -> anyhow::Result<()> {
    let job = submit(stage, "resize").await?;
    let lines = follow(stage, job).await?;
    let lines_expected = (1..=5).map(|number| format!("image {number} of 5 resized"));
    let expected: Vec<String> = lines_expected.chain([format!("longshore: job {job} succeeded")]).collect();
    if lines != expected {
        bail!("job {job} should have printed {expected:?}, and printed {lines:?}");
    }
    expect_state(stage, job, "succeeded").await?;

    let job = submit(stage, "broken").await?;
    follow(stage, job).await?;
    expect_state(stage, job, "failed").await?;
    show(stage, &["show", &job.to_string()]).await?;

    stage.wait_until("a slot of the schedule has become a job", has_fired).await?;
    show(stage, &["schedules"]).await?;
    show(stage, &["fires", "tick", "--limit", "5"]).await?;

    show(stage, &["workers"]).await?;
    show(stage, &["ls"]).await?;
    let jobs = stage.api.get("/api/jobs").await?;
    println!("\n$ curl {}\n{jobs}", stage.api.url("/api/jobs"));
    Ok(())
}

/// Prints what the reader can do now, while everything runs.
pub(crate) fn print_suggestions(stage: &Stage) {
    println!("\nEverything runs until you press Ctrl-C. In another terminal:\n");
    let directory = stage.binary.parent().unwrap_or(&stage.binary);
    println!("  export LONGSHORE_SERVER={} PATH=\"{}:$PATH\"", stage.api.url(""), directory.display());
    println!("  longshore run slow --follow         # prints a line a second; Ctrl-C leaves it running");
    println!("  longshore ls                          # its number, state and worker");
    println!("  longshore cancel NUMBER               # and it is gone");
    println!("  curl -N -X POST '{}'", stage.api.url("/api/jobs/resize?follow=1"));
    println!("  curl {}", stage.api.url("/api/jobs"));
    if let Some((name, pid)) = stage.first_worker()
        && stage.runtime != JobRuntime::Process
    {
        println!("  kill -9 {pid}  # worker {name}: what it runs goes on, and is taken up again by");
        println!("  {}", step::display(&stage.worker_command(name)));
    }
    println!();
}

async fn submit(stage: &Stage, name: &str) -> anyhow::Result<u64> {
    let path = format!("/api/jobs/{name}");
    println!("\n$ curl -X POST {}", stage.api.url(&path));
    let job = stage.api.post(&path).await?;
    println!("{job}");
    job.get("id").and_then(Value::as_u64).context("the answer has no number of the job")
}

async fn follow(stage: &Stage, job: u64) -> anyhow::Result<Vec<String>> {
    let path = format!("/api/jobs/{job}/logs?follow=1");
    println!("\n$ curl -N '{}'", stage.api.url(&path));
    let mut lines = Vec::new();
    let print = |line: &str| {
        println!("{line}");
        lines.push(line.to_owned());
    };
    stage.api.follow("GET", &path, print).await?;
    Ok(lines)
}

async fn expect_state(stage: &Stage, job: u64, expected: &str) -> anyhow::Result<()> {
    let path = format!("/api/jobs/{job}");
    let answer = stage.api.get(&path).await?;
    let state = answer.get("state").and_then(Value::as_str).context("the answer has no state")?;
    if state != expected {
        bail!("job {job} should have {expected} and is {state}");
    }
    Ok(())
}

async fn has_fired(stage: &Stage) -> bool {
    let fires = stage.api.get("/api/definitions/tick/fires").await.ok();
    fires.is_some_and(|rows| {
        rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["verdict"] == "fired"))
    })
}

async fn show(stage: &Stage, words: &[&str]) -> anyhow::Result<()> {
    println!("\n$ longshore {}", words.join(" "));
    let mut command = stage.longshore(words);
    command.env("LONGSHORE_SERVER", stage.api.url(""));
    step::succeed(command).await
}
