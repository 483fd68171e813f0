//! Clients of the server. One with a key asks again until it is answered; one without gives up.

use std::sync::Arc;
use std::time::Duration;

use scheduler::batches::{BatchOptions, BatchUnique, BatchUpdate, MayReplace, NewLimit};
use scheduler::dependencies::{Dependency, Predecessor, PredecessorId, RequiredEnd};
use scheduler::details::JobDetails;
use scheduler::ids::Ticket;
use scheduler::input::{
    BackfillRequest, CancelBatchRequest, CancelRequest, CancelScope, ChangeBatchRequest, IdempotencyKey,
    Input, PauseRequest, ReleaseRequest, Submit,
};
use scheduler::limits::rules::OnDuplicate;
use scheduler::new_jobs::{NewJob, StartTime};
use scheduler::origin::Origin;
use scheduler::pauses::PauseTarget;
use scheduler::placement::narrowing::Narrowing;
use scheduler::placement::rules::{Condition, LabelRule, WorkerSelector};
use scheduler::schedule::backfill::{SlotFate, plan};
use scheduler::step::Answer;

use crate::agenda::Event;
use crate::request::{Command, Request};
use crate::script::Order;
use crate::workload::LABEL;
use crate::world::World;

impl World {
    pub(crate) fn ask(&mut self, command: Command) {
        let number = self.requests.len() as u32;
        let key = match &command {
            Command::Jobs(order) => order.key.map(|key| Arc::from(format!("k{key}"))),
            Command::Cancel(_)
            | Command::Release(_)
            | Command::Operate(..)
            | Command::Pause(..)
            | Command::Backfill { .. } => None,
        };
        self.requests.push(Request { command, key, answered: false, tries: 0 });
        self.agenda.schedule(self.now, Event::Request { request: number });
    }

    /// Operators who asked before have nothing more to say.
    pub(crate) fn forget_operators(&mut self) {
        let is_operators = |command: &Command| matches!(command, Command::Operate(..) | Command::Pause(..));
        for request in self.requests.iter_mut().filter(|it| is_operators(&it.command)) {
            request.answered = true;
        }
    }

    /// Resumes all jobs, whether they are paused or not. A pause that ends soon must do so by itself.
    pub(crate) fn resume_jobs(&mut self) {
        for target in self.holding_targets() {
            if !self.ends_soon(&target) {
                self.ask(Command::Pause(target, false, None));
            }
        }
    }

    /// Resumes what a pause holds back that came after all: it was on its way when all jobs were resumed.
    pub(crate) fn resume_late_pauses(&mut self) {
        for target in self.holding_targets() {
            if self.server.disk.schedules.is_in_force(&target) && !self.ends_soon(&target) {
                self.ask(Command::Pause(target, false, None));
            }
        }
    }

    /// All that can be paused and keep jobs from a start.
    fn holding_targets(&self) -> Vec<PauseTarget> {
        let batches = self.server.disk.schedules.paused_batches().cloned();
        self.workload.paused_jobs().into_iter().chain(batches).collect()
    }

    fn ends_soon(&self, target: &PauseTarget) -> bool {
        let soon = self.server.clock.utc(self.now) + ENDS_SOON;
        self.server.disk.schedules.pause_end(target).is_some_and(|end| end <= soon)
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
        self.agenda.schedule(self.now + wait, Event::Request { request: number });
        if !listens {
            // Nobody took it: even one without a key may ask again.
            self.requests[number as usize].tries -= 1;
            return;
        }
        let ticket = Ticket(u64::from(number));
        let input = match self.requests[number as usize].command.clone() {
            Command::Jobs(order) => self.submission(number, ticket, &order),
            // Every other cancel of a member is one of its whole batch.
            Command::Cancel(job) if number.is_multiple_of(2) && self.server.disk.batch_of(job).is_some() => {
                let batch = self.server.disk.batch_of(job).unwrap_or(job);
                Input::CancelBatch(CancelBatchRequest { ticket, batch, by: REQUESTER.into() })
            }
            // Some others change its limits.
            Command::Cancel(job) if number % 4 == 1 && self.server.disk.batch_of(job).is_some() => {
                let batch = self.server.disk.batch_of(job).unwrap_or(job);
                let mut limit =
                    || self.dice.pick(&[NewLimit::Keep, NewLimit::Lift, NewLimit::Set(2), NewLimit::Set(5)]);
                let update = BatchUpdate { max_failures: limit(), concurrency: limit() };
                Input::ChangeBatch(ChangeBatchRequest { ticket, batch, update })
            }
            Command::Cancel(job) => {
                Input::Cancel(CancelRequest { ticket, job, scope: CancelScope::Any, by: String::new() })
            }
            Command::Release(job) => Input::Release(ReleaseRequest { ticket, job, by: String::new() }),
            Command::Operate(worker, operation) => Input::Operate(ticket, worker, operation),
            Command::Pause(target, paused, lasts) => {
                let until = lasts.map(|lasts| self.server.clock.utc(self.now) + lasts);
                Input::Pause(PauseRequest { ticket, target, paused, until, origin: Origin::default() })
            }
            Command::Backfill { definition, schedule, since, interval } => {
                let to = self.server.clock.utc(self.now);
                let disk = &self.server.disk;
                let reading = disk.schedules.reading(&definition, &schedule.id);
                let slots = plan(&schedule, to - since, to, &reading).unwrap_or_default();
                let open = slots.into_iter().filter(|(_, fate)| *fate == SlotFate::Open);
                Input::Backfill(BackfillRequest {
                    ticket,
                    definition,
                    schedule: schedule.id,
                    slots: open.map(|(slot, _)| slot).collect(),
                    interval,
                    submitted_by: Some(REQUESTER.into()),
                    read_at: disk.group,
                })
            }
        };
        self.hand_in(input);
    }

    fn submission(&mut self, number: u32, ticket: Ticket, order: &Order) -> Input {
        let now = self.server.clock.utc(self.now);
        let new = NewJob {
            revision: self.workload.revision(order.definition),
            priority: order.priority,
            timeout: order.timeout,
            run_at: order.delay.map(|delay| StartTime::At(now + delay)),
            submitted_by: Some(REQUESTER.into()),
            narrowing: narrowing(number),
            details: Some(Box::new(JobDetails {
                labels: vec![(LABEL.into(), (number % 3).to_string())],
                ..JobDetails::default()
            })),
            ..NewJob::default()
        };
        let jobs: Vec<NewJob> = (0..order.count)
            .map(|position| NewJob { after: self.after(number, position), ..new.clone() })
            .collect();
        let jobs = jobs.into();
        // Every other batch gives up after some failures; some run few members at once.
        let options = BatchOptions {
            max_failures: [None, Some(1), None, Some(2)][number as usize % 4],
            concurrency: [None, Some(1), Some(2)][number as usize % 3],
            unique: unique(number),
            ..BatchOptions::default()
        };
        let disk = &self.server.disk;
        let key = self.requests[number as usize].key.clone().map(|key| IdempotencyKey {
            found: disk.keys.get(&key).copied(),
            read_at: disk.group,
            digest: order.digest,
            key,
        });
        Input::Submit(Submit {
            ticket,
            jobs,
            batch: (order.count > 1).then_some(options),
            require_worker: order.require_worker,
            idempotency_key: key,
        })
    }

    /// The predecessors of a job of a request: earlier ones of its request, the last job or batch of the store, several of these, or nothing.
    fn after(&self, number: u32, position: usize) -> Vec<Dependency> {
        let requires = RequiredEnd::ALL[(number as usize + position) % RequiredEnd::ALL.len()];
        let mut after = Vec::new();
        if number.is_multiple_of(3) && position > 0 {
            let on = Predecessor::Member(u32::try_from(position / 2).unwrap_or_default());
            after.push(Dependency { on, requires });
        }
        let disk = &self.server.disk;
        let last = disk.last_job();
        if number.is_multiple_of(5)
            && let Some(row) = disk.row(last)
        {
            let (id, met) = (PredecessorId::Job(last), requires.is_met_by(row.state));
            let on = if met { Predecessor::Ended(id, row.state) } else { Predecessor::Live(id) };
            after.push(Dependency { on, requires });
        }
        if number % 5 == 2
            && let Some((first, ended)) = disk.last_batch()
        {
            let id = PredecessorId::Batch(first);
            let met = ended.filter(|state| requires.is_met_by(*state));
            let on = met.map_or(Predecessor::Live(id), |state| Predecessor::Ended(id, state));
            after.push(Dependency { on, requires });
        }
        after
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

/// The requester of all jobs that no schedule and no hook makes.
pub(crate) const REQUESTER: &str = "client";

/// A client that was never answered gives up some day.
const TRIES_MAX: u32 = 20;

/// A pause that ends within this time is left to itself once faults are over.
const ENDS_SOON: Duration = Duration::from_secs(200);

/// The workers that the jobs of a request ask for: of some by their names, of some by a label that operators change.
fn narrowing(number: u32) -> Option<Arc<Narrowing>> {
    let named = |names: [&str; 2]| names.map(|name| WorkerSelector::Name(name.to_owned())).to_vec();
    let in_a = LabelRule { label: "zone".to_owned(), condition: Condition::In(vec!["a".to_owned()]) };
    match number % 11 {
        2 => Narrowing::asked(named(["w0", "w1"]), Vec::new()),
        5 => Narrowing::asked(Vec::new(), vec![in_a]),
        8 => Narrowing::asked(named(["w1", "w2"]), vec![in_a]),
        _ => None,
    }
}

/// The unique key of a batch: two of five have one of two keys. Most replace the batch that has the key.
fn unique(number: u32) -> Option<BatchUnique> {
    let key = ["a", "b"].get(number as usize % 5)?;
    let on_duplicate = match number % 7 {
        0 => OnDuplicate::Return,
        1 => OnDuplicate::Reject,
        _ => OnDuplicate::Replace,
    };
    Some(BatchUnique { key: (*key).into(), on_duplicate, may_replace: MayReplace::Any })
}
