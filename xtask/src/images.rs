//! The images that must be there before anything of ours can be built or run: the three bases of the Dockerfile and the job image.
//!
//! An image that the engine has is left alone. Otherwise it is pulled; where no registry can be reached, a stand-in of the same name is
//! made on this machine (`stand_in.rs`), so that the Dockerfile needs no second form for machines without a registry.

pub(crate) mod own;
pub(crate) mod stand_in;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::sync::OnceCell;

use crate::{docker, step};

/// The base of both images.
pub(crate) const BASE: &str = "debian:bookworm-slim";
/// The image that compiles.
const RUST: &str = "rust:1-slim-bookworm";
/// The image from which the worker's image copies the `docker` command.
const DOCKER_CLI: &str = "docker:28-cli";
/// The image of the jobs in tests and demonstrations.
pub(crate) const JOB: &str = "busybox";

pub(crate) async fn run(root: &Path) -> anyhow::Result<()> {
    docker::version().await?;
    provide_bases(root).await?;
    provide_job_image(root).await
}

/// Provides the base images that the Dockerfile names by default.
///
/// # Errors
/// One can neither be pulled nor made here, and why.
pub(crate) async fn provide_bases(root: &Path) -> anyhow::Result<()> {
    provide_base(root).await?;
    provide(RUST, || stand_in::rust(root, BASE, RUST)).await?;
    provide(DOCKER_CLI, || stand_in::docker_cli(root, DOCKER_CLI)).await
}

/// Provides Debian's minimal system.
///
/// # Errors
/// It can neither be pulled nor made here, and why.
pub(crate) async fn provide_base(root: &Path) -> anyhow::Result<()> {
    provide(BASE, || stand_in::base(root, BASE)).await
}

/// Provides the image that jobs of tests run in.
///
/// # Errors
/// It can neither be pulled nor made here, and why.
pub(crate) async fn provide_job_image(root: &Path) -> anyhow::Result<()> {
    provide(JOB, || stand_in::busybox(root, JOB)).await
}

/// Returns true if the public registry can be reached: the smallest image is pulled once.
pub(crate) async fn registry_answers() -> bool {
    static ANSWERS: OnceCell<bool> = OnceCell::const_new();
    *ANSWERS.get_or_init(|| docker::pull(PROBE, PROBE_MAX)).await
}

async fn provide<Work: Future<Output = anyhow::Result<()>>>(
    name: &str,
    make: impl FnOnce() -> Work,
) -> anyhow::Result<()> {
    if docker::has_image(name).await {
        println!("image {name}: present");
        return Ok(());
    }
    let started = Instant::now();
    let how = if registry_answers().await && docker::pull(name, PULL_MAX).await {
        "pulled"
    } else {
        make().await.with_context(|| format!("image {name} can neither be pulled nor made here"))?;
        "made on this machine"
    };
    println!("image {name}: {how} ({})", step::seconds(started.elapsed()));
    Ok(())
}

/// A few kilobytes: a registry that answers at all sends them within seconds.
const PROBE: &str = "hello-world";
const PROBE_MAX: Duration = Duration::from_secs(20);
/// The largest has 300 MB.
const PULL_MAX: Duration = Duration::from_mins(15);
