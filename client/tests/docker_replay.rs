//! Output that is read again from the engine's log, where that is not all there or cannot be kept. Scripted stand-ins, no engine needed.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use longshore_client::runtime::docker::Config;
use protocol::Token;
use protocol::report::{OutputLengths, Stream};
use support::{Desk, Outcome, show_ended, spec, stand_in};
use worker::input::Exit;

fn config(dir: &Path, logs: &str) -> Config {
    config_with(dir, RUN, logs)
}

/// A stand-in whose command does not see the container end, and whose log is this.
fn config_with(dir: &Path, run: &str, logs: &str) -> Config {
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 0;;
            run) {run};;
            version) echo 1;;
            inspect) shift 6; exec cat $1;;
            logs) {logs};;
            events) exec sleep 600;;
        esac",
        dir.display()
    );
    Config { program: stand_in(dir, &script), ..Config::default() }
}

/// Some output, and a code that is not the container's.
const RUN: &str = "printf 'one\\n'; exit 5";

fn output(outcome: &Outcome) -> OutputLengths {
    match outcome {
        Outcome::Ended(Exit::Ran { code: 0, .. }, output) => *output,
        other => panic!("{other:?}"),
    }
}

async fn run(desk: &mut Desk, dir: &Path) -> (Token, Outcome) {
    let token = show_ended(desk, dir, 1, 1, 0);
    desk.start(1, spec(&["true"]));
    let outcome = desk.outcome(token).await;
    (token, outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_breaks_off_is_read_again_and_what_docker_says_of_it_is_not_the_programs() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = "printf 'one\\ntwo\\n'; printf 'err\\n' >&2
                [ -e broken ] || { touch broken; echo 'unexpected EOF' >&2; exit 1; }
                printf 'three\\n'; printf 'said: unexpected EOF\\n' >&2";
    let mut desk = Desk::without_image(config(dir.path(), logs));
    let (token, outcome) = run(&mut desk, dir.path()).await;
    let (stdout, stderr, replayed) = desk.output(token).await;
    assert_eq!(String::from_utf8_lossy(&stdout), "one\ntwo\nthree\n");
    assert_eq!(String::from_utf8_lossy(&stderr), "err\nsaid: unexpected EOF\n");
    assert!(replayed);
    assert_eq!(output(&outcome), OutputLengths { stdout: 14, stderr: 25 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_had_leaves_a_gap() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = "echo logs >> calls; echo 'Error response from daemon: cannot read' >&2; exit 1";
    let mut desk = Desk::without_image(config(dir.path(), logs));
    let (token, outcome) = run(&mut desk, dir.path()).await;
    let ([stdout, stderr], _, gaps) = desk.output_and_gaps(token).await;
    assert_eq!((stdout, stderr), (b"one\n_".to_vec(), b"_".to_vec()), "nobody knows how much it is");
    assert_eq!(gaps, [(Stream::Stdout, 4, 1), (Stream::Stderr, 0, 1)]);
    assert_eq!(output(&outcome), OutputLengths { stdout: 5, stderr: 1 });
    assert!(std::fs::read_to_string(dir.path().join("calls")).expect("it was read").lines().count() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_beginning_the_engine_has_dropped_goes_on_where_the_file_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config_with(dir.path(), "seq 2000; exit 5", "seq 1000 3000");
    let mut desk = Desk::without_image(config);
    let (token, outcome) = run(&mut desk, dir.path()).await;
    let (stdout, _, replayed) = desk.output(token).await;
    assert_eq!(stdout, seq(1, 3000));
    assert!(replayed);
    assert_eq!(output(&outcome).stdout, stdout.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_has_dropped_of_a_log_before_anybody_read_it_is_a_gap() {
    let dir = tempfile::tempdir().expect("a directory");
    // Where it goes on is found, the reading of it breaks off, and the next one goes on behind that.
    let logs = "echo read >> reads; reads=$(wc -l < reads)
                [ $reads -gt 2 ] || { seq 5001 5500; [ $reads = 1 ]; exit; }
                seq 5001 6000; echo err >&2";
    let mut desk = Desk::without_image(config_with(dir.path(), "seq 2000; exit 5", logs));
    let (token, outcome) = run(&mut desk, dir.path()).await;
    let ([stdout, stderr], replayed, gaps) = desk.output_and_gaps(token).await;
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
async fn what_a_full_disk_does_not_take_is_a_gap() {
    let Some(disk) = SmallDisk::mount() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let logs = format!("printf 'one\\n'; yes | head -c {WRITTEN}");
    let config = config(dir.path(), &logs);
    let membership = Desk::without_image(Config::default()).membership;
    let mut desk = Desk::at(config, Arc::clone(&disk.0), membership);
    let (token, outcome) = run(&mut desk, dir.path()).await;
    let all = 4 + WRITTEN;
    assert_eq!(output(&outcome), OutputLengths { stdout: all, stderr: 0 });
    let ([stdout, stderr], _, gaps) = desk.output_and_gaps(token).await;
    assert_eq!((stdout.len() as u64, stderr.len()), (all, 0));
    let kept = stdout.iter().position(|it| *it == b'_').expect("a gap");
    assert!((4..DISK_BYTES).contains(&(kept as u64)), "{kept}");
    assert!(stdout[kept..].iter().all(|it| *it == b'_') && !gaps.is_empty(), "the gap is at the end");
}

/// More than the disk holds.
const WRITTEN: u64 = 2 * DISK_BYTES;
const DISK_BYTES: u64 = 1 << 20;

/// A disk that is soon full.
struct SmallDisk(Arc<tempfile::TempDir>);

impl SmallDisk {
    /// None where nobody may mount one.
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
