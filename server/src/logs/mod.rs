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
mod attempt_segments;
pub mod boot;
mod error;
mod examine;
mod index;
mod limits;
mod output;
mod paths;
mod progress;
mod read;
mod record;
mod scan;
mod segment_writer;
mod segments;
mod shared;
mod stored;
mod writer;

use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};

use protocol::order::OutputMark;
use protocol::report::{Chunk, OutputLengths};
use protocol::{JobId, Timestamp};
use tokio::sync::{Semaphore, oneshot, watch};

pub use error::LogsError;
pub use examine::{OutputTotals, SegmentReport, examine, output_totals};
use limits::SEGMENT_BYTES_MAX;
pub use limits::{BYTES_MAX, BYTES_MAX_FROM, BYTES_MAX_TO, Limits};
pub use output::{AttemptKey, OutputEnd, Page, Piece, PieceData, Streams};
use record::{Kind, RecordPosition};
use segments::SegmentSet;
use shared::Shared;
use stored::StoredCache;
pub use stored::StoredOutput;
pub use writer::BoundedChunk;
use writer::Request;

use crate::clock;

/// The output of all attempts. Shared by all sessions and readers.
#[derive(Debug)]
pub struct Logs {
    shared: Arc<Shared>,
    stored: Mutex<StoredCache>,
    room: Arc<Semaphore>,
    room_bytes: u32,
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
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
        let segments = SegmentSet::open(directory, &limits)?;
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
            stored: Mutex::default(),
            room: Arc::new(Semaphore::new(limits.waiting_bytes as usize)),
            room_bytes: limits.waiting_bytes,
            requests: Some(requests),
            thread: Some(thread),
        }))
    }

    /// Stores output, in order. Once this returns it is synced, and the marks say for each (attempt, stream) of `chunks` how far,
    /// never beyond what is in them: a mark is about these, and about nothing that still waits.
    /// Bytes that are already there are skipped; a hole in front of a chunk becomes a gap. Bytes beyond the limit of an attempt are dropped
    /// after a [`PieceData::Cut`], and their mark says that they are done. On a full disk this waits for room.
    ///
    /// # Errors
    /// Nothing of `chunks` may be acknowledged: close the session, so that its worker sends them again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the chunks are stored; sending them again is harmless.
    pub async fn append_bounded(&self, chunks: Vec<BoundedChunk>) -> Result<Vec<OutputMark>, LogsError> {
        self.append_received(chunks, Some(clock::now().utc)).await
    }

    /// As [`Self::append_bounded`], without a limit.
    ///
    /// # Errors
    /// As there.
    pub async fn append(&self, chunks: Vec<Chunk>) -> Result<Vec<OutputMark>, LogsError> {
        self.append_bounded(unbounded(chunks)).await
    }

    /// See [`Self::append_bounded`]. Without a time the records are those of earlier versions.
    async fn append_received(
        &self,
        chunks: Vec<BoundedChunk>,
        received_at: Option<Timestamp>,
    ) -> Result<Vec<OutputMark>, LogsError> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = chunks.iter().map(|bounded| bounded.chunk.weight()).fold(0, usize::saturating_add);
        let bytes = u32::try_from(bytes).map_or(self.room_bytes, |bytes| bytes.min(self.room_bytes));
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| LogsError::Stopped)?;
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(LogsError::Stopped)?;
        requests.send(Request { chunks, received_at, reply, room }).map_err(|_| LogsError::Stopped)?;
        answer.await.map_err(|_| LogsError::Stopped)
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
        let segments = self.shared.segments().ending_after(attempt, streams, from);
        read::page(segments.parts_after(streams, from)?, streams, from, max_bytes)
    }

    /// The position at which the last `lines` lines begin. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn tail(&self, attempt: AttemptKey, streams: Streams, lines: u64) -> Result<u64, LogsError> {
        let segments = self.shared.segments().all(attempt);
        read::tail(segments, streams, lines)
    }

    /// The position of the first output that was received at this time or later; the end if there is none. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn since(&self, attempt: AttemptKey, streams: Streams, since: Timestamp) -> Result<u64, LogsError> {
        let segments = self.shared.segments().all(attempt);
        read::since(segments, streams, since)
    }

    /// How much of an attempt's output is here, gaps included. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn lengths(&self, attempt: AttemptKey) -> Result<OutputLengths, LogsError> {
        self.end(attempt).map(|end| end.lengths)
    }

    /// The output of an attempt that can be read, without gaps, if it was [counted](Self::count_stored) and has not changed since.
    #[must_use]
    pub fn stored(&self, attempt: AttemptKey) -> Option<StoredOutput> {
        let version = self.shared.segments().version(attempt);
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).get(attempt, version)
    }

    /// Counts the output of an attempt that can be read, without gaps. Walks through its index. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn count_stored(&self, attempt: AttemptKey) -> Result<StoredOutput, LogsError> {
        self.count_stored_within(attempt, stored::RECORDS_MAX)
    }

    fn count_stored_within(
        &self,
        attempt: AttemptKey,
        records_max: usize,
    ) -> Result<StoredOutput, LogsError> {
        let (version, segments) = {
            let segments = self.shared.segments();
            let version = segments.version(attempt);
            (version, (version.active <= records_max).then(|| segments.all(attempt)))
        };
        let counted = match segments {
            Some(segments) => stored::count(segments.newest_first(), records_max)?,
            None => StoredOutput::Uncounted,
        };
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt, version, counted);
        Ok(counted)
    }

    /// The end of what is stored of an attempt's output. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn end(&self, attempt: AttemptKey) -> Result<OutputEnd, LogsError> {
        let segments = self.shared.segments().last(attempt);
        let end =
            |last: RecordPosition| OutputEnd { lengths: last.after(), is_cut: last.code.kind == Kind::Cut };
        Ok(segments.last()?.map(end).unwrap_or_default())
    }

    /// Watches an attempt's output grow. Begin to follow before reading, so that nothing is missed between the two.
    #[must_use]
    pub fn follow(self: &Arc<Self>, attempt: AttemptKey) -> Follow {
        let mut followed = self.shared.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let growth = Some(followed.entry(attempt).or_default().subscribe());
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

    /// Jobs that have output in a segment that does not change any more, the highest first: those from `highest` down, about
    /// `count` at most. None if there are none, or no such segment. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn jobs(&self, segment: u64, highest: JobId, count: usize) -> Result<Vec<JobId>, LogsError> {
        let index = self.shared.segments().sealed_index(segment);
        index.map_or_else(|| Ok(Vec::new()), |index| index.jobs(highest, count))
    }

    /// Deletes a segment with all output in it; what is missing then is read as a gap. Nothing happens if there is no such
    /// segment, or if it still grows. Blocks on the disk.
    ///
    /// # Errors
    /// A file operation failed.
    pub fn remove(&self, segment: u64) -> Result<(), LogsError> {
        // Readers keep their open files. Deleting takes a while, so it happens without the lock.
        let detached = self.shared.segments_mut().detach(segment);
        let Some(detached) = detached else { return Ok(()) };
        detached.delete_segment().inspect_err(|_| self.shared.segments_mut().attach(&detached))?;
        detached.delete_index()
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

/// Waits for growth of an attempt's output.
#[derive(Debug)]
pub struct Follow {
    shared: Arc<Shared>,
    attempt: AttemptKey,
    /// Always here until this is dropped.
    growth: Option<watch::Receiver<u64>>,
}

impl Follow {
    /// Waits until more has been stored than when this was last called, or than when the following began.
    ///
    /// # Cancel safety
    /// Dropping the future forgets nothing: the next call returns at once if there was growth in between.
    pub async fn grown(&mut self) {
        if let Some(growth) = &mut self.growth {
            // The sender stays as long as anyone follows, and this does: it cannot have gone.
            let _ = growth.changed().await;
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut followed = self.shared.followed.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: of two that are dropped at once the later one then sees that nobody is left.
        self.growth = None;
        if followed.get(&self.attempt).is_some_and(|growth| growth.receiver_count() == 0) {
            followed.remove(&self.attempt);
        }
    }
}

fn unbounded(chunks: Vec<Chunk>) -> Vec<BoundedChunk> {
    chunks.into_iter().map(|chunk| BoundedChunk { chunk, bytes_max: u64::MAX }).collect()
}

#[cfg(test)]
mod tests;
