//! Tests whether the engine can start containers, after several starts in a row have failed.
//!
//! It needs no program in the image. An engine that works makes the container, its storage and its network, and only then says that the
//! program is missing.

use std::sync::Arc;
use std::time::Duration;

use protocol::ContainerSpec;
use worker::input::{Exit, StartFailure};

use super::DockerState;
use super::container::{Container, Lifecycle};
use crate::error_chain::error_chain;
use crate::runtime::argv::LABEL_PREFIX;
use crate::runtime::{Membership, probe_delays};

/// Tries until it works, or until there is nothing to try with.
pub(super) async fn run(docker: Arc<DockerState>, like: Arc<ContainerSpec>, membership: Membership) {
    for wait in probe_delays() {
        tokio::time::sleep(wait).await;
        docker.engine.health.wait_until_up().await;
        match try_once(&docker, &like, membership).await {
            Ok(true) => {
                tracing::info!("the probe container was started; jobs start again");
                break;
            }
            Ok(false) => {
                tracing::info!("there is no image to probe the engine with; jobs start again");
                break;
            }
            Err(why) => tracing::warn!(error = why, "the probe container cannot be started; trying again"),
        }
    }
    docker.engine.health.set_able_to_start();
}

/// Returns true if the probe was started, and false if there is no image for it: the next job shows whether the engine works.
async fn try_once(
    docker: &DockerState,
    like: &ContainerSpec,
    membership: Membership,
) -> Result<bool, String> {
    let Some(image) = image(docker, like).await? else { return Ok(false) };
    let name = format!("longshore-{}-probe-{}", membership.cluster, membership.worker);
    docker.engine.remove_now(&name).await;
    let made = start(docker, &name, &image, membership).await;
    docker.engine.remove_now(&name).await;
    made.map(|()| true)
}

/// `true` for a probe of this worker.
pub(super) fn is_own(container: &Container, membership: Membership) -> bool {
    is_probe(container) && container.label("worker") == Some(&membership.worker.to_string())
}

/// `true` for a probe, which belongs to no attempt.
pub(super) fn is_probe(container: &Container) -> bool {
    container.label("probe").is_some()
}

/// The image of the last attempt, or any other.
async fn image(docker: &DockerState, like: &ContainerSpec) -> Result<Option<String>, String> {
    let failed = |error| error_chain(&error);
    let there = ["image", "inspect", "--format", "{{.Id}}", "--", &like.image];
    if docker.engine.call(there).await.map_err(failed)?.ok {
        return Ok(Some(like.image.clone()));
    }
    let any = docker.engine.call(["image", "ls", "--quiet", "--no-trunc"]).await.map_err(failed)?;
    Ok(any.stdout.lines().next().map(str::to_owned))
}

async fn start(docker: &DockerState, name: &str, image: &str, membership: Membership) -> Result<(), String> {
    // By these labels a later process finds it.
    let own = [
        ("managed", "true".to_owned()),
        ("cluster", membership.cluster.to_string()),
        ("worker", membership.worker.to_string()),
        ("probe", "true".to_owned()),
    ];
    let labels = own.map(|(key, value)| format!("--label={LABEL_PREFIX}{key}={value}"));
    let options = ["run", "--detach", "--pull", "never", "--name", name, "--entrypoint", PROGRAM];
    let args = options.into_iter().chain(labels.iter().map(String::as_str)).chain(["--", image]);
    let answer = docker.engine.cli.call(args, LIMIT).await.map_err(|error| error_chain(&error))?;
    let found = docker.engine.inspect(&[name]).await.map_err(|error| error_chain(&error))?;
    match found.first().map(Container::lifecycle) {
        Some(Lifecycle::Failed(Exit::NotStarted { fault: StartFailure::Definition, .. })) => Ok(()),
        // The image has this very program.
        Some(Lifecycle::Running | Lifecycle::Ended) => Ok(()),
        // A runtime that `start_failure` does not know, and that has come to look for the program.
        Some(Lifecycle::Failed(Exit::NotStarted { message, .. })) if lacks_program(&message) => Ok(()),
        Some(Lifecycle::Failed(Exit::NotStarted { message, .. })) => Err(message),
        _ => Err(answer.error_line()),
    }
}

fn lacks_program(message: &str) -> bool {
    message.contains(PROGRAM) && message.to_lowercase().contains("no such file or directory")
}

/// No image has this program.
const PROGRAM: &str = "/longshore-probe";

/// A working engine needs less time.
const LIMIT: Duration = Duration::from_secs(60);
