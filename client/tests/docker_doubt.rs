//! What an engine says that need not be so: of a start that it has forgotten, of a list that is older than what it tells of, of a name
//! that another attempt's container bears, of the time; and of an end that is only that of the CLI. On scripted stand-ins.

mod support;

use std::path::Path;
use std::time::Duration;

use longshore_client::attempt_dir::{AttemptDir, Ledger, Pid};
use longshore_client::clock;
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::{Found, Runtime};
use protocol::{Nonce, Token, Uptime};
use support::{Desk, Outcome, launch, show_ended, show_ended_at, spec, stand_in};
use worker::input::{Exit, Restored, RuntimeEvent};

/// An engine with the containers that are shown in this directory. What it lists and what it remembers are lines of the script.
fn engine(dir: &Path, list: &str, events: &str) -> Desk {
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
    Desk::without_image(Config { program: stand_in(dir, &script), ..Config::default() })
}

/// Rewrites what is shown of a container.
fn change(desk: &Desk, dir: &Path, token: Token, change: impl FnOnce(&mut serde_json::Value)) {
    let path = dir.join(desk.name(token));
    let text = std::fs::read_to_string(&path).expect("it is shown");
    let mut container = serde_json::from_str(&text).expect("json");
    change(&mut container);
    std::fs::write(path, format!("{container}\n")).expect("written");
}

/// An attempt whose `docker run` was started by an earlier process, and is gone.
fn begin(desk: &Desk, job: u64) -> AttemptDir {
    let ledger = Ledger::open(desk.state.path()).expect("a ledger");
    let dir = ledger.create(&launch(job, spec(&["true"]))).expect("a directory");
    dir.record_watcher(Pid { pid: u32::MAX, started: 1 }).expect("written");
    dir
}

async fn only_one(desk: &Desk) -> Found {
    let survey = desk.docker().survey().await;
    let [Restored { found, .. }] = survey.restored.as_slice() else { panic!("{survey:?}") };
    found.clone()
}

const LISTS_ALL: &str = "ls | grep ^longshore- || true";

/// Docker that is killed while it starts a container shows it as never started when it is back, although it ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_the_engine_has_forgotten_making_may_have_run() {
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
        let desk = engine(dir.path(), LISTS_ALL, events);
        let token = show_ended(&desk, dir.path(), 1, 1, 0);
        change(&desk, dir.path(), token, |it| {
            it["State"] = serde_json::json!({
                "Status": "created", "ExitCode": 0, "StartedAt": "0001-01-01T00:00:00Z",
                "FinishedAt": "0001-01-01T00:00:00Z",
            });
        });
        begin(&desk, 1);
        let found = only_one(&desk).await;
        assert!(is_right(&found), "{events}: {found:?}");
        assert!(dir.path().join("removals").exists(), "whatever it was, it is in nobody's way");
    }
}

/// Docker before 24.0.3 that dies makes one up, and may be back before the worker is.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_that_nobody_saw_is_asked_for_although_it_is_older_than_the_worker() {
    // What is remembered, and how many seconds after the end the engine's network was made.
    for (version, events, began, is_lost) in [
        ("20.10.24", "true", 1, true),
        ("20.10.24", "true", 3_600, false),
        ("20.10.24", "echo die abc", 1, false),
        ("28.2.2", "true", 1, false),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let desk = engine(dir.path(), LISTS_ALL, events);
        let began = jiff::Timestamp::now().as_second() - 10 + began;
        std::fs::write(dir.path().join("began"), began.to_string()).expect("written");
        std::fs::write(dir.path().join("version"), version).expect("written");
        let token = show_ended(&desk, dir.path(), 1, 1, 0);
        change(&desk, dir.path(), token, |it| {
            let ago =
                |seconds| (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds)).to_string();
            it["State"]["StartedAt"] = ago(20).into();
            it["State"]["FinishedAt"] = ago(10).into();
        });
        begin(&desk, 1);
        let Found::Ended { exit, .. } = only_one(&desk).await else { panic!("{version}, {events}") };
        assert_eq!(matches!(exit, Exit::DaemonLost { .. }), is_lost, "{version}, {events}: {exit:?}");
        assert_eq!(matches!(exit, Exit::Ran { code: 0, .. }), !is_lost, "{version}, {events}: {exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_after_the_list_was_made_is_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let desk = engine(dir.path(), "true", "true");
    show_ended(&desk, dir.path(), 1, 1, 3);
    begin(&desk, 1);
    let found = only_one(&desk).await;
    assert!(matches!(found, Found::Ended { exit: Exit::Ran { code: 3, .. }, .. }), "{found:?}");
    assert!(!dir.path().join("removals").exists(), "it is kept until that is acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_bears_the_name_and_is_another_attempts_is_not_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut desk = engine(dir.path(), "true", "true");
    let token = show_ended(&desk, dir.path(), 1, 1, 0);
    change(&desk, dir.path(), token, |it| {
        it["State"]["Status"] = "running".into();
        it["Labels"]["longshore.nonce"] = Nonce(token.nonce.0 + 1).to_string().into();
    });
    desk.start(1, spec(&["true"]));
    desk.until("docker run was called", || desk.dir(token).join("watcher").exists()).await;
    let asked = || std::fs::read_to_string(dir.path().join("asked")).map_or(0, |it| it.lines().count());
    let before = asked();
    desk.ask_to_stop(token, Duration::from_secs(1));
    desk.until("it was looked for", || asked() > before + 3).await;
    assert!(!dir.path().join("stops").exists());

    // When the name is its own, it is stopped, by what nobody else can have.
    change(&desk, dir.path(), token, |it| it["Labels"]["longshore.nonce"] = token.nonce.to_string().into());
    desk.until("it is stopped", || dir.path().join("stops").exists()).await;
    let stops = std::fs::read_to_string(dir.path().join("stops")).expect("written");
    assert!(stops.lines().all(|it| it == "stop -t 1 -- abc"), "{stops}");
    desk.seen.clear();
}

/// The engine's word for it goes by a clock that may have been set since.
#[tokio::test(flavor = "multi_thread")]
async fn when_a_container_started_is_kept_by_the_clock_that_nobody_sets() {
    let dir = tempfile::tempdir().expect("a directory");
    let desk = engine(dir.path(), LISTS_ALL, "true");
    let token = show_ended(&desk, dir.path(), 1, 1, 0);
    change(&desk, dir.path(), token, |it| it["State"]["Status"] = "running".into());
    begin(&desk, 1).note_start(Uptime(5_000_000_000));
    let found = only_one(&desk).await;
    assert!(matches!(found, Found::Running { at: Uptime(5_000_000_000), .. }), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_stopped_has_ended_after_that_whatever_the_time_is_where_the_engine_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {}
        its_time() {{ date -u -d '1 hour ago' +%Y-%m-%dT%H:%M:%S.%NZ; }}
        case $1 in
            info) echo engine 2 $(its_time);;
            version) echo 28.2.2;;
            image) exit 0;;
            run) while [ ! -e end ]; do sleep 0.05; done; exit 143;;
            inspect) [ -e end ] && exec sed s/NEVER/$(cat end)/ $7; exec sed s/exited/running/ $7;;
            stop) its_time > at; mv at end;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let program = stand_in(dir.path(), &script);
    let mut desk = Desk::without_image(Config { program, ..Config::default() });
    assert_eq!(desk.docker().engine_id().await.as_deref(), Some("engine"));
    let token = show_ended_at(&desk, dir.path(), (1, 1, 143), "NEVER");
    desk.start(1, spec(&["true"]));
    desk.started(token).await;

    let stopped_at = clock::now().up;
    desk.ask_to_stop(token, Duration::from_secs(1));

    let (exit, at) = desk
        .event(|it| match it {
            RuntimeEvent::Ended { exit, at, .. } => Some((exit.clone(), *at)),
            _ => None,
        })
        .await;
    assert!(matches!(exit, Exit::Ran { code: 143, .. }), "{exit:?}");
    assert!(at >= stopped_at, "{at:?} is before {stopped_at:?}");
}

/// A CLI that waits for its container and loses the engine ends with 125, whatever becomes of the container; one that attaches may end with 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_cli_was_cut_off_runs_on_and_ends_by_itself() {
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
        let mut desk = Desk::without_image(Config { program, ..Config::default() });
        let token = show_ended(&desk, dir.path(), 1, 1, 3);
        desk.start(1, spec(&["true"]));
        desk.started(token).await;

        std::fs::write(dir.path().join("cut"), "").expect("written");
        desk.until("it is waited for anew", || dir.path().join("waited").exists()).await;
        std::fs::write(dir.path().join("end"), "").expect("written");

        let outcome = desk.outcome(token).await;
        assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 3, .. }, _)), "{code}: {outcome:?}");
        let (stdout, _, replayed) = desk.output(token).await;
        assert_eq!((String::from_utf8_lossy(&stdout).as_ref(), replayed), ("one\ntwo\n", true), "{code}");
        let runs = std::fs::read_to_string(dir.path().join("runs")).expect("it was run");
        assert_eq!(runs, "run\n", "{code}: it is not started again");
    }
}

/// A program may well end with 255, or be killed by its own machine's memory.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_only_did_not_answer_for_a_moment_has_killed_nobody() {
    for (events, is_lost) in [
        ("echo start abc; echo die abc", false),
        // It was killed, stopped what it found when it was back, and remembers that.
        ("echo die abc", true),
        ("true", true),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut desk = engine(dir.path(), LISTS_ALL, events);
        let script = std::fs::read_to_string(dir.path().join("docker")).expect("a script");
        let away = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?";
        let script = script
            .replace("case $1 in", &format!("[ -e up ] || {{ echo '{away}' >&2; exit 1; }}\ncase $1 in"));
        stand_in(dir.path(), &script);
        let token = show_ended(&desk, dir.path(), 1, 1, 255);
        begin(&desk, 1);
        assert_eq!(only_one(&desk).await, Found::Unknown);

        std::fs::write(dir.path().join("up"), "").expect("written");

        let Outcome::Ended(exit, _) = desk.outcome(token).await else { panic!("{events}") };
        assert_eq!(matches!(exit, Exit::DaemonLost { .. }), is_lost, "{events}: {exit:?}");
        assert_eq!(matches!(exit, Exit::Ran { code: 255, .. }), !is_lost, "{events}: {exit:?}");
    }
}
