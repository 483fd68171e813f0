//! Remembers the raw head of the request at hand.
//!
//! hyper drops a `Content-Length` that stands beside a `Transfer-Encoding`, and closes the connection after such a request, so that
//! nothing can be smuggled through it. But the sender is to be told, and only the raw bytes still show both.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The raw head of the request at hand, shared by a connection and its service.
#[derive(Clone, Debug, Default)]
pub(super) struct Heads(Arc<Mutex<Vec<u8>>>);

impl Heads {
    /// Whether the head names a `Content-Length`.
    pub(super) fn name_a_length(&self) -> bool {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(bytes.len());
        bytes[..end]
            .split(|byte| *byte == b'\n')
            .any(|line| line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)))
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HEAD_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn forget(&self) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.capacity() > COMMON_HEAD_BYTES {
            *kept = Vec::new();
        } else {
            kept.clear();
        }
    }
}

/// A stream whose reading side is remembered from answer to answer.
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
        self.heads.forget();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.heads.forget();
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

/// More than the head of a request that is not refused for its size.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// What a connection keeps between requests: thousands may be open.
const COMMON_HEAD_BYTES: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_counts_in_the_head_only() {
        let heads = Heads::default();
        heads.add(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nContent-Length: 1\r\n");
        assert!(!heads.name_a_length());
        heads.forget();
        heads.add(b"POST / HTTP/1.1\r\nCONTENT-length: 1\r\n");
        heads.add(b"Transfer-Encoding: chunked\r\n\r\n");
        assert!(heads.name_a_length());
    }
}
