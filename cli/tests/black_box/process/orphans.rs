//! Processes that a program leaves in sessions of their own: they end with their attempt.

use std::path::Path;
use std::time::Duration;

use client::runtime::{Exit, Runtime, RuntimeEvent, StopStep};
use protocol::order::StopCause;
use testkit::processes_mentioning;

use super::{ProcessFixture, group, shell, signal, until};

/// A script that starts a process in a session of its own, which creates `file` when it is there, runs `rest` and then sleeps.
fn daemon(file: &Path, rest: &str) -> String {
    let file = file.display();
    format!(
        "setsid sh -c 'echo $$ >{file}.new; mv {file}.new {file}; {rest} sleep 600' & while [ ! -e {file} ]; do sleep 0.02; done;"
    )
}

/// Processes of the attempts of this fixture, with their shims.
fn processes(fixture: &ProcessFixture) -> usize {
    processes_mentioning(fixture.state.path()).len()
}

#[tokio::test]
async fn child_processes_end_with_the_program() {
    let mut fixture = ProcessFixture::new();
    let token = fixture.start(1, shell("sleep 602 & exit 3"));
    let pid = fixture.started(token).await;
    assert!(matches!(fixture.exit(token).await, Exit::Ran { code: 3, .. }));
    until(|| group(pid) == 0).await;
}

#[tokio::test]
async fn no_process_is_left_when_the_program_has_ended() {
    let mut fixture = ProcessFixture::new();
    let (one, other) = (fixture.state.path().join("one"), fixture.state.path().join("other"));
    // The second one has children of its own, in its session and in another one.
    let script = daemon(&one, "") + &daemon(&other, "setsid sleep 601 & sleep 602 &") + "exit 3";
    let token = fixture.start(1, shell(&script));
    let exit = fixture.exit(token).await;
    assert!(matches!(exit, Exit::Ran { code: 3, .. }), "{exit:?}");
    assert!(one.exists() && other.exists(), "they were started");
    assert_eq!(processes(&fixture), 0);
}

#[tokio::test]
async fn no_process_is_left_after_a_cancel() {
    let mut fixture = ProcessFixture::new();
    let there = fixture.state.path().join("there");
    // It ignores what it is asked, and is not in the program's group anyway.
    let token = fixture.start(1, shell(&(daemon(&there, "trap \"\" TERM;") + "sleep 600")));
    until(|| there.exists()).await;
    let ask = StopStep::Ask { grace: Duration::from_secs(30) };
    fixture.process.stop(token, StopCause::Cancel, ask, client::clock::now());
    let exit = fixture.exit(token).await;
    assert!(matches!(exit, Exit::Ran { code: 143, .. }), "{exit:?}");
    assert_eq!(processes(&fixture), 0);
}

#[tokio::test]
async fn orphans_that_end_before_the_program_are_reaped_and_counted() {
    let mut fixture = ProcessFixture::new();
    let (busy, go) = (fixture.state.path().join("busy"), fixture.state.path().join("go"));
    let script = format!(
        "(setsid sh -c 'echo $$ >{0}.new; mv {0}.new {0}; while :; do :; done' &); while [ ! -e {1} ]; do sleep 0.02; done",
        busy.display(),
        go.display()
    );
    let token = fixture.start(1, shell(&script));
    fixture.started(token).await;
    until(|| busy.exists()).await;
    let orphan = std::fs::read_to_string(&busy).expect("a number");
    let orphan = orphan.trim();
    until(|| ticks(orphan) >= Some(20)).await;
    signal(orphan);
    // A zombie would stay in the list.
    until(|| ticks(orphan).is_none()).await;
    assert!(!go.exists(), "the program runs");
    std::fs::write(go, "").expect("written");
    assert!(matches!(fixture.exit(token).await, Exit::Ran { code: 0, .. }));
    let Some(RuntimeEvent::Ended { usage, .. }) = fixture.seen.last() else { panic!("{:?}", fixture.seen) };
    assert!(usage.cpu_ms >= Some(200), "{usage:?}");
}

/// CPU time of a process in hundredths of a second; `None` if there is no such process.
fn ticks(pid: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(11)?.parse().ok()
}

#[tokio::test]
async fn what_a_left_process_wrote_is_whole_and_the_times_are_those_of_the_program() {
    let mut fixture = ProcessFixture::new();
    let there = fixture.state.path().join("there");
    // It writes until it is killed.
    let script = daemon(&there, "while :; do echo line; done;") + "exit 0";
    let token = fixture.start(1, shell(&script));
    let exit = fixture.exit(token).await;
    let Exit::Ran { code: 0, run_time, .. } = exit else { panic!("{exit:?}") };
    let start = fixture.seen.iter().find_map(|it| match it {
        RuntimeEvent::Started { at, .. } => Some(*at),
        _ => None,
    });
    let Some(RuntimeEvent::Ended { at, output, .. }) = fixture.seen.last().cloned() else {
        panic!("{:?}", fixture.seen)
    };
    assert_eq!(start.map(|start| start + run_time), Some(at));
    assert_eq!(processes(&fixture), 0);
    let written = std::fs::metadata(fixture.state.path().join("attempts/1-1/stdout")).expect("a file").len();
    assert_eq!(written, output.stdout, "nobody writes any more");
}
