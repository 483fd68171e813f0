//! What was hit: moves of jobs, ends of attempts, faults. A proof that never saw a case says nothing about it.

use protocol::report::Outcome;
use scheduler::job::State;
use worker::input::Leave;

use crate::disk::Edge;
use crate::script::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    edges: [[u64; 10]; 11],
    outcomes: [u64; 12],
    acts: [u64; Kind::COUNT],
    /// By how: workers that were told to leave once more.
    left_again: [u64; 3],
    pub(crate) strangers: u64,
    pub(crate) unsent: u64,
    pub(crate) copies_shut_out: u64,
    pub(crate) copies_confused: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            edges: [[0; 10]; 11],
            outcomes: [0; 12],
            acts: [0; Kind::COUNT],
            left_again: [0; 3],
            strangers: 0,
            unsent: 0,
            copies_shut_out: 0,
            copies_confused: 0,
        }
    }
}

impl Coverage {
    pub(crate) const fn moved(&mut self, edge: &Edge) {
        let from = match edge.from {
            None => 0,
            Some(state) => state as usize + 1,
        };
        self.edges[from][edge.to as usize] += 1;
    }

    pub(crate) const fn closed(&mut self, outcome: Outcome) {
        self.outcomes[outcome as usize] += 1;
    }

    pub(crate) const fn acted(&mut self, kind: Kind) {
        self.acts[kind as usize] += 1;
    }

    pub(crate) const fn left_again(&mut self, leave: Leave) {
        self.left_again[leave as usize] += 1;
    }

    /// What is neither a move nor an end nor an act.
    fn others(&self) -> [(&'static str, u64); 6] {
        [
            ("leave at the second signal", self.left_again[Leave::Interrupt as usize]),
            ("leave at the third signal", self.left_again[Leave::Detach as usize]),
            ("strangers", self.strangers),
            ("enqueues that could not be sent", self.unsent),
            ("copies shut out", self.copies_shut_out),
            ("copies confused", self.copies_confused),
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (row, more) in self.edges.iter_mut().zip(&other.edges) {
            row.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        self.outcomes.iter_mut().zip(&other.outcomes).for_each(|(count, more)| *count += more);
        self.acts.iter_mut().zip(&other.acts).for_each(|(count, more)| *count += more);
        self.left_again.iter_mut().zip(&other.left_again).for_each(|(count, more)| *count += more);
        self.strangers += other.strangers;
        self.unsent += other.unsent;
        self.copies_shut_out += other.copies_shut_out;
        self.copies_confused += other.copies_confused;
    }

    /// Every count with its name.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        let mut counts = Vec::new();
        for (from, row) in self.edges.iter().enumerate() {
            for (to, count) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
                let from = if from == 0 { "new" } else { State::ALL[from - 1].name() };
                counts.push((format!("{from} to {}", State::ALL[to].name()), *count));
            }
        }
        for (outcome, count) in Outcome::ALL.iter().zip(self.outcomes) {
            counts.push((format!("outcome {}", outcome.name()), count));
        }
        for (kind, count) in Kind::ALL.iter().zip(self.acts) {
            counts.push((kind.name().to_owned(), count));
        }
        counts.extend(self.others().map(|(name, count)| (name.to_owned(), count)));
        counts
    }

    /// What a large run must have hit, and this one has not.
    pub(crate) fn missed(&self) -> Vec<String> {
        let index = |from: Option<State>| from.map_or(0, |state| state as usize + 1);
        let edges = EDGES.iter().filter(|(from, to)| self.edges[index(*from)][*to as usize] == 0);
        let edges = edges.map(|(from, to)| format!("{} to {}", from.map_or("new", State::name), to.name()));
        let outcomes = Outcome::ALL.iter().zip(self.outcomes).filter(|(_, count)| *count == 0);
        let outcomes = outcomes.map(|(outcome, _)| format!("outcome {}", outcome.name()));
        let acts = Kind::ALL.iter().zip(self.acts).filter(|(_, count)| *count == 0);
        let acts = acts.map(|(kind, _)| kind.name().to_owned());
        let others = self.others().into_iter().filter(|(_, count)| *count == 0);
        let others = others.map(|(name, _)| name.to_owned());
        edges.chain(outcomes).chain(acts).chain(others).collect()
    }
}

/// Every move that a job can make (docs/lifecycle.md); nothing expires yet.
const EDGES: [(Option<State>, State); 25] = {
    use State::{Assigned, Cancelled, Failed, Lost, Quarantined, Queued, Running, Scheduled, Succeeded};
    [
        (None, Scheduled),
        (None, Queued),
        (Some(Scheduled), Queued),
        (Some(Scheduled), Cancelled),
        (Some(Queued), Assigned),
        (Some(Queued), Cancelled),
        (Some(Quarantined), Queued),
        (Some(Quarantined), Cancelled),
        (Some(Assigned), Running),
        (Some(Assigned), Assigned),
        (Some(Assigned), Scheduled),
        (Some(Assigned), Queued),
        (Some(Assigned), Quarantined),
        (Some(Assigned), Succeeded),
        (Some(Assigned), Failed),
        (Some(Assigned), Cancelled),
        (Some(Assigned), Lost),
        (Some(Running), Running),
        (Some(Running), Scheduled),
        (Some(Running), Queued),
        (Some(Running), Quarantined),
        (Some(Running), Succeeded),
        (Some(Running), Failed),
        (Some(Running), Cancelled),
        (Some(Running), Lost),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_hit_is_named_and_what_was_is_not() {
        let mut coverage = Coverage::default();
        assert!(coverage.missed().contains(&"new to queued".to_owned()));
        coverage.moved(&Edge { from: None, to: State::Queued });
        coverage.closed(Outcome::Lost);
        coverage.acted(Kind::Cut);
        let missed = coverage.missed();
        for hit in ["new to queued", "outcome lost", Kind::Cut.name()] {
            assert!(!missed.contains(&hit.to_owned()), "{hit}");
        }
    }
}
