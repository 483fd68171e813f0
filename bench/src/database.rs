//! The truth about a run: what the database says after the server has closed it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rusqlite::{Connection, OpenFlags};

/// Counts of a closed database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    /// Jobs that have not ended.
    pub(crate) live: u64,
    /// Jobs that have ended well.
    pub(crate) succeeded: u64,
    /// Jobs that have ended otherwise.
    pub(crate) ended_otherwise: u64,
    /// Attempts that have ended well.
    pub(crate) attempts_succeeded: u64,
    /// Attempts that were given back before they started, so that another worker could: no job was tried by them.
    pub(crate) attempts_released: u64,
    /// All other attempts, also those without an end.
    pub(crate) attempts_otherwise: u64,
    /// Bytes that attempts wrote, by their final reports. Whether they are stored is for `output` to say.
    pub(crate) output_bytes: u64,
}

impl Counts {
    /// Counts the jobs with numbers above `after`.
    pub(crate) fn read(data: &Path, after: u64) -> anyhow::Result<Self> {
        let file = file(data)?;
        let database = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .with_context(|| format!("cannot open {}", file.display()))?;
        let count = |query: &str| -> anyhow::Result<u64> {
            let count: i64 = database
                .query_row(query, [i64::try_from(after)?], |row| row.get(0))
                .context(query.to_owned())?;
            Ok(u64::try_from(count)?)
        };
        Ok(Self {
            live: count("SELECT count(*) FROM jobs WHERE id > ?1")?,
            succeeded: count("SELECT count(*) FROM ended WHERE id > ?1 AND state = 6")?,
            ended_otherwise: count("SELECT count(*) FROM ended WHERE id > ?1 AND state <> 6")?,
            attempts_succeeded: count("SELECT count(*) FROM all_attempts WHERE job > ?1 AND outcome = 1")?,
            attempts_released: count("SELECT count(*) FROM all_attempts WHERE job > ?1 AND outcome = 12")?,
            attempts_otherwise: count(
                "SELECT count(*) FROM all_attempts WHERE job > ?1 AND (outcome IS NULL OR outcome NOT IN (1, 12))",
            )?,
            output_bytes: count(
                "SELECT coalesce(sum(stdout_bytes + stderr_bytes), 0) FROM all_attempts WHERE job > ?1",
            )?,
        })
    }

    /// Fails unless every one of `jobs` has succeeded in the first attempt that was not given back unstarted, and nothing else happened.
    pub(crate) fn require_success(&self, jobs: u64) -> anyhow::Result<()> {
        let good = self.succeeded == jobs
            && self.attempts_succeeded == jobs
            && self.attempts_otherwise == 0
            && self.live == 0
            && self.ended_otherwise == 0;
        if !good {
            bail!("of {jobs} jobs the database says {self:?}: this run proves nothing");
        }
        Ok(())
    }
}

/// How large the database is on disk, in bytes.
pub(crate) fn bytes(data: &Path) -> anyhow::Result<u64> {
    Ok(std::fs::metadata(file(data)?)?.len())
}

/// The one SQLite file of a data directory.
fn file(data: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(data).with_context(|| format!("cannot read {}", data.display()))?;
    let begins_right = |path: &PathBuf| {
        let mut head = [0; 16];
        std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head)).is_ok()
            && &head == b"SQLite format 3\0"
    };
    let mut found = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(begins_right);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => bail!("{} holds not exactly one SQLite file", data.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_jobs_that_succeeded_at_the_first_try_are_a_result() {
        let good = Counts { succeeded: 2, attempts_succeeded: 2, attempts_released: 1, ..Counts::default() };
        assert!(good.require_success(2).is_ok());
        for bad in [
            Counts { attempts_otherwise: 1, ..good },
            Counts { attempts_succeeded: 1, ..good },
            Counts { succeeded: 1, ended_otherwise: 1, ..good },
            Counts { live: 1, ..good },
            Counts { succeeded: 3, attempts_succeeded: 3, ..good },
        ] {
            assert!(bad.require_success(2).is_err(), "{bad:?}");
        }
    }
}
