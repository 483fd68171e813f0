//! Processes that we start, and end by their id. Each has a process group of its own: a Ctrl-C in the terminal reaches only us, and
//! we decide in which order they leave.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// One process, with a file for what it says.
pub(crate) struct Process {
    /// Name for messages and for the log file.
    pub name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a command; its output goes to `<directory>/<name>.log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(name: &str, mut command: Command, directory: &Path) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), log, child })
    }

    /// Its process id; absent once it has ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Fails if it has ended, with the last of what it said.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn must_be_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended early with {status}. It said:\n{}", self.name, self.log_tail()),
        }
    }

    /// The last lines of its log.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Asks it to leave, a second time when half of `grace` is over, and then no longer asks.
    pub(crate) async fn stop(&mut self, grace: Duration) {
        for _ in 0..2 {
            self.signal(Signal::TERM);
            if timeout(grace / 2, self.child.wait()).await.is_ok() {
                return;
            }
        }
        self.signal(Signal::KILL);
        if let Err(error) = self.child.wait().await {
            eprintln!("cannot wait for {}: {error}", self.name);
        }
    }

    fn signal(&self, signal: Signal) {
        // An id is known only until the end has been collected, so it cannot be somebody else's by now.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id
            && let Err(error) = kill_process(id, signal)
        {
            eprintln!("cannot signal {}: {error}", self.name);
        }
    }
}

/// Enough for a panic or a refused configuration.
const LAST_LINES: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_leaves_when_it_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = Process::start("sleep", sleeping(), directory.path()).unwrap();
        process.must_be_alive().unwrap();
        process.stop(Duration::from_secs(60)).await;
        assert_eq!(process.id(), None);
    }

    #[tokio::test]
    async fn a_stop_kills_a_process_that_ignores_sigterm() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // A signal that the shell ignores stays ignored over an exec, so there is only one process to end.
        command.args(["-c", "trap '' TERM; echo ready; exec sleep 600"]);
        let mut process = Process::start("deaf", command, directory.path()).unwrap();
        let ready = async {
            while process.log_tail() != "ready" {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), ready).await.expect("the shell should get ready");
        process.stop(Duration::from_millis(20)).await;
        assert_eq!(process.id(), None);
    }

    #[tokio::test]
    async fn one_that_ends_early_is_noticed_with_its_log_tail() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such port >&2; exit 2"]);
        let mut process = Process::start("server", command, directory.path()).unwrap();
        process.child.wait().await.unwrap();
        let error = process.must_be_alive().unwrap_err().to_string();
        assert!(error.contains("server ended early") && error.contains("no such port"), "{error}");
    }

    fn sleeping() -> Command {
        let mut command = Command::new("sleep");
        command.arg("600");
        command
    }
}
