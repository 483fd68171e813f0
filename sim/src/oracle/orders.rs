//! Workers follow their orders: the local queue goes by priority, and a stop has the grace of the definition.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{Order, Report, Revision, Token};
use worker::step::{Launch, StopStep};

use super::Oracle;
use crate::clock::Moment;
use crate::machine::Machine;

/// Attempts that a worker was given on its present connection, as far as it has not said what became of them.
#[derive(Debug, Default)]
pub(super) struct LocalQueue {
    /// By revision: true if the worker asks the server before a start.
    asks: BTreeMap<Revision, bool>,
    waiting: BTreeMap<Token, Waiting>,
    /// Attempts of which the worker was told, or has said, that they wait no more. An order that crosses that on its way changes nothing.
    left: BTreeSet<Token>,
    /// An attempt that it has begun with, and one that seemed to go first. Perhaps it gives that one back with its next reports.
    suspicion: Option<(Token, Token)>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    priority: i8,
    revision: Revision,
}

impl LocalQueue {
    pub(super) fn hear(&mut self, order: &Order) {
        match order {
            Order::Definitions(list) | Order::ExtendedDefinitions(list) => {
                let asks = list.iter().map(|it| (it.revision, it.container.ask_before_start));
                self.asks.extend(asks);
            }
            Order::Enqueue(list) => {
                for it in list.iter().filter(|it| !self.left.contains(&it.token)) {
                    let waiting = Waiting { priority: it.priority, revision: it.revision };
                    self.waiting.insert(it.token, waiting);
                }
            }
            Order::Cancel(it) => self.leave([it.token]),
            Order::Recall(tokens) => self.leave(tokens.iter().copied()),
            _ => {}
        }
    }

    pub(super) fn note(&mut self, report: &Report) {
        match report {
            Report::Released(list) => self.leave(list.list.iter().map(|it| it.token)),
            Report::Starting(list) => self.leave(list.list.iter().copied()),
            Report::Status(list) => self.leave(list.iter().map(|(token, _)| *token)),
            _ => {}
        }
    }

    fn leave(&mut self, tokens: impl IntoIterator<Item = Token>) {
        for token in tokens {
            self.waiting.remove(&token);
            self.left.insert(token);
        }
    }

    /// The connection or the process is gone: what the worker keeps of its queue is not said any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.suspicion = None;
    }

    /// Takes an attempt out, and suspects that another one goes first: it waits and has a higher priority, and both need nothing but a slot.
    fn begin(&mut self, machine: &Machine, launch: &Launch) {
        self.left.insert(launch.token);
        let Some(own) = self.waiting.remove(&launch.token).filter(|_| !launch.spec.ask_before_start) else {
            return;
        };
        // An attempt waits for an earlier one of its job that the worker may still be stopping.
        let begun_or_behind = |token: &Token| {
            let mut known = machine.directory.attempts.iter().map(|it| it.launch.token);
            known.any(|known| known.job == token.job && known <= *token)
        };
        let goes_first = |(token, it): &(&Token, &Waiting)| {
            it.priority > own.priority
                && self.asks.get(&it.revision) == Some(&false)
                && !begun_or_behind(token)
        };
        if let Some((first, _)) = self.waiting.iter().find(goes_first) {
            self.suspicion = Some((launch.token, *first));
        }
    }

    /// The suspicion, if the one that goes first still waits.
    fn take_confirmed(&mut self) -> Option<(Token, Token)> {
        self.suspicion.take().filter(|(_, first)| self.waiting.contains_key(first))
    }
}

impl Oracle {
    /// A worker begins with an attempt.
    pub(super) fn record_launch_order(&mut self, machine: &Machine, launch: &Launch) {
        self.queues[usize::from(machine.no)].begin(machine, launch);
    }

    /// Q4: of its queue a worker begins with the attempt that has the highest priority. It has sent its reports, so it has said whether it
    /// gives one back.
    pub(crate) fn check_launch_order(&mut self, now: Moment, no: u16) {
        if let Some((token, first)) = self.queues[usize::from(no)].take_confirmed() {
            let what = format!("w{no} begins with {token} before {first}");
            self.violated(now, "Q4 a worker starts the highest priority first", what);
        }
    }

    /// W6: a container has the grace of its definition before it is killed. Nobody asks for another one here.
    pub(crate) fn check_stop_grace(&mut self, now: Moment, machine: &Machine, token: Token, step: StopStep) {
        let kept = machine.directory.attempts.iter().find(|it| it.launch.token == token);
        let (StopStep::Ask { grace }, Some(kept)) = (step, kept) else { return };
        let due = kept.launch.spec.stop_grace;
        if grace != due {
            let what = format!("{token} gets {grace:?} and not {due:?}");
            self.violated(now, "W6 a stop waits for its grace", what);
        }
    }
}
