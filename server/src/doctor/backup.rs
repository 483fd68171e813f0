//! The age of the last backup.

use std::path::Path;
use std::time::Duration;

use super::finding::Finding;
use crate::backup::LastBackup;
use crate::clock;
use crate::http::present::span::span;

pub(super) fn examine(data: &Path) -> Finding {
    match LastBackup::read(data) {
        Ok(None) => Finding::ok("backup", "none was made since this store is here"),
        Ok(Some(last)) => {
            let age = clock::now().utc.since(last.made_at.0);
            // The seconds of hours ago say nothing.
            let shown = span(Duration::from_secs(age.as_secs() / 60 * 60));
            let text = format!(
                "the last one is {shown} old: {}, {} MiB at {}",
                last.made_at,
                last.bytes.div_ceil(1 << 20),
                last.to
            );
            match age > OLD {
                true => Finding::warn(
                    "backup",
                    text,
                    "make one with longshore backup, and look why the last ones failed",
                ),
                false => Finding::ok("backup", text),
            }
        }
        Err(error) => Finding::warn(
            "backup",
            format!("the record of the last one cannot be used: {error}"),
            "run this as the server's user; the next longshore backup writes the record again",
        ),
    }
}

/// As the alert `LongshoreBackupOld` has it.
const OLD: Duration = Duration::from_secs(2 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingVerdict;
    use crate::rfc3339::Time;

    #[test]
    fn a_backup_of_two_days_ago_is_a_warning() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(examine(data.path()).verdict, FindingVerdict::Ok);
        for (age, verdict) in [(2 * 24 * 60 - 1, FindingVerdict::Ok), (2 * 24 * 60 + 1, FindingVerdict::Warn)]
        {
            let made_at = Time(clock::now().utc - Duration::from_secs(age * 60));
            LastBackup { made_at, bytes: 1, to: "/backup/x".into() }.write(data.path()).unwrap();
            let found = examine(data.path());
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(found.text.contains("1 MiB at /backup/x"), "{found:?}");
        }
        std::fs::write(data.path().join("last-backup.json"), "x").unwrap();
        assert_eq!(examine(data.path()).verdict, FindingVerdict::Warn);
    }
}
