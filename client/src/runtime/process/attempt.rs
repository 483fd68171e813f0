//! One attempt as a process: how it is asked to stop, and killed.

use std::sync::OnceLock;
use std::time::Duration;

use protocol::Token;
use protocol::order::StopCause;
use rustix::process::Signal;
use tokio::sync::watch;
use worker::step::{Launch, StopStep};

use crate::attempt_dir::{AttemptDir, Program, Stopping};
use crate::clock;
use crate::runtime::elsewhere::blocking;
use crate::runtime::proc;
use crate::runtime::word::Word;

/// What is known of an attempt while its process, or what is left of it, is here.
pub(super) struct Attempt {
    pub(super) launch: Launch,
    pub(super) dir: AttemptDir,
    pub(super) stopping: watch::Sender<Option<Stopping>>,
    pub(super) ended: watch::Sender<bool>,
    pub(super) started: OnceLock<()>,
    pub(super) word: Word,
}

impl Attempt {
    pub(super) fn new(dir: AttemptDir, launch: Launch, stopping: Option<Stopping>) -> Self {
        let (stopping, ended) = (watch::Sender::new(stopping), watch::Sender::new(false));
        Self { launch, dir, stopping, ended, started: OnceLock::new(), word: Word::default() }
    }

    pub(super) fn token(&self) -> Token {
        self.launch.token
    }

    /// Whether its shim lives.
    pub(super) fn has_shim(&self) -> bool {
        // The shim of a worker before this one may hold no lock.
        let is_written_down = || self.dir.watcher().is_ok_and(|it| it.is_some_and(proc::is_alive));
        self.dir.is_being_written() || is_written_down()
    }

    /// Takes one step. The cause is on disk before anything is done; the one that was there first stays.
    pub(super) async fn stop(&self, cause: StopCause, step: StopStep) {
        let dir = self.dir.clone();
        let stopping = Stopping { cause, at: clock::now().utc };
        let first = blocking(move || dir.record_stopping(stopping)).await.unwrap_or(stopping);
        self.stopping.send_if_modified(|stopping| stopping.replace(first).is_none());
        match step {
            StopStep::Ask { grace } => {
                let asked =
                    self.signal_once_started(proc::stop_signal(self.launch.spec.stop_signal.as_deref()));
                let mut ended = self.ended.subscribe();
                let in_time = async {
                    asked.await;
                    ended.wait_for(|it| *it).await.is_ok()
                };
                if tokio::time::timeout(grace, in_time).await.is_err() {
                    self.signal_once_started(Signal::KILL).await;
                }
            }
            StopStep::Kill => self.signal_once_started(Signal::KILL).await,
            StopStep::Remove => {
                let mut ended = self.ended.subscribe();
                let over = async {
                    self.signal_once_started(Signal::KILL).await;
                    ended.wait_for(|it| *it).await.is_ok()
                };
                if tokio::time::timeout(SHIM_GRACE, over).await.is_err()
                    && let Ok(Some(shim)) = self.dir.watcher()
                {
                    proc::signal_group(shim, Signal::KILL);
                }
            }
        }
    }

    /// Signals the program and all of its group: now, or as soon as it is there.
    async fn signal_once_started(&self, signal: Signal) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        while !*self.ended.borrow() {
            if let Ok(Some(Program::Is(program))) = self.dir.program() {
                return proc::signal_group(program, signal);
            }
            looks.tick().await;
        }
    }
}

/// How long a shim may take to write down how its program was killed.
const SHIM_GRACE: Duration = Duration::from_secs(1);

/// Between two looks for a program that a shim is about to start.
const LOOK_EVERY: Duration = Duration::from_millis(20);
