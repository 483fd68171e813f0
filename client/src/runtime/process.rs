//! Attempts as plain subprocesses, where the operator allows it: no image, no isolation, the worker's own user.
//!
//! Each has a shim as its parent, which outlives this process and writes the exit into the attempt directory; so a restarted worker
//! adopts processes as it adopts containers. What the shim wrote is the verdict; the shim's own end only says when to look.

mod attempt;

use std::collections::HashMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::order::StopCause;
use protocol::report::{Availability, OutputLengths, Phase, ReleaseCause};
use protocol::{ContainerSpec, RuntimeKind, Token, Uptime};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use worker::input::{Exit, Fault, Found, Restored, RuntimeEvent};
use worker::step::{Launch, StopStep};

use self::attempt::Attempt;
use super::removals::Removals;
use super::{Events, Membership, Runtime, Survey, proc, shim};
use crate::attempt_dir::{AttemptDir, Ending, Entry, Error, Ledger, Pid, describe};
use crate::clock;
use crate::logs::Logs;

/// How the shim is started: a program that calls [`shim::run`] with what follows `words`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub words: Vec<OsString>,
}

impl Default for Config {
    /// This very program, even if its file was replaced meanwhile.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), words: vec!["shim".into()] }
    }
}

/// The runtime. Its tasks end with it; its processes do not.
pub struct Process {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    ledger: Ledger,
    logs: Logs,
    events: Events,
    attempts: Mutex<HashMap<Token, Arc<Attempt>>>,
    removals: Removals,
    probing: AtomicBool,
    over: CancellationToken,
}

impl Process {
    /// A runtime with this state directory's attempts.
    #[must_use]
    pub fn new(config: Config, ledger: Ledger, logs: Logs, events: Events) -> Self {
        let (attempts, over) = (Mutex::default(), CancellationToken::new());
        let (removals, probing) = (Removals::default(), AtomicBool::new(false));
        let shared = Shared { config, ledger, logs, events, attempts, removals, probing, over };
        Self { shared: Arc::new(shared) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shared.over.cancel();
    }
}

impl Runtime for Process {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Process
    }

    fn joined(&self, _: Membership) {}

    fn survey(&self) -> Pin<Box<dyn Future<Output = Survey> + Send + '_>> {
        Box::pin(async {
            let ledger = self.shared.ledger.clone();
            let entries = blocking(move || ledger.entries()).await.unwrap_or_default();
            let own = entries.into_iter().filter(|it| it.launch.spec.runtime == RuntimeKind::Process);
            let restored = own.map(|entry| self.shared.restore(entry)).collect();
            Survey { availability: Availability::Available, restored, foreign: Vec::new() }
        })
    }

    fn start(&self, launch: Launch) {
        let shared = Arc::clone(&self.shared);
        let attempt = Arc::new(Attempt::new(shared.ledger.dir(launch.token), launch, None));
        if shared.know(&attempt) {
            self.shared.spawn(async move { shared.run(&attempt).await });
        }
    }

    fn run(&self, token: Token) {
        if let Some(attempt) = self.shared.attempts().get(&token) {
            attempt.word.give();
        }
    }

    fn stop(&self, token: Token, cause: StopCause, step: StopStep) {
        let attempt = self.shared.attempts().get(&token).map(Arc::clone);
        if let Some(attempt) = attempt.filter(|it| !*it.ended.borrow()) {
            self.shared.spawn(async move { attempt.stop(cause, step).await });
        }
    }

    fn probe(&self, _: Arc<ContainerSpec>, _: String) {
        if !self.shared.probing.swap(true, Ordering::Relaxed) {
            let shared = Arc::clone(&self.shared);
            self.shared.spawn(async move { shared.probe().await });
        }
    }

    fn forget(&self, token: Token) {
        self.shared.attempts().remove(&token);
        let (dir, removal) = (self.shared.ledger.dir(token), self.shared.removals.begin(token));
        // A directory of another attempt with the same number stays.
        let remove =
            move || if dir.launch().is_ok_and(|it| it.token == token) { dir.remove() } else { Ok(()) };
        self.shared.spawn(async move {
            blocking(remove).await;
            drop(removal);
        });
    }
}

impl Shared {
    async fn run(self: &Arc<Self>, attempt: &Arc<Attempt>) {
        self.removals.wait_for(attempt.token()).await;
        let (ledger, launch) = (self.ledger.clone(), attempt.launch.clone());
        let made = tokio::task::spawn_blocking(move || ledger.create(&launch)).await;
        let problem = match made {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(describe(&error)),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = problem {
            self.attempts().remove(&attempt.token());
            let cause = ReleaseCause::RuntimeUnavailable;
            return self.tell(RuntimeEvent::Refused { token: attempt.token(), cause, why });
        }
        self.tell(RuntimeEvent::Progressed(attempt.token(), Phase::Starting));
        if !attempt.word.ask(attempt.token(), &self.events, &attempt.stopping).await {
            return self.end(attempt, not_started(Fault::Stopped, "stopped before it started")).await;
        }
        match self.spawn_shim(&attempt.dir) {
            Ok(mut child) => {
                self.listen(attempt, &mut child).await;
                // Whatever it says: the directory has the verdict.
                let _ = child.wait().await;
                self.settle(attempt).await;
            }
            Err(error) => {
                self.end(attempt, not_started(Fault::Host, &format!("the shim cannot be started: {error}")))
                    .await;
            }
        }
    }

    /// Whatever a shim without an attempt says: if it can be started, so can others.
    async fn probe(&self) {
        for wait in super::probe_waits() {
            tokio::time::sleep(wait).await;
            match self.spawn_shim(&self.ledger.dir(Token::default())) {
                Ok(mut shim) => {
                    let _ = shim.wait().await;
                    break;
                }
                Err(error) => tracing::warn!(%error, "a shim still cannot be started"),
            }
        }
        self.probing.store(false, Ordering::Relaxed);
        self.tell(RuntimeEvent::Availability(RuntimeKind::Process, Availability::Available));
    }

    fn spawn_shim(&self, dir: &AttemptDir) -> std::io::Result<Child> {
        let mut command = Command::new(&self.config.program);
        command.args(&self.config.words).arg(dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0).spawn()
    }

    /// Hears from the shim that the program has started, until it has nothing more to say.
    async fn listen(&self, attempt: &Attempt, shim: &mut Child) {
        let Some(stdout) = shim.stdout.take() else { return };
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(pid) = line.strip_prefix(shim::STARTED) {
                self.saw_start(attempt, format!("pid{pid}"), clock::now().up);
            }
        }
    }

    fn saw_start(&self, attempt: &Attempt, container: String, at: Uptime) {
        if self.adopt_start(attempt) {
            self.tell(RuntimeEvent::Started { token: attempt.token(), container, at });
        }
    }

    /// From here on what it wrote is its own. Whether that is news.
    fn adopt_start(&self, attempt: &Attempt) -> bool {
        let news = attempt.started.set(()).is_ok();
        if news
            && let Err(error) =
                self.logs.follow(attempt.token(), &attempt.dir, attempt.launch.spec.log_bytes_max)
        {
            tracing::error!(attempt = %attempt.token(), error = describe(&error), "output cannot be read");
        }
        news
    }

    /// The shim is gone, or is not our child: waits for what is left, and tells the end.
    async fn settle(&self, attempt: &Attempt) {
        let dir = attempt.dir.clone();
        let left = blocking(move || Ok((dir.watcher()?, dir.program()?))).await;
        let (watcher, program) = left.unwrap_or_default();
        for pid in watcher.into_iter().chain(program) {
            proc::wait(pid).await;
        }
        if let Some(program) = program {
            self.saw_start(attempt, format!("pid {}", program.pid), proc::started_at(program));
        }
        let dir = attempt.dir.clone();
        let exit = match blocking(move || dir.ending()).await.flatten() {
            Some(ending) => ending.exit,
            // Its shim was killed: nobody saw the end.
            None if program.is_some() => Exit::Vanished,
            None => not_started(Fault::Host, "the shim was killed before it started anything"),
        };
        self.end(attempt, exit).await;
    }

    async fn end(&self, attempt: &Attempt, exit: Exit) {
        let now = clock::now();
        let output =
            if attempt.started.get().is_some() { attempt.dir.lengths() } else { OutputLengths::default() };
        let ending = Ending { exit: exit.clone(), output, at: now.utc };
        let dir = attempt.dir.clone();
        blocking(move || dir.record_ending(&ending)).await;
        attempt.ended.send_replace(true);
        self.logs.finish(attempt.token(), output);
        self.tell(RuntimeEvent::Ended { token: attempt.token(), exit, output, at: now.up });
    }

    fn restore(self: &Arc<Self>, entry: Entry) -> Restored {
        let Entry { dir, launch, stopping, ending } = entry;
        let attempt = Arc::new(Attempt::new(dir, launch.clone(), stopping));
        let found = match ending {
            Some(ending) => self.ended(&attempt, ending),
            None => self.find(&attempt),
        };
        if found != Found::Unstarted {
            self.know(&attempt);
        }
        Restored { launch, stopping: stopping.map(|it| it.told(clock::now())), found }
    }

    fn ended(&self, attempt: &Attempt, Ending { exit, output, at }: Ending) -> Found {
        if output != OutputLengths::default() {
            self.adopt_start(attempt);
        }
        attempt.ended.send_replace(true);
        self.logs.finish(attempt.token(), output);
        let now = clock::now();
        Found::Ended { exit, output, at: now.up - now.utc.since(at) }
    }

    fn find(self: &Arc<Self>, attempt: &Arc<Attempt>) -> Found {
        let (watcher, program) = (attempt.dir.watcher().ok().flatten(), attempt.dir.program().ok().flatten());
        let alive = |pid: Option<Pid>| pid.filter(|it| proc::is_alive(*it));
        let found = match (alive(watcher), alive(program)) {
            (_, Some(program)) => {
                self.adopt_start(attempt);
                Found::Running { container: format!("pid {}", program.pid), at: proc::started_at(program) }
            }
            // About to start it, or to write down how it ended.
            (Some(_), None) => Found::Unknown,
            (None, None) if watcher.is_none() => return Found::Unstarted,
            (None, None) => {
                let output = attempt.dir.lengths();
                return self.ended(attempt, Ending { exit: Exit::Vanished, output, at: clock::now().utc });
            }
        };
        let (shared, watched) = (Arc::clone(self), Arc::clone(attempt));
        self.spawn(async move { shared.settle(&watched).await });
        found
    }

    fn know(&self, attempt: &Arc<Attempt>) -> bool {
        let mut attempts = self.attempts();
        let news = !attempts.contains_key(&attempt.token());
        attempts.entry(attempt.token()).or_insert_with(|| Arc::clone(attempt));
        news
    }

    fn tell(&self, event: RuntimeEvent) {
        // Nobody listens any more: the worker is leaving.
        let _ = self.events.send(event);
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(self.over.clone().run_until_cancelled_owned(task)));
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<Token, Arc<Attempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_started(fault: Fault, message: &str) -> Exit {
    Exit::NotStarted { fault, code: None, message: message.into() }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Option<T> {
    let done = tokio::task::spawn_blocking(work).await.ok()?;
    done.inspect_err(|error| {
        tracing::error!(error = describe(error), "the attempt's directory cannot be used")
    })
    .ok()
}
