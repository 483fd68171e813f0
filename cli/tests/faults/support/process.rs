//! One process of the program: what can be done to it from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::timeout;

use super::wait::eventually;

/// A process of the program. It does not outlive its test.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the program; what it says goes to the end of `log`.
    pub(crate) fn start(arguments: &[String], log: &Path) -> Self {
        let file = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(arguments).env_clear().stdin(Stdio::null());
        for kept in ["PATH", "HOME", "DOCKER_HOST"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        let chosen = std::env::var("LONGSHORE_LOG").unwrap_or_else(|_| "info".to_owned());
        command.env("LONGSHORE_LOG", chosen);
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), log: log.to_owned() }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Ends it as a crash would, and sees it gone.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Waits until it has ended, by itself or because it was asked to.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        eventually("the process ends", async || self.child.try_wait().unwrap()).await
    }

    /// Asks it to leave, waits, and expects that it is content.
    pub(crate) async fn leave(&mut self) {
        self.signal(Signal::TERM);
        let status = self.ended().await;
        assert!(status.success(), "{status}:\n{}", self.said());
    }

    /// Watches it for a while, in which it must not end.
    pub(crate) async fn lives_for(&mut self, time: Duration) {
        let ended = timeout(time, self.ended()).await;
        assert!(ended.is_err(), "it ended by itself: {ended:?}\n{}", self.said());
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// All that it has logged.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
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
