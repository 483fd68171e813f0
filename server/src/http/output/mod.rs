//! What containers wrote: as text, as a part of it, or as server-sent events; once, or as it comes.
//!
//! `reader` finds the pieces, in order and over all attempts of a job; here, in `text` and in `events` they are dressed for the client.

mod events;
mod reader;
mod text;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use protocol::JobId;
use protocol::report::Stream as Written;

use super::code::Code;
use super::desk::Desk;
use super::front::accepts;
use super::jobs::find;
use super::path::Id;
use super::problem::Problem;
use super::query::{Query, wrong};
use super::show;
use crate::logs::{Attempt, LogsError, PieceData, Which};
use crate::store::{AttemptRow, JobRecord};
use events::{Place, events};
use reader::{Item, Reader, Start};
use text::{Plain, Range};

/// `GET /api/jobs/{id}/logs`
pub(super) async fn of_job(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let wish = Wish::of(&parts)?;
    let job = JobId(id);
    let record = find(&desk, job).await?;
    let attempt = wish.attempt(&record)?;
    // Whoever goes on in a stream is told of a gap there, and then of what comes after it.
    if let Some(row) = attempt.filter(|_| wish.resumed.is_none()) {
        must_be_kept(&desk, job, row).await?;
    }
    let position = match (wish.tail, attempt) {
        (Some(lines), Some(attempt)) => tail(&desk, job, attempt, wish.which, lines).await?,
        _ => wish.offset,
    };
    if let (Some(range), Some(attempt), false) = (wish.range, attempt, wish.follow || wish.events) {
        return part(&desk, job, attempt, wish.which, range).await;
    }
    let start = Start {
        which: wish.which,
        attempt: attempt.map(|attempt| attempt.number),
        position,
        follow: wish.follow,
        // Events tell of another attempt; text that is not followed has no room for that.
        only: wish.number.is_some() || !(wish.follow || wish.events),
    };
    let reader = Reader::new(Arc::clone(&desk), job, start);
    if wish.events {
        return Ok(Sse::new(events(reader, wish.base64, wish.resumed))
            .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
            .into_response());
    }
    let mut response = ([(header::CONTENT_TYPE, TEXT)], plain(reader, wish.follow)).into_response();
    response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    Ok(response)
}

/// The output of a job that has just been made, as it comes, and a last line that tells how it ended.
pub(super) fn follow(desk: &Arc<Desk>, job: JobId) -> Response {
    let start = Start { which: Which::Both, attempt: None, position: 0, follow: true, only: false };
    let reader = Reader::new(Arc::clone(desk), job, start);
    ([(header::CONTENT_TYPE, TEXT)], plain(reader, true)).into_response()
}

/// What a client wants to see.
struct Wish {
    follow: bool,
    /// The one attempt that is asked for.
    number: Option<u32>,
    /// Where a client goes on; other attempts may follow.
    resumed: Option<Place>,
    which: Which,
    tail: Option<u64>,
    offset: u64,
    range: Option<Range>,
    events: bool,
    base64: bool,
}

impl Wish {
    fn of(parts: &Parts) -> Result<Self, Problem> {
        let mut query = Query::of(&parts.uri)?;
        let number = query.number("attempt")?;
        let offset = query.number("offset")?;
        let mut wish = Self {
            follow: query.switch("follow")?,
            number: number.map(|number| u32::try_from(number).unwrap_or(u32::MAX)),
            resumed: None,
            which: which(query.text("stream")?.as_deref())?,
            tail: query.number("tail")?,
            offset: offset.unwrap_or_default(),
            range: parts.headers.get(header::RANGE).and_then(|range| Range::parse(range.to_str().ok()?)),
            events: wants_events(&parts.headers),
            base64: base64(query.text("encoding")?.as_deref())?,
        };
        query.finish()?;
        if wish.tail.is_some() && (offset.is_some() || wish.range.is_some()) {
            return Err(wrong("tail", "it does not go together with an offset or a range"));
        }
        if offset.is_some() && wish.range.is_some() {
            return Err(wrong("offset", "it does not go together with a range"));
        }
        if wish.base64 && !wish.events {
            let detail = "only events are encoded: ask for them with \"accept: text/event-stream\"";
            return Err(wrong("encoding", detail));
        }
        if let Some(last) = parts.headers.get("last-event-id").filter(|_| wish.events) {
            wish.resume(last.to_str().unwrap_or_default())?;
        }
        Ok(wish)
    }

    /// Goes on behind the last event that the client has seen.
    fn resume(&mut self, last: &str) -> Result<(), Problem> {
        let place = Place::parse(last).ok_or_else(foreign_event)?;
        if self.number.is_some_and(|wanted| wanted != place.attempt) {
            return Err(foreign_event());
        }
        self.resumed = Some(place);
        self.offset = place.from;
        self.tail = None;
        Ok(())
    }

    fn attempt<'r>(&self, record: &'r JobRecord) -> Result<Option<&'r AttemptRow>, Problem> {
        let find = |number: u32| reader::attempts(record).find(|attempt| attempt.number.0 == number);
        match (self.number, self.resumed) {
            (Some(number), _) => find(number).map(Some).ok_or_else(|| {
                Problem::new(Code::UnknownAttempt, format!("job {} has no attempt {number}", record.row.job))
                    .field("?attempt")
                    .hint(match record.row.attempts.0 {
                        0 => "it has had none so far".to_owned(),
                        1 => "it has had attempt 1 only".to_owned(),
                        last => format!("it has had attempts 1 to {last}"),
                    })
            }),
            (None, Some(place)) => match find(place.attempt) {
                // Whoever begins before the first attempt is made sees it from its beginning.
                None if self.offset > 0 => Err(foreign_event()),
                found => Ok(found),
            },
            (None, None) => Ok(record.row.attempt.as_ref()),
        }
    }
}

fn foreign_event() -> Problem {
    Problem::new(Code::InvalidCursor, "it is not the id of an event of this output").field("Last-Event-ID")
}

fn base64(text: Option<&str>) -> Result<bool, Problem> {
    match text {
        None => Ok(false),
        Some("base64") => Ok(true),
        Some(_) => Err(wrong("encoding", "it is base64")),
    }
}

fn which(text: Option<&str>) -> Result<Which, Problem> {
    match text {
        None => Ok(Which::Both),
        Some("stdout") => Ok(Which::Only(Written::Stdout)),
        Some("stderr") => Ok(Which::Only(Written::Stderr)),
        Some(_) => Err(wrong("stream", "it is stdout or stderr")),
    }
}

/// Events are for those who ask for nothing else: a star means text.
fn wants_events(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ACCEPT)
        && accepts(headers, "text/event-stream")
        && headers
            .get_all(header::ACCEPT)
            .iter()
            .any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/event-stream")))
}

/// Refuses to show an attempt as one that wrote nothing when nothing is left of what it wrote. Where only a part is missing, the
/// output itself tells so.
async fn must_be_kept(desk: &Desk, job: JobId, row: &AttemptRow) -> Result<(), Problem> {
    let written = reader::length(&row.output, Which::Both);
    if written == 0 || !reader::is_long_over(row) {
        return Ok(());
    }
    let (logs, attempt) = (Arc::clone(&desk.app.logs), Attempt { job, fence: row.fence });
    let kept = desk.block(move || Ok(reader::length(&logs.lengths(attempt)?, Which::Both))).await?;
    if kept > 0 {
        return Ok(());
    }
    let detail =
        format!("attempt {} of job {job} wrote {written} bytes; none of them is here any more", row.number);
    Err(Problem::new(Code::OutputRemoved, detail)
        .hint("output of all jobs together is kept up to a limited size (--keep-output-max)"))
}

async fn tail(
    desk: &Desk,
    job: JobId,
    attempt: &AttemptRow,
    which: Which,
    lines: u64,
) -> Result<u64, Problem> {
    let logs = Arc::clone(&desk.app.logs);
    let attempt = Attempt { job, fence: attempt.fence };
    desk.block(move || Ok(logs.tail(attempt, which, lines)?)).await
}

/// The bytes that a `Range` asks for. What is missing has no bytes: a part begins behind it and ends before it, and says so.
async fn part(
    desk: &Desk,
    job: JobId,
    row: &AttemptRow,
    which: Which,
    range: Range,
) -> Result<Response, Problem> {
    let logs = Arc::clone(&desk.app.logs);
    let attempt = Attempt { job, fence: row.fence };
    let total = desk.block(move || Ok(reader::length(&logs.lengths(attempt)?, which))).await?;
    let not_there = || {
        let value = HeaderValue::try_from(format!("bytes */{total}"));
        Problem::new(Code::RangeNotSatisfiable, format!("the output has {total} bytes"))
            .field("Range")
            .header(header::CONTENT_RANGE, value.unwrap_or(HeaderValue::from_static("bytes */*")))
    };
    let (from, to) = range.within(total).ok_or_else(not_there)?;
    let logs = Arc::clone(&desk.app.logs);
    let (first, bytes) = desk
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
                        PieceData::Gap(missing) if bytes.is_empty() => first = piece.at + missing,
                        PieceData::Gap(_) => return Ok((first, bytes)),
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

/// Output as text: exactly the bytes, and a line for what is missing. Whoever follows is `told` more: where another attempt begins, what
/// was read again from the engine's log, and in the end how the job ended.
fn plain(reader: Reader, told: bool) -> Body {
    let parts = stream::unfold((reader, Plain::default()), move |(mut reader, mut plain)| async move {
        loop {
            let text = match reader.next().await? {
                Ok(Item::Piece { piece, .. }) => {
                    let label = if told { plain.label(&piece) } else { Bytes::new() };
                    let bytes = plain.piece(piece.data);
                    if label.is_empty() { bytes } else { [label, bytes].concat().into() }
                }
                Ok(Item::Late { bytes }) if told => {
                    plain.line(&format!("longshore: {bytes} bytes of output have not arrived yet"))
                }
                Ok(Item::Ended(row)) if told => plain.line(&show::last_line(&row)),
                Ok(Item::Left) if told => {
                    plain.line("longshore: the server is leaving; the job is not affected")
                }
                Ok(Item::Attempt { number, worker, .. }) => {
                    plain.turn();
                    let is_worth_a_line = told && number.0 > 1;
                    let line = is_worth_a_line.then(|| format!("longshore: attempt {number} on {worker}"));
                    line.map(|line| plain.line(&line)).unwrap_or_default()
                }
                Ok(_) => Bytes::new(),
                // The status has been sent: only breaking off tells that something is missing.
                Err(problem) => return Some((Err(Broken(problem.code())), (reader, plain))),
            };
            if !text.is_empty() {
                return Some((Ok::<_, Broken>(text), (reader, plain)));
            }
        }
    });
    Body::from_stream(parts)
}

#[derive(Debug, thiserror::Error)]
#[error("the output breaks off: {}", .0.title())]
struct Broken(Code);

impl From<LogsError> for Problem {
    fn from(error: LogsError) -> Self {
        Self::unreadable(error)
    }
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Below the patience of common proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One answer to a Range: a client that wants more asks again.
const PART_BYTES_MAX: usize = 4 << 20;
