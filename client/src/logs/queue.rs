//! Which attempt's output goes into the next frame. Pure: instants come in, frames go out, nothing waits.
//!
//! Attempts with something to send stand in one line, each at most once; whoever could not say everything goes to its end. So a
//! chatty attempt delays a quiet one by at most a frame.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, ChunkData, OutputLengths, Stream};
use protocol::wire::OUTPUT_BYTES_MAX;
use tokio::time::{Duration, Instant};

use super::files::{Files, Freeing, Limits, Part};
use super::stream::StreamState;
use crate::attempt_dir::{Progress, Replayed};

use super::window::Window;
use super::{MEMORY_BYTES_MAX, PATIENCE};

/// The output of all attempts.
#[derive(Debug, Default)]
pub(super) struct Queue {
    attempts: HashMap<Token, Attempt>,
    /// Attempts that may have something to send, in the order of their turns.
    line: VecDeque<Token>,
    /// What was given up, to be said once.
    farewells: VecDeque<Chunk>,
    /// Ended attempts in the order in which their patience ends, which moves on with every acknowledgement: checked when due.
    waiting: VecDeque<(Instant, Token)>,
    /// What was sent in this session and is not acknowledged.
    window: Window,
    /// Bytes held in memory.
    memory: usize,
}

#[derive(Debug, Default)]
struct Attempt {
    streams: [StreamState; 2],
    in_line: bool,
    /// Where the bytes are, if they are in files, and how many of them are sent.
    files: Option<(Arc<Files>, Limits)>,
    /// Set when it has ended: since when nothing was acknowledged.
    quiet_since: Option<Instant>,
}

/// What the session may do next.
#[derive(Debug)]
pub(super) enum Turn {
    /// Send this frame.
    Send(Vec<Chunk>),
    /// Read this first.
    Read(Read),
    /// Give up on these: the server has taken too long.
    GiveUp(Vec<Token>),
    /// Ask again when woken, or at this instant.
    Wait(Option<Instant>),
}

/// What is said next.
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
    part: Part,
    files: Arc<Files>,
}

impl Read {
    /// What is there; nothing if the file has become shorter or cannot be read.
    pub(super) async fn run(&self) -> Option<Vec<u8>> {
        let Part::Bytes(room) = self.part else { return None };
        let read = loop {
            let (files, stream, offset) = (Arc::clone(&self.files), self.stream, self.offset);
            let read = tokio::task::spawn_blocking(move || files.read(stream, offset, room)).await.ok()?;
            // It is all there: what has no room in our table of files now has it later.
            if !read.as_ref().is_err_and(lacks_descriptors) {
                break read;
            }
            tokio::time::sleep(READ_AGAIN).await;
        };
        read.inspect_err(|error| tracing::warn!(attempt = %self.token, %error, "output cannot be read"))
            .ok()
            .filter(|it| !it.is_empty())
    }
}

impl Queue {
    pub(super) fn follow(
        &mut self,
        token: Token,
        files: Arc<Files>,
        limits: Limits,
        progress: Progress,
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
        self.line_up(token);
    }

    pub(super) fn replaying(&mut self, token: Token, replayed: Replayed) {
        if let Some((_, limits)) = self.attempts.get_mut(&token).and_then(|it| it.files.as_mut()) {
            limits.replaying(replayed);
        }
    }

    pub(super) fn grown(&mut self, token: Token, lengths: [u64; 2]) -> Option<Freeing> {
        let attempt = self.attempts.get_mut(&token)?;
        for (state, length) in attempt.streams.iter_mut().zip(lengths) {
            state.written = state.written.max(length);
        }
        let (_, limits) = attempt.files.as_mut()?;
        let freeing = limits.grown(token, &attempt.streams);
        self.line_up(token);
        freeing
    }

    /// What was read of a file is what comes next: nothing if it no longer is, because of a new session or an end.
    pub(super) fn sent(&mut self, read: &Read, found: Option<Vec<u8>>) -> Option<Chunk> {
        let attempt = self.attempts.get_mut(&read.token)?;
        let (_, limits) = attempt.files.as_ref()?;
        let state = &mut attempt.streams[index(read.stream)];
        if state.sent != read.offset {
            return None;
        }
        let data = match (read.part, found) {
            (Part::Gap(bytes), _) => ChunkData::Gap(bytes),
            (Part::Bytes(_), Some(bytes)) => limits.label(read.stream, read.offset, bytes),
            (Part::Bytes(bytes), None) => ChunkData::Gap(bytes as u64),
        };
        let chunk = Chunk { token: read.token, stream: read.stream, offset: read.offset, data };
        state.sent = chunk.end();
        self.window.sent(&chunk);
        self.line.rotate_left(1);
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
        self.line_up(token);
    }

    /// Gives the token back if nothing of it is left to be acknowledged.
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
            // What this could free goes with the directory, soon.
            let _ = limits.grown(token, &attempt.streams);
        }
        attempt.quiet_since = Some(now);
        self.waiting.push_back((now + PATIENCE, token));
        self.line_up(token);
        self.leave_if_done(token)
    }

    /// Drops an attempt; what was not sent of it becomes a gap. Gives the token back if it was known.
    pub(super) fn abandon(&mut self, token: Token) -> Option<Token> {
        let attempt = self.remove(token)?;
        for (stream, state) in Stream::ALL.into_iter().zip(&attempt.streams) {
            let bytes = state.written - state.sent;
            if bytes > 0 {
                self.farewells.push_back(Chunk {
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
        self.line.clear();
        for (token, attempt) in &mut self.attempts {
            for state in &mut attempt.streams {
                state.sent = state.acknowledged;
            }
            attempt.in_line = true;
            attempt.quiet_since = attempt.quiet_since.map(|_| now);
            self.line.push_back(*token);
        }
    }

    pub(super) fn turn(&mut self, now: Instant) -> Turn {
        let overdue = self.overdue(now);
        if !overdue.is_empty() {
            return Turn::GiveUp(overdue);
        }
        let mut chunks = Vec::new();
        let mut frame = OUTPUT_BYTES_MAX;
        loop {
            let room = frame.min(self.window.room());
            if room == 0 {
                break;
            }
            let chunk = match self.farewells.pop_front().map(Next::Chunk).or_else(|| self.next(room)) {
                Some(Next::Chunk(chunk)) => chunk,
                Some(Next::Read(read)) if chunks.is_empty() => return Turn::Read(read),
                // It comes with the next frame: what is in memory need not wait for the disk.
                Some(Next::Read(_)) | None => break,
            };
            frame = frame.saturating_sub(chunk.data.bytes_len() + BESIDE_BYTES);
            self.window.sent(&chunk);
            chunks.push(chunk);
        }
        if chunks.is_empty() {
            Turn::Wait(self.waiting.front().map(|(at, _)| *at))
        } else {
            Turn::Send(chunks)
        }
    }

    /// Gives the token back if that was all of it, and what can be freed otherwise.
    pub(super) fn acknowledge(
        &mut self,
        mark: &OutputMark,
        now: Instant,
    ) -> (Option<Token>, Option<(Arc<Files>, Freeing)>) {
        self.window.acknowledge(mark);
        let Some(attempt) = self.attempts.get_mut(&mark.token) else { return (None, None) };
        self.memory -= attempt.streams[index(mark.stream)].acknowledge(mark.offset);
        attempt.quiet_since = attempt.quiet_since.map(|_| now);
        let freeing = attempt.files.as_mut().and_then(|(files, limits)| {
            limits.acknowledged(mark.token, &attempt.streams).map(|it| (Arc::clone(files), it))
        });
        match self.leave_if_done(mark.token) {
            Some(token) => (Some(token), None),
            None => (None, freeing),
        }
    }

    fn line_up(&mut self, token: Token) {
        if let Some(attempt) = self.attempts.get_mut(&token)
            && !attempt.in_line
        {
            attempt.in_line = true;
            self.line.push_back(token);
        }
    }

    /// What the first in the line has to say. A chunk from memory counts as said; of a file only the place is given.
    fn next(&mut self, room: usize) -> Option<Next> {
        while let Some(&token) = self.line.front() {
            let Some(attempt) = self.attempts.get_mut(&token) else {
                self.line.pop_front();
                continue;
            };
            let next = match &attempt.files {
                Some((files, limits)) => Self::next_read(token, attempt, files, limits, room).map(Next::Read),
                None => Self::next_chunk(token, &mut attempt.streams, room).map(Next::Chunk),
            };
            match next {
                Some(Next::Chunk(chunk)) => {
                    self.line.rotate_left(1);
                    return Some(Next::Chunk(chunk));
                }
                Some(read) => return Some(read),
                None => {
                    attempt.in_line = false;
                    self.line.pop_front();
                }
            }
        }
        None
    }

    fn next_read(
        token: Token,
        attempt: &Attempt,
        files: &Arc<Files>,
        limits: &Limits,
        room: usize,
    ) -> Option<Read> {
        let ended = attempt.quiet_since.is_some();
        Stream::ALL.into_iter().find_map(|stream| {
            let part = limits.part(&attempt.streams, stream, ended, room)?;
            let offset = attempt.streams[index(stream)].sent;
            Some(Read { token, stream, offset, part, files: Arc::clone(files) })
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

    fn leave_if_done(&mut self, token: Token) -> Option<Token> {
        let attempt = self.attempts.get(&token)?;
        let done =
            attempt.quiet_since.is_some() && attempt.streams.iter().all(|it| it.acknowledged >= it.written);
        done.then(|| self.remove(token)).flatten().map(|_| token)
    }

    fn remove(&mut self, token: Token) -> Option<Attempt> {
        let attempt = self.attempts.remove(&token)?;
        for state in &attempt.streams {
            self.memory -= state.kept();
        }
        Some(attempt)
    }

    /// Those whose patience has ended; the others' turn to be looked at moves on.
    fn overdue(&mut self, now: Instant) -> Vec<Token> {
        let mut overdue = Vec::new();
        while let Some((_, token)) = self.waiting.front().filter(|(at, _)| *at <= now) {
            let token = *token;
            self.waiting.pop_front();
            match self.attempts.get(&token).and_then(|attempt| attempt.quiet_since) {
                Some(since) if since + PATIENCE <= now => overdue.push(token),
                Some(_) => self.waiting.push_back((now + PATIENCE, token)),
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

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Before a file is opened again for which there was no descriptor.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// What a chunk takes on the wire beside its bytes, at most: token, stream, offset, tags.
const BESIDE_BYTES: usize = 48;
