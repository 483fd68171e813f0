//! `cargo xtask compose-test`: docker-compose.yml and deploy/compose-tls for real, under project names, ports, image names and a job label of
//! their own.
//!
//! Images are built by compose and judged; then `plain.rs` runs the first composition and `tls.rs` the second. At the end nothing may be left:
//! no container of a job, no service, no volume.

mod plain;
mod stack;
mod tls;

use std::path::Path;

use clap::Args;

use crate::images::own::Own;
use crate::{docker, images, step};
use stack::{Compose, Stack, strs};

#[derive(Args)]
pub(crate) struct Options {
    /// Build with the optimisations of a release instead of the quickest way
    #[arg(long)]
    release: bool,
    /// Build nothing: use the images of an earlier run
    #[arg(long, conflicts_with = "release")]
    no_build: bool,
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
    let compose = Compose::choose(options.compose.as_deref()).await?;
    let mut stack = Stack::new(root, "", compose.clone())?;
    if !options.no_build {
        step::run("build", stack.build(!options.release)).await?;
    }
    step::run("the images are small, and the server is not root", async {
        Own::Server.check(stack::SERVER_IMAGE, options.release).await?;
        Own::Worker.check(stack::WORKER_IMAGE, options.release).await.map(drop)
    })
    .await?;
    let outcome = plain::exercise(&mut stack).await;
    end(&stack, outcome).await?;

    let mut stack = Stack::new(root, "deploy/compose-tls", compose)?;
    let outcome = tls::exercise(&mut stack).await;
    end(&stack, outcome).await
}

/// Removes the composition; if it has failed, its logs are shown before.
async fn end(stack: &Stack, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    if outcome.is_err() {
        stack.print_log_tails().await;
    }
    let cleared = step::run("down", stack.clear()).await;
    outcome.and(cleared)
}

/// As `docker-compose ps` shows them: every container of a service that has a health check.
async fn wait_for_health(stack: &Stack, service: &str) -> anyhow::Result<()> {
    let containers = stack.containers(service).await?;
    let ask = [&["inspect", "--format", "{{.State.Health.Status}}", "--"], &*strs(&containers)].concat();
    let is_healthy =
        async || docker::query(&ask).await.is_ok_and(|said| said.lines().all(|it| it == "healthy"));
    stack.wait_until(&format!("all of {service} are healthy"), is_healthy).await
}
