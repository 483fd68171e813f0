//! One attempt, from its image to its verdict.
//!
//! ```text
//! allowed? ─▶ directory ─▶ image ─▶ docker run ─▶ the CLI ends ─▶ inspect ─▶ Ended
//!                                       ▲               adopted ─▶   │ ▲
//!                                       └── nothing was started ─────┘ └── it still runs: read its log, wait
//! ```
//! The CLI is only a witness; what `inspect` says is believed. Until the engine answers, nothing is said.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::{OutputLengths, Phase, ReleaseCause, Stream};
use protocol::{Token, Uptime};
use tokio::sync::watch;
use tokio::time::sleep;
use worker::input::{Exit, Fault, RuntimeEvent};
use worker::step::Launch;

use super::cli::{self, CallError};
use super::container::{self, Container, Meaning};
use super::images::PullError;
use super::{Shared, replay};
use crate::attempt_dir::{AttemptDir, Ending, Pid, describe};
use crate::clock;
use crate::runtime::argv::{self, CommandLine};
use crate::runtime::{Membership, proc};

/// What is known of an attempt while its container, or what is left of it, is here.
pub(super) struct Attempt {
    pub(super) launch: Launch,
    pub(super) name: String,
    pub(super) dir: AttemptDir,
    /// Why it is being stopped; set once.
    pub(super) stopping: watch::Sender<Option<StopCause>>,
    pub(super) ended: watch::Sender<bool>,
    /// The CLI that writes the output files, while it lives.
    pub(super) watcher: Mutex<Option<Pid>>,
    /// Whether somebody is asking it to stop already.
    pub(super) being_asked: AtomicBool,
    started: OnceLock<String>,
    oom: AtomicBool,
}

/// How an attempt leaves.
enum End {
    Ended { exit: Exit, at: Uptime },
    Refused { cause: ReleaseCause, why: String },
}

/// How the CLI of an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Witness {
    /// With this code.
    Ended(i32),
    /// It was not our child, and ended while we looked on: so it has seen what there was to see.
    Finished,
    /// It was killed, or ended who knows when.
    Gone,
}

/// What is found after the CLI has ended.
enum Found {
    End(End),
    /// Nothing was started, and that is nobody's verdict: try again.
    Again(String),
}

impl Attempt {
    pub(super) fn new(
        launch: Launch,
        membership: Membership,
        dir: AttemptDir,
        stopping: Option<StopCause>,
    ) -> Self {
        Self {
            name: launch.token.container_name(membership.cluster),
            launch,
            dir,
            stopping: watch::Sender::new(stopping),
            ended: watch::Sender::new(false),
            watcher: Mutex::new(None),
            being_asked: AtomicBool::new(false),
            started: OnceLock::new(),
            oom: AtomicBool::new(false),
        }
    }

    pub(super) fn token(&self) -> Token {
        self.launch.token
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.borrow().is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Its container has started: told once. From here on what it wrote is its own.
    pub(super) fn saw_start(&self, shared: &Shared, container: &str, at: Uptime) {
        if self.adopt_start(shared, container) {
            shared.tell(RuntimeEvent::Started { token: self.token(), container: container.into(), at });
        }
    }

    /// As [`Attempt::saw_start`], for a start that the brain learns in another way. Whether it is news.
    pub(super) fn adopt_start(&self, shared: &Shared, container: &str) -> bool {
        let news = self.started.set(container.into()).is_ok();
        if news {
            let followed = shared.logs.follow(self.token(), &self.dir, self.launch.spec.log_bytes_max);
            if let Err(error) = followed {
                tracing::error!(attempt = %self.token(), error = describe(&error), "output cannot be read");
            }
        }
        news
    }

    pub(super) fn saw_oom(&self) {
        self.oom.store(true, Ordering::Relaxed);
    }

    /// Runs it, from the beginning to the end.
    pub(super) async fn run(&self, shared: &Arc<Shared>, membership: Membership) {
        let end = match self.command_line(membership) {
            Ok(line) => self.try_to_run(shared, &line).await,
            Err(invalid) => not_started(Fault::Definition, invalid.to_string()),
        };
        self.leave(shared, end).await;
    }

    /// Watches what an earlier process has started, to the end.
    pub(super) async fn watch(&self, shared: &Arc<Shared>) {
        let watcher = *self.watcher();
        if let Some(pid) = watcher {
            proc::wait(pid).await;
            self.watcher().take();
        }
        let witness = if watcher.is_some() { Witness::Finished } else { Witness::Gone };
        let end = match self.settle(shared, witness).await {
            Found::End(end) => end,
            Found::Again(why) => not_started(Fault::Host, why),
        };
        self.leave(shared, end).await;
    }

    /// The end of a container that has ended while nobody looked; nothing if that takes longer than a survey may.
    pub(super) async fn conclude(&self, shared: &Arc<Shared>) -> Option<worker::input::Found> {
        match tokio::time::timeout(CONCLUDE_LIMIT, self.settle(shared, Witness::Gone)).await.ok()? {
            Found::End(End::Ended { exit, at }) => {
                let output = self.keep_ending(&exit, at).await;
                self.ended.send_replace(true);
                shared.logs.finish(self.token(), output);
                Some(worker::input::Found::Ended { exit, output, at })
            }
            Found::End(End::Refused { .. }) | Found::Again(_) => None,
        }
    }

    /// What `docker inspect` says of it, once the engine answers.
    async fn inspect(&self, shared: &Shared) -> Option<Container> {
        loop {
            shared.health.wait_until_up().await;
            match shared.inspect(&[&self.name]).await {
                Ok(found) => return found.into_iter().next(),
                Err(error) => {
                    tracing::warn!(attempt = %self.token(), error = describe(&error), "the engine does not answer")
                }
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn command_line(&self, membership: Membership) -> Result<CommandLine, argv::Invalid> {
        let now = clock::now().utc.0 / 1000;
        let deadline = self.launch.time_left.map(|left| now.saturating_add_unsigned(left.as_secs()));
        argv::docker_run(&self.launch, membership, deadline)
    }

    async fn try_to_run(&self, shared: &Arc<Shared>, line: &CommandLine) -> End {
        let mut problem = String::new();
        for _ in 0..TRIES {
            let mut stopping = self.stopping.subscribe();
            let image = tokio::select! {
                biased;
                _ = stopping.wait_for(Option::is_some) => return not_started(Fault::Stopped, "stopped before it started".into()),
                image = shared.images.ensure(shared, &self.launch.spec, || self.progress(shared, Phase::Pulling { percent: None })) => image,
            };
            match image {
                Ok(()) => {}
                Err(PullError::Failed(problem)) => return not_started(Fault::Pull, problem),
                Err(PullError::Engine(error)) => return unavailable(&error),
            }
            self.progress(shared, Phase::Starting);
            let code = match self.run_cli(shared, line).await {
                Ok(code) => code,
                Err(error) => return unavailable(&error),
            };
            match self.settle(shared, code.map_or(Witness::Gone, Witness::Ended)).await {
                Found::End(end) => return end,
                Found::Again(why) => problem = why,
            }
        }
        not_started(Fault::Host, problem)
    }

    /// The CLI's exit code; none if it was killed.
    async fn run_cli(&self, shared: &Arc<Shared>, line: &CommandLine) -> Result<Option<i32>, CallError> {
        let failed = |error: crate::attempt_dir::Error| CallError::Unreachable(describe(&error));
        let outputs =
            self.dir.output(Stream::Stdout).and_then(|out| Ok((out, self.dir.output(Stream::Stderr)?)));
        let (stdout, stderr) = outputs.map_err(failed)?;
        let mut child = shared.cli.run(line, stdout, stderr).inspect_err(|error| shared.note(error))?;
        if let Some(pid) = child.id().and_then(proc::identify) {
            *self.watcher() = Some(pid);
            let dir = self.dir.clone();
            super::blocking(move || dir.record_watcher(pid)).await;
        }
        let code = loop {
            tokio::select! {
                status = child.wait() => break status.ok().and_then(|it| it.code()),
                // The engine's events tell a start at once; where they do not, it is looked for.
                () = sleep(LOOK_FOR_START), if self.started.get().is_none() => self.look_for_start(shared).await,
            }
        };
        self.watcher().take();
        Ok(code)
    }

    async fn look_for_start(&self, shared: &Shared) {
        let Ok(found) = shared.inspect(&[&self.name]).await else { return };
        if let Some(container) = found.first().filter(|it| it.started().is_some() && self.owns(it)) {
            self.saw_start(shared, &container.id, container.started_at(clock::now()));
        }
    }

    /// Finds out what became of it. The CLI is gone.
    async fn settle(&self, shared: &Arc<Shared>, witness: Witness) -> Found {
        let chatter = self.chatter().await;
        if witness == Witness::Ended(125)
            && self.started.get().is_none()
            && cli::unreachable(&chatter).is_some()
        {
            // A container that was made all the same is never started, and swept away later.
            let error = CallError::Unreachable(cli::one_line(&chatter));
            shared.note(&error);
            return Found::End(unavailable(&error));
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
                    shared.remove_now(&self.name).await;
                    return self.untouched("a container was made and never started");
                }
                Meaning::Running => {
                    self.saw_start(shared, &container.id, container.started_at(clock::now()));
                    replay::follow(shared, self).await;
                    replayed = true;
                }
                Meaning::Ended => {
                    self.saw_start(shared, &container.id, container.started_at(clock::now()));
                    let saw_all =
                        [Witness::Finished, Witness::Ended(container.exit_code())].contains(&witness);
                    if replayed || !saw_all {
                        replay::complete(shared, self).await;
                    }
                    if let Some(exit) = self.verdict(shared, &container, &chatter).await {
                        return Found::End(End::Ended { exit, at: container.ended_at(clock::now()) });
                    }
                }
            }
        }
    }

    /// What the end of a container that ran means; nothing if the engine must be asked once more.
    async fn verdict(&self, shared: &Shared, container: &Container, chatter: &str) -> Option<Exit> {
        let spec = &self.launch.spec;
        let exit = container.exit(spec.resources.memory_bytes.is_some(), self.oom.load(Ordering::Relaxed));
        if let Some(message) = container::init_failure(spec.init, container.exit_code(), chatter) {
            let code = Some(container.exit_code());
            return Some(Exit::NotStarted { fault: Fault::Definition, code, message });
        }
        if self.is_stopping() || !container.looks_like_a_dead_engine() {
            return Some(exit);
        }
        let lost = Exit::DaemonLost {
            message: "the Docker daemon died under it".into(),
            ran: Some(container.ran()),
        };
        if container.was_lost_by_the_engine() || shared.health.was_down_within(ENGINE_DEATH) {
            return Some(lost);
        }
        // A daemon that is just leaving still answers, or has just stopped to.
        sleep(SUSPICION).await;
        shared.ping().await.is_ok().then_some(exit)
    }

    /// There is no container of that name.
    fn absent(&self, shared: &Shared, witness: Witness, chatter: &str) -> Found {
        if self.started.get().is_some() {
            return Found::End(End::Ended { exit: Exit::Vanished, at: clock::now().up });
        }
        match witness {
            _ if self.is_stopping() => self.untouched(""),
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
    fn owns(&self, container: &Container) -> bool {
        container.owner().is_some_and(|(_, _, token)| token == self.token())
    }

    /// What is at the end of its standard error: Docker's own words, if nothing was started.
    async fn chatter(&self) -> String {
        let dir = self.dir.clone();
        super::blocking(move || replay::last_bytes(&dir, CHATTER_BYTES)).await.unwrap_or_default()
    }

    fn progress(&self, shared: &Shared, phase: Phase) {
        shared.tell(RuntimeEvent::Progressed(self.token(), phase));
    }

    async fn leave(&self, shared: &Arc<Shared>, end: End) {
        match end {
            End::Refused { cause, why } => {
                let dir = self.dir.clone();
                super::blocking(move || dir.remove()).await;
                shared.drop_attempt(self.token());
                self.ended.send_replace(true);
                shared.tell(RuntimeEvent::Refused { token: self.token(), cause, why });
            }
            End::Ended { exit, at } => {
                let output = self.keep_ending(&exit, at).await;
                self.ended.send_replace(true);
                shared.logs.finish(self.token(), output);
                shared.tell(RuntimeEvent::Ended { token: self.token(), exit, output, at });
            }
        }
    }

    /// Puts the end on disk before anybody hears of it.
    async fn keep_ending(&self, exit: &Exit, at: Uptime) -> OutputLengths {
        let now = clock::now();
        let output = if self.started.get().is_some() { self.dir.lengths() } else { OutputLengths::default() };
        let ending = Ending { exit: exit.clone(), output, at: now.utc - now.up.since(at) };
        let dir = self.dir.clone();
        super::blocking(move || dir.record_ending(&ending)).await;
        output
    }

    pub(super) fn watcher(&self) -> std::sync::MutexGuard<'_, Option<Pid>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_started(fault: Fault, message: String) -> End {
    End::Ended { exit: Exit::NotStarted { fault, code: None, message }, at: clock::now().up }
}

fn unavailable(error: &CallError) -> End {
    End::Refused { cause: ReleaseCause::RuntimeUnavailable, why: describe(error) }
}

/// How often a start is tried when nothing was started and nobody knows why.
const TRIES: u32 = 3;

/// Between two looks at a container that changes, or at an engine that answers badly.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// When a start is looked for because no event told it. A look costs 12 ms of CPU.
const LOOK_FOR_START: Duration = Duration::from_secs(2);

/// An engine that was gone within this time may have taken a container with it.
const ENGINE_DEATH: Duration = Duration::from_secs(30);

/// How long a suspicious end waits for a sign that the engine is leaving.
const SUSPICION: Duration = Duration::from_secs(1);

/// How long a survey waits for one verdict; what takes longer is told by its event.
const CONCLUDE_LIMIT: Duration = Duration::from_secs(20);

/// Docker's words fit into this.
const CHATTER_BYTES: u64 = 8 * 1024;
