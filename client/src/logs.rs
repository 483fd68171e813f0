//! Container output on its way to the server: numbered, bounded chunks, sent again until they are acknowledged.
//!
//! Output bypasses the brains: a runtime gives it in ([`Logs::push`], then [`Logs::finish`]), the session takes
//! frames out ([`Logs::next`]) and brings the server's marks back ([`Logs::acknowledge`]). The offset within its stream is a chunk's
//! whole identity, so sending twice is harmless and a new connection simply starts again at the last mark.
//!
//! The one idea: there is no task, channel or timer per attempt. All attempts share one queue behind one lock, which is held for
//! copying at most one frame; files are read outside of it.

mod queue;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, OutputLengths, Stream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Duration, Instant};

use queue::{Queue, Turn};

/// Bytes of output in one frame.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Bytes sent in a session and not yet acknowledged, above which nothing more is sent: so that heartbeats never wait behind output.
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 256 * 1024;

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
}

impl Logs {
    /// An empty queue, and the tokens whose output is fully acknowledged or given up: each once, in order, only after its `finish`
    /// or `abandon`.
    #[must_use]
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Token>) {
        let (done, finished) = mpsc::unbounded_channel();
        let shared = Shared { queue: Mutex::new(Queue::default()), wake: Notify::new(), done };
        (Self { shared: Arc::new(shared) }, finished)
    }

    /// Appends bytes that exist nowhere else. Above [`MEMORY_BYTES_MAX`] they become a marked gap: a runtime is never made to wait.
    pub fn push(&self, token: Token, stream: Stream, bytes: &[u8]) {
        self.queue().push(token, stream, bytes);
        self.shared.wake.notify_one();
    }

    /// Tells that nothing more will be written, and how much was: what cannot be found of it will be marked as a gap.
    pub fn finish(&self, token: Token, lengths: OutputLengths) {
        let done = self.queue().finish(token, lengths, Instant::now());
        self.tell(done);
        self.shared.wake.notify_one();
    }

    /// Gives up whatever of this attempt is not acknowledged yet: the server is told how many bytes that is, once, if it listens.
    pub fn abandon(&self, token: Token) {
        let done = self.queue().abandon(token);
        self.tell(done);
        self.shared.wake.notify_one();
    }

    /// A new session: whatever is unacknowledged will be sent again.
    pub fn reconnected(&self) {
        self.queue().reconnected(Instant::now());
        self.shared.wake.notify_one();
    }

    /// The next frame, as soon as there is something to say and the session has room for it: at most [`FRAME_BYTES_MAX`] in a frame
    /// and [`UNACKNOWLEDGED_BYTES_MAX`] in the session. To be called by one caller at a time, while connected.
    ///
    /// # Cancel safety
    /// What was not returned counts as not sent.
    pub async fn next(&self) -> Vec<Chunk> {
        loop {
            let woken = self.shared.wake.notified();
            let turn = self.queue().turn(Instant::now());
            match turn {
                Turn::Send(chunks) => return chunks,
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
        let done: Vec<_> = marks.iter().filter_map(|mark| queue.acknowledge(mark, now)).collect();
        drop(queue);
        self.tell(done);
        self.shared.wake.notify_one();
    }

    fn tell(&self, done: impl IntoIterator<Item = Token>) {
        for token in done {
            // Nobody listens any more: the worker is leaving.
            let _ = self.shared.done.send(token);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic elsewhere must not silence the output of all other attempts.
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use protocol::report::ChunkData;
    use protocol::{Fence, JobId, Nonce};

    use super::*;

    fn token(job: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(7) }
    }

    fn mark(token: Token, offset: u64) -> OutputMark {
        OutputMark { token, stream: Stream::Stdout, offset }
    }

    fn stdout(bytes: u64) -> OutputLengths {
        OutputLengths { stdout: bytes, stderr: 0 }
    }

    fn size(chunks: &[Chunk]) -> usize {
        chunks.iter().map(|it| (it.end() - it.offset) as usize).sum()
    }

    #[tokio::test]
    async fn output_is_done_only_when_it_is_finished_and_acknowledged() {
        let (logs, mut done) = Logs::new();
        logs.push(token(1), Stream::Stdout, b"hello");
        let frame = logs.next().await;
        assert_eq!(frame[0].data, ChunkData::Bytes(b"hello".to_vec()));
        logs.acknowledge(&[mark(token(1), 5)]);
        assert!(done.try_recv().is_err(), "it may still write");
        logs.finish(token(1), stdout(5));
        assert_eq!(done.recv().await, Some(token(1)));
    }

    #[tokio::test]
    async fn an_attempt_that_wrote_nothing_is_done_at_once() {
        let (logs, mut done) = Logs::new();
        logs.finish(token(1), OutputLengths::default());
        assert_eq!(done.recv().await, Some(token(1)));
    }

    #[tokio::test]
    async fn small_outputs_of_many_attempts_share_a_frame() {
        let (logs, _done) = Logs::new();
        for job in 0..1_000 {
            logs.push(token(job), Stream::Stderr, &[b'x'; 100]);
        }
        let frame = logs.next().await;
        assert!(frame.len() > 400 && size(&frame) <= FRAME_BYTES_MAX, "{} chunks", frame.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_has_a_window_and_a_new_one_starts_at_the_last_mark() {
        let (logs, _done) = Logs::new();
        logs.push(token(1), Stream::Stdout, &vec![1; 1_000_000]);
        let mut sent = 0;
        while let Ok(frame) = tokio::time::timeout(Duration::from_secs(1), logs.next()).await {
            assert!(size(&frame) <= FRAME_BYTES_MAX);
            sent += size(&frame);
        }
        assert!(sent <= UNACKNOWLEDGED_BYTES_MAX && sent > UNACKNOWLEDGED_BYTES_MAX - 4096, "{sent}");
        logs.acknowledge(&[mark(token(1), 100_000)]);
        assert_eq!(logs.next().await[0].offset, sent as u64);
        logs.reconnected();
        assert_eq!(logs.next().await[0].offset, 100_000);
    }

    #[tokio::test]
    async fn a_chatty_attempt_does_not_silence_a_quiet_one() {
        let (logs, _done) = Logs::new();
        logs.push(token(1), Stream::Stdout, &vec![1; 200_000]);
        logs.push(token(2), Stream::Stdout, b"quiet");
        let two_frames = [logs.next().await, logs.next().await].concat();
        assert!(two_frames.iter().any(|it| it.token == token(2)));
    }

    #[tokio::test]
    async fn what_was_never_seen_is_a_marked_gap() {
        let (logs, mut done) = Logs::new();
        logs.push(token(1), Stream::Stdout, b"abc");
        logs.finish(token(1), stdout(10));
        let frame = logs.next().await;
        assert_eq!(frame[1].data, ChunkData::Gap(7));
        logs.acknowledge(&[mark(token(1), 10)]);
        assert_eq!(done.recv().await, Some(token(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_acknowledges_is_told_of_a_gap_and_not_waited_for() {
        let (logs, mut done) = Logs::new();
        logs.push(token(1), Stream::Stdout, &vec![0; 300_000]);
        logs.finish(token(1), stdout(300_000));
        let mut last = None;
        while done.try_recv().is_err() {
            if let Ok(frame) = tokio::time::timeout(PATIENCE, logs.next()).await {
                last = frame.into_iter().next_back();
            }
        }
        let last = match last {
            Some(Chunk { data: ChunkData::Gap(_), .. }) => last,
            _ => logs.next().await.pop(),
        };
        assert!(last.is_some_and(|it| matches!(it.data, ChunkData::Gap(_)) && it.end() == 300_000));
    }

    #[tokio::test]
    async fn marks_that_make_no_sense_mean_nothing() {
        let (logs, mut done) = Logs::new();
        logs.acknowledge(&[mark(token(9), u64::MAX)]);
        logs.push(token(1), Stream::Stdout, b"abc");
        logs.acknowledge(&[mark(token(1), u64::MAX), mark(token(1), 1)]);
        logs.finish(token(1), stdout(3));
        assert_eq!(done.recv().await, Some(token(1)));
    }

    #[tokio::test]
    async fn abandoning_gives_the_memory_back() {
        let (logs, mut done) = Logs::new();
        logs.push(token(1), Stream::Stdout, &vec![0; MEMORY_BYTES_MAX]);
        logs.push(token(2), Stream::Stdout, b"too much");
        logs.abandon(token(1));
        assert_eq!(done.recv().await, Some(token(1)));
        logs.push(token(3), Stream::Stdout, b"fits");
        let frame = logs.next().await;
        assert!(
            frame.iter().any(|it| it.token == token(1) && it.data == ChunkData::Gap(MEMORY_BYTES_MAX as u64))
        );
        assert!(frame.iter().any(|it| it.token == token(2) && it.data == ChunkData::Gap(8)));
        assert!(frame.iter().any(|it| it.token == token(3) && it.data == ChunkData::Bytes(b"fits".to_vec())));
    }
}
