//! One attempt as a process, and its stop.

use std::sync::OnceLock;
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::OutputLengths;
use protocol::{Now, Token, Uptime};
use rustix::process::Signal;
use tokio::sync::watch;
use worker::step::{Launch, StopStep};

use crate::attempt_dir::{AttemptDir, ProcessId, ProgramState, Stopping};
use crate::boot::RecordedInstant;
use crate::logs::{Logs, OutputFollower};
use crate::runtime::blocking::{read_until_possible, run_blocking};
use crate::runtime::process_id;
use crate::runtime::start_permit::StartPermit;
use crate::runtime::stop_cause::{DISK_LIMIT, RecordingTurn, record_first_stop};

/// The state of an attempt until it is forgotten.
pub(super) struct Attempt {
    pub(super) launch: Launch,
    pub(super) dir: AttemptDir,
    pub(super) stopping: watch::Sender<Option<Stopping>>,
    recording_turn: RecordingTurn,
    pub(super) ended: watch::Sender<bool>,
    pub(super) started: OnceLock<()>,
    output: OnceLock<OutputFollower>,
    /// The first stop, if it came after the program had ended by itself.
    pub(super) late_stop_at: OnceLock<RecordedInstant>,
    pub(super) start_permit: StartPermit,
}

impl Attempt {
    pub(super) fn new(dir: AttemptDir, launch: Launch, stopping: Option<Stopping>) -> Self {
        let (stopping, ended) = (watch::Sender::new(stopping), watch::Sender::new(false));
        Self {
            launch,
            dir,
            stopping,
            recording_turn: RecordingTurn::default(),
            ended,
            started: OnceLock::new(),
            output: OnceLock::new(),
            late_stop_at: OnceLock::new(),
            start_permit: StartPermit::default(),
        }
    }

    pub(super) fn token(&self) -> Token {
        self.launch.token
    }

    /// The output of this attempt on its way to the server.
    pub(super) fn output(&self, logs: &Logs) -> &OutputFollower {
        self.output.get_or_init(|| {
            OutputFollower::new(logs.clone(), self.token(), self.dir.clone(), self.launch.spec.clone())
        })
    }

    /// Takes one step of stopping. The cause is on disk before anything is done; the first cause stays.
    pub(super) async fn stop(&self, cause: StopCause, step: StopStep, at: Now) {
        let at = RecordedInstant::of(at);
        if self.stopping.borrow().is_none() && self.has_ended_by_itself().await {
            // The task that watches the shim reports the program's own exit.
            let _ = self.late_stop_at.set(at);
            return;
        }
        record_first_stop(&self.dir, &self.stopping, &self.recording_turn, Stopping { cause, at }).await;
        match step {
            StopStep::Ask { grace } => {
                let asked = self
                    .signal_once_started(process_id::stop_signal(self.launch.spec.stop_signal.as_deref()));
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
                if tokio::time::timeout(SHIM_GRACE, over).await.is_err() {
                    let dir = self.dir.clone();
                    if let Some(shim) = run_blocking(move || dir.watcher()).await.flatten() {
                        process_id::signal_group(shim, Signal::KILL);
                    }
                }
            }
        }
    }

    /// `true` if the shim has recorded an end, or its program is gone: then a stop comes too late. A disk that hangs proves nothing.
    async fn has_ended_by_itself(&self) -> bool {
        let dir = self.dir.clone();
        let look = move || {
            let is_gone = |it| matches!(it, ProgramState::Started(program) if !process_id::is_alive(program));
            Ok(dir.end()?.is_some() || dir.program()?.is_some_and(is_gone))
        };
        tokio::time::timeout(DISK_LIMIT, run_blocking(look)).await.ok().flatten().unwrap_or(false)
    }

    /// Signals the program's process group, now or as soon as the program is there.
    async fn signal_once_started(&self, signal: Signal) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        while !*self.ended.borrow() {
            let dir = self.dir.clone();
            let program = run_blocking(move || dir.program()).await.flatten();
            if let Some(ProgramState::Started(program)) = program {
                return process_id::signal_group(program, signal);
            }
            looks.tick().await;
        }
    }
}

/// `true` while the shim of the attempt in this directory lives. It reads files.
pub(super) fn has_shim(dir: &AttemptDir) -> bool {
    // The shim of an older worker may hold no lock.
    dir.is_being_written() || dir.watcher().is_ok_and(|it| it.is_some_and(process_id::is_alive))
}

/// Start of a program: as the shim recorded it, else by the kernel in hundredths of a second. It reads a file.
pub(super) fn start_of(dir: &AttemptDir, program: ProcessId) -> Uptime {
    dir.start().unwrap_or_else(|| process_id::started_at(program))
}

/// The program of the attempt in this directory and its start, if it was started. It reads files.
pub(super) fn started_program(dir: &AttemptDir) -> Option<(ProcessId, Uptime)> {
    match dir.program() {
        Ok(Some(ProgramState::Started(program))) => Some((program, start_of(dir, program))),
        _ => None,
    }
}

/// Bytes in the output files of an attempt.
pub(super) async fn lengths(dir: &AttemptDir) -> OutputLengths {
    read_until_possible(dir, AttemptDir::try_lengths).await
}

/// Time for a shim to record the end of a killed program.
const SHIM_GRACE: Duration = Duration::from_secs(1);

/// Pause between two checks for a program that a shim is about to start.
const LOOK_EVERY: Duration = Duration::from_millis(20);
