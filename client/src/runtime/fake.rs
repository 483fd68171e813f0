//! Simulated attempts, for tests and benchmarks. Nothing is run; the job's environment says what seems to happen.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_EXIT` | exit code; 0, or 137 with `FAKE_OOM` |
//! | `FAKE_SLEEP` | how long it runs (`50ms`, `2s`, `1m`); without it it ends at once, without a task or a timer |
//! | `FAKE_STDOUT`, `FAKE_STDERR` | text that it writes, with a newline |
//! | `FAKE_OUTPUT_BYTES` | how many more bytes it writes to stdout |
//! | `FAKE_STAMP` | any value: it writes the instant of its start to stdout, in nanoseconds since the machine's boot, with a newline |
//! | `FAKE_RESULT` | JSON that it leaves as its result |
//! | `FAKE_OOM` | any value: the kernel killed something in it, for want of memory |
//! | `FAKE_FAIL` | `pull`, `start` or `host`: it never starts, for that reason |
//! | `FAKE_DEAF` | any value: it does not stop when asked, only when killed |
//!
//! It keeps nothing over a restart of the worker: there is no directory, and a survey finds nothing.

mod script;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::order::StopCause;
use protocol::report::{Availability, OutputLengths};
use protocol::{ContainerSpec, Now, RuntimeKind, Token, Uptime};
use tokio::sync::mpsc;
use worker::input::{Exit, ResultFile, RuntimeEvent, StartFailure};
use worker::step::{Launch, StopStep};

use self::script::Script;
use super::{Events, Membership, Runtime, Survey};
use crate::clock;
use crate::logs::Logs;

/// The runtime.
pub struct Fake {
    state: Arc<FakeState>,
}

/// The state of the runtime, which all of its tasks have.
struct FakeState {
    events: Events,
    logs: Logs,
    /// Attempts that sleep, with the channel for their stops.
    asleep: Mutex<HashMap<Token, mpsc::UnboundedSender<StopStep>>>,
}

impl Fake {
    /// Sends simulated events and output to `events` and `logs`.
    #[must_use]
    pub fn new(events: Events, logs: Logs) -> Self {
        Self { state: Arc::new(FakeState { events, logs, asleep: Mutex::default() }) }
    }
}

impl Runtime for Fake {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Fake
    }

    fn set_membership(&self, _: Membership) {}

    fn survey(&self) -> Pin<Box<dyn Future<Output = Survey> + Send + '_>> {
        Box::pin(async {
            Survey { availability: Availability::Available, restored: Vec::new(), foreign: Vec::new() }
        })
    }

    fn start(&self, launch: Launch) {
        let token = launch.token;
        match Script::read(&launch) {
            Ok(script) => self.state.play(token, script),
            Err(message) => self.state.not_started(token, StartFailure::Definition, message),
        }
    }

    /// The attempt has started already.
    fn run(&self, _: Token) {}

    fn stop(&self, token: Token, _: StopCause, step: StopStep, _: Now) {
        if let Some(sleeper) = self.state.asleep().get(&token) {
            // It fails only if the attempt has just ended by itself.
            let _ = sleeper.send(step);
        }
    }

    fn probe(&self, _: Arc<ContainerSpec>, _: String) {
        self.state.send_event(RuntimeEvent::Availability(RuntimeKind::Fake, Availability::Available));
    }

    fn forget(&self, _: Token) {}
}

impl FakeState {
    fn play(self: &Arc<Self>, token: Token, script: Script) {
        if let Some(fault) = script.fail {
            return self.not_started(token, fault, "FAKE_FAIL says so".to_owned());
        }
        let started = clock::now().up;
        let container = String::new();
        self.send_event(RuntimeEvent::Started { token, container, at: started });
        let output = script.write(token, started, &self.logs);
        match script.sleep {
            None => self.ended(token, started, &script, script.exit_code(), (output, clock::now().up)),
            Some(sleep) => {
                let (stop, stopped) = mpsc::unbounded_channel();
                self.asleep().insert(token, stop);
                let state = Arc::clone(self);
                tokio::spawn(async move {
                    let killed = tokio::time::timeout(sleep, killed(stopped, script.deaf)).await.ok();
                    let now = clock::now().up;
                    state.asleep().remove(&token);
                    // A worker that was suspended over the end learns of a stop first: the sleep was over before.
                    let (code, at) = match killed {
                        Some(code) if now < started + sleep => (code, now),
                        _ => (script.exit_code(), now.min(started + sleep)),
                    };
                    state.ended(token, started, &script, code, (output, at));
                });
            }
        }
    }

    fn ended(
        &self,
        token: Token,
        started: Uptime,
        script: &Script,
        code: i32,
        (output, at): (OutputLengths, Uptime),
    ) {
        if output != OutputLengths::default() {
            self.logs.finish(token, output);
        }
        let exit = Exit::Ran {
            code,
            oom: script.oom,
            run_time: at.since(started),
            result: script.result.clone().map_or(ResultFile::Absent, ResultFile::Json),
        };
        self.send_event(RuntimeEvent::Ended { token, exit, output, usage: Default::default(), at });
    }

    fn not_started(&self, token: Token, fault: StartFailure, message: String) {
        let exit = Exit::NotStarted { fault, code: None, message };
        self.send_event(RuntimeEvent::Ended {
            token,
            exit,
            output: OutputLengths::default(),
            usage: Default::default(),
            at: clock::now().up,
        });
    }

    fn send_event(&self, event: RuntimeEvent) {
        // The receiver is gone: the worker is shutting down.
        let _ = self.events.send(event);
    }

    fn asleep(&self) -> MutexGuard<'_, HashMap<Token, mpsc::UnboundedSender<StopStep>>> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exit code after a stop; never returns if no stop has an effect.
async fn killed(mut stopped: mpsc::UnboundedReceiver<StopStep>, deaf: bool) -> i32 {
    while let Some(step) = stopped.recv().await {
        match step {
            StopStep::Ask { .. } if deaf => {}
            StopStep::Ask { .. } => return 143,
            StopStep::Kill | StopStep::Remove => return EXIT_SIGKILL,
        }
    }
    std::future::pending().await
}

/// 128 and the number of SIGKILL, which the kernel sends for want of memory, too.
const EXIT_SIGKILL: i32 = 137;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::container::{ContainerSpec, Overrides};
    use protocol::report::ChunkData;
    use protocol::{JobId, Revision};

    use super::*;

    fn launch(definition: &[(&str, &str)], job: &[(&str, &str)]) -> Launch {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        Launch {
            token: Token { job: JobId(1), ..Token::default() },
            revision: Revision(1),
            name: "fake".into(),
            spec: Arc::new(ContainerSpec { environment: owned(definition), ..ContainerSpec::default() }),
            overrides: Some(Overrides { environment: owned(job), ..Overrides::default() }),
            time_left: None,
            secrets: Default::default(),
        }
    }

    fn fake() -> (Fake, mpsc::UnboundedReceiver<RuntimeEvent>, Logs) {
        let (events, told) = mpsc::unbounded_channel();
        let (logs, _done) = Logs::new();
        (Fake::new(events, logs.clone()), told, logs)
    }

    fn code(event: Option<RuntimeEvent>) -> Option<i32> {
        match event {
            Some(RuntimeEvent::Ended { exit: Exit::Ran { code, .. }, .. }) => Some(code),
            _ => None,
        }
    }

    #[test]
    fn an_attempt_without_sleep_ends_before_start_returns() {
        let (fake, mut told, _) = fake();
        fake.start(launch(&[("FAKE_EXIT", "3")], &[]));
        assert!(matches!(told.try_recv(), Ok(RuntimeEvent::Started { .. })));
        assert_eq!(code(told.try_recv().ok()), Some(3));
    }

    #[test]
    fn an_attempt_out_of_memory_was_killed_unless_it_says_otherwise() {
        let exit_code = |pairs: &[(&str, &str)]| Script::read(&launch(pairs, &[])).map(|it| it.exit_code());
        assert_eq!(exit_code(&[("FAKE_OOM", "1")]), Ok(137));
        assert_eq!(exit_code(&[("FAKE_OOM", "1"), ("FAKE_EXIT", "0")]), Ok(0));
    }

    #[test]
    fn the_jobs_environment_lies_over_the_definitions() {
        let script = Script::read(&launch(&[("FAKE_EXIT", "3"), ("OTHER", "x")], &[("FAKE_EXIT", "4")]));
        assert_eq!(script.map(|it| it.exit_code()), Ok(4));
    }

    #[test]
    fn invalid_variables_are_the_definitions_fault() {
        let (fake, mut told, _) = fake();
        for pair in [("FAKE_SLEEP", "long"), ("FAKE_FAIL", "maybe"), ("FAKE_EXIT", ""), ("FAKE_NEWS", "1")] {
            fake.start(launch(&[pair], &[]));
            let Ok(RuntimeEvent::Ended { exit: Exit::NotStarted { fault, message, .. }, .. }) =
                told.try_recv()
            else {
                panic!("{pair:?}");
            };
            assert_eq!(fault, StartFailure::Definition);
            assert!(message.starts_with(pair.0), "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeper_stops_when_asked_and_a_deaf_one_when_killed() {
        let (fake, mut told, _) = fake();
        let ask = StopStep::Ask { grace: Duration::from_secs(1) };
        for (environment, step, expected) in [
            (vec![("FAKE_SLEEP", "1h")], ask, 143),
            (vec![("FAKE_SLEEP", "1h"), ("FAKE_DEAF", "1")], StopStep::Kill, 137),
            (vec![("FAKE_SLEEP", "1m"), ("FAKE_DEAF", "1"), ("FAKE_EXIT", "9")], ask, 9),
        ] {
            let launch = launch(&environment, &[]);
            let token = launch.token;
            fake.start(launch);
            assert!(matches!(told.recv().await, Some(RuntimeEvent::Started { .. })));
            fake.stop(token, StopCause::Cancel, step, clock::now());
            assert_eq!(code(told.recv().await), Some(expected));
        }
    }

    #[tokio::test]
    async fn output_is_written_and_its_lengths_are_told() {
        let (fake, mut told, logs) = fake();
        fake.start(launch(&[("FAKE_STDERR", "oh"), ("FAKE_OUTPUT_BYTES", "40000")], &[]));
        told.recv().await;
        let Some(RuntimeEvent::Ended { output, .. }) = told.recv().await else { panic!("it has ended") };
        assert_eq!(output, OutputLengths { stdout: 40_000, stderr: 3 });
        let written: u64 = logs.next().await.iter().map(|chunk| chunk.end() - chunk.offset).sum();
        assert_eq!(written, 40_003);
    }

    #[tokio::test]
    async fn a_stamp_is_the_instant_of_the_start() {
        let (fake, mut told, logs) = fake();
        fake.start(launch(&[("FAKE_STAMP", "1")], &[]));
        let Some(RuntimeEvent::Started { at, .. }) = told.recv().await else { panic!("it has started") };
        let written = logs.next().await;
        let expected = ChunkData::Bytes(format!("{}\n", at.0).into_bytes());
        assert_eq!(written[0].data, expected);
    }
}
