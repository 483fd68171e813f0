//! Container output: append, read, follow. Attempts share segment files instead of having a file each.
//!
//! Appending is idempotent by offset: stored bytes are skipped, and missing bytes are marked as a gap. [`Logs::append`] returns when the
//! bytes are synced, so its answer can be sent to the worker as it is. Readers see synced bytes only.
//!
//! Output has two numberings: the offsets of each stream, as the container wrote them; and *arrival*, both streams together in the order in
//! which they reached the server. Both count the bytes of gaps. [`Streams`] selects the numbering.
//!
//! Not here: the right to write (sessions check tokens), and the end of an attempt's output (its final report carries the lengths).

mod admit;
mod examine;
mod index;
mod read;
mod record;
mod scan;
mod segment_writer;
mod segments;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use protocol::order::OutputMark;
use protocol::report::{Chunk, OutputLengths, Stream};
use protocol::{Fence, JobId, Timestamp, Token};
use tokio::sync::{Semaphore, oneshot, watch};

pub use examine::{OutputTotals, SegmentReport, examine, output_totals};
use segments::SegmentSet;
use writer::Request;

use crate::clock;

/// The attempt that wrote some output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptKey {
    /// The job.
    pub job: JobId,
    /// The attempt's fence.
    pub fence: Fence,
}

impl From<Token> for AttemptKey {
    fn from(token: Token) -> Self {
        Self { job: token.job, fence: token.fence }
    }
}

/// A selection of an attempt's streams. It also selects the numbering of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Streams {
    /// One stream; positions are its own offsets.
    Only(Stream),
    /// Both, as they arrived; positions count the bytes of both.
    Both,
}

impl Streams {
    /// True if this stream is selected.
    #[must_use]
    pub fn has(self, stream: Stream) -> bool {
        match self {
            Self::Only(only) => only == stream,
            Self::Both => true,
        }
    }
}

/// A part of an attempt's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The pieces, in order, without holes: each begins where the one before it ends.
    pub pieces: Vec<Piece>,
    /// The position to continue from.
    pub next: u64,
}

/// A stretch of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stream that the program wrote to.
    pub stream: Stream,
    /// Its position, by the numbering asked for.
    pub at: u64,
    /// The time at which the server received it, or noticed that it is missing. After a lost connection that is the time of the
    /// reconnection. Absent for output that an earlier version stored, and for output that is no longer here.
    pub received_at: Option<Timestamp>,
    /// The bytes, or how many are missing.
    pub data: PieceData,
}

/// The content of a piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceData {
    /// As it was written.
    Bytes(Bytes),
    /// Read again from the engine's log: the same for text, not always for binary.
    Replayed(Bytes),
    /// This many bytes are missing.
    Gap(u64),
}

impl PieceData {
    /// How many bytes of output it stands for.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Replayed(bytes) => bytes.len() as u64,
            Self::Gap(bytes) => *bytes,
        }
    }

    /// True if it stands for no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Limits of the logs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A segment is sealed when it has grown to this size, in bytes.
    pub segment_bytes: u64,
    /// Syncs are at least this far apart while there is much to write. The first chunk after a pause is synced at once.
    pub sync_interval: Duration,
    /// This many bytes may wait to be written; an append beyond them waits for room.
    pub waiting_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, sync_interval: Duration::from_millis(10), waiting_bytes: 16 << 20 }
    }
}

/// The logs cannot be opened, written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The disk says no.
    #[error("{what}")]
    Io {
        /// The operation that failed, with the file's name.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The writer has ended: nothing is written any more.
    #[error("the log writer has stopped")]
    Stopped,
}

/// The output of all attempts. Shared by all sessions and readers.
#[derive(Debug)]
pub struct Logs {
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
    room_bytes: u32,
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// State that the writer and the readers share.
#[derive(Debug)]
struct Shared {
    segments: RwLock<SegmentSet>,
    /// Counts the appends to each followed attempt.
    followed: Mutex<HashMap<AttemptKey, watch::Sender<u64>>>,
}

/// A sealed segment: it no longer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number; the oldest segment has the lowest.
    pub number: u64,
    /// Its size, with its index.
    pub bytes: u64,
}

impl Logs {
    /// Opens the logs in this directory, and creates it if it is missing. A half-written record at the end is cut off: it was never
    /// acknowledged. A file that the disk has damaged is kept as it is.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read or written.
    pub fn open(directory: &Path, limits: Limits) -> Result<Arc<Self>, LogsError> {
        // With the headers of the records, twice what may wait.
        let segments = SegmentSet::open(directory, 2 * u64::from(limits.waiting_bytes))?;
        let shared = Arc::new(Shared { segments: RwLock::new(segments), followed: Mutex::default() });
        let (requests, inbox) = mpsc::channel();
        let shared_with_writer = Arc::clone(&shared);
        let limits = Limits { segment_bytes: limits.segment_bytes.min(SEGMENT_BYTES_MAX), ..limits };
        let thread = thread::Builder::new()
            .name("logs".into())
            .spawn(move || {
                let _guard = writer::AbortOnPanic;
                writer::run(&shared_with_writer, limits, &inbox);
            })
            .map_err(|source| LogsError::Io { what: "cannot start the log writer".into(), source })?;
        Ok(Arc::new(Self {
            shared,
            room: Arc::new(Semaphore::new(limits.waiting_bytes as usize)),
            room_bytes: limits.waiting_bytes,
            requests: Some(requests),
            thread: Some(thread),
        }))
    }

    /// Stores output, in order. Once this returns it is synced, and the marks say for each (attempt, stream) of `chunks` how far,
    /// never beyond what is in them: a mark is about these, and about nothing that still waits.
    /// Bytes that are already there are skipped; a hole in front of a chunk becomes a gap. On a full disk this waits for room.
    ///
    /// # Errors
    /// Nothing of `chunks` may be acknowledged: close the session, so that its worker sends them again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the chunks are stored; sending them again is harmless.
    pub async fn append(&self, chunks: Vec<Chunk>) -> Result<Vec<OutputMark>, LogsError> {
        self.append_received(chunks, Some(clock::now().utc)).await
    }

    /// See [`Self::append`]. Without a time the records are those of earlier versions.
    async fn append_received(
        &self,
        chunks: Vec<Chunk>,
        received_at: Option<Timestamp>,
    ) -> Result<Vec<OutputMark>, LogsError> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = chunks.iter().map(Chunk::weight).fold(0, usize::saturating_add);
        let bytes = u32::try_from(bytes).map_or(self.room_bytes, |bytes| bytes.min(self.room_bytes));
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| LogsError::Stopped)?;
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(LogsError::Stopped)?;
        requests.send(Request { chunks, received_at, reply, room }).map_err(|_| LogsError::Stopped)?;
        answer.await.map_err(|_| LogsError::Stopped)?
    }

    /// Reads an attempt's output from a position on, about `max_bytes` at most. A page has at least one piece if there is any output
    /// left; read on until a page is empty. An unknown attempt has no output. Deleted or damaged output is a gap. Blocks on the disk: do
    /// not call it on an async thread.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn read(
        &self,
        attempt: AttemptKey,
        streams: Streams,
        from: u64,
        max_bytes: usize,
    ) -> Result<Page, LogsError> {
        let parts = self.shared.segments().parts(attempt, streams, from)?;
        read::page(&parts, streams, from, max_bytes)
    }

    /// The position at which the last `lines` lines begin. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn tail(&self, attempt: AttemptKey, streams: Streams, lines: u64) -> Result<u64, LogsError> {
        let parts = self.shared.segments().all_parts(attempt)?;
        read::tail(&parts, streams, lines)
    }

    /// How much of an attempt's output is here, gaps included. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn lengths(&self, attempt: AttemptKey) -> Result<OutputLengths, LogsError> {
        self.shared.segments().lengths(attempt)
    }

    /// Watches an attempt's output grow. Begin to follow before reading, so that nothing is missed between the two.
    #[must_use]
    pub fn follow(self: &Arc<Self>, attempt: AttemptKey) -> Follow {
        let mut followed = self.shared.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let growth = followed.entry(attempt).or_default().subscribe();
        drop(followed);
        Follow { shared: Arc::clone(&self.shared), attempt, growth }
    }

    /// The segments that do not change any more, the oldest first: what may be deleted.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        let segments = self.shared.segments();
        segments.sealed().iter().map(|it| Segment { number: it.number, bytes: it.whole_bytes() }).collect()
    }

    /// The size of the one segment that still changes.
    #[must_use]
    pub fn growing_bytes(&self) -> u64 {
        self.shared.segments().active().1
    }

    /// Jobs that have output in a segment that does not change any more, the highest first: those from `highest` down, at most about
    /// so many. None if there are none, or no such segment. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn jobs(&self, segment: u64, highest: JobId, count: usize) -> Result<Vec<JobId>, LogsError> {
        self.shared.segments().jobs(segment, highest, count)
    }

    /// Deletes a segment with all output in it; what is missing then is read as a gap. Nothing happens if there is no such
    /// segment, or if it still grows. Blocks on the disk.
    ///
    /// # Errors
    /// The disk says no.
    pub fn remove(&self, segment: u64) -> Result<(), LogsError> {
        // Readers keep their open files. Deleting takes a while, so it happens without the lock.
        let detached = self.shared.segments_mut().detach(segment);
        detached.map_or(Ok(()), |detached| detached.delete())
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        // The writer ends when nobody can ask it for anything; its files are closed when this returns.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn segments(&self) -> RwLockReadGuard<'_, SegmentSet> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn segments_mut(&self) -> RwLockWriteGuard<'_, SegmentSet> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for growth of an attempt's output.
#[derive(Debug)]
pub struct Follow {
    shared: Arc<Shared>,
    attempt: AttemptKey,
    growth: watch::Receiver<u64>,
}

impl Follow {
    /// Waits until more has been stored than when this was last called, or than when the following began.
    ///
    /// # Cancel safety
    /// Dropping the future forgets nothing: the next call returns at once if there was growth in between.
    pub async fn grown(&mut self) {
        // The sender stays as long as anyone follows, and this does: it cannot have gone.
        let _ = self.growth.changed().await;
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut followed = self.shared.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.get(&self.attempt).is_some_and(|growth| growth.receiver_count() <= 1) {
            followed.remove(&self.attempt);
        }
    }
}

/// Positions within a segment have 32 bits; a batch may still go beyond this limit.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests;
