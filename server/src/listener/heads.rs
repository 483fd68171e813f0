//! Keeps the raw head of the present request and the bytes behind it.
//!
//! hyper drops a `Content-Length` beside a `Transfer-Encoding` and closes the connection after the request, so that nothing can be
//! smuggled. The sender is to be told as well, and only the raw bytes still show both headers.
//!
//! The bytes of all heads together are bounded: beyond the budget, connections with a head of unusual length are closed.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::http::{HeaderMap, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes of the request heads of all connections that wait for their end.
#[derive(Debug)]
pub(super) struct HeadBudget {
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
pub(super) struct Heads(Arc<Mutex<HeadBuffer>>);

#[derive(Debug)]
struct HeadBuffer {
    budget: Arc<HeadBudget>,
    /// Bytes that this connection holds of the budget.
    charged: usize,
    bytes: Vec<u8>,
    /// Bytes of the present body that have not come yet.
    body: u64,
    /// True if the end of the present body is unknown: then the bytes are dropped with each answer.
    end_unknown: bool,
}

impl Heads {
    /// An empty buffer whose bytes count against this budget.
    pub(super) fn within(budget: Arc<HeadBudget>) -> Self {
        let (bytes, body, end_unknown) = (Vec::new(), 0, false);
        Self(Arc::new(Mutex::new(HeadBuffer { budget, charged: 0, bytes, body, end_unknown })))
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
        kept.body = length.unwrap_or_default();
        kept.drop_first(end);
        let left = kept.bytes.len();
        let here = kept.skip_body(left);
        kept.drop_first(here);
        kept.charge();
        names_both
    }

    /// Keeps these bytes. Returns false if the budget is exhausted and this head is longer than usual ones.
    fn add(&self, bytes: &[u8]) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = kept.skip_body(bytes.len());
        let most = if kept.end_unknown { UNKNOWN_END_BYTES_MAX } else { KEPT_BYTES_MAX };
        let room = most.saturating_sub(kept.bytes.len());
        let bytes = &bytes[passed..];
        kept.end_unknown |= bytes.len() > room;
        kept.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        kept.charge();
        kept.charged <= COMMON_HEAD_BYTES || kept.budget.held.load(Ordering::Relaxed) <= kept.budget.bytes_max
    }

    fn answered(&self) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.end_unknown {
            let all = kept.bytes.len();
            kept.drop_first(all);
            kept.charge();
        }
    }
}

impl HeadBuffer {
    /// Adjusts the share of the budget. Bytes behind a head whose body has an unknown end are no head; they are few, and are dropped soon.
    fn charge(&mut self) {
        let now = if self.end_unknown { 0 } else { self.bytes.len() };
        // Both wrap together: the sum of all shares is never negative.
        self.budget.held.fetch_add(now.wrapping_sub(self.charged), Ordering::Relaxed);
        self.charged = now;
    }

    /// The number of these bytes that belong to the present body.
    fn skip_body(&mut self, bytes: usize) -> usize {
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

impl Drop for HeadBuffer {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.charged, Ordering::Relaxed);
    }
}

fn names_a_length(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n')
        .any(|line| line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)))
}

/// A stream whose read bytes are kept.
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
        if read.is_ready() && !self.heads.add(&into.filled()[before..]) {
            tracing::warn!("connection closed: the request heads of all connections together are too long");
            return Poll::Ready(Err(io::Error::other("too many bytes of request heads")));
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

/// More than the head of a request that passes the limits of `front`. WebSockets keep at most this much.
const UNKNOWN_END_BYTES_MAX: usize = 32 << 10;

/// Bytes that a connection keeps between requests: thousands may be open.
const COMMON_HEAD_BYTES: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect()
    }

    fn heads() -> Heads {
        Heads::within(Arc::new(HeadBudget::within(usize::MAX)))
    }

    fn chunked() -> HeaderMap {
        headers(&[(header::TRANSFER_ENCODING, "chunked")])
    }

    #[test]
    fn a_length_counts_in_the_head_only() {
        let heads = heads();
        heads.add(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nContent-Length: 1\r\n");
        assert!(!heads.advance_to(&chunked()));
        heads.answered();
        heads.add(b"POST / HTTP/1.1\r\nCONTENT-length: 1\r\n");
        heads.add(b"Transfer-Encoding: chunked\r\n\r\n");
        assert!(heads.advance_to(&chunked()));
    }

    #[test]
    fn a_head_that_came_along_with_the_request_before_is_known() {
        let both = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n";
        let heads = heads();
        heads.add(b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 22\r\n\r\ncontent-le");
        assert!(!heads.advance_to(&HeaderMap::new()));
        heads.answered();
        assert!(!heads.advance_to(&headers(&[(header::CONTENT_LENGTH, "22")])));
        // An interim response (100 Continue) comes before the body.
        heads.answered();
        heads.add(&[b"ngth: 1\r\n\r\n".as_slice(), both].concat());
        heads.answered();
        assert!(heads.advance_to(&chunked()));
    }

    #[test]
    fn bytes_of_a_body_are_not_taken_for_a_head() {
        let heads = heads();
        heads.add(b"POST / HTTP/1.1\r\nContent-Length: 19\r\n\r\ncontent-length: 1\r\n");
        heads.advance_to(&headers(&[(header::CONTENT_LENGTH, "19")]));
        heads.answered();
        heads.add(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(!heads.advance_to(&chunked()));
    }

    #[test]
    fn long_heads_are_bounded_together_and_give_their_share_back() {
        let budget = Arc::new(HeadBudget::within(10_000));
        let (first, second) = (Heads::within(budget.clone()), Heads::within(budget.clone()));
        assert!(first.add(&[b'a'; 9_000]));
        assert!(second.add(&[b'a'; 2_000]), "a short head is always read");
        assert!(!second.add(&[b'a'; 1_000]));
        drop(first);
        assert!(second.add(b"\r\n\r\n"));
        second.advance_to(&HeaderMap::new());
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
