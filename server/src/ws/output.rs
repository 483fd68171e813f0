//! Passes a worker's output to the logs, separately from reports, so that neither waits for the other.

use std::sync::Arc;

use protocol::Order;
use protocol::order::OutputMark;
use protocol::report::Chunk;
use protocol::wire::OUTPUT_WINDOW;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::engine::{ToSession, Unqueued, WeakOutbox};
use crate::logs::{BoundedChunk, Logs};

/// Frames that one call writes.
const FRAMES_TOGETHER: usize = 64;

/// The inbox of output. Its capacity is the worker's window, counted as the worker counts it and released before the acknowledgement: so
/// unacknowledged output always fits, however slow the disk is.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: UnboundedSender<Frame>,
    room: Arc<Semaphore>,
    /// The queue for acknowledgements.
    outbox: WeakOutbox,
}

/// The output of one message, and the capacity that it takes until it is written.
pub(super) type Frame = (Vec<BoundedChunk>, OwnedSemaphorePermit);

impl Inbox {
    fn new(outbox: WeakOutbox) -> (Self, UnboundedReceiver<Frame>) {
        let (queue, waiting) = unbounded_channel();
        (Self { queue, room: Arc::new(Semaphore::new(OUTPUT_WINDOW)), outbox }, waiting)
    }

    /// Accepts output, or fails if the worker has exceeded its window. Never waits. Output without a writer is dropped: it was not
    /// acknowledged, so the worker sends it again.
    pub(super) fn put(&self, chunks: Vec<BoundedChunk>) -> Result<(), WindowExceeded> {
        let weight = chunks.iter().map(|bounded| bounded.chunk.weight()).sum::<usize>();
        let room =
            u32::try_from(weight).ok().and_then(|it| self.room.clone().try_acquire_many_owned(it).ok());
        let _ = self.queue.send((chunks, room.ok_or(WindowExceeded)?));
        Ok(())
    }

    /// Tells the worker that the server will not store this output, so that the worker does not wait for its acknowledgement.
    ///
    /// # Errors
    /// The session does not keep up, or has ended: it must end, so that its worker repeats the output.
    pub(super) fn give_up(&self, chunks: &[Chunk]) -> Result<(), Unqueued> {
        let mark =
            |chunk: &Chunk| OutputMark { token: chunk.token, stream: chunk.stream, offset: chunk.end() };
        self.outbox.send(ToSession::Order(Order::OutputAcknowledge(chunks.iter().map(mark).collect())))
    }
}

/// The worker has not waited for acknowledgements.
#[derive(Debug, thiserror::Error)]
#[error("more than {OUTPUT_WINDOW} bytes of output wait for their acknowledgement")]
pub(super) struct WindowExceeded;

/// Starts the task that writes one session's output and acknowledges it after the sync. The task ends with its inbox, or when output can no
/// longer be stored or acknowledged: then the session must end too, so that its worker reconnects and repeats the unacknowledged part.
pub(super) fn start(logs: Arc<Logs>, outbox: WeakOutbox) -> (Inbox, JoinHandle<()>) {
    let (inbox, mut waiting) = Inbox::new(outbox.clone());
    let task = tokio::spawn(async move {
        let mut frames = Vec::new();
        while waiting.recv_many(&mut frames, FRAMES_TOGETHER).await > 0 {
            let (chunks, rooms): (Vec<_>, Vec<_>) = frames.drain(..).unzip();
            let written = logs.append_bounded(chunks.into_iter().flatten().collect()).await;
            // Before the acknowledgement, so that there is capacity for the worker's next output.
            drop(rooms);
            match written {
                Ok(marks) if marks.is_empty() => {}
                Ok(marks) => {
                    let sent = outbox.send(ToSession::Order(Order::OutputAcknowledge(marks)));
                    // If the engine has closed the session, the writer ends it.
                    if sent.is_err_and(|unqueued| unqueued.is_full) {
                        tracing::warn!(
                            "worker does not read its socket; its session closes and it repeats output"
                        );
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "cannot store output; the session closes and the worker repeats it");
                    return;
                }
            }
        }
    });
    (inbox, task)
}

/// An inbox without a writer.
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

    fn frame(bytes: usize) -> Vec<BoundedChunk> {
        let data = ChunkData::Bytes(vec![b'x'; bytes]);
        let chunk = Chunk { token: Token::default(), stream: Stream::Stdout, offset: 0, data };
        vec![BoundedChunk { chunk, bytes_max: u64::MAX }]
    }

    #[tokio::test]
    async fn waiting_output_is_bounded_in_bytes_for_any_number_of_frames() {
        for bytes in [0, 1, 20, 1_000, OUTPUT_BYTES_MAX] {
            let (inbox, mut waiting) = unwritten();
            let taken = (0..100_000).take_while(|_| inbox.put(frame(bytes)).is_ok()).count();
            assert_eq!(taken, OUTPUT_WINDOW / (bytes + CHUNK_WEIGHT), "of {bytes} bytes each");
            drop(waiting.recv().await);
            assert!(inbox.put(frame(bytes)).is_ok(), "what is written makes room");
        }
    }
}
