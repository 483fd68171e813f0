//! Lingering close: lets a peer read the last answer.
//!
//! The kernel resets a socket that is closed over unread bytes, and the reset overtakes the answer: a client that sends too much would see
//! a broken connection instead of the reason. So further bytes are read and dropped for a moment. Of a flood of such connections only some
//! linger: the others are closed at once.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// The time for which further bytes are read and dropped. Longer than the answer takes to arrive.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Lingering connections at once, each with a buffer and a descriptor.
const LINGERING_MAX: usize = 256;

/// Handle to the set of lingering connections.
#[derive(Clone, Debug)]
pub(super) struct LingeringCloses {
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl LingeringCloses {
    /// An empty set. Its tasks run in `tasks`.
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { permits: Arc::new(Semaphore::new(LINGERING_MAX)), tasks }
    }

    /// Closes further connections at once instead of lingering.
    pub(super) fn close(&self) {
        self.permits.close();
    }

    fn take(&self, stream: TcpStream) {
        // Without a runtime the process is about to end.
        if let Ok(runtime) = Handle::try_current()
            && let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned()
        {
            self.tasks.spawn_on(timeout(LINGER_TIMEOUT, linger(stream, permit)), &runtime);
        }
    }
}

/// Shuts down the writing side, and reads until the peer closes.
async fn linger(mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let mut buffer = vec![0; 16 << 10];
    if stream.shutdown().await.is_ok() {
        while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    }
}

/// A connection that lingers when it is dropped.
#[derive(Debug)]
pub(super) struct LingeringStream {
    /// Present until it is dropped.
    stream: Option<TcpStream>,
    /// True if the peer has closed or failed.
    is_over: bool,
    lingering_closes: LingeringCloses,
}

impl LingeringStream {
    pub(super) const fn new(stream: TcpStream, lingering_closes: LingeringCloses) -> Self {
        Self { stream: Some(stream), is_over: false, lingering_closes }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for LingeringStream {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take().filter(|_| !self.is_over) {
            self.lingering_closes.take(stream);
        }
    }
}

impl AsyncRead for LingeringStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let has_room = into.remaining() > 0;
        let read = std::task::ready!(self.stream()?.poll_read(cx, into));
        self.is_over |= read.is_err() || (has_room && into.filled().len() == before);
        Poll::Ready(read)
    }
}

impl AsyncWrite for LingeringStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_client_that_still_sends_reads_the_answer() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let lingering_closes = LingeringCloses::new(TaskTracker::new());
        let mut server = LingeringStream::new(listener.accept().await.unwrap().0, lingering_closes);
        client.write_all(&[7; 1_000]).await.unwrap();
        server.read_u8().await.unwrap();
        server.write_all(b"enough").await.unwrap();
        drop(server);
        // Far more than the kernel buffers for a reader that does not read.
        client.write_all(&vec![7; 12 << 20]).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "enough");
    }
}
