//! Containers that are removed by another program, on a real engine.

use worker::input::{Exit, Found};

use crate::support::{Desk, Outcome, docker, shell, spec};

/// The exit is unknown; the output is complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_removed_by_another_program_has_vanished() {
    let Some(mut desk) = Desk::new() else { return };
    let token = desk.start(1, shell("echo begun; sleep 600"));
    desk.started(token).await;
    let name = desk.name(token);
    desk.until("it has written", || docker(["logs", "--", &name]).stdout == b"begun\n").await;
    assert!(docker(["rm", "-f", "--", &name]).status.success());
    let outcome = desk.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Vanished, _)), "{outcome:?}");
    assert_eq!(desk.output(token).await.0, b"begun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_removed_while_its_worker_is_down_has_vanished() {
    let Some(mut desk) = Desk::new() else { return };
    let token = desk.start(1, spec(&["sleep", "600"]));
    desk.started(token).await;
    desk.docker = None;
    assert!(docker(["rm", "-f", "--", &desk.name(token)]).status.success());
    let survey = desk.restart().await;
    let found = &survey.restored[0].found;
    let is_vanished = matches!(found, Found::Ended { exit: Exit::Vanished, .. });
    assert!(is_vanished, "{found:?}");
}
