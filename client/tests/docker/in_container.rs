//! A worker in a container: its engine sees other file systems, but has itself mounted the worker's state directory.

use std::path::Path;

use longshore_client::runtime::docker::{Config, OwnContainer};
use longshore_client::runtime::policy::Allow;
use protocol::ContainerSpec;
use protocol::container::Volume;
use protocol::report::ReleaseCause;
use worker::input::{Exit, ResultFile};

use crate::support::{DockerFixture, Outcome, docker, shell, show_ended, spec, stand_in};

fn config() -> Config {
    let allow = Allow { volumes: vec!["*".into()], ..Allow::default() };
    Config { sees_engine_disks: false, own_container: None, allow, ..Config::default() }
}

fn with_input() -> ContainerSpec {
    ContainerSpec {
        input: Some(r#"{"pages":2}"#.into()),
        ..shell("cat $LONGSHORE_INPUT > $LONGSHORE_RESULT")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_has_mounted_the_state_directory_gives_jobs_their_input() {
    let Some(mut fixture) = DockerFixture::with(config()) else { return };
    let outcome = fixture.run(1, with_input()).await;
    let Outcome::Refused(ReleaseCause::Policy, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("does not see its state directory"), "{why}");

    // The engine sees the state directory at another path than the worker.
    let state = fixture.state.path().canonicalize().expect("it is there");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let source = elsewhere.path().join("source");
    std::os::unix::fs::symlink(&state, &source).expect("a link");
    let volume = format!("longshore-test-{:x}", rand::random::<u64>());
    // This container stands for the one of the worker.
    let own = Container::create(&source, &state, &volume);
    let mount_points =
        vec![(state.clone(), source.clone()), ("/kept".into(), format!("/volumes/{volume}/_data").into())];
    let own_container = Some(OwnContainer { id: own.id.clone(), mount_points });
    let mut fixture =
        DockerFixture::at(Config { own_container, ..config() }, fixture.state.clone(), fixture.membership);
    let outcome = fixture.run(2, with_input()).await;
    let Outcome::Ended(Exit::Ran { code: 0, result, .. }, _) = outcome else { panic!("{outcome:?}") };
    assert_eq!(result, ResultFile::Json(r#"{"pages":2}"#.into()));

    let taken = Volume { source: volume, target: "/x".into(), read_only: true };
    let outcome = fixture.run(3, ContainerSpec { volumes: vec![taken], ..shell("true") }).await;
    let Outcome::Refused(ReleaseCause::Policy, why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("mounted into the container of this worker"), "{why}");
}

/// These tests run beside their engine: on a machine, or in a container that has an engine of its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_beside_the_worker_gives_jobs_their_input_in_a_container_too() {
    let Some(mut fixture) = DockerFixture::with(Config::default()) else { return };
    let outcome = fixture.run(1, with_input()).await;
    let Outcome::Ended(Exit::Ran { code: 0, result, .. }, _) = outcome else { panic!("{outcome:?}") };
    assert_eq!(result, ResultFile::Json(r#"{"pages":2}"#.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_copied_again_until_the_engine_gives_it_or_says_that_there_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let archive = std::process::Command::new("sh")
        .args(["-c", "printf 7 > result.json && tar cf archive result.json && tar tf archive"])
        .current_dir(dir.path())
        .status();
    assert!(archive.expect("a shell").success());
    // The first copy of each attempt fails; the name of its container ends with job and fence.
    let script = format!(
        "cd {0}
        case $1 in
            version) echo 1;;
            image) exit 0;;
            inspect) exec cat $7;;
            events) exec sleep 600;;
            cp) echo \"$2\" >> copies
                [ $(grep -cF \"$2\" copies) = 1 ] && {{ echo 'Error response from daemon: unexpected EOF' >&2; exit 1; }}
                case $2 in
                    *-1-1:*) cat archive;;
                    *-2-2:*) echo 'Error: Could not find the file /longshore/result.json in container x' >&2; exit 1;;
                    *) echo 'Error response from daemon: i/o timeout' >&2; exit 1;;
                esac;;
        esac",
        dir.path().display()
    );
    let mut fixture =
        DockerFixture::without_image(Config { program: stand_in(dir.path(), &script), ..config() });
    let given = ResultFile::Json("7".into());
    let why = "the engine did not copy it: i/o timeout";
    for (job, expected) in [(1, given), (2, ResultFile::Absent), (3, ResultFile::Unusable(why.into()))] {
        show_ended(&fixture, dir.path(), job, 1, 0);
        let outcome = fixture.run(job, spec(&["true"])).await;
        let Outcome::Ended(Exit::Ran { code: 0, result, .. }, _) = outcome else { panic!("{outcome:?}") };
        assert_eq!(result, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_mounts_something_at_the_directory_gets_no_result() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {0}
        case $1 in
            version) echo 1;;
            image) exit 0;;
            run) cat > environment;;
            inspect) exec cat $7;;
            events) exec sleep 600;;
            cp) touch copied; exit 1;;
        esac",
        dir.path().display()
    );
    let mut fixture =
        DockerFixture::without_image(Config { program: stand_in(dir.path(), &script), ..config() });
    show_ended(&fixture, dir.path(), 1, 1, 0);
    let shared = Volume { source: "shared".into(), target: "/longshore".into(), read_only: false };
    let outcome = fixture.run(1, ContainerSpec { volumes: vec![shared], ..spec(&["true"]) }).await;
    let Outcome::Ended(Exit::Ran { code: 0, result, .. }, _) = outcome else { panic!("{outcome:?}") };
    assert_eq!(result, ResultFile::Absent);
    assert!(!dir.path().join("copied").exists(), "the file may be of another job");
    let environment = std::fs::read_to_string(dir.path().join("environment")).expect("it was started");
    assert!(
        environment.contains("LONGSHORE_JOB=1") && !environment.contains("LONGSHORE_RESULT"),
        "{environment}"
    );
}

/// A container that is never started. It is removed on drop, with its volume.
struct Container {
    id: String,
    volume: String,
}

impl Container {
    /// A container with this directory at this path, and a volume of this name.
    fn create(source: &Path, destination: &Path, volume: &str) -> Self {
        let directory = format!("{}:{}", source.display(), destination.display());
        let kept = format!("{volume}:/kept");
        let made =
            docker(["create", "--volume", &directory, "--volume", &kept, crate::support::IMAGE, "true"]);
        let id = String::from_utf8(made.stdout).expect("an id").trim().to_owned();
        Self { id, volume: volume.to_owned() }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        docker(["rm", "--force", &self.id]);
        docker(["volume", "rm", &self.volume]);
    }
}
