//! The engine beside this process, in the same container: "Docker in Docker".
//!
//! A worker in a container usually talks to the engine of the machine, through a socket that is mounted into the container. Some containers
//! have an engine of their own, though. Then the process that listens on the socket is here, and sees the same files as the worker.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `true` if an engine of this mount namespace listens on this socket. `false` if that cannot be told: a worker needs the rights of
/// the engine's user to look into its process. A program that only forwards to another engine (`socat`, a proxy) does not count.
pub(super) fn listens_here(socket: &Path) -> bool {
    is_held_here(socket, is_engine)
}

fn is_held_here(socket: &Path, is_engine: impl Fn(&Path) -> bool) -> bool {
    let sockets = table_of_sockets();
    let Ok(own_mounts) = fs::read_link("/proc/self/ns/mnt") else { return false };
    let inodes = listening_inodes(&sockets, &resolved(socket));
    let links: Vec<PathBuf> = inodes.into_iter().map(|inode| format!("socket:[{inode}]").into()).collect();
    if links.is_empty() {
        return false;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes.filter(|process| is_engine(process)).any(|process| {
        fs::read_link(process.join("ns/mnt")).is_ok_and(|mounts| mounts == own_mounts)
            && has_open(&process, &links).unwrap_or(false)
    })
}

/// The kernel's table of sockets; empty if it cannot be read. Names of sockets can be any bytes.
fn table_of_sockets() -> String {
    fs::read("/proc/net/unix").map(|table| String::from_utf8_lossy(&table).into_owned()).unwrap_or_default()
}

/// The path without links in its directory: `/var/run` is one on most systems, and an engine may have been told either path.
fn resolved(socket: &Path) -> PathBuf {
    let directory = socket.parent().and_then(|directory| fs::canonicalize(directory).ok());
    match (directory, socket.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => socket.to_owned(),
    }
}

/// The inodes of the sockets with this path that somebody listens on. A line of the table is `Num: RefCount Protocol Flags Type St Inode Path`.
fn listening_inodes<'t>(table: &'t str, socket: &Path) -> Vec<&'t str> {
    let inode_of = |line: &'t str| {
        let mut fields = line.split_ascii_whitespace();
        let (flags, inode) = (fields.nth(3)?, fields.nth(2)?);
        let is_listening = u32::from_str_radix(flags, 16).ok()? & LISTENS != 0;
        let path = Path::new(fields.next()?);
        // Names first: to resolve the directory of a foreign socket could hang on its file system.
        let is_it = path.file_name() == socket.file_name() && resolved(path) == *socket;
        (is_listening && is_it).then_some(inode)
    };
    table.lines().skip(1).filter_map(inode_of).collect()
}

/// The flag `__SO_ACCEPTCON` of the kernel's table of sockets.
const LISTENS: u32 = 1 << 16;

/// The process is an engine, by the name of its program.
fn is_engine(process: &Path) -> bool {
    fs::read_to_string(process.join("comm"))
        .is_ok_and(|name| ["dockerd", "podman"].contains(&name.trim_end()))
}

fn has_open(process: &Path, links: &[PathBuf]) -> io::Result<bool> {
    let mut files = fs::read_dir(process.join("fd"))?.flatten();
    Ok(files.any(|file| fs::read_link(file.path()).is_ok_and(|target| links.contains(&target))))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const TABLE: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 4711 /engine/docker.sock
0000000000000000: 00000003 00000000 00000000 0001 03 4712 /engine/docker.sock
0000000000000000: 00000002 00000000 00010000 0001 01 4713 /engine/other.sock
0000000000000000: 00000002 00000000 00010000 0001 01 4714
broken
";

    #[test]
    fn only_sockets_that_somebody_listens_on_count() {
        assert_eq!(listening_inodes(TABLE, Path::new("/engine/docker.sock")), ["4711"]);
        assert!(listening_inodes(TABLE, Path::new("/engine/absent.sock")).is_empty());
    }

    #[test]
    fn only_the_socket_of_an_engine_that_listens_counts() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("docker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let is_self = |process: &Path| process.ends_with(std::process::id().to_string());
        assert!(is_held_here(&socket, is_self), "this process listens");
        assert!(!listens_here(&socket), "this process is no engine");
        drop(listener);
        assert!(!is_held_here(&socket, is_self), "nobody listens any more");
    }

    #[test]
    fn a_link_in_the_path_of_a_socket_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("run")).unwrap();
        std::os::unix::fs::symlink("run", root.join("linked")).unwrap();
        assert_eq!(resolved(&root.join("linked/docker.sock")), root.join("run/docker.sock"));
    }
}
