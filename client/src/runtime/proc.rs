//! Processes that may outlive the one that started them: told apart by number and start time, because numbers are used again.

use std::time::Duration;

use rustix::process::{Pid as RawPid, Signal, kill_process_group};

use crate::attempt_dir::Pid;

/// Which process has this number now; none if there is none.
pub(super) fn identify(pid: u32) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; what follows it does not.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(Pid { pid, started })
}

/// Whether it still runs.
pub(super) fn is_alive(pid: Pid) -> bool {
    identify(pid.pid) == Some(pid)
}

/// Waits until a process that is not our child has ended.
pub(super) async fn wait(pid: Pid) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    while is_alive(pid) {
        looks.tick().await;
    }
}

/// Signals it and all of its group, if it is still the one that was meant.
pub(super) fn signal_group(pid: Pid, signal: Signal) {
    let group = i32::try_from(pid.pid).ok().and_then(RawPid::from_raw);
    if let Some(group) = group.filter(|_| is_alive(pid)) {
        // It may have ended this very moment.
        let _ = kill_process_group(group, signal);
    }
}

/// Between two looks at a process that an earlier worker has started: there is no other way to be told without being its parent.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let own = identify(std::process::id()).expect("we run");
        assert!(is_alive(own));
        assert!(!is_alive(Pid { started: own.started + 1, ..own }));
        assert_eq!(identify(u32::MAX), None);
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
