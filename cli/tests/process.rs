//! The process runtime with real processes, each under the shim of the real program.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::attempt_dir::{AttemptDir, Ledger, Program};
use client::logs::Logs;
use client::runtime::process::{Config, Process};
use client::runtime::{Exit, Fault, Found, Launch, Restored, Runtime, RuntimeEvent, StopStep, Survey};
use protocol::container::Body;
use protocol::order::{OutputMark, StopCause};
use protocol::report::{Availability, ChunkData};
use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision, RuntimeKind, Token};
use tokio::sync::mpsc;

struct Desk {
    state: Arc<tempfile::TempDir>,
    process: Arc<Process>,
    logs: Logs,
    told: mpsc::UnboundedReceiver<RuntimeEvent>,
    done: mpsc::UnboundedReceiver<Token>,
    seen: Vec<RuntimeEvent>,
}

impl Desk {
    fn new() -> Self {
        Self::at(Arc::new(tempfile::tempdir().expect("a directory")))
    }

    fn at(state: Arc<tempfile::TempDir>) -> Self {
        let config = Config { program: env!("CARGO_BIN_EXE_longshore").into(), words: vec!["shim".into()] };
        Self::with(config, state)
    }

    fn with(config: Config, state: Arc<tempfile::TempDir>) -> Self {
        let (logs, done) = Logs::new();
        let (events, mut happened) = mpsc::unbounded_channel();
        let (tell, told) = mpsc::unbounded_channel();
        let ledger = Ledger::open(state.path()).expect("a ledger");
        let process = Arc::new(Process::new(config, ledger, logs.clone(), events));
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
        let desk = Self::at(state);
        let survey = desk.process.survey().await;
        (desk, survey)
    }

    fn start(&self, job: u64, spec: ContainerSpec) -> Token {
        let token = Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job) };
        let body = Some(Body { environment: vec![("ADDED".into(), "2".into())], ..Body::default() });
        let (revision, name) = (Revision(1), "test".into());
        self.process.start(Launch { token, revision, name, spec: spec.into(), body, time_left: None });
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
async fn exit_codes_and_signals_are_told() {
    let mut desk = Desk::new();
    for (job, script, wanted) in
        [(1, "exit 0", 0), (2, "exit 126", 126), (3, "exit 255", 255), (4, "kill -SEGV $$", 139)]
    {
        let token = desk.start(job, shell(script));
        assert!(matches!(desk.exit(token).await, Exit::Ran { code, .. } if code == wanted), "{script}");
    }
    assert!(matches!(
        desk.seen[..3],
        [RuntimeEvent::Progressed(..), RuntimeEvent::Started { .. }, RuntimeEvent::Ended { .. }]
    ));
}

#[tokio::test]
async fn what_cannot_be_started_is_the_definitions_fault() {
    let mut desk = Desk::new();
    for (job, command, wanted) in
        [(1, vec!["/nosuch/program"], Some(127)), (2, vec!["/etc/passwd"], Some(126)), (3, vec![], None)]
    {
        let token = desk.start(job, spec(&command));
        let exit = desk.exit(token).await;
        assert!(
            matches!(&exit, Exit::NotStarted { fault: Fault::Definition, code, .. } if *code == wanted),
            "{exit:?}"
        );
    }
}

#[tokio::test]
async fn words_environment_and_output_are_exact() {
    let mut desk = Desk::new();
    let script = "printf '%s|' \"$@\" \"$ADDED\" $LONGSHORE_JOB \"$CARGO_MANIFEST_DIR\"; head -c 3000000 /dev/zero >&2; pwd >&2";
    let token = desk.start(5, spec(&["sh", "-c", script, "sh", "a  b", "", "-x"]));
    let [stdout, stderr] = desk.output(token).await;
    assert_eq!(String::from_utf8_lossy(&stdout), "a  b||-x|2|5||");
    let work = desk.state.path().join("attempts/5-5/work");
    assert_eq!(stderr[3_000_000..], *format!("{}\n", work.display()).as_bytes());
    desk.process.forget(token);
    until(|| !work.exists()).await;
}

#[tokio::test]
async fn a_group_is_stopped_as_a_whole() {
    let mut desk = Desk::new();
    let token = desk.start(1, shell("sleep 601 & sleep 601"));
    let pid = desk.started(token).await;
    until(|| group(pid) >= 3).await;
    desk.process.stop(token, StopCause::Cancel, StopStep::Ask { grace: Duration::from_secs(10) });
    assert!(matches!(desk.exit(token).await, Exit::Ran { code: 143, .. }));
    until(|| group(pid) == 0).await;
}

#[tokio::test]
async fn a_program_that_ignores_being_asked_is_killed_after_its_grace() {
    let mut desk = Desk::new();
    let token = desk.start(1, shell(&deaf(&desk, 1)));
    until(|| ready(&desk, 1).exists()).await;
    desk.process.stop(token, StopCause::Cancel, StopStep::Ask { grace: Duration::from_millis(300) });
    assert!(matches!(desk.exit(token).await, Exit::Ran { code: 137, .. }));
    let token = desk.start(2, shell(&deaf(&desk, 2)));
    until(|| ready(&desk, 2).exists()).await;
    desk.process.stop(token, StopCause::Cancel, StopStep::Remove);
    assert!(matches!(desk.exit(token).await, Exit::Ran { code: 137, .. }));
}

/// A script that says by a file when it no longer hears SIGTERM.
fn deaf(desk: &Desk, job: u64) -> String {
    let test = std::process::id();
    format!("trap '' TERM; : >{}; while [ -d /proc/{test} ]; do sleep 0.1; done", ready(desk, job).display())
}

fn ready(desk: &Desk, job: u64) -> PathBuf {
    desk.state.path().join(format!("ready-{job}"))
}

#[tokio::test]
async fn a_stop_before_the_start_is_a_stop() {
    let mut desk = Desk::new();
    for job in 0..20 {
        let token = desk.start(job, shell("sleep 600"));
        desk.process.stop(token, StopCause::Cancel, StopStep::Ask { grace: Duration::from_secs(5) });
        let exit = desk.exit(token).await;
        assert!(
            matches!(exit, Exit::NotStarted { fault: Fault::Stopped, .. } | Exit::Ran { code: 143, .. }),
            "{exit:?}"
        );
    }
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it() {
    let mut desk = Desk::new();
    let token = desk.start(1, shell("sleep 602 & exit 3"));
    let pid = desk.started(token).await;
    assert!(matches!(desk.exit(token).await, Exit::Ran { code: 3, .. }));
    until(|| group(pid) == 0).await;
}

#[tokio::test]
async fn a_restarted_worker_adopts_what_runs_and_reads_what_ended() {
    let mut desk = Desk::new();
    let go = desk.state.path().join("go");
    let running = desk.start(
        1,
        shell(&format!(
            "echo before; while [ ! -e {} ]; do sleep 0.02; done; echo after; exit 4",
            go.display()
        )),
    );
    let ended = desk.start(2, shell("echo quick; exit 5"));
    desk.started(running).await;
    let exit_file = desk.state.path().join("attempts/2-2/exit");
    until(|| exit_file.exists()).await;
    let (mut desk, survey) = desk.restart().await;
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
    assert!(matches!(desk.exit(running).await, Exit::Ran { code: 4, .. }));
    assert_eq!(desk.output(running).await[0], b"before\nafter\n");
}

#[tokio::test]
async fn directories_that_cannot_be_read_are_no_empty_survey() {
    let mut desk = Desk::new();
    let token = desk.start(1, spec(&["sleep", "600"]));
    let pid = desk.started(token).await;
    // A link to itself can be read by nobody, whoever asks.
    let link = desk.state.path().join("attempts/1-1/exit");
    std::os::unix::fs::symlink("exit", &link).expect("a link");

    let (mut desk, survey) = desk.restart().await;

    assert!(survey.restored.is_empty() && !survey.availability.is_available(), "{survey:?}");
    std::fs::remove_file(link).expect("gone");
    let RuntimeEvent::Surveyed { attempts, .. } = desk.event().await else { panic!("it was told too early") };
    let [restored] = attempts.as_slice() else { panic!("{attempts:?}") };
    assert!(matches!(restored.found, Found::Running { .. }), "{restored:?}");
    let available = RuntimeEvent::Availability(RuntimeKind::Process, Availability::Available);
    assert_eq!(desk.event().await, available);
    signal(&pid.to_string());
    assert!(matches!(desk.exit(token).await, Exit::Ran { code: 137, .. }));
}

#[tokio::test]
async fn a_shim_that_its_worker_died_over_is_waited_for_and_not_repeated() {
    let state = Arc::new(tempfile::tempdir().expect("a directory"));
    // It says that it lives long before it has written down which process it is.
    let script = format!(
        "echo shim >> {0}/shims; while [ ! -e {0}/go ]; do sleep 0.02; done; exec \"$@\"",
        state.path().display()
    );
    let words = ["-c", &script, "sh", env!("CARGO_BIN_EXE_longshore"), "shim"].map(OsString::from);
    let slow = Config { program: "/bin/sh".into(), words: words.into() };
    let desk = Desk::with(slow, Arc::clone(&state));
    let token = desk.start(1, shell("exit 7"));
    let shims = state.path().join("shims");
    until(|| shims.exists()).await;

    let (mut desk, survey) = desk.restart().await;

    assert!(matches!(survey.restored.as_slice(), [Restored { found: Found::Unknown, .. }]), "{survey:?}");
    std::fs::write(state.path().join("go"), "").expect("written");
    assert!(matches!(desk.exit(token).await, Exit::Ran { code: 7, .. }));
    assert_eq!(std::fs::read_to_string(shims).expect("written").lines().count(), 1);
}

#[tokio::test]
async fn a_shim_that_was_killed_over_a_start_does_not_say_that_nothing_started() {
    let mut desk = Desk::new();
    let token = desk.start(1, spec(&["sleep", "600"]));
    let pid = desk.started(token).await;
    let dir = AttemptDir::at(&desk.state.path().join("attempts/1-1"));
    let shim = dir.watcher().expect("read").expect("kept").pid.to_string();
    // As it is in the moment between the start and its being written down.
    dir.record_program(Program::Begun).expect("kept");
    signal(&shim);
    assert!(matches!(desk.exit(token).await, Exit::Vanished));
    signal(&pid.to_string());
}

#[tokio::test]
async fn a_killed_shim_is_no_success() {
    let mut desk = Desk::new();
    let token = desk.start(1, spec(&["sleep", "600"]));
    let pid = desk.started(token).await;
    let kept = std::fs::read(desk.state.path().join("attempts/1-1/watcher")).expect("kept");
    let shim: serde_json::Value = serde_json::from_slice(&kept).expect("json");
    signal(&format!("{}", shim["pid"]));
    signal(&pid.to_string());
    assert!(matches!(desk.exit(token).await, Exit::Vanished));
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

/// How many processes are in a group, zombies aside.
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
