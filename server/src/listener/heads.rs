//! Remembers the raw head of the request at hand, and what has come behind it.
//!
//! hyper drops a `Content-Length` that stands beside a `Transfer-Encoding`, and closes the connection after such a request, so that
//! nothing can be smuggled through it. But the sender is to be told, and only the raw bytes still show both.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::http::{HeaderMap, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What was read of a connection from the head of the next request on, shared by the connection and its service.
#[derive(Clone, Debug, Default)]
pub(super) struct Heads(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Bytes of the body at hand that have not come yet.
    body: u64,
    /// Where the body at hand ends is not known: what has come is forgotten with each answer, and what was sent along with it.
    is_adrift: bool,
}

impl Heads {
    /// Leaves the request behind whose head, the first one that is kept, says this. Whether the raw head names a `Content-Length`
    /// beside the `Transfer-Encoding` that is left.
    pub(super) fn turn_to(&self, headers: &HeaderMap) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Empty lines before a request are passed over.
        let empty = kept.bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count();
        kept.drop_first(empty);
        let end = kept.bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.map_or(kept.bytes.len(), |end| end + 4);
        let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
        let names_both = is_chunked && names_a_length(&kept.bytes[..end]);
        let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
        kept.is_adrift = is_chunked || headers.contains_key(header::UPGRADE);
        kept.body = length.unwrap_or_default();
        kept.drop_first(end);
        let left = kept.bytes.len();
        let here = kept.pass_body(left);
        kept.drop_first(here);
        names_both
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = kept.pass_body(bytes.len());
        let most = if kept.is_adrift { ADRIFT_BYTES_MAX } else { KEPT_BYTES_MAX };
        let room = most.saturating_sub(kept.bytes.len());
        let bytes = &bytes[passed..];
        kept.is_adrift |= bytes.len() > room;
        kept.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn answered(&self) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_adrift {
            let all = kept.bytes.len();
            kept.drop_first(all);
        }
    }
}

impl Kept {
    /// How many of so many bytes belong to the body at hand.
    fn pass_body(&mut self, bytes: usize) -> usize {
        let passed = bytes.min(usize::try_from(self.body).unwrap_or(usize::MAX));
        self.body -= passed as u64;
        passed
    }

    fn drop_first(&mut self, count: usize) {
        self.bytes.drain(..count);
        if self.bytes.is_empty() && self.bytes.capacity() > COMMON_HEAD_BYTES {
            self.bytes = Vec::new();
        }
    }
}

fn names_a_length(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n')
        .any(|line| line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)))
}

/// A stream whose reading side is remembered.
#[derive(Debug)]
pub(super) struct Recorded<S> {
    stream: S,
    heads: Heads,
}

impl<S> Recorded<S> {
    pub(super) const fn new(stream: S, heads: Heads) -> Self {
        Self { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Recorded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if read.is_ready() {
            self.heads.add(&into.filled()[before..]);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recorded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.heads.answered();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.heads.answered();
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

const LENGTH: &[u8] = b"content-length:";

/// More than hyper reads ahead.
const KEPT_BYTES_MAX: usize = 128 << 10;

/// More than the head of a request that is not refused for its size. Sockets of workers, which are many, keep so much at most.
const ADRIFT_BYTES_MAX: usize = 32 << 10;

/// What a connection keeps between requests: thousands may be open.
const COMMON_HEAD_BYTES: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect()
    }

    fn chunked() -> HeaderMap {
        headers(&[(header::TRANSFER_ENCODING, "chunked")])
    }

    #[test]
    fn a_length_counts_in_the_head_only() {
        let heads = Heads::default();
        heads.add(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nContent-Length: 1\r\n");
        assert!(!heads.turn_to(&chunked()));
        heads.answered();
        heads.add(b"POST / HTTP/1.1\r\nCONTENT-length: 1\r\n");
        heads.add(b"Transfer-Encoding: chunked\r\n\r\n");
        assert!(heads.turn_to(&chunked()));
    }

    #[test]
    fn a_head_that_came_along_with_the_request_before_is_known() {
        let both = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n";
        let heads = Heads::default();
        heads.add(b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 22\r\n\r\ncontent-le");
        assert!(!heads.turn_to(&HeaderMap::new()));
        heads.answered();
        assert!(!heads.turn_to(&headers(&[(header::CONTENT_LENGTH, "22")])));
        // Something is said before the body is there, as 100 Continue is.
        heads.answered();
        heads.add(&[b"ngth: 1\r\n\r\n".as_slice(), both].concat());
        heads.answered();
        assert!(heads.turn_to(&chunked()));
    }

    #[test]
    fn what_was_said_in_a_body_is_not_taken_for_a_head() {
        let heads = Heads::default();
        heads.add(b"POST / HTTP/1.1\r\nContent-Length: 19\r\n\r\ncontent-length: 1\r\n");
        heads.turn_to(&headers(&[(header::CONTENT_LENGTH, "19")]));
        heads.answered();
        heads.add(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(!heads.turn_to(&chunked()));
    }
}
