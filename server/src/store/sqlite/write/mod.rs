//! A group becomes a transaction: its definitions and workers first, then its jobs, keys and notes, and its number last.

mod jobs;
mod remove;
mod statements;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use protocol::{Epoch, JobId, Revision, Timestamp, WorkerId};
use rusqlite::{Connection, OptionalExtension, params};
use scheduler::input::{Details, GroupNo, KeyHolder};
use scheduler::step::Assigned;

pub(super) use self::remove::remove;
use self::statements::Statements;
use super::{faults, forming, notes, rows};
use crate::store::fold::{Folded, Gap, Remark, WorkerChange, fold};
use crate::store::{CommitError, Group, StoredDefinition};

/// This many consecutive jobs make a block of the coarse indexes.
pub(super) const BLOCK_SHIFT: u32 = 12;
/// The last job that belongs to a block.
pub(super) const fn last_of(block: i64) -> i64 {
    ((block + 1) << BLOCK_SHIFT) - 1
}

/// In `seen`: blocks with jobs of a definition's name.
pub(super) const SEEN_NAME: i64 = 1;
/// In `seen`: blocks with attempts on a worker.
pub(super) const SEEN_WORKER: i64 = 2;

/// What is known to be in the database already. Forgotten whenever a group fails, because then it may not be.
#[derive(Debug, Default)]
pub(super) struct Known {
    definitions: HashMap<Revision, DefinitionIds>,
    seen: HashSet<(i64, i64, i64)>,
    /// An end in each block, at or after the earliest one that the block's row tells.
    ends: HashMap<i64, i64>,
}

#[derive(Clone, Copy, Debug)]
struct DefinitionIds {
    id: i64,
    /// The first row with the same name.
    name: i64,
}

/// Beyond this many, `Known::seen` and `Known::ends` are forgotten: they are only there to save writes.
const SEEN_MAX: usize = 65_536;

/// Makes a group durable. Whatever the result, `known` is true of the database afterwards.
pub(super) fn commit(connection: &Connection, known: &mut Known, group: &Group) -> Result<(), CommitError> {
    let folded = fold(&group.changes).map_err(CommitError::Refused)?;
    let result = in_transaction(connection, known, group, &folded);
    settle(connection, known, group.epoch, result)
}

/// What came of a transaction. One that failed is taken back.
fn settle<T>(
    connection: &Connection,
    known: &mut Known,
    ours: Epoch,
    result: Result<T, Failure>,
) -> Result<T, CommitError> {
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
        Failure::Fenced => CommitError::Fenced { ours },
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

/// What a transaction finds.
struct Found {
    committed: GroupNo,
    last_job: i64,
    /// How many jobs have ended and are kept.
    ended: i64,
}

/// Begins a transaction of this epoch.
fn begin(connection: &Connection, epoch: Epoch) -> Result<Found, Failure> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let (writing, found) = connection
        .prepare_cached("SELECT epoch, committed, last_job, ended FROM installation")?
        .query_row([], |row| {
            let committed = GroupNo(row.get::<_, i64>(1)?.cast_unsigned());
            Ok((row.get::<_, i64>(0)?, Found { committed, last_job: row.get(2)?, ended: row.get(3)? }))
        })?;
    if writing == epoch.0.cast_signed() { Ok(found) } else { Err(Failure::Fenced) }
}

fn in_transaction(connection: &Connection, known: &mut Known, group: &Group, folded: &Folded<'_>) -> Done {
    let found = begin(connection, group.epoch)?;
    if group.number <= found.committed {
        connection.prepare_cached("ROLLBACK")?.execute([])?;
        return Ok(());
    }
    let mut pen = Pen::new(connection, known, found.last_job);
    for definition in &group.definitions {
        pen.definition(definition)?;
    }
    pen.workers(&folded.workers)?;
    for (first, last) in &folded.forming {
        pen.form(*first, *last)?;
    }
    for gap in &folded.gaps {
        pen.gap(*gap)?;
    }
    for write in &folded.writes {
        pen.job(write)?;
    }
    for first in &folded.formed {
        pen.formed(*first)?;
    }
    for (key, holder, at) in &folded.keys {
        pen.key(key, *holder, *at)?;
    }
    for remark in &folded.remarks {
        match remark {
            Remark::Note(job, at, note) => notes::write(connection, *job, *at, note)?,
            Remark::Confirmed(token, worker, at) => pen.confirm(*token, *worker, *at)?,
        }
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
    /// The batches that are being made, once somebody has asked.
    forming: Option<Vec<forming::Range>>,
    highest: Highest,
    /// When the jobs that this group added were accepted, by block.
    blocks: BTreeMap<i64, (i64, i64)>,
    /// How many jobs this group ended.
    ended: i64,
    /// The earliest end of those, by block, where the block's row may not tell it.
    ends: BTreeMap<i64, i64>,
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
        if known.ends.len() > SEEN_MAX {
            known.ends.clear();
        }
        let (statements, highest) = (Statements::default(), Highest::default());
        let (blocks, ends) = (BTreeMap::new(), BTreeMap::new());
        Self { connection, known, statements, last_job, forming: None, highest, blocks, ended: 0, ends }
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
                            row.drain.is_some(),
                            row.drain.and_then(|drain| drain.process).map(|process| process.0.cast_signed()),
                            row.drain.and_then(|drain| drain.deadline).map(|at| at.0),
                            rows::json_code(&row.labels),
                            row.process.map(|process| process.incarnation.0.cast_signed()),
                            row.process.map(|process| process.number.cast_signed()),
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

    fn gap(&mut self, gap: Gap) -> Done {
        self.highest.job = self.highest.job.max(gap.until.0.cast_signed());
        self.highest.fence = self.highest.fence.max(gap.fence.0.cast_signed());
        if gap.until > gap.after {
            self.connection
                .prepare_cached(
                    "INSERT INTO gaps (after, until, at, epoch) SELECT ?1, ?2, ?3, epoch FROM installation",
                )?
                .execute((gap.after.0.cast_signed(), gap.until.0.cast_signed(), gap.at.0))?;
        }
        Ok(())
    }

    /// Sets numbers aside for the members of a large batch.
    fn form(&mut self, JobId(first): JobId, JobId(last): JobId) -> Done {
        let (first, last) = (first.cast_signed(), last.cast_signed());
        if first <= self.last_job {
            return Err(Failure::Refused(format!(
                "a batch from {first} on: expected new numbers, but they were given before"
            )));
        }
        self.highest.job = self.highest.job.max(last);
        self.connection
            .prepare_cached("INSERT INTO forming (first, last) VALUES (?1, ?2)")?
            .execute((first, last))?;
        Ok(())
    }

    /// From here on the members of this batch are jobs like all others.
    fn formed(&mut self, JobId(first): JobId) -> Done {
        let found = self
            .connection
            .prepare_cached("DELETE FROM forming WHERE first = ?1 AND last IN (SELECT id FROM jobs)")?
            .execute([first.cast_signed()])?;
        match found {
            1 => Ok(()),
            _ => Err(Failure::Refused(format!(
                "a batch from {first} on: expected it to be forming, up to its last member"
            ))),
        }
    }

    /// Whether a job may have this number: it was never given, or was set aside for it.
    fn is_free(&mut self, job: i64) -> rusqlite::Result<bool> {
        if job > self.last_job {
            return Ok(true);
        }
        let forming = match self.forming.take() {
            Some(known) => known,
            None => forming::ranges(self.connection)?,
        };
        let forming = self.forming.insert(forming);
        Ok(forming.iter().any(|(first, last)| (*first..=*last).contains(&job)))
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
        for (block, end) in &self.ends {
            self.connection
                .prepare_cached(
                    "UPDATE blocks SET oldest_end = min(coalesce(oldest_end, ?2), ?2) WHERE block = ?1",
                )?
                .execute((block, end))?;
        }
        self.known.ends.extend(self.ends);
        self.connection.prepare_cached(include_str!("../queries/finish.sql"))?.execute((
            number.0.cast_signed(),
            self.highest.job,
            self.highest.fence,
            self.highest.worker,
            self.ended,
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

    /// Takes note of an end, for retention.
    fn ended(&mut self, job: i64, at: Timestamp) {
        self.ended += 1;
        let block = job >> BLOCK_SHIFT;
        if self.known.ends.get(&block).is_none_or(|known| at.0 < *known) {
            let earliest = self.ends.entry(block).or_insert(at.0);
            *earliest = at.0.min(*earliest);
        }
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
