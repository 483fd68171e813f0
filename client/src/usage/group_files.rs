//! The kernel's files of one control group, in both versions.

use std::path::PathBuf;

use protocol::Usage;

use super::proc_files::{keyed, number, read};

/// The directories in which these files are.
#[derive(Debug)]
pub(super) enum GroupFiles {
    Version1 { cpu: Option<PathBuf>, memory: PathBuf, io: Option<PathBuf> },
    Version2(PathBuf),
}

impl GroupFiles {
    pub(super) fn sample(&self) -> (Usage, Option<u64>) {
        match self {
            Self::Version1 { cpu, memory, io } => {
                let usage = Usage {
                    cpu_ms: cpu
                        .as_ref()
                        .and_then(|it| number(&it.join("cpuacct.usage")))
                        .map(|ns| ns / 1_000_000),
                    memory_peak_bytes: number(&memory.join("memory.max_usage_in_bytes")),
                    ..io.as_ref()
                        .and_then(|it| IO_VERSION_1.iter().find_map(|name| read(&it.join(name))))
                        .map(|it| io_version_1(&it))
                        .unwrap_or_default()
                };
                let stat = || read(&memory.join("memory.stat"));
                (
                    usage,
                    without_cache(number(&memory.join("memory.usage_in_bytes")), stat, "total_inactive_file"),
                )
            }
            Self::Version2(group) => {
                let now = number(&group.join("memory.current"));
                let usage = Usage {
                    cpu_ms: read(&group.join("cpu.stat"))
                        .and_then(|it| keyed(&it, "usage_usec"))
                        .map(|us| us / 1_000),
                    // Before Linux 5.19 there is no peak; the largest sample takes its place.
                    memory_peak_bytes: number(&group.join("memory.peak")).or(now),
                    ..read(&group.join("io.stat")).map(|it| io_version_2(&it)).unwrap_or_default()
                };
                (usage, without_cache(now, || read(&group.join("memory.stat")), "inactive_file"))
            }
        }
    }

    /// The kernel counts kills in this group also when the machine's memory was short; then the group did not reach its own limit.
    pub(super) fn was_oom_killed(&self) -> bool {
        let is_counted =
            |file: PathBuf, key| read(&file).and_then(|it| keyed(&it, key)).is_some_and(|it| it > 0);
        match self {
            Self::Version1 { memory, .. } => {
                is_counted(memory.join("memory.oom_control"), "oom_kill")
                    && number(&memory.join("memory.max_usage_in_bytes"))
                        .zip(number(&memory.join("memory.limit_in_bytes")))
                        .is_some_and(|(peak, limit)| peak.saturating_add(LARGEST_CHARGE) > limit)
            }
            Self::Version2(group) => {
                let events = group.join("memory.events");
                is_counted(events.clone(), "oom_kill") && is_counted(events, "oom")
            }
        }
    }

    /// Numbers of its processes, also of those that crun puts into a group of their own. Processes of another process namespace have the
    /// number zero and are left out.
    pub(super) fn processes(&self) -> Vec<u32> {
        let groups = match self {
            Self::Version1 { memory, .. } => vec![memory.clone()],
            Self::Version2(group) => vec![group.clone(), group.join(CRUN_GROUP)],
        };
        let listed = groups.iter().filter_map(|group| read(&group.join("cgroup.procs")));
        let numbers =
            |listed: String| listed.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>();
        listed.flat_map(numbers).filter(|pid| *pid != 0).collect()
    }
}

/// Podman with crun has the processes of a container in this group below that of the container.
const CRUN_GROUP: &str = "container";

/// Memory without page cache that was not used lately, as `docker stats` shows it.
fn without_cache(now: Option<u64>, stat: impl FnOnce() -> Option<String>, key: &str) -> Option<u64> {
    let now = now?;
    Some(now.saturating_sub(stat().and_then(|it| keyed(&it, key)).unwrap_or(0)))
}

/// Lines like `8:0 Read 4096`.
fn io_version_1(text: &str) -> Usage {
    let sum = |operation: &str| {
        let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines
            .filter_map(|it| it.get(1..3).filter(|it| it[0] == operation)?[1].parse().ok())
            .fold(0, u64::saturating_add)
    };
    Usage { disk_read_bytes: Some(sum("Read")), disk_written_bytes: Some(sum("Write")), ..Usage::default() }
}

/// Lines like `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`.
fn io_version_2(text: &str) -> Usage {
    let sum = |key: &str| {
        let words = text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        words.filter_map(|it| it.parse().ok()).fold(0, u64::saturating_add)
    };
    Usage {
        disk_read_bytes: Some(sum("rbytes")),
        disk_written_bytes: Some(sum("wbytes")),
        ..Usage::default()
    }
}

/// The second one is of older kernels.
const IO_VERSION_1: [&str; 2] =
    ["blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"];

/// Memory that a group asks for at once at most: a huge page. A limit that refuses it may not be reached to the last byte. The counters
/// of refusals (`failcnt`) do not help: some kernels leave them at zero where the limit with swap is the same.
const LARGEST_CHARGE: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_lines_count_nothing() {
        assert_eq!(io_version_2("8:0 rbytes=x wbytes=\nrbytes\n").disk_read_bytes, Some(0));
        assert_eq!(io_version_1("8:0 Read\nRead 7\n\n8:0 Read x\n").disk_read_bytes, Some(0));
    }
}
