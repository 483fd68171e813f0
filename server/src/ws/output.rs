//! A worker's output on its way to the logs: beside the reports, so that neither waits for the other.

use std::sync::Arc;

use protocol::Order;
use protocol::order::OutputMark;
use protocol::report::Chunk;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::JoinHandle;

use crate::engine::{ToSession, WeakOutbox};
use crate::logs::{self, Logs};

/// How many bytes of output may wait for the disk, counted as they lie in memory. A worker has at most 256 KiB unacknowledged, so a slow
/// disk fills its window first; the rest is for what chunks take beside their bytes.
const WAITING_BYTES: usize = 512 << 10;

/// How many frames are written by one call.
const FRAMES_TOGETHER: usize = 64;

/// Where the reader puts output.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: UnboundedSender<Frame>,
    room: Arc<Semaphore>,
    /// Where acknowledgements go.
    outbox: WeakOutbox,
}

/// The output of one message, and the room that it takes until it is written.
pub(super) type Frame = (Vec<Chunk>, OwnedSemaphorePermit);

impl Inbox {
    fn new(outbox: WeakOutbox) -> (Self, UnboundedReceiver<Frame>) {
        let (queue, waiting) = unbounded_channel();
        (Self { queue, room: Arc::new(Semaphore::new(WAITING_BYTES)), outbox }, waiting)
    }

    /// Gives the chunks back if there is no room for them now. Output that nobody will write is dropped: it was not acknowledged, so
    /// its worker sends it again.
    pub(super) fn try_put(&self, chunks: Vec<Chunk>) -> Result<(), Vec<Chunk>> {
        match self.room.clone().try_acquire_many_owned(memory_of(&chunks)) {
            Ok(room) => self.queue_up(chunks, room),
            Err(TryAcquireError::NoPermits) => return Err(chunks),
            Err(TryAcquireError::Closed) => {}
        }
        Ok(())
    }

    /// Waits for room.
    pub(super) async fn put(&self, chunks: Vec<Chunk>) {
        if let Ok(room) = self.room.clone().acquire_many_owned(memory_of(&chunks)).await {
            self.queue_up(chunks, room);
        }
    }

    /// Tells the worker that nobody wants this: what it waits for with these would else wait for ever.
    pub(super) fn give_up(&self, chunks: &[Chunk]) {
        let mark =
            |chunk: &Chunk| OutputMark { token: chunk.token, stream: chunk.stream, offset: chunk.end() };
        self.outbox.send(ToSession::Order(Order::OutputAcknowledge(chunks.iter().map(mark).collect())));
    }

    fn queue_up(&self, chunks: Vec<Chunk>, room: OwnedSemaphorePermit) {
        let _ = self.queue.send((chunks, room));
    }
}

/// No message is larger than the room there is: its bytes and the number of its chunks are limited.
fn memory_of(chunks: &[Chunk]) -> u32 {
    let bytes: usize = chunks.iter().map(logs::memory_of).sum();
    u32::try_from(bytes.min(WAITING_BYTES)).unwrap_or(u32::MAX)
}

/// Starts to write one session's output and to acknowledge what is synced. The task ends with its inbox, or before that if output can
/// no longer be kept: then the session must end too, so that its worker comes back and sends again what was not acknowledged.
pub(super) fn start(logs: Arc<Logs>, outbox: WeakOutbox) -> (Inbox, JoinHandle<()>) {
    let (inbox, mut waiting) = Inbox::new(outbox.clone());
    let task = tokio::spawn(async move {
        let mut frames = Vec::new();
        while waiting.recv_many(&mut frames, FRAMES_TOGETHER).await > 0 {
            // Their room is given back when they are written.
            let (chunks, _rooms): (Vec<_>, Vec<_>) = frames.drain(..).unzip();
            match logs.append(chunks.into_iter().flatten().collect()).await {
                Ok(marks) if marks.is_empty() => {}
                Ok(marks) => {
                    // If the engine has let go of the session, the writer knows it too, and ends it.
                    outbox.send(ToSession::Order(Order::OutputAcknowledge(marks)));
                }
                Err(error) => {
                    tracing::error!(%error, "cannot keep output; it stays with its worker");
                    return;
                }
            }
        }
    });
    (inbox, task)
}

/// Output that nobody writes, and that nobody is told about.
#[cfg(test)]
pub(super) fn unwritten() -> (Inbox, UnboundedReceiver<Frame>) {
    let (outbox, _) = crate::engine::queue();
    Inbox::new(outbox.downgrade())
}

#[cfg(test)]
mod tests {
    use protocol::Token;
    use protocol::report::{ChunkData, Stream};

    use super::*;

    fn frame(bytes: usize) -> Vec<Chunk> {
        let data = ChunkData::Bytes(vec![b'x'; bytes]);
        vec![Chunk { token: Token::default(), stream: Stream::Stdout, offset: 0, data }]
    }

    #[tokio::test]
    async fn what_waits_is_bounded_by_its_bytes_however_many_frames_it_comes_in() {
        let (inbox, mut waiting) = unwritten();
        let whole = || frame(64 << 10);
        let taken = (0..100).take_while(|_| inbox.try_put(whole()).is_ok()).count();
        assert_eq!(taken, 7, "of 64 KiB and a little more each");
        drop(waiting.recv().await);
        assert!(inbox.try_put(whole()).is_ok(), "what is written makes room");

        let (inbox, _waiting) = unwritten();
        let taken = (0..100_000).take_while(|_| inbox.try_put(frame(1)).is_ok()).count();
        assert!((1_000..100_000).contains(&taken), "{taken} small ones");
    }
}
