//! A running composition: how compose is called, and that nothing of it is left.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::http::Api;
use crate::{docker, step};

/// The command line of compose, such as `docker compose`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compose(Vec<String>);

/// One project of compose.
pub(crate) struct Stack {
    /// The published API, with the administrator's token once it is known.
    pub api: Api,
    /// Files of the test. Compose finds jobs.yaml here, and whatever a worker of another machine needs.
    pub scratch: TempDir,
    /// The directory of docker-compose.yml.
    directory: PathBuf,
    compose: Compose,
    project: String,
}

impl Stack {
    /// Chooses names and a port for the docker-compose.yml of a directory of the workspace; nothing runs yet.
    ///
    /// # Errors
    /// There is no free port, or the jobs file cannot be written.
    pub(crate) fn new(root: &Path, directory: &str, compose: Compose) -> anyhow::Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let name = Path::new(directory).file_name().and_then(|name| name.to_str()).unwrap_or("top");
        let project = format!("longshore-test-{name}-{}", std::process::id());
        let scratch = tempfile::Builder::new().prefix(&project).tempdir_in(root.join("target"))?;
        let stack =
            Self { api: Api::new(address), scratch, directory: root.join(directory), compose, project };
        fs::write(stack.jobs_file(), JOBS.replace("PROJECT", &stack.project))?;
        fs::create_dir(stack.secrets_dir())?;
        Ok(stack)
    }

    /// Builds both images; quickly, or as for a release.
    pub(crate) async fn build(&self, quickly: bool) -> anyhow::Result<()> {
        let quick: &[&str] = if quickly { QUICK } else { &[] };
        self.compose(&[&["build"], quick].concat()).await
    }

    /// Calls compose.
    pub(crate) async fn compose(&self, words: &[&str]) -> anyhow::Result<()> {
        step::succeed(self.command(words)).await
    }

    /// Calls compose with files of its own, as a project beside this one, which [`clear`](Self::clear) does not know.
    pub(crate) async fn compose_beside(&self, files: &[&Path], words: &[&str]) -> anyhow::Result<()> {
        let mut command = self.bare_command();
        for file in files {
            command.arg("--file").arg(file);
        }
        command.args(["--project-name", &format!("{}-beside", self.project)]).args(words);
        command.env("LONGSHORE_SERVER", format!("https://localhost:{}", self.api.address.port()));
        command.env("LONGSHORE_JOIN_DIR", self.scratch.path());
        step::succeed(command).await
    }

    /// Runs the service `longshore`, the client as the administrator; its standard output.
    pub(crate) async fn client(&self, words: &[&str]) -> anyhow::Result<String> {
        output(self.command(&[&["run", "--rm", "-T", "longshore"], words].concat())).await
    }

    /// Runs a job that copies its input to its result: the engine finds the worker's files in the worker's volume.
    pub(crate) async fn exchange_files(&self) -> anyhow::Result<()> {
        let output = self.client(&["run", "copy", "--wait", "-o", "json"]).await?;
        let job: serde_json::Value = serde_json::from_str(&output)?;
        ensure!(job["result"] == serde_json::json!({ "pages": 2 }), "the result should be the input: {job}");
        Ok(())
    }

    /// The text of a file in the container of a service. Such an image has no `cat`.
    pub(crate) async fn copy_out(&self, service: &str, path: &str) -> anyhow::Result<String> {
        let containers = self.containers(service).await?;
        let container = containers.first().with_context(|| format!("no container of {service}"))?;
        let file = self.scratch.path().join("copied");
        docker::query(&["cp", "--", &format!("{container}:{path}"), &file.display().to_string()]).await?;
        Ok(fs::read_to_string(&file)?.trim_end().to_owned())
    }

    /// The ids of a service's containers, ended ones too.
    pub(crate) async fn containers(&self, service: &str) -> anyhow::Result<Vec<String>> {
        let ids = output(self.command(&["ps", "--all", "--quiet", service])).await?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    /// Fails if `docker inspect` shows a token, or if a server process runs as another user than `longshore`.
    pub(crate) async fn expect_no_token_and_no_root(&self) -> anyhow::Result<()> {
        let project = format!("com.docker.compose.project={}", self.project);
        for container in docker::labelled(&project).await? {
            let shown = docker::query(&["inspect", "--", &container]).await?;
            ensure!(!has_token(&shown), "docker inspect shows a token: {shown}");
        }
        let server = self.containers("server").await?;
        let processes =
            docker::query(&["top", server.first().context("no server")?, "-eo", "pid,uid"]).await?;
        let users: Vec<&str> =
            processes.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        ensure!(!users.is_empty() && users.iter().all(|user| *user == SERVER_USER), "{processes}");
        Ok(())
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
        let mut command = self.bare_command();
        command.args(["--project-name", &self.project]).args(words);
        command
    }

    fn bare_command(&self) -> Command {
        let mut command = step::command(&self.directory, &strs(&self.compose.0));
        command.env("LONGSHORE_PORT", self.api.address.port().to_string());
        command.env("LONGSHORE_JOBS", self.jobs_file());
        command.env("LONGSHORE_SECRETS", self.secrets_dir());
        command.env("LONGSHORE_SERVER_IMAGE", SERVER_IMAGE);
        command.env("LONGSHORE_WORKER_IMAGE", WORKER_IMAGE);
        command.kill_on_drop(true);
        command
    }

    pub(crate) fn jobs_file(&self) -> PathBuf {
        self.scratch.path().join("jobs.yaml")
    }

    /// The directory with secrets of jobs, of a server that has one.
    pub(crate) fn secrets_dir(&self) -> PathBuf {
        self.scratch.path().join("secrets")
    }
}

impl Compose {
    /// The compose that is asked for, or else the one that is installed. Its version is printed, so that a result names it.
    ///
    /// # Errors
    /// Compose cannot be called.
    pub(crate) async fn choose(asked_for: Option<&str>) -> anyhow::Result<Self> {
        let words = |line: &str| Self(line.split_whitespace().map(str::to_owned).collect());
        let candidates = asked_for.map_or_else(|| INSTALLED.map(words).to_vec(), |line| vec![words(line)]);
        for compose in candidates {
            if let Ok(version) = compose.version().await {
                println!("compose     {version}");
                return Ok(compose);
            }
        }
        match asked_for {
            Some(line) => bail!("`{line} version` does not say the version of a compose"),
            None => bail!("neither `docker compose` nor `docker-compose` is installed"),
        }
    }

    async fn version(&self) -> anyhow::Result<String> {
        ensure!(!self.0.is_empty(), "no program");
        let words = [&strs(&self.0)[..], &["version", "--short"]].concat();
        let version = output(step::command(Path::new("."), &words)).await?;
        Ok(format!("{} {}", self.0.join(" "), version.trim()))
    }
}

/// The standard output of a command that succeeds.
async fn output(mut command: Command) -> anyhow::Result<String> {
    let line = step::display(&command);
    let output =
        command.stdin(Stdio::null()).output().await.with_context(|| format!("cannot run `{line}`"))?;
    ensure!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// A token begins with `longshore_` and a digit.
fn has_token(text: &str) -> bool {
    text.split("longshore_").skip(1).any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// Borrows the words as `&str`, the form that `step::command` takes.
pub(crate) fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// Name of the server's image.
pub(crate) const SERVER_IMAGE: &str = "longshore-server:compose-test";
/// Name of the worker's image.
pub(crate) const WORKER_IMAGE: &str = "longshore-worker:compose-test";
/// The uid of `longshore` in the Dockerfile.
pub(crate) const SERVER_USER: &str = "10001";
/// Version 2 is a plugin of `docker`; version 1 is a program, and some systems install Compose 2 as `docker-compose`.
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
  copy:
    input: {pages: 2}
    command: [sh, -c, 'cat $$LONGSHORE_INPUT > $$LONGSHORE_RESULT']
  count:
    command: [sh, -c, 'for n in $$(seq 15); do echo $$n; sleep 1; done']
";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_compose_that_is_asked_for_is_the_one_that_is_tested() {
        // Any program that can say its version by these words will do.
        let echo = Compose(["echo", "it", "is"].map(str::to_owned).to_vec());
        assert_eq!(Compose::choose(Some("echo it is")).await.ok(), Some(echo));
        for missing in ["", "/nonexistent/docker-compose", "false"] {
            let error = Compose::choose(Some(missing)).await.map_err(|error| error.to_string());
            assert_eq!(error, Err(format!("`{missing} version` does not say the version of a compose")));
        }
    }

    #[test]
    fn tokens_are_distinguished_from_names() {
        assert!(has_token("[\"longshore_default\", \"A=longshore_1_abc\"]"));
        assert!(!has_token("longshore-test-17_server_1, longshore_data, LONGSHORE_1"));
    }

    #[tokio::test]
    async fn the_version_follows_the_command_line() {
        let version = Compose(vec!["echo".to_owned()]).version().await.ok();
        assert_eq!(version.as_deref(), Some("echo version --short"));
    }
}
