//! Those who ask the server for something. One with a key asks again until it is answered; one without gives up.

use std::sync::Arc;

use protocol::{JobId, WorkerId};
use scheduler::input::{CancelRequest, Input, Key, NewJob, Operation, ReleaseRequest, Submit, Ticket};
use scheduler::step::Answer;

use crate::agenda::Event;
use crate::script::Order;
use crate::world::World;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) wish: Wish,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) answered: bool,
    tries: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Jobs(Order),
    Cancel(JobId),
    Release(JobId),
    Operate(WorkerId, Operation),
}

impl World {
    pub(crate) fn ask(&mut self, wish: Wish) {
        let number = self.requests.len() as u32;
        let key = match &wish {
            Wish::Jobs(order) => order.key.map(|key| Arc::from(format!("k{key}"))),
            Wish::Cancel(_) | Wish::Release(_) | Wish::Operate(..) => None,
        };
        self.requests.push(Request { wish, key, answered: false, tries: 0 });
        self.agenda.note(self.now, Event::Request { request: number });
    }

    /// Operators who asked before have nothing more to say.
    pub(crate) fn forget_operators(&mut self) {
        for request in self.requests.iter_mut().filter(|it| matches!(it.wish, Wish::Operate(..))) {
            request.answered = true;
        }
    }

    /// A request arrives; it comes again if it was not answered and has a key.
    pub(crate) fn request(&mut self, number: u32) {
        let listens = self.server_listens();
        let request = &mut self.requests[number as usize];
        request.tries += 1;
        if request.answered || request.tries > TRIES_MAX || (request.key.is_none() && request.tries > 1) {
            return;
        }
        let wait = self.dice.seconds(1, 15);
        self.agenda.note(self.now + wait, Event::Request { request: number });
        if !listens {
            // Nobody took it: even one without a key may ask again.
            self.requests[number as usize].tries -= 1;
            return;
        }
        let ticket = Ticket(u64::from(number));
        let input = match self.requests[number as usize].wish.clone() {
            Wish::Jobs(order) => self.submission(number, ticket, &order),
            Wish::Cancel(job) => Input::Cancel(CancelRequest { ticket, job, by: String::new() }),
            Wish::Release(job) => Input::Release(ReleaseRequest { ticket, job, by: String::new() }),
            Wish::Operate(worker, operation) => Input::Operate(ticket, worker, operation),
        };
        self.hand_in(input);
    }

    fn submission(&mut self, number: u32, ticket: Ticket, order: &Order) -> Input {
        let now = self.server.clock.utc(self.now);
        let new = NewJob {
            revision: self.workload.revision(order.definition),
            priority: order.priority,
            timeout: order.timeout,
            run_at: order.delay.map(|delay| now + delay),
            ..NewJob::default()
        };
        let jobs = vec![new; order.count];
        let disk = &self.server.disk;
        let key = self.requests[number as usize].key.clone().map(|key| Key {
            found: disk.keys.get(&key).copied(),
            read_at: disk.group,
            digest: order.digest,
            key,
        });
        Input::Submit(Submit {
            ticket,
            jobs,
            batch: order.count > 1,
            require_worker: order.require_worker,
            key,
        })
    }

    /// The server has answered. The answer may be lost on its way.
    pub(crate) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        let Some(request) = self.requests.get_mut(ticket.0 as usize) else { return };
        let lost = self.dice.permille(self.swarm.answers_lost);
        request.answered |= !lost;
        self.trace.say(self.now, || format!("client  is told {}", crate::trace::answer(&answer)));
        self.oracle.answered(self.now, &self.server.disk, request, &answer);
    }
}

/// A client that was never answered gives up some day.
const TRIES_MAX: u32 = 20;
