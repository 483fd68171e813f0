//! Keeps the raw head of the current request and the bytes after it.
//!
//! hyper drops a `Content-Length` beside a `Transfer-Encoding` and closes the connection after the request, so that nothing can be
//! smuggled. The sender gets an error as well, and only the raw bytes still show both headers.
//!
//! The bytes of all heads together are bounded: beyond the budget, connections with a head of unusual length are closed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::http::{HeaderMap, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Counts the bytes of unfinished request heads of all connections together.
#[derive(Debug)]
pub(super) struct HeadBudget {
    /// Limit of `held`; short heads are read above it, too.
    bytes_max: usize,
    held: AtomicUsize,
}

impl HeadBudget {
    /// A budget of this many bytes.
    pub(super) const fn within(bytes_max: usize) -> Self {
        Self { bytes_max, held: AtomicUsize::new(0) }
    }
}

/// Bytes read of a connection from the next request head on, shared by the connection and its service.
#[derive(Clone, Debug)]
pub(super) struct SharedHeadBuffer(Arc<Mutex<HeadBuffer>>);

#[derive(Debug)]
struct HeadBuffer {
    budget: Arc<HeadBudget>,
    /// Bytes that this connection holds of the budget.
    charged: usize,
    bytes: Vec<u8>,
    /// Bytes of the current request's body that have not arrived yet.
    body_bytes_left: u64,
    /// The end of the current request's body is unknown. Its bytes are dropped whenever a response is written.
    end_unknown: bool,
}

impl SharedHeadBuffer {
    /// An empty buffer whose bytes count against this budget.
    pub(super) fn within(budget: Arc<HeadBudget>) -> Self {
        let (bytes, body_bytes_left, end_unknown) = (Vec::new(), 0, false);
        Self(Arc::new(Mutex::new(HeadBuffer { budget, charged: 0, bytes, body_bytes_left, end_unknown })))
    }

    /// Moves on to the request with these parsed headers. Returns true if its raw head has a `Content-Length` beside the
    /// `Transfer-Encoding`.
    pub(super) fn advance_to(&self, headers: &HeaderMap) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Empty lines before a request are skipped.
        let empty = kept.bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count();
        kept.drop_first(empty);
        let end = kept.bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.map_or(kept.bytes.len(), |end| end + 4);
        let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
        let names_both = is_chunked && names_a_length(&kept.bytes[..end]);
        let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
        kept.end_unknown = is_chunked || headers.contains_key(header::UPGRADE);
        kept.body_bytes_left = length.unwrap_or_default();
        kept.drop_first(end);
        let left = kept.bytes.len();
        let here = kept.skip_body(left);
        kept.drop_first(here);
        kept.charge();
        names_both
    }

    /// Keeps these bytes.
    ///
    /// # Errors
    /// The budget is exhausted, and this head is longer than usual ones.
    fn add(&self, bytes: &[u8]) -> Result<(), BudgetExhausted> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = kept.skip_body(bytes.len());
        let most = if kept.end_unknown { UNKNOWN_END_BYTES_MAX } else { KEPT_BYTES_MAX };
        let room = most.saturating_sub(kept.bytes.len());
        let bytes = &bytes[passed..];
        kept.end_unknown |= bytes.len() > room;
        kept.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        kept.charge();
        let (held_bytes, limit_bytes) = (kept.budget.held.load(Ordering::Relaxed), kept.budget.bytes_max);
        if kept.charged <= COMMON_HEAD_BYTES || held_bytes <= limit_bytes {
            return Ok(());
        }
        Err(BudgetExhausted { held_bytes, limit_bytes })
    }

    /// Drops the kept bytes if the end of the current request's body is unknown: a response is about to be written.
    fn before_response_write(&self) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.end_unknown {
            let all = kept.bytes.len();
            kept.drop_first(all);
            kept.charge();
        }
    }
}

impl HeadBuffer {
    /// Updates the connection's share of the budget. Bytes of a body whose end is unknown are not charged: they are few and dropped soon.
    fn charge(&mut self) {
        let now = if self.end_unknown { 0 } else { self.bytes.len() };
        // Both wrap together: the sum of all shares is never negative.
        self.budget.held.fetch_add(now.wrapping_sub(self.charged), Ordering::Relaxed);
        self.charged = now;
    }

    /// Counts arrived bytes, and returns how many of them belong to the current request's body.
    fn skip_body(&mut self, bytes: usize) -> usize {
        let passed = bytes.min(usize::try_from(self.body_bytes_left).unwrap_or(usize::MAX));
        self.body_bytes_left -= passed as u64;
        passed
    }

    fn drop_first(&mut self, count: usize) {
        self.bytes.drain(..count);
        if self.bytes.is_empty() && self.bytes.capacity() > COMMON_HEAD_BYTES {
            self.bytes = Vec::new();
        }
    }
}

impl Drop for HeadBuffer {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.charged, Ordering::Relaxed);
    }
}

fn names_a_length(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n')
        .any(|line| line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)))
}

/// The request heads of all connections together exceed their limit.
#[derive(Debug, thiserror::Error)]
#[error(
    "the unfinished request heads of all connections have {held_bytes} bytes; the limit is {limit_bytes}"
)]
struct BudgetExhausted {
    held_bytes: usize,
    limit_bytes: usize,
}

/// A stream that keeps the bytes that are read from it.
#[derive(Debug)]
pub(super) struct HeadCapturingStream<S> {
    stream: S,
    heads: SharedHeadBuffer,
    peer: SocketAddr,
}

impl<S> HeadCapturingStream<S> {
    pub(super) const fn new(stream: S, heads: SharedHeadBuffer, peer: SocketAddr) -> Self {
        Self { stream, heads, peer }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadCapturingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if read.is_ready()
            && let Err(error) = self.heads.add(&into.filled()[before..])
        {
            let BudgetExhausted { held_bytes, limit_bytes } = error;
            tracing::warn!(peer = %self.peer, held_bytes, limit_bytes, "connection closed: the unfinished request heads of all connections together are too long");
            return Poll::Ready(Err(io::Error::other(error)));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadCapturingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.heads.before_response_write();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.heads.before_response_write();
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

/// More than the head of a request that passes the limits of `front`. The buffer of a WebSocket connection holds at most this much.
const UNKNOWN_END_BYTES_MAX: usize = 32 << 10;

/// Bytes that a connection keeps between requests: thousands may be open.
const COMMON_HEAD_BYTES: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect()
    }

    fn heads() -> SharedHeadBuffer {
        SharedHeadBuffer::within(Arc::new(HeadBudget::within(usize::MAX)))
    }

    fn chunked() -> HeaderMap {
        headers(&[(header::TRANSFER_ENCODING, "chunked")])
    }

    #[test]
    fn a_length_counts_in_the_head_only() {
        let heads = heads();
        heads.add(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nContent-Length: 1\r\n").unwrap();
        assert!(!heads.advance_to(&chunked()));
        heads.before_response_write();
        heads.add(b"POST / HTTP/1.1\r\nCONTENT-length: 1\r\n").unwrap();
        heads.add(b"Transfer-Encoding: chunked\r\n\r\n").unwrap();
        assert!(heads.advance_to(&chunked()));
    }

    #[test]
    fn a_head_that_came_along_with_the_request_before_is_known() {
        let both = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n";
        let heads = heads();
        heads.add(b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 22\r\n\r\ncontent-le").unwrap();
        assert!(!heads.advance_to(&HeaderMap::new()));
        heads.before_response_write();
        assert!(!heads.advance_to(&headers(&[(header::CONTENT_LENGTH, "22")])));
        // An interim response (100 Continue) comes before the body.
        heads.before_response_write();
        heads.add(&[b"ngth: 1\r\n\r\n".as_slice(), both].concat()).unwrap();
        heads.before_response_write();
        assert!(heads.advance_to(&chunked()));
    }

    #[test]
    fn bytes_of_a_body_are_not_taken_for_a_head() {
        let heads = heads();
        heads.add(b"POST / HTTP/1.1\r\nContent-Length: 19\r\n\r\ncontent-length: 1\r\n").unwrap();
        heads.advance_to(&headers(&[(header::CONTENT_LENGTH, "19")]));
        heads.before_response_write();
        heads.add(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        assert!(!heads.advance_to(&chunked()));
    }

    #[test]
    fn long_heads_are_bounded_together_and_give_their_share_back() {
        let budget = Arc::new(HeadBudget::within(10_000));
        let (first, second) =
            (SharedHeadBuffer::within(budget.clone()), SharedHeadBuffer::within(budget.clone()));
        assert!(first.add(&[b'a'; 9_000]).is_ok());
        assert!(second.add(&[b'a'; 2_000]).is_ok(), "a short head is always read");
        assert!(second.add(&[b'a'; 1_000]).is_err());
        drop(first);
        assert!(second.add(b"\r\n\r\n").is_ok());
        second.advance_to(&HeaderMap::new());
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
