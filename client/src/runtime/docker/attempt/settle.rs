//! What became of an attempt after its CLI has ended: asked of the engine until it is certain.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::Uptime;
use protocol::report::ReleaseCause;
use tokio::time::sleep;
use worker::input::{Exit, Fault};

use super::{Attempt, End, LOOK_AGAIN, not_started, unavailable};
use crate::clock;
use crate::runtime::docker::cli::{self, CallError};
use crate::runtime::docker::container::{self, Container, Meaning};
use crate::runtime::docker::events::{self, Memory};
use crate::runtime::docker::{Shared, blocking, replay};

/// How the CLI of an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Witness {
    /// With this code.
    Ended(i32),
    /// It was not our child, and ended while we looked on: so it has seen what there was to see.
    Finished,
    /// It was killed, or ended who knows when.
    Gone,
}

/// What is found after the CLI has ended.
pub(super) enum Found {
    End(End),
    /// A container was made for it and never started, for sure, and is gone: try again.
    Untouched(String),
    /// There is no container, and that is nobody's verdict: try again.
    Again(String),
}

impl Attempt {
    /// Finds out what became of it. The CLI is gone.
    pub(super) async fn settle(&self, shared: &Arc<Shared>, witness: Witness) -> Found {
        let (settling_since, chatter) = (clock::now().up, self.chatter().await);
        let since = if witness == Witness::Gone { NOBODY_LOOKED } else { settling_since };
        let was_cut_off = cli::unreachable(&chatter).is_some();
        if witness == Witness::Ended(125) && self.started.get().is_none() && was_cut_off {
            // The container may have been made, and started, all the same: an engine that is back says so.
            shared.note(&CallError::Unreachable(cli::one_line(&chatter)));
        }
        let mut replayed = false;
        loop {
            let Some(container) = self.inspect(shared).await else {
                return self.absent(shared, witness, &chatter);
            };
            if !self.owns(&container) {
                tracing::error!(container = self.name, "its name is taken by a container of another attempt");
                let why = format!(
                    "the name `{}` is taken by a container that belongs to another attempt",
                    self.name
                );
                return Found::End(End::Refused { cause: ReleaseCause::RuntimeUnavailable, why });
            }
            match container.meaning() {
                Meaning::Changing => sleep(LOOK_AGAIN).await,
                Meaning::Failed(exit) => return Found::End(End::Ended { exit, at: clock::now().up }),
                Meaning::Unstarted => {
                    if shared.remove_unstarted(&container.id).await {
                        // Docker's own words, that it does not start it, are enough.
                        let was_told = matches!(witness, Witness::Ended(125..=127)) && !was_cut_off;
                        return self.unstarted(shared, &container, was_told).await;
                    }
                    sleep(REMOVE_AGAIN).await;
                }
                Meaning::Running => {
                    self.saw_start(shared, &container.id, self.start_of(shared, &container));
                    replay::follow(shared, self).await;
                    replayed = true;
                }
                Meaning::Ended => {
                    self.saw_start(shared, &container.id, self.start_of(shared, &container));
                    let saw_all =
                        [Witness::Finished, Witness::Ended(container.exit_code())].contains(&witness);
                    if replayed || !saw_all {
                        replay::complete(shared, self).await;
                    }
                    if let Some(exit) = self.verdict(shared, &container, (witness, since), &chatter).await {
                        return Found::End(End::Ended { exit, at: self.ended_at(shared, &container) });
                    }
                }
            }
        }
    }

    /// What the end of a container that ran means; nothing if the engine must be asked once more.
    async fn verdict(
        &self,
        shared: &Shared,
        container: &Container,
        (witness, since): (Witness, Uptime),
        chatter: &str,
    ) -> Option<Exit> {
        let spec = &self.launch.spec;
        let exit = container.exit(self.oom.load(Ordering::Relaxed));
        if let Some(message) = container::init_failure(spec.init, container.exit_code(), chatter) {
            let code = Some(container.exit_code());
            return Some(Exit::NotStarted { fault: Fault::Definition, code, message });
        }
        let lost = Exit::DaemonLost {
            message: "the Docker daemon died under it".into(),
            ran: Some(container.ran()),
        };
        if witness != Witness::Ended(0)
            && container.may_be_a_forged_success(since, shared.engine_now())
            && shared.may_forge_successes().await
        {
            // What has just happened need not be told yet.
            sleep(events::JUST_NOW).await;
            return match shared.forgot_the_end_of(container).await {
                Ok(true) if !shared.began_long_after(container).await => Some(lost),
                // An engine whose clock is far behind waits for the end of the question.
                Ok(_) | Err(CallError::Slow(_)) => Some(exit),
                Err(_) => None,
            };
        }
        let was_stopping = self.was_stopping(shared, container);
        if was_stopping || !container.looks_like_a_dead_engine() {
            return Some(exit);
        }
        if container.was_lost_by_the_engine() {
            return Some(lost);
        }
        if shared.health.was_down_within(ENGINE_DEATH) {
            // It may only not have answered for a moment.
            sleep(events::JUST_NOW).await;
            match shared.lived_through(container).await {
                Ok(true) => return Some(exit),
                Ok(false) | Err(CallError::Slow(_)) => return Some(lost),
                Err(_) => return None,
            }
        }
        if shared.was_restarted_after(container).await {
            return Some(lost);
        }
        // A daemon that is just leaving still answers, or has just stopped to.
        sleep(SUSPICION).await;
        shared.ping().await.is_ok().then_some(exit)
    }

    /// Its container looked as if it had never been started, and is removed.
    async fn unstarted(&self, shared: &Shared, container: &Container, was_told: bool) -> Found {
        let memory = loop {
            if was_told {
                break Memory::Unstarted;
            }
            match shared.memory_of(container).await {
                Ok(memory) => break memory,
                // An engine whose clock is far behind waits for the end of the question.
                Err(CallError::Slow(_)) => break Memory::Forgotten,
                Err(_) => sleep(LOOK_AGAIN).await,
            }
        };
        let exit = match memory {
            Memory::Unstarted if self.is_stopping() => return self.untouched(""),
            Memory::Unstarted => return Found::Untouched("a container was made and never started".into()),
            Memory::Started => Exit::Vanished,
            Memory::Forgotten => {
                let message = "the Docker daemon died while it was starting it".into();
                Exit::DaemonLost { message, ran: None }
            }
        };
        Found::End(End::Ended { exit, at: clock::now().up })
    }

    /// There is no container of that name.
    fn absent(&self, shared: &Shared, witness: Witness, chatter: &str) -> Found {
        if self.started.get().is_some() {
            return Found::End(End::Ended { exit: Exit::Vanished, at: clock::now().up });
        }
        match witness {
            _ if self.is_stopping() => self.untouched(""),
            Witness::Ended(125) if cli::unreachable(chatter).is_some() => {
                Found::End(unavailable(&CallError::Unreachable(cli::one_line(chatter))))
            }
            Witness::Ended(125) if chatter.contains("No such image") => {
                shared.images.forget(&self.launch.spec);
                Found::Again(cli::one_line(chatter))
            }
            Witness::Ended(125) => {
                let message = cli::one_line(chatter);
                let exit =
                    Exit::NotStarted { fault: container::fault_of(&message), code: Some(125), message };
                Found::End(End::Ended { exit, at: clock::now().up })
            }
            Witness::Ended(_) | Witness::Finished => {
                Found::End(End::Ended { exit: Exit::Vanished, at: clock::now().up })
            }
            Witness::Gone => Found::Again("docker was killed before it made a container".into()),
        }
    }

    fn untouched(&self, why: &str) -> Found {
        if self.is_stopping() {
            Found::End(not_started(Fault::Stopped, "stopped before it started".into()))
        } else {
            Found::Again(why.into())
        }
    }

    /// Whether a container of this name is this attempt's: the same job and fence may be another attempt's if a database went back.
    pub(in crate::runtime::docker) fn owns(&self, container: &Container) -> bool {
        container.owner().is_some_and(|(_, _, token)| token == self.token())
    }

    /// What is at the end of its standard error: Docker's own words, if nothing was started.
    async fn chatter(&self) -> String {
        let dir = self.dir.clone();
        blocking(move || replay::last_bytes(&dir, CHATTER_BYTES)).await.unwrap_or_default()
    }
}

/// No end of a container is earlier.
const NOBODY_LOOKED: Uptime = Uptime(0);

/// An engine that was gone within this time may have taken a container with it.
const ENGINE_DEATH: Duration = Duration::from_secs(30);

/// What the engine does not let go of is as a rule being started.
const REMOVE_AGAIN: Duration = Duration::from_secs(1);

/// How long a suspicious end waits for a sign that the engine is leaving.
const SUSPICION: Duration = Duration::from_secs(1);

/// Docker's words fit into this.
const CHATTER_BYTES: u64 = 8 * 1024;
