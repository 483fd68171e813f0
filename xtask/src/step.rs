//! A named step of a longer command: its name is printed before, its time after, and the first failure names it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use tokio::process::Command;

/// Runs one step.
///
/// # Errors
/// The error of the step, preceded by its name and time.
pub(crate) async fn run(name: &str, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    println!("── {name}");
    let started = Instant::now();
    let outcome = work.await;
    report(name, started, outcome)
}

/// Runs a program as a step beside others. Its output is shown once it has ended.
///
/// # Errors
/// As for [`run`].
pub(crate) async fn run_beside(name: &str, mut command: Command) -> anyhow::Result<()> {
    println!("── {name}: begun, beside what follows");
    let started = Instant::now();
    let line = display(&command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("cannot run `{line}`"))?;
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let outcome = match output.status.success() {
        true => Ok(()),
        false => Err(anyhow!("`{line}` ended with {}", output.status)),
    };
    report(name, started, outcome)
}

fn report(name: &str, started: Instant, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    let time = seconds(started.elapsed());
    outcome.with_context(|| format!("step `{name}` FAILED after {time}"))?;
    println!("── {name}: ok ({time})");
    Ok(())
}

/// Runs a program in the workspace; its output is ours.
///
/// # Errors
/// It cannot be started, or it does not end with success.
pub(crate) async fn program(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    succeed(command(root, words)).await
}

/// The command line `words`, to be run in the workspace.
pub(crate) fn command(root: &Path, words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    command
}

/// Runs a prepared command; its output is ours.
///
/// # Errors
/// It cannot be started, or it does not end with success.
pub(crate) async fn succeed(mut command: Command) -> anyhow::Result<()> {
    let line = display(&command);
    let status = command.status().await.with_context(|| format!("cannot run `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Returns true if a program can be run: these arguments, which only ask for its version, succeed.
pub(crate) async fn is_installed(words: &[&str]) -> bool {
    succeeds_silently(command(Path::new("."), words)).await
}

/// Runs a prepared command without showing its output; returns true if it succeeds.
pub(crate) async fn succeeds_silently(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

/// The command line as one would type it.
pub(crate) fn display(command: &Command) -> String {
    let command = command.as_std();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// A duration for people.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
