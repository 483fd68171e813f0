//! Processes that outlive their parent within one attempt. The shim adopts them, reaps them, and kills them when the program has ended.
//!
//! A process in a session or group of its own is beyond the signals to the program's group. As a child subreaper the shim becomes the
//! parent of each one whose parent ends, so nothing that the program has started is out of reach. The shim has no other children.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid,
};

/// From here on this process is the parent of all its descendants whose own parent ends.
pub(super) fn adopt_orphans() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// Waits until the program ends, without reaping it, so that its PID is not used again. Orphans that end meanwhile are reaped.
pub(super) fn wait_for_program(program: u32) {
    let Some(program) = pid_of(program) else { return };
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) if has_ended(program) => return,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let orphans = children().into_iter().filter(|it| *it != program);
        if orphans.filter(|it| reap(*it)).count() == 0 {
            // The list missed the one that has ended.
            sleep(FIRST_PAUSE);
        }
    }
}

/// Kills and reaps all children, with descendants that become children meanwhile. Returns those that are left after [`KILL_TIMEOUT`]: the
/// kernel cannot end them, or this user may not.
pub(super) fn kill_all() -> Vec<Pid> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    let mut pause = FIRST_PAUSE;
    while has_children() {
        let orphans = children();
        for orphan in &orphans {
            // A zombie is reaped below. A program with the rights of another user is reported.
            let _ = kill_process(*orphan, Signal::KILL);
        }
        let reaped = orphans.iter().filter(|it| reap(**it)).count();
        if Instant::now() >= deadline {
            return children();
        }
        if reaped > 0 {
            pause = FIRST_PAUSE;
        } else {
            sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    Vec::new()
}

/// `PID (name)`, for a message.
pub(super) fn describe(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} ({})", pid, String::from_utf8_lossy(&name).trim().escape_debug())
}

/// The children of this process, with those that have ended and are not reaped.
fn children() -> Vec<Pid> {
    children_by_task().unwrap_or_else(children_by_parent)
}

/// `None` if the kernel is built without these lists.
fn children_by_task() -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let list = fs::read_to_string(task.path().join("children")).ok()?;
        found.extend(list.split_whitespace().filter_map(|it| pid_of(it.parse().ok()?)));
    }
    Some(found)
}

fn children_by_parent() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |entry: fs::DirEntry| {
        let pid = pid_of(entry.file_name().to_str()?.parse().ok()?)?;
        let stat = fs::read(entry.path().join("stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name, in parentheses, may hold any character.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok()?;
        (parent == own).then_some(pid)
    };
    entries.filter_map(child).collect()
}

fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    // An error means that it was reaped already.
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

/// Reaps a child that has ended. Its PID may be used again afterwards.
fn reap(child: Pid) -> bool {
    matches!(waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG), Ok(Some(_)))
}

fn pid_of(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// The worker kills a shim that has not recorded the end 6 s after it has killed the program; then the exit code is unknown.
const KILL_TIMEOUT: Duration = Duration::from_secs(4);

/// A killed process mostly ends within a millisecond.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn both_ways_to_list_children_find_one() {
        // It waits for its input to end.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("started");
        let pid = Pid::from_child(&child);
        assert!(children_by_task().is_none_or(|found| found.contains(&pid)));
        assert!(children_by_parent().contains(&pid));
        assert!(!has_ended(pid) && !reap(pid) && describe(pid).contains("(cat)"));
        drop(child.stdin.take());
        child.wait().expect("ended");
        assert!(has_ended(pid) && !children_by_parent().contains(&pid));
    }
}
