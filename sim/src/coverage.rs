//! Coverage: the moves of jobs, ends of attempts, faults. A proof that never saw a case says nothing about it.

use protocol::report::Outcome;
use scheduler::hooks::{HookResult, HookRow};
use scheduler::job::State;
use scheduler::schedules::{FireVerdict, MissReason, SkipReason};
use worker::input::ShutdownMode;

use crate::disk::Edge;
use crate::script::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    edges: [[u64; 10]; 11],
    outcomes: [u64; 12],
    acts: [u64; Kind::COUNT],
    /// By how: workers that were told to leave once more.
    shut_down_again: [u64; 3],
    pub(crate) unknown_attempts: u64,
    pub(crate) unsent: u64,
    pub(crate) copies_shut_out: u64,
    pub(crate) copies_confused: u64,
    /// Workers that were set aside for a job.
    pub(crate) workers_set_aside: u64,
    /// Rows of the fire ledger, by verdict.
    slots: [u64; 7],
    /// Hooks by event, and those that were left out.
    hooks: [u64; 5],
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            edges: [[0; 10]; 11],
            outcomes: [0; 12],
            acts: [0; Kind::COUNT],
            shut_down_again: [0; 3],
            unknown_attempts: 0,
            unsent: 0,
            copies_shut_out: 0,
            copies_confused: 0,
            workers_set_aside: 0,
            slots: [0; 7],
            hooks: [0; 5],
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

    /// A row was added to the fire ledger, or reaches further.
    pub(crate) const fn slot_decided(&mut self, verdict: FireVerdict) {
        let index = match verdict {
            FireVerdict::Fired(_) => 0,
            FireVerdict::CaughtUp(_) => 1,
            FireVerdict::Skipped(SkipReason::Overlap(_)) => 2,
            FireVerdict::Skipped(_) => 3,
            FireVerdict::Missed(MissReason::RuleChanged | MissReason::Removed) => 4,
            FireVerdict::Missed(_) => 5,
            FireVerdict::Backfilled(_) => 6,
        };
        self.slots[index] += 1;
    }

    /// A hook was decided.
    pub(crate) const fn hook_decided(&mut self, row: &HookRow) {
        let index = match row.result {
            HookResult::Made { .. } => row.event as usize,
            HookResult::LeftOut(_) => 4,
        };
        self.hooks[index] += 1;
    }

    pub(crate) const fn shut_down_again(&mut self, mode: ShutdownMode) {
        self.shut_down_again[mode as usize] += 1;
    }

    /// Counts that are neither moves nor ends nor acts.
    fn others(&self) -> [(&'static str, u64); 19] {
        [
            ("shutdown at the second signal", self.shut_down_again[ShutdownMode::Interrupt as usize]),
            ("shutdown at the third signal", self.shut_down_again[ShutdownMode::Detach as usize]),
            ("unknown attempts", self.unknown_attempts),
            ("enqueues that could not be sent", self.unsent),
            ("copies shut out", self.copies_shut_out),
            ("copies confused", self.copies_confused),
            ("workers set aside", self.workers_set_aside),
            ("slots fired", self.slots[0]),
            ("slots caught up", self.slots[1]),
            ("slots skipped behind an earlier job", self.slots[2]),
            ("slots skipped otherwise", self.slots[3]),
            ("slots missed by a new rule", self.slots[4]),
            ("slots missed otherwise", self.slots[5]),
            ("slots backfilled", self.slots[6]),
            ("hooks after a start", self.hooks[0]),
            ("hooks after a success", self.hooks[1]),
            ("hooks after a failure", self.hooks[2]),
            ("hooks after an end", self.hooks[3]),
            ("hooks left out", self.hooks[4]),
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (row, more) in self.edges.iter_mut().zip(&other.edges) {
            row.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        self.outcomes.iter_mut().zip(&other.outcomes).for_each(|(count, more)| *count += more);
        self.acts.iter_mut().zip(&other.acts).for_each(|(count, more)| *count += more);
        self.shut_down_again.iter_mut().zip(&other.shut_down_again).for_each(|(count, more)| *count += more);
        self.unknown_attempts += other.unknown_attempts;
        self.unsent += other.unsent;
        self.copies_shut_out += other.copies_shut_out;
        self.copies_confused += other.copies_confused;
        self.workers_set_aside += other.workers_set_aside;
        self.hooks.iter_mut().zip(&other.hooks).for_each(|(count, more)| *count += more);
        self.slots.iter_mut().zip(&other.slots).for_each(|(count, more)| *count += more);
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

    /// Names of the cases that a large run must hit and this one has not hit.
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
