//! A group becomes a transaction: its definitions and workers first, then its jobs, keys and notes, and its number last.

mod cache;
mod definition_ends;
mod deletion;
mod details;
mod ends;
mod jobs;
mod live_batches;
mod pending;
mod remove;
mod remove_by_definition;
mod statements;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{Epoch, Revision, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use scheduler::ids::GroupNo;
use scheduler::input::KeyHolder;
use scheduler::step::Assigned;

pub(super) use self::cache::WriteCache;
use self::cache::{DefinitionIds, EndSpan};
use self::definition_ends::EndedJob;
pub(super) use self::remove::remove;
pub(super) use self::remove_by_definition::remove_by_definition;
use self::statements::Statements;
use super::blocks::{BLOCK_SHIFT, SEEN_WORKER};
use super::{
    access, batches, definition_changes, deliveries, dependencies, failures, faults, gpus, hooks, limits,
    notes, notifications, pending_batch, run_on, schedules, unique,
};
use crate::store::fold::{Folded, ScheduleChange, SideWrite, SkippedNumbers, fold};
use crate::store::{CommitError, Group, RecordChange, StoredDefinition};

/// Makes a group durable. Whatever the result, `cache` is true of the database afterwards.
pub(super) fn commit(
    connection: &Connection,
    cache: &mut WriteCache,
    group: &Group,
) -> Result<(), CommitError> {
    let folded = fold(&group.changes).map_err(CommitError::Refused)?;
    let result = in_transaction(connection, cache, group, &folded);
    finish_transaction(connection, cache, group.epoch, result)
}

/// Changes rows that are no part of the scheduler's state.
pub(super) fn change_record(
    connection: &Connection,
    cache: &mut WriteCache,
    epoch: Epoch,
    change: &RecordChange,
) -> Result<(), CommitError> {
    let change = || -> WriteResult {
        begin(connection, epoch)?;
        match change {
            RecordChange::Access(change) => access::write(connection, change)?,
            RecordChange::Notification(change) => deliveries::change(connection, change)?,
            RecordChange::WorkersLost(lost) => workers::put_lost(connection, lost)?,
            RecordChange::Definitions(change) => definition_changes::write(connection, change)?,
            RecordChange::Acknowledgement(change) => failures::change(connection, change)?,
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    };
    finish_transaction(connection, cache, epoch, change())
}

/// Maps the result of a transaction to the caller's error, and rolls back one that failed.
fn finish_transaction<T>(
    connection: &Connection,
    cache: &mut WriteCache,
    ours: Epoch,
    result: Result<T, Failure>,
) -> Result<T, CommitError> {
    if result.is_err() {
        // The rows of this try are not in the database: the next try must write them again.
        cache.forget();
        if !connection.is_autocommit() {
            // If this fails too, the next BEGIN says so.
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
    result.map_err(|failure| match failure {
        Failure::Sql(error) => faults::of_commit(error),
        Failure::Refused(why) => CommitError::Refused(why),
        Failure::EpochReplaced => CommitError::EpochReplaced { ours },
    })
}

enum Failure {
    Sql(rusqlite::Error),
    Refused(String),
    /// Another server has begun a later epoch.
    EpochReplaced,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<schedules::Refusal> for Failure {
    fn from(refusal: schedules::Refusal) -> Self {
        match refusal {
            schedules::Refusal::Sql(error) => Self::Sql(error),
            schedules::Refusal::Decided(why) => Self::Refused(why),
        }
    }
}

type WriteResult = Result<(), Failure>;

/// The counters of the installation at the beginning of a transaction.
struct InstallationCounters {
    committed: GroupNo,
    last_job: i64,
    /// How many jobs have ended and are kept.
    ended: i64,
}

/// Begins a transaction of this epoch.
fn begin(connection: &Connection, epoch: Epoch) -> Result<InstallationCounters, Failure> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let (writing, counters) = connection
        .prepare_cached("SELECT epoch, committed, last_job, ended FROM installation")?
        .query_row([], |row| {
            let committed = GroupNo(row.get::<_, i64>(1)?.cast_unsigned());
            Ok((
                row.get::<_, i64>(0)?,
                InstallationCounters { committed, last_job: row.get(2)?, ended: row.get(3)? },
            ))
        })?;
    if writing == epoch.0.cast_signed() { Ok(counters) } else { Err(Failure::EpochReplaced) }
}

fn in_transaction(
    connection: &Connection,
    cache: &mut WriteCache,
    group: &Group,
    folded: &Folded<'_>,
) -> WriteResult {
    let counters = begin(connection, group.epoch)?;
    if group.number <= counters.committed {
        connection.prepare_cached("ROLLBACK")?.execute([])?;
        return Ok(());
    }
    let mut writer = TransactionWriter::new(connection, cache, counters.last_job);
    for definition in &group.definitions {
        writer.definition(definition)?;
    }
    writer.workers(&folded.workers)?;
    for (first, last) in &folded.pending_batches {
        writer.begin_pending_batch(*first, *last)?;
    }
    for batch in &folded.new_batches {
        batches::add(connection, batch)?;
        writer.cache.members.begin(batch.first.0.cast_signed(), batch.count);
    }
    live_batches::apply(connection, folded)?;
    for gap in &folded.gaps {
        writer.gap(*gap)?;
    }
    for write in &folded.writes {
        writer.job(write)?;
    }
    for first in &folded.completed_batches {
        writer.complete_pending_batch(*first)?;
    }
    for row in folded.parents.values() {
        run_on::put_parent(connection, row)?;
    }
    for row in &folded.members {
        run_on::put_member(connection, row)?;
    }
    for of in &folded.used_workers {
        run_on::put_use(connection, of)?;
    }
    writer.cache.members.write(connection)?;
    for (first, at) in &folded.ended_batches {
        if !batches::end(connection, *first, *at)? {
            return Err(Failure::Refused(format!("batch {first} ends, but a member of it has not ended")));
        }
        writer.cache.members.end(first.0.cast_signed());
    }
    for change in &folded.schedules {
        if let ScheduleChange::Expectation(row) = change {
            notifications::write_missed(connection, &group.notify, row, group.at)?;
        }
        schedules::write(connection, change)?;
    }
    for (id, recovered) in &folded.rates {
        limits::put_rate(connection, id, *recovered, group.at)?;
    }
    // Those that are freed go first: a key may pass from one job to another, and a job to another key.
    for is_taken in [false, true] {
        for (id, holder) in folded.unique.iter().filter(|(_, holder)| holder.is_some() == is_taken) {
            unique::put(connection, id, *holder)?;
        }
    }
    for (key, holder, at) in &folded.keys {
        writer.idempotency_key(key, *holder, *at)?;
    }
    for side_write in &folded.side_writes {
        match side_write {
            SideWrite::Note(job, at, note) => notes::write(connection, *job, *at, note)?,
            SideWrite::Confirmed(token, worker, at) => writer.confirm(*token, *worker, *at)?,
            SideWrite::Expiry(job, at) => writer.expiry(*job, *at)?,
            SideWrite::Hook(row) => hooks::write(connection, row)?,
            SideWrite::Dependency(change) => dependencies::write(connection, change)?,
            SideWrite::ResultsTaken(job, definition) => writer.take_results(*job, definition, group.at)?,
        }
    }
    notifications::write_ends(connection, group)?;
    gpus::delete_free(connection, group)?;
    writer.finish(group.number)?;
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// Writes one group.
struct TransactionWriter<'c> {
    connection: &'c Connection,
    cache: &'c mut WriteCache,
    statements: Statements<'c>,
    /// The highest job number before this group.
    last_job: i64,
    /// The pending batches; `None` until they are read.
    pending_batches: Option<Vec<pending_batch::Range>>,
    highest: Highest,
    /// When the jobs that this group added were accepted, by block.
    blocks: BTreeMap<i64, (i64, i64)>,
    /// How many jobs this group ended.
    ended: i64,
    /// The span of their ends, by block, where it goes beyond what the block's row covers.
    ends: BTreeMap<i64, EndSpan>,
    /// The jobs that this group ended, for the counts of their definitions.
    ended_jobs: Vec<EndedJob>,
    /// The retries that this group added, with the jobs that they repeat.
    retries: Vec<(i64, i64)>,
    /// The jobs whose retries became visible with a pending batch in this group.
    retried_by_batches: Vec<i64>,
}

/// The highest numbers of a group.
#[derive(Default)]
struct Highest {
    job: i64,
    fence: i64,
    worker: i64,
}

impl<'c> TransactionWriter<'c> {
    fn new(connection: &'c Connection, cache: &'c mut WriteCache, last_job: i64) -> Self {
        cache.shrink();
        Self {
            connection,
            cache,
            statements: Statements::default(),
            last_job,
            pending_batches: None,
            highest: Highest::default(),
            blocks: BTreeMap::new(),
            ended: 0,
            ends: BTreeMap::new(),
            ended_jobs: Vec::new(),
            retries: Vec::new(),
            retried_by_batches: Vec::new(),
        }
    }

    fn definition(&mut self, definition: &Arc<StoredDefinition>) -> WriteResult {
        if self.cache.definitions.contains_key(&definition.revision) {
            return Ok(());
        }
        self.connection
            .prepare_cached(
                "INSERT INTO definitions (revision, name, entry) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute(params![definition.revision.0.to_be_bytes(), definition.name, definition.entry])?;
        Ok(())
    }

    fn gap(&mut self, gap: SkippedNumbers) -> WriteResult {
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

    fn idempotency_key(&mut self, key: &str, holder: KeyHolder, at: Timestamp) -> WriteResult {
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

    fn finish(mut self, number: GroupNo) -> WriteResult {
        let failed = definition_ends::add(self.connection, self.cache, &self.ended_jobs)?;
        let retried = self.retried()?;
        failures::record(self.connection, &failed, &retried)?;
        for (block, (oldest, newest)) in &self.blocks {
            self.connection
                .prepare_cached(include_str!("../queries/put_block.sql"))?
                .execute((block, oldest, newest))?;
        }
        for (block, span) in self.ends {
            self.connection
                .prepare_cached(
                    "UPDATE blocks SET oldest_end = min(coalesce(oldest_end, ?2), ?2),
                         newest_end = max(coalesce(newest_end, ?3), ?3) WHERE block = ?1",
                )?
                .execute((block, span.oldest, span.newest))?;
            self.cache.ends.entry(block).and_modify(|known| *known = known.join(span)).or_insert(span);
        }
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
        if let Some(ids) = self.cache.definitions.get(&revision) {
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
        self.cache.definitions.insert(revision, ids);
        Ok(ids)
    }

    fn assigned(&mut self, assigned: &Assigned) -> WriteResult {
        self.highest.fence = self.highest.fence.max(assigned.token.fence.0.cast_signed());
        gpus::put(self.connection, assigned)?;
        let (worker, job) = (assigned.worker.0.cast_signed(), assigned.token.job.0.cast_signed());
        self.index_block(SEEN_WORKER, worker, job >> BLOCK_SHIFT)
    }

    /// Adds a block to the coarse index of a definition's name or of a worker.
    fn index_block(&mut self, kind: i64, which: i64, block: i64) -> WriteResult {
        if self.cache.seen.insert((kind, which, block)) {
            self.connection
                .prepare_cached(
                    "INSERT INTO seen (kind, which, block) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute((kind, which, block))?;
        }
        Ok(())
    }

    /// Counts an ended job, and widens the span of ends of its block, for retention and for lists by end.
    fn record_end_time(&mut self, job: i64, at: Timestamp) {
        self.ended += 1;
        let block = job >> BLOCK_SHIFT;
        let span = EndSpan::of(at);
        if self.cache.ends.get(&block).is_none_or(|known| !known.covers(span)) {
            self.ends.entry(block).and_modify(|ends| *ends = ends.join(span)).or_insert(span);
        }
    }
}
