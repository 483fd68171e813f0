//! Durable facts survive a crash, and torn files are never fatal.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use protocol::container::{Overrides, PullPolicy, Volume};
use protocol::order::StopCause;
use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision, RuntimeKind, Timestamp, Uptime};
use worker::input::ResultFile;

use protocol::Token;

use super::*;

fn launch(job: u64) -> Launch {
    let spec = ContainerSpec {
        image: "app:1".into(),
        entrypoint: Some(vec!["/bin/app".into(), "-v".into()]),
        command: vec!["a b".into(), String::new()],
        environment: vec![("A".into(), "ü=1".into())],
        volumes: vec![Volume { source: "/srv".into(), target: "/data".into(), read_only: true }],
        stop_grace: Duration::from_millis(1500),
        self_fence: Some(Duration::from_secs(5)),
        log_bytes_max: 1 << 26,
        ..ContainerSpec::default()
    };
    Launch {
        token: Token { job: JobId(job), fence: Fence(3), nonce: Nonce(u64::MAX) },
        revision: Revision(u128::MAX - 1),
        name: "resize".into(),
        spec: spec.into(),
        overrides: Some(Overrides { args: vec!["--x".into()], ..Overrides::default() }),
        time_left: Some(Duration::from_secs(60)),
        secrets: Default::default(),
    }
}

/// An instant of an unknown boot.
fn at(utc: i64) -> RecordedInstant {
    RecordedInstant { utc: Timestamp(utc), up: Uptime(0), boot: BootId::default() }
}

fn store() -> (tempfile::TempDir, AttemptStore) {
    let state = tempfile::tempdir().expect("a directory");
    let store = AttemptStore::open(state.path()).expect("a store");
    (state, store)
}

#[test]
fn a_written_directory_is_read_again() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    let ending = AttemptEnd {
        exit: Exit::Ran {
            code: 3,
            oom: true,
            run_time: Duration::from_nanos(1_500_000_001),
            result: ResultFile::Json("{}".into()),
        },
        output: OutputLengths { stdout: 5, stderr: 0 },
        usage: Default::default(),
        at: at(1_700_000_000_000),
    };
    let stopping = Stopping { cause: StopCause::Timeout, at: at(1_699_999_999_999) };
    assert_eq!(dir.record_stopping(stopping).expect("kept"), stopping);
    dir.record_end(&ending).expect("kept");
    let entries = store.entries().expect("read");
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].launch, store::without_secrets(&launch(1)));
    assert_eq!(entries[0].stopping, Some(stopping));
    assert_eq!(entries[0].ending.as_ref(), Some(&ending));
    dir.remove().expect("gone");
    dir.remove().expect("still gone");
    assert!(store.entries().expect("read").is_empty());
}

#[test]
fn environment_values_are_kept_only_for_plain_processes() {
    let (_state, store) = store();
    for (job, runtime, is_kept) in [(1, RuntimeKind::Docker, false), (2, RuntimeKind::Process, true)] {
        let mut launch = launch(job);
        let spec = ContainerSpec {
            runtime,
            environment: vec![("A".into(), "secret".into())],
            ..(*launch.spec).clone()
        };
        launch.spec = spec.into();
        launch.overrides =
            Some(Overrides { environment: vec![("B".into(), "secret".into())], ..Overrides::default() });
        let dir = store.create(&launch).expect("made");
        let written = fs::read_to_string(dir.path().join(ATTEMPT)).expect("written");
        assert_eq!(written.contains("secret"), is_kept, "{written}");
        assert_eq!(dir.launch().expect("read") == launch, is_kept);
    }
}

#[test]
fn a_stop_after_the_end_stops_nothing() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    let exit = Exit::Vanished;
    dir.record_end(&AttemptEnd {
        exit,
        output: OutputLengths::default(),
        usage: Default::default(),
        at: at(2),
    })
    .expect("kept");
    dir.record_stopping(Stopping { cause: StopCause::Cancel, at: at(3) }).expect("kept");
    assert_eq!(store.entries().expect("read")[0].stopping, None);
}

#[test]
fn the_first_recorded_cause_and_end_stay() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    let stopping = |cause, at| Stopping { cause, at: self::at(at) };
    let first = stopping(StopCause::Timeout, 1);
    dir.record_stopping(first).expect("kept");
    assert_eq!(dir.record_stopping(stopping(StopCause::Cancel, 2)).expect("kept"), first);
    assert_eq!(dir.stopping().expect("read"), Some(first));
    let first = AttemptEnd {
        exit: Exit::Vanished,
        output: OutputLengths::default(),
        usage: Default::default(),
        at: at(1),
    };
    dir.record_end(&first).expect("kept");
    dir.record_end(&AttemptEnd { at: at(2), ..first.clone() }).expect("ignored");
    assert_eq!(dir.end().expect("read"), Some(first));
}

#[test]
fn a_second_creation_is_the_first_one_and_another_nonce_is_refused() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    assert_eq!(store.create(&launch(1)).expect("found"), dir);
    let mut other = launch(1);
    other.token.nonce = Nonce(5);
    assert!(matches!(store.create(&other), Err(Error::Taken { .. })));
}

#[test]
fn torn_directories_are_moved_aside_and_hide_no_other() {
    let (state, store) = store();
    store.create(&launch(1)).expect("made");
    let torn = store.create(&launch(2)).expect("made");
    fs::write(torn.path().join(ATTEMPT), b"{\"token\":").expect("torn");
    let strange = state.path().join("attempts/no-attempt");
    fs::write(&strange, b"").expect("a file");
    let exit = store.create(&launch(4)).expect("made");
    fs::write(exit.path().join(EXIT), b"\0\0\0").expect("torn");

    let mut entries = store.entries().expect("read");
    entries.sort_by_key(|it| it.launch.token);
    assert_eq!(entries.iter().map(|it| it.launch.token.job.0).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(entries[1].ending, None, "a torn end is no end");
    assert_eq!(fs::read_dir(state.path().join("unreadable")).expect("aside").count(), 2);
    // A crash in the middle of making one leaves nothing in the way of the next try.
    fs::create_dir(state.path().join("attempts/5-3")).expect("empty");
    store.create(&launch(5)).expect("made after all");
}

#[test]
fn an_unreadable_store_is_not_an_empty_one() {
    let (_state, store) = store();
    store.create(&launch(1)).expect("made");
    let known = store.create(&launch(2)).expect("made");
    for file in [ATTEMPT, EXIT, STOPPING, WATCHER, PROGRAM] {
        let (path, aside) = (known.path().join(file), known.path().join("aside"));
        // A link to itself cannot be read by any user.
        let kept = fs::rename(&path, &aside).is_ok();
        std::os::unix::fs::symlink(file, &path).expect("a link");
        assert!(matches!(store.entries(), Err(Error::Io { .. })), "{file}");
        fs::remove_file(&path).expect("gone");
        if kept {
            fs::rename(&aside, &path).expect("back");
        }
        assert_eq!(store.entries().expect("read").len(), 2, "nothing was lost over {file}");
    }
}

#[test]
fn a_program_about_to_start_differs_from_none() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    let pid = ProcessId { pid: 12, started: 34, boot: BootId(5) };
    assert_eq!(dir.program().expect("read"), None);
    for program in [ProgramState::Starting, ProgramState::Started(pid)] {
        dir.record_program(program).expect("kept");
        assert_eq!(dir.program().expect("read"), Some(program));
    }
}

#[test]
fn an_unreadable_output_counts_as_being_written() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    assert!(!dir.is_being_written());
    let claim = dir.claim_output().expect("claimed");
    assert!(dir.is_being_written() && dir.claim_output().is_err());
    drop(claim);
    assert!(!dir.is_being_written());
    let path = dir.path().join("stdout");
    fs::remove_file(&path).expect("gone");
    assert!(!dir.is_being_written());
    std::os::unix::fs::symlink("stdout", &path).expect("a link");
    assert!(dir.is_being_written());
}

#[test]
fn files_with_environment_values_are_private() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    assert_eq!(fs::metadata(dir.path()).expect("there").mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(dir.path().join(ATTEMPT)).expect("there").mode() & 0o777, 0o600);
}

#[test]
fn a_failed_create_leaves_no_directory_and_an_unreadable_one_is_kept() {
    let (_state, store) = store();
    let dir = store.dir(launch(1).token);
    // A directory takes the place of the file, so writing fails as on a full disk.
    fs::create_dir_all(dir.path().join(format!("{ATTEMPT}.new"))).expect("in the way");
    store.create(&launch(1)).expect_err("it cannot be written");
    assert!(!dir.path().exists());

    let known = store.create(&launch(2)).expect("made");
    let file = known.path().join(ATTEMPT);
    fs::remove_file(&file).expect("gone");
    std::os::unix::fs::symlink(ATTEMPT, &file).expect("a link to itself");
    store.create(&launch(2)).expect_err("nobody knows whose it is");
    assert!(known.path().exists());
}

#[test]
fn the_definition_of_an_attempt_of_an_older_worker_is_read_as_it_was() {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/attempt_records/attempt");
    let older = fs::read(seed).expect("a seed");
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    fs::write(dir.path().join(ATTEMPT), &older[1..]).expect("written");
    let read = dir.launch().expect("an older record");
    let expected = ContainerSpec {
        cap_drop: vec!["ALL".into()],
        labels: vec![("team".into(), "a=b".into())],
        network: Some("none".into()),
        pull_policy: PullPolicy::Never,
        ..(*launch(1).spec).clone()
    };
    assert_eq!(*read.spec, expected);
    dir.remove().expect("gone");

    let dir = store.create(&read).expect("made");
    let written = fs::read_to_string(dir.path().join(ATTEMPT)).expect("read");
    assert!(written.contains("\"stop_grace_ms\":1500"), "{written}");
    let again = ContainerSpec { environment: Vec::new(), ..expected };
    assert_eq!(
        ContainerSpec { environment: Vec::new(), ..(*dir.launch().expect("read").spec).clone() },
        again
    );
}

#[test]
fn the_run_time_of_an_attempt_of_an_older_worker_is_read_as_it_was() {
    let (_state, store) = store();
    let dir = store.create(&launch(1)).expect("made");
    let lost = r#"{"at_ms":1,"output":{"stdout":0,"stderr":0},"exit":{"daemon_lost":{"message":"m","ran":{"secs":2,"nanos":0}}}}"#;
    let ran = r#"{"at_ms":1,"output":{"stdout":0,"stderr":0},"exit":{"ran":{"code":3,"oom":true,"memory_limited":false,"ran":{"secs":1,"nanos":5},"result":null}}}"#;
    let (after_loss, after_end) = (Some(Duration::from_secs(2)), Duration::new(1, 5));
    for (older, expected) in [
        (lost, Exit::DaemonLost { message: "m".into(), run_time: after_loss }),
        (ran, Exit::Ran { code: 3, oom: true, run_time: after_end, result: ResultFile::Absent }),
    ] {
        fs::write(dir.path().join(EXIT), older).expect("written");
        let ending = store.entries().expect("read").remove(0).ending.expect("it has ended");
        assert_eq!(ending.exit, expected);
        dir.record_end(&ending).expect("written");
        let written = fs::read_to_string(dir.path().join(EXIT)).expect("read");
        assert!(written.contains(r#""ran":{"secs":"#), "an older worker can read it: {written}");
    }
}
