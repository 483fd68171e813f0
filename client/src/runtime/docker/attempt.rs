//! One attempt, from its image to its end.
//!
//! ```text
//! allowed? ─▶ directory ─▶ image ─▶ start permit ─▶ docker run ─▶ the CLI ends ─▶ inspect ─▶ Ended
//!                            ▲                                            adopted ─▶   │ ▲
//!                            └──────────────── nothing was started ────────────────────┘ └── it still runs: read its log, wait
//! ```
//! The CLI's exit is only a hint; `inspect` decides. Until the engine answers, no end is reported.

mod conclude;
mod exchange;
mod first_stop;
mod image;
mod lengths;
mod outcome;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use protocol::report::{OutputLengths, Phase, ReleaseCause, Stream};
use protocol::{Token, Uptime, Usage};
use rustix::process::Signal;
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::{Instant, sleep};
use worker::input::{Exit, RuntimeEvent, StartFailure};
use worker::step::Launch;

use self::conclude::{CliExit, Conclusion};
pub(super) use self::first_stop::AtFirstStop;
use self::outcome::{
    AttemptOutcome, CliRun, NotRun, command_line, end_without_image, name_delay, not_started, unavailable,
    wants_another_image,
};
use super::DockerState;
use super::cli::{self, CallError, RunError};
use super::container::Container;
use super::images::{self, PullError};
use super::replay::append::DiskTurn;
use crate::attempt_dir::{AttemptDir, AttemptEnd, ProcessId, Stopping};
use crate::boot::RecordedInstant;
use crate::logs::OutputFollower;
use crate::runtime::argv::CommandLine;
use crate::runtime::blocking::try_blocking;
use crate::runtime::start_permit::{PullPermit, StartPermit};
use crate::runtime::stop_cause::RecordingTurn;
use crate::runtime::{Membership, process_id};
use crate::{clock, error_chain::error_chain};

/// The state of an attempt until it is forgotten.
pub(super) struct Attempt {
    pub(super) launch: Launch,
    pub(super) name: String,
    pub(super) dir: AttemptDir,
    /// The stop; set once.
    pub(super) stopping: watch::Sender<Option<Stopping>>,
    pub(super) recording_turn: RecordingTurn,
    pub(super) ended: watch::Sender<bool>,
    /// The running CLI that writes the output files.
    pub(super) watcher: Mutex<Option<ProcessId>>,
    /// `true` while a task repeats `docker stop`.
    pub(super) stop_in_progress: AtomicBool,
    /// `true` while a forced removal is under way.
    pub(super) removal_in_progress: AtomicBool,
    pub(super) pull_permit: PullPermit,
    pub(super) start_permit: StartPermit,
    /// The attempt was forgotten while it waited for its pull permit.
    pub(super) withdrawn: Notify,
    /// Number of bytes that are known to be missing at the end of its output.
    missing: Mutex<OutputLengths>,
    /// Orders the file work of replays of its output.
    replay_turn: DiskTurn,
    /// Id of its container, set once the start is reported and the output is followed.
    started: OnceCell<String>,
    oom: AtomicBool,
    output: OnceLock<OutputFollower>,
    /// The answer to the question of the first stop.
    pub(super) at_first_stop: OnceCell<AtFirstStop>,
    /// The first stop, if it came after the container had ended by itself.
    late_stop_at: OnceLock<RecordedInstant>,
}

impl Attempt {
    pub(super) fn new(
        launch: Launch,
        membership: Membership,
        dir: AttemptDir,
        stopping: Option<Stopping>,
    ) -> Self {
        Self {
            name: launch.token.container_name(membership.cluster),
            launch,
            dir,
            stopping: watch::Sender::new(stopping),
            recording_turn: RecordingTurn::default(),
            ended: watch::Sender::new(false),
            watcher: Mutex::new(None),
            stop_in_progress: AtomicBool::new(false),
            removal_in_progress: AtomicBool::new(false),
            pull_permit: PullPermit::default(),
            start_permit: StartPermit::default(),
            withdrawn: Notify::new(),
            missing: Mutex::default(),
            replay_turn: DiskTurn::default(),
            started: OnceCell::new(),
            oom: AtomicBool::new(false),
            output: OnceLock::new(),
            at_first_stop: OnceCell::new(),
            late_stop_at: OnceLock::new(),
        }
    }

    pub(super) fn token(&self) -> Token {
        self.launch.token
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.borrow().is_some()
    }

    /// Marks a stop as too late: the container had ended by itself.
    pub(super) fn set_late_stop(&self, at: RecordedInstant) {
        // The first one is the earliest.
        let _ = self.late_stop_at.set(at);
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(super) fn mark_oom(&self) {
        self.oom.store(true, Ordering::Relaxed);
    }

    /// Runs it from the beginning to the end.
    pub(super) async fn run(&self, docker: &Arc<DockerState>, membership: Membership) {
        let end = self.start_and_wait(docker, membership).await;
        self.report_end(docker, end).await;
    }

    /// Watches an attempt of an earlier process to the end.
    pub(super) async fn watch(&self, docker: &Arc<DockerState>) {
        let watcher = *self.watcher();
        let has_cli = watcher.is_some() || self.is_being_written().await;
        let written = async {
            if let Some(pid) = watcher {
                process_id::wait(pid).await;
                self.watcher().take();
            }
            while self.is_being_written().await {
                sleep(END_POLL_INTERVAL).await;
            }
        };
        // An adopted container may have started long ago, and no event reports that again.
        let hanging = async {
            let hang = self.poll_for_start(docker).await;
            // A CLI whose process is unknown cannot be killed, so it may still make and start the container.
            match watcher {
                Some(cli) => (cli, hang),
                None => std::future::pending().await,
            }
        };
        let cli_exit = tokio::select! {
            () = written => if has_cli { CliExit::Observed } else { CliExit::Unknown },
            (cli, hang) = hanging => {
                tracing::warn!(attempt = %self.token(), ?hang, "docker run of an earlier process hangs: it is killed");
                process_id::signal_group(cli, Signal::KILL);
                self.watcher().take();
                CliExit::Hung
            }
        };
        let end = match self.determine_end(docker, cli_exit).await {
            Conclusion::Ended(end) => end,
            // An earlier process got no further. That counts against neither the job nor the worker.
            Conclusion::NeverStarted(why) | Conclusion::NameTaken(why) => {
                AttemptOutcome::Refused { cause: ReleaseCause::RuntimeUnavailable, why }
            }
            Conclusion::Retry(why) if self.was_never_begun().await => {
                AttemptOutcome::Refused { cause: ReleaseCause::RuntimeUnavailable, why }
            }
            // A container may have been made, have run and have been removed.
            Conclusion::Retry(_) => AttemptOutcome::Ended { exit: Exit::Vanished, at: clock::now().up },
        };
        self.report_end(docker, end).await;
    }

    /// `true` if no CLI was ever started for it.
    async fn was_never_begun(&self) -> bool {
        let dir = self.dir.clone();
        super::run_blocking(move || dir.watcher()).await.is_some_and(|it| it.is_none())
    }

    /// Determines the end during a survey; unknown if that takes longer than the survey may. The survey finishes the output.
    pub(super) async fn conclude(&self, docker: &Arc<DockerState>, until: Instant) -> worker::input::Found {
        match tokio::time::timeout_at(until, self.determine_end(docker, CliExit::Unknown)).await {
            Ok(Conclusion::Ended(AttemptOutcome::Ended { exit, at })) => {
                let (output, usage) = self.record_end(docker, &exit, at).await;
                self.ended.send_replace(true);
                worker::input::Found::Ended { exit, output, usage, at }
            }
            Ok(Conclusion::NeverStarted(_)) => worker::input::Found::Unstarted,
            Ok(
                Conclusion::Ended(AttemptOutcome::Refused { .. } | AttemptOutcome::Withdrawn)
                | Conclusion::Retry(_)
                | Conclusion::NameTaken(_),
            )
            | Err(_) => worker::input::Found::Unknown,
        }
    }

    /// The container by `docker inspect`, as soon as the engine answers.
    async fn inspect(&self, docker: &DockerState) -> Option<Container> {
        loop {
            docker.engine.health.wait_until_up().await;
            match docker.engine.inspect(&[&self.name]).await {
                Ok(found) => return found.into_iter().next(),
                Err(error) => {
                    tracing::warn!(attempt = %self.token(), error = error_chain(&error), "cannot inspect the container; trying again")
                }
            }
            sleep(INSPECT_RETRY_INTERVAL).await;
        }
    }

    async fn start_and_wait(&self, docker: &Arc<DockerState>, membership: Membership) -> AttemptOutcome {
        let (mut tries, mut name_tries, mut problem) = (0, 0, String::new());
        while tries < TRIES {
            match self.try_start(docker, membership).await {
                Err(outcome) => return outcome,
                Ok(NotRun::NameTaken(_)) if name_tries < NAME_TRIES => {
                    sleep(name_delay(name_tries)).await;
                    name_tries += 1;
                }
                Ok(NotRun::NameTaken(why)) => {
                    return AttemptOutcome::Refused { cause: ReleaseCause::RuntimeUnavailable, why };
                }
                Ok(NotRun::Other(why)) => {
                    problem = why;
                    tries += 1;
                }
            }
        }
        // The image that was pulled for this platform is for another one: the registry has none for this.
        let is_wrong_platform = images::is_for_another_platform(&problem);
        not_started(if is_wrong_platform { StartFailure::Pull } else { StartFailure::Host }, problem)
    }

    /// Starts the container once and waits for its end. Returns the reason if nothing has run, and another try may succeed.
    ///
    /// # Errors
    /// The outcome of the attempt, if it is over.
    async fn try_start(
        &self,
        docker: &Arc<DockerState>,
        membership: Membership,
    ) -> Result<NotRun, AttemptOutcome> {
        let wrong_definition = |why: String| not_started(StartFailure::Definition, why);
        let stopped = || not_started(StartFailure::Stopped, "stopped before it started".into());
        // Nothing is fetched for an invalid definition.
        command_line(&self.launch, membership, false)
            .map_err(|invalid| wrong_definition(invalid.to_string()))?;
        let mut stopping = self.stopping.subscribe();
        let image = tokio::select! {
            biased;
            _ = stopping.wait_for(Option::is_some) => return Err(stopped()),
            () = self.withdrawn.notified() => return Err(AttemptOutcome::Withdrawn),
            image = self.ensure_image(docker) => image,
        };
        image.map_err(|error| match error {
            PullError::Failed(failure) => end_without_image(failure),
            PullError::Engine(error) => unavailable(&error),
        })?;
        self.progress(docker, Phase::Starting);
        let (launch, gives_gpus) = self.complete_launch(docker).await?;
        if !self.start_permit.request(self.token(), &docker.events, &self.stopping).await {
            return Err(stopped());
        }
        self.check_mounts_again(docker, &launch).await?;
        // The deadline counts from here.
        let line = command_line(&launch, membership, gives_gpus)
            .map_err(|invalid| wrong_definition(invalid.to_string()))?;
        let before = self.lengths().await;
        let run = self.run_cli(docker, &line).await.map_err(|error| match error {
            RunError::Call(error) => unavailable(&error),
            error @ RunError::CommandLine(_) => wrong_definition(error_chain(&error)),
        })?;
        let code = match run {
            CliRun::Exited(code) => code,
            CliRun::Hung(hang) => return Err(self.end_of_hanging_cli(docker, hang).await),
        };
        let cli_exit = self.cli_exit(code, before).await;
        let why = match self.determine_end(docker, cli_exit).await {
            Conclusion::NameTaken(why) => return Ok(NotRun::NameTaken(why)),
            Conclusion::Retry(why) | Conclusion::NeverStarted(why) => why,
            Conclusion::Ended(end) => {
                let why = wants_another_image(end)?;
                docker.images.forget(&self.launch.spec);
                why
            }
        };
        // Nothing has run, so the output is Docker's own. It must not appear as output of the next try.
        let dir = self.dir.clone();
        super::run_blocking(move || dir.cut_output(before)).await;
        Ok(NotRun::Other(why))
    }

    /// Runs the CLI to its end.
    async fn run_cli(&self, docker: &Arc<DockerState>, line: &CommandLine) -> Result<CliRun, RunError> {
        let dir = self.dir.clone();
        let outputs = try_blocking(move || Ok((dir.claim_output()?, dir.output(Stream::Stderr)?))).await;
        let (stdout, stderr) = outputs.map_err(CallError::Unreachable)?;
        let mut child = docker.engine.cli.run(line, stdout, stderr).inspect_err(|error| {
            if let RunError::Call(error) = error {
                docker.engine.mark_unreachable(error);
            }
        })?;
        if let Some(pid) = child.id().and_then(process_id::identify) {
            *self.watcher() = Some(pid);
            let dir = self.dir.clone();
            super::run_blocking(move || dir.record_watcher(pid)).await;
        }
        let run = tokio::select! {
            status = child.wait() => CliRun::Exited(status.ok().and_then(|it| it.code())),
            hang = self.poll_for_start(docker) => CliRun::Hung(hang),
        };
        if let (CliRun::Hung(_), Some(pid)) = (&run, child.id()) {
            process_id::signal_group_of_child(pid, Signal::KILL);
        }
        self.watcher().take();
        Ok(run)
    }

    /// The meaning of the CLI's exit code. If the name was taken, the CLI's message about it is cut from the output: the container of an
    /// earlier start may be adopted, and it has not written that.
    async fn cli_exit(&self, code: Option<i32>, before: OutputLengths) -> CliExit {
        match code {
            Some(125) if self.started.get().is_none() && cli::is_name_conflict(&self.cli_stderr().await) => {
                let dir = self.dir.clone();
                super::run_blocking(move || dir.cut_output(before)).await;
                CliExit::NameTaken
            }
            code => code.map_or(CliExit::Unknown, CliExit::Code),
        }
    }

    async fn report_end(&self, docker: &Arc<DockerState>, end: AttemptOutcome) {
        match end {
            AttemptOutcome::Withdrawn => drop(self.ended.send_replace(true)),
            AttemptOutcome::Refused { cause, why } => {
                let dir = self.dir.clone();
                super::run_blocking(move || dir.remove()).await;
                docker.registry.untrack(self.token());
                self.ended.send_replace(true);
                docker.send_event(RuntimeEvent::Refused { token: self.token(), cause, why });
            }
            AttemptOutcome::Ended { exit, at } => {
                let (output, usage) = self.record_end(docker, &exit, at).await;
                self.ended.send_replace(true);
                self.output(docker).finish(output).await;
                docker.send_event(RuntimeEvent::Ended { token: self.token(), exit, output, usage, at });
            }
        }
    }

    /// Records the end before it is reported.
    async fn record_end(&self, docker: &DockerState, exit: &Exit, at: Uptime) -> (OutputLengths, Usage) {
        let now = clock::now();
        let output =
            if self.started.get().is_some() { self.output_lengths().await } else { OutputLengths::default() };
        let (dir, seen) = (self.dir.clone(), docker.forget_usage(self.token()));
        let (exit, at) = (exit.clone(), RecordedInstant::of_uptime(at, now));
        let record = move || {
            // An earlier process may have seen more of it.
            let usage = seen.later(dir.usage().unwrap_or_default());
            dir.record_end(&AttemptEnd { exit, output, usage, at })?;
            Ok(usage)
        };
        (output, super::run_blocking(record).await.unwrap_or(seen))
    }

    pub(super) fn watcher(&self) -> std::sync::MutexGuard<'_, Option<ProcessId>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of tries to start if nothing was started for unknown reasons.
const TRIES: u32 = 3;

/// Number of tries to start while the name of the container is taken by something that cannot be seen.
const NAME_TRIES: u32 = 12;

/// Pause between two looks at a changing container, or at an engine that answers badly.
const INSPECT_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Pause between two checks of a CLI whose process is not recorded. A check is three system calls.
const END_POLL_INTERVAL: Duration = Duration::from_millis(100);
