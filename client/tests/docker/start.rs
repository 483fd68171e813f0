//! Between image and running container: the start permit, an engine that goes away, the report of the start. A scripted stand-in, no
//! engine needed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_client::runtime::docker::Config;
use longshore_client::runtime::policy::Allow;
use longshore_client::runtime::{Found, Runtime};
use protocol::container::{PullPolicy, Volume};
use protocol::report::{Availability, ReleaseCause};
use protocol::{ContainerSpec, RuntimeKind};
use worker::input::{Exit, Restored, RuntimeEvent, StartFailure};
use worker::step::Launch;

use crate::support::{DockerFixture, Outcome, launch, recorder, show_ended, spec, stand_in};

fn config(program: impl Into<std::path::PathBuf>) -> Config {
    Config { program: program.into(), ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_interrupted_by_an_outage_is_resolved_by_the_engine() {
    let dir = tempfile::tempdir().expect("a directory");
    // The engine makes the container and goes away before it can answer.
    let script = format!(
        "cd {0}
        away() {{ echo 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit $1; }}
        case $1 in
            image) exit 0;;
            run) echo run >> calls; touch away; away 125;;
            events) exec sleep 600;;
        esac
        [ -e away ] && away 1
        case $1 in
            version) echo 1;;
            inspect) shift 6; [ -e $1 ] && exec cat $1; echo \"Error: No such container: $1\" >&2; exit 1;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let away = |it: &RuntimeEvent| {
        matches!(it, RuntimeEvent::Availability(_, it) if !it.is_available()).then_some(())
    };
    let ran = show_ended(&fixture, dir.path(), 1, 1, 0);
    fixture.start(1, spec(&["true"]));
    fixture.event(away).await;
    std::fs::remove_file(dir.path().join("away")).expect("it is away");
    let outcome = fixture.outcome(ran).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");

    // If nothing was made, the attempt goes back, but only when that is known.
    fixture.past_events.clear();
    let token = fixture.start(2, spec(&["true"]));
    fixture.event(away).await;
    let is_final =
        |it: &RuntimeEvent| matches!(it, RuntimeEvent::Refused { .. } | RuntimeEvent::Ended { .. });
    assert!(!fixture.past_events.iter().any(is_final), "nobody can know yet: {:?}", fixture.past_events);
    std::fs::remove_file(dir.path().join("away")).expect("it is away");
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::RuntimeUnavailable, _)), "{outcome:?}");
    let refused = |it: &RuntimeEvent| matches!(it, RuntimeEvent::Refused { .. });
    let back = RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available);
    let (refused, back) =
        (fixture.past_events.iter().position(refused), fixture.past_events.iter().position(|it| *it == back));
    assert!(back.is_some() && back < refused, "{:?}", fixture.past_events);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_container_is_made_without_a_start_permit() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 1;;
            run) echo run >> calls;;
            events) exec sleep 600;;
            inspect) echo \"Error: No such container: $7\" >&2; exit 1;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    fixture.gate_closed.store(true, Ordering::Relaxed);
    let wanted = || ContainerSpec { pull_policy: PullPolicy::Missing, ..spec(&["true"]) };
    let [allowed, stopped] = [1, 2].map(|job| fixture.start(job, wanted()));
    for token in [allowed, stopped] {
        fixture.event(|it| (*it == RuntimeEvent::Prepared(token)).then_some(())).await;
    }
    fixture.ask_to_stop(stopped, Duration::from_secs(1));
    let outcome = fixture.outcome(stopped).await;
    assert!(
        matches!(outcome, Outcome::Ended(Exit::NotStarted { fault: StartFailure::Stopped, .. }, _)),
        "{outcome:?}"
    );
    assert!(!dir.path().join("calls").exists(), "nobody has allowed it");

    fixture.docker().run(allowed);
    fixture.outcome(allowed).await;
    assert!(dir.path().join("calls").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_too_long_command_line_is_the_definitions_fault_and_docker_stays_available() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(config(recorder(dir.path())));
    let (too_long, long) = ("x".repeat(140_000), "x".repeat(120_000));
    for launch in [
        launch(1, spec(&["echo", &too_long])),
        // No machine takes more than 6 MiB of arguments.
        launch(2, spec(&[&["echo"][..], &[long.as_str(); 60]].concat())),
        Launch { name: "a\0b".into(), ..launch(3, spec(&["true"])) },
    ] {
        let token = launch.token;
        fixture.docker().start(launch);
        let outcome = fixture.outcome(token).await;
        let Outcome::Ended(Exit::NotStarted { fault: StartFailure::Definition, message, .. }, _) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert!(message.contains("command line"), "{message}");
    }
    let away = |it: &RuntimeEvent| matches!(it, RuntimeEvent::Availability(_, it) if !it.is_available());
    assert!(!fixture.past_events.iter().any(away), "{:?}", fixture.past_events);
    assert!(!dir.path().join("calls").exists());
    // Other attempts still run.
    fixture.run(4, spec(&["true"])).await;
    assert!(dir.path().join("calls").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_started_by_a_dead_cli_does_not_count_as_unstarted() {
    let dir = tempfile::tempdir().expect("a directory");
    // The CLI dies before the engine has started the container; the start shows when the container is to be removed.
    let script = format!(
        r#"cd {0}
        case $1 in
            image) exit 0;;
            run) kill -9 $$;;
            events) exec sleep 600;;
            version) echo 1;;
            inspect)
                shift 6
                [ -e started ] && exec cat $1
                exec sed -e s/exited/created/ -e s/2026/0001/g $1;;
            rm)
                [ "$2" = -f ] && exec rm -f $5
                touch started
                echo "Error response from daemon: You cannot remove a running container" >&2
                exit 1;;
        esac"#,
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    fixture.start(1, spec(&["true"]));
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_with_an_incomplete_answer_is_repeated() {
    let dir = tempfile::tempdir().expect("a directory");
    // The program is killed before it has said anything, as on a machine without memory.
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 0;;
            run) exit 0;;
            events) exec sleep 600;;
            version) echo 1;;
            inspect) [ -e asked ] || {{ touch asked; kill -9 $$; }}; exec cat $7;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    fixture.start(1, spec(&["true"]));
    let outcome = fixture.outcome(token).await;
    assert!(dir.path().join("asked").exists());
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_noticed_although_the_list_was_empty_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 0;;
            version) echo 1;;
            ps) echo 'Error response from daemon: layer does not exist' >&2; exit 1;;
            run) echo run >> calls; while [ ! -e go ]; do sleep 0.05; done;;
            inspect) exec cat $7;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    let shown = dir.path().join(fixture.name(token));
    let ended = std::fs::read_to_string(&shown).expect("it is shown");
    std::fs::write(&shown, ended.replace("exited", "running")).expect("written");
    fixture.start(1, spec(&["true"]));
    fixture.until("it is run", || dir.path().join("calls").exists()).await;

    let survey = fixture.restart().await;
    assert!(matches!(survey.restored.as_slice(), [Restored { found: Found::Unknown, .. }]), "{survey:?}");

    fixture.started(token).await;
    std::fs::write(&shown, ended).expect("written");
    std::fs::write(dir.path().join("go"), "").expect("written");
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_gpus_is_given_back_if_the_engine_does_not_tell_whether_it_has_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "case $1 in
            version) echo 1;;
            image) exit 0;;
            info) echo 'Error response from daemon: busy' >&2; exit 1;;
            run) touch {}/ran;;
            events) exec sleep 600;;
            inspect) echo \"Error: No such container: $7\" >&2; exit 1;;
        esac",
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let mut wanted = spec(&["true"]);
    wanted.resources.gpus = 1;
    wanted.environment.push(("LONGSHORE_GPUS".into(), "0".into()));
    let outcome = fixture.run(1, wanted).await;
    let Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("GPUs"), "{why}");
    assert!(!dir.path().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_directory_of_the_worker_is_never_mounted() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "case $1 in version) echo 1;; events) exec sleep 600;; esac";
    let allow = Allow { mounts: vec!["/".into()], ..Allow::default() };
    let settings = Config { allow, sees_engine_disks: true, ..config(stand_in(dir.path(), script)) };
    let mut fixture = DockerFixture::without_image(settings);
    let state = fixture.state.path().canonicalize().expect("it is there");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&state, &link).expect("a link");
    for (job, source) in [(1, state.clone()), (2, state.join("attempts")), (3, link)] {
        let volume =
            Volume { source: source.to_str().expect("text").into(), target: "/data".into(), read_only: true };
        let outcome = fixture.run(job, ContainerSpec { volumes: vec![volume], ..spec(&["true"]) }).await;
        let Outcome::Refused(ReleaseCause::Policy, why) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("files of other jobs"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_place_of_the_engines_socket_is_never_mounted() {
    let dir = tempfile::tempdir().expect("a directory");
    let allowed = dir.path().canonicalize().expect("there").join("allowed");
    std::fs::create_dir_all(allowed.join("run")).expect("a directory");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(allowed.join("run"), &link).expect("a link");
    // The engine is away, so its socket does not exist; its directory is known by a link.
    let allow = Allow {
        mounts: vec![allowed.clone()],
        engine_sockets: vec![link.join("docker.sock")],
        ..Allow::default()
    };
    let script = "case $1 in version) echo 1;; events) exec sleep 600;; esac";
    let settings = Config { allow, sees_engine_disks: true, ..config(stand_in(dir.path(), script)) };
    let mut fixture = DockerFixture::without_image(settings);
    for (job, source) in [(1, allowed.clone()), (2, allowed.join("run"))] {
        let volume =
            Volume { source: source.to_str().expect("text").into(), target: "/data".into(), read_only: true };
        let outcome = fixture.run(job, ContainerSpec { volumes: vec![volume], ..spec(&["true"]) }).await;
        let Outcome::Refused(ReleaseCause::Policy, why) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("would give the socket of a container engine away"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_whose_name_is_taken_for_a_while_tries_again_without_a_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    // An earlier request still holds the name for the first two tries; no container can be seen yet.
    let script = format!(
        "cd {}
        case $1 in
            image) exit 0;;
            version) echo 28.2.2;;
            run) echo run >> runs
                [ $(wc -l < runs) -ge 3 ] && {{ echo mine; mv shown $(ls hidden) && exit 0; }}
                echo 'docker: Error response from daemon: Conflict. The container name \"/x\" is already in use by container \"y\".' >&2
                exit 125;;
            inspect) shift 6; cat $1 2>/dev/null || {{ echo \"Error: No such container: $1\" >&2; exit 1; }};;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture =
        DockerFixture::without_image(Config { program: stand_in(dir.path(), &script), ..Config::default() });
    let token = show_ended(&fixture, dir.path(), 1, 1, 0);
    let name = fixture.name(token);
    std::fs::rename(dir.path().join(&name), dir.path().join("shown")).expect("hidden");
    std::fs::create_dir(dir.path().join("hidden")).expect("a directory");
    std::fs::write(dir.path().join("hidden").join(&name), "").expect("its name");
    fixture.start(1, spec(&["true"]));
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
    let (stdout, stderr, _) = fixture.output(token).await;
    assert_eq!(
        (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)),
        ("mine\n".into(), "".into())
    );
}
