//! Placement: every waiting job, in order, against every worker.

use std::time::Duration;

use super::budgets;
use super::matching::{has_asked_labels, matches, score};
use super::{Attempt, Job, LiveState, Model, Worker};
use crate::world::protocol::{SessionId, Token, WorkerId};
use crate::world::scheduler::definition::{Definition, RetryOn};
use crate::world::scheduler::placement::exclusion::Excluded;
use crate::world::scheduler::placement::rules::PlacementStrategy;

impl Model {
    /// As long as anybody waits whom somebody can take: the first of them goes to the least loaded of those. Which of several equally
    /// loaded ones that is, was drawn.
    pub(super) fn place(&mut self) -> Result<(), String> {
        let mut drawn = std::mem::take(&mut self.assigned).into_iter();
        while let Some((id, takers)) = self.next_to_place() {
            let Some(assigned) = drawn.next() else {
                return Err(format!("job {id} waits, but workers {takers:?} could take it"));
            };
            if assigned.token.job.0 != id || !takers.contains(&assigned.worker) {
                return Err(format!(
                    "{} goes to {}, but it is {id}'s turn, to one of {takers:?}",
                    assigned.token, assigned.worker
                ));
            }
            if assigned.token.fence.0 != self.last_fence + 1 {
                return Err(format!("fence {} follows {}", assigned.token.fence, self.last_fence));
            }
            self.last_fence += 1;
            self.reserve(id, &assigned)?;
            self.grant(id, assigned.worker, assigned.token);
        }
        match drawn.next() {
            Some(assigned) => Err(format!("{} was assigned, but nobody may take it", assigned.token)),
            None => Ok(()),
        }
    }

    fn next_to_place(&self) -> Option<(u64, Vec<WorkerId>)> {
        let waiting = self.candidates();
        waiting.iter().map(|job| (job.id, self.takers(job))).find(|(_, takers)| !takers.is_empty())
    }

    /// The least loaded worker that may have this job; another one than last time, if the job should avoid that. Of several, those that
    /// have its image.
    fn takers(&self, job: &Job) -> Vec<WorkerId> {
        let has_room = |it: &Worker| match self.load_for(it, job) {
            Some(load) if job.is_limited() => load < 1_000 && self.has_left(it, &job.definition),
            load => load.is_some(),
        };
        let able = self.workers.iter().filter(|it| has_room(it) && self.may_run(it, job));
        let able: Vec<&Worker> = able.collect();
        let avoided = avoided(job);
        let others: Vec<&Worker> = able.iter().filter(|it| avoided != Some(it.id)).copied().collect();
        let able = if others.is_empty() { able } else { others };
        let rank = |it: &Worker| {
            let load = self.load_for(it, job).expect("it has room");
            let is_full = load >= 1_000;
            let load = match job.definition.placement.strategy {
                PlacementStrategy::Pack if !is_full => 1_000 - load,
                PlacementStrategy::Spread | PlacementStrategy::Pack => load,
                PlacementStrategy::Random => 0,
            };
            let is_set_aside = self.set_aside.contains_key(&it.id);
            (is_full, is_set_aside, -score(it, &job.definition), load, !self.has_image(it, &job.definition))
        };
        let best = able.iter().map(|it| rank(it)).min();
        if best.is_some_and(|(is_full, ..)| is_full) && self.is_held_back(job) {
            return Vec::new();
        }
        able.into_iter().filter(|it| Some(rank(it)) == best).map(|it| it.id).collect()
    }

    /// Attempts per thousand slots, if there is room for one more: below a thousand a slot is free.
    pub(super) fn own_load(&self, worker: &Worker) -> Option<u32> {
        let is_open = worker.session.is_some() && worker.settled && !worker.unreachable;
        let takes = !worker.cordoned && !worker.leaving && worker.slots() > 0;
        let held = self.burden(worker);
        // A suspect worker gets one job at a time, after its exclusion.
        let is_probed = worker.suspect.is_some() && (self.is_probing(worker) || is_suspended(worker));
        (is_open && takes && !is_probed && held < worker.slots() + worker.backlog)
            .then(|| held * 1_000 / worker.slots())
    }

    /// It is suspect, and has the job that probes it.
    pub(super) fn is_probing(&self, worker: &Worker) -> bool {
        let probe = worker.suspect.flatten().and_then(|job| self.job(job)?.attempt());
        probe.is_some_and(|attempt| attempt.worker == worker.id)
    }

    /// Number of its attempts, from any server.
    pub(crate) fn burden(&self, worker: &Worker) -> u32 {
        (self.held(worker.id).len() + worker.unmanaged.len()) as u32
    }

    pub(super) fn may_run(&self, worker: &Worker, job: &Job) -> bool {
        let pinned = match job.standing {
            LiveState::Queued { pinned } => pinned,
            // A prefetched attempt that is recalled would be queued again.
            _ => self.pinned_to(job),
        };
        let has_labels = matches(worker, &job.definition) && has_asked_labels(worker, &job.narrowing);
        let is_able = worker.offers && has_labels && job.may_be_on(worker);
        pinned.is_none_or(|only| only == worker.id) && is_able && !is_excluded(worker, &job.definition)
    }

    /// The only worker that it may run on: where it failed by itself, if that is still known.
    pub(super) fn pinned_to(&self, job: &Job) -> Option<WorkerId> {
        let (worker, by_platform) = job.last?;
        let stays = job.definition.retry.on == RetryOn::Same && !by_platform;
        let may_stay = self.worker(worker).is_some_and(|it| job.may_be_on(it) && !it.revoked);
        (stays && may_stay).then_some(worker)
    }

    fn grant(&mut self, id: u64, worker: WorkerId, token: Token) {
        let now = self.now;
        let free = self.worker(worker).and_then(|it| self.own_load(it)).is_some_and(|load| load < 1_000);
        let session = self.ready_session(worker).expect("only who is settled is given anything");
        self.has_its_turn(id);
        self.use_rate(id);
        self.starts(id);
        if let Some(probe) = self.worker_mut(worker).and_then(|it| it.suspect.as_mut()) {
            *probe = Some(id);
        }
        let job = self.job_mut(id).expect("it waits");
        job.attempts += 1;
        let number = job.attempts;
        job.standing = LiveState::Held(Attempt {
            token,
            worker,
            assigned: now,
            started: None,
            stopping: None,
            in_backlog: !free,
            recalled: false,
            unsettled: false,
            session: Some(session),
            begun: false,
            overrun: None,
            slow: None,
            was_slow: false,
            loss: None,
            missed: false,
            offer: None,
        });
        self.say(format!("j{token} assigned w{worker} attempt {number} on {session}"));
        self.enqueue(id, session);
    }

    /// An attempt goes out, after its definition if this session has not heard of it.
    pub(super) fn enqueue(&mut self, id: u64, session: SessionId) {
        let job = self.job(id).expect("it is held").clone();
        let revision = job.definition.revision.0;
        let worker = self.by_session(session).expect("it is there");
        if !worker.told.contains(&revision) {
            worker.told.push(revision);
            self.say(format!("to {session}: define {}", job.definition.name));
        }
        self.say_enqueue(&job, session);
        self.wait_for_report(id, false);
    }

    pub(super) fn say_enqueue(&mut self, job: &Job, session: SessionId) {
        let token = job.attempt().expect("it is held").token;
        // With ageing workers sort by time only: in that of the lowest priority there is.
        let (priority, due) = match job.ageing {
            Some(period) => (0, job.exact_due() - 128 * period),
            None => (job.priority, job.due.0),
        };
        let timeout = job.definition.timeout;
        let line = format!(
            "enqueue {token} p{priority} due {due} for {timeout:?} with {:?} and {:?}",
            budgets::memory(job),
            self.gpus_of(token)
        );
        self.say(format!("to {session}: {line}"));
    }

    /// Recalls prefetched attempts while a slot is free elsewhere, the last in order first.
    pub(super) fn recall(&mut self) {
        let slots: u32 = self.workers.iter().map(|it| self.free_slots(it)).sum();
        let is_idle =
            slots == 0 || !self.jobs.iter().any(|job| job.attempt().is_some_and(|it| it.in_backlog));
        if is_idle || self.in_vain.is_some_and(|at| at + SEARCH > self.now.up) {
            return;
        }
        self.in_vain = Some(self.now.up);
        // A recall in flight will take a slot.
        let asked = self.workers.iter().filter(|it| self.ready_session(it.id).is_some());
        let asked = asked.flat_map(|it| self.sitting(it));
        let asked = asked.filter(|job| job.attempt().is_some_and(|it| it.recalled)).count() as u32;
        let mut wanted = slots.saturating_sub(asked);
        for worker in self.workers.clone() {
            let Some(session) = self.ready_session(worker.id) else { continue };
            for job in self.sitting(&worker) {
                let attempt = job.attempt().expect("it is held");
                let others = self.workers.iter().filter(|it| it.id != worker.id && self.free_slots(it) > 0);
                let mut others = others.filter(|it| avoided(&job) != Some(it.id));
                let has_takers = others.any(|it| self.may_run(it, &job));
                let is_ripe = attempt.assigned.up + SITTING <= self.now.up;
                let is_fixed = attempt.recalled || attempt.unsettled || attempt.stopping.is_some();
                if wanted == 0 || is_fixed || !has_takers || !is_ripe {
                    continue;
                }
                wanted -= 1;
                self.wait_for_release(job.id);
                self.say(format!("to {session}: recall {}", attempt.token));
            }
        }
    }

    /// A job that cannot be placed recalls the last prefetched attempt of a lower priority on a worker that could run it.
    pub(super) fn recall_for_higher(&mut self) {
        // Room in a backlog is of no use to a job with limits.
        let waits = |it: &&Job| {
            matches!(it.standing, LiveState::Queued { .. }) && !it.is_limited() && !self.is_job_on_hold(it)
        };
        let mut waiting: Vec<Job> = self.jobs.iter().filter(waits).cloned().collect();
        waiting.sort_by_key(Job::order);
        let in_backlogs = self.jobs.iter().filter(|job| job.attempt().is_some_and(|it| it.in_backlog));
        let lowest = in_backlogs.map(Job::steps).min();
        let (Some(highest), Some(lowest)) = (waiting.first().map(Job::steps), lowest) else { return };
        if highest <= lowest || self.searched.is_some_and(|at| at + SEARCH > self.now.up) {
            return;
        }
        self.searched = Some(self.now.up);
        let mut givers: Vec<Job> = Vec::new();
        for worker in self.workers.iter().filter(|it| self.ready_session(it.id).is_some()) {
            if worker.cordoned || worker.leaving || worker.unreachable {
                continue;
            }
            let sitting = self.sitting(worker);
            givers.extend(sitting);
        }
        givers.sort_by_key(|job| std::cmp::Reverse((-job.steps(), job.exact_due(), job.id)));
        // Workers on which a recall is in flight already.
        let mut coming = givers.clone();
        coming.retain(|job| job.attempt().expect("it is held").recalled);
        givers.retain(|job| {
            let attempt = job.attempt().expect("it is held");
            !(attempt.recalled || attempt.unsettled || attempt.stopping.is_some())
        });
        let mut recalled: Vec<Job> = Vec::new();
        for job in waiting.iter().filter(|job| job.steps() > lowest) {
            let may_follow = |it: &Job| {
                let worker = it.attempt().expect("it is held").worker;
                let worker = self.worker(worker).expect("who holds something is not forgotten");
                self.may_run(worker, job) && !self.is_set_aside_before(worker, job)
            };
            if let Some(at) = coming.iter().position(may_follow) {
                coming.remove(at);
            } else if let Some(at) = givers.iter().position(|it| it.steps() < job.steps() && may_follow(it)) {
                let it = givers.remove(at);
                if it.attempt().expect("it is held").assigned.up + SITTING <= self.now.up {
                    recalled.push(it);
                }
            }
        }
        for job in recalled {
            self.wait_for_release(job.id);
            let attempt = self.attempt_mut(job.id).expect("it is held");
            let (token, worker) = (attempt.token, attempt.worker);
            let session = self.ready_session(worker).expect("it was asked for");
            self.say(format!("to {session}: recall {token}"));
        }
    }

    /// Prefetched attempts in a worker's backlog, the last in order first.
    pub(super) fn sitting(&self, worker: &Worker) -> Vec<Job> {
        let queued = self.burden(worker).saturating_sub(worker.slots());
        let mut sitting: Vec<Job> = self
            .jobs
            .iter()
            .filter(|job| job.attempt().is_some_and(|it| it.worker == worker.id && it.in_backlog))
            .cloned()
            .collect();
        sitting.sort_by_key(|job| std::cmp::Reverse((-job.steps(), job.exact_due(), job.id)));
        sitting.truncate(queued as usize);
        sitting
    }

    fn free_slots(&self, worker: &Worker) -> u32 {
        let is_free = self.load(worker).is_some_and(|load| load < 1_000);
        if is_free { worker.slots() - self.burden(worker) } else { 0 }
    }
}

/// The worker to avoid: that of the last infrastructure failure, or of the last failure if the definition wants another worker.
fn avoided(job: &Job) -> Option<WorkerId> {
    let avoids = |by_platform: bool| by_platform || job.definition.retry.on == RetryOn::Other;
    job.last.filter(|(_, by_platform)| avoids(*by_platform)).map(|(worker, _)| worker)
}

pub(super) fn is_suspended(worker: &Worker) -> bool {
    worker.exclusions.iter().any(|it| it.active && it.of == Excluded::Suspect)
}

pub(super) fn is_excluded(worker: &Worker, definition: &Definition) -> bool {
    worker.exclusions.iter().filter(|it| it.active).any(|it| match it.of {
        Excluded::Anything | Excluded::Suspect => true,
        Excluded::Runtime(kind) => kind == definition.container.runtime,
        Excluded::Revision(revision) => revision == definition.revision,
    })
}

/// An attempt that has been in a backlog for less may be on its way into a slot.
pub(super) const SITTING: Duration = Duration::from_millis(200);

/// All backlogs are searched no more often.
const SEARCH: Duration = Duration::from_millis(100);
