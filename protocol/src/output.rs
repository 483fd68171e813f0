//! What containers write, on its way to the server: numbered by offset, so that a piece that comes twice is no harm.

use alloc::vec::Vec;

use bincode::{Decode, Encode};

use crate::ids::Token;
use crate::wire::CHUNK_WEIGHT;

/// Bytes that a container wrote.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    /// Whose.
    pub token: Token,
    /// Where it wrote them.
    pub stream: Stream,
    /// How many bytes of that stream came before.
    pub offset: u64,
    /// The bytes, or how many of them were given up.
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

    /// What it takes of a session's window, in bytes: what it carries, and [`CHUNK_WEIGHT`]. Both sides count so.
    #[must_use]
    pub const fn weight(&self) -> usize {
        self.data.bytes_len() + CHUNK_WEIGHT
    }
}

/// What a chunk holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ChunkData {
    /// As they were written.
    Bytes(Vec<u8>),
    /// Read again from the engine's log: the same for text, not always for binary.
    Replayed(Vec<u8>),
    /// This many bytes were given up, or cannot be had; [`UNKNOWN_GAP`](Self::UNKNOWN_GAP) where nobody knows how many.
    Gap(u64),
}

impl ChunkData {
    /// How long a gap is of which nobody knows how long it is: it has to take some place to be seen.
    pub const UNKNOWN_GAP: u64 = 1;

    /// How many bytes it carries; a gap carries none.
    #[must_use]
    pub const fn bytes_len(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Replayed(bytes) => bytes.len(),
            Self::Gap(_) => 0,
        }
    }
}

/// Where a program writes.
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

    /// As it is shown and asked for.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}
