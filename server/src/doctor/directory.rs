//! The directory itself: whose it is, where it lies, who has it, and how much room there is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::finding::Finding;
use crate::storage;
use crate::store::directory as data_directory;
use crate::store::file_names::RESTORING;
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
    let mut findings = vec![access(data, &metadata), file_system(data), lock(data), room(data)];
    if data.join(RESTORING).exists() {
        let text = "a restore was broken off: no server starts here";
        findings.push(Finding::fail("restore", text, "run 'longshore restore' again, with --replace"));
    }
    findings
}

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
