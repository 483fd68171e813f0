//! Output that is in files: what of it may be sent, what is read, what is freed. Arithmetic on offsets and a few system calls.
//!
//! ```text
//! 0        acknowledged        sent      head         tail        written
//! |  freed  |  unacknowledged   |  to send |  freed    |  sent at   |
//! |         |                   |          |  a gap    |  the end   |
//! ```
//! As long as everything fits into `bytes_max`, everything is sent. Of an output that grows beyond, three quarters are its head, sent
//! as it is written; the last eighth of each stream is kept for the end; what is between is freed and told as a gap.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::Token;
use protocol::report::{ChunkData, OutputLengths, Stream};
use rustix::fs::FallocateFlags;

use super::stream::StreamState;
use crate::attempt_dir::{AttemptDir, Error, Progress, Replayed};

/// The output files of one attempt.
#[derive(Debug)]
pub(super) struct Files {
    dir: AttemptDir,
    /// Open as long as it runs. What has ended may wait for its server by the hundreds: then each part is read by opening them again.
    open: Mutex<Option<Arc<Pair>>>,
    /// What is on disk of it: parts are freed one after the other, and what is told never goes back.
    recorded: Mutex<Progress>,
}

/// Which part of which file is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes from the stream's `sent` on, at most this many.
    Bytes(usize),
    /// This many bytes are gone.
    Gap(u64),
}

/// How much of an attempt's files is kept and sent.
#[derive(Debug)]
pub(super) struct Limits {
    bytes_max: u64,
    /// Where the heads end, once it is known that not everything will be kept live.
    heads: Option<[u64; 2]>,
    /// From where on the files hold what was read again from the engine's log.
    replayed: [u64; 2],
    /// Up to where they hold nothing instead, because the log had it no longer.
    missing: [u64; 2],
    /// The files are freed up to here.
    freed: [u64; 2],
    /// Their middles are freed from the end of the heads up to here.
    hollow: [u64; 2],
}

/// Parts of an attempt's files that nobody needs any more.
#[derive(Debug)]
pub(super) struct Freeing {
    pub(super) token: Token,
    progress: Progress,
    parts: Vec<(Stream, u64, u64)>,
}

type Pair = [File; 2];

impl Files {
    pub(super) fn open(dir: AttemptDir) -> Result<Self, Error> {
        let open = Mutex::new(Some(Arc::new(readers(&dir)?)));
        let recorded = Mutex::new(dir.progress()?);
        Ok(Self { dir, open, recorded })
    }

    /// Nothing more will be written.
    pub(super) fn close(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn readers(&self) -> std::io::Result<Arc<Pair>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.map_or_else(|| readers(&self.dir).map(Arc::new).map_err(Error::into_io), Ok)
    }

    pub(super) fn dir(&self) -> &AttemptDir {
        &self.dir
    }

    pub(super) fn lengths(&self) -> [u64; 2] {
        let length = |file: &File| file.metadata().map_or(0, |it| it.size());
        self.readers().map_or([0; 2], |it| it.each_ref().map(length))
    }

    /// At most `room` bytes at `offset`; fewer only at the end of the file.
    pub(super) fn read(&self, stream: Stream, offset: u64, room: usize) -> std::io::Result<Vec<u8>> {
        let file = &self.readers()?[stream as usize];
        let mut bytes = vec![0; room];
        let mut length = 0;
        while length < room {
            match file.read_at(&mut bytes[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Gives blocks back to the file system. Where it cannot, they are kept: that costs disk, not output.
    pub(super) fn free(&self, freeing: &Freeing) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = recorded.later(freeing.progress);
        if let Err(error) = self.dir.record_progress(progress) {
            tracing::warn!(attempt = %freeing.token, error = crate::attempt_dir::describe(&error), "output cannot be freed");
            return;
        }
        *recorded = progress;
        let readers = match self.readers() {
            Ok(readers) => readers,
            Err(error) => return tracing::debug!(attempt = %freeing.token, %error, "output is not freed"),
        };
        for &(stream, from, to) in &freeing.parts {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if let Err(error) = rustix::fs::fallocate(&readers[stream as usize], flags, from, to - from) {
                tracing::debug!(attempt = %freeing.token, %error, "the file system frees no parts of files");
            }
        }
    }
}

impl Limits {
    pub(super) fn new(bytes_max: u64, progress: Progress, replayed: Option<Replayed>) -> Self {
        let acknowledged = pair(progress.acknowledged);
        let mut limits = Self {
            bytes_max: if bytes_max == 0 { BYTES_MAX } else { bytes_max },
            heads: progress.hollow.map(|(from, _)| pair(from)),
            replayed: [u64::MAX; 2],
            missing: [0; 2],
            freed: acknowledged.map(|it| it - it % BLOCK_BYTES),
            hollow: progress.hollow.map_or([0; 2], |(_, to)| pair(to)),
        };
        if let Some(replayed) = replayed {
            limits.replaying(replayed);
        }
        limits
    }

    /// From here on the files hold what was read again.
    pub(super) fn replaying(&mut self, replayed: Replayed) {
        let (from, missing) = (pair(replayed.from), pair(replayed.missing));
        self.replayed = from;
        self.missing = [0, 1].map(|stream| from[stream].saturating_add(missing[stream]));
    }

    /// What of a stream may be sent now.
    pub(super) fn part(
        &self,
        streams: &[StreamState; 2],
        stream: Stream,
        ended: bool,
        room: usize,
    ) -> Option<Part> {
        let index = stream as usize;
        let state = &streams[index];
        let head = self.heads.map_or(u64::MAX, |heads| heads[index]);
        let until = if !ended {
            head.min(state.written)
        } else {
            let tail = self.tail(streams, index);
            if state.sent < tail && state.sent >= head {
                return Some(Part::Gap(tail - state.sent));
            }
            if state.sent < tail { head.min(tail) } else { state.written }
        };
        // What was written and what was read again are told apart, so a chunk never holds both.
        let until = if state.sent < self.replayed[index] { until.min(self.replayed[index]) } else { until };
        if state.sent >= self.replayed[index] && state.sent < self.missing[index].min(until) {
            return Some(Part::Gap(self.missing[index].min(until) - state.sent));
        }
        let bytes = usize::try_from(until.saturating_sub(state.sent)).unwrap_or(usize::MAX);
        (bytes > 0).then(|| Part::Bytes(bytes.min(room)))
    }

    /// Wraps what was read at `offset`.
    pub(super) fn label(&self, stream: Stream, offset: u64, bytes: Vec<u8>) -> ChunkData {
        if offset >= self.replayed[stream as usize] {
            ChunkData::Replayed(bytes)
        } else {
            ChunkData::Bytes(bytes)
        }
    }

    /// The files have grown: where their heads end, if that is decided now, and what can be freed in their middles.
    pub(super) fn grown(&mut self, token: Token, streams: &[StreamState; 2]) -> Option<Freeing> {
        let written: u64 = streams.iter().map(|it| it.written).sum();
        let head_bytes = self.bytes_max / 4 * 3;
        if written <= head_bytes {
            return None;
        }
        let heads = *self.heads.get_or_insert_with(|| {
            let left = head_bytes.saturating_sub(streams[0].sent + streams[1].sent);
            let unsent = streams.each_ref().map(|it| it.written - it.sent);
            let stdout = unsent[0].min(left - unsent[1].min(left / 2));
            [streams[0].sent + stdout, streams[1].sent + unsent[1].min(left - stdout)]
        });
        if written <= self.bytes_max {
            return None;
        }
        let mut parts = Vec::new();
        for stream in Stream::ALL {
            let index = stream as usize;
            let from = self.hollow[index].max(heads[index].next_multiple_of(BLOCK_BYTES));
            let to = self.tail(streams, index);
            let to = to - to % BLOCK_BYTES;
            if to >= from + FREE_BYTES_MIN {
                self.hollow[index] = to;
                parts.push((stream, from, to));
            }
        }
        (!parts.is_empty()).then(|| Freeing { token, progress: self.progress(streams), parts })
    }

    /// The server has more: what can be freed at the front.
    pub(super) fn acknowledged(&mut self, token: Token, streams: &[StreamState; 2]) -> Option<Freeing> {
        let mut parts = Vec::new();
        for stream in Stream::ALL {
            let index = stream as usize;
            let to = streams[index].acknowledged - streams[index].acknowledged % BLOCK_BYTES;
            if to >= self.freed[index] + FREE_BYTES_MIN {
                parts.push((stream, self.freed[index], to));
                self.freed[index] = to;
            }
        }
        (!parts.is_empty()).then(|| Freeing { token, progress: self.progress(streams), parts })
    }

    /// Where the part begins that is kept for the end; the start if everything fits.
    fn tail(&self, streams: &[StreamState; 2], index: usize) -> u64 {
        let written: u64 = streams.iter().map(|it| it.written).sum();
        if written <= self.bytes_max { 0 } else { streams[index].written.saturating_sub(self.bytes_max / 8) }
    }

    fn progress(&self, streams: &[StreamState; 2]) -> Progress {
        let pair = |[stdout, stderr]: [u64; 2]| OutputLengths { stdout, stderr };
        Progress {
            acknowledged: pair(streams.each_ref().map(|it| it.acknowledged)),
            hollow: self
                .heads
                .filter(|_| self.hollow != [0; 2])
                .map(|heads| (pair(heads), pair(self.hollow))),
        }
    }
}

fn readers(dir: &AttemptDir) -> Result<Pair, Error> {
    Ok([dir.reader(Stream::Stdout)?, dir.reader(Stream::Stderr)?])
}

fn pair(lengths: OutputLengths) -> [u64; 2] {
    [lengths.stdout, lengths.stderr]
}

/// How much is kept of the output of an attempt whose definition does not say.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Parts are freed in multiples of this, which every usual block size divides.
const BLOCK_BYTES: u64 = 64 * 1024;

/// Less than this is not worth the sync that must come before.
const FREE_BYTES_MIN: u64 = 1024 * 1024;
