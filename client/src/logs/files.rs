//! Output in files: which part may be sent, read or freed. Arithmetic on offsets and a few system calls.
//!
//! ```text
//! 0        acknowledged        sent      head         tail        written
//! |  freed  |  unacknowledged   |  to send |  freed    |  sent at   |
//! |         |                   |          |  a gap    |  the end   |
//! ```
//! If everything fits into `bytes_max`, everything is sent. Of a larger output the first three quarters are sent as they are written, and
//! the last eighth of each stream is kept for the end. The part between them is freed and reported as a gap.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::Token;
use protocol::report::{ChunkData, OutputLengths, Stream, head_bytes, tail_bytes};
use rustix::fs::FallocateFlags;

use super::mask::{Mask, OutputPart};
use super::stream::StreamState;
use crate::attempt_dir::{AttemptDir, Error, OutputProgress, ReplayRange};

/// The output files of one attempt.
#[derive(Debug)]
pub(super) struct AttemptFiles {
    dir: AttemptDir,
    /// Open while the attempt runs. Ended attempts may wait for the server by the hundreds, so their files are opened for each read.
    open_files: Mutex<Option<Arc<StreamFiles>>>,
    masking: Masking,
    /// The progress on disk. Parts are freed one after the other, and recorded offsets never decrease.
    recorded_progress: Mutex<OutputProgress>,
}

/// Treatment of secrets and patterns in an output.
#[derive(Debug)]
enum Masking {
    /// Nothing is to be masked.
    Off,
    On(Mask),
    /// Values are gone, or a pattern cannot be used: nothing of its output can be sent any more.
    Lost,
}

/// The next part of a file to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePart {
    /// Bytes from the stream's `sent` on, at most this many.
    Bytes(usize),
    /// This many bytes no longer exist.
    Gap(u64),
}

/// The limits of what is kept and sent of an attempt's files. Pairs are of stdout and stderr.
#[derive(Debug)]
pub(super) struct KeepLimits {
    bytes_max: u64,
    /// Ends of the parts that are sent live, once the output is known to exceed its limit.
    head_ends: Option<[u64; 2]>,
    /// Offsets from which the files hold bytes of the engine's log.
    replayed_from: [u64; 2],
    /// Ends of the parts that the engine's log no longer had.
    missing_until: [u64; 2],
    /// The files are freed up to these offsets.
    freed_until: [u64; 2],
    /// The parts between heads and tails are freed from the ends of the heads up to these offsets.
    middle_freed: [u64; 2],
    /// Bytes before and after each part that stay readable: secrets and lines that reach into the part can be found, and masked, only with
    /// them.
    mask_context: u64,
}

/// Parts of an attempt's files that can be freed.
#[derive(Debug)]
pub(super) struct FreeRequest {
    pub(super) token: Token,
    progress: OutputProgress,
    parts: Vec<(Stream, u64, u64)>,
}

impl FreeRequest {
    /// The parts that the server has. The others are sent as a gap once that is recorded.
    fn acknowledged_parts(&self) -> impl Iterator<Item = &(Stream, u64, u64)> {
        let OutputLengths { stdout, stderr } = self.progress.acknowledged;
        self.parts.iter().filter(move |(stream, _, to)| *to <= [stdout, stderr][*stream as usize])
    }
}

/// Stdout and stderr.
type StreamFiles = [File; 2];

impl AttemptFiles {
    /// `patterns` are those of the definition, whose matches are masked.
    pub(super) fn open(dir: AttemptDir, patterns: &[String]) -> Result<Self, Error> {
        let open_files = Mutex::new(Some(Arc::new(readers(&dir)?)));
        let recorded_progress = Mutex::new(dir.progress()?);
        let masking = Masking::of(&dir, patterns)?;
        Ok(Self { dir, open_files, masking, recorded_progress })
    }

    /// Closes the files: nothing more will be written.
    pub(super) fn close(&self) {
        self.open_files.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn readers(&self) -> std::io::Result<Arc<StreamFiles>> {
        let open = self.open_files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.map_or_else(|| readers(&self.dir).map(Arc::new).map_err(Error::into_io), Ok)
    }

    pub(super) fn dir(&self) -> &AttemptDir {
        &self.dir
    }

    pub(super) fn lengths(&self) -> [u64; 2] {
        let length = |file: &File| file.metadata().map_or(0, |it| it.size());
        self.readers().map_or([0; 2], |it| it.each_ref().map(length))
    }

    /// Number of bytes before and after a part of the output that decide how it is masked.
    pub(super) fn context_bytes(&self) -> u64 {
        if let Masking::On(mask) = &self.masking { mask.context_bytes() as u64 } else { 0 }
    }

    /// Reads at most `room` bytes at `offset`, masked; fewer only at the end of the file, or before what may have to be masked.
    /// `is_complete` if nothing more will be written.
    pub(super) fn read_masked(
        &self,
        stream: Stream,
        offset: u64,
        room: usize,
        is_complete: bool,
    ) -> std::io::Result<OutputPart> {
        match &self.masking {
            Masking::Off => self.read(stream, offset, room).map(OutputPart::Bytes),
            Masking::On(mask) => {
                mask.read(offset, room, is_complete, |offset, room| self.read(stream, offset, room))
            }
            Masking::Lost => Ok(OutputPart::Bytes(Vec::new())),
        }
    }

    /// Reads at most `room` bytes at `offset`; fewer only at the end of the file.
    fn read(&self, stream: Stream, offset: u64, room: usize) -> std::io::Result<Vec<u8>> {
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

    /// Frees blocks. If the file system cannot, they stay: that costs disk space, not output.
    pub(super) fn free(&self, freeing: &FreeRequest) {
        let mut recorded = self.recorded_progress.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = recorded.later(freeing.progress);
        let result = self.dir.record_progress(progress).or_else(|error| {
            if !error.is_for_lack_of_space() {
                return Err(error);
            }
            // Only this makes room. A worker that dies before it has recorded it sends zeros for bytes that the server has, which drops them.
            self.punch_holes(freeing.acknowledged_parts());
            self.dir.record_progress(progress)
        });
        if let Err(error) = result {
            tracing::warn!(attempt = %freeing.token, error = crate::error_chain::error_chain(&error), "cannot record the freed part of an output; nothing is freed");
            return;
        }
        *recorded = progress;
        self.punch_holes(freeing.parts.iter());
    }

    fn punch_holes<'p>(&self, parts: impl Iterator<Item = &'p (Stream, u64, u64)>) {
        let readers = match self.readers() {
            Ok(readers) => readers,
            Err(error) => {
                let attempt = self.dir.path().display();
                return tracing::debug!(%attempt, %error, "cannot open the output files; nothing is freed");
            }
        };
        for &(stream, from, to) in parts {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if let Err(error) = rustix::fs::fallocate(&readers[stream as usize], flags, from, to - from) {
                let attempt = self.dir.path().display();
                tracing::debug!(%attempt, %error, "the file system cannot free parts of files");
            }
        }
    }
}

impl Masking {
    fn of(dir: &AttemptDir, patterns: &[String]) -> Result<Self, Error> {
        let values = match dir.secrets()? {
            Some(path) => match crate::secrets::read(&path) {
                Ok(values) => values.masked,
                // Such as too many open files: the next try may succeed.
                Err(cause)
                    if !matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) =>
                {
                    return Err(Error::Io { path, source: cause });
                }
                Err(error) => {
                    tracing::error!(attempt = %dir.path().display(), path = %path.display(), %error, "the secrets of this attempt are gone, so its output cannot be masked; the part that was not sent yet is withheld");
                    return Ok(Self::Lost);
                }
            },
            // Without the values nothing can be masked.
            None if dir.has_secrets() => return Ok(Self::Lost),
            None => Vec::new(),
        };
        match Mask::new(values.iter().map(|value| value.0.as_slice()), patterns) {
            Ok(mask) => Ok(mask.map_or(Self::Off, Self::On)),
            Err(pattern) => {
                tracing::error!(attempt = %dir.path().display(), %pattern, "this worker cannot use a pattern of log.mask, so the output of this attempt is withheld; use the same version of Longshore as the server");
                Ok(Self::Lost)
            }
        }
    }
}

impl KeepLimits {
    pub(super) fn new(bytes_max: u64, progress: OutputProgress, replayed: Option<ReplayRange>) -> Self {
        let acknowledged = per_stream(progress.acknowledged);
        let mut limits = Self {
            bytes_max: if bytes_max == 0 { BYTES_MAX } else { bytes_max },
            head_ends: progress.hollow.map(|(from, _)| per_stream(from)),
            replayed_from: [u64::MAX; 2],
            missing_until: [0; 2],
            freed_until: acknowledged.map(|it| it - it % BLOCK_BYTES),
            middle_freed: progress.hollow.map_or([0; 2], |(_, to)| per_stream(to)),
            mask_context: 0,
        };
        if let Some(replayed) = replayed {
            limits.set_replayed(replayed);
        }
        limits
    }

    /// Keeps this many bytes before and after each part that is sent.
    pub(super) fn with_mask_context(self, mask_context: u64) -> Self {
        Self { mask_context, ..self }
    }

    /// Marks the offsets from which the files hold bytes of the engine's log.
    pub(super) fn set_replayed(&mut self, replayed: ReplayRange) {
        let (from, missing) = (per_stream(replayed.from), per_stream(replayed.missing));
        self.replayed_from = from;
        self.missing_until = [0, 1].map(|stream| from[stream].saturating_add(missing[stream]));
    }

    /// The next part of a stream that may be sent now, at most `room` bytes.
    pub(super) fn next_part(
        &self,
        streams: &[StreamState; 2],
        stream: Stream,
        ended: bool,
        room: usize,
    ) -> Option<FilePart> {
        let index = stream as usize;
        let state = &streams[index];
        let head_end = self.head_ends.map_or(u64::MAX, |head_ends| head_ends[index]);
        let until = if !ended {
            head_end.min(state.written)
        } else {
            let tail_start = self.tail_start(streams, index);
            if state.sent < tail_start && state.sent >= head_end {
                return Some(FilePart::Gap(tail_start - state.sent));
            }
            if state.sent < tail_start { head_end.min(tail_start) } else { state.written }
        };
        // A chunk never holds both original bytes and replayed ones.
        let until =
            if state.sent < self.replayed_from[index] { until.min(self.replayed_from[index]) } else { until };
        if state.sent >= self.replayed_from[index] && state.sent < self.missing_until[index].min(until) {
            return Some(FilePart::Gap(self.missing_until[index].min(until) - state.sent));
        }
        let bytes = usize::try_from(until.saturating_sub(state.sent)).unwrap_or(usize::MAX);
        (bytes > 0).then(|| FilePart::Bytes(bytes.min(room)))
    }

    /// The chunk's data of bytes that were read at `offset`: written by the container, or taken from the engine's log.
    pub(super) fn chunk_data(&self, stream: Stream, offset: u64, bytes: Vec<u8>) -> ChunkData {
        if offset >= self.replayed_from[stream as usize] {
            ChunkData::Replayed(bytes)
        } else {
            ChunkData::Bytes(bytes)
        }
    }

    /// Takes the new lengths of the files. Fixes the ends of the heads when the limit is near, and returns the part that can be freed.
    pub(super) fn record_growth(&mut self, token: Token, streams: &[StreamState; 2]) -> Option<FreeRequest> {
        let written: u64 = streams.iter().map(|it| it.written).sum();
        let head_bytes = head_bytes(self.bytes_max);
        if written <= head_bytes {
            return None;
        }
        let head_ends = *self.head_ends.get_or_insert_with(|| {
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
            let from = self.middle_freed[index]
                .max((head_ends[index] + self.mask_context).next_multiple_of(BLOCK_BYTES));
            let to = self.tail_start(streams, index).saturating_sub(self.mask_context);
            let to = to - to % BLOCK_BYTES;
            if to >= from + FREE_BYTES_MIN {
                self.middle_freed[index] = to;
                parts.push((stream, from, to));
            }
        }
        (!parts.is_empty()).then(|| FreeRequest { token, progress: self.progress(streams), parts })
    }

    /// Takes an acknowledgement, and returns the acknowledged part that can be freed.
    pub(super) fn record_acknowledgement(
        &mut self,
        token: Token,
        streams: &[StreamState; 2],
    ) -> Option<FreeRequest> {
        let mut parts = Vec::new();
        for stream in Stream::ALL {
            let index = stream as usize;
            let to = streams[index].acknowledged.saturating_sub(self.mask_context);
            let to = to - to % BLOCK_BYTES;
            if to >= self.freed_until[index] + FREE_BYTES_MIN {
                parts.push((stream, self.freed_until[index], to));
                self.freed_until[index] = to;
            }
        }
        (!parts.is_empty()).then(|| FreeRequest { token, progress: self.progress(streams), parts })
    }

    /// Offset of the part that is kept for the end; zero if everything fits.
    fn tail_start(&self, streams: &[StreamState; 2], index: usize) -> u64 {
        let written: u64 = streams.iter().map(|it| it.written).sum();
        if written <= self.bytes_max {
            0
        } else {
            streams[index].written.saturating_sub(tail_bytes(self.bytes_max))
        }
    }

    fn progress(&self, streams: &[StreamState; 2]) -> OutputProgress {
        let lengths = |[stdout, stderr]: [u64; 2]| OutputLengths { stdout, stderr };
        OutputProgress {
            acknowledged: lengths(streams.each_ref().map(|it| it.acknowledged)),
            hollow: self
                .head_ends
                .filter(|_| self.middle_freed != [0; 2])
                .map(|head_ends| (lengths(head_ends), lengths(self.middle_freed))),
        }
    }
}

fn readers(dir: &AttemptDir) -> Result<StreamFiles, Error> {
    Ok([dir.reader(Stream::Stdout)?, dir.reader(Stream::Stderr)?])
}

/// Stdout and stderr, by the number of their stream.
fn per_stream(lengths: OutputLengths) -> [u64; 2] {
    [lengths.stdout, lengths.stderr]
}

/// Default limit for the output of an attempt.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Parts are freed in multiples of this; every usual block size divides it.
const BLOCK_BYTES: u64 = 64 * 1024;

/// Freeing less than this is not worth the sync before it.
const FREE_BYTES_MIN: u64 = 1024 * 1024;
