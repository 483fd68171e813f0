//! The start of the machine under which logs were open last, in a file beside the segments.
//!
//! A machine that loses power may keep a later part of what was written and lose an earlier one. A process that ends loses nothing. So after
//! a restart of the server alone, what is not whole in the last segment is damage, which the worker does not send again.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::store::directory;

/// Returns whether the logs in this directory were open since the machine was started.
#[must_use]
pub fn is_same(logs: &Path) -> bool {
    let boot = directory::boot();
    !boot.is_empty() && fs::read_to_string(logs.join(FILE)).is_ok_and(|before| before == boot)
}

/// Writes down that the logs in this directory are open. Only when they are: until then their end may still have to be read as after a start
/// of the machine. A directory in which this cannot be written counts as one after such a start.
pub fn remember(logs: &Path) {
    let file = logs.join(FILE);
    let write = || {
        let mut open = fs::File::options();
        let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(&file)?;
        std::io::Write::write_all(&mut file, directory::boot().as_bytes())
    };
    if let Err(error) = write() {
        tracing::warn!(%error, file = %file.display(), "cannot be written");
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
        assert!(!is_same(&logs) && !is_same(&logs), "only when the logs are open");
        remember(&logs);
        assert_eq!(is_same(&logs), !directory::boot().is_empty());
        fs::write(logs.join(FILE), "another").unwrap();
        assert!(!is_same(&logs));
    }
}
