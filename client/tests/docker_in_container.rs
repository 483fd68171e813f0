//! A worker in a container: its engine sees other file systems, but has itself mounted the worker's state directory.

mod support;

use longshore_client::runtime::docker::Config;
use protocol::ContainerSpec;
use protocol::report::ReleaseCause;
use support::{Desk, Outcome, docker, shell};
use worker::input::{Exit, ResultFile};

fn config() -> Config {
    Config { sees_engine_disks: false, own_container: None, ..Config::default() }
}

fn with_input() -> ContainerSpec {
    ContainerSpec {
        input: Some(r#"{"pages":2}"#.into()),
        ..shell("cat $LONGSHORE_INPUT > $LONGSHORE_RESULT")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_has_mounted_the_state_directory_gives_jobs_their_input() {
    let Some(mut desk) = Desk::with(config()) else { return };
    let outcome = desk.run(1, with_input()).await;
    let Outcome::Refused(ReleaseCause::Policy, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("does not see its state directory"), "{why}");

    // This container stands for the one of the worker.
    let state = desk.state.path().display().to_string();
    let made = docker(["create", "--volume", &format!("{state}:{state}"), support::IMAGE, "true"]);
    let own = String::from_utf8(made.stdout).expect("an id").trim().to_owned();
    let mut desk = Desk::at(
        Config { own_container: Some(own.clone()), ..config() },
        desk.state.clone(),
        desk.membership,
    );
    let outcome = desk.run(2, with_input()).await;
    docker(["rm", &own]);
    let Outcome::Ended(Exit::Ran { code: 0, result, .. }, _) = outcome else { panic!("{outcome:?}") };
    assert_eq!(result, ResultFile::Json(r#"{"pages":2}"#.into()));
}
