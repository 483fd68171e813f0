//! Lets a connection go so that the other end still reads what it was told last.
//!
//! A socket that is closed over unread bytes is reset, and the reset overtakes the answer: whoever sends too much would see a broken
//! connection instead of the reason. So what still comes is read for a moment, unheard. Of a flood of such connections only some are
//! read: the others are closed at once.

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

/// How long a peer that has been let go is still read. Longer than the answer needs to reach it.
const READ_FOR: Duration = Duration::from_secs(1);

/// So many at once, each with a buffer and a descriptor.
const READ_AT_ONCE: usize = 256;

/// Those who have been let go of and are still read. A cheap handle.
#[derive(Clone, Debug)]
pub(super) struct Partings {
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Partings {
    /// None yet; whoever waits for these tasks waits for them, too.
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { places: Arc::new(Semaphore::new(READ_AT_ONCE)), tasks }
    }

    /// From now on connections are closed at once.
    pub(super) fn close(&self) {
        self.places.close();
    }

    fn take(&self, stream: TcpStream) {
        // Without a runtime the process is about to end.
        if let Ok(runtime) = Handle::try_current()
            && let Ok(place) = Arc::clone(&self.places).try_acquire_owned()
        {
            self.tasks.spawn_on(timeout(READ_FOR, part(stream, place)), &runtime);
        }
    }
}

/// Says that nothing more is coming, and reads until the other end says so too.
async fn part(mut stream: TcpStream, _place: OwnedSemaphorePermit) {
    let mut unheard = vec![0; 16 << 10];
    if stream.shutdown().await.is_ok() {
        while stream.read(&mut unheard).await.is_ok_and(|bytes| bytes > 0) {}
    }
}

/// A connection that is let go of gently when it is dropped.
#[derive(Debug)]
pub(super) struct Parting {
    /// There until it is dropped.
    stream: Option<TcpStream>,
    /// Whether nothing more can come from the other end.
    is_over: bool,
    partings: Partings,
}

impl Parting {
    pub(super) const fn new(stream: TcpStream, partings: Partings) -> Self {
        Self { stream: Some(stream), is_over: false, partings }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take().filter(|_| !self.is_over) {
            self.partings.take(stream);
        }
    }
}

impl AsyncRead for Parting {
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

impl AsyncWrite for Parting {
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
    async fn whoever_is_still_sending_reads_the_answer() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let partings = Partings::new(TaskTracker::new());
        let mut server = Parting::new(listener.accept().await.unwrap().0, partings);
        client.write_all(&[7; 1_000]).await.unwrap();
        server.read_u8().await.unwrap();
        server.write_all(b"enough").await.unwrap();
        drop(server);
        // Far more than any socket holds for a reader that does not read.
        client.write_all(&vec![7; 12 << 20]).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "enough");
    }
}
