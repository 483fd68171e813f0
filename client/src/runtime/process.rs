//! Attempts as plain subprocesses, where the operator allows it: no image, no isolation, the worker's own user.
//!
//! Each has a shim as its parent, which outlives this process and writes the exit into the attempt directory; so a restarted worker
//! adopts processes as it adopts containers. What the shim wrote is the verdict; the shim's own end only says when to look.

mod attempt;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Availability, OutputLengths, Phase, ReleaseCause};
use protocol::{ContainerSpec, RuntimeKind, Token, Uptime};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use worker::input::{Exit, Fault, Found, Restored, RuntimeEvent};
use worker::step::{Launch, StopStep};

use self::attempt::Attempt;
use super::elsewhere::{blocking, tried};
use super::removals::Removals;
use super::{Events, Membership, Runtime, Survey, proc, shim};
use crate::attempt_dir::{AttemptDir, Ending, Entry, Error, Ledger, Pid, Program, describe};
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
            let (availability, restored) = match self.shared.look().await {
                Ok(restored) => (Availability::Available, restored),
                Err(why) => {
                    let shared = Arc::clone(&self.shared);
                    self.shared.spawn(async move { shared.survey_again().await });
                    (Availability::Unavailable(why), Vec::new())
                }
            };
            Survey { availability, restored, foreign: Vec::new() }
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

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.shared.removals.wait_for_all())
    }

    fn forget(&self, token: Token) {
        // In this order: it is known until it is removed.
        let (dir, removal) = (self.shared.ledger.dir(token), self.shared.removals.begin(token));
        self.shared.attempts().remove(&token);
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
    /// What an earlier process has left and is not in the books. It is now.
    async fn look(self: &Arc<Self>) -> Result<Vec<Restored>, String> {
        // Who is in the books before the list is made, or after, is no leftover, although it may end and be forgotten in between.
        let before = self.known();
        let ledger = self.ledger.clone();
        let entries = tried(move || ledger.entries()).await?;
        let after = self.known();
        let own = entries.into_iter().filter(|it| it.launch.spec.runtime == RuntimeKind::Process);
        let new = own.filter(|it| !before.contains(&it.launch.token) && !after.contains(&it.launch.token));
        Ok(new.map(|entry| self.restore(entry)).collect())
    }

    /// What there is could not be read: it is tried until it can.
    async fn survey_again(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            match self.look().await {
                Ok(attempts) => {
                    self.tell(RuntimeEvent::Surveyed { attempts, foreign: Vec::new() });
                    self.tell(RuntimeEvent::Availability(RuntimeKind::Process, Availability::Available));
                    return;
                }
                Err(why) => tracing::warn!(why, "what an earlier process has left cannot be seen yet"),
            }
        }
    }

    async fn run(self: &Arc<Self>, attempt: &Arc<Attempt>) {
        self.removals.wait_for(attempt.token()).await;
        let (ledger, launch) = (self.ledger.clone(), attempt.launch.clone());
        if let Err(why) = tried(move || ledger.create(&launch)).await {
            self.attempts().remove(&attempt.token());
            let cause = ReleaseCause::RuntimeUnavailable;
            return self.tell(RuntimeEvent::Refused { token: attempt.token(), cause, why });
        }
        self.tell(RuntimeEvent::Progressed(attempt.token(), Phase::Starting));
        if !attempt.word.ask(attempt.token(), &self.events, &attempt.stopping).await {
            return self.end(attempt, not_started(Fault::Stopped, "stopped before it started")).await;
        }
        let dir = attempt.dir.clone();
        // Held by the shim as long as it lives: whoever starts it may die before either of them has written down which process it is.
        let shim = tried(move || dir.claim_output()).await.and_then(|claim| {
            let spawned = self.spawn_shim(&attempt.dir, claim.into());
            spawned.map_err(|error| format!("the shim cannot be started: {error}"))
        });
        match shim {
            Ok(mut child) => {
                self.listen(attempt, &mut child).await;
                // Whatever it says: the directory has the verdict.
                let _ = child.wait().await;
                self.settle(attempt).await;
            }
            // By an earlier process, whose shim lives.
            Err(_) if attempt.dir.is_being_written() => self.settle(attempt).await,
            Err(why) => self.end(attempt, not_started(Fault::Host, &why)).await,
        }
    }

    /// Whatever a shim without an attempt says: if it can be started, so can others.
    async fn probe(&self) {
        for wait in super::probe_waits() {
            tokio::time::sleep(wait).await;
            match self.spawn_shim(&self.ledger.dir(Token::default()), Stdio::null()) {
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

    fn spawn_shim(&self, dir: &AttemptDir, stdin: Stdio) -> std::io::Result<Child> {
        let mut command = Command::new(&self.config.program);
        command.args(&self.config.words).arg(dir.path());
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0).spawn()
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
        let mut looks = tokio::time::interval(LOOK_EVERY);
        while attempt.has_shim() {
            if let Ok(Some(Program::Is(program))) = attempt.dir.program() {
                self.saw_start(attempt, format!("pid {}", program.pid), proc::started_at(program));
            }
            looks.tick().await;
        }
        let program = certain(&attempt.dir, AttemptDir::program).await;
        if let Some(Program::Is(program)) = program {
            self.saw_start(attempt, format!("pid {}", program.pid), proc::started_at(program));
            proc::wait(program).await;
        }
        let exit = match certain(&attempt.dir, AttemptDir::ending).await {
            Some(ending) => ending.exit,
            // Its shim was killed: nobody saw the end.
            None if program.is_some() => Exit::Vanished,
            None => not_started(Fault::Host, "the shim ended before it started anything"),
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
        let Entry { dir, launch, stopping, ending, watcher, program } = entry;
        let attempt = Arc::new(Attempt::new(dir, launch.clone(), stopping));
        let found = match ending {
            Some(ending) => self.ended(&attempt, ending),
            None => self.find(&attempt, watcher, program),
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

    fn find(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        watcher: Option<Pid>,
        program: Option<Program>,
    ) -> Found {
        let found = match program {
            Some(Program::Is(program)) if proc::is_alive(program) => {
                self.adopt_start(attempt);
                Found::Running { container: format!("pid {}", program.pid), at: proc::started_at(program) }
            }
            // About to start it, or to write down how it ended; or it has, since the directory was read.
            _ if attempt.has_shim() || attempt.dir.ending().map_or(true, |it| it.is_some()) => Found::Unknown,
            None if watcher.is_none() => return Found::Unstarted,
            _ => {
                let output = attempt.dir.lengths();
                return self.ended(attempt, Ending { exit: Exit::Vanished, output, at: clock::now().utc });
            }
        };
        let (shared, watched) = (Arc::clone(self), Arc::clone(attempt));
        self.spawn(async move { shared.settle(&watched).await });
        found
    }

    /// The attempts in the books, and those that have left them and are being removed.
    fn known(&self) -> HashSet<Token> {
        // In this order: what leaves the books in between is in both.
        let known: HashSet<Token> = self.attempts().keys().copied().collect();
        self.removals.pending().into_iter().chain(known).collect()
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

/// What is in the directory, as soon as it can be read.
async fn certain<T: Send + 'static>(
    dir: &AttemptDir,
    read: impl Fn(&AttemptDir) -> Result<T, Error> + Copy + Send + 'static,
) -> T {
    loop {
        let dir = dir.clone();
        match tried(move || read(&dir)).await {
            Ok(found) => return found,
            Err(why) => tracing::error!(why, "what became of an attempt cannot be read yet"),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Between two looks at what the system does not let us read.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Between two looks at a shim that is not our child.
const LOOK_EVERY: Duration = Duration::from_millis(100);
