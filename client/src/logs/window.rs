//! The unacknowledged chunks of a session. The server reserves this much memory, and closes a session that sends more.
//!
//! Chunks are counted as the server counts them, and for longer than their attempts are known here: the server may still hold them.

use std::collections::{HashMap, VecDeque};

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, Stream};
use protocol::wire::{CHUNK_WEIGHT, OUTPUT_WINDOW};

/// The unacknowledged chunks.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// End offset and weight of each chunk, in the order of sending.
    chunks: HashMap<(Token, Stream), VecDeque<(u64, usize)>>,
    weight: usize,
}

impl Window {
    /// Bytes that the next chunk may carry.
    pub(super) fn room(&self) -> usize {
        OUTPUT_WINDOW.saturating_sub(self.weight + CHUNK_WEIGHT)
    }

    /// Counts a sent chunk.
    pub(super) fn sent(&mut self, chunk: &Chunk) {
        let weight = chunk.weight();
        self.chunks.entry((chunk.token, chunk.stream)).or_default().push_back((chunk.end(), weight));
        self.weight += weight;
    }

    /// Drops all chunks that end at or before this mark.
    pub(super) fn acknowledge(&mut self, mark: &OutputMark) {
        let place = (mark.token, mark.stream);
        let Some(chunks) = self.chunks.get_mut(&place) else { return };
        while let Some((_, weight)) = chunks.pop_front_if(|(end, _)| *end <= mark.offset) {
            self.weight -= weight;
        }
        if chunks.is_empty() {
            self.chunks.remove(&place);
        }
    }
}
