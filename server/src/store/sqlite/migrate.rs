//! Makes a file a store, or brings an older one up to date; refuses what is not ours, what is newer, and what was tampered with.
//!
//! A migration that was released never changes: its checksum is kept in the file. Several are one transaction: a failure leaves
//! the file as it was.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use sha2::{Digest, Sha256};

use super::faults;
use crate::store::{LoadError, directory};

/// `LSHR`, in the header of every store.
const APPLICATION: i32 = 0x4C53_4852;

/// Every migration, in order; the schema's version is how many were applied.
const MIGRATIONS: &[(&str, &str)] = &[
    ("first", include_str!("migrations/0001_first.sql")),
    ("gaps", include_str!("migrations/0002_gaps.sql")),
    ("drain", include_str!("migrations/0003_drain.sql")),
    ("retention", include_str!("migrations/0004_retention.sql")),
    ("forming", include_str!("migrations/0005_forming.sql")),
    ("confirmed", include_str!("migrations/0006_confirmed.sql")),
    ("worker_labels", include_str!("migrations/0007_worker_labels.sql")),
    ("retention_by", include_str!("migrations/0008_retention_by.sql")),
    ("process", include_str!("migrations/0009_process.sql")),
    ("schedules", include_str!("migrations/0010_schedules.sql")),
    ("indexes", include_str!("migrations/0011_indexes.sql")),
    ("end_spans", include_str!("migrations/0012_end_spans.sql")),
    ("params", include_str!("migrations/0013_params.sql")),
    ("expiries", include_str!("migrations/0014_expiries.sql")),
    ("expectations", include_str!("migrations/0015_expectations.sql")),
    ("backfill", include_str!("migrations/0016_backfill.sql")),
    ("limits", include_str!("migrations/0017_limits.sql")),
    ("batches", include_str!("migrations/0018_batches.sql")),
    ("hooks", include_str!("migrations/0019_hooks.sql")),
    ("removed_schedules", include_str!("migrations/0020_removed_schedules.sql")),
    ("access", include_str!("migrations/0021_access.sql")),
    ("notifications", include_str!("migrations/0022_notifications.sql")),
    ("unique_keys", include_str!("migrations/0023_unique_keys.sql")),
    ("dependencies", include_str!("migrations/0024_dependencies.sql")),
    ("worker_identity", include_str!("migrations/0025_worker_identity.sql")),
    ("run_on", include_str!("migrations/0027_run_on.sql")),
    ("usage", include_str!("migrations/0028_usage.sql")),
    ("lists_by_end", include_str!("migrations/0029_lists_by_end.sql")),
    ("gpus", include_str!("migrations/0030_gpus.sql")),
    ("definition_ends", include_str!("migrations/0031_definition_ends.sql")),
    ("audit_details", include_str!("migrations/0032_audit_details.sql")),
    ("pauses", include_str!("migrations/0033_pauses.sql")),
    ("keys_without_trigger", include_str!("migrations/0034_keys_without_trigger.sql")),
    ("keys_in_jobs", include_str!("migrations/0035_keys_in_jobs.sql")),
    ("last_ends", include_str!("migrations/0036_last_ends.sql")),
    ("jobs_by_schedule", include_str!("migrations/0037_jobs_by_schedule.sql")),
    ("retries", include_str!("migrations/0038_retries.sql")),
    ("batch_retries", include_str!("migrations/0039_batch_retries.sql")),
    ("odd_successes", include_str!("migrations/0040_odd_successes.sql")),
    ("narrowings", include_str!("migrations/0041_narrowings.sql")),
    ("submitters", include_str!("migrations/0042_submitters.sql")),
    ("after_batches", include_str!("migrations/0043_after_batches.sql")),
    ("reasons", include_str!("migrations/0044_reasons.sql")),
    ("pause_ends", include_str!("migrations/0045_pause_ends.sql")),
    ("batch_notifications", include_str!("migrations/0046_batch_notifications.sql")),
    ("definition_changes", include_str!("migrations/0047_definition_changes.sql")),
    ("cordon_ends", include_str!("migrations/0048_cordon_ends.sql")),
    ("batch_cancels", include_str!("migrations/0049_batch_cancels.sql")),
    ("told_positions", include_str!("migrations/0050_told_positions.sql")),
    ("attention", include_str!("migrations/0051_attention.sql")),
    ("carried_slots", include_str!("migrations/0052_carried_slots.sql")),
    ("unique_batches", include_str!("migrations/0053_unique_batches.sql")),
];

/// Brings the file behind this connection to the version of this build.
pub(super) fn migrate(connection: &mut Connection, file: &Path) -> Result<(), LoadError> {
    apply(connection, file, MIGRATIONS)
}

/// How many migrations made this file what it is: zero if it is empty. Refuses what [`migrate`] refuses, and changes nothing.
pub(super) fn version(connection: &Connection, file: &Path) -> Result<usize, LoadError> {
    examine(connection, file, MIGRATIONS)
}

/// The version of this build.
pub(super) const fn newest() -> usize {
    MIGRATIONS.len()
}

/// The names of the migrations that a file of this version lacks, in order.
pub(super) fn missing(version: usize) -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().skip(version).map(|(name, _)| *name)
}

/// The version of a file that lacks this migration and all later ones.
#[cfg(test)]
pub(super) fn before(name: &str) -> usize {
    MIGRATIONS.iter().position(|(known, _)| *known == name).unwrap()
}

/// As an earlier build would have left it.
#[cfg(test)]
pub(super) fn migrate_to(connection: &mut Connection, file: &Path, version: usize) {
    apply(connection, file, &MIGRATIONS[..version]).unwrap();
}

fn apply(connection: &mut Connection, file: &Path, migrations: &[(&str, &str)]) -> Result<(), LoadError> {
    let failed = |error| faults::of_load(file, error);
    let version = examine(connection, file, migrations)?;
    if version == migrations.len() {
        return Ok(());
    }
    if version == 0 {
        // Only possible before the first table. The space of deleted rows can then be given back (see `upkeep`).
        connection.pragma_update(None, "auto_vacuum", "incremental").map_err(failed)?;
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    if version == 0 {
        found(&transaction).map_err(failed)?;
    }
    for (number, (name, sql)) in (1_i64..).zip(migrations).skip(version) {
        transaction.execute_batch(sql).map_err(failed)?;
        transaction
            .execute(
                "INSERT INTO migrations (number, name, checksum) VALUES (?1, ?2, ?3)",
                (number, name, checksum(sql)),
            )
            .map_err(failed)?;
    }
    if version == 0 {
        // The counters begin at zero: the first job, fence, worker and group are 1.
        transaction
            .execute(
                "INSERT INTO installation (id, cluster, epoch, committed, last_job, last_fence, last_worker, boot, clean)
                 VALUES (1, ?1, 0, 0, 0, 0, 0, ?2, 1)",
                (rand::random_range(1..=u32::MAX), directory::boot()),
            )
            .map_err(failed)?;
    }
    let version = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    transaction.pragma_update(None, "user_version", version).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The version of a file that is a store, or zero if it is empty.
fn examine(connection: &Connection, file: &Path, migrations: &[(&str, &str)]) -> Result<usize, LoadError> {
    let failed = |error| faults::of_load(file, error);
    let number =
        |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0)).map_err(failed);
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if application == 0 && version == 0 && tables == 0 {
        return Ok(0);
    }
    if application != APPLICATION {
        return Err(LoadError::Unusable(format!(
            "{} is an SQLite database, but not a Longshore store: choose another data directory, or move the file away",
            file.display()
        )));
    }
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version > migrations.len() {
        return Err(LoadError::Unusable(format!(
            "{} has schema {version}, written by a newer Longshore; this one knows schemas up to {}: start the newer one",
            file.display(),
            migrations.len()
        )));
    }
    check_sums(connection, file, &migrations[..version])?;
    Ok(version)
}

fn check_sums(connection: &Connection, file: &Path, applied: &[(&str, &str)]) -> Result<(), LoadError> {
    for (number, (name, sql)) in (1_i64..).zip(applied) {
        let stored: String = connection
            .query_row("SELECT checksum FROM migrations WHERE number = ?1", [number], |row| row.get(0))
            .map_err(|error| faults::of_load(file, error))?;
        if stored != checksum(sql) {
            return Err(LoadError::Unusable(format!(
                "{} was made by a migration {number} ({name}) that differs from this build's: start the Longshore that made it",
                file.display()
            )));
        }
    }
    Ok(())
}

fn found(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.execute_batch(
        "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT;",
    )
}

fn checksum(sql: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(sql))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE_FILE: &str = "/data/longshore.db";

    fn refusal(connection: &mut Connection, migrations: &[(&str, &str)]) -> String {
        apply(connection, Path::new(STORE_FILE), migrations).unwrap_err().to_string()
    }

    fn and_then<'m>(more: &[(&'m str, &'m str)]) -> Vec<(&'m str, &'m str)> {
        [MIGRATIONS, more].concat()
    }

    #[test]
    fn a_store_of_the_first_schema_comes_up_to_date_with_what_it_holds() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, Path::new(STORE_FILE), &MIGRATIONS[..1]).unwrap();
        let worker = "INSERT INTO workers (id, name, secret_hash, joined_at, seen_at, cordoned) VALUES (1, 'w', zeroblob(32), 1, 1, 1)";
        connection.execute(worker, []).unwrap();
        migrate(&mut connection, Path::new(STORE_FILE)).unwrap();
        let workers = crate::store::sqlite::rows::workers(&connection).unwrap();
        assert_eq!((workers.len(), workers[0].cordoned, workers[0].drain), (1, true, None));
    }

    #[test]
    fn an_older_store_gets_what_it_lacks_and_a_newer_one_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new(STORE_FILE)).unwrap();
        migrate(&mut connection, Path::new(STORE_FILE)).expect("a second start changes nothing");
        let next = and_then(&[("next", "CREATE TABLE more (id INTEGER);")]);
        apply(&mut connection, Path::new(STORE_FILE), &next).unwrap();
        connection.execute("INSERT INTO more VALUES (1)", []).unwrap();
        let refusal = refusal(&mut connection, MIGRATIONS);
        let newer = format!("/data/longshore.db has schema {}, written by a newer Longshore", newest() + 1);
        assert!(refusal.starts_with(&newer), "{refusal}");
    }

    #[test]
    fn migration_keeps_the_rows_of_every_older_schema() {
        for version in 1..MIGRATIONS.len() {
            let mut connection = Connection::open_in_memory().unwrap();
            apply(&mut connection, Path::new(STORE_FILE), &MIGRATIONS[..version]).unwrap();
            let job = "INSERT INTO jobs (id, definition, state, priority, created_at, due_at) VALUES (7, 1, 2, 0, 0, 0)";
            connection.execute(job, []).unwrap();
            migrate(&mut connection, Path::new(STORE_FILE)).unwrap();
            let jobs: i64 =
                connection.query_row("SELECT sum(id) FROM all_jobs", [], |row| row.get(0)).unwrap();
            assert_eq!(jobs, 7, "version {version}");
        }
    }

    #[test]
    fn a_failing_migration_leaves_the_file_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new(STORE_FILE)).unwrap();
        let broken = and_then(&[("good", "CREATE TABLE more (id INTEGER);"), ("bad", "CREATE TABLE;")]);
        refusal(&mut connection, &broken);
        migrate(&mut connection, Path::new(STORE_FILE)).expect("it is still at its version");
        assert!(!connection.table_exists(None, "more").unwrap());
    }

    #[test]
    fn a_migration_that_was_changed_afterwards_is_noticed() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new(STORE_FILE)).unwrap();
        let mut changed = MIGRATIONS.to_vec();
        changed[0].1 = "-- something else";
        let refusal = refusal(&mut connection, &changed);
        assert!(refusal.contains("migration 1 (first) that differs"), "{refusal}");
    }

    #[test]
    fn somebody_elses_database_is_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE theirs (id INTEGER);").unwrap();
        let refusal = refusal(&mut connection, MIGRATIONS);
        assert!(refusal.contains("not a Longshore store"), "{refusal}");
        assert!(!connection.table_exists(None, "migrations").unwrap());
    }
}
