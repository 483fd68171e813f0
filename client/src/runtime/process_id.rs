//! Processes that may outlive their starter. They are identified by number and start time, because numbers are used again.

use std::time::Duration;

use protocol::Uptime;
use rustix::process::{Pid as RawPid, Signal, kill_process_group};

use crate::attempt_dir::ProcessId;
use crate::boot::BootId;

/// The process with this number; `None` if there is none.
pub(crate) fn identify(pid: u32) -> Option<ProcessId> {
    // The name, in parentheses, may hold any bytes: the kernel cuts a long one even within a character.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then(|| ProcessId { pid, started, boot: BootId::current() })
}

/// `true` while this very process runs.
pub(crate) fn is_alive(pid: ProcessId) -> bool {
    identify(pid.pid) == Some(pid)
}

/// Waits until a process that is not our child has ended.
pub(super) async fn wait(pid: ProcessId) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    while is_alive(pid) {
        looks.tick().await;
    }
}

/// Signals the process group, if the process is still the same.
pub(super) fn signal_group(pid: ProcessId, signal: Signal) {
    if let Some(group) = raw(pid.pid).filter(|_| is_alive(pid)) {
        // The process may end at this moment.
        let _ = kill_process_group(group, signal);
    }
}

/// Signals the process group of a child. The child is not reaped, so its number belongs to no other process.
pub(super) fn signal_group_of_child(child: u32, signal: Signal) {
    if let Some(group) = raw(child) {
        // The group is mostly empty by now.
        let _ = kill_process_group(group, signal);
    }
}

fn raw(pid: u32) -> Option<RawPid> {
    i32::try_from(pid).ok().and_then(RawPid::from_raw)
}

/// Start of the process, as time since boot.
pub(super) fn started_at(pid: ProcessId) -> Uptime {
    Uptime(pid.started.saturating_mul(1_000_000_000 / CLOCK_TICKS))
}

/// Ticks per second in `/proc`: fixed for user space on every architecture of Linux.
const CLOCK_TICKS: u64 = 100;

/// Pause between two checks of a process that an earlier worker has started. Only a parent gets a notice.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Parses a signal by name or number; SIGTERM if it is missing or unknown.
pub(super) fn stop_signal(name: Option<&str>) -> Signal {
    let number = name.and_then(protocol::signal::number);
    number.and_then(|number| Signal::from_named_raw(number.into())).unwrap_or(Signal::TERM)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let own = identify(std::process::id()).expect("we run");
        assert!(is_alive(own));
        assert!(!is_alive(ProcessId { started: own.started + 1, ..own }));
        assert!(
            !is_alive(ProcessId { boot: BootId(own.boot.0 ^ 1), ..own }),
            "another boot uses numbers and start times again"
        );
        assert_eq!(identify(u32::MAX), None);
    }

    #[test]
    fn a_process_is_found_by_a_name_that_is_cut_within_a_character() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join(format!("{}ü", "x".repeat(14)));
        std::os::unix::fs::symlink("/bin/sh", &program).expect("a link");
        // It waits for its input to end.
        let mut command = std::process::Command::new(&program);
        command.arg0("sh").args(["-c", "read line"]).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("started");
        let stat = std::fs::read(format!("/proc/{}/stat", child.id())).expect("it runs");
        assert!(std::str::from_utf8(&stat).is_err(), "the kernel cuts names after 15 bytes");
        let process = identify(child.id());
        assert!(process.is_some_and(is_alive));
        drop(child.stdin.take());
        child.wait().expect("ended");
        assert!(!process.is_some_and(is_alive));
    }

    #[test]
    fn every_signal_with_a_name_is_the_one_that_is_sent() {
        for (name, number) in protocol::signal::NAMES {
            assert_eq!(stop_signal(Some(name)).as_raw(), i32::from(number), "{name}");
            assert!(number <= protocol::signal::NAMED_MAX, "{name}");
        }
        assert_eq!(stop_signal(Some("sigwinch")), Signal::WINCH);
        for other in [None, Some("SIGRTMIN+3"), Some("no such signal")] {
            assert_eq!(stop_signal(other), Signal::TERM, "{other:?}");
        }
    }

    #[tokio::test]
    async fn a_group_is_ended_with_its_leader() {
        let mut child =
            tokio::process::Command::new("sleep").arg("600").process_group(0).spawn().expect("spawned");
        let pid = child.id().and_then(identify).expect("it runs");
        signal_group(pid, Signal::KILL);
        let status = child.wait().await.expect("ended");
        assert!(!status.success());
        wait(pid).await;
    }
}
