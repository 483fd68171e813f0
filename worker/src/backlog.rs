//! The local queue: attempts that wait for a slot, and attempts that wait for their definition.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use protocol::{Revision, Token};

/// Position in the local queue: higher priority first, then earlier due, then earlier arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition {
    pub(crate) priority: Reverse<i8>,
    /// Nanoseconds of this machine's uptime; negative if it was due before the machine's boot.
    pub(crate) due: i64,
    pub(crate) arrival: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: BTreeSet<(QueuePosition, Token)>,
    parked: BTreeMap<Revision, Vec<Token>>,
    parked_count: usize,
}

impl Backlog {
    /// Number of attempts that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.parked_count
    }

    pub(crate) fn push(&mut self, position: QueuePosition, token: Token) {
        self.queue.insert((position, token));
    }

    /// The attempt that is launched next: the first one that may be.
    pub(crate) fn first(&self, may_launch: impl Fn(Token) -> bool) -> Option<(QueuePosition, Token)> {
        self.queue.iter().copied().find(|(_, token)| may_launch(*token))
    }

    pub(crate) fn remove(&mut self, position: QueuePosition, token: Token) {
        self.queue.remove(&(position, token));
    }

    pub(crate) fn is_queued(&self, position: QueuePosition, token: Token) -> bool {
        self.queue.contains(&(position, token))
    }

    pub(crate) fn park(&mut self, revision: Revision, token: Token) {
        self.parked.entry(revision).or_default().push(token);
        self.parked_count += 1;
    }

    /// Removes all attempts that wait for this definition, in order of arrival.
    pub(crate) fn unpark(&mut self, revision: Revision) -> Vec<Token> {
        let tokens = self.parked.remove(&revision).unwrap_or_default();
        self.parked_count -= tokens.len();
        tokens
    }

    /// Removes one attempt that waits for its definition.
    pub(crate) fn unpark_one(&mut self, revision: Revision, token: Token) {
        let Some(tokens) = self.parked.get_mut(&revision) else {
            return;
        };
        let before = tokens.len();
        tokens.retain(|it| *it != token);
        self.parked_count -= before - tokens.len();
        if tokens.is_empty() {
            self.parked.remove(&revision);
        }
    }

    pub(crate) fn is_parked(&self, revision: Revision, token: Token) -> bool {
        self.parked.get(&revision).is_some_and(|tokens| tokens.contains(&token))
    }

    /// Definitions that attempts wait for.
    pub(crate) fn wanted(&self) -> Vec<Revision> {
        self.parked.keys().copied().collect()
    }

    pub(crate) fn is_wanted(&self, revision: Revision) -> bool {
        self.parked.contains_key(&revision)
    }
}
