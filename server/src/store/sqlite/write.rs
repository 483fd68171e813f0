//! A group becomes a transaction.
//!
//! The statements are prepared once per connection and picked up once per group. Each says in its `WHERE` what the row must have
//! been; a row count other than one is a refusal, which names what was expected and what is there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use protocol::{JobId, Revision, Timestamp, Token, WorkerId};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use scheduler::definition::RetryPolicy;
use scheduler::input::{Details, GroupNo, KeyHolder};
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, ClosedAttempt, Ended};

use super::{codes, faults, notes, rows};
use crate::store::fold::{Expected, Folded, Waiting, WorkerChange, Write, fold};
use crate::store::{CommitError, Group, StoredDefinition, losses};

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

/// Makes a group durable.
pub(super) fn commit(connection: &Connection, known: &mut Known, group: &Group) -> Result<(), CommitError> {
    let folded = fold(&group.changes).map_err(CommitError::Refused)?;
    let result = in_transaction(connection, known, group, &folded);
    if result.is_err() && !connection.is_autocommit() {
        // If this fails too, the next BEGIN says so.
        let _ = connection.execute_batch("ROLLBACK");
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
                    self.connection.prepare_cached(include_str!("queries/put_worker.sql"))?.execute(
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

    fn job(&mut self, write: &Write<'_>) -> Done {
        match (write.added, write.assigned) {
            (Some(added), assigned) => self.insert(write, added, assigned)?,
            (None, Some(assigned)) => self.assign(write, assigned)?,
            (None, None) if write.due => self.due(write)?,
            (None, None) => {}
        }
        match (write.waiting, write.ended) {
            (Some(waiting), _) => self.wait(write, waiting),
            (None, Some(ended)) => self.end(write, ended),
            (None, None)
                if write.assigned.is_none() && (write.started.is_some() || write.stopping.is_some()) =>
            {
                self.advance(write)
            }
            (None, None) => Ok(()),
        }
    }

    fn insert(&mut self, write: &Write<'_>, added: &AddedJob, assigned: Option<&Assigned>) -> Done {
        let job = added.job.0.cast_signed();
        if job <= self.last_job {
            return Err(self.refusal(write.job, Expected::Absent)?);
        }
        self.highest.job = self.highest.job.max(job);
        let block = job >> BLOCK_SHIFT;
        let accepted = added.created_at.0;
        let times = self.blocks.entry(block).or_insert((accepted, accepted));
        *times = (times.0.min(accepted), times.1.max(accepted));
        let definition = self.definition_ids(added.revision)?;
        self.see(SEEN_NAME, definition.name, block)?;
        let details = added.details.as_deref().map_or(Ok(0), |details| self.details(job, details))?;
        let state = if write.due { State::Queued } else { added.state };
        let timeout = rows::timeout_code(added.timeout);
        let batch = added.batch.map(|job| job.0.cast_signed());
        let retry_of = added.retry_of.map(|job| job.0.cast_signed());
        let Some(assigned) = assigned else {
            self.statements.insert_waiting.on(self.connection)?.execute(params![
                job,
                definition.id,
                codes::of_state(state),
                added.priority,
                accepted,
                added.due_at.0,
                timeout,
                batch,
                retry_of,
                details,
            ])?;
            return Ok(());
        };
        self.assigned(assigned)?;
        let (started_at, container) = started(write);
        self.statements.insert_assigned.on(self.connection)?.execute(params![
            job,
            definition.id,
            live_state(write),
            added.priority,
            accepted,
            added.due_at.0,
            timeout,
            batch,
            retry_of,
            details,
            assigned.number.0,
            assigned.token.fence.0.cast_signed(),
            assigned.token.nonce.0.cast_signed(),
            assigned.worker.0.cast_signed(),
            assigned.session.0.cast_signed(),
            assigned.at.0,
            started_at,
            container,
            write.stopping.map(codes::of_stop),
        ])?;
        Ok(())
    }

    fn assign(&mut self, write: &Write<'_>, assigned: &Assigned) -> Done {
        self.assigned(assigned)?;
        let job = write.job.0.cast_signed();
        let before = codes::of_state(if write.due { State::Scheduled } else { State::Queued });
        let (started_at, container) = started(write);
        let values = params![
            job,
            before,
            live_state(write),
            assigned.number.0,
            assigned.token.fence.0.cast_signed(),
            assigned.token.nonce.0.cast_signed(),
            assigned.worker.0.cast_signed(),
            assigned.session.0.cast_signed(),
            assigned.at.0,
            started_at,
            container,
            write.stopping.map(codes::of_stop),
        ];
        if self.statements.assign.on(self.connection)?.execute(values)? == 1 {
            return Ok(());
        }
        // Not its first attempt, or not as expected.
        let superseded =
            self.connection.prepare_cached(include_str!("queries/supersede.sql"))?.execute((job, before))?;
        if superseded == 0 {
            return Err(self.refusal(write.job, write.expected)?);
        }
        self.connection.prepare_cached(include_str!("queries/reassign.sql"))?.execute(values)?;
        Ok(())
    }

    fn due(&mut self, write: &Write<'_>) -> Done {
        let changed = self.statements.due.on(self.connection)?.execute([write.job.0.cast_signed()])?;
        self.one(changed, write)
    }

    fn advance(&mut self, write: &Write<'_>) -> Done {
        let Some(held) = Held::of(write) else { return Ok(()) };
        let (started_at, container) = started(write);
        let changed = self.statements.advance.on(self.connection)?.execute(params![
            held.job,
            held.fence,
            held.nonce,
            held.highest_state,
            started_at,
            container,
            write.stopping.map(codes::of_stop),
        ])?;
        self.one(changed, write)
    }

    fn wait(&mut self, write: &Write<'_>, waiting: Waiting<'_>) -> Done {
        let closed = waiting.closed;
        let held = Held::new(closed.token, write);
        let (started_at, container) = started(write);
        let own = RetryPolicy::OWN_BUDGET.contains(&closed.outcome);
        let losses = if losses::counts(closed.outcome) { self.losses(held.job, closed)? } else { None };
        let changed = self.statements.wait.on(self.connection)?.execute(params![
            held.job,
            held.fence,
            held.nonce,
            held.highest_state,
            closed.started_at.map(|at| at.0).or(started_at),
            container,
            write.stopping.map(codes::of_stop),
            codes::of_outcome(closed.outcome),
            closed.exit_code,
            some(&closed.message),
            closed.ended_at.0,
            closed.output.stdout.cast_signed(),
            closed.output.stderr.cast_signed(),
            closed.result,
            closed.released.map(codes::of_release),
            codes::of_state(waiting.state),
            waiting.due_at.0,
            own,
            losses,
        ])?;
        self.one(changed, write)
    }

    fn end(&mut self, write: &Write<'_>, ended: &Ended) -> Done {
        let job = write.job.0.cast_signed();
        let moved = match &ended.closed {
            Some(closed) => self.end_held(write, ended, closed)?,
            None => self.statements.end_idle.on(self.connection)?.execute(params![
                job,
                codes::of_state(ended.state),
                ended.at.0,
                some(&ended.reason),
                ended.confirmed,
            ])?,
        };
        if moved == 0 && self.is_settled(ended)? {
            return Ok(());
        }
        self.one(moved, write)?;
        let removed = self.statements.remove.on(self.connection)?.execute([job])?;
        self.one(removed, write)
    }

    fn end_held(
        &mut self,
        write: &Write<'_>,
        ended: &Ended,
        closed: &ClosedAttempt,
    ) -> Result<usize, Failure> {
        let held = Held::new(closed.token, write);
        let (started_at, container) = started(write);
        Ok(self.statements.end_held.on(self.connection)?.execute(params![
            held.job,
            held.fence,
            held.nonce,
            held.highest_state,
            closed.started_at.map(|at| at.0).or(started_at),
            container,
            write.stopping.map(codes::of_stop),
            codes::of_outcome(closed.outcome),
            closed.exit_code,
            some(&closed.message),
            closed.ended_at.0,
            closed.output.stdout.cast_signed(),
            closed.output.stderr.cast_signed(),
            closed.result,
            closed.released.map(codes::of_release),
            codes::of_state(ended.state),
            ended.at.0,
            some(&ended.reason),
            ended.confirmed,
        ])?)
    }

    /// Whether the job has ended by this very attempt with this very outcome: then there is nothing to do.
    fn is_settled(&self, ended: &Ended) -> Result<bool, Failure> {
        let Some(closed) = &ended.closed else { return Ok(false) };
        let mut statement = self.connection.prepare_cached(
            "SELECT 1 FROM ended WHERE id = ?1 AND fence = ?2 AND nonce = ?3 AND state = ?4 AND outcome = ?5",
        )?;
        Ok(statement.exists(params![
            ended.job.0.cast_signed(),
            closed.token.fence.0.cast_signed(),
            closed.token.nonce.0.cast_signed(),
            codes::of_state(ended.state),
            codes::of_outcome(closed.outcome),
        ])?)
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
                .prepare_cached(include_str!("queries/put_block.sql"))?
                .execute((block, oldest, newest))?;
        }
        self.connection.prepare_cached(include_str!("queries/finish.sql"))?.execute((
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

    /// The job's losses with this one.
    fn losses(&mut self, job: i64, closed: &ClosedAttempt) -> Result<Option<String>, Failure> {
        let mut statement = self.connection.prepare_cached("SELECT losses FROM jobs WHERE id = ?1")?;
        let stored = statement.query_row([job], |row| rows::losses(row, 0)).optional()?.unwrap_or_default();
        let instants: Vec<i64> = losses::with(stored, closed.ended_at).into_iter().map(|at| at.0).collect();
        Ok(rows::json_code(&instants))
    }

    fn one(&self, changed: usize, write: &Write<'_>) -> Done {
        if changed == 1 { Ok(()) } else { Err(self.refusal(write.job, write.expected)?) }
    }

    /// Names what was expected and what is there.
    fn refusal(&self, job: JobId, expected: Expected) -> Result<Failure, Failure> {
        let found: Option<(i64, Option<i64>)> = self
            .connection
            .prepare_cached("SELECT state, fence FROM all_jobs WHERE id = ?1")?
            .query_row([job.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let there = match found {
            None if expected == Expected::Absent => "its number was given before".to_owned(),
            None => "it does not exist".to_owned(),
            Some((state, fence)) => {
                let state = codes::state(state).map_or("in an unknown state", State::name);
                fence.map_or_else(
                    || format!("it is {state}"),
                    |fence| format!("it is {state}, last attempt {fence}"),
                )
            }
        };
        Ok(Failure::Refused(format!("job {job}: expected {expected}, but {there}")))
    }
}

/// How the row of a held job is found.
struct Held {
    job: i64,
    fence: i64,
    nonce: i64,
    /// Assigned if it must not have started, else running.
    highest_state: i64,
}

impl Held {
    fn of(write: &Write<'_>) -> Option<Self> {
        match write.expected {
            Expected::Unstarted(token) | Expected::Held(token) => Some(Self::new(token, write)),
            Expected::Absent | Expected::Scheduled | Expected::Queued | Expected::Idle => None,
        }
    }

    fn new(token: Token, write: &Write<'_>) -> Self {
        let unstarted = matches!(write.expected, Expected::Unstarted(_));
        Self {
            job: token.job.0.cast_signed(),
            fence: token.fence.0.cast_signed(),
            nonce: token.nonce.0.cast_signed(),
            highest_state: codes::of_state(if unstarted { State::Assigned } else { State::Running }),
        }
    }
}

fn live_state(write: &Write<'_>) -> i64 {
    codes::of_state(if write.started.is_some() { State::Running } else { State::Assigned })
}

fn started<'g>(write: &Write<'g>) -> (Option<i64>, Option<&'g str>) {
    write.started.map_or((None, None), |(at, container)| (Some(at.0), some(container)))
}

/// Empty texts are stored as null.
fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The statements of the busy path, picked up at their first use in a group.
struct Statements<'c> {
    insert_waiting: Lazily<'c>,
    insert_assigned: Lazily<'c>,
    due: Lazily<'c>,
    assign: Lazily<'c>,
    advance: Lazily<'c>,
    wait: Lazily<'c>,
    end_held: Lazily<'c>,
    end_idle: Lazily<'c>,
    remove: Lazily<'c>,
}

impl Default for Statements<'_> {
    fn default() -> Self {
        Self {
            insert_waiting: Lazily::new(include_str!("queries/insert_waiting.sql")),
            insert_assigned: Lazily::new(include_str!("queries/insert_assigned.sql")),
            due: Lazily::new("UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1"),
            assign: Lazily::new(include_str!("queries/assign.sql")),
            advance: Lazily::new(include_str!("queries/advance.sql")),
            wait: Lazily::new(include_str!("queries/wait.sql")),
            end_held: Lazily::new(include_str!("queries/end_held.sql")),
            end_idle: Lazily::new(include_str!("queries/end_idle.sql")),
            remove: Lazily::new("DELETE FROM jobs WHERE id = ?1"),
        }
    }
}

struct Lazily<'c> {
    sql: &'static str,
    statement: Option<CachedStatement<'c>>,
}

impl<'c> Lazily<'c> {
    const fn new(sql: &'static str) -> Self {
        Self { sql, statement: None }
    }

    fn on(&mut self, connection: &'c Connection) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let statement = match self.statement.take() {
            Some(statement) => statement,
            None => connection.prepare_cached(self.sql)?,
        };
        Ok(self.statement.insert(statement))
    }
}
