//! Container output: append, read, follow. Segment files that many attempts share, not a file each.
//!
//! Output is idempotent by offset: what was stored already is skipped, and what is missing is marked as a gap. [`Logs::append`] answers once
//! the bytes are synced, so its answer may be passed on to the worker as it is. Readers see only what is synced.
//!
//! What an attempt wrote is numbered in two ways: each stream by its own offsets, as the container wrote them; and both streams
//! together by *arrival*, as they reached the server. Both count the bytes of gaps. [`Which`] says which numbering a reader means.
//!
//! What does not live here: who may write (the session checks tokens), and when an attempt's output is complete (its final report
//! carries the lengths; the archive has them).

mod admit;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use protocol::order::OutputMark;
use protocol::report::{Chunk, OutputLengths, Stream};
use protocol::{Fence, JobId, Token};
use tokio::sync::watch;

/// Whose output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The job.
    pub job: JobId,
    /// Which attempt of it.
    pub fence: Fence,
}

impl From<Token> for Attempt {
    fn from(token: Token) -> Self {
        Self { job: token.job, fence: token.fence }
    }
}

/// Which output of an attempt, and by which numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// One stream; positions are its own offsets.
    Only(Stream),
    /// Both, as they arrived; positions count the bytes of both.
    Both,
}

/// A part of an attempt's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What there is, in order, without holes: each piece begins where the one before it ends.
    pub pieces: Vec<Piece>,
    /// Where to go on reading.
    pub next: u64,
}

/// A stretch of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the program wrote it.
    pub stream: Stream,
    /// Its position, by the numbering asked for.
    pub at: u64,
    /// What it wrote.
    pub data: PieceData,
}

/// What a stretch of output holds.
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

    /// Whether it stands for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What the logs may use.
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
        /// What was attempted, with the file's name.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The writer has stopped after an error of the disk: nothing is written any more.
    #[error("the log writer has stopped")]
    Stopped,
}

/// Every attempt's output. Shared by all sessions and readers.
#[derive(Debug)]
pub struct Logs {
    kept: Mutex<HashMap<Attempt, Kept>>,
    followed: Mutex<HashMap<Attempt, watch::Sender<OutputLengths>>>,
}

#[derive(Debug, Default)]
struct Kept {
    lengths: OutputLengths,
    pieces: Vec<(Stream, u64, u64, PieceData)>,
}

impl Logs {
    /// Opens the logs in this directory, making it if it is missing. What a crash left half-written at the end is cut off; it was
    /// never acknowledged.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read or written.
    pub fn open(_directory: &Path, _limits: Limits) -> Result<Arc<Self>, LogsError> {
        Ok(Arc::new(Self { kept: Mutex::default(), followed: Mutex::default() }))
    }

    /// Stores output, in order. Once this returns it is synced, and the marks say for each (attempt, stream) of `chunks` how far.
    /// Bytes that are already there are skipped; a hole in front of a chunk becomes a gap.
    ///
    /// # Errors
    /// Nothing of `chunks` may be acknowledged: close the session, so that its worker sends them again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the chunks are stored; sending them again is harmless.
    #[expect(clippy::unused_async, reason = "the shape that callers build on")]
    pub async fn append(&self, chunks: Vec<Chunk>) -> Result<Vec<OutputMark>, LogsError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut marks = admit::Marks::default();
        for chunk in chunks {
            let (token, stream) = (chunk.token, chunk.stream);
            let of = kept.entry(token.into()).or_default();
            for (at, data) in admit::admit(&mut of.lengths, chunk) {
                let arrival = of.pieces.last().map_or(0, |(_, _, arrival, last)| arrival + last.len());
                of.pieces.push((stream, at, arrival, data));
            }
            marks.put(OutputMark { token, stream, offset: admit::length(&of.lengths, stream) });
        }
        for mark in marks.as_slice() {
            if let (Some(of), Some(followed)) = (
                kept.get(&mark.token.into()),
                self.followed.lock().unwrap_or_else(PoisonError::into_inner).get(&mark.token.into()),
            ) {
                followed.send_replace(of.lengths);
            }
        }
        Ok(marks.into_vec())
    }

    /// What an attempt wrote from a position on, at most about `max_bytes` of it (at least one piece if there is any). Blocks on
    /// the disk: call it off the async threads. An attempt that is not known has written nothing.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn read(
        &self,
        attempt: Attempt,
        which: Which,
        from: u64,
        max_bytes: usize,
    ) -> Result<Page, LogsError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = Page { pieces: Vec::new(), next: from };
        let mut left = max_bytes as u64;
        for (stream, offset, arrival, data) in kept.get(&attempt).map_or(&[][..], |of| &of.pieces) {
            let at = match which {
                Which::Only(wanted) if wanted != *stream => continue,
                Which::Only(_) => *offset,
                Which::Both => *arrival,
            };
            if at + data.len() <= from {
                continue;
            }
            let data = admit::without_first(data.clone(), from.saturating_sub(at));
            page.next = at.max(from) + data.len();
            let size = data.len();
            page.pieces.push(Piece { stream: *stream, at: at.max(from), data });
            if size >= left {
                break;
            }
            left -= size;
        }
        Ok(page)
    }

    /// Where the last `lines` lines begin: a position to read from. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn tail(&self, attempt: Attempt, which: Which, lines: u64) -> Result<u64, LogsError> {
        let all = self.read(attempt, which, 0, usize::MAX)?;
        Ok(admit::tail_of(&all.pieces, lines).unwrap_or(0))
    }

    /// How much of an attempt's output is here, gaps included. Blocks on the disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn lengths(&self, attempt: Attempt) -> Result<OutputLengths, LogsError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.get(&attempt).map_or_else(OutputLengths::default, |of| of.lengths))
    }

    /// Watches an attempt's output grow. Begin to follow before reading, so that nothing is missed between the two.
    #[must_use]
    pub fn follow(self: &Arc<Self>, attempt: Attempt) -> Follow {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let growth = followed
            .entry(attempt)
            .or_insert_with(|| watch::Sender::new(OutputLengths::default()))
            .subscribe();
        drop(followed);
        Follow { logs: Arc::clone(self), attempt, growth }
    }
}

/// Wakes when an attempt has written more.
#[derive(Debug)]
pub struct Follow {
    logs: Arc<Logs>,
    attempt: Attempt,
    growth: watch::Receiver<OutputLengths>,
}

impl Follow {
    /// Waits until more has been stored than when this was last called, or than when the following began.
    ///
    /// # Cancel safety
    /// Dropping the future forgets nothing: the next call returns at once if there was growth in between.
    pub async fn grown(&mut self) {
        // The sender lives in the logs, which this holds: it cannot have gone.
        let _ = self.growth.changed().await;
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut followed = self.logs.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.get(&self.attempt).is_some_and(|growth| growth.receiver_count() <= 1) {
            followed.remove(&self.attempt);
        }
    }
}
