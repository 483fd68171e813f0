//! The first jobs of several lanes in order. Lanes of one definition that differ only in their keys stand in this order once.
//!
//! A definition's place follows its earliest first job, with ageing. Within that job's own priority, without ageing, the lane that has
//! waited longest for its turn goes next. So no key starves another, and the definition as a whole gets no more than its jobs would by
//! their due times.
//!
//! ```text
//! order   Lane(A): q1    Keys(7): q2    Lane(B): q5
//!                          │ by_head  q2 in lane x, q3 in lane y, q9 in lane z
//!                          └ by_turn  y (turn 4), z (turn 6), x (turn 11)        ──▶ y is next
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::ops::Bound;

use super::{LaneKey, QueueKey};
use crate::ids::DefinitionNo;

/// First jobs of lanes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heads {
    order: BTreeSet<(QueueKey, Position)>,
    keyed: BTreeMap<DefinitionNo, Turns>,
}

/// The next lane, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Its position among other definitions.
    pub position: QueueKey,
    /// The lane whose first job has this position. If this lane is parked, the definition moves to another position.
    pub holder: LaneKey,
    /// The lane whose turn it is.
    pub lane: LaneKey,
}

/// The holder of a position in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
    Lane(LaneKey),
    /// All lanes with keys of this definition.
    Keys(DefinitionNo),
}

/// Lanes of one definition that differ in their keys.
#[derive(Debug, Default, PartialEq, Eq)]
struct Turns {
    by_head: BTreeSet<(QueueKey, LaneKey)>,
    /// By the priority of the first job, without ageing, and the turn.
    by_turn: BTreeSet<(Reverse<i8>, u64, LaneKey)>,
}

impl Heads {
    /// Adds a lane with its first job and its turn.
    pub(super) fn insert(&mut self, lane: LaneKey, head: QueueKey, turn: u64) {
        if !lane.takes_turns() {
            self.order.insert((head, Position::Lane(lane)));
            return;
        }
        let definition = lane.definition();
        let turns = self.keyed.entry(definition).or_default();
        let before = turns.first();
        turns.by_head.insert((head, lane));
        turns.by_turn.insert((Reverse(head.own_priority()), turn, lane));
        let after = turns.first();
        self.move_position(definition, before, after);
    }

    /// Removes a lane, by what it was added with.
    pub(super) fn remove(&mut self, lane: LaneKey, head: QueueKey, turn: u64) {
        if !lane.takes_turns() {
            self.order.remove(&(head, Position::Lane(lane)));
            return;
        }
        let definition = lane.definition();
        let Some(turns) = self.keyed.get_mut(&definition) else { return };
        let before = turns.first();
        turns.by_head.remove(&(head, lane));
        turns.by_turn.remove(&(Reverse(head.own_priority()), turn, lane));
        let after = turns.first();
        if after.is_none() {
            self.keyed.remove(&definition);
        }
        self.move_position(definition, before, after);
    }

    /// The next lane.
    pub(super) fn first(&self) -> Option<First> {
        self.order.first().and_then(|it| self.first_at(it))
    }

    fn first_at(&self, (key, position): &(QueueKey, Position)) -> Option<First> {
        Some(match position {
            Position::Lane(lane) => First { position: *key, holder: *lane, lane: *lane },
            Position::Keys(definition) => {
                let turns = self.keyed.get(definition)?;
                let (head, holder) = turns.by_head.first()?;
                // Lanes take turns with those of the same priority.
                let (_, lane) = self.first_turn(*definition, head.own_priority())?;
                First { position: *key, holder: *holder, lane }
            }
        })
    }

    /// The next lane after this one; `lane` must be in these heads.
    pub(super) fn after(&self, lane: LaneKey, head: QueueKey) -> Option<First> {
        let own = if lane.takes_turns() {
            let definition = lane.definition();
            (self.keyed.get(&definition)?.first()?, Position::Keys(definition))
        } else {
            (head, Position::Lane(lane))
        };
        self.order.range((Bound::Excluded(own), Bound::Unbounded)).next().and_then(|it| self.first_at(it))
    }

    /// The lane that has its turn next among those of this definition whose first job has this priority, without ageing; and the turn.
    /// Turns start at 1.
    pub(super) fn first_turn(&self, definition: DefinitionNo, priority: i8) -> Option<(u64, LaneKey)> {
        let turns = &self.keyed.get(&definition)?.by_turn;
        let (of, turn, lane) = *turns.range((Reverse(priority), 0, LaneKey::FIRST)..).next()?;
        (of == Reverse(priority)).then_some((turn, lane))
    }

    /// The first job of all lanes.
    pub(super) fn first_key(&self) -> Option<QueueKey> {
        self.order.first().map(|(key, _)| *key)
    }

    /// The next jobs in order after `after` with their lanes, one for each position, at most `count`.
    pub(super) fn next_keys(
        &self,
        after: Option<QueueKey>,
        count: usize,
    ) -> impl Iterator<Item = (QueueKey, LaneKey)> {
        let from =
            after.map_or(Bound::Unbounded, |key| Bound::Included((key, Position::Lane(LaneKey::FIRST))));
        let next = self.order.range((from, Bound::Unbounded)).filter(move |(key, _)| Some(*key) != after);
        next.take(count).filter_map(|(key, position)| match position {
            Position::Lane(lane) => Some((*key, *lane)),
            Position::Keys(definition) => self.keyed.get(definition)?.by_head.first().copied(),
        })
    }

    /// The only lane with its first job and its turn, if there is just one.
    pub(super) fn only(&self) -> Option<(LaneKey, QueueKey, u64)> {
        match self.order.first().filter(|_| self.order.len() == 1)? {
            (head, Position::Lane(lane)) => Some((*lane, *head, 0)),
            (_, Position::Keys(definition)) => {
                let turns = self.keyed.get(definition).filter(|turns| turns.by_head.len() == 1)?;
                let ((head, lane), (_, turn, _)) = (turns.by_head.first()?, turns.by_turn.first()?);
                Some((*lane, *head, *turn))
            }
        }
    }

    /// No lane is here.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All lanes, in no order.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneKey> {
        let plain = self.order.iter().filter_map(|(_, position)| match position {
            Position::Lane(lane) => Some(*lane),
            Position::Keys(_) => None,
        });
        plain.chain(self.keyed.values().flat_map(|turns| turns.by_head.iter().map(|(_, lane)| *lane)))
    }

    fn move_position(&mut self, of: DefinitionNo, before: Option<QueueKey>, after: Option<QueueKey>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, Position::Keys(of)));
        }
        if let Some(after) = after {
            self.order.insert((after, Position::Keys(of)));
        }
    }
}

impl Turns {
    fn first(&self) -> Option<QueueKey> {
        self.by_head.first().map(|(key, _)| *key)
    }
}
