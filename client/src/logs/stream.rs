//! Offsets of one stream of one attempt, and the bytes that exist only in memory.

use std::collections::VecDeque;

use protocol::report::{ChunkData, Stream};

/// Offsets of one stream. Always `acknowledged <= sent <= written`.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// The server has all bytes before this offset.
    pub(super) acknowledged: u64,
    /// Sent in this session, or acknowledged.
    pub(super) sent: u64,
    /// Bytes written so far.
    pub(super) written: u64,
    /// Pushed bytes that are not acknowledged, in order and without holes. Empty if the bytes are in a file.
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Kept(Vec<u8>),
    GivenUp(u64),
}

impl StreamState {
    /// Keeps these bytes until they are acknowledged.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let offset = self.written;
        self.written += bytes.len() as u64;
        match self.pieces.back_mut().map(|piece| &mut piece.data) {
            Some(Data::Kept(kept)) if kept.len() + bytes.len() <= PIECE_BYTES_MAX => {
                kept.extend_from_slice(bytes)
            }
            _ => self.pieces.push_back(Piece { offset, data: Data::Kept(bytes.to_vec()) }),
        }
    }

    /// A stream whose bytes are in a file.
    pub(super) fn in_file(acknowledged: u64, written: u64) -> Self {
        let acknowledged = acknowledged.min(written);
        Self { acknowledged, sent: acknowledged, written, ..Self::default() }
    }

    /// Marks this many bytes as written and lost.
    pub(super) fn give_up(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let offset = self.written;
        self.written += bytes;
        match self.pieces.back_mut().map(|piece| &mut piece.data) {
            Some(Data::GivenUp(so_far)) => *so_far += bytes,
            _ => self.pieces.push_back(Piece { offset, data: Data::GivenUp(bytes) }),
        }
    }

    /// The next bytes at `sent`, at most `room` of them, or the whole of a gap. Pushed output only.
    pub(super) fn pending(&self, room: usize) -> Option<ChunkData> {
        let piece = self.pieces.iter().find(|piece| piece.end() > self.sent)?;
        let skipped = self.sent.saturating_sub(piece.offset);
        Some(match &piece.data {
            Data::GivenUp(bytes) => ChunkData::Gap(bytes - skipped),
            Data::Kept(bytes) => {
                let rest = &bytes[usize::try_from(skipped).unwrap_or(bytes.len()).min(bytes.len())..];
                ChunkData::Bytes(rest[..rest.len().min(room)].to_vec())
            }
        })
    }

    /// Takes an acknowledgement up to `offset`; returns the number of freed bytes of memory.
    pub(super) fn acknowledge(&mut self, offset: u64) -> usize {
        let offset = offset.min(self.written);
        if offset <= self.acknowledged {
            return 0;
        }
        self.acknowledged = offset;
        self.sent = self.sent.max(offset);
        let mut freed = 0;
        while let Some(piece) = self.pieces.front().filter(|piece| piece.end() <= offset) {
            freed += piece.kept();
            self.pieces.pop_front();
        }
        freed
    }

    /// Bytes of memory that this stream holds.
    pub(super) fn kept(&self) -> usize {
        self.pieces.iter().map(Piece::kept).sum()
    }
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset
            + match &self.data {
                Data::Kept(bytes) => bytes.len() as u64,
                Data::GivenUp(bytes) => *bytes,
            }
    }

    fn kept(&self) -> usize {
        match &self.data {
            Data::Kept(bytes) => bytes.len(),
            Data::GivenUp(_) => 0,
        }
    }
}

/// The position of a stream in a pair of both.
pub(super) const fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Small writes are joined up to this size, so that single bytes do not cost an allocation each.
const PIECE_BYTES_MAX: usize = 16 * 1024;
