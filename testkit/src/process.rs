//! One process of the program: how it is started, signalled and stopped.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::time::timeout;

use super::wait::{wait_at_most, wait_for};

/// A command line with its environment and log file.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// The executable.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Variables beside `PATH`, `HOME`, `DOCKER_HOST` and `LONGSHORE_LOG`; nothing else is inherited.
    pub environment: Vec<(String, String)>,
    /// A command that executes the program elsewhere, such as in a network namespace. Empty means none.
    pub through: Vec<String>,
    /// Stdout and stderr are appended to this file.
    pub log: PathBuf,
}

impl ProcessSpec {
    /// A command without further variables or wrapper.
    #[must_use]
    pub fn new(program: &Path, arguments: Vec<String>, log: PathBuf) -> Self {
        Self { program: program.to_owned(), arguments, environment: Vec::new(), through: Vec::new(), log }
    }

    /// Starts the process.
    ///
    /// # Panics
    /// The process cannot be started.
    #[must_use]
    pub fn start(&self) -> Process {
        self.try_start().unwrap()
    }

    /// Starts the process.
    ///
    /// # Errors
    /// The log file cannot be opened, or the program cannot be executed.
    pub fn try_start(&self) -> anyhow::Result<Process> {
        Process::spawn(self.command(), &self.log)
    }

    /// Runs the process to its end and returns its exit code and output.
    #[must_use]
    pub fn run(&self) -> (i32, String) {
        let output = self.command().output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    /// The command without log redirection.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = match self.through.split_first() {
            None => Command::new(&self.program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.program);
                command
            }
        };
        command.args(&self.arguments).env_clear();
        for inherited in ["PATH", "HOME", "DOCKER_HOST"] {
            command.envs(std::env::var_os(inherited).map(|value| (inherited, value)));
        }
        let level = std::env::var("LONGSHORE_LOG").unwrap_or_else(|_| "info".to_owned());
        command.env("LONGSHORE_LOG", level).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null());
        command
    }
}

/// A running process. Drop kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command whose output is appended to `log`.
    ///
    /// # Errors
    /// The log file cannot be opened, or the program cannot be executed.
    pub fn spawn(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("cannot open {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// As [`Process::spawn`], in a process group of its own: Ctrl-C in the terminal does not reach it.
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub fn spawn_in_own_group(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        command.process_group(0);
        Self::spawn(command, log)
    }

    /// Process id. It is valid until the end of the process was collected.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Limits the size of every file that the process writes. Writes beyond it fail as on a bad disk, unless SIGXFSZ kills the process.
    pub fn limit_file_size(&self, bytes: u64) {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::prlimit(Some(self.pid()), Resource::Fsize, limit).unwrap();
    }

    /// The root of the process's file system as this process sees it.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.child.id()))
    }

    /// Kills the process, as a crash would, and waits until it has ended.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Waits until the process has ended.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for("the process ends", async || self.child.try_wait().unwrap()).await
    }

    /// Sends SIGTERM, waits for the end, and panics unless the exit code is 0.
    pub async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        let status = self.wait_for_exit().await;
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// Sends SIGTERM, and once more after half of `grace`. Kills the process when `grace` is over.
    pub async fn stop(&mut self, grace: Duration) {
        for _ in 0..2 {
            if !self.is_running() {
                return;
            }
            self.signal(Signal::TERM);
            let ended = wait_at_most(grace / 2, async || self.child.try_wait().ok().flatten()).await;
            if ended.is_some() {
                return;
            }
        }
        self.kill();
    }

    /// Panics if the process ends within this time.
    pub async fn assert_runs_for(&mut self, time: Duration) {
        let ended = timeout(time, self.wait_for_exit()).await;
        assert!(ended.is_err(), "the process ended by itself: {ended:?}\n{}", self.log());
    }

    /// Returns true if the process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Checks that the process has not ended.
    ///
    /// # Errors
    /// It has ended; the error shows the last lines of its log.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the process ended early with {status}. Last lines of its log:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// The whole log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of the log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        log_tail(&self.log, TAIL_LINES)
    }

    /// Lists the child processes that have this argument on their command line.
    #[must_use]
    pub fn children_with_argument(&self, argument: &str) -> Vec<Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let lists =
            tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let pids = lists
            .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>());
        pids.filter_map(Pid::from_raw).filter(|pid| has_argument(*pid, argument)).collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if the process has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the last lines of a log file; an empty text if it cannot be read.
#[must_use]
pub fn log_tail(log: &Path, lines: usize) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Returns true if this process exists and has this argument on its command line.
#[must_use]
pub fn has_argument(pid: Pid, argument: &str) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|it| it == argument.as_bytes())
}

/// Lists every process that mentions this path in its command line or environment. Job processes get the path there, too.
#[must_use]
pub fn processes_mentioning(path: &Path) -> Vec<Pid> {
    let path = path.display().to_string();
    let mentions_path = |entry: &std::fs::DirEntry| {
        ["cmdline", "environ"].iter().any(|file| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(&path)
        })
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(mentions_path)
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Enough for a panic or a refused configuration.
const TAIL_LINES: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, directory: &Path) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(command, &directory.join("sh.log")).unwrap()
    }

    #[tokio::test]
    async fn stop_ends_a_process_by_sigterm() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = shell("exec sleep 600", directory.path());
        process.ensure_running().unwrap();
        process.stop(Duration::from_secs(60)).await;
        assert!(!process.is_running());
    }

    #[tokio::test]
    async fn stop_kills_a_process_that_ignores_sigterm() {
        let directory = tempfile::tempdir().unwrap();
        // A signal that the shell ignores stays ignored after exec, so there is one process only.
        let mut process = shell("trap '' TERM; echo ready; exec sleep 600", directory.path());
        wait_for("the shell ignores SIGTERM", async || (process.log_tail() == "ready").then_some(())).await;
        process.stop(Duration::from_millis(20)).await;
        assert!(!process.is_running());
    }

    #[tokio::test]
    async fn ensure_running_shows_the_log_of_a_process_that_ended() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = shell("echo no such port >&2; exit 2", directory.path());
        process.wait_for_exit().await;
        let error = process.ensure_running().unwrap_err().to_string();
        assert!(error.contains("ended early") && error.contains("no such port"), "{error}");
    }
}
