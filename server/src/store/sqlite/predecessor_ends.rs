//! The variable that tells a job how the jobs and batches ended that it came after.

use protocol::JobId;
use rusqlite::{Connection, OptionalExtension, Row};
use scheduler::dependencies::PredecessorId;
use scheduler::job::State;

use super::dependencies::{JOBS_FIRST, number, predecessor, state, summary};
use super::{batches, record};
use crate::store::PREDECESSORS_BYTES_MAX;

/// The ends of the jobs and batches that this one came after, as JSON in one line for its variable; none if it came after none. A member of a job on
/// several workers came after what its parent came after. Results are left out where they do not fit, and the last entries if even they do not: one more entry counts those.
pub(super) fn ends(connection: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT predecessor, ended FROM dependencies
         WHERE job = coalesce((SELECT parent FROM members WHERE members.job = ?1), ?1) AND ended IS NOT NULL
         {JOBS_FIRST}"
    ))?;
    let ended = statement.query_map([number(job)], |row| Ok((predecessor(row, 0)?, state(row, 1)?)))?;
    let ended: Vec<(PredecessorId, Option<State>)> = ended.collect::<rusqlite::Result<_>>()?;
    let mut found = Vec::with_capacity(ended.len());
    for (on, state) in ended {
        let on = match on {
            PredecessorId::Job(on) => on,
            PredecessorId::Batch(first) => {
                found.push((batch_end(connection, first, state)?, None));
                continue;
            }
        };
        let name = summary(connection, on)?.map(|it| it.definition).unwrap_or_default();
        let last = last_end(connection, on)?;
        let end = PredecessorEnd {
            job: Some(on.0),
            name: Some(name),
            index: last.index,
            state: state.map_or("", State::name),
            exit_code: last.exit_code,
            ..PredecessorEnd::default()
        };
        found.push((end, last.result));
    }
    Ok((!found.is_empty()).then(|| ends_in_one_line(found)))
}

/// The columns of an ended job for its entry; all are empty once retention has deleted it.
#[derive(Default)]
struct LastEnd {
    exit_code: Option<i32>,
    result: Option<String>,
    /// The position in a batch that the job was told.
    index: Option<u64>,
}

fn last_end(connection: &Connection, job: JobId) -> rusqlite::Result<LastEnd> {
    let sql = "SELECT exit_code, result, id - batch, retry_of FROM all_jobs WHERE id = ?1";
    let read = |row: &Row<'_>| {
        let index = row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned);
        let last = LastEnd { exit_code: row.get(0)?, result: row.get(1)?, index };
        Ok((last, row.get::<_, Option<i64>>(3)?.is_some()))
    };
    let found = connection.prepare_cached(sql)?.query_row([number(job)], read).optional()?;
    let (last, is_retry) = found.unwrap_or_default();
    // A retry was told the position of the member that it repeats, if it repeats one.
    let index = if is_retry { record::given_params(connection, job)?.index } else { last.index };
    Ok(LastEnd { index, ..last })
}

fn ends_in_one_line(found: Vec<(PredecessorEnd, Option<String>)>) -> String {
    let mut left = PREDECESSORS_BYTES_MAX - "[]".len() - LEFT_OUT_BYTES;
    let mut fits = |text: &str| {
        let rest = left.checked_sub(text.len() + ",".len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let count = found.len();
    let mut ends = Vec::with_capacity(count);
    for (mut end, result) in found {
        let without = PredecessorEnd { result_left_out: result.is_some(), ..end.clone() };
        let without = serde_json::to_string(&without).unwrap_or_default();
        // As the job wrote it, it may have line breaks.
        end.result = result.and_then(|text| serde_json::from_str(&text).ok());
        let with = serde_json::to_string(&end).unwrap_or_default();
        if fits(&with) {
            ends.push(with);
        } else if fits(&without) {
            ends.push(without);
        } else {
            ends.push(format!("{{\"left_out\":{}}}", count - ends.len()));
            break;
        }
    }
    format!("[{}]", ends.join(","))
}

/// Room for the entry that counts the entries that are left out.
const LEFT_OUT_BYTES: usize = r#"{"left_out":18446744073709551615}"#.len();

/// The end of a batch. Its numbers are left out if retention has deleted all of its members.
fn batch_end(
    connection: &Connection,
    first: JobId,
    state: Option<State>,
) -> rusqlite::Result<PredecessorEnd> {
    let row = batches::batch(connection, first)?;
    let members = row.as_ref().map(|row| MembersEnd {
        count: row.count,
        succeeded: row.counts.succeeded,
        failed: row.counts.failures(),
        cancelled: row.counts.cancelled,
    });
    Ok(PredecessorEnd {
        batch: Some(first.0),
        name: row.and_then(|row| row.name),
        state: state.map_or("", State::name),
        members,
        ..PredecessorEnd::default()
    })
}

/// The end of a job or of a batch, as a job that comes after it is told.
#[derive(Clone, Default, serde::Serialize)]
struct PredecessorEnd {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Of a member of a batch, and of a job that repeats one.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<serde_json::Value>,
    /// It left one, for which there was no room.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    result_left_out: bool,
    /// Of a batch.
    #[serde(flatten)]
    members: Option<MembersEnd>,
}

/// The members of a batch by their ends. Those that expired or were lost count as failed.
#[derive(Clone, serde::Serialize)]
struct MembersEnd {
    count: u32,
    succeeded: u32,
    failed: u32,
    cancelled: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(job: u64, result: Option<String>) -> (PredecessorEnd, Option<String>) {
        (
            PredecessorEnd {
                job: Some(job),
                name: Some("extract".into()),
                state: "succeeded",
                exit_code: Some(0),
                ..PredecessorEnd::default()
            },
            result,
        )
    }

    #[test]
    fn ends_are_one_line_and_leave_out_what_does_not_fit() {
        let long = format!("\"{}\"", "x".repeat(PREDECESSORS_BYTES_MAX));
        let line = ends_in_one_line(vec![
            end(1, Some(long)),
            end(2, Some("{\n \"rows\": 3\n}".into())),
            end(3, None),
        ]);
        assert!(!line.contains('\n'), "{line}");
        let ends: Vec<serde_json::Value> = serde_json::from_str(&line).unwrap();
        assert_eq!(
            ends.iter().map(|end| end["result"].clone()).collect::<Vec<_>>(),
            [serde_json::Value::Null, serde_json::json!({"rows": 3}), serde_json::Value::Null,]
        );
        assert_eq!(
            ends.iter().map(|end| end["result_left_out"] == true).collect::<Vec<_>>(),
            [true, false, false]
        );
        let many = ends_in_one_line((1..=1_000).map(|job| end(job, None)).collect());
        assert!(many.len() <= PREDECESSORS_BYTES_MAX, "{}", many.len());
        let ends: Vec<serde_json::Value> = serde_json::from_str(&many).unwrap();
        let (count, told) = ends.split_last().unwrap();
        assert_eq!(count, &serde_json::json!({ "left_out": 1_000 - told.len() }));
        assert!(told.len() > 300 && told.iter().all(|end| end["job"].is_u64()), "{many}");
    }
}
