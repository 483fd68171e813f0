//! Container output on its way to the server: numbered, bounded chunks, sent again until they are acknowledged.
//!
//! Output bypasses the brains: a runtime gives it in ([`Logs::push`] or [`Logs::follow`], then [`Logs::finish`]), the session takes
//! frames out ([`Logs::next`]) and brings the server's marks back ([`Logs::acknowledge`]). The offset within its stream is a chunk's
//! whole identity, so sending twice is harmless and a new connection simply starts again at the last mark.
//!
//! The one idea: there is no task, channel or timer per attempt. All attempts share one queue behind one lock, which is held for
//! copying at most one frame; files are read outside of it.

mod files;
mod queue;
mod stream;
mod watch;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, OutputLengths, Stream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Duration, Instant};

use crate::attempt_dir::{self, AttemptDir, Replayed};

use files::Files;
use queue::{Queue, Turn};

/// Bytes pushed without a file that may wait for the server, of all attempts together; above it they are given up and marked.
pub const MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long an ended attempt waits for its output to be acknowledged, while connected, before the rest is given up.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The output of all attempts of this worker. A cheap handle: clones share one queue.
#[derive(Clone)]
pub struct Logs {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Something may have become sendable.
    wake: Notify,
    done: mpsc::UnboundedSender<Token>,
    watch: watch::Watch,
}

impl Logs {
    /// An empty queue, and the tokens whose output is fully acknowledged or given up: each once, in order, only after its `finish`
    /// or `abandon`.
    #[must_use]
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Token>) {
        let (done, finished) = mpsc::unbounded_channel();
        let shared = Shared {
            queue: Mutex::new(Queue::default()),
            wake: Notify::new(),
            done,
            watch: watch::Watch::default(),
        };
        (Self { shared: Arc::new(shared) }, finished)
    }

    /// Appends bytes that exist nowhere else. Above [`MEMORY_BYTES_MAX`] they become a marked gap: a runtime is never made to wait.
    pub fn push(&self, token: Token, stream: Stream, bytes: &[u8]) {
        self.queue().push(token, stream, bytes);
        self.shared.wake.notify_one();
    }

    /// Sends what is and will be in the files of an attempt, up to `bytes_max` in all (zero: 64 MiB). Its container must have started:
    /// before that, what they hold is not the job's. At a second call for the same attempt nothing happens. To be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// The files cannot be opened.
    pub fn follow(&self, token: Token, dir: &AttemptDir, bytes_max: u64) -> Result<(), attempt_dir::Error> {
        if self.shared.watch.knows(token) {
            return Ok(());
        }
        let (progress, replayed) = (dir.progress()?, dir.replayed()?);
        let files = Arc::new(Files::open(dir.clone())?);
        // In this order nothing that is written meanwhile goes unnoticed.
        self.shared.watch.add(&self.shared, token, &files);
        let lengths = files.lengths();
        let limits = files::Limits::new(bytes_max, progress, replayed);
        self.queue().follow(token, files, limits, progress, lengths);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// From here on the files of an attempt will hold what is read again from the engine's log.
    pub fn replaying(&self, token: Token, replayed: Replayed) {
        self.queue().replaying(token, replayed);
    }

    /// Tells that nothing more will be written, and how much was: what cannot be found of it will be marked as a gap.
    pub fn finish(&self, token: Token, lengths: OutputLengths) {
        self.shared.watch.forget(token);
        let done = self.queue().finish(token, lengths, Instant::now());
        self.tell(done);
        self.shared.wake.notify_one();
    }

    /// Gives up whatever of this attempt is not acknowledged yet: the server is told how many bytes that is, once, as soon as
    /// it has room for that.
    pub fn abandon(&self, token: Token) {
        self.shared.watch.forget(token);
        let done = self.queue().abandon(token);
        self.tell(done);
        self.shared.wake.notify_one();
    }

    /// A new session: whatever is unacknowledged will be sent again.
    pub fn reconnected(&self) {
        self.queue().reconnected(Instant::now());
        self.shared.wake.notify_one();
    }

    /// The next frame, as soon as there is something to say and the session has room for it: at most
    /// [`OUTPUT_BYTES_MAX`](protocol::wire::OUTPUT_BYTES_MAX) in a frame and [`OUTPUT_WINDOW`](protocol::wire::OUTPUT_WINDOW) in the session. To be called by one caller at a time, while connected.
    ///
    /// # Cancel safety
    /// What was not returned counts as not sent.
    pub async fn next(&self) -> Vec<Chunk> {
        loop {
            let woken = self.shared.wake.notified();
            let turn = self.queue().turn(Instant::now());
            match turn {
                Turn::Send(chunks) => return chunks,
                Turn::Read(read) => {
                    let found = read.run().await;
                    if let Some(chunk) = self.queue().sent(&read, found) {
                        return vec![chunk];
                    }
                }
                Turn::GiveUp(tokens) => tokens.into_iter().for_each(|token| self.abandon(token)),
                Turn::Wait(None) => woken.await,
                // Whether something was woken or became overdue: the queue is asked again.
                Turn::Wait(Some(at)) => drop(tokio::time::timeout_at(at, woken).await),
            }
        }
    }

    /// The server has these bytes for good. Marks of unknown attempts, and marks beyond what was sent, mean nothing.
    pub fn acknowledge(&self, marks: &[OutputMark]) {
        let now = Instant::now();
        let mut queue = self.queue();
        let settled: Vec<_> = marks.iter().map(|mark| queue.acknowledge(mark, now)).collect();
        drop(queue);
        for (done, freeing) in settled {
            self.tell(done);
            if let Some((files, freeing)) = freeing {
                // It syncs; nobody waits for it.
                drop(tokio::task::spawn_blocking(move || files.free(&freeing)));
            }
        }
        self.shared.wake.notify_one();
    }

    fn tell(&self, done: impl IntoIterator<Item = Token>) {
        for token in done {
            // Nobody listens any more: the worker is leaving.
            let _ = self.shared.done.send(token);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue()
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic elsewhere must not silence the output of all other attempts.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
