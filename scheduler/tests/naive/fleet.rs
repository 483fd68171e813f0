//! Workers: who is there, who is silent, who takes nothing new.

use std::time::Duration;

use super::{Drain, Model, Standing, Worker};
use crate::world::protocol::order::StopCause;
use crate::world::protocol::report::Availability;
use crate::world::protocol::{RuntimeKind, Uptime, WorkerId};
use crate::world::scheduler::definition::OnLost;
use crate::world::scheduler::input::{Connected, Operation, Ticket};
use crate::world::scheduler::step::{Answer, Rejection};

impl Worker {
    /// A frame came in.
    pub(super) fn hear(&mut self, at: Uptime) {
        self.heard = self.heard.max(at);
        self.watched = true;
    }

    /// Whether this start of it may take over. A later one waits until the old connection has been silent for half a lease in which we
    /// were there; in these walks nothing is heard any more of a process that has a later one.
    fn lets_in(&mut self, incarnation: u64, now: Uptime) -> bool {
        let waiting = self.waiting.take();
        if self.session.is_none() || self.incarnation == incarnation {
            return true;
        }
        let since = match waiting {
            Some((who, since, last)) if who == incarnation && now < last + Duration::from_secs(30) => since,
            _ => now,
        };
        self.waiting = Some((incarnation, since, now));
        now >= since.max(self.heard) + Duration::from_secs(15)
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots_ordered.unwrap_or(self.slots)
    }
}

impl Model {
    pub(super) fn connect(&mut self, hello: Connected) {
        let known = self.workers.iter().position(|it| it.secret_hash == hello.secret_hash);
        let now = self.now.up;
        let is_it = known.is_none_or(|index| self.workers[index].lets_in(hello.incarnation.0, now));
        if !is_it || self.is_name_taken(known, &hello.name) {
            self.say(format!("to {}: Refused", hello.session));
            self.say(format!("close {}: Refused", hello.session));
            return;
        }
        let index = known.unwrap_or_else(|| self.join(&hello));
        let is_idle = self.held(self.workers[index].id).is_empty();
        let worker = &mut self.workers[index];
        let old = worker.session.replace(hello.session);
        worker.settled = false;
        if worker.incarnation != hello.incarnation.0 {
            worker.incarnation = hello.incarnation.0;
            worker.last_report = None;
            worker.exclusions.clear();
        }
        worker.leaving = false;
        worker.name = hello.name;
        worker.slots = hello.slots;
        worker.backlog = hello.backlog;
        worker.offers = offers(&hello.runtimes);
        worker.told.clear();
        worker.announced.clear();
        // A drain is an order to one process: if that has left with nothing, the next one is to stay.
        if let Some(drain) = worker.drain.filter(|it| it.process != Some(worker.incarnation)) {
            let has_left = drain.process.is_some() && is_idle;
            worker.drain =
                (!has_left).then_some(Drain { process: Some(worker.incarnation), is_over: false, ..drain });
        }
        worker.hear(now);
        let (id, last) = (worker.id, worker.last_report.unwrap_or_default());
        if let Some(old) = old {
            self.say(format!("close {old}: Replaced"));
        }
        self.say(format!("to {}: welcome w{id} after {last}", hello.session));
    }

    /// Whether another worker is connected under this name, or was a moment ago and a stranger wants it. Who has attempts is let in all the
    /// same.
    fn is_name_taken(&self, known: Option<usize>, name: &str) -> bool {
        if known.is_some_and(|index| !self.held(self.workers[index].id).is_empty()) {
            return false;
        }
        let is_kept = |it: &Worker| it.session.is_some() || (known.is_none() && it.watched);
        let mut others = self.workers.iter().enumerate().filter(|(index, _)| Some(*index) != known);
        others.any(|(_, it)| *it.name == *name && is_kept(it))
    }

    fn join(&mut self, hello: &Connected) -> usize {
        self.last_worker += 1;
        self.workers.push(Worker {
            id: WorkerId(self.last_worker),
            secret_hash: hello.secret_hash,
            name: hello.name.clone(),
            session: None,
            settled: false,
            incarnation: 0,
            waiting: None,
            last_report: None,
            heard: self.now.up,
            watched: false,
            unreachable: false,
            cordoned: false,
            leaving: false,
            drain: None,
            slots: 0,
            slots_ordered: None,
            backlog: 0,
            offers: false,
            told: Vec::new(),
            exclusions: Vec::new(),
            announced: Vec::new(),
            unmanaged: Vec::new(),
            doubts: Vec::new(),
        });
        self.workers.len() - 1
    }

    /// Its lease has run out: what it has waits for it until `lost_after`, counted from when it was last heard of.
    pub(super) fn fall_silent(&mut self, id: u64) {
        let now = self.now.up;
        let worker = self.worker_mut(WorkerId(id)).expect("its lease is watched");
        (worker.watched, worker.unreachable) = (false, true);
        let (id, heard) = (worker.id, worker.heard);
        if let Some(session) = worker.session.take() {
            self.say(format!("close {session}: Silent"));
        }
        for job in self.held(id) {
            let loss = self.job(job).expect("it is held").definition.loss.clone();
            let attempt = self.attempt_mut(job).expect("it is held");
            if loss.on_lost != OnLost::Wait || attempt.stopping == Some(StopCause::Cancel) {
                attempt.loss = Some((heard + loss.after).max(now));
            }
            let token = attempt.token;
            self.say(format!("j{job} noted {token} unreachable on w{id}"));
        }
    }

    pub(super) fn operate(&mut self, ticket: Ticket, id: WorkerId, operation: Operation) {
        let now = self.now.utc;
        let is_busy = !self.held(id).is_empty();
        let answer = match self.worker_mut(id) {
            None => Answer::Rejected(Rejection::UnknownWorker),
            Some(worker) => match operation {
                Operation::Cordon => {
                    worker.cordoned = true;
                    Answer::Done
                }
                Operation::Uncordon => {
                    (worker.cordoned, worker.drain) = (false, None);
                    Answer::Done
                }
                Operation::Drain(patience) => {
                    let is_away = worker.session.is_none() && !worker.unreachable;
                    let deadline = patience.map(|patience: Duration| now + patience);
                    worker.cordoned = true;
                    worker.drain = Some(Drain {
                        process: (!is_away).then_some(worker.incarnation),
                        deadline,
                        is_over: false,
                    });
                    Answer::Done
                }
                Operation::Slots(slots) => {
                    worker.slots_ordered = Some(slots);
                    Answer::Done
                }
                // Nothing is decided by them.
                Operation::Labels(_) => Answer::Done,
                Operation::Forget if worker.session.is_some() || is_busy => {
                    Answer::Rejected(Rejection::WorkerConnected)
                }
                Operation::Forget => {
                    self.forget(id);
                    Answer::Done
                }
                Operation::StopUnmanaged(_) => unreachable!("nobody does that on a walk"),
            },
        };
        self.say(format!("reply {}: {answer:?}", ticket.0));
    }

    /// Nobody is pinned to a worker that never comes back.
    fn forget(&mut self, id: WorkerId) {
        self.workers.retain(|worker| worker.id != id);
        for job in &mut self.jobs {
            if let Standing::Queued { pinned } = &mut job.standing {
                *pinned = pinned.filter(|worker| *worker != id);
            }
        }
        self.say(format!("w{id} forgotten"));
    }

    /// What still runs at the end of a drain is stopped.
    pub(super) fn end_drains(&mut self) {
        let now = self.now.utc;
        let mut over = Vec::new();
        for worker in &mut self.workers {
            if let Some(drain) = worker.drain.as_mut().filter(|it| !it.is_over)
                && drain.deadline.is_some_and(|at| at <= now)
            {
                drain.is_over = true;
                over.push(worker.id);
            }
        }
        for worker in over {
            for job in self.held(worker) {
                self.stop(job, StopCause::Drain);
            }
        }
    }
}

pub(super) fn offers(runtimes: &[(RuntimeKind, Availability)]) -> bool {
    runtimes.iter().any(|(kind, answer)| *kind == RuntimeKind::Fake && answer.is_available())
}
