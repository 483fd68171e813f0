//! Container output on its way to the server: numbered, bounded chunks, sent again until they are acknowledged.
//!
//! Output does not pass through the state machines. A runtime adds it ([`Logs::push`] or [`Logs::follow`], then [`Logs::finish`]), the
//! session takes frames out ([`Logs::next`]) and returns the server's marks ([`Logs::acknowledge`]). A chunk is identified by its offset in
//! the stream, so sending twice is harmless, and a new connection starts at the last mark.
//!
//! There is no task, channel or timer per attempt. All attempts share one queue behind one lock, which is held for copying at most one
//! frame; files are read outside of it.

mod files;
mod follower;
pub(crate) mod mask;
mod queue;
mod stream;
mod watch;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, OutputLengths, Stream};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::attempt_dir::{self, AttemptDir, OutputProgress, ReplayRange};

use files::{AttemptFiles, KeepLimits};
pub(crate) use follower::OutputFollower;
pub use queue::{ACKNOWLEDGE_TIMEOUT, MEMORY_BYTES_MAX};
use queue::{NextAction, Queue};

/// The output of all attempts of this worker. The handle is cheap: clones share one queue.
#[derive(Clone)]
pub struct Logs {
    state: Arc<LogsState>,
}

struct LogsState {
    queue: Mutex<Queue>,
    /// Wakes the session: there may be something to send.
    wake: Notify,
    done: mpsc::UnboundedSender<Token>,
    watch: watch::GrowthWatch,
}

impl Logs {
    /// An empty queue, and a channel of attempts whose output is fully acknowledged or given up: each one once, after its `finish` or
    /// `give_up`.
    #[must_use]
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Token>) {
        let (done, finished) = mpsc::unbounded_channel();
        let state = LogsState {
            queue: Mutex::new(Queue::default()),
            wake: Notify::new(),
            done,
            watch: watch::GrowthWatch::default(),
        };
        (Self { state: Arc::new(state) }, finished)
    }

    /// Appends bytes that exist only in memory. Above [`MEMORY_BYTES_MAX`] they become a marked gap, so a runtime never waits.
    pub fn push(&self, token: Token, stream: Stream, bytes: &[u8]) {
        self.queue().push(token, stream, bytes);
        self.state.wake.notify_one();
    }

    /// Sends the content of an attempt's files and follows their growth, up to `bytes_max` in all (zero: 64 MiB), with matches of these
    /// `patterns` masked. The container must have started: before that, the content is not the job's. A second call for the same attempt
    /// does nothing. It must be called within a tokio runtime.
    ///
    /// # Errors
    /// The files cannot be opened.
    pub fn follow(
        &self,
        token: Token,
        dir: &AttemptDir,
        bytes_max: u64,
        patterns: &[String],
    ) -> Result<(), attempt_dir::Error> {
        if self.state.watch.knows(token) {
            return Ok(());
        }
        let (progress, replayed) = (dir.progress()?, dir.replayed()?);
        let files = Arc::new(AttemptFiles::open(dir.clone(), patterns)?);
        self.state.watch.add(&self.state, token, &files);
        let lengths = files.lengths();
        let limits = KeepLimits::new(bytes_max, progress, replayed).with_mask_context(files.context_bytes());
        self.begin_to_send(token, files, limits, progress, lengths);
        Ok(())
    }

    /// Queues files that the watch knows. `lengths` are those of a moment ago.
    fn begin_to_send(
        &self,
        token: Token,
        files: Arc<AttemptFiles>,
        limits: KeepLimits,
        progress: OutputProgress,
        lengths: [u64; 2],
    ) {
        self.queue().follow(token, files, limits, progress, lengths);
        // Growth since then may have been noticed before the queue knew the attempt, and was ignored.
        watch::check_growth(&self.state, token);
        self.state.wake.notify_one();
    }

    /// Marks the offsets from which the files hold bytes of the engine's log.
    pub fn set_replayed(&self, token: Token, replayed: ReplayRange) {
        self.queue().set_replayed(token, replayed);
    }

    /// Marks the output as complete with these lengths. Bytes that cannot be found become a gap.
    pub fn finish(&self, token: Token, lengths: OutputLengths) {
        self.state.watch.forget(token);
        let done = self.queue().finish(token, lengths, Instant::now());
        self.report_done(done);
        self.state.wake.notify_one();
    }

    /// Gives up the unacknowledged output of this attempt. The server gets its length once, as a gap.
    pub fn give_up(&self, token: Token) {
        self.state.watch.forget(token);
        let done = self.queue().give_up(token);
        self.report_done(done);
        self.state.wake.notify_one();
    }

    /// Starts a new session: unacknowledged output will be sent again.
    pub fn reconnected(&self) {
        self.queue().reconnected(Instant::now());
        self.state.wake.notify_one();
    }

    /// The next frame, as soon as there is one and the session has room for it: at most
    /// [`OUTPUT_BYTES_MAX`](protocol::wire::OUTPUT_BYTES_MAX) in a frame and [`OUTPUT_WINDOW`](protocol::wire::OUTPUT_WINDOW) in the
    /// session. Only one caller at a time, and only while connected.
    ///
    /// # Cancel safety
    /// A cancelled call has sent nothing.
    pub async fn next(&self) -> Vec<Chunk> {
        loop {
            let woken = self.state.wake.notified();
            let action = self.queue().next_action(Instant::now());
            match action {
                NextAction::Send(chunks) => return chunks,
                NextAction::Read(read) => {
                    let found = read.run().await;
                    if let Some(chunk) = self.queue().sent(&read, found) {
                        return vec![chunk];
                    }
                }
                NextAction::GiveUp(tokens) => tokens.into_iter().for_each(|token| self.give_up(token)),
                NextAction::Wait(None) => woken.await,
                // Woken or due: ask the queue again.
                NextAction::Wait(Some(at)) => drop(tokio::time::timeout_at(at, woken).await),
            }
        }
    }

    /// Takes acknowledgements. A mark of an unknown attempt is ignored; one beyond the end of a stream counts as its end. After a new connection
    /// the server may confirm more than this session has sent.
    pub fn acknowledge(&self, marks: &[OutputMark]) {
        let now = Instant::now();
        let mut queue = self.queue();
        let settled: Vec<_> = marks.iter().map(|mark| queue.acknowledge(mark, now)).collect();
        drop(queue);
        for (done, freeing) in settled {
            self.report_done(done);
            if let Some((files, freeing)) = freeing {
                // It syncs, so it runs on a blocking thread.
                drop(tokio::task::spawn_blocking(move || files.free(&freeing)));
            }
        }
        self.state.wake.notify_one();
    }

    fn report_done(&self, done: impl IntoIterator<Item = Token>) {
        for token in done {
            // The receiver is gone: the worker is shutting down.
            let _ = self.state.done.send(token);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.state.queue()
    }
}

impl LogsState {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic of another task must not stop the output of all attempts.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
