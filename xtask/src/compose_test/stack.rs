//! The running composition: how compose is called, and that nothing of it is left.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::http::Api;
use crate::{docker, step};

/// One project of compose.
pub(crate) struct Stack {
    /// The published API.
    pub api: Api,
    root: PathBuf,
    /// The words by which compose is called.
    program: Vec<String>,
    project: String,
    directory: TempDir,
}

impl Stack {
    /// Chooses names and a port; nothing runs yet. Without `compose` it is the one that is installed.
    ///
    /// # Errors
    /// Compose cannot be called.
    pub(crate) async fn new(root: &Path, compose: Option<&str>) -> anyhow::Result<Self> {
        let program = choose(compose).await?;
        println!("compose     {}", version(&program).await?);
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let project = format!("longshore-test-{}", std::process::id());
        let directory = tempfile::Builder::new().prefix(&project).tempdir_in(root.join("target"))?;
        let stack = Self {
            api: Api { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) },
            root: root.to_owned(),
            program,
            project,
            directory,
        };
        fs::write(stack.jobs_file(), JOBS.replace("PROJECT", &stack.project))?;
        Ok(stack)
    }

    /// Builds both images; quickly, or as for a release.
    ///
    /// # Errors
    /// It does not compile.
    pub(crate) async fn build(&self, quickly: bool) -> anyhow::Result<()> {
        let quick: &[&str] = if quickly { QUICK } else { &[] };
        self.compose(&[&["build"], quick].concat()).await
    }

    /// Calls compose.
    ///
    /// # Errors
    /// It fails.
    pub(crate) async fn compose(&self, words: &[&str]) -> anyhow::Result<()> {
        step::succeed(self.command(words)).await
    }

    /// The ids of the workers' containers.
    ///
    /// # Errors
    /// Compose fails.
    pub(crate) async fn workers(&self) -> anyhow::Result<Vec<String>> {
        let output = self.command(&["ps", "--quiet", "worker"]).output().await?;
        ensure!(
            output.status.success(),
            "cannot list the workers: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }

    /// The label of its jobs' containers.
    pub(crate) fn label(&self) -> String {
        format!("compose-test={}", self.project)
    }

    /// Waits for a condition.
    ///
    /// # Errors
    /// It is not met in time.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        condition: impl AsyncFn() -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        while !condition().await {
            if Instant::now() > deadline {
                bail!("waited {WAIT_MAX:?}, and still not: {what}");
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// Prints the last log lines of the services, to explain a failure.
    pub(crate) async fn print_log_tails(&self) {
        for words in [&["ps"] as &[&str], &["logs", "--tail", "60"]] {
            if let Err(error) = self.compose(words).await {
                eprintln!("{error:#}");
            }
        }
        for path in ["/api/workers", "/api/jobs"] {
            match self.api.get(path).await {
                Ok(answer) => eprintln!("GET {path}: {answer}"),
                Err(error) => eprintln!("{error:#}"),
            }
        }
    }

    /// Ends the services, removes their volumes and whatever containers of jobs are left.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let down = self.compose(&["down", "--volumes", "--timeout", "10"]).await;
        docker::remove_labelled(&self.label()).await?;
        down?;
        let left = docker::labelled(&format!("com.docker.compose.project={}", self.project)).await?;
        ensure!(left.is_empty(), "compose has left containers: {left:?}");
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = step::command(&self.root, &strs(&self.program));
        command.args(["--project-name", &self.project]).args(words);
        command.env("LONGSHORE_PORT", self.api.address.port().to_string());
        command.env("LONGSHORE_JOBS", self.jobs_file());
        command.env("LONGSHORE_SERVER_IMAGE", SERVER_IMAGE);
        command.env("LONGSHORE_WORKER_IMAGE", WORKER_IMAGE);
        command
    }

    fn jobs_file(&self) -> PathBuf {
        self.directory.path().join("jobs.yaml")
    }
}

/// The words of the compose that is asked for, or else of the one that is installed.
async fn choose(asked_for: Option<&str>) -> anyhow::Result<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let candidates = asked_for.map_or_else(|| INSTALLED.map(words).to_vec(), |line| vec![words(line)]);
    for program in candidates {
        if !program.is_empty() && version(&program).await.is_ok() {
            return Ok(program);
        }
    }
    match asked_for {
        Some(line) => bail!("`{line} version` does not say the version of a compose"),
        None => bail!("neither `docker compose` nor `docker-compose` is installed"),
    }
}

/// The version line of the program, so that a result names it.
async fn version(program: &[String]) -> anyhow::Result<String> {
    let words = [&strs(program)[..], &["version", "--short"]].concat();
    let output = step::command(Path::new("."), &words).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(format!("{} {}", program.join(" "), String::from_utf8(output.stdout)?.trim()))
}

/// As those want them who call programs.
pub(crate) fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// Name of the server's image.
pub(crate) const SERVER_IMAGE: &str = "longshore-server:compose-test";
/// Name of the worker's image.
pub(crate) const WORKER_IMAGE: &str = "longshore-worker:compose-test";
/// Version 2 is a plugin of `docker`; 1 is a program, and some have 2 under its name.
const INSTALLED: [&str; 2] = ["docker compose", "docker-compose"];
/// Not what one would ship, but built in a third of the time.
const QUICK: &[&str] = &[
    "--build-arg",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL=1",
    "--build-arg",
    "CARGO_PROFILE_RELEASE_LTO=off",
    "--build-arg",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16",
];
/// The longest thing waited for is a job of fifteen seconds whose worker has to come back.
const WAIT_MAX: Duration = Duration::from_secs(90);
const ASK_EVERY: Duration = Duration::from_millis(200);

const JOBS: &str = "\
version: 1
defaults:
  image: busybox
  labels: { compose-test: PROJECT }
jobs:
  hello:
    command: [echo, hello]
  count:
    command: [sh, -c, 'for n in $$(seq 15); do echo $$n; sleep 1; done']
";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_compose_that_is_asked_for_is_the_one_that_is_tested() {
        // Any program that can say its version by these words will do.
        assert_eq!(
            choose(Some("echo it is")).await.ok(),
            Some(["echo", "it", "is"].map(str::to_owned).to_vec())
        );
        for missing in ["", "/nonexistent/docker-compose", "false"] {
            let told = choose(Some(missing)).await.map_err(|error| error.to_string());
            assert_eq!(told, Err(format!("`{missing} version` does not say the version of a compose")));
        }
    }

    #[tokio::test]
    async fn its_version_is_told() {
        let told = version(&["echo".to_owned()]).await.ok();
        assert_eq!(told.as_deref(), Some("echo version --short"));
    }
}
