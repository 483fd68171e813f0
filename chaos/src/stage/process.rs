//! One process of the program: what can be done to it from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::time::timeout;

use super::wait::eventually;

/// What is started, and around what.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables beside the few that every process is given.
    pub environment: Vec<(String, String)>,
    /// A command that runs the program somewhere else, such as in a network namespace, and becomes it; empty: none.
    pub through: Vec<String>,
    /// Where what it says is appended.
    pub log: PathBuf,
}

impl Launch {
    /// The program with these arguments, here.
    #[must_use]
    pub fn new(program: &Path, arguments: Vec<String>, log: PathBuf) -> Self {
        Self { program: program.to_owned(), arguments, environment: Vec::new(), through: Vec::new(), log }
    }

    /// Starts it.
    #[must_use]
    pub fn start(&self) -> Process {
        let file = std::fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = self.command();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Process { child: command.spawn().unwrap(), log: self.log.clone() }
    }

    /// Runs it to its end: its exit code, and all that it said.
    #[must_use]
    pub fn finish(&self) -> (i32, String) {
        let done = self.command().output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.code().unwrap(), String::from_utf8(said).unwrap())
    }

    fn command(&self) -> Command {
        let mut command = match self.through.split_first() {
            None => Command::new(&self.program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.program);
                command
            }
        };
        command.args(&self.arguments).env_clear().stdin(Stdio::null());
        for kept in ["PATH", "HOME", "DOCKER_HOST"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        let chosen = std::env::var("LONGSHORE_LOG").unwrap_or_else(|_| "info".to_owned());
        command.env("LONGSHORE_LOG", chosen).envs(self.environment.iter().cloned());
        command
    }
}

/// A process of the program. It does not outlive its test.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Lets no file that it writes grow beyond so many bytes: writes behind them fail as on a bad disk, unless it is killed for trying.
    pub fn limit_files(&self, bytes: u64) {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::prlimit(Some(self.pid()), Resource::Fsize, limit).unwrap();
    }

    /// Where its own files are, seen from here, if it has a file system of its own.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.child.id()))
    }

    /// Ends it as a crash would, and sees it gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Waits until it has ended, by itself or because it was asked to.
    pub async fn ended(&mut self) -> ExitStatus {
        eventually("the process ends", async || self.child.try_wait().unwrap()).await
    }

    /// Asks it to leave, waits, and expects that it is content.
    pub async fn leave(&mut self) {
        self.signal(Signal::TERM);
        let status = self.ended().await;
        assert!(status.success(), "{status}:\n{}", self.said());
    }

    /// Watches it for a while, in which it must not end.
    pub async fn lives_for(&mut self, time: Duration) {
        let ended = timeout(time, self.ended()).await;
        assert!(ended.is_err(), "it ended by itself: {ended:?}\n{}", self.said());
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// All that it has logged.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Processes that it has started itself and that were told this word.
    #[must_use]
    pub fn children(&self, word: &str) -> Vec<Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let lists =
            tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let pids = lists
            .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>());
        pids.filter_map(Pid::from_raw).filter(|pid| was_told(*pid, word)).collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this process lives, and was told this word.
#[must_use]
pub fn was_told(pid: Pid, word: &str) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|it| it == word.as_bytes())
}

/// Every process that mentions this place in its command line or in its environment, whoever started it: jobs are often told there
/// where to write.
#[must_use]
pub fn mentioning(place: &Path) -> Vec<Pid> {
    let place = place.display().to_string();
    let says_so = |entry: &std::fs::DirEntry| {
        ["cmdline", "environ"].iter().any(|part| {
            let words = std::fs::read(entry.path().join(part)).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&place)
        })
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(says_so)
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}
