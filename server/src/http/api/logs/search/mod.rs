//! `GET /api/logs/search`: lines of stored output that fit a text or a regular expression.
//!
//! One request searches a bounded part and answers with a cursor; the caller goes on. `scan` walks jobs and output, `lines` cuts lines,
//! `matcher` compares.

mod lines;
mod matcher;
mod scan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use protocol::JobId;
use protocol::report::Stream;

use super::params::which;
use crate::http::api::batches;
use crate::http::api::jobs::find;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::OutputSearch;
use crate::http::request::cursor;
use crate::http::request::job_filter;
use crate::http::request::paging::limit;
use crate::http::request::query::{Query, invalid_query};
use crate::http::state::AppState;
use matcher::{Kind, Matcher};
use scan::{Position, Scan};

/// `GET /api/logs/search`
pub(crate) async fn search(
    State(state): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<OutputSearch>, Problem> {
    part(&state, Query::of(&uri)?).await.map(Json)
}

/// Searches the part that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_limit`, `invalid_cursor`, `job_not_found`, `batch_not_found`, `pruned`, those of [`job_filter::read`], `busy`, and those of a
/// read.
pub(crate) async fn part(state: &AppState, mut query: Query) -> Result<OutputSearch, Problem> {
    let pattern = query.text("q")?.unwrap_or_default();
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid_query(
            "q",
            &format!("it is the text to search, of 1 to {PATTERN_BYTES_MAX} bytes"),
        ));
    }
    let kind = if query.switch("regex")? { Kind::Regex } else { Kind::Literal };
    let matcher = Matcher::new(&pattern, kind, query.switch("ignore_case")?).map_err(|error| {
        let cause = error.syntax_error().map(ToString::to_string);
        invalid_query("q", &cause.unwrap_or_else(|| "the regular expression is too large".to_owned()))
    })?;
    let only = query.number("job")?.map(JobId);
    let streams = which(query.text("stream")?.as_deref())?;
    let lines_max = query.text("limit")?.as_deref().map_or(Ok(LINES), limit)?;
    // Read before the filters, whose own cursor it would be.
    let from = query.text("cursor")?.as_deref().map(read_cursor).transpose()?;
    let filter = job_filter::read(state, &mut query).await?;
    query.finish()?;
    if let Some(job) = only {
        find(state, job).await?;
    }
    if let Some(batch) = filter.batch {
        batches::find(state, batch).await?;
    }
    let (archive, logs) = (Arc::clone(&state.services.archive), Arc::clone(&state.services.logs));
    let work = move || {
        let mut scan = Scan {
            archive: archive.as_ref(),
            logs: &logs,
            matcher: &matcher,
            filter,
            only,
            streams,
            from,
            lines_max,
            deadline: Instant::now() + TIME_MAX,
            found: Vec::new(),
            bytes: 0,
            jobs: 0,
            cut_jobs: Vec::new(),
            limits: HashMap::new(),
        };
        let next = scan.run()?;
        Ok(OutputSearch {
            lines: scan.found,
            scanned_bytes: scan.bytes,
            scanned_jobs: scan.jobs,
            cut_jobs: scan.cut_jobs,
            complete: next.is_none(),
            jobs_left_at_most: match (next, only) {
                (None, _) => 0,
                (Some(_), Some(_)) => 1,
                (Some(next), None) => next.job.0,
            },
            next: next.map(|next| write_cursor(&next)),
        })
    };
    state.search(work).await
}

fn write_cursor(position: &Position) -> String {
    let mut bytes = [0; 21];
    bytes[..8].copy_from_slice(&position.job.0.to_be_bytes());
    bytes[8..12].copy_from_slice(&position.attempt.to_be_bytes());
    bytes[12] = u8::from(position.stream == Stream::Stderr);
    bytes[13..].copy_from_slice(&position.offset.to_be_bytes());
    cursor::encode(SALT, bytes)
}

fn read_cursor(text: &str) -> Result<Position, Problem> {
    let bytes: [u8; 21] = cursor::decode(SALT, text)?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Ok(Position {
        job: JobId(number(&bytes[..8])),
        attempt: u32::try_from(number(&bytes[8..12])).unwrap_or(u32::MAX),
        stream: if bytes[12] == 0 { Stream::Stdout } else { Stream::Stderr },
        offset: number(&bytes[13..]),
    })
}

const SALT: &[u8] = b"longshore output search cursor 1";

/// The longest pattern.
const PATTERN_BYTES_MAX: usize = 1_000;

/// The lines of an answer if no number is given.
const LINES: usize = 100;

/// One request searches about this long at most: slow patterns and disks end it before its limit of bytes.
const TIME_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_one_of_another_list_does_not() {
        let position = Position { job: JobId(12), attempt: 3, stream: Stream::Stderr, offset: 1 << 40 };
        assert_eq!(read_cursor(&write_cursor(&position)).unwrap(), position);
        assert!(read_cursor(&cursor::write(JobId(12))).is_err());
        assert!(read_cursor("").is_err());
    }
}
