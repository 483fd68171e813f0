//! Output as server-sent events: what each of them holds, and where a client goes on behind it.
//!
//! As text, the beginning of a character waits for its rest, which may come much later, while the other stream goes on. So the place of
//! an event is told by two numbers: what was told up to here, and the first byte that was not.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;

use axum::response::sse::Event;
use data_encoding::BASE64;
use futures_util::stream::{self, Stream};
use protocol::AttemptNo;
use protocol::report::Stream as Written;
use serde::Serialize;

use super::super::problem::Problem;
use super::super::show;
use super::reader::{Item, Reader};
use super::text::{LossyText, Streams, missing_bytes};
use crate::logs::{Piece, PieceData};

/// Output as events: `attempt`, `output`, `gap`, `late`, and `end` or `leaving` at last. Whoever was told up to some place goes on there.
pub(super) fn events(
    reader: Reader,
    base64: bool,
    told: Option<Place>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((reader, Teller::new(base64, told)), |(mut reader, mut teller)| async move {
        loop {
            if let Some(event) = teller.ready.pop_front() {
                return Some((Ok(event), (reader, teller)));
            }
            let item = reader.next().await?;
            teller.tell(item);
        }
    })
}

/// Where an event ends: its id. A client sends the last one back to go on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) attempt: u32,
    /// The first byte that was not told.
    pub(super) from: u64,
    /// Behind the last byte that was told. Between the two only the beginning of a character was not.
    until: u64,
}

impl Place {
    /// `attempt:from`, and `:until` where it is another byte.
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

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempt, from, until } = self;
        write!(out, "{attempt}:{from}")?;
        if until > from { write!(out, ":{until}") } else { Ok(()) }
    }
}

/// Makes events of what a reader comes upon.
struct Teller {
    base64: bool,
    lossy: LossyText,
    /// The streams of this attempt that are read from the engine's log by now.
    replayed: Streams,
    /// What the client was told before it came back.
    told: Option<Place>,
    /// The attempt that is read, and behind which of its bytes we are.
    attempt: AttemptNo,
    position: u64,
    ready: VecDeque<Event>,
}

impl Teller {
    fn new(base64: bool, told: Option<Place>) -> Self {
        let (lossy, replayed, ready) = (LossyText::default(), Streams::default(), VecDeque::new());
        Self { base64, lossy, replayed, told, attempt: AttemptNo(0), position: 0, ready }
    }

    fn tell(&mut self, item: Result<Item, Problem>) {
        match item {
            Ok(Item::Attempt { number, worker, from }) => {
                // The beginning of a character is not completed by another attempt.
                self.tell_begun();
                self.replayed = Streams::default();
                let resumed = self.told.filter(|told| (told.attempt, told.from) == (number.0, from));
                // Whoever has seen nothing else comes back to this attempt, and not to a later one.
                let place = resumed.unwrap_or(Place { attempt: number.0, from, until: from });
                let data = AttemptData { attempt: number.0, worker };
                self.ready.push_back(event("attempt", &data).id(place.to_string()));
            }
            Ok(Item::Piece { attempt, piece }) => {
                self.attempt = attempt;
                self.tell_piece(piece);
            }
            Ok(Item::Late { bytes }) => self.say("late", &LateData { late_bytes: bytes }),
            Ok(Item::Ended(row)) => {
                self.tell_begun();
                let attempt = row.attempt.as_ref();
                self.say(
                    "end",
                    &EndData {
                        job: Some(row.job.0),
                        state: Some(row.state.name()),
                        attempt: None,
                        outcome: attempt.and_then(|attempt| attempt.outcome).map(|outcome| outcome.name()),
                        exit_code: attempt.and_then(|attempt| attempt.exit_code),
                        text: Some(show::last_line(&row)),
                    },
                );
            }
            Ok(Item::AttemptEnded(row)) => {
                self.tell_begun();
                self.say(
                    "end",
                    &EndData {
                        attempt: Some(row.number.0),
                        outcome: row.outcome.map(|outcome| outcome.name()),
                        exit_code: row.exit_code,
                        ..EndData::default()
                    },
                );
            }
            Ok(Item::Over) => self.tell_begun(),
            // The client comes back, and may then see the whole character.
            Ok(Item::Left) => self.say("leaving", &LeavingData {}),
            Err(problem) => self.say("error", &ErrorData { code: problem.code().name() }),
        }
    }

    fn tell_piece(&mut self, piece: Piece) {
        let Piece { stream, at, data } = piece;
        let end = at.saturating_add(data.len());
        if let PieceData::Replayed(_) = data {
            self.replayed.add(stream);
        }
        match data {
            PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => {
                self.position = end;
                self.tell_bytes(stream, at, &bytes);
            }
            PieceData::Gap(length) => {
                // Nor is it completed by what comes behind a gap.
                self.tell_begun();
                self.position = end;
                let missing_bytes = missing_bytes(length);
                self.say_here("gap", &GapData { stream: stream.name(), offset: at, missing_bytes });
            }
        }
    }

    fn tell_bytes(&mut self, stream: Written, at: u64, bytes: &[u8]) {
        if self.base64 {
            return self.tell_output(stream, at, Encoded::Base64(BASE64.encode(bytes)));
        }
        // What was told already is read again for the character that it may begin.
        let told = self.told.filter(|told| told.attempt == self.attempt.0).map_or(0, |told| told.until);
        let told = usize::try_from(told.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        let (told, fresh) = bytes.split_at(told);
        self.lossy.decode(stream, at, told);
        let (offset, text) = self.lossy.decode(stream, at + told.len() as u64, fresh);
        if !text.is_empty() {
            self.tell_output(stream, offset, Encoded::Text(text));
        }
    }

    /// Tells what waits for the rest of a character, which will not come.
    fn tell_begun(&mut self) {
        for stream in Written::ALL {
            if let Some((offset, text)) = self.lossy.take(stream) {
                self.tell_output(stream, offset, Encoded::Text(text));
            }
        }
    }

    fn tell_output(&mut self, stream: Written, offset: u64, written: Encoded) {
        let replayed = self.replayed.has(stream);
        self.say_here("output", &OutputData { stream: stream.name(), offset, replayed, written });
    }

    fn say(&mut self, name: &str, data: &impl Serialize) {
        self.ready.push_back(event(name, data));
    }

    /// Says it with an id, behind which the client can go on.
    fn say_here(&mut self, name: &str, data: &impl Serialize) {
        self.ready.push_back(event(name, data).id(self.place().to_string()));
    }

    fn place(&self) -> Place {
        let (attempt, end) = (self.attempt.0, self.position);
        match self.lossy.begun() {
            None => Place { attempt, from: end, until: end },
            // Behind it nothing was told.
            Some((from, bytes)) if end.saturating_sub(from) == bytes => Place { attempt, from, until: from },
            Some((from, _)) => Place { attempt, from, until: end },
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
    /// Whether it was read again from the engine's log.
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
    /// `null` where nobody knows.
    missing_bytes: Option<u64>,
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
    fn a_place_is_told_by_one_number_or_by_two_and_read_again() {
        for (text, from, until) in [("3:7", 7, 7), ("3:7:9", 7, 9)] {
            let place = Place { attempt: 3, from, until };
            assert_eq!((Place::parse(text), place.to_string()), (Some(place), text.to_owned()));
        }
        for other in ["", "3", "3:", "3:x", "3:7:", "3:9:7", "3:7:9:9", "-1:7"] {
            assert_eq!(Place::parse(other), None, "{other}");
        }
    }
}
