//! Wrong answers of an engine: a forgotten start, a stale list, a name of another attempt, another clock, and an end that is only the
//! CLI's. Scripted stand-ins.

use std::path::Path;
use std::time::Duration;

use longshore_client::attempt_dir::{AttemptDir, AttemptStore, ProcessId};
use longshore_client::clock;
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::{Found, Runtime, StopStep};
use protocol::order::StopCause;
use protocol::report::Availability;
use protocol::{Nonce, Token, Uptime};
use worker::input::{Exit, Restored, RuntimeEvent};

use crate::support::{DockerFixture, Outcome, launch, show_ended, show_ended_at, spec, stand_in};

/// An engine with the containers of this directory. Its list and its memory are lines of the script.
fn engine(dir: &Path, list: &str, events: &str) -> DockerFixture {
    let script = format!(
        "cd {}
        case $1 in
            version) cat version 2>/dev/null || echo 28.2.2;;
            ps) {list};;
            inspect) echo \"$*\" >> asked; shift 6
                for name; do cat $name 2>/dev/null || {{ echo \"Error: No such container: $name\" >&2; missing=1; }}; done; exit $missing;;
            rm) echo removed >> removals; rm -f longshore-*; shift 3; echo $*;;
            image) exit 0;;
            network) cat began;;
            run) exec sleep 600;;
            stop|kill) echo \"$*\" >> stops;;
            events) [ \"$3\" = '{{{{json .}}}}' ] && exec sleep 600; {events};;
        esac",
        dir.display()
    );
    DockerFixture::without_image(Config { program: stand_in(dir, &script), ..Config::default() })
}

/// Changes the shown state of a container.
fn change(fixture: &DockerFixture, dir: &Path, token: Token, change: impl FnOnce(&mut serde_json::Value)) {
    let path = dir.join(fixture.name(token));
    let text = std::fs::read_to_string(&path).expect("it is shown");
    let mut container = serde_json::from_str(&text).expect("json");
    change(&mut container);
    std::fs::write(path, format!("{container}\n")).expect("written");
}

/// An attempt whose `docker run` was started by an earlier process and is gone.
fn begin(fixture: &DockerFixture, job: u64) -> AttemptDir {
    let store = AttemptStore::open(fixture.state.path()).expect("a store");
    let dir = store.create(&launch(job, spec(&["true"]))).expect("a directory");
    dir.record_watcher(ProcessId { pid: u32::MAX, started: 1, ..ProcessId::default() }).expect("written");
    dir
}

async fn only_one(fixture: &DockerFixture) -> Found {
    let survey = fixture.docker().survey().await;
    let [Restored { found, .. }] = survey.restored.as_slice() else { panic!("{survey:?}") };
    found.clone()
}

const LISTS_ALL: &str = "ls | grep ^longshore- || true";

/// A Docker daemon that is killed while it starts a container shows it as never started when it is back, although it ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_a_forgotten_start_may_have_run() {
    type Judge = fn(&Found) -> bool;
    let unstarted: Judge = |it| *it == Found::Unstarted;
    let lost: Judge = |it| matches!(it, Found::Ended { exit: Exit::DaemonLost { .. }, .. });
    let vanished: Judge = |it| matches!(it, Found::Ended { exit: Exit::Vanished, .. });
    for (events, is_right) in [
        ("echo create abc", unstarted),
        ("true", lost),
        ("echo create abc; echo start abc; echo die abc", vanished),
        ("exit 1", unstarted),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let fixture = engine(dir.path(), LISTS_ALL, events);
        let token = show_ended(&fixture, dir.path(), 1, 1, 0);
        change(&fixture, dir.path(), token, |it| {
            it["State"] = serde_json::json!({
                "Status": "created", "ExitCode": 0, "StartedAt": "0001-01-01T00:00:00Z",
                "FinishedAt": "0001-01-01T00:00:00Z",
            });
        });
        begin(&fixture, 1);
        let found = only_one(&fixture).await;
        assert!(is_right(&found), "{events}: {found:?}");
        assert!(dir.path().join("removals").exists(), "whatever it was, it is in nobody's way");
    }
}

/// Docker before 24.0.3 invents one when it dies, and may be back before the worker.
#[tokio::test(flavor = "multi_thread")]
async fn an_unobserved_success_is_verified_although_it_is_older_than_the_worker() {
    // The remembered events, and the seconds from the end to the creation of the engine's network.
    for (version, events, began, is_lost) in [
        ("20.10.24", "true", 1, true),
        ("20.10.24", "true", 3_600, false),
        ("20.10.24", "echo die abc", 1, false),
        ("28.2.2", "true", 1, false),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let fixture = engine(dir.path(), LISTS_ALL, events);
        let began = jiff::Timestamp::now().as_second() - 10 + began;
        std::fs::write(dir.path().join("began"), began.to_string()).expect("written");
        std::fs::write(dir.path().join("version"), version).expect("written");
        let token = show_ended(&fixture, dir.path(), 1, 1, 0);
        change(&fixture, dir.path(), token, |it| {
            let ago =
                |seconds| (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds)).to_string();
            it["State"]["StartedAt"] = ago(20).into();
            it["State"]["FinishedAt"] = ago(10).into();
        });
        begin(&fixture, 1);
        let Found::Ended { exit, .. } = only_one(&fixture).await else { panic!("{version}, {events}") };
        assert_eq!(matches!(exit, Exit::DaemonLost { .. }), is_lost, "{version}, {events}: {exit:?}");
        assert_eq!(matches!(exit, Exit::Ran { code: 0, .. }), !is_lost, "{version}, {events}: {exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_made_after_the_list_is_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = engine(dir.path(), "true", "true");
    show_ended(&fixture, dir.path(), 1, 1, 3);
    begin(&fixture, 1);
    let found = only_one(&fixture).await;
    assert!(matches!(found, Found::Ended { exit: Exit::Ran { code: 3, .. }, .. }), "{found:?}");
    assert!(!dir.path().join("removals").exists(), "it is kept until that is acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_another_attempt_with_the_same_name_is_not_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = engine(dir.path(), "true", "true");
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    change(&fixture, dir.path(), token, |it| {
        it["State"]["Status"] = "running".into();
        it["Labels"]["longshore.nonce"] = Nonce(token.nonce.0 + 1).to_string().into();
    });
    fixture.start(1, spec(&["true"]));
    fixture.until("docker run was called", || fixture.dir(token).join("watcher").exists()).await;
    let asked = || std::fs::read_to_string(dir.path().join("asked")).map_or(0, |it| it.lines().count());
    let before = asked();
    fixture.ask_to_stop(token, Duration::from_secs(1));
    fixture.until("it was looked for", || asked() > before + 3).await;
    assert!(!dir.path().join("stops").exists());

    // If the name is its own, it is stopped by its id, which no other container can have.
    change(&fixture, dir.path(), token, |it| {
        it["Labels"]["longshore.nonce"] = token.nonce.to_string().into()
    });
    fixture.until("it is stopped", || dir.path().join("stops").exists()).await;
    let stops = std::fs::read_to_string(dir.path().join("stops")).expect("written");
    assert!(stops.lines().all(|it| it == "stop -t 1 -- abc"), "{stops}");
    fixture.past_events.clear();
}

/// The engine's time comes from a clock that may have been set since.
#[tokio::test(flavor = "multi_thread")]
async fn the_start_of_a_container_is_kept_by_the_monotonic_clock() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = engine(dir.path(), LISTS_ALL, "true");
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    change(&fixture, dir.path(), token, |it| it["State"]["Status"] = "running".into());
    begin(&fixture, 1).record_start(Uptime(5_000_000_000));
    let found = only_one(&fixture).await;
    assert!(matches!(found, Found::Running { at: Uptime(5_000_000_000), .. }), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_counts_although_the_engines_clock_is_wrong() {
    // By the engine's clock at first, and once it has stopped the container.
    for (behind, at_last) in [(1, 1), (0, 2)] {
        assert_stop_counts(behind, at_last).await;
    }
}

/// The engine's clock is this number of hours behind.
async fn assert_stop_counts(behind: u32, at_last: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {}
        its_time() {{ date -u -d \"$1 hours ago\" +%Y-%m-%dT%H:%M:%S.%NZ; }}
        case $1 in
            info) echo engine 2 $(its_time {behind});;
            version) echo 28.2.2;;
            image) exit 0;;
            run) while [ ! -e end ]; do sleep 0.05; done; exit 143;;
            inspect) [ -e end ] && exec sed s/NEVER/$(cat end)/ $7; exec sed s/exited/running/ $7;;
            stop) its_time {at_last} > at; mv at end;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let program = stand_in(dir.path(), &script);
    let mut fixture = DockerFixture::without_image(Config { program, ..Config::default() });
    assert_eq!(fixture.docker().engine_id().await.as_deref(), Some("engine"));
    let token = show_ended_at(&fixture, dir.path(), (1, 1, 143), "NEVER");
    fixture.start(1, spec(&["true"]));
    fixture.started(token).await;

    let stopped_at = clock::now().up;
    fixture.ask_to_stop(token, Duration::from_secs(1));

    let (exit, at) = fixture
        .event(|it| match it {
            RuntimeEvent::Ended { exit, at, .. } => Some((exit.clone(), *at)),
            _ => None,
        })
        .await;
    assert!(matches!(exit, Exit::Ran { code: 143, .. }), "{exit:?}");
    assert!(at >= stopped_at, "{behind} {at_last}: {at:?} is before {stopped_at:?}");
}

/// A CLI that waits for its container and loses the engine ends with 125, whatever the container does; an attached one may end with 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_outlives_its_disconnected_cli() {
    for code in [125, 1] {
        let dir = tempfile::tempdir().expect("a directory");
        let script = format!(
            "cd {}
            case $1 in
                version) echo 28.2.2;;
                image) exit 0;;
                run) echo run >> runs; echo one; while [ ! -e cut ]; do sleep 0.05; done
                    echo 'error waiting for container: unexpected EOF' >&2; exit {code};;
                inspect) [ -e end ] && exec cat $7; exec sed s/exited/running/ $7;;
                wait) touch waited; while [ ! -e end ]; do sleep 0.05; done; echo 3;;
                logs) echo one; while [ ! -e end ]; do sleep 0.05; done; echo two;;
                events) exec sleep 600;;
            esac",
            dir.path().display()
        );
        let program = stand_in(dir.path(), &script);
        let mut fixture = DockerFixture::without_image(Config { program, ..Config::default() });
        let token = show_ended(&fixture, dir.path(), 1, 1, 3);
        fixture.start(1, spec(&["true"]));
        fixture.started(token).await;

        std::fs::write(dir.path().join("cut"), "").expect("written");
        fixture.until("it is waited for anew", || dir.path().join("waited").exists()).await;
        std::fs::write(dir.path().join("end"), "").expect("written");

        let outcome = fixture.outcome(token).await;
        assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 3, .. }, _)), "{code}: {outcome:?}");
        let (stdout, _, replayed) = fixture.output(token).await;
        assert_eq!((String::from_utf8_lossy(&stdout).as_ref(), replayed), ("one\ntwo\n", true), "{code}");
        let runs = std::fs::read_to_string(dir.path().join("runs")).expect("it was run");
        assert_eq!(runs, "run\n", "{code}: it is not started again");
    }
}

/// A program may end with 255, or be killed by the machine's own memory killer.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_outage_of_the_engine_does_not_change_an_exit() {
    for (events, is_lost) in [
        ("echo start abc; echo die abc", false),
        // The daemon was killed, stopped the containers that it found when it was back, and remembers that.
        ("echo die abc", true),
        ("true", true),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut fixture = engine(dir.path(), LISTS_ALL, events);
        let script = std::fs::read_to_string(dir.path().join("docker")).expect("a script");
        let away = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?";
        let script = script
            .replace("case $1 in", &format!("[ -e up ] || {{ echo '{away}' >&2; exit 1; }}\ncase $1 in"));
        stand_in(dir.path(), &script);
        let token = show_ended(&fixture, dir.path(), 1, 1, 255);
        begin(&fixture, 1);
        assert_eq!(only_one(&fixture).await, Found::Unknown);

        std::fs::write(dir.path().join("up"), "").expect("written");

        let Outcome::Ended(exit, _) = fixture.outcome(token).await else { panic!("{events}") };
        assert_eq!(matches!(exit, Exit::DaemonLost { .. }), is_lost, "{events}: {exit:?}");
        assert_eq!(matches!(exit, Exit::Ran { code: 255, .. }), !is_lost, "{events}: {exit:?}");
    }
}

#[tokio::test]
async fn an_exit_before_a_stop_counts_although_the_clock_was_set_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = engine(dir.path(), "echo", "echo");
    let token = fixture.start(1, spec(&["true"]));
    let watcher = fixture.dir(token).join("watcher");
    fixture.until("the CLI runs", || watcher.exists()).await;
    show_ended_at(&fixture, dir.path(), (1, 1, 7), "2099-01-01T00:00:00Z");
    let decided = clock::now();
    for step in [StopStep::Ask { grace: Duration::from_secs(1) }, StopStep::Remove] {
        fixture.docker().stop(token, StopCause::Timeout, step, decided);
    }
    let at = fixture
        .event(|event| match event {
            RuntimeEvent::Ended { exit: Exit::Ran { code: 7, .. }, at, .. } => Some(*at),
            _ => None,
        })
        .await;
    assert!(at < decided.up, "it ended before the stop");
    assert!(!fixture.dir(token).join("stopping").exists(), "nothing was stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_prints_dockers_message_and_exits_125_says_nothing_about_the_engine() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = "docker: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?";
    let script = format!(
        "cd {}
        case $1 in
            version) echo 28.2.2;;
            inspect) shift 6; exec cat $1;;
            image) exit 0;;
            run) echo '{said}' >&2; exit 125;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture =
        DockerFixture::without_image(Config { program: stand_in(dir.path(), &script), ..Config::default() });
    let token = show_ended_at(&fixture, dir.path(), (1, 1, 125), "2026-01-01T00:00:01Z");
    fixture.start(1, spec(&["true"]));
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 125, .. }, _)), "{outcome:?}");
    let is_down =
        |it: &RuntimeEvent| matches!(it, RuntimeEvent::Availability(_, Availability::Unavailable(_)));
    assert!(!fixture.past_events.iter().any(is_down), "{:?}", fixture.past_events);
    let (_, stderr, _) = fixture.output(token).await;
    assert_eq!(String::from_utf8_lossy(&stderr), format!("{said}\n"));
}
