//! The database: whether it is ours and whole, and whether its rows agree with one another.

use std::fs;
use std::path::Path;

use protocol::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::finding::Finding;
use crate::clock;
use crate::store::directory;
use crate::store::sqlite::copy;

/// More than this is not the log of a database that is well: see the store's bounds.
const LOG_BYTES_MAX: u64 = 512 << 20;

pub(super) fn examine(data: &Path, deep: bool) -> Vec<Finding> {
    let file = data.join("longshore.db");
    if !file.exists() {
        let text = format!("there is none in {}", data.display());
        return vec![Finding::warn("store", text, "a server that starts here makes a new one")];
    }
    let identity = match copy::examine(&file) {
        Ok(identity) => identity,
        Err(error) => {
            let text = format!("{:#}", Chain(&error));
            return vec![Finding::fail(
                "store",
                text,
                "keep the directory as it is, and restore a backup elsewhere or with --replace",
            )];
        }
    };
    let text = format!(
        "cluster {}, schema {}, epoch {}, jobs up to {}, {} not ended; quick_check ok",
        identity.cluster, identity.schema, identity.epoch, identity.last_job, identity.live_jobs
    );
    let mut findings = vec![Finding::ok("store", text), log(data)];
    match Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY) {
        Ok(connection) => {
            findings.push(rows(&connection));
            findings.push(retention(&connection, data));
            if deep {
                findings.push(indexes(&connection));
            }
        }
        Err(error) => {
            findings.push(Finding::fail("rows", error.to_string(), "run this as the server's user"))
        }
    }
    findings
}

fn log(data: &Path) -> Finding {
    let bytes = fs::metadata(data.join("longshore.db-wal")).map_or(0, |log| log.len());
    let text = format!("the store's log has {} MiB", bytes >> 20);
    if bytes > LOG_BYTES_MAX {
        Finding::warn(
            "log",
            text,
            "somebody may be reading the file for a long time: a backup, or a shell with an open transaction",
        )
    } else {
        Finding::ok("log", text)
    }
}

/// Rows that contradict each other: what is wrong, and a query that counts it.
const CONTRADICTIONS: [(&str, &str); 7] = [
    ("jobs both live and ended", "SELECT count(*) FROM jobs JOIN ended USING (id)"),
    (
        "jobs with a number that was never given",
        "SELECT count(*) FROM all_jobs WHERE id > (SELECT last_job FROM installation)",
    ),
    (
        "attempts with a number that was never given",
        "SELECT count(*) FROM all_attempts WHERE fence > (SELECT last_fence FROM installation)",
    ),
    ("attempts that share a number", "SELECT count(*) - count(DISTINCT fence) FROM all_attempts"),
    (
        "jobs without their definition",
        "SELECT count(*) FROM all_jobs WHERE definition NOT IN (SELECT id FROM definitions)",
    ),
    (
        "live jobs on a worker that nobody knows",
        "SELECT count(*) FROM jobs WHERE state IN (3, 4) AND worker NOT IN (SELECT id FROM workers)",
    ),
    (
        "jobs whose attempts are miscounted",
        "SELECT count(*) FROM all_jobs j WHERE fence IS NOT NULL
         AND attempts <> 1 + (SELECT count(*) FROM past_attempts p WHERE p.job = j.id)",
    ),
];

/// A running server writes down the time of retention each hour, even if nothing was to be deleted.
fn retention(connection: &Connection, data: &Path) -> Finding {
    let is_running = directory::holder_of(data).is_ok_and(|holder| holder.is_some());
    let sql = "SELECT retention_by FROM installation";
    let last = match connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)) {
        Ok(Some(last)) => Timestamp(last),
        Ok(None) => return Finding::ok("retention", "it has not run yet"),
        Err(error) => return Finding::warn("retention", error.to_string(), "run this as the server's user"),
    };
    let hours = clock::now().utc.since(last).as_secs() / 3_600;
    let text = format!("it ran {hours} hours ago");
    if is_running && hours >= RETENTION_HOURS_MAX {
        Finding::warn("retention", text, "old jobs are not deleted: the server's log says why")
    } else {
        Finding::ok("retention", text)
    }
}

/// After a refused step retention waits an hour; a clock that was set ahead stops it for six.
const RETENTION_HOURS_MAX: u64 = 8;

fn rows(connection: &Connection) -> Finding {
    let mut wrong = Vec::new();
    for (what, query) in CONTRADICTIONS {
        match connection.query_row(query, [], |row| row.get::<_, i64>(0)) {
            Ok(0) => {}
            Ok(count) => wrong.push(format!("{count} {what}")),
            Err(error) => wrong.push(format!("{what}: {error}")),
        }
    }
    if wrong.is_empty() {
        Finding::ok("rows", format!("{} invariants hold", CONTRADICTIONS.len()))
    } else {
        Finding::fail("rows", wrong.join("; "), "keep a copy for the analysis, and restore an older backup")
    }
}

fn indexes(connection: &Connection) -> Finding {
    match connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0)) {
        Ok(verdict) if verdict == "ok" => Finding::ok("indexes", "integrity_check ok"),
        Ok(verdict) => Finding::fail("indexes", verdict, "restore a backup"),
        Err(error) => Finding::fail("indexes", error.to_string(), "restore a backup"),
    }
}

/// An error with its causes, in one line.
struct Chain<'e>(&'e dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
