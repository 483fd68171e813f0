//! One attempt, from its image to its verdict.
//!
//! ```text
//! allowed? ─▶ directory ─▶ image ─▶ the brain's word ─▶ docker run ─▶ the CLI ends ─▶ inspect ─▶ Ended
//!                            ▲                                            adopted ─▶   │ ▲
//!                            └──────────────── nothing was started ────────────────────┘ └── it still runs: read its log, wait
//! ```
//! The CLI is only a witness; what `inspect` says is believed. Until the engine answers, nothing is said.

mod settle;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use protocol::container::Volume;
use protocol::report::{OutputLengths, Phase, ReleaseCause, Stream};
use protocol::{ContainerSpec, Token, Uptime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use worker::input::{Exit, Fault, RuntimeEvent};
use worker::step::Launch;

use self::settle::{Found, Witness};
use super::Shared;
use super::cli::{CallError, RunError};
use super::container::Container;
use super::images::{self, Blame, PullError, Refusal};
use crate::attempt_dir::{AttemptDir, Ending, Pid, Stopping, describe};
use crate::clock;
use crate::runtime::argv::{self, CommandLine};
use crate::runtime::word::Word;
use crate::runtime::{Membership, proc};

/// What is known of an attempt while its container, or what is left of it, is here.
pub(super) struct Attempt {
    pub(super) launch: Launch,
    pub(super) name: String,
    pub(super) dir: AttemptDir,
    /// Why it is being stopped; set once.
    pub(super) stopping: watch::Sender<Option<Stopping>>,
    pub(super) ended: watch::Sender<bool>,
    /// The CLI that writes the output files, while it lives.
    pub(super) watcher: Mutex<Option<Pid>>,
    /// Whether somebody is asking it to stop already.
    pub(super) being_asked: AtomicBool,
    /// Whether its removal by force is under way.
    pub(super) being_removed: AtomicBool,
    pub(super) word: Word,
    /// How much is known to be missing at the end of its output.
    missing: Mutex<OutputLengths>,
    /// The id of its container, once that has started and everything that follows from it is done.
    started: OnceLock<String>,
    oom: AtomicBool,
}

/// How an attempt leaves.
enum End {
    Ended { exit: Exit, at: Uptime },
    Refused { cause: ReleaseCause, why: String },
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
            ended: watch::Sender::new(false),
            watcher: Mutex::new(None),
            being_asked: AtomicBool::new(false),
            being_removed: AtomicBool::new(false),
            word: Word::default(),
            missing: Mutex::default(),
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

    /// Whether somebody had said that it is to stop before it ended. Both are told by the clock on the wall of their time, the end by the
    /// engine's.
    fn was_stopping(&self, shared: &Shared, container: &Container) -> bool {
        let stopping = *self.stopping.borrow();
        let came_before = |finished| stopping.is_some_and(|stop| finished >= shared.skew.of_engine(stop.at));
        container.finished().map_or(stopping.is_some(), came_before)
    }

    /// When its container ended, on our own clock, and before a stop that came later: if the clock on the wall was set since, both may
    /// seem to have been before this machine's start.
    fn ended_at(&self, shared: &Shared, container: &Container) -> Uptime {
        let now = clock::now();
        let at = container.ended_at(shared.skew.engine(now));
        let stopping = *self.stopping.borrow();
        stopping.filter(|_| !self.was_stopping(shared, container)).map_or(at, |stop| at.min(stop.before(now)))
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(super) fn saw_oom(&self) {
        self.oom.store(true, Ordering::Relaxed);
    }

    /// Runs it, from the beginning to the end.
    pub(super) async fn run(&self, shared: &Arc<Shared>, membership: Membership) {
        let end = self.try_to_run(shared, membership).await;
        self.leave(shared, end).await;
    }

    /// Watches what an earlier process has started, to the end.
    pub(super) async fn watch(&self, shared: &Arc<Shared>) {
        let watcher = *self.watcher();
        let has_cli = watcher.is_some() || self.dir.is_being_written();
        let written = async {
            if let Some(pid) = watcher {
                proc::wait(pid).await;
                self.watcher().take();
            }
            while self.dir.is_being_written() {
                sleep(LOOK_FOR_END).await;
            }
        };
        // What is adopted before the engine could list it may have started long ago: no event tells that again.
        tokio::select! {
            () = written => {}
            () = self.look_for_start(shared) => {}
        }
        let witness = if has_cli { Witness::Finished } else { Witness::Gone };
        let end = match self.settle(shared, witness).await {
            Found::End(end) => end,
            // An earlier process got no further: nobody's fault, and it costs nobody anything.
            Found::Untouched(why) => End::Refused { cause: ReleaseCause::RuntimeUnavailable, why },
            Found::Again(why) if self.was_never_begun().await => {
                End::Refused { cause: ReleaseCause::RuntimeUnavailable, why }
            }
            // It may have made a container, which ran, and was removed.
            Found::Again(_) => End::Ended { exit: Exit::Vanished, at: clock::now().up },
        };
        self.leave(shared, end).await;
    }

    /// Whether no CLI was ever started for it.
    async fn was_never_begun(&self) -> bool {
        let dir = self.dir.clone();
        super::blocking(move || dir.watcher()).await.is_some_and(|it| it.is_none())
    }

    /// What became of it while nobody looked; unknown if that takes longer than a survey may.
    pub(super) async fn conclude(&self, shared: &Arc<Shared>, until: Instant) -> worker::input::Found {
        match tokio::time::timeout_at(until, self.settle(shared, Witness::Gone)).await {
            Ok(Found::End(End::Ended { exit, at })) => {
                let output = self.keep_ending(&exit, at).await;
                self.ended.send_replace(true);
                shared.logs.finish(self.token(), output);
                worker::input::Found::Ended { exit, output, at }
            }
            Ok(Found::Untouched(_)) => worker::input::Found::Unstarted,
            Ok(Found::End(End::Refused { .. }) | Found::Again(_)) | Err(_) => worker::input::Found::Unknown,
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

    /// What it is run as: its mounts begin where their paths really lead.
    fn launch_with(&self, volumes: Vec<Volume>) -> Launch {
        let spec = ContainerSpec { volumes, ..(*self.launch.spec).clone() };
        Launch { spec: spec.into(), ..self.launch.clone() }
    }

    async fn try_to_run(&self, shared: &Arc<Shared>, membership: Membership) -> End {
        let mut problem = String::new();
        for _ in 0..TRIES {
            // Nothing is fetched for what cannot be said.
            if let Err(invalid) = command_line(&self.launch, membership) {
                return not_started(Fault::Definition, invalid.to_string());
            }
            let mut stopping = self.stopping.subscribe();
            let image = tokio::select! {
                biased;
                _ = stopping.wait_for(Option::is_some) => return not_started(Fault::Stopped, "stopped before it started".into()),
                image = shared.images.ensure(shared, &self.launch.spec, |phase| self.progress(shared, phase)) => image,
            };
            match image {
                Ok(()) => {}
                Err(PullError::Refused(refusal)) => return without_image(refusal),
                Err(PullError::Engine(error)) => return unavailable(&error),
            }
            self.progress(shared, Phase::Starting);
            // A link that was looked at before the image came may lead elsewhere by now. Nothing takes its time behind the word.
            let launch = match shared.admit(&self.launch.spec).await {
                Ok(volumes) => self.launch_with(volumes),
                Err((cause, why)) => return End::Refused { cause, why },
            };
            if !self.word.ask(self.token(), &shared.events, &self.stopping).await {
                return not_started(Fault::Stopped, "stopped before it started".into());
            }
            // Its deadline counts from here.
            let line = match command_line(&launch, membership) {
                Ok(line) => line,
                Err(invalid) => return not_started(Fault::Definition, invalid.to_string()),
            };
            let before = self.dir.lengths();
            let code = match self.run_cli(shared, &line).await {
                Ok(code) => code,
                Err(RunError::Call(error)) => return unavailable(&error),
                Err(error @ RunError::Words(_)) => return not_started(Fault::Definition, describe(&error)),
            };
            problem = match self.settle(shared, code.map_or(Witness::Gone, Witness::Ended)).await {
                Found::Again(why) | Found::Untouched(why) => why,
                Found::End(end) => match wants_another_image(end) {
                    Ok(why) => {
                        shared.images.forget(&self.launch.spec);
                        why
                    }
                    Err(end) => return end,
                },
            };
            // Nothing has run: what was written are Docker's own words, and whatever runs next is not to have said them.
            let dir = self.dir.clone();
            super::blocking(move || dir.cut_output(before)).await;
        }
        // What was pulled for this platform is for another one still: there is none for this.
        let fault = if images::is_for_another_platform(&problem) { Fault::Pull } else { Fault::Host };
        not_started(fault, problem)
    }

    /// The CLI's exit code; none if it was killed.
    async fn run_cli(&self, shared: &Arc<Shared>, line: &CommandLine) -> Result<Option<i32>, RunError> {
        let failed = |error: crate::attempt_dir::Error| CallError::Unreachable(describe(&error));
        let outputs = self.dir.claim_output().and_then(|out| Ok((out, self.dir.output(Stream::Stderr)?)));
        let (stdout, stderr) = outputs.map_err(failed)?;
        let mut child = shared.cli.run(line, stdout, stderr).inspect_err(|error| {
            if let RunError::Call(error) = error {
                shared.note(error);
            }
        })?;
        if let Some(pid) = child.id().and_then(proc::identify) {
            *self.watcher() = Some(pid);
            let dir = self.dir.clone();
            super::blocking(move || dir.record_watcher(pid)).await;
        }
        let code = loop {
            tokio::select! {
                status = child.wait() => break status.ok().and_then(|it| it.code()),
                // The engine's events tell a start at once; where they do not, it is looked for.
                () = self.look_for_start(shared) => {}
            }
        };
        self.watcher().take();
        Ok(code)
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
        let output =
            if self.started.get().is_some() { self.output_lengths() } else { OutputLengths::default() };
        let ending = Ending { exit: exit.clone(), output, at: now.utc - now.up.since(at) };
        let dir = self.dir.clone();
        super::blocking(move || dir.record_ending(&ending)).await;
        output
    }

    /// How much it wrote: what is in the files, and what is known to be missing there, which is told as a gap.
    fn output_lengths(&self) -> OutputLengths {
        let (there, missing) = (self.dir.lengths(), *self.missing());
        let sum = |of: fn(OutputLengths) -> u64| of(there).saturating_add(of(missing));
        OutputLengths { stdout: sum(|it| it.stdout), stderr: sum(|it| it.stderr) }
    }

    pub(super) fn missing(&self) -> std::sync::MutexGuard<'_, OutputLengths> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watcher(&self) -> std::sync::MutexGuard<'_, Option<Pid>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn command_line(launch: &Launch, membership: Membership) -> Result<CommandLine, argv::Invalid> {
    let now = clock::now().utc.0 / 1000;
    let deadline = launch.time_left.map(|left| now.saturating_add_unsigned(left.as_secs()));
    argv::docker_run(launch, membership, deadline)
}

fn not_started(fault: Fault, message: String) -> End {
    End::Ended { exit: Exit::NotStarted { fault, code: None, message }, at: clock::now().up }
}

/// Without its image nothing was made.
fn without_image(Refusal { blame, problem }: Refusal) -> End {
    match blame {
        Blame::Definition | Blame::Denied => not_started(Fault::Pull, problem),
        Blame::Host => not_started(Fault::Host, problem),
        Blame::Registry => End::Refused {
            cause: ReleaseCause::RuntimeUnavailable,
            why: format!("the registry does not give the image: {problem}"),
        },
    }
}

/// Whether nothing but an image for another platform was in the way, and Docker's words; the end itself if not.
fn wants_another_image(end: End) -> Result<String, End> {
    match end {
        End::Ended { exit: Exit::NotStarted { message, .. }, .. }
            if images::is_for_another_platform(&message) =>
        {
            Ok(message)
        }
        end => Err(end),
    }
}

fn unavailable(error: &CallError) -> End {
    End::Refused { cause: ReleaseCause::RuntimeUnavailable, why: error.told() }
}

/// How often a start is tried when nothing was started and nobody knows why.
const TRIES: u32 = 3;

/// Between two looks at a container that changes, or at an engine that answers badly.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Between two looks whether a CLI lives whose process nobody has written down. A look is three calls of the system.
const LOOK_FOR_END: Duration = Duration::from_millis(100);
