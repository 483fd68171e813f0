//! A `docker run` that hangs beside an engine that answers: before it has made its container, or before it has started it. A scripted
//! stand-in, no engine needed.

use std::path::Path;
use std::time::Duration;

use longshore_client::runtime::docker::Config;
use protocol::Token;
use protocol::report::ReleaseCause;
use worker::input::{Exit, RuntimeEvent, StartFailure};

use crate::support::{DockerFixture, Outcome, show_ended, spec, stand_in};

/// An engine that answers, and a `docker run` that never ends. `cli` holds its process id. The file `refuse` makes the engine refuse
/// removals, and `removals` has those that it was asked for. `events` is its memory, and `asked` has a line for each answer about a container.
fn hanging_run(dir: &Path) -> Config {
    let script = format!(
        "cd {0}
        case $1 in
            version) echo 1;;
            image) exit 0;;
            run) echo $$ > cli; exec sleep 600;;
            events) case \"$*\" in *event=start*) exec sleep 600;; *) cat events;; esac;;
            rm) echo \"$*\" >> removals; [ -e refuse ] && {{ echo busy >&2; exit 1; }}; rm -f longshore-*; echo $4;;
            inspect) echo >> asked; shift 6; [ -e $1 ] && exec cat $1; echo \"Error: No such container: $1\" >&2; exit 1;;
        esac",
        dir.display()
    );
    Config { create_timeout: Duration::from_millis(1), program: stand_in(dir, &script), ..Config::default() }
}

fn cli_runs(dir: &Path) -> bool {
    let pid = std::fs::read_to_string(dir.join("cli")).unwrap_or_default();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    state.contains("(sleep) S")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_docker_run_that_hangs_beside_an_engine_that_answers_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(hanging_run(dir.path()));
    let token = fixture.start(1, spec(&["true"]));
    fixture.until("the CLI runs", || cli_runs(dir.path())).await;
    let outcome = fixture.outcome(token).await;
    let Outcome::Ended(Exit::NotStarted { fault: StartFailure::Host, message, .. }, _) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(message.starts_with("docker run hung: it made no container"), "{message}");
    fixture.until("the CLI is killed", || !cli_runs(dir.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_docker_run_that_hangs_is_killed_by_the_next_process_of_the_worker() {
    let dir = tempfile::tempdir().expect("a directory");
    let slow = Config { create_timeout: Duration::from_secs(3_600), ..hanging_run(dir.path()) };
    let mut fixture = DockerFixture::without_image(slow);
    let token = fixture.start(1, spec(&["true"]));
    fixture.until("the CLI runs", || cli_runs(dir.path())).await;
    fixture.until("it is recorded", || fixture.dir(token).join("watcher").exists()).await;
    fixture.config.create_timeout = Duration::from_millis(1);
    fixture.restart().await;
    // It may have run and have been removed before the worker looked.
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Vanished, _)), "{outcome:?}");
    fixture.until("the CLI is killed", || !cli_runs(dir.path())).await;
}

/// Shows the container of the first job as made and not started.
fn show_created(fixture: &DockerFixture, dir: &Path) -> Token {
    let token = show_ended(fixture, dir, 1, 1, 0);
    let shown = dir.join(fixture.name(token));
    let ended = std::fs::read_to_string(&shown).expect("it is shown");
    let created = ended.replace("exited", "created").replace("\"StartedAt\":\"2026", "\"StartedAt\":\"0001");
    std::fs::write(shown, created).expect("written");
    std::fs::write(dir.join("events"), "create abc\n").expect("written");
    token
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

fn assert_hung_before_its_start(outcome: &Outcome) {
    let Outcome::Ended(Exit::NotStarted { fault: StartFailure::Host, message, .. }, _) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(message.starts_with("docker run hung: it did not start its container"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_docker_run_that_hangs_before_the_start_ends_once_its_container_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config { start_timeout: Duration::from_millis(1), ..hanging_run(dir.path()) };
    let mut fixture = DockerFixture::without_image(config);
    let token = show_created(&fixture, dir.path());
    let refuse = dir.path().join("refuse");
    std::fs::write(&refuse, "").expect("written");
    fixture.start(1, spec(&["true"]));
    fixture.until("the CLI runs", || cli_runs(dir.path())).await;
    fixture.until("the CLI is killed", || !cli_runs(dir.path())).await;

    // While the container may still be started, the attempt goes on.
    let removals = dir.path().join("removals");
    fixture.until("the removal is repeated", || lines(&removals) >= 2).await;
    let is_end = |it: &RuntimeEvent| matches!(it, RuntimeEvent::Refused { .. } | RuntimeEvent::Ended { .. });
    while let Ok(event) = fixture.events.try_recv() {
        assert!(!is_end(&event), "{event:?}");
    }
    std::fs::remove_file(refuse).expect("it is there");
    assert_hung_before_its_start(&fixture.outcome(token).await);
    let removals = std::fs::read_to_string(removals).expect("written");
    assert!(removals.lines().all(|it| it == "rm -v -- abc"), "by its id, and not by force: {removals}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_before_the_start_is_no_death_of_an_engine_that_has_seen_many_other_events() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config { start_timeout: Duration::from_millis(1), ..hanging_run(dir.path()) };
    let mut fixture = DockerFixture::without_image(config);
    let token = show_created(&fixture, dir.path());
    std::fs::write(dir.path().join("events"), "die other\n".repeat(256)).expect("written");
    fixture.start(1, spec(&["true"]));
    assert_hung_before_its_start(&fixture.outcome(token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_may_take_longer_than_the_making_of_a_container() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config { start_timeout: Duration::from_secs(3_600), ..hanging_run(dir.path()) };
    let mut fixture = DockerFixture::without_image(config);
    let token = show_created(&fixture, dir.path());
    fixture.start(1, spec(&["true"]));
    fixture.until("it was looked at", || lines(&dir.path().join("asked")) >= 3).await;
    assert!(cli_runs(dir.path()), "the start is only slow");
    let shown = dir.path().join(fixture.name(token));
    let created = std::fs::read_to_string(&shown).expect("it is shown");
    std::fs::write(&shown, created.replace("created", "running").replace("0001", "2026")).expect("written");
    fixture.started(token).await;
    assert!(cli_runs(dir.path()) && !dir.path().join("removals").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_never_started_is_given_back_by_the_next_process_of_the_worker() {
    let dir = tempfile::tempdir().expect("a directory");
    let slow = Config { start_timeout: Duration::from_secs(3_600), ..hanging_run(dir.path()) };
    let mut fixture = DockerFixture::without_image(slow);
    let token = show_created(&fixture, dir.path());
    fixture.start(1, spec(&["true"]));
    fixture.until("the CLI runs", || cli_runs(dir.path())).await;
    fixture.until("it is recorded", || fixture.dir(token).join("watcher").exists()).await;
    fixture.config.start_timeout = Duration::from_millis(1);
    fixture.restart().await;
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::RuntimeUnavailable, _)), "{outcome:?}");
    fixture.until("the CLI is killed", || !cli_runs(dir.path())).await;
    assert!(!dir.path().join(fixture.name(token)).exists());
}
