//! Every invariant of the brain. Called after each step in tests; costs a walk over everything that is held.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::Token;

use crate::attempt::{Attempt, Stage};
use crate::definitions::DEFINITIONS_MAX;
use crate::link::State;
use crate::worker::Worker;

impl Worker {
    /// What is wrong with this brain: nothing, unless we are.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.audit_slots(&mut faults);
        self.audit_backlog(&mut faults);
        self.audit_alarms(&mut faults);
        self.audit_reports(&mut faults);
        self.audit_leaving(&mut faults);
        if self.definitions.len() > DEFINITIONS_MAX {
            faults.push(format!("{} definitions are kept", self.definitions.len()));
        }
        faults
    }

    fn audit_slots(&self, faults: &mut Vec<String>) {
        let busy = self.attempts.values().filter(|attempt| attempt.holds_slot()).count();
        if busy != self.slots.busy() as usize {
            faults.push(format!("{busy} attempts hold a slot, {} slots are counted busy", self.slots.busy()));
        }
        for token in &self.cleared {
            if !self.is(*token, |attempt| matches!(attempt.stage, Stage::Asking { cleared: true })) {
                faults.push(format!("{token} is cleared and does not ask"));
            }
        }
        let waiting = self
            .attempts
            .iter()
            .filter(|(_, attempt)| matches!(attempt.stage, Stage::Prepared) && attempt.stop.is_none());
        if !waiting.map(|(token, _)| token).eq(&self.prepared) {
            faults.push(format!("{:?} wait for the gate, not all that are prepared", self.prepared));
        }
        for token in &self.fenced {
            if !self.is(*token, |attempt| attempt.is_live() && attempt.self_fence().is_some()) {
                faults.push(format!("{token} is fenced and does not run"));
            }
        }
    }

    fn audit_backlog(&self, faults: &mut Vec<String>) {
        let mut waiting = 0;
        for (token, attempt) in &self.attempts {
            let held = match attempt.stage {
                Stage::Waiting => self.backlog.is_queued(attempt.place, *token),
                Stage::Parked => self.backlog.is_parked(attempt.revision, *token) && attempt.known.is_none(),
                _ => continue,
            };
            waiting += 1;
            if !held {
                faults.push(format!("{token} waits and is nowhere"));
            }
        }
        if waiting != self.backlog.len() {
            faults.push(format!("{waiting} attempts wait, the backlog holds {}", self.backlog.len()));
        }
    }

    fn audit_alarms(&self, faults: &mut Vec<String>) {
        let set: BTreeSet<_> =
            self.attempts.iter().filter_map(|(token, attempt)| Some((attempt.alarm?, *token))).collect();
        if set != self.alarms {
            faults.push(format!(
                "{} attempts have an alarm, {} alarms are set",
                set.len(),
                self.alarms.len()
            ));
        }
        for (token, attempt) in &self.attempts {
            if attempt.is_live() && attempt.stop.is_some() && attempt.alarm.is_none() {
                faults.push(format!("{token} is stopped and nobody looks after it"));
            }
            if let Stage::Ended(ended) = &attempt.stage
                && ended.acknowledged
                && (ended.output_done || attempt.alarm.is_none())
            {
                faults.push(format!("{token} is never forgotten"));
            }
        }
    }

    fn audit_reports(&self, faults: &mut Vec<String>) {
        let finals: Vec<Token> = self.outbox.finals().collect();
        let distinct: BTreeSet<Token> = finals.iter().copied().collect();
        for (token, attempt) in &self.attempts {
            match &attempt.stage {
                Stage::Ended(ended) if ended.acknowledged == distinct.contains(token) => {
                    faults.push(format!("{token} has ended; acknowledged: {}", ended.acknowledged));
                }
                Stage::Asking { cleared: false } if !self.outbox.is_starting_on_its_way(*token) => {
                    faults.push(format!("{token} asks and nobody hears it"));
                }
                _ => {}
            }
        }
        let is_silent = matches!(self.link.state, State::Down | State::Greeting { .. });
        if is_silent
            && (self.notices.inventory || !self.notices.status.is_empty() && self.link.state == State::Down)
        {
            faults.push(String::from("there is something to say and nobody to say it to"));
        }
    }

    fn audit_leaving(&self, faults: &mut Vec<String>) {
        if self.leaving().is_some() && self.attempts.values().any(Attempt::is_unstarted) {
            faults.push(String::from("the worker leaves and keeps unstarted attempts"));
        }
    }

    fn is(&self, token: Token, what: impl Fn(&Attempt) -> bool) -> bool {
        self.attempts.get(&token).is_some_and(what)
    }
}
