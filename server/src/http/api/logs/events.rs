//! Output as server-sent events, with ids from which a client resumes.
//!
//! In text form, an incomplete UTF-8 character waits for its remaining bytes, while the other stream goes on. So an event id has two
//! numbers: the first byte that was not sent, and the end of the bytes that were.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;

use axum::response::sse::Event;
use data_encoding::BASE64;
use futures_util::stream::{self, Stream};
use protocol::report::Stream as Written;
use protocol::{AttemptNo, Timestamp};
use serde::Serialize;

use super::reader::{Item, Reader, Retried};
use super::text::{LossyText, Streams, index, missing_bytes, missing_line};
use crate::http::middleware::problem::Problem;
use crate::http::present::ending;
use crate::http::present::missing_output::withheld_text;
use crate::http::present::shapes::Reason;
use crate::logs::{Piece, PieceData};
use crate::rfc3339::Time;

/// Output as events: `attempt`, `output`, `gap`, `late`, `withheld`, `attempt_ended`, and at the end `end` or `leaving`. A client with
/// `resumed` continues there.
pub(super) fn events(
    reader: Reader,
    form: EventForm,
    resumed_from: Option<EventPosition>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((reader, EventEncoder::new(form, resumed_from)), |(mut reader, mut encoder)| async move {
        loop {
            if let Some(event) = encoder.ready.pop_front() {
                return Some((Ok(event), (reader, encoder)));
            }
            let item = reader.next().await?;
            encoder.encode(item);
        }
    })
}

/// The form of the events.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventForm {
    /// True for bytes as base64, false for text.
    pub(super) base64: bool,
    /// True if output has the time at which it was received.
    pub(super) timestamps: bool,
}

/// The id of an event. A client sends the last one as `Last-Event-ID` to resume after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventPosition {
    pub(super) attempt: u32,
    /// The first byte that was not sent.
    pub(super) from: u64,
    /// The end of the bytes that were sent. Between `from` and `until` only an incomplete character was not sent.
    until: u64,
}

impl EventPosition {
    /// Parses `attempt:from` or `attempt:from:until`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let attempt = parts.next()?.parse().ok()?;
        let from = parts.next()?.parse().ok()?;
        let until = match parts.next() {
            Some(until) => until.parse().ok()?,
            None => from,
        };
        (parts.next().is_none() && from <= until).then_some(Self { attempt, from, until })
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempt, from, until } = self;
        write!(out, "{attempt}:{from}")?;
        if until > from { write!(out, ":{until}") } else { Ok(()) }
    }
}

/// Turns the items of a reader into events.
struct EventEncoder {
    form: EventForm,
    lossy: LossyText,
    /// The streams of this attempt that are replayed from the engine's log.
    replayed: Streams,
    /// The position from which the client resumes.
    resumed_from: Option<EventPosition>,
    /// The current attempt, and the offset up to which it was read.
    attempt: AttemptNo,
    position: u64,
    /// The times at which the last pieces of the two streams were received.
    received_at: [Option<Timestamp>; 2],
    ready: VecDeque<Event>,
}

impl EventEncoder {
    fn new(form: EventForm, resumed_from: Option<EventPosition>) -> Self {
        Self {
            form,
            lossy: LossyText::default(),
            replayed: Streams::default(),
            resumed_from,
            attempt: AttemptNo(0),
            position: 0,
            received_at: [None; 2],
            ready: VecDeque::new(),
        }
    }

    fn encode(&mut self, item: Result<Item, Problem>) {
        match item {
            Ok(Item::Attempt { number, worker, from, .. }) => {
                // An attempt never completes a character of the attempt before it.
                self.flush_incomplete();
                self.replayed = Streams::default();
                let resumed = self.resumed_from.filter(|told| (told.attempt, told.from) == (number.0, from));
                // A client that has seen only this event resumes at this attempt and not at a later one.
                let position_id = resumed.unwrap_or(EventPosition { attempt: number.0, from, until: from });
                let data = AttemptData { attempt: number.0, worker };
                self.ready.push_back(event("attempt", &data).id(position_id.to_string()));
            }
            Ok(Item::Piece { attempt, piece, cut_at }) => {
                self.attempt = attempt;
                self.push_piece(piece, cut_at);
            }
            Ok(Item::Late { bytes }) => self.push("late", &LateData { late_bytes: bytes }),
            Ok(Item::Withheld { shown_bytes, bytes_max }) => {
                let text = withheld_text(shown_bytes, bytes_max);
                self.push("withheld", &WithheldData { shown_bytes, max_bytes: bytes_max, text });
            }
            Ok(Item::Retried(retried)) => {
                self.flush_incomplete();
                let Retried { ended, next, reason, text } = *retried;
                let data = RetriedData {
                    attempt: ended.number.0,
                    outcome: ended.outcome.map(|outcome| outcome.name()),
                    exit_code: ended.exit_code,
                    next_attempt: next.map(|next| next.0),
                    pending_reason: reason,
                    text,
                };
                self.push("attempt_ended", &data);
            }
            Ok(Item::Ended(row)) => {
                self.flush_incomplete();
                let attempt = row.attempt.as_ref();
                self.push(
                    "end",
                    &EndData {
                        job: Some(row.job.0),
                        state: Some(row.state.name()),
                        attempt: None,
                        outcome: attempt.and_then(|attempt| attempt.outcome).map(|outcome| outcome.name()),
                        exit_code: attempt.and_then(|attempt| attempt.exit_code),
                        text: Some(ending::last_line(&row)),
                    },
                );
            }
            Ok(Item::AttemptEnded(row)) => {
                self.flush_incomplete();
                self.push(
                    "end",
                    &EndData {
                        attempt: Some(row.number.0),
                        outcome: row.outcome.map(|outcome| outcome.name()),
                        exit_code: row.exit_code,
                        ..EndData::default()
                    },
                );
            }
            Ok(Item::CaughtUp) => self.flush_incomplete(),
            // The client reconnects and may then get the whole character.
            Ok(Item::ShuttingDown) => self.push("leaving", &LeavingData {}),
            Err(problem) => self.push("error", &ErrorData { code: problem.code().name() }),
        }
    }

    fn push_piece(&mut self, piece: Piece, cut_at: Option<u64>) {
        let Piece { stream, at, stream_end, received_at, data } = piece;
        let end = at.saturating_add(data.len());
        if let PieceData::Replayed(_) = data {
            self.replayed.add(stream);
        }
        match data {
            PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => {
                self.position = end;
                self.received_at[index(stream)] = received_at;
                self.push_bytes(stream, at, &bytes);
            }
            PieceData::Gap(_) | PieceData::Cut(_) => {
                // Bytes after a gap never complete a character before it.
                self.flush_incomplete();
                self.position = end;
                let (missing_bytes, text) =
                    (missing_bytes(&data), missing_line(stream, stream_end, &data, cut_at));
                let stream = stream.name();
                let gap = GapData { stream, offset: at, missing_bytes, cut_at_bytes: cut_at, text };
                self.push_with_id("gap", &gap);
            }
        }
    }

    fn push_bytes(&mut self, stream: Written, at: u64, bytes: &[u8]) {
        if self.form.base64 {
            return self.push_output(stream, at, Encoded::Base64(BASE64.encode(bytes)));
        }
        // Bytes before `until` were sent already; they are decoded again for a character that begins in them.
        let told =
            self.resumed_from.filter(|told| told.attempt == self.attempt.0).map_or(0, |told| told.until);
        let told = usize::try_from(told.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        let (told, fresh) = bytes.split_at(told);
        self.lossy.decode(stream, at, told);
        let (offset, text) = self.lossy.decode(stream, at + told.len() as u64, fresh);
        if !text.is_empty() {
            self.push_output(stream, offset, Encoded::Text(text));
        }
    }

    /// Sends an incomplete character as U+FFFD: the rest will not come.
    fn flush_incomplete(&mut self) {
        for stream in Written::ALL {
            if let Some((offset, text)) = self.lossy.take(stream) {
                self.push_output(stream, offset, Encoded::Text(text));
            }
        }
    }

    fn push_output(&mut self, stream: Written, offset: u64, written: Encoded) {
        let received_at = self.received_at[index(stream)].filter(|_| self.form.timestamps).map(Time);
        let (stream, replayed) = (stream.name(), self.replayed.has(stream));
        self.push_with_id("output", &OutputData { stream, offset, received_at, replayed, written });
    }

    fn push(&mut self, name: &str, data: &impl Serialize) {
        self.ready.push_back(event(name, data));
    }

    /// Adds an event with an id from which the client can resume.
    fn push_with_id(&mut self, name: &str, data: &impl Serialize) {
        self.ready.push_back(event(name, data).id(self.position_id().to_string()));
    }

    fn position_id(&self) -> EventPosition {
        let (attempt, end) = (self.attempt.0, self.position);
        match self.lossy.incomplete() {
            None => EventPosition { attempt, from: end, until: end },
            // Nothing behind the incomplete character was sent.
            Some((from, bytes)) if end.saturating_sub(from) == bytes => {
                EventPosition { attempt, from, until: from }
            }
            Some((from, _)) => EventPosition { attempt, from, until: end },
        }
    }
}

fn event(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}

#[derive(Serialize)]
struct AttemptData {
    attempt: u32,
    worker: String,
}

#[derive(Serialize)]
struct OutputData {
    stream: &'static str,
    offset: u64,
    /// The time at which the server received it: with an incomplete character, its rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    received_at: Option<Time>,
    /// True if the engine's log supplied it after the attempt's own files were lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(flatten)]
    written: Encoded,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Encoded {
    Text(String),
    Base64(String),
}

#[derive(Serialize)]
struct GapData {
    stream: &'static str,
    offset: u64,
    /// `null` if the number is unknown.
    missing_bytes: Option<u64>,
    /// `log.max_bytes`, if the bytes are missing because the output was longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_at_bytes: Option<u64>,
    /// The line that text has in its place.
    text: String,
}

#[derive(Serialize)]
struct WithheldData {
    shown_bytes: u64,
    max_bytes: u64,
    text: String,
}

#[derive(Serialize)]
struct RetriedData {
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_reason: Option<Reason>,
    text: String,
}

#[derive(Serialize)]
struct LateData {
    late_bytes: u64,
}

#[derive(Default, Serialize)]
struct EndData {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Serialize)]
struct LeavingData {}

#[derive(Serialize)]
struct ErrorData {
    code: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_position_survives_writing_and_parsing() {
        for (text, from, until) in [("3:7", 7, 7), ("3:7:9", 7, 9)] {
            let position_id = EventPosition { attempt: 3, from, until };
            assert_eq!(
                (EventPosition::parse(text), position_id.to_string()),
                (Some(position_id), text.to_owned())
            );
        }
        for other in ["", "3", "3:", "3:x", "3:7:", "3:9:7", "3:7:9:9", "-1:7"] {
            assert_eq!(EventPosition::parse(other), None, "{other}");
        }
    }
}
