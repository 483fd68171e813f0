//! Output of attempts on its way to the server, identified by offset, so that repetitions are harmless.

use alloc::vec::Vec;

use bincode::{Decode, Encode};

use crate::ids::Token;
use crate::wire::limits::CHUNK_WEIGHT;

/// Bytes of output.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    /// The attempt.
    pub token: Token,
    /// The stream.
    pub stream: Stream,
    /// Offset of the first byte in that stream.
    pub offset: u64,
    /// The bytes, or the length of a gap.
    pub data: ChunkData,
}

impl Chunk {
    /// The offset after this chunk.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(match &self.data {
            ChunkData::Bytes(bytes) | ChunkData::Replayed(bytes) => bytes.len() as u64,
            ChunkData::Gap(bytes) => *bytes,
        })
    }

    /// Weight in a session's window, in bytes: its data plus [`CHUNK_WEIGHT`]. Both sides count so.
    #[must_use]
    pub const fn weight(&self) -> usize {
        self.data.bytes_len() + CHUNK_WEIGHT
    }
}

/// Content of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ChunkData {
    /// Original bytes.
    Bytes(Vec<u8>),
    /// Read again from the engine's log: the same for text, not always for binary.
    Replayed(Vec<u8>),
    /// A gap of this many bytes that were given up or cannot be read; [`UNKNOWN_GAP`](Self::UNKNOWN_GAP) if
    /// its length is unknown.
    Gap(u64),
}

impl ChunkData {
    /// Length that stands for a gap of unknown length; it must be more than zero to be visible. A gap of one byte is shown as one of unknown
    /// length, too.
    pub const UNKNOWN_GAP: u64 = 1;

    /// Number of data bytes; a gap has none.
    #[must_use]
    pub const fn bytes_len(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Replayed(bytes) => bytes.len(),
            Self::Gap(_) => 0,
        }
    }
}

/// The number of bytes that a worker sends from the beginning of an output that exceeds `log.max_bytes`, of both streams together, while
/// the attempt runs. It sends nothing beyond them before the end of the attempt.
#[must_use]
pub const fn head_bytes(bytes_max: u64) -> u64 {
    bytes_max / 4 * 3
}

/// The number of bytes that a worker sends from the end of each stream of such an output, after the end of the attempt.
#[must_use]
pub const fn tail_bytes(bytes_max: u64) -> u64 {
    bytes_max / 8
}

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}
