//! Who gets what: every job that waits, in order, against every worker.

use std::time::Duration;

use super::budgets;
use super::{Attempt, Job, Model, Standing, Worker};
use crate::world::protocol::{SessionId, Token, WorkerId};
use crate::world::scheduler::definition::{Definition, RetryOn};
use crate::world::scheduler::exclusion::Excluded;
use crate::world::scheduler::snapshot::Waiting;
use crate::world::scheduler::step::PendingReason;

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
            self.grant(id, assigned.worker, assigned.token);
        }
        match drawn.next() {
            Some(assigned) => Err(format!("{} was assigned, but nobody may take it", assigned.token)),
            None => Ok(()),
        }
    }

    fn next_to_place(&self) -> Option<(u64, Vec<WorkerId>)> {
        let mut waiting: Vec<&Job> =
            self.jobs.iter().filter(|job| matches!(job.standing, Standing::Queued { .. })).collect();
        waiting.sort_by_key(|job| job.order());
        waiting.into_iter().map(|job| (job.id, self.takers(job))).find(|(_, takers)| !takers.is_empty())
    }

    /// The least loaded of those who may have this job; of the others first, if it should not go where it was.
    fn takers(&self, job: &Job) -> Vec<WorkerId> {
        let able = self.workers.iter().filter(|it| self.load(it).is_some() && self.may_run(it, job));
        let able: Vec<&Worker> = able.collect();
        let avoided = avoided(job);
        let others: Vec<&Worker> = able.iter().filter(|it| avoided != Some(it.id)).copied().collect();
        let able = if others.is_empty() { able } else { others };
        let least = able.iter().filter_map(|it| self.load(it)).min();
        able.into_iter().filter(|it| self.load(it) == least).map(|it| it.id).collect()
    }

    /// Attempts per thousand slots, if there is room for one more: below a thousand a slot is free.
    fn load(&self, worker: &Worker) -> Option<u32> {
        let is_open = worker.session.is_some() && worker.settled && !worker.unreachable;
        let takes = !worker.cordoned && !worker.leaving && worker.slots() > 0;
        let held = self.burden(worker);
        (is_open && takes && held < worker.slots() + worker.backlog).then(|| held * 1_000 / worker.slots())
    }

    /// How many attempts it has, whoever gave them.
    pub(crate) fn burden(&self, worker: &Worker) -> u32 {
        (self.held(worker.id).len() + worker.unmanaged.len()) as u32
    }

    fn may_run(&self, worker: &Worker, job: &Job) -> bool {
        let pinned = match job.standing {
            Standing::Queued { pinned } => pinned,
            // What sits in a backlog and is asked back would be queued again.
            _ => self.pinned_to(job),
        };
        pinned.is_none_or(|only| only == worker.id) && worker.offers && !is_excluded(worker, &job.definition)
    }

    /// The only worker that it may run on: where it failed by itself, if that is still known.
    pub(super) fn pinned_to(&self, job: &Job) -> Option<WorkerId> {
        let (worker, by_platform) = job.last?;
        let stays = job.definition.retry.on == RetryOn::Same && !by_platform;
        (stays && self.worker(worker).is_some()).then_some(worker)
    }

    fn grant(&mut self, id: u64, worker: WorkerId, token: Token) {
        let now = self.now;
        let free = self.worker(worker).and_then(|it| self.load(it)).is_some_and(|load| load < 1_000);
        let session = self.ready_session(worker).expect("only who is settled is given anything");
        let job = self.job_mut(id).expect("it waits");
        job.attempts += 1;
        let number = job.attempts;
        job.standing = Standing::Held(Attempt {
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
            loss: None,
        });
        self.say(format!("j{token} assigned w{worker} attempt {number} on {session}"));
        self.enqueue(id, session);
    }

    /// An attempt goes out, after its definition if this session has not heard of it.
    pub(super) fn enqueue(&mut self, id: u64, session: SessionId) {
        let job = self.job(id).expect("it is held").clone();
        let token = job.attempt().expect("it is held").token;
        let revision = job.definition.revision.0;
        let worker = self.by_session(session).expect("it is there");
        if !worker.told.contains(&revision) {
            worker.told.push(revision);
            self.say(format!("to {session}: define {}", job.definition.name));
        }
        let (priority, due, timeout) = (job.priority, job.due.0, job.definition.timeout);
        let line =
            format!("enqueue {token} p{priority} due {due} for {timeout:?} with {:?}", budgets::memory(&job));
        self.say(format!("to {session}: {line}"));
    }

    /// What sits in a backlog while a slot is free elsewhere is asked back, the last in order first.
    pub(super) fn recall(&mut self) {
        let mut wanted: u32 = self.workers.iter().map(|it| self.free_slots(it)).sum();
        let is_idle =
            wanted == 0 || !self.jobs.iter().any(|job| job.attempt().is_some_and(|it| it.in_backlog));
        if is_idle || self.in_vain.is_some_and(|at| at + SEARCH > self.now.up) {
            return;
        }
        self.in_vain = Some(self.now.up);
        for worker in self.workers.clone() {
            let Some(session) = self.ready_session(worker.id) else { continue };
            for job in self.sitting(&worker) {
                let attempt = job.attempt().expect("it is held");
                let others = self.workers.iter().filter(|it| it.id != worker.id && self.free_slots(it) > 0);
                let mut others = others.filter(|it| avoided(&job) != Some(it.id));
                let has_takers = others.any(|it| self.may_run(it, &job));
                let is_ripe = attempt.assigned.up + SITTING <= self.now.up;
                let is_fixed = attempt.recalled || attempt.unsettled || attempt.stopping.is_some();
                if has_takers && !is_fixed {
                    self.in_vain = None;
                }
                if wanted == 0 || is_fixed || !has_takers || !is_ripe {
                    continue;
                }
                wanted -= 1;
                self.attempt_mut(job.id).expect("it is held").recalled = true;
                self.say(format!("to {session}: recall {}", attempt.token));
            }
        }
    }

    /// Who waits in vain takes the place of the last of those with a lower priority that sit in a backlog where it may go.
    pub(super) fn recall_for_higher(&mut self) {
        let mut waiting: Vec<Job> =
            self.jobs.iter().filter(|it| matches!(it.standing, Standing::Queued { .. })).cloned().collect();
        let order = |job: &Job| {
            let pinned = matches!(job.standing, Standing::Queued { pinned: Some(_) });
            (-i16::from(job.priority), !pinned, job.due, job.id)
        };
        waiting.sort_by_key(order);
        let in_backlogs = self.jobs.iter().filter(|job| job.attempt().is_some_and(|it| it.in_backlog));
        let lowest = in_backlogs.map(|job| job.priority).min();
        let (Some(highest), Some(lowest)) = (waiting.first().map(|job| job.priority), lowest) else { return };
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
        givers.sort_by_key(|job| std::cmp::Reverse((-i16::from(job.priority), job.due, job.id)));
        // Where a place is being made already.
        let mut coming = givers.clone();
        coming.retain(|job| job.attempt().expect("it is held").recalled);
        givers.retain(|job| {
            let attempt = job.attempt().expect("it is held");
            !(attempt.recalled || attempt.unsettled || attempt.stopping.is_some())
        });
        let mut recalled: Vec<Job> = Vec::new();
        for job in waiting.iter().filter(|job| job.priority > lowest) {
            let may_follow = |it: &Job| {
                let worker = it.attempt().expect("it is held").worker;
                self.may_run(self.worker(worker).expect("who holds something is not forgotten"), job)
            };
            if let Some(at) = coming.iter().position(may_follow) {
                coming.remove(at);
            } else if let Some(at) = givers.iter().position(|it| it.priority < job.priority && may_follow(it))
            {
                let it = givers.remove(at);
                if it.attempt().expect("it is held").assigned.up + SITTING <= self.now.up {
                    recalled.push(it);
                }
            }
        }
        for job in recalled {
            let attempt = self.attempt_mut(job.id).expect("it is held");
            attempt.recalled = true;
            let (token, worker) = (attempt.token, attempt.worker);
            let session = self.ready_session(worker).expect("it was asked for");
            self.say(format!("to {session}: recall {token}"));
        }
    }

    /// What sits in a worker's backlog, the last in order first.
    fn sitting(&self, worker: &Worker) -> Vec<Job> {
        let queued = self.burden(worker).saturating_sub(worker.slots());
        let mut sitting: Vec<Job> = self
            .jobs
            .iter()
            .filter(|job| job.attempt().is_some_and(|it| it.worker == worker.id && it.in_backlog))
            .cloned()
            .collect();
        sitting.sort_by_key(|job| std::cmp::Reverse((-i16::from(job.priority), job.due, job.id)));
        sitting.truncate(queued as usize);
        sitting
    }

    fn free_slots(&self, worker: &Worker) -> u32 {
        let is_free = self.load(worker).is_some_and(|load| load < 1_000);
        if is_free { worker.slots() - self.burden(worker) } else { 0 }
    }

    /// Why jobs wait, by definition and the worker that they are pinned to, and how many.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let mut waiting: Vec<Waiting> = Vec::new();
        for job in &self.jobs {
            let Standing::Queued { pinned: pinned_to } = job.standing else { continue };
            let revision = job.definition.revision;
            match waiting.iter_mut().find(|it| (it.revision, it.pinned_to) == (revision, pinned_to)) {
                Some(of_its_kind) => of_its_kind.count += 1,
                None => {
                    let reason = self.why(&job.definition, pinned_to);
                    waiting.push(Waiting { revision, pinned_to, reason, count: 1 });
                }
            }
        }
        waiting.sort();
        waiting
    }

    pub(crate) fn pending(&self, job: &Job) -> Option<PendingReason> {
        match job.standing {
            Standing::Scheduled => Some(PendingReason::NotDue),
            Standing::Queued { pinned } => Some(self.why(&job.definition, pinned)),
            Standing::Quarantined => Some(PendingReason::Quarantined),
            Standing::Held(_) | Standing::Ended(_) => None,
        }
    }

    /// The obstacle of the worker who is the nearest to taking it.
    fn why(&self, definition: &Definition, pinned: Option<WorkerId>) -> PendingReason {
        let is_asked = |it: &&Worker| pinned.is_none_or(|only| only == it.id);
        let connected = || self.workers.iter().filter(|it| it.session.is_some()).filter(is_asked);
        let offering = || connected().filter(|it| it.offers);
        let taking = || offering().filter(|it| !it.cordoned && !it.leaving);
        let willing = || taking().filter(|it| !is_excluded(it, definition));
        let has_room = |it: &&Worker| self.burden(it) < it.slots() + it.backlog && it.slots() > 0;
        let with_room = || willing().filter(has_room);
        match () {
            () if connected().next().is_none() && pinned.is_some() => PendingReason::PinnedWorkerAway,
            () if connected().next().is_none() => PendingReason::NoWorker,
            () if offering().next().is_none() => PendingReason::NoRuntime,
            () if taking().next().is_none() => PendingReason::Cordoned,
            () if willing().next().is_none() => PendingReason::Excluded,
            () if with_room().next().is_none() => PendingReason::Busy,
            () => PendingReason::Soon,
        }
    }
}

/// Where the platform failed it last, or where it failed by itself if its definition wants another.
fn avoided(job: &Job) -> Option<WorkerId> {
    let avoids = |by_platform: bool| by_platform || job.definition.retry.on == RetryOn::Other;
    job.last.filter(|(_, by_platform)| avoids(*by_platform)).map(|(worker, _)| worker)
}

fn is_excluded(worker: &Worker, definition: &Definition) -> bool {
    worker.exclusions.iter().filter(|it| it.active).any(|it| match it.of {
        Excluded::Anything => true,
        Excluded::Runtime(kind) => kind == definition.container.runtime,
        Excluded::Revision(revision) => revision == definition.revision,
    })
}

/// What has been in a backlog for less may be on its way into a slot.
const SITTING: Duration = Duration::from_millis(200);

/// All backlogs are searched no more often.
const SEARCH: Duration = Duration::from_millis(100);
