//! Parser for the server-sent events that a Longshore server sends.

use anyhow::Context as _;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::de::DeserializeOwned;

use crate::api::Api;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// The `event` field; empty if the block only tells the position in the stream.
    pub(crate) name: String,
    /// The `id` field; a later request continues after it.
    pub(crate) id: Option<String>,
    data: String,
}

impl Event {
    /// Parses the data of the event.
    pub(crate) fn read<T: DeserializeOwned>(&self, api: &Api) -> anyhow::Result<T> {
        serde_json::from_str(&self.data).map_err(|_| api.unexpected_response().into())
    }
}

/// The events of one response.
#[derive(Debug)]
pub(crate) struct Events<'a> {
    api: &'a Api,
    response: Response,
    buffer: Vec<u8>,
}

impl<'a> Events<'a> {
    /// Checks the content type of the response.
    pub(crate) fn of(api: &'a Api, response: Response) -> anyhow::Result<Self> {
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_none_or(|kind| !kind.starts_with(b"text/event-stream")) {
            return Err(api.unexpected_response().into());
        }
        Ok(Self { api, response, buffer: Vec::new() })
    }

    /// Returns the next event; `None` at the end of the response.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some(block) = next_block(&mut self.buffer) {
                let text = String::from_utf8(block).map_err(|_| self.api.unexpected_response())?;
                // A block without a name and an id is a comment, which only keeps the connection alive.
                let event = parse(&text);
                if !event.name.is_empty() || event.id.is_some() {
                    return Ok(Some(event));
                }
            }
            let more = self.response.chunk().await.map_err(|error| self.api.unreachable(&error))?;
            let Some(bytes) = more else { return Ok(None) };
            self.buffer.extend_from_slice(&bytes);
            if self.buffer.len() > EVENT_BYTES_MAX {
                return Err(self.api.unexpected_response()).context("an event is too large");
            }
        }
    }
}

/// Removes one complete block, up to the next empty line, from the buffer.
fn next_block(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = buffer.windows(2).position(|two| two == b"\n\n")?;
    let rest = buffer.split_off(end + 2);
    Some(std::mem::replace(buffer, rest))
}

fn parse(block: &str) -> Event {
    let mut event = Event::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("event", name)) => event.name = name.to_owned(),
            Some(("data", data)) => event.data.push_str(data),
            Some(("id", id)) => event.id = Some(id.to_owned()),
            _ => {}
        }
    }
    event
}

/// A server sends at most 64 KiB of output in one event; JSON and base64 need more.
const EVENT_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_one_by_one_and_what_is_not_complete_stays() {
        let mut buffer = b":\n\nevent: output\ndata: {\"a\": 1}\nid: 1:2\n\nevent: e".to_vec();
        assert_eq!(next_block(&mut buffer).unwrap(), b":\n\n");
        let block = String::from_utf8(next_block(&mut buffer).unwrap()).unwrap();
        let expected =
            Event { name: "output".to_owned(), id: Some("1:2".to_owned()), data: "{\"a\": 1}".to_owned() };
        assert_eq!(parse(&block), expected);
        assert_eq!(next_block(&mut buffer), None);
        assert_eq!(buffer, b"event: e");
    }
}
