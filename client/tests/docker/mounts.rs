//! Paths of mounts that change between the checks and the start. A scripted stand-in, no engine needed.

use std::sync::atomic::Ordering;

use longshore_client::runtime::Runtime;
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::policy::Allow;
use protocol::ContainerSpec;
use protocol::container::Volume;
use protocol::report::ReleaseCause;
use worker::input::{Exit, RuntimeEvent};

use crate::support::{DockerFixture, Outcome, show_ended, spec, stand_in};

fn config(program: impl Into<std::path::PathBuf>) -> Config {
    Config { program: program.into(), ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_keeps_the_path_that_was_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let allowed = dir.path().join("allowed");
    std::fs::create_dir_all(allowed.join("real")).expect("a directory");
    let link = allowed.join("link");
    // While the image is pulled, one link changes and the other one does not.
    let script = format!(
        "cd {0}
        case $1 in
            image) [ -e first ] && ln -sfn /etc allowed/link; touch first; exit 0;;
            version) echo 1;;
            run) echo \"$*\" >> calls;;
            inspect) exec cat $7;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    std::os::unix::fs::symlink(allowed.join("real"), &link).expect("a link");
    let allow = Allow { mounts: vec![allowed.clone()], ..Allow::default() };
    let settings = Config { allow, sees_engine_disks: true, ..config(stand_in(dir.path(), &script)) };
    let mut fixture = DockerFixture::without_image(settings.clone());
    let mounts = |image: &str| ContainerSpec {
        image: image.into(),
        volumes: vec![Volume {
            source: link.to_str().expect("text").into(),
            target: "/data".into(),
            read_only: false,
        }],
        ..spec(&["true"])
    };
    show_ended(&fixture, dir.path(), 1, 1, 0);
    let outcome = fixture.run(1, mounts("first")).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
    let calls = || std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    let real = allowed.join("real").canonicalize().expect("there");
    assert!(calls().contains(&format!("--mount=type=bind,source={},target=/data", real.display())));

    let outcome = fixture.run(2, mounts("second")).await;
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::Policy, _)), "{outcome:?}");
    assert_eq!(calls().lines().count(), 1);

    // Links here say nothing about an engine with other file systems.
    std::fs::remove_file(&link).expect("it is there");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    std::fs::remove_file(dir.path().join("first")).expect("it is there");
    let mut fixture = DockerFixture::without_image(Config {
        sees_engine_disks: false,
        allow: Allow { mounts: vec![link.clone()], ..settings.allow.clone() },
        ..settings
    });
    show_ended(&fixture, dir.path(), 3, 1, 0);
    fixture.run(3, mounts("first")).await;
    assert!(calls().contains(&format!("--mount=type=bind,source={},target=/data", link.display())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_changes_while_the_attempt_waits_for_its_permit_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = dir.path().join("allowed/data");
    std::fs::create_dir_all(&source).expect("a directory");
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 0;;
            version) echo 1;;
            run) echo \"$*\" >> calls;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let allow = Allow { mounts: vec![dir.path().join("allowed")], ..Allow::default() };
    let settings = Config { allow, sees_engine_disks: true, ..config(stand_in(dir.path(), &script)) };
    let mut fixture = DockerFixture::without_image(settings);
    fixture.gate_closed.store(true, Ordering::Relaxed);
    let volume =
        Volume { source: source.to_str().expect("text").into(), target: "/data".into(), read_only: false };
    let token = fixture.start(1, ContainerSpec { volumes: vec![volume], ..spec(&["true"]) });
    fixture.event(|it| (*it == RuntimeEvent::Prepared(token)).then_some(())).await;

    std::fs::remove_dir(&source).expect("it is empty");
    std::os::unix::fs::symlink("/etc", &source).expect("a link");
    fixture.docker().run(token);

    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Refused(ReleaseCause::Policy, _)), "{outcome:?}");
    assert!(!dir.path().join("calls").exists(), "nothing was started");
}
