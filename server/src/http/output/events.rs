//! Output as server-sent events: what each of them holds.

use std::convert::Infallible;

use axum::response::sse::Event;
use data_encoding::BASE64;
use futures_util::stream::{self, Stream};
use serde::Serialize;

use super::super::show;
use super::reader::{Item, Reader};
use super::text::LossyText;
use crate::logs::PieceData;

/// Output as events: `attempt`, `output`, `gap`, and `end` or `leaving` at last. The id of an event is where the next one begins.
pub(super) fn events(reader: Reader, base64: bool) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((reader, LossyText::default()), move |(mut reader, mut lossy)| async move {
        let event = match reader.next().await? {
            Ok(Item::Attempt { number, worker }) => {
                // The beginning of a character is not completed by another attempt.
                lossy = LossyText::default();
                event("attempt", &AttemptData { attempt: number.0, worker })
            }
            Ok(Item::Piece { attempt, piece }) => {
                let id = format!("{attempt}:{}", piece.at + piece.data.len());
                let (stream, offset) = (piece.stream.name(), piece.at);
                match piece.data {
                    PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => {
                        let written = match base64 {
                            true => Encoded::Base64(BASE64.encode(&bytes)),
                            false => Encoded::Text(lossy.decode(piece.stream, &bytes)),
                        };
                        event("output", &OutputData { stream, offset, written }).id(id)
                    }
                    PieceData::Gap(missing_bytes) => {
                        event("gap", &GapData { stream, offset, missing_bytes }).id(id)
                    }
                }
            }
            Ok(Item::Ended(row)) => {
                let attempt = row.attempt.as_ref();
                event(
                    "end",
                    &EndData {
                        job: Some(row.job.0),
                        state: Some(row.state.name()),
                        attempt: None,
                        outcome: attempt.and_then(|attempt| attempt.outcome).map(|outcome| outcome.name()),
                        exit_code: attempt.and_then(|attempt| attempt.exit_code),
                        text: Some(show::last_line(&row)),
                    },
                )
            }
            Ok(Item::AttemptEnded(row)) => event(
                "end",
                &EndData {
                    attempt: Some(row.number.0),
                    outcome: row.outcome.map(|outcome| outcome.name()),
                    exit_code: row.exit_code,
                    ..EndData::default()
                },
            ),
            Ok(Item::Left) => event("leaving", &LeavingData {}),
            Err(problem) => event("error", &ErrorData { code: problem.code().name() }),
        };
        Some((Ok(event), (reader, lossy)))
    })
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
    missing_bytes: u64,
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
