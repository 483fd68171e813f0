//! Which attempt's output goes into the next frame. Pure: instants come in, frames go out, nothing waits.
//!
//! Attempts with something to send stand in one line, each at most once; whoever could not say everything goes to its end. So a
//! chatty attempt delays a quiet one by at most a frame.

use std::collections::{HashMap, VecDeque};

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, ChunkData, OutputLengths, Stream};
use tokio::time::Instant;

use super::stream::StreamState;
use super::{FRAME_BYTES_MAX, MEMORY_BYTES_MAX, PATIENCE, UNACKNOWLEDGED_BYTES_MAX};

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
    /// Bytes sent in this session and not acknowledged.
    in_flight: usize,
    /// Bytes held in memory.
    memory: usize,
}

#[derive(Debug, Default)]
struct Attempt {
    streams: [StreamState; 2],
    in_line: bool,
    /// Set when it has ended: since when nothing was acknowledged.
    quiet_since: Option<Instant>,
}

/// What the session may do next.
#[derive(Debug)]
pub(super) enum Turn {
    /// Send this frame.
    Send(Vec<Chunk>),
    /// Give up on these: the server has taken too long.
    GiveUp(Vec<Token>),
    /// Ask again when woken, or at this instant.
    Wait(Option<Instant>),
}

impl Queue {
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
            state.give_up(length.saturating_sub(state.written));
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
        self.in_flight = 0;
        self.line.clear();
        for (token, attempt) in &mut self.attempts {
            for state in &mut attempt.streams {
                state.sent = state.acknowledged;
                state.in_flight = 0;
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
        let window = UNACKNOWLEDGED_BYTES_MAX.saturating_sub(self.in_flight);
        let mut room = FRAME_BYTES_MAX.min(window);
        while room > 0 {
            let Some(chunk) = self.farewells.pop_front().or_else(|| self.next_chunk(room)) else {
                break;
            };
            room = room.saturating_sub(payload(&chunk) + CHUNK_OVERHEAD_BYTES);
            chunks.push(chunk);
        }
        if chunks.is_empty() {
            Turn::Wait(self.waiting.front().map(|(at, _)| *at))
        } else {
            Turn::Send(chunks)
        }
    }

    /// Gives the token back if that was all of it.
    pub(super) fn acknowledge(&mut self, mark: &OutputMark, now: Instant) -> Option<Token> {
        let attempt = self.attempts.get_mut(&mark.token)?;
        let freed = attempt.streams[index(mark.stream)].acknowledge(mark.offset);
        attempt.quiet_since = attempt.quiet_since.map(|_| now);
        self.memory -= freed.memory;
        self.in_flight -= freed.window;
        self.leave_if_done(mark.token)
    }

    fn line_up(&mut self, token: Token) {
        if let Some(attempt) = self.attempts.get_mut(&token)
            && !attempt.in_line
        {
            attempt.in_line = true;
            self.line.push_back(token);
        }
    }

    fn next_chunk(&mut self, room: usize) -> Option<Chunk> {
        while let Some(&token) = self.line.front() {
            let Some(attempt) = self.attempts.get_mut(&token) else {
                self.line.pop_front();
                continue;
            };
            for (stream, state) in Stream::ALL.into_iter().zip(&mut attempt.streams) {
                let Some(data) = state.pending(room) else {
                    continue;
                };
                let chunk = Chunk { token, stream, offset: state.sent, data };
                state.sent = chunk.end();
                state.in_flight += payload(&chunk);
                self.in_flight += payload(&chunk);
                self.line.rotate_left(1);
                return Some(chunk);
            }
            attempt.in_line = false;
            self.line.pop_front();
        }
        None
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
            self.in_flight -= state.in_flight;
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

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

fn payload(chunk: &Chunk) -> usize {
    match &chunk.data {
        ChunkData::Bytes(bytes) | ChunkData::Replayed(bytes) => bytes.len(),
        ChunkData::Gap(_) => 0,
    }
}

/// What a chunk weighs on the wire beside its bytes, at most: token, stream, offset, tags.
const CHUNK_OVERHEAD_BYTES: usize = 48;
