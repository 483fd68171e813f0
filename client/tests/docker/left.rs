//! Containers and directories of an earlier process, and containers without an attempt. On a real engine where possible, else on scripted
//! stand-ins.

use std::path::Path;
use std::time::Duration;

use longshore_client::attempt_dir::{AttemptDir, AttemptStore, Stopping};
use longshore_client::boot::RecordedInstant;
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::{Found, Runtime};
use protocol::order::StopCause;
use protocol::report::Availability;
use protocol::{ContainerSpec, Nonce, RuntimeKind, Token};
use worker::input::{Exit, Restored, RuntimeEvent};

use crate::support::{DockerFixture, IMAGE, docker, launch, shell, show_ended, spec, stand_in, surveyed};

/// An engine whose containers are files.
fn engine(dir: &Path) -> Config {
    let script = format!(
        "cd {}
        case $1 in
            version) echo 1;;
            image) exit 0;;
            ps) ls | grep ^longshore- || true;;
            inspect) shift 6; cat $*;;
            rm) echo \"$*\" >> removals; shift 3
                grep running $* && {{ echo 'You cannot remove a running container' >&2; exit 1; }}
                rm -f $*; echo $*;;
            logs) [ \"$2\" != -f ] || exec sleep 600;;
            wait) exec sleep 600;;
            stop) echo \"$*\" >> stops; shift 2; sed -i s/running/exited/ $1;;
            events) exec sleep 600;;
        esac",
        dir.display()
    );
    config(stand_in(dir, &script))
}

fn config(program: impl Into<std::path::PathBuf>) -> Config {
    Config { program: program.into(), ..Config::default() }
}

/// Marks the container as running since long ago, with this deadline.
fn let_run(fixture: &DockerFixture, dir: &Path, token: Token, deadline: u64) {
    let path = dir.join(fixture.name(token));
    let text = std::fs::read_to_string(&path).expect("it is shown");
    let mut container: serde_json::Value = serde_json::from_str(&text).expect("json");
    container["State"]["Status"] = "running".into();
    container["Labels"]["longshore.deadline"] = deadline.to_string().into();
    std::fs::write(path, format!("{container}\n")).expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_container_is_stopped_reported_and_kept_until_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(engine(dir.path()));
    let survey = fixture.docker().survey().await;
    assert!(survey.availability.is_available() && survey.restored.is_empty(), "{survey:?}");
    let [ended, running] = [1, 2].map(|job| show_ended(&fixture, dir.path(), job, 1, 3));
    let_run(&fixture, dir.path(), running, u64::MAX);

    let found = fixture.event(|it| surveyed(it, ended)).await;
    assert!(matches!(found.found, Found::Ended { exit: Exit::Ran { code: 3, .. }, .. }), "{found:?}");
    let found = fixture.event(|it| surveyed(it, running)).await;
    assert!(matches!(found.found, Found::Running { .. }), "{found:?}");
    assert_eq!(found.stopping.map(|it| it.cause), Some(StopCause::Superseded), "the state machine stops it");
    assert!(!dir.path().join("removals").exists());

    fixture.docker().forget(ended);
    fixture.until("it is removed", || !fixture.dir(ended).exists()).await;
    assert!(!dir.path().join(fixture.name(ended)).exists());
    assert!(dir.path().join(fixture.name(running)).exists());
}

/// The state machine ignores the end of an attempt that it does not know yet.
#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_container_is_reported_before_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(engine(dir.path()));
    assert_eq!(fixture.docker().survey().await.restored.len(), 0);
    let [slow, quick] = [1, 2].map(|job| launch(job, spec(&[])).token);
    // A question about the slow one alone waits for the recorded end of the quick one, which runs for the list only.
    let script = format!(
        "cd {0}
        case $1 in
            version) echo 1;;
            ps) [ ! -e shown ] || ls | grep ^longshore-;;
            inspect) shift 6
                case $* in
                    {1}) tries=0
                        while [ ! -e {3}/exit ] && [ $tries -lt 20 ]; do sleep 0.05; tries=$((tries+1)); done
                        cat $1;;
                    {2}) sed s/running/exited/ $1;;
                    *) cat $*;;
                esac;;
            logs) [ \"$2\" != -f ] || exec sleep 600;;
            wait|events) exec sleep 600;;
        esac",
        dir.path().display(),
        fixture.name(slow),
        fixture.name(quick),
        fixture.dir(quick).display()
    );
    stand_in(dir.path(), &script);
    show_ended(&fixture, dir.path(), 1, 1, 3);
    show_ended(&fixture, dir.path(), 2, 1, 3);
    let_run(&fixture, dir.path(), quick, u64::MAX);
    std::fs::write(dir.path().join("shown"), "").expect("written");
    let is_end = |it: &RuntimeEvent| matches!(it, RuntimeEvent::Ended { token, .. } if *token == quick);

    fixture.event(|it| is_end(it).then_some(())).await;

    let known = fixture.past_events.iter().position(|it| surveyed(it, quick).is_some());
    let ended = fixture.past_events.iter().position(is_end);
    assert!(known.is_some() && known < ended, "{:?}", fixture.past_events);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_runs_after_its_acknowledged_end_is_stopped_and_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = DockerFixture::without_image(engine(dir.path()));
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    let_run(&fixture, dir.path(), token, u64::MAX);
    let survey = fixture.docker().survey().await;
    assert!(
        matches!(survey.restored.as_slice(), [Restored { found: Found::Running { .. }, .. }]),
        "{survey:?}"
    );

    fixture.docker().forget(token);

    fixture.until("it is removed", || !fixture.dir(token).exists()).await;
    let stops = std::fs::read_to_string(dir.path().join("stops")).expect("it is stopped");
    assert_eq!(stops, format!("stop -- {}\n", fixture.name(token)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_past_its_deadline_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(engine(dir.path()));
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    let_run(&fixture, dir.path(), token, 1_767_225_690);

    let survey = fixture.docker().survey().await;

    let [Restored { launch, found: Found::Running { .. }, .. }] = survey.restored.as_slice() else {
        panic!("{survey:?}")
    };
    assert_eq!(launch.time_left, Some(Duration::from_secs(90)));
    fixture.event(|it| (*it == RuntimeEvent::Overdue(token)).then_some(())).await;
    assert!(!dir.path().join("stops").exists(), "the state machine decides that");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leftover_probe_of_this_worker_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = DockerFixture::without_image(engine(dir.path()));
    let probes = [1, 2].map(|worker| {
        let name = format!("longshore-{}-probe-{worker}", fixture.membership.cluster);
        let container = serde_json::json!({
            "Id": format!("abc{worker}"), "Name": format!("/{name}"), "Created": "2026-01-01T00:00:00Z",
            "Labels": {
                "longshore.cluster": fixture.membership.cluster.to_string(),
                "longshore.worker": worker.to_string(), "longshore.probe": "true",
            },
            "State": {"Status": "created", "ExitCode": 127, "StartedAt": "", "FinishedAt": ""},
        });
        let path = dir.path().join(name);
        std::fs::write(&path, format!("{container}\n")).expect("written");
        path
    });
    assert!(fixture.docker().survey().await.availability.is_available());
    fixture.until("it is removed", || !probes[0].exists()).await;
    assert!(probes[1].exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_directory_recovers_its_definition() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let name = fixture.name(launch(1, spec(&[])).token);
    let nonce = format!("longshore.nonce={}", launch(1, spec(&[])).token.nonce);
    let labels = [
        format!("longshore.cluster={}", fixture.membership.cluster),
        "longshore.worker=1".into(),
        "longshore.job=1".into(),
        "longshore.fence=1".into(),
        nonce,
        "longshore.deadline=32503680000".into(),
    ];
    let mut made = std::process::Command::new("docker");
    made.args(["run", "-d", "--name", &name, "--init", "--stop-timeout", "7", "--memory", "64m"]);
    made.args(["--stop-signal", "SIGINT", "--network", "none"]);
    made.args(labels.iter().flat_map(|label| ["--label", label.as_str()]));
    let made = made.args([IMAGE, "sleep", "600"]).output().expect("the docker program");
    assert!(made.status.success(), "{made:?}");

    let survey = fixture.docker().survey().await;

    let [Restored { launch, found: Found::Running { .. }, .. }] = survey.restored.as_slice() else {
        panic!("{survey:?}")
    };
    assert_eq!((launch.spec.stop_grace.as_secs(), launch.spec.init), (7, true));
    assert_eq!(launch.spec.resources.memory_bytes, Some(64 << 20));
    assert_eq!(launch.spec.stop_signal.as_deref(), Some("SIGINT"));
    assert!(launch.time_left.is_some_and(|it| it.as_secs() > 1_000_000));
    // A container of the worker's own carries the same labels.
    let own = fixture.start(2, shell("sleep 600"));
    fixture.started(own).await;
    fixture.docker = None;
    std::fs::remove_dir_all(fixture.dir(own)).expect("lost");
    let survey = fixture.restart().await;
    let own = survey.restored.iter().find(|it| it.launch.token == own).expect("it is found");
    assert_eq!((own.launch.spec.stop_grace.as_secs(), own.launch.spec.init), (10, true));
    docker(["rm", "-f", &name]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_directory_keeps_its_self_fence_and_its_secrets_are_known_to_be_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = DockerFixture::without_image(engine(dir.path()));
    let [secret, plain] = [1, 2].map(|job| show_ended(&fixture, dir.path(), job, 1, 0));
    let path = dir.path().join(fixture.name(secret));
    let mut container: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("it is shown")).expect("json");
    container["Labels"]["longshore.secrets"] = "true".into();
    container["Labels"]["longshore.self_fence_ms"] = "7000".into();
    std::fs::write(path, format!("{container}\n")).expect("written");

    let survey = fixture.docker().survey().await;

    let found = |token| survey.restored.iter().find(|it| it.launch.token == token).expect("it is found");
    assert_eq!(found(secret).launch.spec.self_fence, Some(Duration::from_secs(7)));
    assert_eq!(found(plain).launch.spec.self_fence, None);
    let store = AttemptStore::open(fixture.state.path()).expect("a store");
    assert!(store.dir(secret).has_secrets(), "its output cannot be masked any more");
    assert!(!store.dir(plain).has_secrets());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_container_is_not_removed_when_forgotten() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let running = fixture.start(1, spec(&["sleep", "600"]));
    fixture.started(running).await;
    let ended = fixture.start(2, spec(&["true"]));
    fixture.outcome(ended).await;

    fixture.docker().forget(running);
    fixture.docker().forget(ended);

    // They are removed in this order.
    fixture.until("the other one is removed", || !fixture.dir(ended).exists()).await;
    let name = fixture.name(running);
    let state = docker(["inspect", "--type", "container", "-f", "{{.State.Status}}", "--", &name]);
    assert_eq!(String::from_utf8_lossy(&state.stdout).trim(), "running");
    assert!(fixture.dir(running).exists(), "a directory does not go before its container");
    assert!(docker(["stop", "-t", "1", "--", &name]).status.success());
    fixture.until("it is removed too", || !fixture.dir(running).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_links_from_others_is_found() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let token = fixture.start(1, ContainerSpec { network: None, ..spec(&["sleep", "600"]) });
    fixture.started(token).await;
    let name = fixture.name(token);
    let cluster = format!("longshore.cluster={}", fixture.membership.cluster);
    let link = format!("{name}:job");
    let linked = docker(["run", "-d", "--label", &cluster, "--link", &link, IMAGE, "sleep", "600"]);
    assert!(linked.status.success(), "{linked:?}");

    let survey = fixture.restart().await;

    assert!(survey.availability.is_available(), "{survey:?}");
    assert_eq!(survey.restored.len(), 1);
    assert!(matches!(survey.restored[0].found, Found::Running { .. }), "{survey:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_list_is_not_used() {
    let dir = tempfile::tempdir().expect("a directory");
    // The first half of an answer, from a program that was killed.
    let script = format!(
        "cd {}
        case $1 in
            version) echo 1;;
            ps) ls | grep ^longshore-;;
            inspect) shift 6; [ -e whole ] || {{ cat $1; kill -9 $$; }}; cat $*;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let mut tokens = [1, 2].map(|job| show_ended(&fixture, dir.path(), job, 1, 0));

    let survey = fixture.docker().survey().await;

    assert!(!survey.availability.is_available(), "{survey:?}");
    std::fs::write(dir.path().join("whole"), "").expect("written");
    let surveyed = |it: &RuntimeEvent| match it {
        RuntimeEvent::Surveyed { attempts, .. } => {
            Some(attempts.iter().map(|it| it.launch.token).collect::<Vec<_>>())
        }
        _ => None,
    };
    let mut found = fixture.event(surveyed).await;
    found.sort_unstable();
    tokens.sort_unstable();
    assert_eq!(found, tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_directories_make_the_survey_incomplete() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {}
        case $1 in
            version) echo 1;;
            ps) ls | grep ^longshore-;;
            inspect) shift 6; cat $*;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let [known, bare] = [1, 2].map(|job| show_ended(&fixture, dir.path(), job, 1, 0));
    let store = AttemptStore::open(fixture.state.path()).expect("a store");
    store.create(&launch(1, spec(&["true"]))).expect("a directory");
    let attempt = AttemptDir::at(&fixture.dir(known));
    attempt
        .record_stopping(Stopping { cause: StopCause::Cancel, at: RecordedInstant::default() })
        .expect("kept");
    // A link to itself cannot be read by any user.
    let exit = fixture.dir(known).join("exit");
    std::os::unix::fs::symlink("exit", &exit).expect("a link");
    let mut other = launch(2, spec(&["true"]));
    other.token.nonce = Nonce(5);
    store.create(&other).expect("in the place of the one that is missing");

    let survey = fixture.docker().survey().await;

    assert!(survey.restored.is_empty(), "{survey:?}");
    let Availability::Unavailable(why) = &survey.availability else { panic!("{survey:?}") };
    assert!(why.contains("attempts/"), "{why}");
    std::fs::remove_file(&exit).expect("gone");
    let found = fixture.event(|it| surveyed(it, known)).await;
    assert_eq!(found.stopping.map(|it| it.cause), Some(StopCause::Cancel), "{found:?}");
    let available = RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available);
    assert_ne!(availabilities(&fixture.past_events).last(), Some(&&available), "one is missing");
    std::fs::remove_dir_all(fixture.dir(bare)).expect("gone");
    fixture.past_events.clear();
    fixture.event(|it| surveyed(it, bare)).await;
    fixture.event(|it| (*it == available).then_some(())).await;
}

fn availabilities(events: &[RuntimeEvent]) -> Vec<&RuntimeEvent> {
    events.iter().filter(|it| matches!(it, RuntimeEvent::Availability(..))).collect()
}
