//! The parameters of a request for output, in the query and in headers.

use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use protocol::Timestamp;
use protocol::report::Stream as Written;

use super::events::EventPosition;
use super::reader;
use super::text::Range;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::accept::accepts;
use crate::http::request::query::{Query, invalid_query};
use crate::logs::Streams;
use crate::store::{AttemptRow, JobRecord};

/// The parameters of a request for output.
pub(super) struct LogsParams {
    pub(super) follow: bool,
    /// The requested attempt; absent: the latest one, and with `follow` those after it.
    pub(super) number: Option<u32>,
    /// True if the output of all attempts is requested, the first one first.
    pub(super) all: bool,
    /// The event from which the client resumes; later attempts follow.
    pub(super) resumed: Option<Resumed>,
    pub(super) which: Streams,
    pub(super) tail: Option<u64>,
    /// The output begins with what was received at this time.
    pub(super) since: Option<Timestamp>,
    pub(super) offset: u64,
    pub(super) range: Option<Range>,
    pub(super) events: bool,
    pub(super) base64: bool,
    /// True if the client wants the time at which output was received.
    pub(super) timestamps: bool,
}

/// The last event that a client has received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resumed {
    pub(super) place: EventPosition,
    /// The header or the parameter that has its id.
    pub(super) field: &'static str,
}

impl LogsParams {
    pub(super) fn of(parts: &Parts) -> Result<Self, Problem> {
        let mut query = Query::of(&parts.uri)?;
        let attempt = query.text("attempt")?;
        let all = attempt.as_deref() == Some("all");
        let number = attempt.filter(|_| !all).map(|text| attempt_number(&text)).transpose()?;
        let offset = query.number("offset")?;
        let mut params = Self {
            follow: query.switch("follow")?,
            number,
            all,
            resumed: None,
            which: which(query.text("stream")?.as_deref())?,
            tail: query.number("tail")?,
            since: query.since("since")?,
            offset: offset.unwrap_or_default(),
            range: parts.headers.get(header::RANGE).and_then(|range| Range::parse(range.to_str().ok()?)),
            events: wants_events(&parts.headers),
            base64: base64(query.text("encoding")?.as_deref())?,
            timestamps: query.switch("timestamps")?,
        };
        let after = query.text("after")?.filter(|after| !after.is_empty());
        query.finish()?;
        let beginnings = [("tail", params.tail.is_some()), ("since", params.since.is_some())];
        if let Some((given, _)) = beginnings.into_iter().find(|(_, is_given)| *is_given)
            && (offset.is_some() || params.range.is_some())
        {
            return Err(invalid_query(given, "it does not go together with an offset or a range"));
        }
        if offset.is_some() && params.range.is_some() {
            return Err(invalid_query("offset", "it does not go together with a range"));
        }
        let begins =
            params.tail.is_some() || params.since.is_some() || offset.is_some() || params.range.is_some();
        if all && begins {
            let detail = "\"all\" does not go together with tail, since, offset or a range, which are within one attempt";
            return Err(invalid_query("attempt", detail));
        }
        if params.timestamps && params.range.is_some() {
            return Err(invalid_query("timestamps", "they do not go together with a range"));
        }
        if params.base64 && !params.events {
            let detail = "only events are encoded: ask for them with \"accept: text/event-stream\"";
            return Err(invalid_query("encoding", detail));
        }
        if after.is_some() && !params.events {
            let detail = "only events have an id: ask for them with \"accept: text/event-stream\"";
            return Err(invalid_query("after", detail));
        }
        // A browser that reconnects repeats the address, and says in the header what it had since.
        if let Some(last) = parts.headers.get("last-event-id").filter(|_| params.events) {
            params.resume("Last-Event-ID", last.to_str().unwrap_or_default())?;
        } else if let Some(after) = after {
            params.resume("?after", &after)?;
        }
        Ok(params)
    }

    /// Continues after the last event that the client has received. `field` has its id.
    fn resume(&mut self, field: &'static str, last: &str) -> Result<(), Problem> {
        let place = EventPosition::parse(last).ok_or_else(|| unknown_event_id(field))?;
        if self.number.is_some_and(|wanted| wanted != place.attempt) {
            return Err(unknown_event_id(field));
        }
        self.resumed = Some(Resumed { place, field });
        self.offset = place.from;
        (self.tail, self.since) = (None, None);
        Ok(())
    }

    pub(super) fn attempt<'r>(&self, record: &'r JobRecord) -> Result<Option<&'r AttemptRow>, Problem> {
        let find = |number: u32| reader::attempts(record).find(|attempt| attempt.number.0 == number);
        match (self.number, self.resumed) {
            (Some(number), _) => find(number).map(Some).ok_or_else(|| {
                Problem::new(
                    ProblemCode::UnknownAttempt,
                    format!("job {} has no attempt {number}", record.row.job),
                )
                .field("?attempt")
                .hint(match record.row.attempts.0 {
                    0 => "it has had none so far".to_owned(),
                    1 => "it has had attempt 1 only".to_owned(),
                    last => format!("it has had attempts 1 to {last}"),
                })
            }),
            (None, Some(Resumed { place, field })) => match find(place.attempt) {
                // A client that began before the first attempt gets it from its start.
                None if self.offset > 0 => Err(unknown_event_id(field)),
                found => Ok(found),
            },
            (None, None) if self.all => Ok(None),
            (None, None) => Ok(record.row.attempt.as_ref()),
        }
    }
}

fn unknown_event_id(field: &'static str) -> Problem {
    Problem::new(ProblemCode::InvalidCursor, "it is not the id of an event of this output").field(field)
}

/// A number that is too large is of no attempt.
fn attempt_number(text: &str) -> Result<u32, Problem> {
    let number: Result<u64, _> = text.parse();
    let number = number.map_err(|_| invalid_query("attempt", "it is a whole number from 0, or all"))?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

fn base64(text: Option<&str>) -> Result<bool, Problem> {
    match text {
        None => Ok(false),
        Some("base64") => Ok(true),
        Some(_) => Err(invalid_query("encoding", "it is base64")),
    }
}

/// The streams that the parameter `stream` names.
///
/// # Errors
/// `invalid_query`.
pub(super) fn which(text: Option<&str>) -> Result<Streams, Problem> {
    match text {
        None => Ok(Streams::Both),
        Some("stdout") => Ok(Streams::Only(Written::Stdout)),
        Some("stderr") => Ok(Streams::Only(Written::Stderr)),
        Some(_) => Err(invalid_query("stream", "it is stdout or stderr")),
    }
}

/// Events need an explicit `text/event-stream`: `*/*` means text.
fn wants_events(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ACCEPT)
        && accepts(headers, "text/event-stream")
        && headers
            .get_all(header::ACCEPT)
            .iter()
            .any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/event-stream")))
}
