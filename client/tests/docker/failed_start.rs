//! Starts that fail for what the definition says: its program, its memory limit. A scripted stand-in, no engine needed.

use longshore_client::runtime::docker::Config;
use protocol::ContainerSpec;
use protocol::container::Resources;
use worker::input::{Exit, StartFailure};

use crate::support::{DockerFixture, Outcome, recorder, show_ended, spec, stand_in};

fn config(program: impl Into<std::path::PathBuf>) -> Config {
    Config { program: program.into(), ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_for_which_runc_would_hang_is_not_started() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(config(recorder(dir.path())));
    let (longest, too_long) = ("x".repeat(4_095), "x".repeat(4_096));
    let by_entrypoint = ContainerSpec { entrypoint: Some(vec![too_long.clone()]), ..spec(&["a"]) };
    for (job, spec, field) in [(1, spec(&[&too_long]), "command"), (2, by_entrypoint, "entrypoint")] {
        let outcome = fixture.run(job, spec).await;
        let Outcome::Ended(Exit::NotStarted { fault: StartFailure::Definition, message, .. }, _) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert_eq!(message, format!("{field}: its first word has 4096 bytes (max 4095)"));
    }
    assert!(!dir.path().join("calls").exists());
    // An argument may be longer.
    for (job, spec) in [(3, spec(&[&longest])), (4, spec(&["echo", &too_long]))] {
        fixture.run(job, spec).await;
        assert!(dir.path().join("calls").exists());
        std::fs::remove_file(dir.path().join("calls")).expect("it was called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_killed_at_its_memory_limit_before_its_program_started_is_oom_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    // The first message is that of runc. With the others the engine has, or has not, seen the kill.
    let script = format!(
        r#"cd {0}
        case $1 in
            image) exit 0;;
            run) exit 128;;
            events) exec sleep 600;;
            version) echo 1;;
            inspect)
                shift 6
                sed -e s/exited/created/ -e s/2026/0001/g -e "$(cat how)" $1;;
        esac"#,
        dir.path().display()
    );
    let mut fixture = DockerFixture::without_image(config(stand_in(dir.path(), &script)));
    let with_limit = |memory_bytes| {
        let resources = Resources { memory_bytes, ..Resources::default() };
        ContainerSpec { resources, ..spec(&["true"]) }
    };
    let said = r#"s/"ExitCode":128/"ExitCode":128,"Error":"OCI runtime create failed: runc create failed: unable to start container process: container init was OOM-killed (memory limit too low?): unknown"/"#;
    let seen = r#"s/"ExitCode":128/"ExitCode":128,"Error":"read init-p: connection reset by peer","OOMKilled":true/"#;
    let neither = r#"s/"ExitCode":128/"ExitCode":128,"Error":"read init-p: connection reset by peer"/"#;
    for (job, how, memory, is_own) in [
        (1, said, Some(6 << 20), true),
        (2, seen, Some(6 << 20), true),
        (3, said, None, false),
        (4, seen, None, false),
        (5, neither, Some(6 << 20), false),
    ] {
        std::fs::write(dir.path().join("how"), how).expect("written");
        show_ended(&fixture, dir.path(), job, 1, 128);
        let outcome = fixture.run(job, with_limit(memory)).await;
        match outcome {
            Outcome::Ended(Exit::Ran { code: 137, oom: true, .. }, _) if is_own => {}
            Outcome::Ended(Exit::NotStarted { fault: StartFailure::Host, .. }, _) if !is_own => {}
            other => panic!("{job}: {other:?}"),
        }
    }
}
