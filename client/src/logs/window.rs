//! What of a session was sent and is not acknowledged: the server keeps room for exactly so much, and closes a session that sends more.
//!
//! It is counted by chunks, as the server does, and for longer than their attempts are known: what was given up here may still wait
//! over there.

use std::collections::{HashMap, VecDeque};

use protocol::Token;
use protocol::order::OutputMark;
use protocol::report::{Chunk, Stream};
use protocol::wire::{CHUNK_WEIGHT, OUTPUT_WINDOW};

/// The chunks under way.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Where each ends and what it weighs, in the order in which they were sent.
    chunks: HashMap<(Token, Stream), VecDeque<(u64, usize)>>,
    weight: usize,
}

impl Window {
    /// How many bytes the next chunk may carry.
    pub(super) fn room(&self) -> usize {
        OUTPUT_WINDOW.saturating_sub(self.weight + CHUNK_WEIGHT)
    }

    /// A chunk is under way.
    pub(super) fn sent(&mut self, chunk: &Chunk) {
        let weight = chunk.weight();
        self.chunks.entry((chunk.token, chunk.stream)).or_default().push_back((chunk.end(), weight));
        self.weight += weight;
    }

    /// Whatever ends at this mark or before it has arrived.
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
