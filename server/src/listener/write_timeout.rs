//! A stream with a write timeout: the peer must read some bytes within each period.
//!
//! A client that requests a large answer and does not read it would hold its permit for ever: TCP keepalive only asks whether its machine
//! lives.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::Limits;

/// How long a write of one connection may be blocked: shorter until the connection has shown a valid token, if the server needs one.
#[derive(Clone, Debug)]
pub(super) struct WriteLimit {
    unauthenticated: Duration,
    authenticated: Duration,
    is_authenticated: Arc<AtomicBool>,
}

impl WriteLimit {
    pub(super) fn within(limits: &Limits) -> Self {
        let needs_token = limits.unauthenticated < usize::MAX;
        Self {
            unauthenticated: limits.unauthenticated_write_timeout,
            authenticated: limits.write_timeout,
            is_authenticated: Arc::new(AtomicBool::new(!needs_token)),
        }
    }

    pub(super) fn mark_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    fn timeout(&self) -> Duration {
        match self.is_authenticated.load(Ordering::Relaxed) {
            true => self.authenticated,
            false => self.unauthenticated,
        }
    }
}

/// A stream with a write timeout.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    stream: S,
    limit: WriteLimit,
    /// Runs while a write is blocked.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// A write that is blocked for longer than `limit` fails.
    pub(super) const fn new(stream: S, limit: WriteLimit) -> Self {
        Self { stream, limit, waiting: None }
    }

    fn check_timeout<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(self.limit.timeout())));
        waiting.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_timeout(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.check_timeout(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // A flush of an empty lower buffer does not mean that the blocked write makes progress.
        if flushed.is_ready() { flushed } else { self.check_timeout(flushed, cx) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(120);
    const SHORT: Duration = Duration::from_secs(30);

    /// The limit of a connection to a server that needs tokens, or to one that does not.
    fn limit(needs_token: bool) -> WriteLimit {
        WriteLimit::within(&Limits {
            unauthenticated: if needs_token { 100 } else { usize::MAX },
            write_timeout: TIMEOUT,
            unauthenticated_write_timeout: SHORT,
            ..Limits::default()
        })
    }

    fn authenticated() -> WriteLimit {
        let limit = limit(true);
        limit.mark_authenticated();
        limit
    }

    // The clock runs ahead by itself while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_times_out() {
        let (server, _client) = duplex(8);
        let mut server = WriteTimeout::new(server, authenticated());
        let error = server.write_all(&[7; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_has_shown_no_valid_token_times_out_sooner() {
        for (limit, timeout) in [(limit(true), SHORT), (authenticated(), TIMEOUT), (limit(false), TIMEOUT)] {
            let (server, _client) = duplex(8);
            let mut server = WriteTimeout::new(server, limit);
            let began = tokio::time::Instant::now();
            server.write_all(&[7; 9]).await.unwrap_err();
            assert_eq!(began.elapsed(), timeout);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_does_not_time_out() {
        let (server, mut client) = duplex(8);
        let mut server = WriteTimeout::new(server, authenticated());
        let writing = tokio::spawn(async move { server.write_all(&[7; 20]).await });
        for _ in 0..20 {
            sleep(TIMEOUT * 9 / 10).await;
            client.read_u8().await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_between_writes_does_not_time_out() {
        let (server, mut client) = duplex(8);
        let mut server = WriteTimeout::new(server, authenticated());
        for _ in 0..2 {
            server.write_all(&[7; 8]).await.unwrap();
            sleep(TIMEOUT * 2).await;
            client.read_exact(&mut [0; 8]).await.unwrap();
        }
    }
}
