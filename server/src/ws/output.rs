//! A worker's output on its way to the logs: beside the reports, so that neither waits for the other.

use std::sync::Arc;

use protocol::Order;
use protocol::order::OutputMark;
use protocol::report::Chunk;
use protocol::wire::OUTPUT_WINDOW;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::engine::{ToSession, WeakOutbox};
use crate::logs::Logs;

/// How many frames are written by one call.
const FRAMES_TOGETHER: usize = 64;

/// Where the reader puts output. Its room is the worker's window, counted as the worker counts it and given back before the
/// acknowledgement: what was sent and not acknowledged always fits, however slow the disk is.
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
        (Self { queue, room: Arc::new(Semaphore::new(OUTPUT_WINDOW)), outbox }, waiting)
    }

    /// Takes output, or says that it is more than a worker may send. Never waits. Output that nobody will write is dropped: it was not
    /// acknowledged, so its worker sends it again.
    pub(super) fn put(&self, chunks: Vec<Chunk>) -> Result<(), TooMuch> {
        let weight = chunks.iter().map(Chunk::weight).sum::<usize>();
        let room =
            u32::try_from(weight).ok().and_then(|it| self.room.clone().try_acquire_many_owned(it).ok());
        let _ = self.queue.send((chunks, room.ok_or(TooMuch)?));
        Ok(())
    }

    /// Tells the worker that nobody wants this: what it waits for with these would else wait for ever.
    pub(super) fn give_up(&self, chunks: &[Chunk]) {
        let mark =
            |chunk: &Chunk| OutputMark { token: chunk.token, stream: chunk.stream, offset: chunk.end() };
        self.outbox.send(ToSession::Order(Order::OutputAcknowledge(chunks.iter().map(mark).collect())));
    }
}

/// A worker has not waited for acknowledgements.
#[derive(Debug, thiserror::Error)]
#[error("more than {OUTPUT_WINDOW} bytes of output wait for their acknowledgement")]
pub(super) struct TooMuch;

/// Starts to write one session's output and to acknowledge what is synced. The task ends with its inbox, or before that if output can
/// no longer be kept: then the session must end too, so that its worker comes back and sends again what was not acknowledged.
pub(super) fn start(logs: Arc<Logs>, outbox: WeakOutbox) -> (Inbox, JoinHandle<()>) {
    let (inbox, mut waiting) = Inbox::new(outbox.clone());
    let task = tokio::spawn(async move {
        let mut frames = Vec::new();
        while waiting.recv_many(&mut frames, FRAMES_TOGETHER).await > 0 {
            let (chunks, rooms): (Vec<_>, Vec<_>) = frames.drain(..).unzip();
            let written = logs.append(chunks.into_iter().flatten().collect()).await;
            // Before the worker hears of it, so that there is room for what it then sends.
            drop(rooms);
            match written {
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
    use protocol::wire::{CHUNK_WEIGHT, OUTPUT_BYTES_MAX};

    use super::*;

    fn frame(bytes: usize) -> Vec<Chunk> {
        let data = ChunkData::Bytes(vec![b'x'; bytes]);
        vec![Chunk { token: Token::default(), stream: Stream::Stdout, offset: 0, data }]
    }

    #[tokio::test]
    async fn what_waits_is_bounded_by_its_bytes_however_many_frames_it_comes_in() {
        for bytes in [0, 1, 20, 1_000, OUTPUT_BYTES_MAX] {
            let (inbox, mut waiting) = unwritten();
            let taken = (0..100_000).take_while(|_| inbox.put(frame(bytes)).is_ok()).count();
            assert_eq!(taken, OUTPUT_WINDOW / (bytes + CHUNK_WEIGHT), "of {bytes} bytes each");
            drop(waiting.recv().await);
            assert!(inbox.put(frame(bytes)).is_ok(), "what is written makes room");
        }
    }
}
