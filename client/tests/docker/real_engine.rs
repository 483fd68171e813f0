//! The docker runtime against a real engine.

use std::time::Duration;

use longshore_client::runtime::Runtime;
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::policy::Allow;
use protocol::ContainerSpec;
use protocol::container::{Resources, Volume};
use protocol::order::StopCause;
use protocol::report::{OutputLengths, ReleaseCause};
use worker::input::{Exit, RuntimeEvent, StartFailure};
use worker::step::StopStep;

use crate::support::{DockerFixture, IMAGE, Outcome, docker, launch, shell, spec};

fn code(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Ended(Exit::Ran { code, .. }, _) => *code,
        other => panic!("it did not run: {other:?}"),
    }
}

fn not_started(outcome: &Outcome) -> (StartFailure, String) {
    match outcome {
        Outcome::Ended(Exit::NotStarted { fault, message, .. }, _) => (*fault, message.clone()),
        other => panic!("it started: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_exit_code_of_a_program_is_its_own() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    for (job, wanted) in [0, 1, 3, 125, 126, 127, 255].into_iter().enumerate() {
        let outcome = fixture.run(job as u64, shell(&format!("exit {wanted}"))).await;
        assert_eq!(code(&outcome), wanted);
    }
    let order = fixture.past_events.iter().filter(|it| !matches!(it, RuntimeEvent::Availability(..)));
    let kinds: Vec<_> = order
        .map(|it| match it {
            RuntimeEvent::Progressed(..) => 'p',
            RuntimeEvent::Started { .. } => 's',
            RuntimeEvent::Ended { .. } => 'e',
            _ => '?',
        })
        .collect();
    assert_eq!(String::from_iter(kinds), "pse".repeat(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_has_the_right_fault() {
    let allow = Allow { networks: vec!["nosuchnetwork".into()], ..Allow::default() };
    let Some(mut fixture) = DockerFixture::with(Config { allow, ..Config::default() }) else { return };
    let bare = |command: &str| ContainerSpec { init: false, ..spec(&[command]) };
    let cases = [
        (bare("nosuchcommand"), StartFailure::Definition, "not found"),
        (bare("/etc"), StartFailure::Definition, "permission denied"),
        (
            ContainerSpec { user: Some("nobody2".into()), ..spec(&["true"]) },
            StartFailure::Definition,
            "nobody2",
        ),
        (
            ContainerSpec { network: Some("nosuchnetwork".into()), ..spec(&["true"]) },
            StartFailure::Host,
            "nosuchnetwork",
        ),
        (
            ContainerSpec {
                resources: Resources { memory_bytes: Some(1 << 20), ..Resources::default() },
                ..spec(&["true"])
            },
            StartFailure::Definition,
            "memory",
        ),
        (
            ContainerSpec { environment: vec![("A B".into(), "1".into())], ..spec(&["true"]) },
            StartFailure::Definition,
            "A B",
        ),
        (
            ContainerSpec { stop_signal: Some("NOSUCH".into()), ..spec(&["true"]) },
            StartFailure::Definition,
            "NOSUCH",
        ),
        (
            ContainerSpec { tmpfs: vec!["relative".into()], ..spec(&["true"]) },
            StartFailure::Definition,
            "relative",
        ),
        (
            ContainerSpec { cap_drop: vec!["NOSUCH".into()], ..spec(&["true"]) },
            StartFailure::Definition,
            "unknown capability",
        ),
    ];
    for (job, (spec, fault, text)) in cases.into_iter().enumerate() {
        let outcome = fixture.run(job as u64, spec).await;
        let (whose, message) = not_started(&outcome);
        assert_eq!(whose, fault, "{message}");
        assert!(message.contains(text), "{message}");
        assert!(matches!(outcome, Outcome::Ended(_, OutputLengths { stdout: 0, stderr: 0 })), "{outcome:?}");
    }
    assert!(!fixture.past_events.iter().any(|it| matches!(it, RuntimeEvent::Started { .. })));
    // The init starts, so the engine believes that the container ran.
    for (job, command, code) in [(11, "nosuchcommand", 127), (12, "/etc", 126)] {
        let outcome = fixture.run(job, spec(&[command])).await;
        assert_eq!(not_started(&outcome).0, StartFailure::Definition);
        assert!(
            matches!(outcome, Outcome::Ended(Exit::NotStarted { code: Some(actual), .. }, _) if actual == code)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_above_its_memory_limit_is_oom_killed() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let memory = Resources { memory_bytes: Some(32 << 20), ..Resources::default() };
    let outcome = fixture.run(1, ContainerSpec { resources: memory, ..shell("tail /dev/zero") }).await;
    // The engine's flag, its event or the counter of the control group says it.
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 137, oom: true, .. }, _)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_megabytes_of_binary_on_both_streams_arrive_exactly() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    // The numbers and names between the blocks make each part of each stream different.
    let block: Vec<u8> = (0..16_384).map(|_| rand::random()).collect();
    let escaped: String = block.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let script = "printf \"$0\" > /tmp/block
        for i in $(seq 320); do
            printf \"$i out\"; cat /tmp/block
            { printf \"$i err\"; cat /tmp/block; } >&2
        done";
    let expected = |stream: &str| -> Vec<u8> {
        (1..=320).flat_map(|i| [format!("{i} {stream}").as_bytes(), &block].concat()).collect()
    };
    let token = fixture.start(1, spec(&["sh", "-c", script, &escaped]));
    let (stdout, stderr, replayed) = fixture.output(token).await;
    // Not `assert_eq!`, which would print megabytes.
    assert!(stdout == expected("out") && stderr == expected("err") && !replayed);
    assert_eq!(code(&fixture.outcome(token).await), 0);
    fixture.docker().forget(token);
    fixture.until("everything is removed", || !fixture.dir(token).exists()).await;
    assert!(!fixture.exists(token));
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_arguments_and_names_arrive_as_they_were_written() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let spec = ContainerSpec {
        environment: vec![
            ("A".into(), " a=b ü \"' ".into()),
            ("DOCKER_HOST".into(), "tcp://nowhere".into()),
            ("PATH".into(), "/bin".into()),
        ],
        ..spec(&[
            "sh",
            "-c",
            "printf '%s|' \"$@\" \"$A\" \"$DOCKER_HOST\" $LONGSHORE_JOB $LONGSHORE_ATTEMPT",
            "sh",
            "--privileged",
            "a  b",
            "",
        ])
    };
    let token = fixture.start(7, spec);
    let (stdout, ..) = fixture.output(token).await;
    assert_eq!(String::from_utf8_lossy(&stdout), "--privileged|a  b|| a=b ü \"' |tcp://nowhere|7|7|");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_at_any_step_of_the_start_leaves_no_container_running() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    for looks in 0..15 {
        let token = fixture.start(looks, shell("sleep 600"));
        // A look takes the engine's time for one answer, so each cancel meets another step of the start, on a machine of any speed.
        for _ in 0..looks {
            fixture.exists(token);
        }
        fixture.ask_to_stop(token, Duration::from_secs(5));
        match fixture.outcome(token).await {
            Outcome::Ended(
                Exit::Ran { code: 143 | 137, .. } | Exit::NotStarted { fault: StartFailure::Stopped, .. },
                _,
            ) => {}
            other => panic!("{other:?}"),
        }
        let state =
            docker(["inspect", "--type", "container", "-f", "{{.State.Status}}", "--", &fixture.name(token)]);
        assert!(!String::from_utf8_lossy(&state.stdout).contains("running"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_sigterm_is_killed_or_removed() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let deaf = || ContainerSpec { init: false, ..shell("trap '' TERM; while true; do sleep 1; done") };
    let token = fixture.start(1, deaf());
    fixture.started(token).await;
    fixture.ask_to_stop(token, Duration::from_secs(1));
    assert_eq!(code(&fixture.outcome(token).await), 137);

    let token = fixture.start(2, deaf());
    fixture.started(token).await;
    fixture.ask_to_stop(token, Duration::from_secs(600));
    fixture.docker().stop(token, StopCause::Timeout, StopStep::Remove, longshore_client::clock::now());
    let outcome = fixture.outcome(token).await;
    assert!(
        matches!(outcome, Outcome::Ended(Exit::Vanished | Exit::Ran { code: 137, .. }, _)),
        "{outcome:?}"
    );
    fixture.until("it is gone", || !fixture.exists(token)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_worker_loses_neither_outcome_nor_output() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let running = fixture
        .start(1, shell("echo before; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo after; exit 4"));
    let quick = fixture.start(2, shell("echo quick; exit 5"));
    fixture.started(running).await;
    // The test does not wait for its end, which may come while no worker runs.
    fixture.started(quick).await;
    let survey = fixture.restart().await;
    assert!(survey.availability.is_available() && survey.foreign.is_empty());
    assert_eq!(survey.restored.len(), 2);
    for restored in &survey.restored {
        if restored.launch.token == running {
            assert!(matches!(restored.found, worker::input::Found::Running { .. }), "{restored:?}");
        }
    }
    assert!(docker(["exec", &fixture.name(running), "touch", "/tmp/go"]).status.success());
    assert_eq!(code(&fixture.outcome(running).await), 4);
    let (stdout, _, replayed) = fixture.output(running).await;
    assert_eq!((String::from_utf8_lossy(&stdout).as_ref(), replayed), ("before\nafter\n", false));
    let known = survey.restored.iter().find(|it| it.launch.token == quick).expect("it is known");
    let outcome = match &known.found {
        worker::input::Found::Ended { exit, output, .. } => Outcome::Ended(exit.clone(), *output),
        _ => {
            let reported = fixture.past_events.iter().find_map(|it| match it {
                RuntimeEvent::Ended { token, exit, output, .. } if *token == quick => {
                    Some(Outcome::Ended(exit.clone(), *output))
                }
                _ => None,
            });
            match reported {
                Some(outcome) => outcome,
                None => fixture.outcome(quick).await,
            }
        }
    };
    assert_eq!(code(&outcome), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unobserved_end_is_read_from_the_engine() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let token = fixture.start(1, shell("echo gone; exit 9"));
    fixture.started(token).await;
    fixture.docker = None;
    let name = fixture.name(token);
    fixture
        .until("it has ended", || {
            let state = docker(["inspect", "--type", "container", "-f", "{{.State.Status}}", "--", &name]);
            state.stdout.starts_with(b"exited")
        })
        .await;
    let survey = fixture.restart().await;
    let worker::input::Found::Ended { exit, output, .. } = &survey.restored[0].found else {
        panic!("{survey:?}")
    };
    assert!(matches!(exit, Exit::Ran { code: 9, .. }), "{exit:?}");
    assert_eq!(*output, OutputLengths { stdout: 5, stderr: 0 });
    assert_eq!(fixture.output(token).await.0, b"gone\n");
    // And again, now from the directory alone.
    docker(["rm", "-f", &name]);
    let survey = fixture.restart().await;
    assert!(
        matches!(
            &survey.restored[0].found,
            worker::input::Found::Ended { exit: Exit::Ran { code: 9, .. }, .. }
        ),
        "{survey:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_container_whose_cli_was_killed_is_read_again() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let token = fixture.start(1, shell("for i in $(seq 200); do echo line $i; done; while [ ! -e /tmp/go ]; do sleep 0.05; done; for i in $(seq 200); do echo late $i; done; echo err >&2"));
    fixture.started(token).await;
    let watcher: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture.dir(token).join("watcher")).expect("kept"))
            .expect("json");
    let pid = watcher["pid"].as_u64().expect("a pid").to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill").success());
    assert!(docker(["exec", &fixture.name(token), "touch", "/tmp/go"]).status.success());
    assert_eq!(code(&fixture.outcome(token).await), 0);
    let (stdout, stderr, replayed) = fixture.output(token).await;
    let expected: String = (1..=200)
        .map(|it| format!("line {it}\n"))
        .chain((1..=200).map(|it| format!("late {it}\n")))
        .collect();
    assert_eq!(String::from_utf8_lossy(&stdout), expected);
    assert_eq!(stderr, b"err\n");
    assert!(replayed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_directory_is_adopted_by_its_labels() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let token = fixture.start(1, shell("echo found; while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 6"));
    fixture.started(token).await;
    fixture.docker = None;
    std::fs::remove_dir_all(fixture.dir(token)).expect("lost");
    let survey = fixture.restart().await;
    assert!(matches!(survey.restored[0].found, worker::input::Found::Running { .. }), "{survey:?}");
    assert_eq!(survey.restored[0].launch.token, token);
    assert!(docker(["exec", &fixture.name(token), "touch", "/tmp/go"]).status.success());
    assert_eq!(code(&fixture.outcome(token).await), 6);
    assert_eq!(fixture.output(token).await.0, b"found\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_our_name_is_adopted_only_for_the_same_attempt() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let name = |job| fixture.name(launch(job, spec(&[])).token);
    let (other, leftover) = (name(1), name(2));
    assert!(docker(["run", "-d", "--name", &other, IMAGE, "sleep", "600"]).status.success());
    let nonce = format!("longshore.nonce={}", launch(2, spec(&[])).token.nonce);
    let cluster = format!("longshore.cluster={}", fixture.membership.cluster);
    let labels = [nonce.as_str(), &cluster, "longshore.worker=1", "longshore.job=2", "longshore.fence=2"];
    let labels = labels.into_iter().flat_map(|label| ["--label", label]);
    let args = ["create", "--name", &leftover].into_iter().chain(labels).chain([IMAGE, "true"]);
    let made = std::process::Command::new("docker").args(args).output().expect("the docker program");
    assert!(made.status.success());

    let outcome = fixture.run(1, shell("echo never")).await;
    docker(["rm", "-f", &other]);
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::RuntimeUnavailable, _)), "{outcome:?}");
    // The container is this attempt's and was never started: it is removed and made again.
    assert_eq!(code(&fixture.run(2, shell("exit 8")).await), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_refused_by_policy_are_released() {
    let Some(mut fixture) = DockerFixture::with(Config {
        allow: Allow { images: vec!["longshore-*".into()], ..Allow::default() },
        ..Config::default()
    }) else {
        return;
    };
    let socket = Volume { source: "/var/run/docker.sock".into(), target: "/s".into(), read_only: true };
    let cases = [
        ContainerSpec { network: Some("host".into()), ..spec(&["true"]) },
        ContainerSpec { cap_add: vec!["SYS_ADMIN".into()], ..spec(&["true"]) },
        ContainerSpec { volumes: vec![socket], ..spec(&["true"]) },
        ContainerSpec { image: "busybox".into(), ..spec(&["true"]) },
        ContainerSpec {
            resources: Resources { cpus_milli: Some(4_000_000), ..Resources::default() },
            ..spec(&["true"])
        },
    ];
    for (job, spec) in cases.into_iter().enumerate() {
        let outcome = fixture.run(job as u64, spec).await;
        assert!(matches!(outcome, Outcome::Refused(ReleaseCause::Policy, _)), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_mount_is_seen_and_a_missing_one_is_not_made() {
    let there = tempfile::tempdir().expect("a directory");
    std::fs::write(there.path().join("file"), "content").expect("written");
    let allow = Allow { mounts: vec![there.path().into()], mounts_below: true, ..Allow::default() };
    let Some(mut fixture) = DockerFixture::with(Config { allow, ..Config::default() }) else { return };
    let mount = |source: &std::path::Path| {
        let source = source.to_str().expect("text").to_owned();
        ContainerSpec {
            volumes: vec![Volume { source, target: "/there".into(), read_only: true }],
            ..shell("cat /there/file && ! touch /there/x 2>/dev/null")
        }
    };
    let token = fixture.start(1, mount(there.path()));
    assert_eq!(code(&fixture.outcome(token).await), 0);
    assert_eq!(fixture.output(token).await.0, b"content");
    let missing = there.path().join("missing");
    assert_eq!(not_started(&fixture.run(2, mount(&missing)).await).0, StartFailure::Host);
    assert!(!missing.exists());
}
