//! The local queue: attempts that wait for a slot, and those that wait for their definition.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use protocol::{Revision, Token};

use crate::attempt::Place;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: BTreeSet<(Place, Token)>,
    parked: BTreeMap<Revision, Vec<Token>>,
    parked_count: usize,
}

impl Backlog {
    /// How many wait, for whatever.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.parked_count
    }

    pub(crate) fn push(&mut self, place: Place, token: Token) {
        self.queue.insert((place, token));
    }

    /// The one that goes next.
    pub(crate) fn pop(&mut self) -> Option<Token> {
        self.queue.pop_first().map(|(_, token)| token)
    }

    pub(crate) fn remove(&mut self, place: Place, token: Token) {
        self.queue.remove(&(place, token));
    }

    pub(crate) fn is_queued(&self, place: Place, token: Token) -> bool {
        self.queue.contains(&(place, token))
    }

    pub(crate) fn park(&mut self, revision: Revision, token: Token) {
        self.parked.entry(revision).or_default().push(token);
        self.parked_count += 1;
    }

    /// All that waited for this definition, in the order in which they came.
    pub(crate) fn unpark(&mut self, revision: Revision) -> Vec<Token> {
        let tokens = self.parked.remove(&revision).unwrap_or_default();
        self.parked_count -= tokens.len();
        tokens
    }

    /// One of them does not wait any more.
    pub(crate) fn leave(&mut self, revision: Revision, token: Token) {
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

    /// The definitions that somebody waits for.
    pub(crate) fn wanted(&self) -> Vec<Revision> {
        self.parked.keys().copied().collect()
    }

    pub(crate) fn is_wanted(&self, revision: Revision) -> bool {
        self.parked.contains_key(&revision)
    }
}
