//! Control groups of containers: where they are, and what they tell. Both versions are read; version 1 has a directory for each controller.
//!
//! A container's group has the id of the container in its name, so a directory that is found belongs to this container and to no other.

use std::fs::File;
use std::path::{Path, PathBuf};

use protocol::Usage;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::group_files::GroupFiles;
use super::proc_files::{network, read, read_again};

/// Path of a container's group below the mount point, with [`ID`] in the place of the id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layout(String);

/// The mounted hierarchies of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    unified: Option<PathBuf>,
    cpu: Option<PathBuf>,
    memory: Option<PathBuf>,
    io: Option<PathBuf>,
}

/// The group of one container.
#[derive(Debug)]
pub(super) struct ContainerGroup {
    files: GroupFiles,
    /// `/proc/<pid>/net/dev`, which stays readable after the process.
    network: Option<File>,
    /// The first process of the container, if it can be watched.
    pub(super) init_process: Option<OwnedFd>,
}

impl Layout {
    /// The usual places: Docker without and with systemd, Docker without root, Podman with and without root.
    pub(super) fn usual() -> Vec<Self> {
        let user = rustix::process::getuid().as_raw();
        let slice = format!("user.slice/user-{user}.slice/user@{user}.service");
        [
            format!("docker/{ID}"),
            format!("system.slice/docker-{ID}.scope"),
            format!("{slice}/user.slice/docker-{ID}.scope"),
            format!("machine.slice/libpod-{ID}.scope"),
            format!("{slice}/user.slice/libpod-{ID}.scope"),
        ]
        .map(Self)
        .into()
    }

    fn path(&self, container: &str) -> PathBuf {
        self.0.replace(ID, container).into()
    }
}

/// The layout of the container's group in this `/proc/<pid>/cgroup`. The process may be in a group below it: crun makes one, and so does
/// systemd inside of a container. `None` if the process is not of this container, or if its group is outside of what this process sees.
pub(crate) fn layout_of(groups: &str, container: &str) -> Option<Layout> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let relevant = paths.filter_map(|path| path.strip_prefix('/'));
    let is_own = |path: &&str| path.rsplit('/').next().is_some_and(|it| it.contains(container));
    let mut own = relevant.filter(|path| !path.starts_with("..")).filter_map(|path| {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        [Some(path), parent].into_iter().flatten().find(is_own)
    });
    own.next().map(|path| Layout(path.replace(container, ID)))
}

impl Hierarchies {
    /// Those in this `/proc/self/mountinfo`. Only mounts of a whole hierarchy count, because paths are relative to it.
    pub(super) fn of(mounts: &str) -> Self {
        let mut found = Self::default();
        for line in mounts.lines() {
            let Some((mount, kind)) = line.split_once(" - ") else { continue };
            let fields: Vec<&str> = mount.split(' ').collect();
            let [_, _, _, "/", point, ..] = fields[..] else { continue };
            let mut kind = kind.split(' ');
            let (name, options) = (kind.next(), kind.nth(1).unwrap_or_default());
            let has = |controller: &str| options.split(',').any(|it| it == controller);
            match name {
                Some("cgroup2") => found.unified = found.unified.or_else(|| Some(point.into())),
                Some("cgroup") => {
                    for (place, controller) in
                        [(&mut found.cpu, "cpuacct"), (&mut found.memory, "memory"), (&mut found.io, "blkio")]
                    {
                        if has(controller) {
                            place.get_or_insert_with(|| point.into());
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Opens the group of a container at one of these layouts.
    pub(super) fn open(
        &self,
        container: &str,
        layouts: &[Layout],
        has_network: bool,
    ) -> Option<ContainerGroup> {
        // The id becomes a part of paths. Anything but hexadecimal digits could lead to the group of something else.
        let files = layouts
            .iter()
            .filter(|_| container.len() >= ID_BYTES_MIN && container.bytes().all(|it| it.is_ascii_hexdigit()))
            .find_map(|layout| self.find(&layout.path(container)))?;
        let mut group = ContainerGroup { files, network: None, init_process: None };
        let first = group.find_init();
        if let Some((pid, first)) = first {
            let dev = format!("/proc/{pid}/net/dev");
            group.network = File::open(dev).ok().filter(|_| has_network);
            group.init_process = Some(first);
        }
        Some(group)
    }

    fn find(&self, group: &Path) -> Option<GroupFiles> {
        let below =
            |mount: &Option<PathBuf>| mount.as_ref().map(|it| it.join(group)).filter(|it| it.is_dir());
        if let Some(memory) = below(&self.memory) {
            return Some(GroupFiles::Version1 { cpu: below(&self.cpu), memory, io: below(&self.io) });
        }
        // With the controllers in version 1 the unified hierarchy may be mounted for other purposes.
        below(&self.unified).filter(|it| it.join("memory.current").exists()).map(GroupFiles::Version2)
    }
}

impl ContainerGroup {
    /// Resources that the container has used, and its memory now. All figures are absent once the group is gone.
    pub(super) fn sample(&self) -> (Usage, Option<u64>) {
        let (mut usage, memory_bytes) = self.files.sample();
        if let Some((received, sent)) = self.network.as_ref().and_then(read_again).map(|dev| network(&dev)) {
            usage.network_received_bytes = Some(received);
            usage.network_sent_bytes = Some(sent);
        }
        (usage, memory_bytes)
    }

    /// `true` if the kernel has killed one of its processes, and its memory was at the limit. False once the group is gone.
    pub(super) fn was_oom_killed(&self) -> bool {
        self.files.was_oom_killed()
    }

    /// The first process of the container: PID 1 in its namespace.
    fn find_init(&self) -> Option<(u32, OwnedFd)> {
        let is_first = |pid: &u32| {
            let status = read(Path::new(&format!("/proc/{pid}/status"))).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            numbers.is_some_and(|it| it.split_whitespace().next_back() == Some("1"))
        };
        let pid = self.files.processes().into_iter().take(PROCESSES_TRIED).find(is_first)?;
        let first = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
        // If it is still a member after it was opened, the PID was not used again.
        self.files.processes().contains(&pid).then_some((pid, first))
    }
}

/// The place of the id in a [`Layout`].
const ID: &str = "{id}";

/// Ids of containers have 64 digits; 12 is the short form.
const ID_BYTES_MIN: usize = 12;

/// Processes that are looked at for the first one. A container that just started has one or two.
const PROCESSES_TRIED: usize = 8;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CONTAINER: &str = "038e1a3e3a9047dc1b3e3c1b20169005c09af61775c80dbcecc78fb2eae85342";

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = root.path().join(path.replace(ID, CONTAINER));
            fs::create_dir_all(path.parent().expect("a parent"))
                .and_then(|()| fs::write(path, content))
                .expect("written");
        }
        root
    }

    fn version_1() -> tempfile::TempDir {
        tree(&[
            ("cpu,cpuacct/docker/{id}/cpuacct.usage", "1730123456\n"),
            ("memory/docker/{id}/memory.usage_in_bytes", "41943040\n"),
            ("memory/docker/{id}/memory.max_usage_in_bytes", "67108864\n"),
            ("memory/docker/{id}/memory.stat", "inactive_file 5\ntotal_inactive_file 8388608\n"),
            ("memory/docker/{id}/cgroup.procs", "0\n"),
            (
                "blkio/docker/{id}/blkio.throttle.io_service_bytes",
                "8:0 Read 4096\n8:0 Write 0\n8:0 Total 4096\n8:16 Read 1000\n8:16 Write 24\nTotal 5120\n",
            ),
        ])
    }

    fn mounts(root: &Path, version_1: bool) -> Hierarchies {
        let root = root.display();
        Hierarchies::of(&if version_1 {
            format!(
                "30 25 0:26 / {root}/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                 31 25 0:27 / {root}/memory rw - cgroup cgroup rw,memory\n\
                 32 25 0:28 / {root}/blkio rw - cgroup cgroup rw,blkio\n\
                 33 25 0:29 / {root}/unified rw - cgroup2 cgroup2 rw\n\
                 34 25 0:30 / /proc rw - proc proc rw\n"
            )
        } else {
            format!("30 25 0:26 / {root} rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n")
        })
    }

    #[test]
    fn a_group_of_version_1_is_read_from_its_controllers() {
        let root = version_1();
        let group = mounts(root.path(), true).open(CONTAINER, &Layout::usual(), true).expect("found");
        let usage = Usage {
            cpu_ms: Some(1_730),
            memory_peak_bytes: Some(64 << 20),
            disk_read_bytes: Some(5_096),
            disk_written_bytes: Some(24),
            ..Usage::default()
        };
        assert_eq!(group.sample(), (usage, Some(32 << 20)));
        drop(root);
        assert_eq!(group.sample(), (Usage::default(), None), "a group that is gone tells nothing, not zero");
    }

    #[test]
    fn a_group_of_version_2_is_read_with_and_without_a_peak() {
        let group = "system.slice/docker-{id}.scope";
        let file = |name: &str| format!("{group}/{name}");
        let root = tree(&[
            (&file("cpu.stat"), "usage_usec 1730123\nuser_usec 1\nsystem_usec 2\n"),
            (&file("memory.current"), "41943040\n"),
            (&file("memory.peak"), "50000000\n"),
            (&file("memory.stat"), "anon 1\ninactive_file 1048576\n"),
            (
                &file("io.stat"),
                "8:0 rbytes=4096 wbytes=10 rios=1 wios=1 dbytes=0 dios=0\n259:1 rbytes=4 wbytes=1\n",
            ),
        ]);
        let group = mounts(root.path(), false).open(CONTAINER, &Layout::usual(), true).expect("found");
        let usage = Usage {
            cpu_ms: Some(1_730),
            memory_peak_bytes: Some(50_000_000),
            disk_read_bytes: Some(4_100),
            disk_written_bytes: Some(11),
            ..Usage::default()
        };
        assert_eq!(group.sample(), (usage, Some(39 << 20)));
        let GroupFiles::Version2(path) = &group.files else { panic!("{group:?}") };
        fs::remove_file(path.join("memory.peak"))
            .and_then(|()| fs::remove_file(path.join("io.stat")))
            .expect("removed");
        let older = Usage {
            memory_peak_bytes: Some(40 << 20),
            disk_read_bytes: None,
            disk_written_bytes: None,
            ..usage
        };
        assert_eq!(group.sample().0, older);
    }

    #[test]
    fn a_kill_for_the_limit_is_told_from_one_for_the_machine_s_memory_in_version_1() {
        let root = version_1();
        let group = mounts(root.path(), true).open(CONTAINER, &Layout::usual(), true).expect("found");
        let killed = |oom_control: &str, limit: u64| {
            let memory = root.path().join("memory/docker").join(CONTAINER);
            fs::write(memory.join("memory.oom_control"), oom_control)
                .and_then(|()| fs::write(memory.join("memory.limit_in_bytes"), format!("{limit}\n")))
                .expect("written");
            group.was_oom_killed()
        };
        // The peak of this group is 64 MiB.
        let one = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        assert_eq!([killed(one, 64 << 20), killed(one, (66 << 20) - 1)], [true; 2]);
        assert_eq!([killed(one, 66 << 20), killed(one, 9_223_372_036_854_771_712)], [false; 2]);
        assert!(!killed("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", 64 << 20));
        assert!(!killed("oom_kill_disable 0\nunder_oom 0\n", 64 << 20), "an older kernel does not count");
    }

    #[test]
    fn a_kill_for_the_limit_is_told_from_one_for_the_machine_s_memory_in_version_2() {
        let root = tree(&[("docker/{id}/memory.current", "5\n")]);
        let group = mounts(root.path(), false).open(CONTAINER, &Layout::usual(), true).expect("found");
        assert!(!group.was_oom_killed(), "nothing is known");
        let killed = |oom, kills| {
            let events = format!("low 0\nhigh 0\nmax 77\noom {oom}\noom_kill {kills}\noom_group_kill 0\n");
            let file = root.path().join("docker").join(CONTAINER).join("memory.events");
            fs::write(file, events).expect("written");
            group.was_oom_killed()
        };
        assert_eq!([killed(1, 2), killed(0, 1), killed(1, 0)], [true, false, false]);
    }

    #[test]
    fn files_with_other_content_give_no_figures() {
        let root = version_1();
        for name in ["cpu,cpuacct/docker/{id}/cpuacct.usage", "memory/docker/{id}/memory.max_usage_in_bytes"]
        {
            for content in ["", "max\n", "-1\n", "99999999999999999999999\n", "1 2\n"] {
                fs::write(root.path().join(name.replace(ID, CONTAINER)), content).expect("written");
            }
        }
        let group = mounts(root.path(), true).open(CONTAINER, &Layout::usual(), true).expect("found");
        assert_eq!((group.sample().0.cpu_ms, group.sample().0.memory_peak_bytes), (None, None));
    }

    #[test]
    fn processes_in_the_group_that_crun_makes_are_found() {
        let group = "machine.slice/libpod-{id}.scope";
        let root = tree(&[
            (&format!("{group}/memory.current"), "5\n"),
            (&format!("{group}/cgroup.procs"), ""),
            (&format!("{group}/container/cgroup.procs"), "17\n0\n18\n"),
        ]);
        let found = mounts(root.path(), false).open(CONTAINER, &Layout::usual(), true).expect("found");
        assert_eq!(found.files.processes(), [17, 18]);
        let path = root.path().join(group.replace(ID, CONTAINER));
        fs::write(path.join("cgroup.procs"), "16\n").expect("written");
        assert_eq!(found.files.processes(), [16, 17, 18]);
    }

    #[test]
    fn only_the_group_of_the_container_itself_is_found() {
        let root = version_1();
        let hierarchies = mounts(root.path(), true);
        for name in ["..", "", "038e1a", "../docker/038e1a3e3a90", &CONTAINER[..12]] {
            assert!(hierarchies.open(name, &Layout::usual(), true).is_none(), "{name:?}");
        }
    }

    #[test]
    fn a_layout_is_learned_from_a_process_of_the_container_only() {
        let groups = |path: &str| format!("12:memory:{path}\n0::{path}\n").replace(ID, CONTAINER);
        let own = groups("/jobs.slice/docker-{id}.scope");
        assert_eq!(layout_of(&own, CONTAINER), Some(Layout("jobs.slice/docker-{id}.scope".into())));
        assert_eq!(layout_of(&own, &"a".repeat(64)), None, "the number belongs to another process here");
        assert_eq!(layout_of(&groups("/../docker/{id}"), CONTAINER), None, "outside of our namespace");
        assert_eq!(layout_of("0::/\n", CONTAINER), None);
        let crun = groups("/machine.slice/libpod-{id}.scope/container");
        assert_eq!(layout_of(&crun, CONTAINER), Some(Layout("machine.slice/libpod-{id}.scope".into())));
        assert_eq!(layout_of(&groups("/docker/{id}/a/b"), CONTAINER), None, "too deep");
        assert_eq!(layout_of(&groups("/../{id}/container"), CONTAINER), None, "outside of our namespace");
    }
}
