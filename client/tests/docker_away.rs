//! The docker runtime where the program or the engine is missing, hangs, or lies: scripted stand-ins, no engine needed.

mod support;

use std::time::Duration;

use longshore_client::attempt_dir::Ledger;
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::{Found, Runtime};
use protocol::container::PullPolicy;
use protocol::order::StopCause;
use protocol::report::{Availability, Phase, ReleaseCause};
use protocol::{ContainerSpec, RuntimeKind};
use support::{Desk, Outcome, launch, spec, stand_in};
use worker::input::{Exit, Fault, RuntimeEvent};
use worker::step::StopStep;

fn config(program: impl Into<std::path::PathBuf>) -> Config {
    Config { program: program.into(), ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_gives_the_attempt_back_and_is_said_once() {
    let mut desk = Desk::without_image(config("/nonexistent/docker"));
    let outcome = desk.run(1, spec(&["true"])).await;
    let Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("/nonexistent/docker"), "{why}");
    desk.run(2, spec(&["true"])).await;
    let told = desk.seen.iter().filter(|it| matches!(it, RuntimeEvent::Availability(..))).count();
    assert_eq!(told, 1);
    let survey = desk.docker().survey().await;
    assert!(!survey.availability.is_available());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_comes_back_is_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "[ -e {0}/up ] && {{ echo 1; [ \"$1\" = events ] && exec sleep 600; exit 0; }}; echo 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit 1",
        dir.path().display()
    );
    let mut desk = Desk::without_image(config(stand_in(dir.path(), &script)));
    let outcome = desk.run(1, spec(&["true"])).await;
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::RuntimeUnavailable, _)), "{outcome:?}");
    std::fs::write(dir.path().join("up"), "").expect("written");
    let back = RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available);
    desk.event(|it| (*it == back).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hangs_is_given_up_in_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut desk = Desk::without_image(config(stand_in(dir.path(), "exec sleep 600")));
    let outcome =
        tokio::time::timeout(Duration::from_secs(40), desk.run(1, spec(&["true"]))).await.expect("in time");
    let Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("no answer"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_handed_over_again_waits_for_the_removal_of_what_was_left_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "case $1 in
            rm) echo rm >> {0}/calls; sleep 0.3; echo removed >> {0}/calls;;
            run) echo run >> {0}/calls;;
            events) exec sleep 600;;
            inspect) echo 'Error: No such container: x' >&2; exit 1;;
        esac",
        dir.path().display()
    );
    let mut desk = Desk::without_image(config(stand_in(dir.path(), &script)));
    let left = launch(1, spec(&["true"]));
    Ledger::open(desk.state.path()).expect("a ledger").create(&left).expect("a directory");
    let survey = desk.docker().survey().await;
    assert_eq!(survey.restored[0].found, Found::Unstarted);

    desk.docker().forget(left.token);
    desk.docker().start(left.clone());
    desk.outcome(left.token).await;

    let calls = std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    assert_eq!(calls, "rm\nremoved\nrun\n");
    assert!(desk.dir(left.token).join("exit").exists(), "its end is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_pull_that_fails_shares_its_failure() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 1;;
            pull) echo pull >> calls; while [ ! -e go ]; do sleep 0.05; done; echo 'received unexpected HTTP status: 500' >&2; exit 1;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let retries = Config { pull_retries: vec![Duration::from_millis(10)], ..Config::default() };
    let mut desk = Desk::without_image(Config { program: stand_in(dir.path(), &script), ..retries });
    let wanted = || ContainerSpec { pull_policy: PullPolicy::Missing, ..spec(&["true"]) };
    let tokens = [1, 2, 3].map(|job| desk.start(job, wanted()));
    for token in tokens {
        let pulling = RuntimeEvent::Progressed(token, Phase::Pulling { percent: None });
        desk.event(|it| (*it == pulling).then_some(())).await;
    }
    std::fs::write(dir.path().join("go"), "").expect("written");
    for token in tokens {
        let outcome = desk.outcome(token).await;
        let Outcome::Ended(Exit::NotStarted { fault: Fault::Pull, message, .. }, _) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(message.contains("500"), "{message}");
    }
    let calls = std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    assert_eq!(calls.lines().count(), 2, "one pull and its one retry");
    // Whoever comes later tries anew.
    desk.run(4, wanted()).await;
    let calls = std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    assert_eq!(calls.lines().count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_hangs_is_asked_for_one_removal_at_a_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let calls = dir.path().join("calls");
    let script = format!("[ $1 = image ] && exit 0; echo $1 >> {}; exec sleep 600", calls.display());
    let mut desk = Desk::without_image(config(stand_in(dir.path(), &script)));
    let token = desk.start(1, spec(&["true"]));
    let called = |what: &str| {
        let calls = std::fs::read_to_string(&calls).unwrap_or_default();
        calls.lines().filter(|it| *it == what).count()
    };
    desk.until("it is run", || called("run") == 1).await;
    for _ in 0..5 {
        desk.docker().stop(token, StopCause::Timeout, StopStep::Remove);
    }
    desk.event(|it| matches!(it, RuntimeEvent::Availability(_, Availability::Unavailable(_))).then_some(()))
        .await;
    assert_eq!(called("rm"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_that_nobody_saw_are_asked_for_together() {
    let dir = tempfile::tempdir().expect("a directory");
    // Each container is shown only when all of them have been asked for.
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
    let desk = Desk::without_image(config(stand_in(dir.path(), &script)));
    for job in [1, 2, 3] {
        let token = launch(job, spec(&[])).token;
        let name = desk.name(token);
        let container = serde_json::json!({
            "Id": "abc", "Name": format!("/{name}"), "Created": "2026-01-01T00:00:00Z", "Image": "app",
            "Labels": {
                "longshore.cluster": desk.membership.cluster.to_string(), "longshore.worker": "1",
                "longshore.job": token.job.to_string(), "longshore.fence": token.fence.to_string(),
                "longshore.nonce": token.nonce.to_string(),
            },
            "State": {
                "Status": "exited", "ExitCode": 0, "StartedAt": "2026-01-01T00:00:00Z", "FinishedAt": "2026-01-01T00:00:01Z",
            },
        });
        std::fs::write(dir.path().join(name), format!("{container}\n")).expect("written");
    }
    let survey = desk.docker().survey().await;
    assert_eq!(survey.restored.len(), 3, "{survey:?}");
    for restored in &survey.restored {
        assert!(
            matches!(restored.found, Found::Ended { exit: Exit::Ran { code: 0, .. }, .. }),
            "{restored:?}"
        );
    }
}
