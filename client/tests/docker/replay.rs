//! Output that is read again from the engine's log, where the log is incomplete or the disk is full. Scripted stand-ins, no engine needed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use longshore_client::runtime::docker::Config;
use protocol::Token;
use protocol::report::{OutputLengths, Stream};
use worker::input::Exit;

use crate::support::{DockerFixture, Outcome, show_ended, spec, stand_in};

fn config(dir: &Path, logs: &str) -> Config {
    config_with(dir, RUN, logs)
}

/// A stand-in whose CLI does not see the end of the container, and whose log is this. A file `down` makes it unreachable for one ping.
fn config_with(dir: &Path, run: &str, logs: &str) -> Config {
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 0;;
            run) {run};;
            version) [ ! -e down ] || {{ rm down; exit 1; }}; echo 1;;
            inspect) shift 6; exec cat $1;;
            logs) {logs};;
            events) exec sleep 600;;
        esac",
        dir.display()
    );
    Config { program: stand_in(dir, &script), ..Config::default() }
}

/// Some output, and an exit code that is not the container's.
const RUN: &str = "printf 'one\\n'; exit 5";

fn output(outcome: &Outcome) -> OutputLengths {
    match outcome {
        Outcome::Ended(Exit::Ran { code: 0, .. }, output) => *output,
        other => panic!("{other:?}"),
    }
}

async fn run(fixture: &mut DockerFixture, dir: &Path) -> (Token, Outcome) {
    let token = show_ended(fixture, dir, 1, 1, 0);
    fixture.start(1, spec(&["true"]));
    let outcome = fixture.outcome(token).await;
    (token, outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_log_is_read_again_and_dockers_message_is_not_output() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = "printf 'one\\ntwo\\n'; printf 'err\\n' >&2
                [ -e broken ] || { touch broken; echo 'unexpected EOF' >&2; exit 1; }
                printf 'three\\n'; printf 'said: unexpected EOF\\n' >&2";
    let mut fixture = DockerFixture::without_image(config(dir.path(), logs));
    let (token, outcome) = run(&mut fixture, dir.path()).await;
    let (stdout, stderr, replayed) = fixture.output(token).await;
    assert_eq!(String::from_utf8_lossy(&stdout), "one\ntwo\nthree\n");
    assert_eq!(String::from_utf8_lossy(&stderr), "err\nsaid: unexpected EOF\n");
    assert!(replayed);
    assert_eq!(output(&outcome), OutputLengths { stdout: 14, stderr: 25 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_cli_is_not_output_in_whichever_pieces_it_comes() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = "printf 'one\\n'; printf 'err\\n' >&2
                [ $(wc -l < reads 2>/dev/null || echo 0) -ge 2 ] && { printf 'more\\n' >&2; exit 0; }
                echo read >> reads
                printf 'Error respo' >&2; sleep 0.3
                echo 'nse from daemon: can not get logs from container which is dead or marked for removal' >&2
                exit 1";
    let mut fixture = DockerFixture::without_image(config(dir.path(), logs));
    let (token, outcome) = run(&mut fixture, dir.path()).await;
    let (stdout, stderr, _) = fixture.output(token).await;
    assert_eq!(String::from_utf8_lossy(&stdout), "one\n");
    assert_eq!(String::from_utf8_lossy(&stderr), "err\nmore\n");
    assert_eq!(output(&outcome), OutputLengths { stdout: 4, stderr: 9 });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_log_leaves_a_gap() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = "echo logs >> calls; echo 'Error response from daemon: cannot read' >&2; exit 1";
    let mut fixture = DockerFixture::without_image(config(dir.path(), logs));
    let (token, outcome) = run(&mut fixture, dir.path()).await;
    let ([stdout, stderr], _, gaps) = fixture.output_and_gaps(token).await;
    assert_eq!((stdout, stderr), (b"one\n_".to_vec(), b"_".to_vec()), "nobody knows how much it is");
    assert_eq!(gaps, [(Stream::Stdout, 4, 1), (Stream::Stderr, 0, 1)]);
    assert_eq!(output(&outcome), OutputLengths { stdout: 5, stderr: 1 });
    assert!(std::fs::read_to_string(dir.path().join("calls")).expect("it was read").lines().count() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_its_beginning_continues_at_the_end_of_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config_with(dir.path(), "seq 2000; exit 5", "seq 1000 3000");
    let mut fixture = DockerFixture::without_image(config);
    let (token, outcome) = run(&mut fixture, dir.path()).await;
    let (stdout, _, replayed) = fixture.output(token).await;
    assert_eq!(stdout, seq(1, 3000));
    assert!(replayed);
    assert_eq!(output(&outcome).stdout, stdout.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_bytes_that_the_engine_dropped_unread_are_a_gap() {
    let dir = tempfile::tempdir().expect("a directory");
    // The position is found, the next reading breaks off, and the one after continues behind it.
    let logs = "echo read >> reads; reads=$(wc -l < reads)
                [ $reads -gt 2 ] || { seq 5001 5500; [ $reads = 1 ]; exit; }
                seq 5001 6000; echo err >&2";
    let mut fixture = DockerFixture::without_image(config_with(dir.path(), "seq 2000; exit 5", logs));
    let (token, outcome) = run(&mut fixture, dir.path()).await;
    let ([stdout, stderr], replayed, gaps) = fixture.output_and_gaps(token).await;
    let known = seq(1, 2000);
    assert_eq!(gaps, [(Stream::Stdout, known.len() as u64, 1)]);
    assert_eq!(stdout, [known, b"_".to_vec(), seq(5001, 6000)].concat());
    assert_eq!(stderr, b"err\n");
    assert!(replayed);
    assert_eq!(output(&outcome), OutputLengths { stdout: stdout.len() as u64, stderr: 4 });
}

fn seq(from: u32, to: u32) -> Vec<u8> {
    (from..=to).flat_map(|it| format!("{it}\n").into_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_a_full_disk_refuses_becomes_a_gap() {
    let Some(disk) = SmallDisk::mount() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let logs = format!("printf 'one\\n'; yes | head -c {WRITTEN}");
    let config = config(dir.path(), &logs);
    let membership = DockerFixture::without_image(Config::default()).membership;
    let mut fixture = DockerFixture::at(config, Arc::clone(&disk.0), membership);
    let (token, outcome) = run(&mut fixture, dir.path()).await;
    let all = 4 + WRITTEN;
    assert_eq!(output(&outcome), OutputLengths { stdout: all, stderr: 0 });
    let ([stdout, stderr], _, gaps) = fixture.output_and_gaps(token).await;
    assert_eq!((stdout.len() as u64, stderr.len()), (all, 0));
    let kept = stdout.iter().position(|it| *it == b'_').expect("a gap");
    assert!((4..DISK_BYTES).contains(&(kept as u64)), "{kept}");
    assert!(stdout[kept..].iter().all(|it| *it == b'_') && !gaps.is_empty(), "the gap is at the end");
}

/// More than the disk holds.
const WRITTEN: u64 = 2 * DISK_BYTES;
const DISK_BYTES: u64 = 1 << 20;

/// A disk that fills up soon.
struct SmallDisk(Arc<tempfile::TempDir>);

impl SmallDisk {
    /// `None` without the right to mount.
    fn mount() -> Option<Self> {
        let at = Arc::new(tempfile::tempdir().expect("a directory"));
        let size = format!("size={DISK_BYTES},mode=0700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at.path()).output();
        let is_mounted = mounted.is_ok_and(|it| it.status.success());
        if !is_mounted {
            eprintln!("not run: only root may mount a small disk");
        }
        is_mounted.then(|| Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its files may still be open.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outages_of_the_engine_do_not_count_as_failures_of_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = "echo read >> reads
                [ $(wc -l < reads) -gt 3 ] || { touch down; echo 'Cannot connect to the Docker daemon' >&2; exit 1; }
                printf 'one\\ntwo\\n'";
    let mut fixture = DockerFixture::without_image(config(dir.path(), logs));
    let (token, outcome) = run(&mut fixture, dir.path()).await;
    let (stdout, stderr, _) = fixture.output(token).await;
    assert_eq!((stdout, stderr), (b"one\ntwo\n".to_vec(), Vec::new()));
    assert_eq!(output(&outcome), OutputLengths { stdout: 8, stderr: 0 });
}
