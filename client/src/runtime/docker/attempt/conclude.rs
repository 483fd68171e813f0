//! Determines the end of an attempt after its CLI has ended, by asking the engine until the answer is certain.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::Uptime;
use protocol::report::ReleaseCause;
use tokio::time::sleep;
use worker::input::{Exit, ResultFile, StartFailure};

use super::{Attempt, AttemptOutcome, INSPECT_RETRY_INTERVAL, not_started, unavailable};
use crate::clock;
use crate::runtime::docker::cli::{self, CallError};
use crate::runtime::docker::container::{self, Container, Lifecycle};
use crate::runtime::docker::events::{self, EngineMemory};
use crate::runtime::docker::{DockerState, replay, run_blocking};

/// The end of an attempt's CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CliExit {
    /// It ended with this exit code.
    Code(i32),
    /// Docker refused to make a container, because the name is taken.
    NameTaken,
    /// It was not our child and ended while we watched, so it wrote all output.
    Observed,
    /// It hung and was killed. Until then the engine answered without a break that nothing was started.
    Hung,
    /// It was killed, or it ended at an unknown time.
    Unknown,
}

/// The result of the queries after the CLI has ended.
pub(super) enum Conclusion {
    Ended(AttemptOutcome),
    /// A container was made, certainly never started, and is removed: try again.
    NeverStarted(String),
    /// The name is taken, and no container has it: it is being made or removed.
    NameTaken(String),
    /// There is no container, for no known reason: try again.
    Retry(String),
}

impl Attempt {
    /// Determines the end. The CLI is gone.
    pub(super) async fn determine_end(&self, docker: &Arc<DockerState>, cli_exit: CliExit) -> Conclusion {
        let (settling_since, cli_stderr) = (clock::now().up, self.cli_stderr().await);
        let was_killed = matches!(cli_exit, CliExit::Unknown | CliExit::Hung);
        let since = if was_killed { NOBODY_LOOKED } else { settling_since };
        let was_cut_off = cli::unreachable_line(&cli_stderr).is_some();
        let mut replayed = false;
        loop {
            let Some(container) = self.inspect(docker).await else {
                return self.conclude_absent(docker, cli_exit, &cli_stderr);
            };
            if !self.owns(&container) {
                tracing::error!(
                    container = self.name,
                    "the container name belongs to another attempt; giving the attempt back"
                );
                let why = format!(
                    "the name `{}` is taken by a container that belongs to another attempt",
                    self.name
                );
                return Conclusion::Ended(AttemptOutcome::Refused {
                    cause: ReleaseCause::RuntimeUnavailable,
                    why,
                });
            }
            if was_cut_off && cli_exit == CliExit::Code(125) && container.exit_code() != 125 {
                // The program did not end like that, so the CLI lost its engine, which may have died under the container.
                docker.engine.health.record_outage();
            }
            match container.lifecycle() {
                Lifecycle::Changing => sleep(INSPECT_RETRY_INTERVAL).await,
                Lifecycle::Failed(exit) => {
                    let oom_seen = container.state.oom_killed || self.oom.load(Ordering::Relaxed);
                    let exit = self.with_memory_kill(exit, oom_seen);
                    return Conclusion::Ended(AttemptOutcome::Ended { exit, at: clock::now().up });
                }
                Lifecycle::Unstarted => {
                    if docker.engine.remove_unstarted(&container.id).await {
                        // Docker's own message that it does not start it is enough.
                        let was_told = matches!(cli_exit, CliExit::Code(125..=127)) && !was_cut_off;
                        let was_seen = cli_exit == CliExit::Hung;
                        return self.conclude_unstarted(docker, &container, (was_told, was_seen)).await;
                    }
                    sleep(REMOVE_AGAIN).await;
                }
                Lifecycle::Running => {
                    let at = self.start_of(docker, &container).await;
                    self.report_start(docker, &container.id, at).await;
                    replay::follow(docker, &self.replayed()).await;
                    replayed = true;
                }
                Lifecycle::Ended => {
                    let at = self.start_of(docker, &container).await;
                    self.report_start(docker, &container.id, at).await;
                    let saw_all =
                        [CliExit::Observed, CliExit::Code(container.exit_code())].contains(&cli_exit);
                    if replayed || !saw_all {
                        replay::complete(docker, &self.replayed()).await;
                    }
                    if let Some(exit) = self.verdict(docker, &container, (cli_exit, since), &cli_stderr).await
                    {
                        return Conclusion::Ended(AttemptOutcome::Ended {
                            exit: self.with_result(docker, exit).await,
                            at: self.ended_at(docker, &container),
                        });
                    }
                }
            }
        }
    }

    /// The exit of a container that ran; `None` if the engine must be asked once more.
    async fn verdict(
        &self,
        docker: &DockerState,
        container: &Container,
        (cli_exit, since): (CliExit, Uptime),
        cli_stderr: &str,
    ) -> Option<Exit> {
        let spec = &self.launch.spec;
        // Engines sometimes miss a kill; the control group has counted it.
        let oom_seen = self.oom.load(Ordering::Relaxed) || docker.config.usage.was_oom_killed(self.token());
        let exit = container.exit(oom_seen);
        if let Some(message) = container::init_failure(spec.init, container.exit_code(), cli_stderr) {
            let code = Some(container.exit_code());
            return Some(Exit::NotStarted { fault: StartFailure::Definition, code, message });
        }
        let lost = Exit::DaemonLost {
            message: "the Docker daemon died under it".into(),
            run_time: Some(container.run_time()),
        };
        if cli_exit != CliExit::Code(0)
            && container.may_be_a_forged_success(since, docker.engine.now())
            && docker.engine.may_forge_successes().await
        {
            // The event of an end may arrive a little later than the end.
            sleep(events::JUST_NOW).await;
            return match docker.engine.forgot_end_of(container).await {
                Ok(true) if !docker.engine.began_long_after(container).await => Some(lost),
                // An engine whose clock is behind ours waits for the end of the time range.
                Ok(_) | Err(CallError::Slow(_)) => Some(exit),
                Err(_) => None,
            };
        }
        let was_stopping = self.was_stopping(docker, container);
        if was_stopping || !container::looks_like_a_dead_engine(&exit) {
            return Some(exit);
        }
        if container.was_lost_by_the_engine() {
            return Some(lost);
        }
        if docker.engine.health.was_down_within(ENGINE_DEATH) {
            // The engine may only have been slow for a moment.
            sleep(events::JUST_NOW).await;
            match docker.engine.remembers_whole_life(container).await {
                Ok(true) => return Some(exit),
                Ok(false) | Err(CallError::Slow(_)) => return Some(lost),
                Err(_) => return None,
            }
        }
        if docker.engine.was_restarted_after(container).await {
            return Some(lost);
        }
        // A daemon that is shutting down may still answer, or has just stopped to.
        sleep(SUSPICION).await;
        docker.engine.ping().await.is_ok().then_some(exit)
    }

    /// The container looked as if it was never started, and is removed. If `was_seen`, it has looked so without a break until now.
    async fn conclude_unstarted(
        &self,
        docker: &DockerState,
        container: &Container,
        (was_told, was_seen): (bool, bool),
    ) -> Conclusion {
        let memory = loop {
            if was_told {
                break EngineMemory::Unstarted;
            }
            match docker.engine.engine_memory_of(container).await {
                // A start since then would be among the latest events.
                Ok(EngineMemory::PushedOut) if was_seen => break EngineMemory::Unstarted,
                Ok(memory) => break memory,
                // An engine whose clock is behind ours waits for the end of the time range.
                Err(CallError::Slow(_)) => break EngineMemory::Forgotten,
                Err(_) => sleep(INSPECT_RETRY_INTERVAL).await,
            }
        };
        let exit = match memory {
            EngineMemory::Unstarted if self.is_stopping() => return stopped_before_start(),
            EngineMemory::Unstarted => {
                return Conclusion::NeverStarted("a container was made and never started".into());
            }
            EngineMemory::Started => Exit::Vanished,
            EngineMemory::Forgotten | EngineMemory::PushedOut => {
                let message = "the Docker daemon died while it was starting it".into();
                Exit::DaemonLost { message, run_time: None }
            }
        };
        Conclusion::Ended(AttemptOutcome::Ended { exit, at: clock::now().up })
    }

    /// The result if no container has the name.
    fn conclude_absent(&self, docker: &DockerState, cli_exit: CliExit, cli_stderr: &str) -> Conclusion {
        if self.started.get().is_some() {
            return Conclusion::Ended(AttemptOutcome::Ended { exit: Exit::Vanished, at: clock::now().up });
        }
        match cli_exit {
            _ if self.is_stopping() => stopped_before_start(),
            CliExit::Code(125) if cli::unreachable_line(cli_stderr).is_some() => {
                Conclusion::Ended(unavailable(&CallError::Unreachable(cli::one_line(cli_stderr))))
            }
            CliExit::Code(125) if cli_stderr.contains("No such image") => {
                docker.images.forget(&self.launch.spec);
                Conclusion::Retry(cli::one_line(cli_stderr))
            }
            CliExit::Code(125) => {
                let message = cli::one_line(cli_stderr);
                let exit =
                    Exit::NotStarted { fault: container::fault_of(&message), code: Some(125), message };
                let exit = self.with_memory_kill(exit, false);
                Conclusion::Ended(AttemptOutcome::Ended { exit, at: clock::now().up })
            }
            CliExit::Code(_) | CliExit::Observed => {
                Conclusion::Ended(AttemptOutcome::Ended { exit: Exit::Vanished, at: clock::now().up })
            }
            CliExit::NameTaken => Conclusion::NameTaken(format!(
                "the container name `{}` is taken, and no container has it",
                self.name
            )),
            CliExit::Unknown | CliExit::Hung => {
                Conclusion::Retry("docker was killed before it made a container".into())
            }
        }
    }

    /// The exit of a failed start. A container that was killed at its own memory limit counts as one that ran and was killed there, so the
    /// next attempt may get more. Without a limit the machine lacks memory.
    fn with_memory_kill(&self, exit: Exit, oom_seen: bool) -> Exit {
        match exit {
            Exit::NotStarted { fault: StartFailure::Host, message, .. }
                if self.launch.spec.resources.memory_bytes.is_some()
                    && (oom_seen || container::is_memory_kill(&message)) =>
            {
                Exit::Ran { code: KILLED, oom: true, run_time: Duration::ZERO, result: ResultFile::Absent }
            }
            exit => exit,
        }
    }

    /// `true` if the container belongs to this attempt. If a database went back in time, another attempt may have the same job and fence.
    pub(in crate::runtime::docker) fn owns(&self, container: &Container) -> bool {
        container.owner().is_some_and(|(_, _, token)| token == self.token())
    }

    /// The end of the standard error: Docker's own messages if nothing was started.
    pub(super) async fn cli_stderr(&self) -> String {
        let dir = self.dir.clone();
        run_blocking(move || replay::last_bytes(&dir, CLI_STDERR_BYTES)).await.unwrap_or_default()
    }
}

fn stopped_before_start() -> Conclusion {
    Conclusion::Ended(not_started(StartFailure::Stopped, "stopped before it started".into()))
}

/// 128 + SIGKILL.
const KILLED: i32 = 137;

/// Earlier than the end of any container.
const NOBODY_LOOKED: Uptime = Uptime(0);

/// An engine that was down within this time may have killed a container.
const ENGINE_DEATH: Duration = Duration::from_secs(30);

/// A container that the engine does not remove is mostly being started.
const REMOVE_AGAIN: Duration = Duration::from_secs(1);

/// Time in which an engine that is shutting down stops to answer.
const SUSPICION: Duration = Duration::from_secs(1);

/// Docker's messages fit into this.
const CLI_STDERR_BYTES: u64 = 8 * 1024;
