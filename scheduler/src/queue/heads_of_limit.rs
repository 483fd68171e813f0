//! The lanes that wait for one limit. Where limits have keys, that is one lane for each limit, and it is kept without a set of its own: with many
//! keys, the sets of all of them would fit into no cache.

use alloc::boxed::Box;

use super::LaneKey;
use super::heads::{First, Heads};
use super::queue_key::QueueKey;
use crate::ids::DefinitionNo;

/// First jobs of the lanes under a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadsOfLimit {
    /// One lane, with its first job and its turn.
    One { lane: LaneKey, head: QueueKey, turn: u64 },
    /// At least two lanes.
    Many(Box<Heads>),
}

/// The lanes that are left under a limit after one has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// No lane.
    Nothing,
    /// Other lanes.
    Lanes,
}

impl HeadsOfLimit {
    /// Adds a lane with its first job and its turn.
    pub(super) fn insert(&mut self, lane: LaneKey, head: QueueKey, turn: u64) {
        match self {
            Self::One { lane: other, head: its_head, turn: its_turn } => {
                let mut heads = Heads::default();
                heads.insert(*other, *its_head, *its_turn);
                heads.insert(lane, head, turn);
                *self = Self::Many(Box::new(heads));
            }
            Self::Many(heads) => heads.insert(lane, head, turn),
        }
    }

    /// Removes a lane, by what it was added with.
    pub(super) fn remove(&mut self, lane: LaneKey, head: QueueKey, turn: u64) -> Left {
        match self {
            Self::One { lane: only, .. } if *only == lane => return Left::Nothing,
            Self::One { .. } => {}
            Self::Many(heads) => {
                heads.remove(lane, head, turn);
                if let Some((lane, head, turn)) = heads.only() {
                    *self = Self::One { lane, head, turn };
                }
            }
        }
        Left::Lanes
    }

    /// The next lane.
    pub(super) fn first(&self) -> Option<First> {
        match self {
            Self::One { lane, head, .. } => Some(First { position: *head, holder: *lane, lane: *lane }),
            Self::Many(heads) => heads.first(),
        }
    }

    /// As [`Heads::first_turn`].
    pub(super) fn first_turn(&self, definition: DefinitionNo, priority: i8) -> Option<(u64, LaneKey)> {
        match self {
            Self::One { lane, head, turn } => {
                let is_one =
                    lane.takes_turns() && lane.definition() == definition && head.own_priority() == priority;
                is_one.then_some((*turn, *lane))
            }
            Self::Many(heads) => heads.first_turn(definition, priority),
        }
    }
}
