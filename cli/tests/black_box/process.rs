//! The process runtime with real processes, each under the shim of the real program.

mod orphans;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::attempt_dir::{AttemptDir, AttemptStore, ProgramState};
use client::logs::Logs;
use client::runtime::process::{Config, Process};
use client::runtime::{Exit, Found, Launch, Restored, Runtime, RuntimeEvent, StartFailure, StopStep, Survey};
use protocol::container::Overrides;
use protocol::order::{OutputMark, StopCause};
use protocol::report::{Availability, ChunkData};
use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision, RuntimeKind, Token};
use tokio::sync::mpsc;

struct ProcessFixture {
    state: Arc<tempfile::TempDir>,
    process: Arc<Process>,
    logs: Logs,
    told: mpsc::UnboundedReceiver<RuntimeEvent>,
    done: mpsc::UnboundedReceiver<Token>,
    seen: Vec<RuntimeEvent>,
}

impl ProcessFixture {
    fn new() -> Self {
        Self::at(Arc::new(tempfile::tempdir().expect("a directory")))
    }

    fn at(state: Arc<tempfile::TempDir>) -> Self {
        let config = Config { program: env!("CARGO_BIN_EXE_longshore").into(), ..Config::default() };
        Self::with(config, state)
    }

    fn with(config: Config, state: Arc<tempfile::TempDir>) -> Self {
        let (logs, done) = Logs::new();
        let (events, mut happened) = mpsc::unbounded_channel();
        let (tell, told) = mpsc::unbounded_channel();
        let store = AttemptStore::open(state.path()).expect("a store");
        let process = Arc::new(Process::new(config, store, logs.clone(), events));
        let allows = Arc::downgrade(&process);
        tokio::spawn(async move {
            while let Some(event) = happened.recv().await {
                match event {
                    // The gate is open.
                    RuntimeEvent::Prepared(token) => drop(allows.upgrade().map(|process| process.run(token))),
                    event => drop(tell.send(event)),
                }
            }
        });
        Self { state, process, logs, told, done, seen: Vec::new() }
    }

    async fn restart(self) -> (Self, Survey) {
        let state = Arc::clone(&self.state);
        drop(self);
        let fixture = Self::at(state);
        let survey = fixture.process.survey().await;
        (fixture, survey)
    }

    fn start(&self, job: u64, spec: ContainerSpec) -> Token {
        let token = Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job) };
        let (spec, environment) = (spec.into(), vec![("ADDED".into(), "2".into())]);
        let overrides = Some(Overrides { environment, ..Overrides::default() });
        let (revision, name, time_left, secrets) = (Revision(1), "test".into(), None, Default::default());
        self.process.start(Launch { token, revision, name, spec, overrides, time_left, secrets });
        token
    }

    async fn event(&mut self) -> RuntimeEvent {
        let event = tokio::time::timeout(SOON, self.told.recv()).await.expect("an event in time");
        event.expect("the runtime lives")
    }

    async fn exit(&mut self, token: Token) -> Exit {
        loop {
            let event = self.event().await;
            self.seen.push(event.clone());
            match event {
                RuntimeEvent::Ended { token: whose, exit, .. } if whose == token => return exit,
                RuntimeEvent::Refused { why, .. } => panic!("{why}"),
                _ => {}
            }
        }
    }

    async fn started(&mut self, token: Token) -> i32 {
        loop {
            let event = self.event().await;
            if let RuntimeEvent::Started { token: whose, container, .. } = &event
                && *whose == token
            {
                return container.trim_start_matches("pid ").parse().expect("a pid");
            }
        }
    }

    async fn output(&mut self, token: Token) -> [Vec<u8>; 2] {
        tokio::time::timeout(SOON, self.whole_output(token)).await.expect("all output in time")
    }

    async fn whole_output(&mut self, token: Token) -> [Vec<u8>; 2] {
        let mut got: HashMap<Token, [Vec<u8>; 2]> = HashMap::new();
        loop {
            tokio::select! {
                done = self.done.recv() => if done == Some(token) {
                    return got.remove(&token).unwrap_or_default();
                },
                frame = self.logs.next() => for chunk in frame {
                    let mark = OutputMark { token: chunk.token, stream: chunk.stream, offset: chunk.end() };
                    let ChunkData::Bytes(bytes) = chunk.data else { panic!("{chunk:?}") };
                    got.entry(chunk.token).or_default()[chunk.stream as usize].extend(bytes);
                    self.logs.acknowledge(&[mark]);
                }
            }
        }
    }
}

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    let mut fixture = ProcessFixture::new();
    for (job, script, wanted) in
        [(1, "exit 0", 0), (2, "exit 126", 126), (3, "exit 255", 255), (4, "kill -SEGV $$", 139)]
    {
        let token = fixture.start(job, shell(script));
        assert!(matches!(fixture.exit(token).await, Exit::Ran { code, .. } if code == wanted), "{script}");
    }
    assert!(matches!(
        fixture.seen[..3],
        [RuntimeEvent::Progressed(..), RuntimeEvent::Started { .. }, RuntimeEvent::Ended { .. }]
    ));
}

#[tokio::test]
async fn program_that_cannot_be_started_is_a_start_failure() {
    let mut fixture = ProcessFixture::new();
    let long = "long\n".repeat(1_000);
    for (job, command, wanted, told) in [
        (1, vec!["/nosuch/program"], Some(127), "the program `/nosuch/program` cannot"),
        (2, vec!["/etc/passwd"], Some(126), "the program `/etc/passwd` cannot"),
        (3, vec![], None, "command: is missing"),
        (4, vec![&long], None, "the program `long\\nlong\\n"),
    ] {
        let token = fixture.start(job, spec(&command));
        let exit = fixture.exit(token).await;
        let Exit::NotStarted { fault, code, message } = exit else { panic!("{exit:?}") };
        assert_eq!((fault, code), (StartFailure::Definition, wanted), "{message}");
        assert!(message.starts_with(told) && message.len() < 200, "{message}");
    }
}

#[tokio::test]
async fn arguments_environment_and_output_are_unchanged() {
    let mut fixture = ProcessFixture::new();
    let script = "printf '%s|' \"$@\" \"$ADDED\" $LONGSHORE_JOB \"$CARGO_MANIFEST_DIR\"; head -c 3000000 /dev/zero >&2; pwd >&2";
    let token = fixture.start(5, spec(&["sh", "-c", script, "sh", "a  b", "", "-x"]));
    let [stdout, stderr] = fixture.output(token).await;
    assert_eq!(String::from_utf8_lossy(&stdout), "a  b||-x|2|5||");
    let work = fixture.state.path().join("attempts/5-5/work");
    assert_eq!(stderr[3_000_000..], *format!("{}\n", work.display()).as_bytes());
    fixture.process.forget(token);
    until(|| !work.exists()).await;
}

#[tokio::test]
async fn whole_process_group_is_stopped() {
    let mut fixture = ProcessFixture::new();
    let token = fixture.start(1, shell("sleep 601 & sleep 601"));
    let pid = fixture.started(token).await;
    until(|| group(pid) >= 3).await;
    fixture.process.stop(
        token,
        StopCause::Cancel,
        StopStep::Ask { grace: Duration::from_secs(10) },
        client::clock::now(),
    );
    assert!(matches!(fixture.exit(token).await, Exit::Ran { code: 143, .. }));
    until(|| group(pid) == 0).await;
}

#[tokio::test]
async fn process_that_ignores_sigterm_is_killed_after_its_grace_period() {
    let mut fixture = ProcessFixture::new();
    let token = fixture.start(1, shell(&deaf(&fixture, 1)));
    until(|| ready(&fixture, 1).exists()).await;
    fixture.process.stop(
        token,
        StopCause::Cancel,
        StopStep::Ask { grace: Duration::from_millis(300) },
        client::clock::now(),
    );
    assert!(matches!(fixture.exit(token).await, Exit::Ran { code: 137, .. }));
    let token = fixture.start(2, shell(&deaf(&fixture, 2)));
    until(|| ready(&fixture, 2).exists()).await;
    fixture.process.stop(token, StopCause::Cancel, StopStep::Remove, client::clock::now());
    assert!(matches!(fixture.exit(token).await, Exit::Ran { code: 137, .. }));
}

/// A script that creates a file once it ignores SIGTERM.
fn deaf(fixture: &ProcessFixture, job: u64) -> String {
    let test = std::process::id();
    format!(
        "trap '' TERM; : >{}; while [ -d /proc/{test} ]; do sleep 0.1; done",
        ready(fixture, job).display()
    )
}

fn ready(fixture: &ProcessFixture, job: u64) -> PathBuf {
    fixture.state.path().join(format!("ready-{job}"))
}

#[tokio::test]
async fn stop_before_the_start_prevents_the_start() {
    let mut fixture = ProcessFixture::new();
    for job in 0..20 {
        let token = fixture.start(job, shell("sleep 600"));
        fixture.process.stop(
            token,
            StopCause::Cancel,
            StopStep::Ask { grace: Duration::from_secs(5) },
            client::clock::now(),
        );
        let exit = fixture.exit(token).await;
        let is_unstarted = matches!(exit, Exit::NotStarted { fault: StartFailure::Stopped, .. });
        assert!(is_unstarted || matches!(exit, Exit::Ran { code: 143, .. }), "{exit:?}");
    }
}

#[tokio::test]
async fn exit_before_a_stop_counts_even_if_the_worker_was_suspended() {
    let mut fixture = ProcessFixture::new();
    for (job, code, cause) in [(1, 0, StopCause::Timeout), (2, 7, StopCause::SelfFence)] {
        let go = fixture.state.path().join(format!("go-{job}"));
        let script = format!("while [ ! -e {} ]; do sleep 0.02; done; exit {code}", go.display());
        let token = fixture.start(job, shell(&script));
        fixture.started(token).await;
        std::fs::write(go, "").expect("written");
        // The only thread of this test blocks, as all threads of a suspended worker do.
        let dir = fixture.state.path().join(format!("attempts/{job}-{job}"));
        let deadline = std::time::Instant::now() + SOON;
        while !dir.join("exit").exists() {
            assert!(std::time::Instant::now() < deadline, "the shim records the end");
            std::thread::yield_now();
        }
        let decided = client::clock::now();
        fixture.process.stop(token, cause, StopStep::Ask { grace: Duration::from_secs(5) }, decided);
        assert!(matches!(fixture.exit(token).await, Exit::Ran { code: own, .. } if own == code));
        let Some(RuntimeEvent::Ended { at, .. }) = fixture.seen.last() else { panic!("{:?}", fixture.seen) };
        assert!(*at < decided.up, "it ended before the stop");
        assert!(!dir.join("stopping").exists(), "nothing was stopped");
    }
}

#[tokio::test]
async fn start_and_end_times_are_those_of_the_program() {
    let mut fixture = ProcessFixture::new();
    for job in 0..5 {
        let token = fixture.start(job, shell("exit 0"));
        let Exit::Ran { run_time, .. } = fixture.exit(token).await else { panic!("it ran") };
        let start = fixture.seen.iter().find_map(|it| match it {
            RuntimeEvent::Started { token: whose, at, .. } if *whose == token => Some(*at),
            _ => None,
        });
        let Some(RuntimeEvent::Ended { at: end, .. }) = fixture.seen.last() else {
            panic!("{:?}", fixture.seen)
        };
        assert!(start.is_some_and(|start| start + run_time <= *end), "{:?}", fixture.seen);
    }
}

#[tokio::test]
async fn restarted_worker_adopts_running_and_ended_processes() {
    let mut fixture = ProcessFixture::new();
    let go = fixture.state.path().join("go");
    let running = fixture.start(
        1,
        shell(&format!(
            "echo before; while [ ! -e {} ]; do sleep 0.02; done; echo after; exit 4",
            go.display()
        )),
    );
    let ended = fixture.start(2, shell("echo quick; exit 5"));
    fixture.started(running).await;
    let exit_file = fixture.state.path().join("attempts/2-2/exit");
    until(|| exit_file.exists()).await;
    let (mut fixture, survey) = fixture.restart().await;
    assert_eq!(survey.restored.len(), 2);
    for restored in survey.restored {
        match restored.found {
            Found::Running { .. } => assert_eq!(restored.launch.token, running),
            Found::Ended { exit: Exit::Ran { code: 5, .. }, output, .. } => {
                assert_eq!((restored.launch.token, output.stdout), (ended, 6));
            }
            other => panic!("{other:?}"),
        }
    }
    std::fs::write(go, "").expect("written");
    assert!(matches!(fixture.exit(running).await, Exit::Ran { code: 4, .. }));
    assert_eq!(fixture.output(running).await[0], b"before\nafter\n");
}

#[tokio::test]
async fn unreadable_directories_make_the_survey_incomplete() {
    let mut fixture = ProcessFixture::new();
    let token = fixture.start(1, spec(&["sleep", "600"]));
    let pid = fixture.started(token).await;
    // No user can read a link to itself.
    let link = fixture.state.path().join("attempts/1-1/exit");
    std::os::unix::fs::symlink("exit", &link).expect("a link");

    let (mut fixture, survey) = fixture.restart().await;

    assert!(survey.restored.is_empty() && !survey.availability.is_available(), "{survey:?}");
    std::fs::remove_file(link).expect("gone");
    let RuntimeEvent::Surveyed { attempts, .. } = fixture.event().await else {
        panic!("it was told too early")
    };
    let [restored] = attempts.as_slice() else { panic!("{attempts:?}") };
    assert!(matches!(restored.found, Found::Running { .. }), "{restored:?}");
    let available = RuntimeEvent::Availability(RuntimeKind::Process, Availability::Available);
    assert_eq!(fixture.event().await, available);
    signal(&pid.to_string());
    assert!(matches!(fixture.exit(token).await, Exit::Ran { code: 137, .. }));
}

#[tokio::test]
async fn shim_of_a_dead_worker_is_awaited_and_not_repeated() {
    let state = Arc::new(tempfile::tempdir().expect("a directory"));
    // The shim holds its lock long before it has stored the process id.
    let script = format!(
        "echo shim >> {0}/shims; while [ ! -e {0}/go ]; do sleep 0.02; done; exec \"$@\"",
        state.path().display()
    );
    let words = ["-c", &script, "sh", env!("CARGO_BIN_EXE_longshore"), "shim"].map(OsString::from);
    let slow = Config { program: "/bin/sh".into(), args: words.into(), ..Config::default() };
    let fixture = ProcessFixture::with(slow, Arc::clone(&state));
    let token = fixture.start(1, shell("exit 7"));
    let shims = state.path().join("shims");
    until(|| shims.exists()).await;

    let (mut fixture, survey) = fixture.restart().await;

    assert!(matches!(survey.restored.as_slice(), [Restored { found: Found::Unknown, .. }]), "{survey:?}");
    std::fs::write(state.path().join("go"), "").expect("written");
    assert!(matches!(fixture.exit(token).await, Exit::Ran { code: 7, .. }));
    assert_eq!(std::fs::read_to_string(shims).expect("written").lines().count(), 1);
}

#[tokio::test]
async fn shim_killed_during_a_start_leaves_the_outcome_open() {
    let mut fixture = ProcessFixture::new();
    let token = fixture.start(1, spec(&["sleep", "600"]));
    let pid = fixture.started(token).await;
    let dir = AttemptDir::at(&fixture.state.path().join("attempts/1-1"));
    let shim = dir.watcher().expect("read").expect("kept").pid.to_string();
    // The state between the start and storing it.
    dir.record_program(ProgramState::Starting).expect("kept");
    signal(&shim);
    assert!(matches!(fixture.exit(token).await, Exit::Vanished));
    signal(&pid.to_string());
}

#[tokio::test]
async fn killed_shim_is_not_a_success() {
    let mut fixture = ProcessFixture::new();
    let token = fixture.start(1, spec(&["sleep", "600"]));
    let pid = fixture.started(token).await;
    let kept = std::fs::read(fixture.state.path().join("attempts/1-1/watcher")).expect("kept");
    let shim: serde_json::Value = serde_json::from_slice(&kept).expect("json");
    signal(&format!("{}", shim["pid"]));
    signal(&pid.to_string());
    assert!(matches!(fixture.exit(token).await, Exit::Vanished));
}

fn spec(command: &[&str]) -> ContainerSpec {
    let command = command.iter().map(|it| (*it).to_owned()).collect();
    ContainerSpec { runtime: RuntimeKind::Process, command, ..ContainerSpec::default() }
}

fn shell(script: &str) -> ContainerSpec {
    spec(&["sh", "-c", script])
}

fn signal(pid: &str) {
    assert!(Command::new("kill").args(["-9", pid]).status().expect("kill").success());
}

/// Number of processes in a group, without zombies.
fn group(pgid: i32) -> usize {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten().map(|it| it.path().join("stat"));
    let member = |path: PathBuf| {
        let stat = std::fs::read_to_string(path).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let group = fields.nth(1)?.parse::<i32>().ok()?;
        (group == pgid && state != "Z").then_some(())
    };
    processes.filter_map(member).count()
}

async fn until(mut holds: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let look = async {
        while !holds() {
            looks.tick().await;
        }
    };
    tokio::time::timeout(SOON, look).await.expect("in time");
}

/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(60);
