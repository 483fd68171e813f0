//! The workers' rows: one is written when a worker joins or changes, and its number is the highest from then on.
//!
//! Rows of forgotten workers stay while jobs that are kept have attempts on them: lists show their names.

use protocol::{Timestamp, WorkerId};
use rusqlite::{Connection, params};
use scheduler::ids::JoinTokenId;

use super::{TransactionWriter, WriteResult};
use crate::store::fold::WorkerChange;
use crate::store::sqlite::blocks::SEEN_WORKER;
use crate::store::sqlite::{interventions, json_column};

/// Deletes the rows of forgotten workers that no kept job has an attempt on. `seen` has an entry for each block with such a job.
pub(super) fn remove_unused(connection: &Connection) -> WriteResult {
    connection
        .prepare_cached(
            "DELETE FROM workers WHERE forgotten
             AND NOT EXISTS (SELECT 1 FROM seen WHERE kind = ?1 AND which = workers.id)",
        )?
        .execute([SEEN_WORKER])?;
    Ok(())
}

/// Writes when the connections of these workers ended without their leaving.
pub(super) fn put_lost(connection: &Connection, lost: &[(WorkerId, Timestamp)]) -> WriteResult {
    let mut statement = connection.prepare_cached("UPDATE workers SET lost_at = ?2 WHERE id = ?1")?;
    for (worker, at) in lost {
        statement.execute((worker.0.cast_signed(), at.0))?;
    }
    Ok(())
}

impl TransactionWriter<'_> {
    pub(super) fn workers(&mut self, changes: &[WorkerChange<'_>]) -> WriteResult {
        for change in changes {
            match change {
                WorkerChange::Put(row) => {
                    if let Some(join_token) = row.join_token {
                        self.count_join(row.worker, join_token)?;
                    }
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
                            json_column::code(&row.labels),
                            row.process.map(|process| process.incarnation.0.cast_signed()),
                            row.process.map(|process| process.number.cast_signed()),
                            row.join_token.map(|id| id.0.cast_signed()),
                            json_column::code(&row.granted),
                            row.revoked_at.map(|at| at.0),
                            row.cordon.as_ref().map(|cordon| cordon.since.0),
                            row.cordon.as_ref().and_then(interventions::by),
                            row.cordon.as_ref().and_then(|cordon| cordon.origin.reason.as_deref()),
                            row.cordon_end().map(|at| at.0),
                        ],
                    )?;
                }
                WorkerChange::Forget(worker) => {
                    self.connection
                        .prepare_cached("UPDATE workers SET forgotten = 1 WHERE id = ?1")?
                        .execute([worker.0.cast_signed()])?;
                    remove_unused(self.connection)?;
                }
            }
        }
        Ok(())
    }

    /// Counts a worker that is new among those that joined by a token.
    fn count_join(&mut self, worker: WorkerId, join_token: JoinTokenId) -> WriteResult {
        self.connection
            .prepare_cached(
                "UPDATE tokens SET joined = joined + 1
                 WHERE id = ?2 AND NOT EXISTS (SELECT 1 FROM workers WHERE id = ?1)",
            )?
            .execute((worker.0.cast_signed(), join_token.0.cast_signed()))?;
        Ok(())
    }
}
