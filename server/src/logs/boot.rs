//! The start of the machine under which logs were open last, in a file beside the segments.
//!
//! A machine that loses power may keep a later part of what was written and lose an earlier one. A process that ends loses nothing. So after
//! a restart of the server alone, what is not whole in the last segment is damage, which the worker does not send again.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::store::directory;

/// True if the logs in this directory were open since the machine was started.
#[must_use]
pub fn is_same_as_last_time(logs: &Path) -> bool {
    let boot = directory::boot();
    !boot.is_empty() && fs::read_to_string(logs.join(FILE)).is_ok_and(|before| before == boot)
}

/// Records the boot id of this machine in the directory of the logs. Call it when they are open: until then their end may still have to be
/// checked as after a power failure. So is the end of logs in a directory that has no record of this boot.
pub fn record_boot_id(logs: &Path) {
    let file = logs.join(FILE);
    let write = || {
        let mut open = fs::File::options();
        let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(&file)?;
        std::io::Write::write_all(&mut file, directory::boot().as_bytes())
    };
    if let Err(error) = write() {
        tracing::warn!(%error, file = %file.display(), "cannot record the boot id; the next start checks the end of the logs as after a power failure");
    }
}

const FILE: &str = "boot";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_is_under_the_same_start_of_the_machine() {
        let place = tempfile::tempdir().unwrap();
        let logs = place.path().join("logs");
        directory::make(&logs).unwrap();
        assert!(!is_same_as_last_time(&logs) && !is_same_as_last_time(&logs), "only when the logs are open");
        record_boot_id(&logs);
        assert_eq!(is_same_as_last_time(&logs), !directory::boot().is_empty());
        fs::write(logs.join(FILE), "another").unwrap();
        assert!(!is_same_as_last_time(&logs));
    }
}
