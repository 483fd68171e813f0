//! Plain processes: a program and its descendants by `/proc`, and the children that a shim has waited for.

use std::path::Path;

use protocol::Usage;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::proc_files::{keyed, read};
use crate::attempt_dir::ProcessId;

/// A program and its descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    pid: ProcessId,
    pub(super) init_process: Option<OwnedFd>,
}

impl ProcessTree {
    /// The tree below this process; `None` if it has ended.
    pub(super) fn open(pid: ProcessId) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid.pid).ok()?)?;
        let init_process = pidfd_open(raw, PidfdFlags::empty()).ok();
        // Asked after it was opened, so the number was not used again in between.
        crate::runtime::is_alive(pid).then_some(Self { pid, init_process })
    }

    /// Resources that the processes have used, and their resident memory now. Memory that several of them share counts for each.
    pub(super) fn sample(&self) -> (Usage, Option<u64>) {
        let mut members = vec![self.pid.pid];
        let (mut usage, mut resident, mut highest) = (Usage::default(), None, None);
        let (mut next, mut threads_left) = (0, THREADS_MAX);
        while let Some(pid) = members.get(next).copied() {
            next += 1;
            let Some(found) = Member::read(pid) else { continue };
            usage.cpu_ms = add(usage.cpu_ms, Some(found.cpu_ms));
            usage.disk_read_bytes = add(usage.disk_read_bytes, found.disk_read_bytes);
            usage.disk_written_bytes = add(usage.disk_written_bytes, found.disk_written_bytes);
            resident = add(resident, found.resident_bytes);
            highest = highest.max(found.peak_bytes);
            let room = PROCESSES_MAX.saturating_sub(members.len());
            members.extend(children(pid, &mut threads_left).into_iter().take(room));
        }
        usage.memory_peak_bytes = resident.max(highest);
        (usage, resident)
    }
}

/// The children of a process. The kernel lists them by the thread that made them; the lists of `threads_left` threads are read, the first
/// thread's among them.
fn children(pid: u32, threads_left: &mut usize) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads: Vec<_> = threads.take((*threads_left).max(1)).collect();
    *threads_left = threads_left.saturating_sub(threads.len());
    let lists = threads.iter().filter_map(|thread| read(&thread.path().join("children")));
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn add(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    more.map_or(sum, |more| Some(sum.unwrap_or(0).saturating_add(more)))
}

/// The figures of one process with the children that it has waited for.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    cpu_ms: u64,
    resident_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    disk_read_bytes: Option<u64>,
    disk_written_bytes: Option<u64>,
}

impl Member {
    fn read(pid: u32) -> Option<Self> {
        let file = |name: &str| read(Path::new(&format!("/proc/{pid}/{name}")));
        let times = CpuTimes::of(&file("stat")?)?;
        let status = file("status").unwrap_or_default();
        let bytes = |key| keyed(&status, key).map(|kib| kib.saturating_mul(1024));
        // Only the owner of a process may read this file.
        let io = file("io").unwrap_or_default();
        Some(Self {
            cpu_ms: times.own_ms.saturating_add(times.children_ms),
            resident_bytes: bytes("VmRSS"),
            peak_bytes: bytes("VmHWM"),
            disk_read_bytes: keyed(&io, "read_bytes"),
            disk_written_bytes: keyed(&io, "write_bytes"),
        })
    }
}

/// CPU times in `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct CpuTimes {
    own_ms: u64,
    /// Of children that it has waited for.
    children_ms: u64,
}

impl CpuTimes {
    fn of(stat: &str) -> Option<Self> {
        // The name, in parentheses, may hold any character; the fields after it do not.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let sum = |from: usize| {
            let ticks: u64 = fields.get(from)?.parse().ok()?;
            let more: u64 = fields.get(from + 1)?.parse().ok()?;
            Some(ticks.saturating_add(more).saturating_mul(MS_PER_TICK))
        };
        Some(Self { own_ms: sum(OWN_TIMES)?, children_ms: sum(CHILDREN_TIMES)? })
    }
}

/// Resources of the children that this process waits for. It has no other children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildUsage {
    disk_before: (Option<u64>, Option<u64>),
}

impl ChildUsage {
    /// Call this before the wait: what this process itself has read and written so far does not count.
    pub(crate) fn begin() -> Self {
        Self { disk_before: own_disk() }
    }

    /// Call this right after the wait.
    pub(crate) fn end(self) -> Usage {
        let stat = read(Path::new("/proc/self/stat")).unwrap_or_default();
        let (read_before, written_before) = self.disk_before;
        let (read_bytes, written_bytes) = own_disk();
        let since = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        Usage {
            cpu_ms: CpuTimes::of(&stat).map(|times| times.children_ms),
            disk_read_bytes: since(read_bytes, read_before),
            disk_written_bytes: since(written_bytes, written_before),
            ..Usage::default()
        }
    }
}

/// Bytes that this process and the children that it has waited for have read and written.
fn own_disk() -> (Option<u64>, Option<u64>) {
    let io = read(Path::new("/proc/self/io")).unwrap_or_default();
    (keyed(&io, "read_bytes"), keyed(&io, "write_bytes"))
}

/// Processes of one attempt that are read in a sample: each costs three files.
const PROCESSES_MAX: usize = 64;
/// The most threads of all processes of a sample whose children are read: each costs a file.
const THREADS_MAX: usize = 256;

/// Milliseconds of a clock tick, which is the same for user space on every architecture of Linux.
const MS_PER_TICK: u64 = 10;

/// Positions after the name.
const OWN_TIMES: usize = 11;
const CHILDREN_TIMES: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) R) b) S 1 7 7 0 -1 4194560 96 120 0 0 31 2 400 5 20 0 1 0 9318 3 1 4";
        assert_eq!(CpuTimes::of(stat), Some(CpuTimes { own_ms: 330, children_ms: 4_050 }));
        for other in ["", "7 (a) S", "7 (a) S 1 7 7 0 -1 4194560 96 120 0 0 x 2 400 5", "7 a"] {
            assert_eq!(CpuTimes::of(other), None, "{other}");
        }
    }

    #[test]
    fn children_of_any_thread_are_found() {
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn();
            let child = child.as_mut().expect("started");
            tell.send(child.id()).expect("awaited");
            // The kernel gives the children of a thread that ends to another one.
            let _ = end.recv();
            drop(child.stdin.take());
            child.wait().expect("ended");
        });
        let child = told.recv().expect("started");
        let mut threads_left = THREADS_MAX;
        assert!(children(std::process::id(), &mut threads_left).contains(&child));
        assert!(threads_left <= THREADS_MAX - 2);
        drop(ended);
        thread.join().expect("ended");
    }

    #[test]
    fn a_running_process_is_measured_with_its_children() {
        // It waits for its input to end.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "cat & cat"]).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("started");
        let tree = crate::runtime::identify(child.id()).and_then(ProcessTree::open).expect("it runs");
        let (usage, resident) = tree.sample();
        assert!(usage.cpu_ms.is_some() && usage.memory_peak_bytes >= resident && resident > Some(0));
        assert_eq!(usage.network_sent_bytes, None, "it has no network of its own");
        drop(child.stdin.take());
        child.wait().expect("ended");
        assert_eq!(tree.sample(), (Usage::default(), None));
    }
}
