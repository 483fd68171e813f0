//! A worker's output on its way to the logs: beside the reports, so that neither waits for the other.

use std::sync::Arc;

use protocol::Order;
use protocol::report::Chunk;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;

use crate::engine::{ToSession, WeakOutbox};
use crate::logs::Logs;

/// How many frames of output may wait for the disk: a worker has at most 256 KiB unacknowledged, so a slow disk fills its window first.
const FRAMES_WAITING: usize = 64;

/// Where the reader puts output.
#[derive(Debug)]
pub(super) struct Inbox(mpsc::Sender<Vec<Chunk>>);

impl Inbox {
    /// Gives the chunks back if there is no room for them now. Output that nobody will write is dropped: it was not acknowledged, so
    /// its worker sends it again.
    pub(super) fn try_put(&self, chunks: Vec<Chunk>) -> Result<(), Vec<Chunk>> {
        match self.0.try_send(chunks) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(chunks)) => Err(chunks),
        }
    }

    /// Waits for room.
    pub(super) async fn put(&self, chunks: Vec<Chunk>) {
        let _ = self.0.send(chunks).await;
    }
}

/// Starts to write one session's output and to acknowledge what is synced. The task ends with its inbox, or before that if output can
/// no longer be kept: then the session must end too, so that its worker comes back and sends again what was not acknowledged.
pub(super) fn start(logs: Arc<Logs>, outbox: WeakOutbox) -> (Inbox, JoinHandle<()>) {
    let (inbox, mut waiting) = inbox();
    let task = tokio::spawn(async move {
        let mut frames = Vec::new();
        while waiting.recv_many(&mut frames, FRAMES_WAITING).await > 0 {
            let chunks = frames.drain(..).flatten().collect();
            match logs.append(chunks).await {
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

/// Where output waits.
pub(super) fn inbox() -> (Inbox, mpsc::Receiver<Vec<Chunk>>) {
    let (inbox, waiting) = mpsc::channel(FRAMES_WAITING);
    (Inbox(inbox), waiting)
}
