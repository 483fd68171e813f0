//! Workers: who is there, who is silent, who takes nothing new.

use std::time::Duration;

use super::budgets::given_up_after;
use super::matching::{has_asked_labels, is_asked_for, is_listed, matches};
use super::resources;
use super::{Drain, Job, LiveState, Model, Worker};
use crate::world::protocol::order::StopCause;
use crate::world::protocol::report::Availability;
use crate::world::protocol::{RuntimeKind, Timestamp, Token, Uptime, WorkerId};
use crate::world::scheduler::definition::OnLost;
use crate::world::scheduler::ids::Ticket;
use crate::world::scheduler::input::{Connected, Operation};
use crate::world::scheduler::step::{Answer, Rejection};

impl Worker {
    /// A frame came in.
    pub(super) fn hear(&mut self, at: Uptime) {
        self.heard = self.heard.max(at);
        if self.session.is_some() && self.settled {
            self.contact = self.contact.max(at);
        }
    }

    /// Returns true if this start of it may take over. A later one waits until the old connection has been silent for half a lease in which we
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

    /// When it is unreachable, or once it is: when a session on which nothing comes is closed.
    pub(super) fn lease_end(&self, lease: Duration) -> Option<Uptime> {
        match (self.unreachable, self.session) {
            (false, _) => Some(self.contact + lease),
            (true, Some(_)) => Some(self.heard.max(self.contact) + lease),
            (true, None) => None,
        }
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots_ordered.unwrap_or(self.slots)
    }
}

impl Model {
    pub(super) fn connect(&mut self, hello: Connected) {
        let known = self.workers.iter().position(|it| it.secret_hash == hello.secret_hash);
        let now = self.now.up;
        let is_revoked = known.is_some_and(|index| self.workers[index].revoked);
        let is_it =
            !is_revoked && known.is_none_or(|index| self.workers[index].lets_in(hello.incarnation.0, now));
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
        worker.unreconciled_since.get_or_insert(now);
        if worker.incarnation != hello.incarnation.0 {
            worker.incarnation = hello.incarnation.0;
            worker.last_report = None;
            worker.exclusions.clear();
            worker.failed.clear();
            worker.suspect = None;
        }
        worker.leaving = false;
        worker.name = hello.name;
        worker.slots = hello.slots;
        worker.backlog = hello.backlog;
        worker.offers = offers(&hello.runtimes);
        worker.sees = sees(&hello.runtimes);
        worker.labels = hello.labels;
        worker.protocol = hello.versions.highest;
        worker.offer = hello.resources;
        worker.is_known = true;
        worker.runtime_broken = runtime_broken(&hello.runtimes);
        worker.told.clear();
        worker.announced.clear();
        worker.unassigned.clear();
        // A drain is an order to one process: if that has left with nothing, the next one is to stay.
        if let Some(drain) = worker.drain.filter(|it| it.process != Some(worker.incarnation)) {
            let has_left = drain.process.is_some() && is_idle;
            worker.drain =
                (!has_left).then_some(Drain { process: Some(worker.incarnation), is_over: false, ..drain });
        }
        worker.hear(now);
        worker.reported = now;
        let (id, last) = (worker.id, worker.last_report.unwrap_or_default());
        self.unpin_unlisted(id);
        if let Some(old) = old {
            self.say(format!("close {old}: Replaced"));
        }
        self.say(format!("to {}: welcome w{id} after {last}", hello.session));
    }

    /// Returns true if another worker is connected under this name, or was a moment ago and an unknown worker asks for it. A worker with attempts is let in all the
    /// same.
    fn is_name_taken(&self, known: Option<usize>, name: &str) -> bool {
        if known.is_some_and(|index| !self.held(self.workers[index].id).is_empty()) {
            return false;
        }
        let is_kept =
            |it: &Worker| it.session.is_some() || (known.is_none() && !it.unreachable && !it.revoked);
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
            unreconciled_since: None,
            incarnation: 0,
            waiting: None,
            last_report: None,
            heard: self.now.up,
            reported: self.now.up,
            contact: self.now.up,
            unreachable: false,
            cordoned: false,
            cordon_end: None,
            revoked: false,
            leaving: false,
            drain: None,
            slots: 0,
            slots_ordered: None,
            backlog: 0,
            offers: false,
            offer: Default::default(),
            labels: Vec::new(),
            labels_set: Vec::new(),
            protocol: 0,
            is_known: false,
            runtime_broken: false,
            sees: false,
            told: Vec::new(),
            exclusions: Vec::new(),
            failed: Vec::new(),
            suspect: None,
            announced: Vec::new(),
            unassigned: Vec::new(),
            unmanaged: Vec::new(),
            doubts: Vec::new(),
        });
        self.workers.len() - 1
    }

    /// The jobs whose attempt this worker has.
    pub(crate) fn held(&self, worker: WorkerId) -> Vec<u64> {
        let holds = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.worker == worker);
        self.jobs.iter().filter(holds).map(|job| job.id).collect()
    }

    /// The job whose current attempt has this token, and is this worker's.
    pub(super) fn bearer(&self, token: Token, worker: WorkerId) -> Option<u64> {
        let bears = |job: &&Job| job.attempt().is_some_and(|it| it.token == token && it.worker == worker);
        self.jobs.iter().find(bears).map(|job| job.id)
    }

    /// Its lease has run out: what it has waits for it until `lost_after`, counted from when it was last heard of.
    pub(super) fn fall_silent(&mut self, id: u64) {
        let now = self.now.up;
        let lease = self.intervals.lease;
        let worker = self.worker_mut(WorkerId(id)).expect("its lease is watched");
        let was_unreachable = std::mem::replace(&mut worker.unreachable, true);
        let (id, contact) = (worker.id, worker.contact);
        if worker.heard + lease <= now
            && let Some(session) = worker.session.take()
        {
            self.say(format!("close {session}: Silent"));
        }
        if was_unreachable {
            return;
        }
        for job in self.held(id) {
            let live = self.job(job).expect("it is held");
            let stopping = live.attempt().and_then(|attempt| attempt.stopping);
            let after = given_up_after(live, stopping == Some(StopCause::Cancel));
            let attempt = self.attempt_mut(job).expect("it is held");
            if let Some(after) = after {
                attempt.loss = Some((contact + after).max(now));
            }
            let token = attempt.token;
            if !std::mem::replace(&mut attempt.missed, true) {
                self.say(format!("j{job} noted {token} unreachable on w{id}"));
            }
        }
    }

    /// When to look again for a worker that could take the place of `holder`, which is silent: there is none now. Workers that are only
    /// full, cordoned or excluded could; those that are leaving could not, and none could as long as the definition or the batch is paused. A
    /// revoked worker does not come back, so it is not waited for.
    pub(super) fn next_look(&self, job: &Job, holder: &Worker) -> Option<Uptime> {
        let (definition, now) = (&job.definition, self.now.up);
        let stopping = job.attempt().and_then(|attempt| attempt.stopping);
        let week = Duration::from_secs(7 * 24 * 60 * 60);
        let in_queue = definition.waits.queue.map(|queue| definition.loss.after + queue);
        let limit = holder.contact + in_queue.unwrap_or(week).min(week);
        let is_grouped = definition.limits.concurrency.as_ref().is_some_and(|rule| rule.group.is_some());
        let could_take = |it: &Worker| {
            it.id != holder.id
                && it.session.is_some()
                && !(it.leaving || it.drain.is_some())
                && job.may_be_on(it)
                && has_asked_labels(it, &job.narrowing)
                && (it.offers || it.runtime_broken)
                && matches(it, definition)
                && resources::is_offered(it, definition)
        };
        let waits = definition.loss.on_lost == OnLost::Retry
            && !matches!(stopping, Some(StopCause::Cancel | StopCause::Pinning))
            && !is_grouped
            && !holder.revoked
            && limit > now
            && (self.is_job_on_hold(job) || !self.workers.iter().any(could_take));
        waits.then(|| limit.min(now + self.intervals.lease))
    }

    pub(super) fn operate(&mut self, ticket: Ticket, id: WorkerId, operation: Operation) {
        let now = self.now.utc;
        let is_busy = !self.held(id).is_empty();
        let is_cordon = matches!(operation, Operation::Cordon { .. });
        let answer = match self.worker_mut(id) {
            None => Answer::Rejected(Rejection::UnknownWorker),
            Some(worker) => match operation {
                Operation::Cordon { until, .. } => {
                    (worker.cordoned, worker.cordon_end) = (true, until);
                    Answer::Done
                }
                Operation::Uncordon => {
                    worker.uncordon();
                    Answer::Done
                }
                Operation::Drain(timeout, _) => {
                    let is_away = worker.session.is_none() && !worker.unreachable;
                    let deadline = timeout.map(|timeout: Duration| now + timeout);
                    (worker.cordoned, worker.cordon_end) = (true, None);
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
                Operation::Labels(changes) => {
                    for (name, value) in changes {
                        worker.labels_set.retain(|(label, _)| *label != name);
                        worker.labels_set.extend(value.map(|value| (name, value)));
                    }
                    Answer::Done
                }
                Operation::Reset => {
                    worker.exclusions.clear();
                    worker.failed.clear();
                    worker.suspect = None;
                    Answer::Done
                }
                Operation::Forget if worker.session.is_some() || is_busy => {
                    Answer::Rejected(Rejection::WorkerConnected)
                }
                Operation::Forget => {
                    self.forget(id);
                    Answer::Done
                }
                Operation::Revoke => {
                    self.revoke(id);
                    Answer::Done
                }
                Operation::StopUnmanaged(_) => unreachable!("nobody does that on a walk"),
            },
        };
        let sits = |job: &u64| self.job(*job).and_then(Job::attempt).is_some_and(|it| it.in_backlog);
        let sitting: Vec<u64> = self.held(id).into_iter().filter(sits).collect();
        for job in sitting.into_iter().filter(|_| is_cordon) {
            if self.is_on_a_cordoned_worker(job) {
                self.ask_back(job);
            }
        }
        self.say(format!("reply {}: {answer:?}", ticket.0));
    }

    /// It never comes back, and what it has waits for it as for any that is silent.
    fn revoke(&mut self, id: WorkerId) {
        let worker = self.worker_mut(id).expect("it is revoked");
        worker.revoked = true;
        if let Some(session) = worker.session.take() {
            self.say(format!("to {session}: Refused"));
            self.say(format!("close {session}: Revoked"));
        }
        self.unpin(id);
    }

    fn forget(&mut self, id: WorkerId) {
        self.workers.retain(|worker| worker.id != id);
        self.images.retain(|(worker, _)| *worker != id);
        self.unpin(id);
        self.give_up_confirmations();
        self.say(format!("w{id} forgotten"));
    }

    /// Nobody is pinned to a worker that never comes back.
    fn unpin(&mut self, id: WorkerId) {
        for job in &mut self.jobs {
            if let LiveState::Queued { pinned } = &mut job.standing {
                *pinned = pinned.filter(|worker| *worker != id);
            }
        }
    }

    /// Nobody is pinned to a worker that came back under a name that the job's definition does not list, or that the job itself does not ask for.
    fn unpin_unlisted(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.iter().find(|worker| worker.id == id) else { return };
        for job in &mut self.jobs {
            if let LiveState::Queued { pinned } = &mut job.standing
                && *pinned == Some(id)
                && !(is_listed(worker, &job.definition) && is_asked_for(worker, &job.narrowing))
            {
                *pinned = None;
            }
        }
    }

    /// The time of a cordon has come: as if somebody had uncordoned the worker.
    pub(super) fn end_cordon(&mut self, id: WorkerId) {
        self.worker_mut(id).expect("it is cordoned").uncordon();
        self.say(format!("w{id} takes jobs again"));
    }

    /// Stops all running attempts at the end of a drain.
    pub(super) fn end_drain(&mut self, id: WorkerId) {
        let worker = self.worker_mut(id).expect("it is drained");
        worker.drain.iter_mut().for_each(|drain| drain.is_over = true);
        for job in self.held(id) {
            self.stop(job, StopCause::Drain);
        }
    }
}

impl Worker {
    fn uncordon(&mut self) {
        (self.cordoned, self.cordon_end, self.drain) = (false, None, None);
    }

    /// The end of a cordon that ends by itself.
    pub(super) const fn cordon_end(&self) -> Option<Timestamp> {
        self.cordon_end
    }

    /// The end of a drain that has not come yet.
    pub(super) fn drain_end(&self) -> Option<Timestamp> {
        self.drain.filter(|drain| !drain.is_over)?.deadline
    }
}

pub(super) fn runtime_broken(runtimes: &[(RuntimeKind, Availability)]) -> bool {
    runtimes.iter().any(|(kind, answer)| *kind == RuntimeKind::Fake && !answer.is_available())
}

/// The worker sees what runs there.
pub(super) fn sees(runtimes: &[(RuntimeKind, Availability)]) -> bool {
    runtimes.iter().any(|(kind, answer)| {
        *kind == RuntimeKind::Fake
            && match answer {
                Availability::Available => true,
                Availability::Unavailable(why) => why.starts_with("cannot start jobs: "),
            }
    })
}

pub(super) fn offers(runtimes: &[(RuntimeKind, Availability)]) -> bool {
    runtimes.iter().any(|(kind, answer)| *kind == RuntimeKind::Fake && answer.is_available())
}
