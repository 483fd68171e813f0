//! Notes of jobs. A note that repeats what the row says is not written.

use protocol::{JobId, Timestamp, Token, WorkerId};
use rusqlite::{Connection, OptionalExtension, params};
use scheduler::step::Note;

use super::{codes, record, rows};
use crate::store::late_reports;

/// Writes a note, after the rest of its group. A late report that says nothing new is left out, and so is one of very many.
pub(super) fn write(connection: &Connection, job: JobId, at: Timestamp, note: &Note) -> rusqlite::Result<()> {
    if let Note::LateReport { token, worker, said } = note
        && !is_news(connection, *token, *worker, said)?
    {
        return Ok(());
    }
    if matches!(note, Note::ContainerGone { .. }) && !record::is_kept(connection, job)? {
        return Ok(());
    }
    let (kind, fence, nonce, worker, text) = rows::note_columns(note);
    connection
        .prepare_cached("INSERT INTO notes (job, at, kind, fence, nonce, worker, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
        .execute(params![job.0.cast_signed(), at.0, kind, fence, nonce, worker, text])?;
    if matches!(note, Note::LateReport { .. }) {
        leave_out_surplus(connection, job.0.cast_signed())?;
    }
    Ok(())
}

fn leave_out_surplus(connection: &Connection, job: i64) -> rusqlite::Result<()> {
    let kept: Vec<i64> = connection
        .prepare_cached("SELECT id FROM notes WHERE job = ?1 AND kind = 2 ORDER BY id")?
        .query_map([job], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let Some(surplus) = late_reports::surplus(kept.len()).and_then(|at| kept.get(at)) else { return Ok(()) };
    connection.prepare_cached("DELETE FROM notes WHERE id = ?1")?.execute([surplus])?;
    connection
        .prepare_cached(
            "INSERT INTO left_out (job, late_reports) VALUES (?1, 1)
             ON CONFLICT (job) DO UPDATE SET late_reports = late_reports + 1",
        )?
        .execute([job])?;
    Ok(())
}

/// True if a late report is about a job in this store and says more than the row of its attempt.
fn is_news(connection: &Connection, token: Token, worker: WorkerId, said: &str) -> rusqlite::Result<bool> {
    let job = token.job.0.cast_signed();
    let attempt = connection
        .prepare_cached(
            "SELECT started_at IS NOT NULL, outcome, exit_code FROM all_attempts
             WHERE job = ?1 AND fence = ?2 AND nonce = ?3 AND worker = ?4",
        )?
        .query_row(
            (job, token.fence.0.cast_signed(), token.nonce.0.cast_signed(), worker.0.cast_signed()),
            |row| {
                let outcome = row.get::<_, Option<i64>>(1)?.map(codes::outcome).transpose()?;
                Ok((row.get(0)?, outcome, row.get(2)?))
            },
        )
        .optional()?;
    match attempt {
        Some((has_started, outcome, exit_code)) => {
            Ok(!late_reports::repeats(said, has_started, outcome, exit_code))
        }
        None => connection.prepare_cached("SELECT 1 FROM all_jobs WHERE id = ?1")?.exists([job]),
    }
}
