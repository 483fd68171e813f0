//! Attempts as plain subprocesses, where the operator allows it: no image, no isolation, the worker's own user.
//!
//! The parent of each process is a shim. It outlives the worker and writes the exit into the attempt directory, so a restarted worker
//! adopts processes as it adopts containers. The record of the shim decides; the end of the shim itself only says when to look.

mod attempt;
mod watch;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::order::StopCause;
use protocol::report::{Availability, OutputLengths, Phase, ReleaseCause};
use protocol::{ContainerSpec, Now, RuntimeKind, Token, Usage};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use worker::input::{Exit, Found, Restored, RuntimeEvent, StartFailure};
use worker::step::{Launch, StopStep};

use self::attempt::{Attempt, has_shim, lengths, start_of};
use super::blocking::LOOK_AGAIN;
use super::blocking::{run_blocking, try_blocking};
use super::removals::PendingRemovals;
use super::{Events, Membership, Runtime, Survey, process_id};
use crate::attempt_dir::{AttemptDir, AttemptEnd, AttemptStore, ProcessId, ProgramState, StoredAttempt};
use crate::boot::RecordedInstant;
use crate::clock;
use crate::logs::Logs;
use crate::secrets;
use crate::usage::{Source, UsageSampler};

/// The command of the shim: a program that calls [`shim::run`](super::shim::run) with the arguments after `args`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the program.
    pub program: PathBuf,
    /// Its first arguments.
    pub args: Vec<OsString>,
    /// Measures what processes use.
    pub usage: UsageSampler,
}

impl Default for Config {
    /// The running program, even if its file was replaced meanwhile.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec!["shim".into()], usage: UsageSampler::default() }
    }
}

/// The runtime. Its tasks end with it; its processes do not.
pub struct Process {
    state: Arc<ProcessState>,
}

/// The state of the runtime, which all of its tasks have.
struct ProcessState {
    config: Config,
    store: AttemptStore,
    logs: Logs,
    events: Events,
    attempts: Mutex<HashMap<Token, Arc<Attempt>>>,
    removals: PendingRemovals,
    probing: AtomicBool,
    shutdown: CancellationToken,
}

impl Process {
    /// A runtime with the attempts of this state directory.
    #[must_use]
    pub fn new(config: Config, store: AttemptStore, logs: Logs, events: Events) -> Self {
        let (attempts, shutdown) = (Mutex::default(), CancellationToken::new());
        let (removals, probing) = (PendingRemovals::default(), AtomicBool::new(false));
        let state = ProcessState { config, store, logs, events, attempts, removals, probing, shutdown };
        Self { state: Arc::new(state) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.state.shutdown.cancel();
    }
}

impl Runtime for Process {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Process
    }

    fn set_membership(&self, _: Membership) {}

    fn survey(&self) -> Pin<Box<dyn Future<Output = Survey> + Send + '_>> {
        Box::pin(async {
            let (availability, restored) = match self.state.find_left_behind().await {
                Ok(restored) => (Availability::Available, restored),
                Err(why) => {
                    let state = Arc::clone(&self.state);
                    self.state.spawn(async move { state.survey_again().await });
                    (Availability::Unavailable(why), Vec::new())
                }
            };
            Survey { availability, restored, foreign: Vec::new() }
        })
    }

    fn start(&self, launch: Launch) {
        let state = Arc::clone(&self.state);
        let attempt = Arc::new(Attempt::new(state.store.dir(launch.token), launch, None));
        if state.track(&attempt) {
            self.state.spawn(async move { state.run(&attempt).await });
        }
    }

    fn run(&self, token: Token) {
        if let Some(attempt) = self.state.attempts().get(&token) {
            attempt.start_permit.grant();
        }
    }

    fn stop(&self, token: Token, cause: StopCause, step: StopStep, at: Now) {
        let attempt = self.state.attempts().get(&token).map(Arc::clone);
        if let Some(attempt) = attempt.filter(|it| !*it.ended.borrow()) {
            self.state.spawn(async move { attempt.stop(cause, step, at).await });
        }
    }

    fn probe(&self, _: Arc<ContainerSpec>, _: String) {
        if !self.state.probing.swap(true, Ordering::Relaxed) {
            let state = Arc::clone(&self.state);
            self.state.spawn(async move { state.probe().await });
        }
    }

    fn wait_for_removals(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.state.removals.wait_for_all())
    }

    fn forget(&self, token: Token) {
        // In this order it is tracked until it is removed.
        let (dir, removal) = (self.state.store.dir(token), self.state.removals.begin(token));
        self.state.attempts().remove(&token);
        self.state.config.usage.finish(token);
        // A directory of another attempt with the same number stays.
        let remove =
            move || if dir.launch().is_ok_and(|it| it.token == token) { dir.remove() } else { Ok(()) };
        self.state.spawn(async move {
            run_blocking(remove).await;
            drop(removal);
        });
    }
}

impl ProcessState {
    /// Finds and tracks attempts of an earlier process.
    async fn find_left_behind(self: &Arc<Self>) -> Result<Vec<Restored>, String> {
        // An attempt that is tracked before or after the list is made is no leftover, although it may end and be forgotten in between.
        let before = self.tracked();
        let store = self.store.clone();
        let entries = try_blocking(move || store.entries()).await?;
        let after = self.tracked();
        let own = entries.into_iter().filter(|it| it.launch.spec.runtime == RuntimeKind::Process);
        let new = own.filter(|it| !before.contains(&it.launch.token) && !after.contains(&it.launch.token));
        let (new, state): (Vec<_>, _) = (new.collect(), Arc::clone(self));
        try_blocking(move || Ok(new.into_iter().map(|entry| state.restore(entry)).collect())).await
    }

    /// Repeats a failed survey until it succeeds.
    async fn survey_again(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            match self.find_left_behind().await {
                Ok(attempts) => {
                    self.send_event(RuntimeEvent::Surveyed { attempts, foreign: Vec::new() });
                    self.send_event(RuntimeEvent::Availability(
                        RuntimeKind::Process,
                        Availability::Available,
                    ));
                    return;
                }
                Err(why) => {
                    tracing::warn!(why, "attempts of an earlier process cannot be listed yet; trying again")
                }
            }
        }
    }

    async fn run(self: &Arc<Self>, attempt: &Arc<Attempt>) {
        self.removals.wait_for(attempt.token()).await;
        if let Some(why) = secrets::obstacle(self.store.secrets(), &attempt.launch.secrets, true) {
            return self.refuse(attempt, ReleaseCause::Policy, why.into());
        }
        let (store, launch) = (self.store.clone(), attempt.launch.clone());
        if let Err(why) = try_blocking(move || store.create(&launch)).await {
            return self.refuse(attempt, ReleaseCause::RuntimeUnavailable, why);
        }
        self.send_event(RuntimeEvent::Progressed(attempt.token(), Phase::Starting));
        if !attempt.start_permit.request(attempt.token(), &self.events, &attempt.stopping).await {
            return self
                .end(attempt, not_started(StartFailure::Stopped, "stopped before it started"), None)
                .await;
        }
        let dir = attempt.dir.clone();
        // The shim holds this lock as long as it lives. Its starter may die before either of them has recorded a process.
        let shim = try_blocking(move || dir.claim_output()).await.and_then(|claim| {
            let spawned = self.spawn_shim(&attempt.dir, claim.into());
            spawned.map_err(|error| format!("the shim cannot be started: {error}"))
        });
        match shim {
            Ok(mut child) => {
                self.wait_for_start(attempt, &mut child).await;
                // The record in the directory decides, not the exit code.
                let _ = child.wait().await;
                self.wait_for_end(attempt).await;
            }
            // An earlier process may have started a shim that still lives.
            Err(why) => {
                let dir = attempt.dir.clone();
                if run_blocking(move || Ok(dir.is_being_written())).await == Some(true) {
                    return self.wait_for_end(attempt).await;
                }
                self.end(attempt, not_started(StartFailure::Host, &why), None).await;
            }
        }
    }

    fn refuse(&self, attempt: &Attempt, cause: ReleaseCause, why: String) {
        let token = attempt.token();
        self.attempts().remove(&token);
        // A stop that came meanwhile waits for this.
        attempt.ended.send_replace(true);
        self.send_event(RuntimeEvent::Refused { token, cause, why });
    }

    /// Starts a shim without an attempt: if that works, others can be started as well.
    async fn probe(&self) {
        for wait in super::probe_delays() {
            tokio::time::sleep(wait).await;
            match self.spawn_shim(&self.store.dir(Token::default()), Stdio::null()) {
                Ok(mut shim) => {
                    let _ = shim.wait().await;
                    break;
                }
                Err(error) => tracing::warn!(%error, "a shim still cannot be started; trying again"),
            }
        }
        self.probing.store(false, Ordering::Relaxed);
        self.send_event(RuntimeEvent::Availability(RuntimeKind::Process, Availability::Available));
    }

    fn spawn_shim(&self, dir: &AttemptDir, stdin: Stdio) -> std::io::Result<Child> {
        let mut command = Command::new(&self.config.program);
        command.args(&self.config.args).arg(dir.path());
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0).spawn()
    }

    /// Records and reports the end. `recorded` is the shim's record, with its time: this worker may have been suspended or down since.
    async fn end(&self, attempt: &Attempt, exit: Exit, recorded: Option<(RecordedInstant, Usage)>) {
        let now = clock::now();
        let at = recorded.map_or(now.up, |(at, _)| at.by_uptime(now));
        let at = attempt.late_stop_at.get().map_or(at, |stop| at.min(stop.just_before(now)));
        let output = match attempt.started.get() {
            Some(()) => lengths(&attempt.dir).await,
            None => OutputLengths::default(),
        };
        let (dir, instant) = (attempt.dir.clone(), RecordedInstant::of_uptime(at, now));
        let seen = self.config.usage.finish(attempt.token());
        let seen = recorded.map_or(seen, |(_, usage)| usage.later(seen));
        let end = exit.clone();
        let record = move || {
            // An earlier process may have seen more of it. The record of the shim stays, and knows no memory.
            let usage = seen.later(dir.usage().unwrap_or_default());
            if usage.memory_peak_bytes.is_some() {
                dir.record_usage(&usage)?;
            }
            dir.record_end(&AttemptEnd { exit: end, output, usage, at: instant })?;
            Ok(usage)
        };
        let usage = run_blocking(record).await.unwrap_or(seen);
        attempt.ended.send_replace(true);
        attempt.output(&self.logs).finish(output).await;
        self.send_event(RuntimeEvent::Ended { token: attempt.token(), exit, output, usage, at });
    }

    fn restore(self: &Arc<Self>, entry: StoredAttempt) -> Restored {
        let StoredAttempt { dir, launch, stopping, ending, watcher, program } = entry;
        let attempt = Arc::new(Attempt::new(dir, launch.clone(), stopping));
        let found = match ending {
            Some(ending) => self.restore_ended(&attempt, ending),
            None => self.restore_unfinished(&attempt, watcher, program),
        };
        if found != Found::Unstarted {
            self.track(&attempt);
        }
        Restored { launch, stopping: stopping.map(|it| it.by_uptime(clock::now())), found }
    }

    fn restore_ended(&self, attempt: &Attempt, ending: AttemptEnd) -> Found {
        let AttemptEnd { exit, output, usage, at } = ending;
        let usage = usage.later(attempt.dir.usage().unwrap_or_default());
        if output != OutputLengths::default() {
            self.mark_started(attempt);
        }
        attempt.ended.send_replace(true);
        attempt.output(&self.logs).finish_soon(output);
        Found::Ended { exit, output, usage, at: at.by_uptime(clock::now()) }
    }

    fn restore_unfinished(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        watcher: Option<ProcessId>,
        program: Option<ProgramState>,
    ) -> Found {
        let alive = match program {
            Some(ProgramState::Started(program)) => Some(program).filter(|it| process_id::is_alive(*it)),
            _ => None,
        };
        // The shim is about to start the program or to record its end, or has recorded it since the directory was read.
        let shim_may_report = || has_shim(&attempt.dir) || attempt.dir.end().map_or(true, |it| it.is_some());
        let found = if let Some(alive) = alive {
            self.mark_started(attempt);
            self.config.usage.watch(attempt.token(), &attempt.dir, Source::Process(alive));
            Found::Running { container: format!("pid {}", alive.pid), at: start_of(&attempt.dir, alive) }
        } else if shim_may_report() {
            Found::Unknown
        } else if program.is_none() && watcher.is_none() {
            return Found::Unstarted;
        } else {
            let end = AttemptEnd {
                exit: Exit::Vanished,
                output: attempt.dir.lengths(),
                usage: Usage::default(),
                at: RecordedInstant::of(clock::now()),
            };
            return self.restore_ended(attempt, end);
        };
        let (state, watched) = (Arc::clone(self), Arc::clone(attempt));
        self.spawn(async move { state.wait_for_end(&watched).await });
        found
    }

    /// The tracked attempts, and those that are being removed.
    fn tracked(&self) -> HashSet<Token> {
        // In this order an attempt that moves from one set to the other is seen.
        let known: HashSet<Token> = self.attempts().keys().copied().collect();
        self.removals.pending().into_iter().chain(known).collect()
    }

    fn track(&self, attempt: &Arc<Attempt>) -> bool {
        let mut attempts = self.attempts();
        let is_new = !attempts.contains_key(&attempt.token());
        attempts.entry(attempt.token()).or_insert_with(|| Arc::clone(attempt));
        is_new
    }

    fn send_event(&self, event: RuntimeEvent) {
        // The receiver is gone: the worker is shutting down.
        let _ = self.events.send(event);
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(task)));
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<Token, Arc<Attempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_started(fault: StartFailure, message: &str) -> Exit {
    Exit::NotStarted { fault, code: None, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_attempt_has_ended_for_its_stops() {
        let state = tempfile::tempdir().expect("a directory");
        let store = AttemptStore::open(state.path()).expect("a store");
        let (events, mut told) = tokio::sync::mpsc::unbounded_channel();
        let process = Process::new(Config::default(), store, Logs::new().0, events);
        // This store has no place for secrets.
        let masked = vec![protocol::secret::SecretValue(b"hidden".to_vec())];
        let secrets = protocol::secret::SecretValues { masked, ..Default::default() }.into();
        process.start(Launch { secrets, ..crate::runtime::launch_of(ContainerSpec::default()) });
        let attempt = process.state.attempts().values().next().map(Arc::clone).expect("it is tracked");
        assert!(matches!(told.recv().await, Some(RuntimeEvent::Refused { .. })));
        assert!(*attempt.ended.borrow());
    }
}
