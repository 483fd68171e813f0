//! The order in which the output of all attempts is sent. The queue does no I/O and waits for nothing; only
//! [`Read::run`] reads a file.
//!
//! Attempts with something to send stand in one queue, each at most once. After a chunk an attempt goes to the end of the queue, so a busy
//! attempt delays a quiet one by at most a frame.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, ChunkData, OutputLengths, Stream};
use protocol::wire::OUTPUT_BYTES_MAX;
use tokio::time::{Duration, Instant};

use super::files::{AttemptFiles, FilePart, FreeRequest, KeepLimits};
use super::mask::OutputPart;
use super::stream::{StreamState, index};
use crate::attempt_dir::{OutputProgress, ReplayRange};

use super::window::Window;

/// Limit for pushed bytes that wait in memory, of all attempts together. Further bytes are dropped and marked as a gap.
pub const MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Time that an ended attempt waits, while connected, for an acknowledgement of its output before the rest is given up.
pub const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(600);

/// The output of all attempts.
#[derive(Debug, Default)]
pub(super) struct Queue {
    attempts: HashMap<Token, Attempt>,
    /// Attempts that may have something to send, in order.
    ready: VecDeque<Token>,
    /// Gaps of given up attempts that still have to be sent once.
    final_gaps: VecDeque<Chunk>,
    /// Ended attempts by the time at which their output is given up. An acknowledgement moves that time, so each entry is checked when due.
    waiting: BTreeSet<(Instant, Token)>,
    /// Chunks that were sent in this session and are not acknowledged.
    window: Window,
    /// Bytes held in memory.
    memory: usize,
}

#[derive(Debug, Default)]
struct Attempt {
    streams: [StreamState; 2],
    is_ready: bool,
    /// The files that hold the bytes, and the limits for them; `None` for output in memory.
    files: Option<(Arc<AttemptFiles>, KeepLimits)>,
    /// Lengths of the files whose last bytes may be the beginning of a secret; the rest is read again once the file is longer.
    held: [Option<u64>; 2],
    /// For an ended attempt: the time of its end, or of the last acknowledgement since.
    quiet_since: Option<Instant>,
}

/// The next action of the session.
#[derive(Debug)]
pub(super) enum NextAction {
    /// Send these chunks as one frame.
    Send(Vec<Chunk>),
    /// Read this part of a file first.
    Read(Read),
    /// Give up these attempts: the server has taken too long.
    GiveUp(Vec<Token>),
    /// Ask again when woken, or at this instant.
    Wait(Option<Instant>),
}

/// The next item to send.
enum Next {
    Chunk(Chunk),
    Read(Read),
}

/// A part of a file that is sent next.
#[derive(Debug)]
pub(super) struct Read {
    token: Token,
    stream: Stream,
    offset: u64,
    part: FilePart,
    /// Length of the stream when this was decided.
    written: u64,
    /// Nothing more will be written.
    is_complete: bool,
    files: Arc<AttemptFiles>,
}

impl Read {
    /// Reads the part; `None` if the file has become shorter or cannot be read.
    pub(super) async fn run(&self) -> Option<OutputPart> {
        let FilePart::Bytes(room) = self.part else { return None };
        let read = loop {
            let (files, stream, offset) = (Arc::clone(&self.files), self.stream, self.offset);
            let is_complete = self.is_complete;
            let read =
                tokio::task::spawn_blocking(move || files.read_masked(stream, offset, room, is_complete));
            let read = read.await.ok()?;
            // The bytes are there, but the process has no free descriptor: try again later.
            if !read.as_ref().is_err_and(lacks_descriptors) {
                break read;
            }
            tokio::time::sleep(READ_AGAIN).await;
        };
        read.inspect_err(|error| tracing::warn!(attempt = %self.token, %error, "cannot read an output file; its bytes become a gap"))
            .ok()
            .filter(|it| *it != OutputPart::Bytes(Vec::new()))
    }
}

impl Queue {
    pub(super) fn follow(
        &mut self,
        token: Token,
        files: Arc<AttemptFiles>,
        limits: KeepLimits,
        progress: OutputProgress,
        lengths: [u64; 2],
    ) {
        let OutputLengths { stdout, stderr } = progress.acknowledged;
        let attempt = Attempt {
            streams: [StreamState::in_file(stdout, lengths[0]), StreamState::in_file(stderr, lengths[1])],
            files: Some((files, limits)),
            ..Attempt::default()
        };
        self.remove(token);
        self.attempts.insert(token, attempt);
        self.mark_ready(token);
    }

    pub(super) fn set_replayed(&mut self, token: Token, replayed: ReplayRange) {
        if let Some((_, limits)) = self.attempts.get_mut(&token).and_then(|it| it.files.as_mut()) {
            limits.set_replayed(replayed);
        }
    }

    pub(super) fn record_growth(&mut self, token: Token, lengths: [u64; 2]) -> Option<FreeRequest> {
        let attempt = self.attempts.get_mut(&token)?;
        for (state, length) in attempt.streams.iter_mut().zip(lengths) {
            state.written = state.written.max(length);
        }
        let (_, limits) = attempt.files.as_mut()?;
        let freeing = limits.record_growth(token, &attempt.streams);
        self.mark_ready(token);
        freeing
    }

    /// Turns bytes that were read into the next chunk; `None` if a new session or an end has moved the offset meanwhile.
    pub(super) fn sent(&mut self, read: &Read, found: Option<OutputPart>) -> Option<Chunk> {
        let attempt = self.attempts.get_mut(&read.token)?;
        let (_, limits) = attempt.files.as_ref()?;
        let state = &mut attempt.streams[index(read.stream)];
        if state.sent != read.offset {
            return None;
        }
        let data = match (read.part, found) {
            (FilePart::Gap(bytes), _) => ChunkData::Gap(bytes),
            (FilePart::Bytes(_), Some(OutputPart::Undecided)) => {
                attempt.held[index(read.stream)] = Some(read.written);
                return None;
            }
            (FilePart::Bytes(_), Some(OutputPart::Bytes(bytes))) => {
                limits.chunk_data(read.stream, read.offset, bytes)
            }
            (FilePart::Bytes(bytes), None) => ChunkData::Gap(bytes as u64),
        };
        let chunk = Chunk { token: read.token, stream: read.stream, offset: read.offset, data };
        state.sent = chunk.end();
        self.window.sent(&chunk);
        self.ready.rotate_left(1);
        Some(chunk)
    }

    pub(super) fn push(&mut self, token: Token, stream: Stream, bytes: &[u8]) {
        let full = self.memory + bytes.len() > MEMORY_BYTES_MAX;
        let state = &mut self.attempts.entry(token).or_default().streams[index(stream)];
        if full {
            state.give_up(bytes.len() as u64);
        } else {
            state.push(bytes);
            self.memory += bytes.len();
        }
        self.mark_ready(token);
    }

    /// Marks the attempt as ended. Returns its token if nothing is left to be acknowledged.
    pub(super) fn finish(&mut self, token: Token, lengths: OutputLengths, now: Instant) -> Option<Token> {
        let attempt = self.attempts.entry(token).or_default();
        for (state, length) in attempt.streams.iter_mut().zip([lengths.stdout, lengths.stderr]) {
            if attempt.files.is_some() {
                state.written = state.written.max(length);
            } else {
                state.give_up(length.saturating_sub(state.written));
            }
        }
        if let Some((files, limits)) = &mut attempt.files {
            files.close();
            // The directory is removed soon, so this part need not be freed.
            let _ = limits.record_growth(token, &attempt.streams);
        }
        attempt.quiet_since = Some(now);
        self.waiting.insert((now + ACKNOWLEDGE_TIMEOUT, token));
        self.mark_ready(token);
        self.remove_if_done(token)
    }

    /// Drops an attempt; its unsent output becomes a gap. Returns the token if the attempt was known.
    pub(super) fn give_up(&mut self, token: Token) -> Option<Token> {
        let attempt = self.remove(token)?;
        for (stream, state) in Stream::ALL.into_iter().zip(&attempt.streams) {
            let bytes = state.written - state.sent;
            if bytes > 0 {
                self.final_gaps.push_back(Chunk {
                    token,
                    stream,
                    offset: state.sent,
                    data: ChunkData::Gap(bytes),
                });
            }
        }
        Some(token)
    }

    pub(super) fn reconnected(&mut self, now: Instant) {
        self.window = Window::default();
        self.ready.clear();
        for (token, attempt) in &mut self.attempts {
            for state in &mut attempt.streams {
                state.sent = state.acknowledged;
            }
            // The bytes that are held back come after others that are sent again now.
            attempt.held = [None; 2];
            attempt.is_ready = true;
            attempt.quiet_since = attempt.quiet_since.map(|_| now);
            self.ready.push_back(*token);
        }
    }

    pub(super) fn next_action(&mut self, now: Instant) -> NextAction {
        let overdue = self.overdue(now);
        if !overdue.is_empty() {
            return NextAction::GiveUp(overdue);
        }
        let mut chunks = Vec::new();
        let mut frame = OUTPUT_BYTES_MAX;
        loop {
            let room = frame.min(self.window.room());
            if room == 0 {
                break;
            }
            let chunk = match self.final_gaps.pop_front().map(Next::Chunk).or_else(|| self.next(room)) {
                Some(Next::Chunk(chunk)) => chunk,
                Some(Next::Read(read)) if chunks.is_empty() => return NextAction::Read(read),
                // It comes with the next frame: bytes in memory need not wait for the disk.
                Some(Next::Read(_)) | None => break,
            };
            frame = frame.saturating_sub(chunk.data.bytes_len() + CHUNK_OVERHEAD_BYTES);
            self.window.sent(&chunk);
            chunks.push(chunk);
        }
        if chunks.is_empty() {
            NextAction::Wait(self.waiting.first().map(|(at, _)| *at))
        } else {
            NextAction::Send(chunks)
        }
    }

    /// Takes an acknowledgement. Returns the token if the output is complete, else the part that can be freed.
    pub(super) fn acknowledge(
        &mut self,
        mark: &OutputMark,
        now: Instant,
    ) -> (Option<Token>, Option<(Arc<AttemptFiles>, FreeRequest)>) {
        self.window.acknowledge(mark);
        let Some(attempt) = self.attempts.get_mut(&mark.token) else { return (None, None) };
        self.memory -= attempt.streams[index(mark.stream)].acknowledge(mark.offset);
        attempt.quiet_since = attempt.quiet_since.map(|_| now);
        let freeing = attempt.files.as_mut().and_then(|(files, limits)| {
            limits.record_acknowledgement(mark.token, &attempt.streams).map(|it| (Arc::clone(files), it))
        });
        match self.remove_if_done(mark.token) {
            Some(token) => (Some(token), None),
            None => (None, freeing),
        }
    }

    fn mark_ready(&mut self, token: Token) {
        if let Some(attempt) = self.attempts.get_mut(&token)
            && !attempt.is_ready
        {
            attempt.is_ready = true;
            self.ready.push_back(token);
        }
    }

    /// The next item of the first attempt. A chunk from memory counts as sent; for a file only its offset is returned.
    fn next(&mut self, room: usize) -> Option<Next> {
        while let Some(&token) = self.ready.front() {
            let Some(attempt) = self.attempts.get_mut(&token) else {
                self.ready.pop_front();
                continue;
            };
            let next = match &attempt.files {
                Some((files, limits)) => Self::next_read(token, attempt, files, limits, room).map(Next::Read),
                None => Self::next_chunk(token, &mut attempt.streams, room).map(Next::Chunk),
            };
            match next {
                Some(Next::Chunk(chunk)) => {
                    self.ready.rotate_left(1);
                    return Some(Next::Chunk(chunk));
                }
                Some(read) => return Some(read),
                None => {
                    attempt.is_ready = false;
                    self.ready.pop_front();
                }
            }
        }
        None
    }

    fn next_read(
        token: Token,
        attempt: &Attempt,
        files: &Arc<AttemptFiles>,
        limits: &KeepLimits,
        room: usize,
    ) -> Option<Read> {
        let ended = attempt.quiet_since.is_some();
        Stream::ALL.into_iter().find_map(|stream| {
            let StreamState { sent: offset, written, .. } = attempt.streams[index(stream)];
            if !ended && attempt.held[index(stream)] == Some(written) {
                return None;
            }
            let part = limits.next_part(&attempt.streams, stream, ended, room)?;
            let files = Arc::clone(files);
            Some(Read { token, stream, offset, part, written, is_complete: ended, files })
        })
    }

    fn next_chunk(token: Token, streams: &mut [StreamState; 2], room: usize) -> Option<Chunk> {
        Stream::ALL.into_iter().zip(streams).find_map(|(stream, state)| {
            let data = state.pending(room)?;
            let chunk = Chunk { token, stream, offset: state.sent, data };
            state.sent = chunk.end();
            Some(chunk)
        })
    }

    fn remove_if_done(&mut self, token: Token) -> Option<Token> {
        let attempt = self.attempts.get(&token)?;
        let done =
            attempt.quiet_since.is_some() && attempt.streams.iter().all(|it| it.acknowledged >= it.written);
        done.then(|| self.remove(token)).flatten().map(|_| token)
    }

    /// True if the end of a stream of this attempt waits for more bytes.
    #[cfg(test)]
    pub(super) fn holds_back(&self, token: Token) -> bool {
        self.attempts.get(&token).is_some_and(|attempt| attempt.held.iter().any(Option::is_some))
    }

    fn remove(&mut self, token: Token) -> Option<Attempt> {
        let attempt = self.attempts.remove(&token)?;
        for state in &attempt.streams {
            self.memory -= state.kept();
        }
        Some(attempt)
    }

    /// Attempts that have waited too long. The others are queued for a later check.
    fn overdue(&mut self, now: Instant) -> Vec<Token> {
        let mut overdue = Vec::new();
        while let Some(&(at, token)) = self.waiting.first().filter(|(at, _)| *at <= now) {
            self.waiting.remove(&(at, token));
            match self.attempts.get(&token).and_then(|attempt| attempt.quiet_since) {
                Some(since) if since + ACKNOWLEDGE_TIMEOUT <= now => overdue.push(token),
                Some(since) => drop(self.waiting.insert((since + ACKNOWLEDGE_TIMEOUT, token))),
                None => {}
            }
        }
        overdue
    }
}

fn lacks_descriptors(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|it| matches!(it, Errno::MFILE | Errno::NFILE))
}

/// Wait before a file is opened again for lack of descriptors.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Largest size of a chunk on the wire beside its bytes: token, stream, offset, tags.
const CHUNK_OVERHEAD_BYTES: usize = 48;
