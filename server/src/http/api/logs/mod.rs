//! `GET /api/jobs/{id}/logs`: output as text, as a byte range, or as server-sent events; up to now, or followed.
//!
//! `params` reads the request, `reader` finds the pieces in order over all attempts of a job; `text` and `events` format them.

mod cut;
mod events;
mod params;
mod reader;
pub(crate) mod search;
mod stored;
mod text;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use protocol::JobId;

use crate::http::api::jobs::find;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::ending;
use crate::http::present::missing_output::withheld_text;
use crate::http::request::path::Id;
use crate::http::state::AppState;
use crate::logs::{AttemptKey, LogsError, PieceData, Streams};
use crate::store::{AttemptRow, JobRecord, JobRow, RunOnRole};
use events::{EventForm, events};
use params::LogsParams;
use reader::{Item, Reader, Start};
pub(crate) use stored::add_cuts;
use text::{PlainText, Range};

/// `GET /api/jobs/{id}/logs`
pub(crate) async fn of_job(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let params = LogsParams::of(&parts)?;
    let job = JobId(id);
    let record = find(&state, job).await?;
    let attempt = params.attempt(&record)?;
    // A resumed stream reports a removed part as a gap instead.
    if let Some(row) = attempt.filter(|_| params.resumed.is_none()) {
        check_not_removed(&state, job, row).await?;
    }
    let position = match attempt {
        Some(attempt) => first_position(&state, job, attempt, &params).await?,
        None => params.offset,
    };
    if let (Some(range), Some(attempt), false) = (params.range, attempt, params.follow || params.events) {
        return part(&state, job, attempt, params.which, range).await;
    }
    let start = Start {
        which: params.which,
        attempt: attempt.map(|attempt| attempt.number),
        position,
        follow: params.follow,
        // Only events and followed text can show a change of attempts.
        only: params.number.is_some() || !(params.follow || params.events || params.all),
    };
    let reader = Reader::new(Arc::clone(&state), job, start);
    if params.events {
        let form = EventForm { base64: params.base64, timestamps: params.timestamps };
        return Ok(Sse::new(events(reader, form, params.resumed.map(|it| it.place)))
            .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
            .into_response());
    }
    let notes = match params.follow {
        true => Notes::Annotated,
        false if params.all => Notes::Headings,
        false => Notes::Missing,
    };
    let text = plain(reader, PlainText::new(params.timestamps), notes, members_notice(&record.row));
    let mut response = ([(header::CONTENT_TYPE, TEXT)], text).into_response();
    if !(params.timestamps || params.all) {
        response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    Ok(response)
}

/// Follows the output of a new job; the last line says how it ended.
pub(crate) async fn follow(state: &Arc<AppState>, job: JobId) -> Response {
    // The job was accepted, and the answer must say so, also if it cannot be read now.
    let notice = find(state, job).await.ok().and_then(|record| members_notice(&record.row));
    let start = Start { which: Streams::Both, attempt: None, position: 0, follow: true, only: false };
    let reader = Reader::new(Arc::clone(state), job, start);
    ([(header::CONTENT_TYPE, TEXT)], plain(reader, PlainText::new(false), Notes::Annotated, notice))
        .into_response()
}

/// The first line in place of the output that a job on several workers does not have.
fn members_notice(row: &JobRow) -> Option<String> {
    let job = row.job;
    matches!(row.run_on_role, RunOnRole::Parent(_)).then(|| {
        format!(
            "longshore: job {job} runs on several workers and has no output of its own: GET /api/jobs?member_of={job} lists its members"
        )
    })
}

/// The last bytes of an attempt's output.
#[derive(Default)]
pub(crate) struct LastBytes {
    pub(crate) bytes: Bytes,
    /// There is output before them.
    pub(crate) is_cut: bool,
}

/// The last bytes of an attempt's output, of the latest attempt if none is named; empty without any.
///
/// # Errors
/// `unknown_attempt`, and those of a read.
pub(crate) async fn last_bytes(
    state: &AppState,
    record: &JobRecord,
    number: Option<u64>,
    bytes_max: usize,
) -> Result<LastBytes, Problem> {
    let Some(row) = named_attempt(record, number)? else { return Ok(LastBytes::default()) };
    let (logs, key) =
        (Arc::clone(&state.services.logs), AttemptKey { job: record.row.job, fence: row.fence });
    let read = move || {
        let total = reader::length(&logs.lengths(key)?, Streams::Both);
        let mut at = total.saturating_sub(bytes_max as u64);
        let is_cut = at > 0;
        let mut bytes = BytesMut::new();
        while at < total {
            let page = logs.read(key, Streams::Both, at, bytes_max)?;
            let Some(last) = page.pieces.last() else { break };
            at = last.at + last.data.len();
            for piece in page.pieces {
                if let PieceData::Bytes(data) | PieceData::Replayed(data) = piece.data {
                    bytes.extend_from_slice(&data);
                }
            }
        }
        Ok(LastBytes { bytes: bytes.freeze(), is_cut })
    };
    state.block(read).await
}

/// Answers `output_removed` if retention has removed all output of an attempt. A partial loss is shown as a gap in the output.
async fn check_not_removed(state: &AppState, job: JobId, row: &AttemptRow) -> Result<(), Problem> {
    let Some(written) = removed_bytes(state, job, row).await? else { return Ok(()) };
    let detail =
        format!("attempt {} of job {job} wrote {written} bytes; none of them is here any more", row.number);
    Err(Problem::new(ProblemCode::OutputRemoved, detail)
        .hint(
            "output is kept for the retention.output_max_age of its definition, and that of all jobs together up to a limited size \
             (--keep-output-max)",
        ))
}

/// The number of bytes that an attempt wrote, if none of them is kept and none can arrive any more.
async fn removed_bytes(state: &AppState, job: JobId, row: &AttemptRow) -> Result<Option<u64>, Problem> {
    let written = reader::length(&row.output, Streams::Both);
    if written == 0 || !reader::is_long_over(row) {
        return Ok(None);
    }
    let (logs, attempt) = (Arc::clone(&state.services.logs), AttemptKey { job, fence: row.fence });
    let kept = state.block(move || Ok(reader::length(&logs.lengths(attempt)?, Streams::Both))).await?;
    Ok((kept == 0).then_some(written))
}

/// The number and the written bytes of an attempt, of the latest if none is named, if its output was removed.
pub(crate) async fn removed(
    state: &AppState,
    record: &JobRecord,
    number: Option<u64>,
) -> Result<Option<(u32, u64)>, Problem> {
    let Some(row) = named_attempt(record, number)? else { return Ok(None) };
    let written = removed_bytes(state, record.row.job, row).await?;
    Ok(written.map(|written| (row.number.0, written)))
}

/// The attempt with this number, or the latest one if a job has any.
fn named_attempt(record: &JobRecord, number: Option<u64>) -> Result<Option<&AttemptRow>, Problem> {
    let Some(number) = number else { return Ok(record.row.attempt.as_ref()) };
    let found = reader::attempts(record).find(|row| u64::from(row.number.0) == number);
    found.map(Some).ok_or_else(|| {
        Problem::new(ProblemCode::UnknownAttempt, format!("job {} has no attempt {number}", record.row.job))
    })
}

/// The position in an attempt's output at which the answer begins: its offset, or the last lines of what was received since a time.
async fn first_position(
    state: &AppState,
    job: JobId,
    attempt: &AttemptRow,
    params: &LogsParams,
) -> Result<u64, Problem> {
    let (which, tail, since) = (params.which, params.tail, params.since);
    // No output is older than its attempt.
    let since = since.filter(|since| *since > attempt.assigned_at);
    if tail.is_none() && since.is_none() {
        return Ok(params.offset);
    }
    let logs = Arc::clone(&state.services.logs);
    let attempt = AttemptKey { job, fence: attempt.fence };
    let look = move || {
        let tail = tail.map(|lines| logs.tail(attempt, which, lines)).transpose()?;
        let since = since.map(|since| logs.since(attempt, which, since)).transpose()?;
        Ok(tail.max(since).unwrap_or_default())
    };
    // To find a time may take a look at each record of a large output.
    if since.is_some() { state.search(look).await } else { state.block(look).await }
}

/// Answers a `Range` request. A part never spans a gap: it ends before it or begins after it.
async fn part(
    state: &AppState,
    job: JobId,
    row: &AttemptRow,
    which: Streams,
    range: Range,
) -> Result<Response, Problem> {
    let logs = Arc::clone(&state.services.logs);
    let attempt = AttemptKey { job, fence: row.fence };
    let total = state.block(move || Ok(reader::length(&logs.lengths(attempt)?, which))).await?;
    let not_there = || {
        let value = HeaderValue::try_from(format!("bytes */{total}"));
        Problem::new(ProblemCode::RangeNotSatisfiable, format!("the output has {total} bytes"))
            .field("Range")
            .header(header::CONTENT_RANGE, value.unwrap_or(HeaderValue::from_static("bytes */*")))
    };
    let (from, to) = range.within(total).ok_or_else(not_there)?;
    let logs = Arc::clone(&state.services.logs);
    let (first, bytes) = state
        .block(move || {
            let mut first = from;
            let mut bytes = BytesMut::new();
            let wanted_max = usize::try_from(to - from).unwrap_or(usize::MAX).min(PART_BYTES_MAX);
            while bytes.len() < wanted_max {
                let page = logs.read(attempt, which, first + bytes.len() as u64, wanted_max - bytes.len())?;
                if page.pieces.is_empty() {
                    break;
                }
                for piece in page.pieces {
                    match piece.data {
                        PieceData::Bytes(data) | PieceData::Replayed(data) => bytes.extend_from_slice(&data),
                        PieceData::Gap(missing) | PieceData::Cut(missing) if bytes.is_empty() => {
                            first = piece.at + missing;
                        }
                        PieceData::Gap(_) | PieceData::Cut(_) => return Ok((first, bytes)),
                    }
                }
            }
            bytes.truncate(usize::try_from(to.saturating_sub(first)).unwrap_or(usize::MAX).min(wanted_max));
            Ok((first, bytes))
        })
        .await?;
    if bytes.is_empty() {
        return Err(not_there());
    }
    let whole = if row.ended_at.is_some() { total.to_string() } else { "*".to_owned() };
    let content_range = format!("bytes {first}-{}/{whole}", first + bytes.len() as u64 - 1);
    let headers = [(header::CONTENT_TYPE, TEXT), (header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))];
    Ok((StatusCode::PARTIAL_CONTENT, headers, [(header::CONTENT_RANGE, content_range)], bytes.freeze())
        .into_response())
}

/// The lines of the server in plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notes {
    /// A line for each gap.
    Missing,
    /// Also a heading for each attempt.
    Headings,
    /// A line for each gap, for further attempts, replayed, withheld and late output, and the end of each attempt and of the job.
    Annotated,
}

/// Output as plain text: the exact bytes, and lines of the server. `notice` is the first line.
fn plain(reader: Reader, mut plain: PlainText, notes: Notes, notice: Option<String>) -> Body {
    let annotated = notes == Notes::Annotated;
    let notice = notice.map(|notice| Ok(plain.line(&notice)));
    let parts = stream::unfold((reader, plain), move |(mut reader, mut plain)| async move {
        loop {
            let text = match reader.next().await? {
                Ok(Item::Piece { piece, cut_at, .. }) => {
                    let label = if annotated { plain.replay_notice(&piece) } else { Bytes::new() };
                    let bytes = plain.piece(piece, cut_at);
                    if label.is_empty() { bytes } else { [label, bytes].concat().into() }
                }
                Ok(Item::Late { bytes }) if annotated => {
                    plain.line(&format!("longshore: {bytes} bytes of output have not arrived yet"))
                }
                Ok(Item::Withheld { shown_bytes, bytes_max }) if annotated => {
                    plain.line(&withheld_text(shown_bytes, bytes_max))
                }
                Ok(Item::Retried(retried)) if annotated => plain.line(&retried.text),
                Ok(Item::Ended(row)) if annotated => plain.line(&ending::last_line(&row)),
                Ok(Item::ShuttingDown) if annotated => {
                    plain.line("longshore: the server is shutting down; the job is not affected")
                }
                Ok(Item::Attempt { number, heading, .. }) if notes == Notes::Headings => {
                    plain.start_attempt();
                    let separator = if number.0 > 1 { "\n" } else { "" };
                    plain.line(&format!("{separator}==> {heading} <=="))
                }
                Ok(Item::Attempt { number, worker, .. }) => {
                    plain.start_attempt();
                    let is_worth_a_line = annotated && number.0 > 1;
                    let line = is_worth_a_line.then(|| format!("longshore: attempt {number} on {worker}"));
                    line.map(|line| plain.line(&line)).unwrap_or_default()
                }
                Ok(_) => Bytes::new(),
                // The status was sent already: breaking off is the only way to show an error.
                Err(problem) => return Some((Err(Broken(problem.code())), (reader, plain))),
            };
            if !text.is_empty() {
                return Some((Ok::<_, Broken>(text), (reader, plain)));
            }
        }
    });
    Body::from_stream(stream::iter(notice).chain(parts))
}

#[derive(Debug, thiserror::Error)]
#[error("the output breaks off: {}", .0.title())]
struct Broken(ProblemCode);

impl From<LogsError> for Problem {
    fn from(error: LogsError) -> Self {
        Self::unreadable(error)
    }
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Shorter than the idle timeout of common proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes of one answer to a `Range`; the client asks again for more.
const PART_BYTES_MAX: usize = 4 << 20;
