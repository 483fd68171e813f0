//! Whether this engine can start anything at all: asked after several starts in a row have failed, by a container of our own.
//!
//! It needs no program in an image: told to run one that no image has, an engine that is well makes the container, its storage and its
//! network, gets as far as the program, and only then says that there is none.

use std::sync::Arc;
use std::time::Duration;

use protocol::ContainerSpec;
use worker::input::{Exit, Fault};

use super::Shared;
use super::container::{Container, Meaning};
use crate::attempt_dir::describe;
use crate::runtime::argv::LABEL_PREFIX;
use crate::runtime::{Membership, probe_waits};

/// Tries until it works.
pub(super) async fn run(shared: Arc<Shared>, like: Arc<ContainerSpec>, membership: Membership) {
    for wait in probe_waits() {
        tokio::time::sleep(wait).await;
        shared.health.wait_until_up().await;
        match try_once(&shared, &like, membership).await {
            Ok(()) => break,
            Err(why) => tracing::warn!(why, "still no container can be started"),
        }
    }
    tracing::info!("a container can be started again");
    shared.health.believe();
}

async fn try_once(shared: &Shared, like: &ContainerSpec, membership: Membership) -> Result<(), String> {
    let Some(image) = image(shared, like).await? else {
        // Nothing to try with: the next job finds out.
        return Ok(());
    };
    let name = format!("longshore-{}-probe-{}", membership.cluster, membership.worker);
    shared.remove_now(&name).await;
    let made = start(shared, &name, &image, membership).await;
    shared.remove_now(&name).await;
    made
}

/// Whether it is a probe of this worker.
pub(super) fn is_own(container: &Container, membership: Membership) -> bool {
    is_probe(container) && container.label("worker") == Some(&membership.worker.to_string())
}

/// Whether it is a probe, and so nobody's attempt.
pub(super) fn is_probe(container: &Container) -> bool {
    container.label("probe").is_some()
}

/// The image that the last attempt wanted, or whatever there is.
async fn image(shared: &Shared, like: &ContainerSpec) -> Result<Option<String>, String> {
    let failed = |error| describe(&error);
    let there = ["image", "inspect", "--format", "{{.Id}}", "--", &like.image];
    if shared.call(there).await.map_err(failed)?.ok {
        return Ok(Some(like.image.clone()));
    }
    let any = shared.call(["image", "ls", "--quiet", "--no-trunc"]).await.map_err(failed)?;
    Ok(any.stdout.lines().next().map(str::to_owned))
}

async fn start(shared: &Shared, name: &str, image: &str, membership: Membership) -> Result<(), String> {
    // By them it is found if this process dies over it.
    let own = [
        ("managed", "true".to_owned()),
        ("cluster", membership.cluster.to_string()),
        ("worker", membership.worker.to_string()),
        ("probe", "true".to_owned()),
    ];
    let labels = own.map(|(key, value)| format!("--label={LABEL_PREFIX}{key}={value}"));
    let options = ["run", "--detach", "--pull", "never", "--name", name, "--entrypoint", PROGRAM];
    let args = options.into_iter().chain(labels.iter().map(String::as_str)).chain(["--", image]);
    let answer = shared.cli.call(args, LIMIT).await.map_err(|error| describe(&error))?;
    let found = shared.inspect(&[name]).await.map_err(|error| describe(&error))?;
    match found.first().map(Container::meaning) {
        Some(Meaning::Failed(Exit::NotStarted { fault: Fault::Definition, .. })) => Ok(()),
        // An image that has this very program.
        Some(Meaning::Running | Meaning::Ended) => Ok(()),
        Some(Meaning::Failed(Exit::NotStarted { message, .. })) => Err(message),
        _ => Err(answer.complaint()),
    }
}

/// In no image.
const PROGRAM: &str = "/longshore-probe";

/// What takes longer is not well.
const LIMIT: Duration = Duration::from_secs(60);
