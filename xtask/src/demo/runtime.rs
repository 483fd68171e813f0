//! The runtime for the jobs of the demonstration: containers of an image that the machine has, can pull or can make; or plain processes.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::docker;
use crate::images::{self, stand_in};

/// The runtime of the jobs, which also decides how their commands look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobRuntime {
    /// In containers of an image with a shell.
    Shell { image: &'static str },
    /// In containers of our own image, whose one program follows steps such as `say:hello`.
    Steps { image: &'static str },
    /// As processes of this machine.
    Process,
}

impl fmt::Display for JobRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell { image } | Self::Steps { image } => {
                write!(f, "in Docker containers, image {image}")
            }
            Self::Process => f.write_str("as plain processes"),
        }
    }
}

/// Chooses, and provides the image.
///
/// # Errors
/// In one line, what is missing and what to do instead.
pub(crate) async fn choose(root: &Path, process: bool) -> anyhow::Result<JobRuntime> {
    if process {
        return Ok(JobRuntime::Process);
    }
    if let Err(why) = docker::version().await {
        bail!(
            "no containers can be started ({why:#}). Start Docker, or run the jobs as plain processes: cargo xtask demo --process"
        );
    }
    if docker::has_image(images::JOB).await {
        return Ok(JobRuntime::Shell { image: images::JOB });
    }
    if docker::has_image(OWN_SHELL).await {
        return Ok(JobRuntime::Shell { image: OWN_SHELL });
    }
    println!("image       pulling {}", images::JOB);
    if docker::pull(images::JOB, PULL_MAX).await {
        return Ok(JobRuntime::Shell { image: images::JOB });
    }
    println!("image       cannot be pulled; making one");
    if stand_in::try_busybox(root, OWN_SHELL).await.is_ok() && docker::runs(OWN_SHELL, &["true"]).await {
        return Ok(JobRuntime::Shell { image: OWN_SHELL });
    }
    compile_steps(root).await?;
    Ok(JobRuntime::Steps { image: OWN_STEPS })
}

/// Compiles a program that needs no file of any system, and makes an image of it alone.
async fn compile_steps(root: &Path) -> anyhow::Result<()> {
    let scratch = stand_in::scratch(root)?;
    let source = scratch.path().join("steps.rs");
    fs::write(&source, STEPS)?;
    let mut compile = Command::new("rustc");
    compile.args([
        "--edition",
        "2024",
        "-O",
        "-C",
        "target-feature=+crt-static",
        "-C",
        "strip=symbols",
        "-o",
    ]);
    compile.arg(scratch.path().join("steps")).arg(&source);
    docker::quietly(compile)
        .await
        .context("cannot compile the program for the image of the demonstration's jobs")?;
    fs::remove_file(source)?;
    fs::write(
        scratch.path().join("Dockerfile"),
        "FROM scratch\nCOPY steps /steps\nENTRYPOINT [\"/steps\"]\n",
    )?;
    docker::build(OWN_STEPS, scratch.path()).await?;
    if !docker::runs(OWN_STEPS, &["say:ready"]).await {
        bail!(
            "the image made here does not run; pull one by hand and start again: docker pull {}",
            images::JOB
        );
    }
    Ok(())
}

/// Names that say whose they are: an image made here must not pass for the public one of the same name.
const OWN_SHELL: &str = "longshore-demo-shell:local";
const OWN_STEPS: &str = "longshore-demo-steps:local";
/// Five megabytes.
const PULL_MAX: Duration = Duration::from_secs(30);
const STEPS: &str = include_str!("steps.rs");

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_image_can_be_made_of_nothing_but_a_program_compiled_here() {
        if std::env::var("LONGSHORE_TEST_DOCKER").as_deref() != Ok("required") {
            println!("left out: needs a Docker engine (cargo xtask test --docker required)");
            return;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        compile_steps(root).await.unwrap();
        let words = ["run", "--rm", "--network", "none", "--", OWN_STEPS, "say:one", "wait:10", "say:two"];
        assert_eq!(docker::query(&words).await.unwrap(), "one\ntwo");
        assert!(!docker::runs(OWN_STEPS, &["exit:3"]).await);
    }
}
