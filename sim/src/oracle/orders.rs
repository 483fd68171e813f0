//! Workers follow their orders: the local queue goes by priority, and a stop has the grace of the definition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    priority: i8,
    revision: Revision,
}

impl LocalQueue {
    pub(super) fn hear(&mut self, order: &Order) {
        match order {
            Order::Definitions(list) => {
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
    }

    /// Takes an attempt out. Returns one that waits and has a higher priority, if both need nothing but a slot.
    fn begin(&mut self, machine: &Machine, launch: &Launch) -> Option<Token> {
        self.left.insert(launch.token);
        let own = self.waiting.remove(&launch.token)?;
        if launch.spec.ask_before_start {
            return None;
        }
        let begun = |token: &Token| machine.directory.attempts.iter().any(|it| it.launch.token == *token);
        let goes_first = |(token, it): &(&Token, &Waiting)| {
            it.priority > own.priority && self.asks.get(&it.revision) == Some(&false) && !begun(token)
        };
        self.waiting.iter().find(goes_first).map(|(token, _)| *token)
    }
}

impl Oracle {
    /// Q4: of its queue a worker begins with the attempt that has the highest priority.
    pub(super) fn begins_in_order(&mut self, now: Moment, machine: &Machine, launch: &Launch) {
        let queue = &mut self.queues[usize::from(machine.no)];
        if let Some(first) = queue.begin(machine, launch) {
            let what = format!("w{} begins with {} before {first}", machine.no, launch.token);
            self.fault(now, "Q4 a worker starts the highest priority first", what);
        }
    }

    /// W6: a container has the grace of its definition before it is killed. Nobody asks for another one here.
    pub(crate) fn stops(&mut self, now: Moment, machine: &Machine, token: Token, step: StopStep) {
        let kept = machine.directory.attempts.iter().find(|it| it.launch.token == token);
        let (StopStep::Ask { grace }, Some(kept)) = (step, kept) else { return };
        let due: Duration = kept.launch.spec.stop_grace;
        if grace != due {
            let what = format!("{token} gets {grace:?} and not {due:?}");
            self.fault(now, "W6 a stop waits for its grace", what);
        }
    }
}
