//! The age of the last complete backup, and the failure of one after it.

use std::path::Path;
use std::time::Duration;

use super::finding::Finding;
use crate::backup::{BackupError, FailedBackup, LastBackup};
use crate::clock;
use crate::http::present::span::span;

pub(super) fn examine(data: &Path) -> Finding {
    let last = match LastBackup::read(data) {
        Ok(last) => last,
        Err(error) => return unreadable("the last one", &error),
    };
    match FailedBackup::read(data) {
        Ok(None) => {}
        Ok(Some(failed)) => return failure(&failed, last.as_ref()),
        Err(error) => return unreadable("the last failed one", &error),
    }
    let Some(last) = last else { return Finding::ok("backup", "none was made since this store is here") };
    let age = clock::now().utc.since(last.made_at.0);
    let text = format!(
        "the last one is {} old: {}, {} MiB at {}",
        minutes(age),
        last.made_at,
        last.bytes.div_ceil(1 << 20),
        last.to
    );
    match age > OLD {
        true => Finding::warn(
            "backup",
            text,
            "make one with longshore backup, and look why the timer that makes them did not",
        ),
        false => Finding::ok("backup", text),
    }
}

fn failure(failed: &FailedBackup, last: Option<&LastBackup>) -> Finding {
    let age = minutes(clock::now().utc.since(failed.failed_at.0));
    let before = match last {
        Some(last) => format!("the last complete one is of {}, at {}", last.made_at, last.to),
        None => "no complete one was made before".to_owned(),
    };
    let text = format!(
        "the last one failed {age} ago, at {}, to {}: {}; {before}",
        failed.failed_at, failed.to, failed.reason
    );
    Finding::fail("backup", text, "mend the cause, and make one with longshore backup")
}

fn unreadable(which: &str, error: &BackupError) -> Finding {
    Finding::warn(
        "backup",
        format!("the record of {which} cannot be used: {error}"),
        "run this as the server's user; the next longshore backup writes the record again",
    )
}

/// A span without its seconds: those of hours ago say nothing.
fn minutes(age: Duration) -> String {
    span(Duration::from_secs(age.as_secs() / 60 * 60))
}

/// As the alert `LongshoreBackupOld` has it.
const OLD: Duration = Duration::from_secs(2 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;
    use crate::rfc3339::Time;

    #[test]
    fn a_backup_of_two_days_ago_is_a_warning() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(examine(data.path()).verdict, CheckStatus::Ok);
        for (age, verdict) in [(2 * 24 * 60 - 1, CheckStatus::Ok), (2 * 24 * 60 + 1, CheckStatus::Warn)] {
            let made_at = Time(clock::now().utc - Duration::from_secs(age * 60));
            LastBackup { made_at, bytes: 1, to: "/backup/x".into() }.write(data.path()).unwrap();
            let found = examine(data.path());
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(found.text.contains("1 MiB at /backup/x"), "{found:?}");
        }
        std::fs::write(data.path().join("longshore.db"), "").unwrap();
        FailedBackup::now("the disk is full", Path::new("/backup/y")).write(data.path()).unwrap();
        let found = examine(data.path());
        assert_eq!(found.verdict, CheckStatus::Fail, "{found:?}");
        for expected in ["to /backup/y: the disk is full", "at /backup/x"] {
            assert!(found.text.contains(expected), "{found:?}");
        }
        std::fs::write(data.path().join("failed-backup.json"), "x").unwrap();
        assert_eq!(examine(data.path()).verdict, CheckStatus::Warn);
        std::fs::write(data.path().join("last-backup.json"), "x").unwrap();
        assert_eq!(examine(data.path()).verdict, CheckStatus::Warn);
    }
}
