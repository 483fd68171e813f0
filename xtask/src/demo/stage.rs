//! The processes of the demonstration: one server, two workers, a temporary directory. Everything started here is ended here.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::runtime::JobRuntime;
use crate::children::Process;
use crate::docker;
use crate::http::Api;

/// The running parts.
pub(crate) struct Stage {
    /// The server's API.
    pub api: Api,
    /// The program `longshore`.
    pub binary: PathBuf,
    /// The runtime of its jobs.
    pub runtime: JobRuntime,
    directory: TempDir,
    server: Option<Process>,
    workers: Vec<Process>,
}

impl Stage {
    /// Chooses a port and a directory; nothing runs yet.
    ///
    /// # Errors
    /// The port is taken, or no directory can be made.
    pub(crate) fn new(binary: PathBuf, runtime: JobRuntime, port: Option<u16>) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
        let probe = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let api = Api::new(probe.local_addr()?);
        let directory = tempfile::Builder::new().prefix("longshore-demo-").tempdir()?;
        Ok(Self { api, binary, runtime, directory, server: None, workers: Vec::new() })
    }

    /// Starts the server, then the workers, and waits until all of them are ready.
    ///
    /// # Errors
    /// One of them ends, or takes too long.
    pub(crate) async fn set_up(&mut self) -> anyhow::Result<()> {
        let jobs_file = self.path().join("jobs.yaml");
        fs::write(&jobs_file, self.jobs_file())?;
        let mut command = self.longshore(&["server", "--listen", &self.api.address.to_string(), "--data"]);
        command.arg(self.path().join("data")).arg("--jobs").arg(&jobs_file);
        let server = self.server.insert(Process::start("server", command, self.directory.path())?);
        println!("server      http://{} (pid {})", self.api.address, shown(server.id()));
        self.wait_until("the server is ready", async |stage| stage.api.is_ready().await).await?;

        // One after the other, so that their numbers follow their names.
        for (before, name) in WORKERS.into_iter().enumerate() {
            let worker = Process::start(name, self.worker_command(name), self.path())?;
            println!("worker {name}   pid {}", shown(worker.id()));
            self.workers.push(worker);
            let all_are_connected = async |stage: &Self| {
                let workers = stage.api.get("/api/workers").await.ok();
                workers.is_some_and(|workers| workers.as_array().is_some_and(|all| all.len() == before + 1))
            };
            self.wait_until("the worker is connected", all_are_connected).await?;
        }
        Ok(())
    }

    /// Waits for a condition, as long as everything lives.
    ///
    /// # Errors
    /// A process has ended, or the condition is not met in time.
    pub(crate) async fn wait_until(
        &mut self,
        what: &str,
        condition: impl AsyncFn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        while !condition(self).await {
            for process in self.server.iter_mut().chain(&mut self.workers) {
                process.must_be_alive()?;
            }
            if Instant::now() > deadline {
                bail!("waited {WAIT_MAX:?}, and still not: {what}");
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// The `longshore` program with these arguments, without any `LONGSHORE_*` settings of the calling shell.
    pub(crate) fn longshore(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LONGSHORE_"))
        {
            command.env_remove(name);
        }
        command.args(words).current_dir(self.path());
        command
    }

    /// The command that starts a worker.
    pub(crate) fn worker_command(&self, name: &str) -> Command {
        let mut command = self.longshore(&[
            "worker",
            "--server",
            &self.api.address.to_string(),
            "--name",
            name,
            "--slots",
            "2",
        ]);
        command.arg("--state-dir").arg(self.path().join(name));
        // In a container it would leave its jobs running: nobody comes back for those of a demonstration.
        command.args(["--on-term", "interrupt"]);
        command.args((self.runtime == JobRuntime::Process).then_some("--allow-process"));
        command
    }

    /// The first worker's name and process id.
    pub(crate) fn first_worker(&self) -> Option<(&str, u32)> {
        let worker = self.workers.first()?;
        Some((&worker.name, worker.id()?))
    }

    /// Prints what each process said last.
    pub(crate) fn print_log_tails(&self) {
        for process in self.server.iter().chain(&self.workers) {
            eprintln!("── log of {}\n{}", process.name, process.log_tail());
        }
    }

    /// Ends everything that was started, workers first, and removes what they leave.
    pub(crate) async fn clear(mut self) {
        let mut leaving = JoinSet::new();
        for mut worker in self.workers.drain(..) {
            leaving.spawn(async move { worker.stop(WORKER_GRACE).await });
        }
        leaving.join_all().await;
        if let Some(server) = &mut self.server {
            server.stop(SERVER_GRACE).await;
        }
        if self.runtime != JobRuntime::Process
            && let Err(error) = docker::remove_labelled(&self.label()).await
        {
            eprintln!("containers with the label {} could not be removed: {error:#}", self.label());
        }
        println!("Everything that was started has been ended and removed.");
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A label that no other container of this machine has: directories of this kind have random names.
    fn label(&self) -> String {
        let directory = self.path().file_name().unwrap_or_default();
        format!("{LABEL}={}", directory.to_string_lossy())
    }

    fn jobs_file(&self) -> String {
        let mut text = String::from("version: 1\ndefaults:\n  stop_grace_period: 1s\n");
        let _infallible = match self.runtime {
            JobRuntime::Shell { image } | JobRuntime::Steps { image } => {
                write!(text, "  image: {image}\n  labels: {{ {} }}\n", self.label().replace('=', ": "))
            }
            JobRuntime::Process => writeln!(text, "  runtime: process"),
        };
        text + "jobs:\n"
            + if matches!(self.runtime, JobRuntime::Steps { .. }) { JOBS_IN_STEPS } else { JOBS_IN_SHELL }
    }
}

fn shown(id: Option<u32>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

const WORKERS: [&str; 2] = ["w1", "w2"];
const LABEL: &str = "demonstration";
/// A server or worker is ready within a second; the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Half of it to stop what runs, with its own grace of a second; then a second signal says it again.
const WORKER_GRACE: Duration = Duration::from_secs(8);
const SERVER_GRACE: Duration = Duration::from_secs(10);

/// `$$` is a dollar in jobs.yaml.
const JOBS_IN_SHELL: &str = r#"  resize:
    description: Five lines within two seconds
    command: [sh, -c, 'for image in 1 2 3 4 5; do echo "image $$image of 5 resized"; sleep 0.4; done']
  broken:
    description: Ends with exit code 3
    command: [sh, -c, 'echo "cannot read input.png" >&2; exit 3']
  slow:
    description: A line a second for two minutes
    command: [sh, -c, 'for line in $$(seq 120); do echo "line $$line"; sleep 1; done']
  tick:
    description: Every second, by itself
    command: [sh, -c, 'echo "slot $$LONGSHORE_SCHEDULED_AT"']
    schedule: { id: each-second, every: 1s }
"#;

const JOBS_IN_STEPS: &str = r#"  resize:
    description: Five lines within two seconds
    command: ["say:image 1 of 5 resized", "wait:400", "say:image 2 of 5 resized", "wait:400", "say:image 3 of 5 resized",
              "wait:400", "say:image 4 of 5 resized", "wait:400", "say:image 5 of 5 resized"]
  broken:
    description: Ends with exit code 3
    command: ["say:cannot read input.png", "exit:3"]
  slow:
    description: Two minutes
    command: ["say:line 1", "wait:60000", "say:line 2", "wait:60000", "say:line 3"]
  tick:
    description: Every second, by itself
    command: ["say:a slot"]
    schedule: { id: each-second, every: 1s }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_told_to_leave_leaves_nothing_running_in_a_container_either() {
        let stage = Stage::new(PathBuf::from("longshore"), JobRuntime::Process, None)
            .expect("a port and a directory");
        let command = stage.worker_command("w1");
        let words: Vec<_> = command.as_std().get_args().collect();
        assert!(words.windows(2).any(|pair| pair == ["--on-term", "interrupt"]), "{words:?}");
    }
}
