//! A look at a data directory with the eyes of the next start of this build, for `longshore upgrade-check`. Nothing is changed.

use std::path::Path;

use super::directory;
use super::finding::Finding;
use crate::storage;
use crate::store::file_names::RESTORING;
use crate::store::sqlite::upgrade::{UpgradePlan, plan};

/// Looks at the store of a data directory as the next start would: its schema, and the room for the copy before a migration.
#[must_use]
pub fn examine_upgrade(data: &Path) -> Vec<Finding> {
    let shown = data.display();
    if !data.is_dir() {
        let text = format!("{shown} is not a directory that this user can read");
        return vec![Finding::fail(
            "data",
            text,
            "name another with --data, or run this as the server's user",
        )];
    }
    if data.join(RESTORING).exists() {
        let text = format!("{shown}: a restore was broken off, and no server starts here");
        return vec![Finding::fail("data", text, "run 'longshore restore' again, with --replace")];
    }
    let file = data.join("longshore.db");
    if !file.exists() {
        let text = format!("{shown} has no store");
        return vec![Finding::warn("store", text, "a server that starts here makes a new one; check --data")];
    }
    let mut findings = vec![directory::lock(data)];
    match plan(&file) {
        Ok(plan) => {
            findings.push(schema(&plan));
            findings.push(room(data, &plan));
        }
        Err(error) => findings.push(Finding::fail(
            "store",
            error.to_string(),
            "keep the program that made it; 'longshore doctor' shows more",
        )),
    }
    findings
}

fn schema(plan: &UpgradePlan) -> Finding {
    let UpgradePlan { schema, newest, migrations, .. } = plan;
    match migrations.len() {
        0 => Finding::ok("store", format!("schema {schema}: nothing to migrate")),
        _ => {
            let steps = migrations.join(", ");
            Finding::ok("store", format!("schema {schema} can be migrated to {newest}: {steps}"))
        }
    }
}

/// The copy is made in the data directory, and jobs are accepted only while some room is left.
fn room(data: &Path, plan: &UpgradePlan) -> Finding {
    if plan.copy_bytes == 0 {
        return Finding::ok("room", "no copy of the store is made");
    }
    let disk = match rustix::fs::statvfs(data) {
        Ok(disk) => disk,
        Err(error) => return Finding::warn("room", format!("cannot be measured: {error}"), "look with df"),
    };
    let [free, total] = [disk.f_bavail, disk.f_blocks].map(|blocks| blocks.saturating_mul(disk.f_frsize));
    judge_room(free, plan.copy_bytes, storage::low_water_mark(total))
}

fn judge_room(free: u64, copy: u64, mark: u64) -> Finding {
    // Rounded up: a small store needs some room, too.
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let text = format!(
        "the copy before the migration needs {} MiB, of {} MiB that are free",
        mebibytes(copy),
        free >> 20
    );
    if free < copy {
        Finding::fail(
            "room",
            text,
            "make room, or move the data directory to a larger disk: the server would not start",
        )
    } else if free - copy < mark {
        let next = format!(
            "keep {} MiB free beside it: jobs are refused with 507 until the copy is deleted at the second start",
            mebibytes(mark)
        );
        Finding::warn("room", text, next)
    } else {
        Finding::ok("room", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;

    #[test]
    fn room_is_judged_by_what_is_left_beside_the_copy() {
        let mib = 1 << 20;
        for (free, copy, expected) in [
            (9 * mib, 10 * mib, CheckStatus::Fail),
            (12 * mib, 10 * mib, CheckStatus::Warn),
            (20 * mib, 10 * mib, CheckStatus::Ok),
        ] {
            assert_eq!(judge_room(free, copy, 5 * mib).verdict, expected, "{free} of {copy}");
        }
        assert!(judge_room(mib, 1, 0).text.contains("needs 1 MiB, of 1 MiB"));
    }

    #[test]
    fn directories_without_a_store_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let found = examine_upgrade(directory.path());
        assert_eq!((found.len(), found[0].verdict), (1, CheckStatus::Warn), "{found:?}");
        let found = examine_upgrade(&directory.path().join("none"));
        assert_eq!((found.len(), found[0].verdict), (1, CheckStatus::Fail), "{found:?}");
        std::fs::write(directory.path().join("longshore.db"), "a letter".repeat(999)).unwrap();
        let found = examine_upgrade(directory.path());
        assert_eq!(found.last().unwrap().verdict, CheckStatus::Fail, "{found:?}");
    }
}
