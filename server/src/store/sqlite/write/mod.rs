//! A group becomes a transaction: its definitions and workers first, then its jobs, keys and notes, and its number last.

mod jobs;
mod statements;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use protocol::{Revision, Timestamp, WorkerId};
use rusqlite::{Connection, OptionalExtension, params};
use scheduler::input::{Details, GroupNo, KeyHolder};
use scheduler::step::Assigned;

use self::statements::Statements;
use super::{faults, notes, rows};
use crate::store::fold::{Folded, WorkerChange, fold};
use crate::store::{CommitError, Group, StoredDefinition};

/// This many consecutive jobs make a block of the coarse indexes.
pub(super) const BLOCK_SHIFT: u32 = 12;
/// In `seen`: blocks with jobs of a definition's name.
pub(super) const SEEN_NAME: i64 = 1;
/// In `seen`: blocks with attempts on a worker.
pub(super) const SEEN_WORKER: i64 = 2;

/// What is known to be in the database already. Forgotten whenever a group fails, because then it may not be.
#[derive(Debug, Default)]
pub(super) struct Known {
    definitions: HashMap<Revision, DefinitionIds>,
    seen: HashSet<(i64, i64, i64)>,
}

#[derive(Clone, Copy, Debug)]
struct DefinitionIds {
    id: i64,
    /// The first row with the same name.
    name: i64,
}

/// Beyond this many, `Known::seen` is forgotten: it is only there to save writes.
const SEEN_MAX: usize = 65_536;

/// Makes a group durable. Whatever the result, `known` is true of the database afterwards.
pub(super) fn commit(connection: &Connection, known: &mut Known, group: &Group) -> Result<(), CommitError> {
    let folded = fold(&group.changes).map_err(CommitError::Refused)?;
    let result = in_transaction(connection, known, group, &folded);
    if result.is_err() {
        // What this try has put in is not in the database: another try must put it in again.
        *known = Known::default();
        if !connection.is_autocommit() {
            // If this fails too, the next BEGIN says so.
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
    result.map_err(|failure| match failure {
        Failure::Sql(error) => faults::of_commit(error),
        Failure::Refused(why) => CommitError::Refused(why),
        Failure::Fenced => CommitError::Fenced { ours: group.epoch },
    })
}

enum Failure {
    Sql(rusqlite::Error),
    Refused(String),
    Fenced,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

type Done = Result<(), Failure>;

fn in_transaction(connection: &Connection, known: &mut Known, group: &Group, folded: &Folded<'_>) -> Done {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let (epoch, committed, last_job) = connection
        .prepare_cached("SELECT epoch, committed, last_job FROM installation")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))?;
    if epoch != group.epoch.0.cast_signed() {
        return Err(Failure::Fenced);
    }
    if group.number <= GroupNo(committed.cast_unsigned()) {
        connection.prepare_cached("ROLLBACK")?.execute([])?;
        return Ok(());
    }
    let mut pen = Pen::new(connection, known, last_job);
    for definition in &group.definitions {
        pen.definition(definition)?;
    }
    pen.workers(&folded.workers)?;
    for write in &folded.writes {
        pen.job(write)?;
    }
    for (key, holder, at) in &folded.keys {
        pen.key(key, *holder, *at)?;
    }
    for (job, at, note) in &folded.notes {
        notes::write(connection, *job, *at, note)?;
    }
    pen.finish(group.number)?;
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// Writes one group.
struct Pen<'c> {
    connection: &'c Connection,
    known: &'c mut Known,
    statements: Statements<'c>,
    /// The highest job number before this group.
    last_job: i64,
    highest: Highest,
    /// When the jobs that this group added were accepted, by block.
    blocks: BTreeMap<i64, (i64, i64)>,
}

/// The highest numbers of a group.
#[derive(Default)]
struct Highest {
    job: i64,
    fence: i64,
    worker: i64,
}

impl<'c> Pen<'c> {
    fn new(connection: &'c Connection, known: &'c mut Known, last_job: i64) -> Self {
        if known.seen.len() > SEEN_MAX {
            known.seen.clear();
        }
        let (statements, highest) = (Statements::default(), Highest::default());
        Self { connection, known, statements, last_job, highest, blocks: BTreeMap::new() }
    }

    fn definition(&mut self, definition: &Arc<StoredDefinition>) -> Done {
        if self.known.definitions.contains_key(&definition.revision) {
            return Ok(());
        }
        self.connection
            .prepare_cached(
                "INSERT INTO definitions (revision, name, entry) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute(params![definition.revision.0.to_be_bytes(), definition.name, definition.entry])?;
        Ok(())
    }

    fn workers(&mut self, changes: &[WorkerChange<'_>]) -> Done {
        for change in changes {
            match change {
                WorkerChange::Put(row) => {
                    self.highest.worker = self.highest.worker.max(row.worker.0.cast_signed());
                    self.connection.prepare_cached(include_str!("../queries/put_worker.sql"))?.execute(
                        params![
                            row.worker.0.cast_signed(),
                            &*row.name,
                            row.secret_hash,
                            row.joined_at.0,
                            row.seen_at.0,
                            row.cordoned,
                            row.slots,
                        ],
                    )?;
                }
                WorkerChange::Forget(worker) => {
                    self.connection
                        .prepare_cached("UPDATE workers SET forgotten = 1 WHERE id = ?1")?
                        .execute([worker.0.cast_signed()])?;
                }
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &str, holder: KeyHolder, at: Timestamp) -> Done {
        self.connection
            .prepare_cached("INSERT INTO keys (key, job, count, digest, at) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![
                key,
                holder.job.0.cast_signed(),
                holder.count,
                holder.digest.to_be_bytes(),
                at.0
            ])?;
        Ok(())
    }

    fn finish(self, number: GroupNo) -> Done {
        for (block, (oldest, newest)) in &self.blocks {
            self.connection
                .prepare_cached(include_str!("../queries/put_block.sql"))?
                .execute((block, oldest, newest))?;
        }
        self.connection.prepare_cached(include_str!("../queries/finish.sql"))?.execute((
            number.0.cast_signed(),
            self.highest.job,
            self.highest.fence,
            self.highest.worker,
        ))?;
        Ok(())
    }

    fn definition_ids(&mut self, revision: Revision) -> Result<DefinitionIds, Failure> {
        if let Some(ids) = self.known.definitions.get(&revision) {
            return Ok(*ids);
        }
        let ids = self
            .connection
            .prepare_cached(
                "SELECT id, (SELECT min(id) FROM definitions WHERE name = d.name) FROM definitions d WHERE revision = ?1",
            )?
            .query_row([revision.0.to_be_bytes()], |row| Ok(DefinitionIds { id: row.get(0)?, name: row.get(1)? }))
            .optional()?
            .ok_or_else(|| Failure::Refused(format!("definition {revision} was never stored")))?;
        self.known.definitions.insert(revision, ids);
        Ok(ids)
    }

    fn assigned(&mut self, assigned: &Assigned) -> Done {
        self.highest.fence = self.highest.fence.max(assigned.token.fence.0.cast_signed());
        let WorkerId(worker) = assigned.worker;
        self.see(SEEN_WORKER, worker.cast_signed(), assigned.token.job.0.cast_signed() >> BLOCK_SHIFT)
    }

    fn see(&mut self, kind: i64, which: i64, block: i64) -> Done {
        if self.known.seen.insert((kind, which, block)) {
            self.connection
                .prepare_cached(
                    "INSERT INTO seen (kind, which, block) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute((kind, which, block))?;
        }
        Ok(())
    }

    /// Stores what a job has beside its row, and says what that is.
    fn details(&mut self, job: i64, details: &Details) -> Result<i64, Failure> {
        let body = &details.body;
        let has = if details.labels.is_empty() { 0 } else { rows::HAS_LABELS }
            | if body.is_empty() { 0 } else { rows::HAS_BODY };
        if has == 0 {
            return Ok(0);
        }
        self.connection
            .prepare_cached(
                "INSERT INTO details (job, labels, environment, args, input) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                job,
                rows::json_code(&details.labels),
                rows::json_code(&body.environment),
                rows::json_code(&body.args),
                body.input,
            ])?;
        for (name, value) in &details.labels {
            self.connection
                .prepare_cached(
                    "INSERT INTO labels (name, value, job) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute((name, value, job))?;
        }
        Ok(has)
    }
}
