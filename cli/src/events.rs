//! Server-sent events, as far as a Longshore server sends them: read from an answer, one by one.

use anyhow::Context as _;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::de::DeserializeOwned;

use crate::api::Api;

/// What a server tells while it can.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its kind.
    pub(crate) name: String,
    /// Where to go on behind it.
    pub(crate) id: Option<String>,
    data: String,
}

impl Event {
    /// Reads what it holds.
    pub(crate) fn read<T: DeserializeOwned>(&self, api: &Api) -> anyhow::Result<T> {
        serde_json::from_str(&self.data).map_err(|_| api.stranger().into())
    }
}

/// The events of one answer.
#[derive(Debug)]
pub(crate) struct Events<'a> {
    api: &'a Api,
    response: Response,
    buffer: Vec<u8>,
}

impl<'a> Events<'a> {
    /// Takes an answer that consists of events.
    pub(crate) fn of(api: &'a Api, response: Response) -> anyhow::Result<Self> {
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_none_or(|kind| !kind.starts_with(b"text/event-stream")) {
            return Err(api.stranger().into());
        }
        Ok(Self { api, response, buffer: Vec::new() })
    }

    /// The next event; `None` when the answer is over.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some(block) = next_block(&mut self.buffer) {
                let text = String::from_utf8(block).map_err(|_| self.api.stranger())?;
                // Without a name it is a comment, which only shows that the connection lives.
                let event = parse(&text);
                if !event.name.is_empty() {
                    return Ok(Some(event));
                }
            }
            let more = self.response.chunk().await.map_err(|error| self.api.unreachable(&error))?;
            let Some(bytes) = more else { return Ok(None) };
            self.buffer.extend_from_slice(&bytes);
            if self.buffer.len() > EVENT_BYTES_MAX {
                return Err(self.api.stranger()).context("an event is too large");
            }
        }
    }
}

/// Takes the lines up to the next empty one out of the buffer.
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

/// A server sends at most 64 KiB of output with one event, which may take some more as JSON.
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
