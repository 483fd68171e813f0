//! The directory itself: whose it is, where it lies, who has it, and how much room there is.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::finding::Finding;
use crate::storage;
use crate::store::directory as data_directory;
use crate::store::file_names::{DATABASE, RESTORING};
use crate::store::file_system::on_network;

pub(super) fn examine(data: &Path) -> Vec<Finding> {
    let shown = data.display();
    let metadata = match fs::metadata(data) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            return vec![Finding::fail(
                "directory",
                format!("{shown} is no directory"),
                "name another with --data",
            )];
        }
        Err(error) => {
            return vec![Finding::fail(
                "directory",
                format!("{shown}: {error}"),
                "name another with --data, or become its owner",
            )];
        }
    };
    if let Some(finding) = foreign_user(data, &metadata) {
        return vec![finding];
    }
    let mut findings = vec![access(data, &metadata), file_system(data), lock(data), room(data)];
    findings.extend(unwritable(data, &metadata));
    if data.join(RESTORING).exists() {
        let text = "a restore was broken off: no server starts here";
        findings.push(Finding::fail("restore", text, "run 'longshore restore' again, with --replace"));
    }
    findings
}

/// Another user than the directory's may neither look into it nor open the files in it: every other check would fail for that.
fn foreign_user(data: &Path, metadata: &fs::Metadata) -> Option<Finding> {
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let denied = match fs::read_dir(data) {
        Err(error) => Some(error),
        Ok(_) => {
            let opened = [DATABASE, "lock", "logs"].iter().map(|name| fs::File::open(data.join(name)));
            opened.filter_map(Result::err).find(is_denied)
        }
    };
    denied.filter(is_denied)?;
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let mode = metadata.permissions().mode() & 0o777;
    let shown = data.display();
    let text = format!(
        "{shown} is user {owner}'s, mode {mode:04o}; this is user {own}, who cannot read what is in it"
    );
    Some(match owner == own {
        true => Finding::fail("directory", text, format!("give yourself access: chmod -R u+rwX {shown}")),
        false => {
            let next =
                format!("run this as the server's user: sudo -u '#{owner}' longshore doctor --data {shown}");
            Finding::fail("directory", text, next)
        }
    })
}

/// No server can start in such a directory, and one that runs stops accepting jobs.
fn unwritable(data: &Path, metadata: &fs::Metadata) -> Option<Finding> {
    let shown = data.display();
    let flags = rustix::fs::statvfs(data).map(|disk| disk.f_flag).ok()?;
    if flags.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        let text = format!("{shown} is on a file system that is mounted read-only: no server can start here");
        let next = "an error of the disk may be the cause: look at dmesg, then mount it for writing (mount -o remount,rw), or restore a backup to another disk";
        return Some(Finding::fail(WRITING, text, next));
    }
    let mode = metadata.permissions().mode();
    let text =
        format!("its owner may not write to {shown}, mode {:04o}: no server can start here", mode & 0o777);
    (mode & 0o300 != 0o300).then(|| Finding::fail(WRITING, text, format!("chmod 700 {shown}")))
}

/// The check whether a server can write.
pub(super) const WRITING: &str = "writing";

fn access(data: &Path, metadata: &fs::Metadata) -> Finding {
    let mode = metadata.permissions().mode() & 0o777;
    let text = format!("{} is user {}'s, mode {mode:04o}", data.display(), metadata.uid());
    if mode & 0o077 == 0 {
        Finding::ok("directory", text)
    } else {
        let next = format!("environments and output may hold secrets: chmod 700 {}", data.display());
        Finding::warn("directory", text, next)
    }
}

fn file_system(data: &Path) -> Finding {
    match on_network(data) {
        Ok(None) => Finding::ok("file system", "not on a network"),
        Ok(Some(name)) => Finding::fail(
            "file system",
            format!("the directory is on {name}"),
            "move it to a local disk: locks and syncs over a network cannot be trusted",
        ),
        Err(error) => Finding::warn(
            "file system",
            format!("cannot be examined: {error}"),
            "check that it is a local disk",
        ),
    }
}

pub(super) fn lock(data: &Path) -> Finding {
    match data_directory::holder_of(data) {
        Ok(Some(holder)) => Finding::ok("lock", format!("a server has it: {holder}")),
        Ok(None) => Finding::ok("lock", "nobody has it: no server runs here"),
        Err(error) => {
            Finding::warn("lock", format!("cannot be looked at: {error}"), "run this as the server's user")
        }
    }
}

fn room(data: &Path) -> Finding {
    let disk = match rustix::fs::statvfs(data) {
        Ok(disk) => disk,
        Err(error) => return Finding::warn("room", format!("cannot be measured: {error}"), "look with df"),
    };
    let [free, total] = [disk.f_bavail, disk.f_blocks].map(|blocks| blocks.saturating_mul(disk.f_frsize));
    let mark = storage::low_water_mark(total);
    let text = format!(
        "{} MiB free of {} MiB; below {} MiB no jobs are accepted",
        free >> 20,
        total >> 20,
        mark >> 20
    );
    if free < mark {
        Finding::fail("room", text, "make room: jobs are refused with 507 until then")
    } else if free < 2 * mark {
        Finding::warn("room", text, "make room, or keep ended jobs for a shorter time")
    } else {
        Finding::ok("room", text)
    }
}
