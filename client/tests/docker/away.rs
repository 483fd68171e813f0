//! The docker runtime with a program or an engine that is missing, hangs or answers wrongly. Scripted stand-ins, no engine needed.

use std::path::Path;
use std::time::Duration;

use longshore_client::attempt_dir::{AttemptDir, AttemptStore, ProcessId};
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::{Found, Runtime};
use protocol::order::StopCause;
use protocol::report::{Availability, Foreign, ReleaseCause};
use protocol::{RuntimeKind, Token, WorkerId};
use worker::input::{Exit, Restored, RuntimeEvent};
use worker::step::{Launch, StopStep};

use crate::support::{DockerFixture, Outcome, launch, show_ended, show_ended_at, spec, stand_in};

fn config(program: impl Into<std::path::PathBuf>) -> Config {
    Config { program: program.into(), ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_releases_the_attempt_and_is_reported_once() {
    let mut fixture = DockerFixture::without_image(config("/nonexistent/docker"));
    let outcome = fixture.run(1, spec(&["true"])).await;
    let Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("/nonexistent/docker"), "{why}");
    fixture.run(2, spec(&["true"])).await;
    let reports =
        fixture.past_events.iter().filter(|it| matches!(it, RuntimeEvent::Availability(..))).count();
    assert_eq!(reports, 1);
    let survey = fixture.docker().survey().await;
    assert!(!survey.availability.is_available());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returning_daemon_is_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "[ -e {0}/up ] && {{ echo 1; [ \"$1\" = events ] && exec sleep 600; exit 0; }}; echo 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit 1",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let outcome = fixture.run(1, spec(&["true"])).await;
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::RuntimeUnavailable, _)), "{outcome:?}");
    std::fs::write(dir.path().join("up"), "").expect("written");
    let back = RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available);
    fixture.event(|it| (*it == back).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_docker_program_times_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), "exec sleep 600")));
    let outcome = tokio::time::timeout(Duration::from_secs(40), fixture.run(1, spec(&["true"])))
        .await
        .expect("in time");
    let Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("no answer"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_start_waits_for_the_removal_of_the_old_attempt() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "case $1 in
            rm) echo rm >> {0}/calls; sleep 0.3; echo removed >> {0}/calls;;
            run) echo run >> {0}/calls;;
            events) exec sleep 600;;
            inspect) echo \"Error: No such container: $7\" >&2; exit 1;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let left = launch(1, spec(&["true"]));
    AttemptStore::open(fixture.state.path()).expect("a store").create(&left).expect("a directory");
    let survey = fixture.docker().survey().await;
    assert_eq!(survey.restored[0].found, Found::Unstarted);

    fixture.docker().forget(left.token);
    fixture.docker().start(left.clone());
    fixture.outcome(left.token).await;

    let calls = std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    assert_eq!(calls, "rm\nremoved\nrun\n");
    assert!(fixture.dir(left.token).join("exit").exists(), "its end is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_removal_does_not_delay_others() {
    let dir = tempfile::tempdir().expect("a directory");
    // The stand-in refuses a whole batch if one container fails.
    let script = format!(
        "cd {0}
        case $1 in
            rm) case \"$*\" in *-2-2*) [ -e free ] || {{ echo 'driver failed to remove root filesystem' >&2; exit 1; }};; esac;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let store = AttemptStore::open(fixture.state.path()).expect("a store");
    let [first, stuck, last] = [1, 2, 3].map(|job| launch(job, spec(&["true"])));
    for launch in [&first, &stuck, &last] {
        store.create(launch).expect("a directory");
    }
    assert_eq!(fixture.docker().survey().await.restored.len(), 3);

    for launch in [&first, &stuck, &last] {
        fixture.docker().forget(launch.token);
    }

    let is_there = |it: &Launch| fixture.dir(it.token).exists();
    fixture.until("the others are removed", || !is_there(&first) && !is_there(&last)).await;
    assert!(is_there(&stuck), "a directory does not go before its container");
    std::fs::write(dir.path().join("free"), "").expect("written");
    fixture.until("it is removed too", || !is_there(&stuck)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_engine_gets_one_removal_at_a_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let calls = dir.path().join("calls");
    let script = format!("[ $1 = image ] && exit 0; echo $1 >> {}; exec sleep 600", calls.display());
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let token = fixture.start(1, spec(&["true"]));
    let called = |what: &str| {
        let calls = std::fs::read_to_string(&calls).unwrap_or_default();
        calls.lines().filter(|it| *it == what).count()
    };
    fixture.until("it is run", || called("run") == 1).await;
    for _ in 0..5 {
        fixture.docker().stop(token, StopCause::Timeout, StopStep::Remove, longshore_client::clock::now());
    }
    fixture
        .event(|it| matches!(it, RuntimeEvent::Availability(_, Availability::Unavailable(_))).then_some(()))
        .await;
    assert!(
        called("inspect") <= 3,
        "one before the first stop, one for all removals, and one to find the start"
    );
    assert_eq!(called("rm"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_of_a_container_that_ended_by_itself_survives_a_forced_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    // `docker run` does not report the end, as if the engine went away meanwhile. The first of two inspections is answered after the second
    // one, or after the removal.
    let script = format!(
        "cd {0}
        eval \"last=\\${{$#}}\"
        case $1 in
            run) echo run >> calls; exec sleep 600;;
            inspect) echo look >> looks
                while [ -e $last ] && [ $(wc -l < looks) -lt 2 ]; do sleep 0.05; done
                cat $last;;
            rm) rm $last;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    show_ended(&fixture, dir.path(), 1, 1, 0);
    let token = fixture.start(1, spec(&["true"]));
    fixture.until("it is run", || dir.path().join("calls").exists()).await;

    fixture.docker().stop(token, StopCause::Drain, StopStep::Remove, longshore_client::clock::now());

    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_under_way_is_adopted_by_the_next_process() {
    let dir = tempfile::tempdir().expect("a directory");
    // The container appears long after its worker is gone.
    let script = format!(
        "cd {}
        case $1 in
            run) echo run >> calls; while [ ! -e go ]; do sleep 0.05; done;;
            ps) ls | grep ^longshore-;;
            inspect) cat longshore-*;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let token = fixture.start(1, spec(&["true"]));
    fixture.until("it is run", || dir.path().join("calls").exists()).await;
    // The process is recorded a moment after its start.
    let note = fixture.dir(token).join("watcher");
    fixture.until("it is written down", || note.exists()).await;
    std::fs::remove_file(&note).expect("not written down after all");

    let survey = fixture.restart().await;

    assert!(matches!(survey.restored.as_slice(), [Restored { found: Found::Unknown, .. }]), "{survey:?}");
    show_ended(&fixture, dir.path(), 1, 1, 0);
    std::fs::write(dir.path().join("go"), "").expect("written");
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
    let calls = std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    assert_eq!(calls.lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_died_with_its_engine_ends_as_daemon_lost() {
    // Worker and engine were away together. The same end is the job's own if the engine remembers it.
    for (remembered, is_lost) in [("start abc", true), ("die abc", false)] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut fixture = engine_that_remembers(dir.path(), remembered);
        let token = show_ended(&fixture, dir.path(), 1, 1, 143);
        let exit = found_out(&mut fixture, token).await;
        assert_eq!(matches!(exit, Exit::DaemonLost { .. }), is_lost, "{exit:?}");
        assert_eq!(matches!(exit, Exit::Ran { code: 143, .. }), !is_lost, "{exit:?}");
    }
}

/// An engine with the containers of this directory, and this event.
fn engine_that_remembers(dir: &Path, event: &str) -> DockerFixture {
    let script = format!(
        "cd {}
        case $1 in
            ps) ls | grep ^longshore-;;
            inspect) cat longshore-*;;
            events) [ \"$3\" = '{{{{json .}}}}' ] && exec sleep 600; echo {event};;
        esac",
        dir.display()
    );
    DockerFixture::without_image(config(stand_in(dir, &script)))
}

/// The end of the only container, from the survey or from a later event.
async fn found_out(fixture: &mut DockerFixture, token: Token) -> Exit {
    let survey = fixture.docker().survey().await;
    match survey.restored.as_slice() {
        [Restored { found: Found::Ended { exit, .. }, .. }] => exit.clone(),
        _ => match fixture.outcome(token).await {
            Outcome::Ended(exit, _) => exit,
            refused => panic!("{refused:?}"),
        },
    }
}

/// The engine shows it like a container whose end it had not recorded when it died.
#[tokio::test(flavor = "multi_thread")]
async fn a_recent_success_without_an_event_is_not_believed() {
    for (remembered, is_lost) in [("start abc", true), ("die abc", false)] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut fixture = engine_that_remembers(dir.path(), remembered);
        let now = jiff::Timestamp::now().to_string();
        let token = show_ended_at(&fixture, dir.path(), (1, 1, 0), &now);
        let exit = found_out(&mut fixture, token).await;
        assert_eq!(matches!(exit, Exit::DaemonLost { .. }), is_lost, "{exit:?}");
        assert_eq!(matches!(exit, Exit::Ran { code: 0, .. }), !is_lost, "{exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unobserved_ends_are_determined_in_parallel() {
    let dir = tempfile::tempdir().expect("a directory");
    // A container is shown only when all of them have been asked for.
    let script = format!(
        "cd {0}
        eval \"last=\\${{$#}}\"
        case $1 in
            ps) ls | grep ^longshore-;;
            inspect) [ $# = 7 ] && {{ echo $last >> asked; while [ $(sort -u asked | wc -l) -lt 3 ]; do sleep 0.05; done; cat $last; }} || cat longshore-*;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    for job in [1, 2, 3] {
        show_ended(&fixture, dir.path(), job, 1, 0);
    }
    let survey = fixture.docker().survey().await;
    assert_eq!(survey.restored.len(), 3, "{survey:?}");
    for restored in &survey.restored {
        assert!(
            matches!(restored.found, Found::Ended { exit: Exit::Ran { code: 0, .. }, .. }),
            "{restored:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_never_begun_is_released_after_an_outage() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {0}
        [ -e up ] || {{ echo 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit 1; }}
        case $1 in
            version) echo 1;;
            inspect) shift 6; for name; do echo \"Error: No such container: $name\" >&2; done; exit 1;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let store = AttemptStore::open(fixture.state.path()).expect("a store");
    let [prepared, begun] = [1, 2].map(|job| launch(job, spec(&["true"])));
    for launch in [&prepared, &begun] {
        store.create(launch).expect("a directory");
    }
    let pid = ProcessId { pid: u32::MAX, started: 1, ..ProcessId::default() };
    AttemptDir::at(&fixture.dir(begun.token)).record_watcher(pid).expect("written");
    let survey = fixture.docker().survey().await;
    assert!(survey.restored.iter().all(|it| it.found == Found::Unknown), "{survey:?}");

    std::fs::write(dir.path().join("up"), "").expect("written");
    let outcome = fixture.outcome(prepared.token).await;
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::RuntimeUnavailable, _)), "{outcome:?}");
    let outcome = fixture.outcome(begun.token).await;
    assert!(
        matches!(outcome, Outcome::Ended(Exit::Vanished, _)),
        "its container may have run, and is gone: {outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_without_directory_are_found_once_the_engine_answers() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {0}
        [ -e up ] || {{ echo 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit 1; }}
        case $1 in
            version) echo 1;;
            ps) ls | grep ^longshore-;;
            inspect) shift 5; cat $*;;
            rm) exec sleep 600;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let [known, unknown, removed] = [1, 2, 3].map(|job| show_ended(&fixture, dir.path(), job, 1, 0));
    let other = show_ended(&fixture, dir.path(), 4, 2, 0);
    let store = AttemptStore::open(fixture.state.path()).expect("a store");
    for job in [1, 3] {
        store.create(&launch(job, spec(&["true"]))).expect("a directory");
    }
    let pid = ProcessId { pid: u32::MAX, started: 1, ..ProcessId::default() };
    AttemptDir::at(&fixture.dir(known)).record_watcher(pid).expect("written");
    let survey = fixture.docker().survey().await;
    let mut found: Vec<_> = survey.restored.iter().map(|it| (it.launch.token, &it.found)).collect();
    found.sort_unstable_by_key(|(token, _)| *token);
    assert_eq!(found, [(known, &Found::Unknown), (removed, &Found::Unknown)]);
    // The server has acknowledged everything; only the engine could not be reached.
    fixture.docker().forget(removed);

    std::fs::write(dir.path().join("up"), "").expect("written");
    let available = RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available);
    fixture.event(|it| (*it == available).then_some(())).await;

    let surveyed = fixture.past_events.iter().find_map(|it| match it {
        RuntimeEvent::Surveyed { attempts, foreign } => Some((attempts, foreign)),
        _ => None,
    });
    let (attempts, foreign) = surveyed.expect("it was reported before");
    let found: Vec<_> = attempts.iter().map(|it| (it.launch.token, &it.found)).collect();
    let [(token, Found::Ended { exit: Exit::Ran { code: 0, .. }, .. })] = found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(token, unknown);
    assert_eq!(*foreign, [Foreign { worker: WorkerId(2), token: other }]);
    let Outcome::Ended(Exit::Ran { code: 0, .. }, _) = fixture.outcome(known).await else { panic!() };
}
