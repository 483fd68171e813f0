//! Containers that are removed by another program, on a real engine.

use worker::input::{Exit, Found};

use crate::support::{DockerFixture, Outcome, docker, shell, spec};

/// The exit is unknown; the output is complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_removed_by_another_program_has_vanished() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let token = fixture.start(1, shell("echo begun; sleep 600"));
    fixture.started(token).await;
    let name = fixture.name(token);
    fixture.until("it has written", || docker(["logs", "--", &name]).stdout == b"begun\n").await;
    assert!(docker(["rm", "-f", "--", &name]).status.success());
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Vanished, _)), "{outcome:?}");
    assert_eq!(fixture.output(token).await.0, b"begun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_removed_while_its_worker_is_down_has_vanished() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let token = fixture.start(1, spec(&["sleep", "600"]));
    fixture.started(token).await;
    fixture.docker = None;
    assert!(docker(["rm", "-f", "--", &fixture.name(token)]).status.success());
    let survey = fixture.restart().await;
    let found = &survey.restored[0].found;
    let is_vanished = matches!(found, Found::Ended { exit: Exit::Vanished, .. });
    assert!(is_vanished, "{found:?}");
}
