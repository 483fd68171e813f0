//! Limits: holders and waiting jobs are counted each time, by a search through all jobs. Turns of keys are a list.

use super::matching::Asked;
use super::{Job, LiveState, Model, resources};
use crate::world::protocol::WorkerId;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::limits::keys::JobKeys;
use crate::world::scheduler::limits::{LimitId, LimitKind};
use crate::world::scheduler::step::PendingReason;

/// Waiting jobs with the same definition, worker to be pinned to, and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    kind: (u128, Asked),
    pinned: Option<WorkerId>,
    keys: Option<JobKeys>,
}

/// When a lane with keys had its turn.
pub(super) type Turn = (Lane, u64);

impl Model {
    /// The limit of permits that a job needs, and its value.
    pub(super) fn permit_of(job: &Job) -> Option<(LimitId, usize)> {
        Self::permit_for(&job.definition, job.keys.as_ref())
    }

    /// The limit of permits that a job with these keys needs, and its value.
    pub(super) fn permit_for(definition: &Definition, keys: Option<&JobKeys>) -> Option<(LimitId, usize)> {
        let rule = definition.limits.concurrency.as_ref()?;
        let (kind, name) = match &rule.group {
            Some(group) => (LimitKind::Group, group.as_str()),
            None => (LimitKind::Definition, definition.name.as_str()),
        };
        let key = keys.and_then(|keys| keys.concurrency.clone());
        Some((LimitId { kind, name: name.into(), key }, rule.limit as usize))
    }

    fn rate_of(job: &Job) -> Option<(LimitId, u64, u64)> {
        let rule = job.definition.limits.rate.as_ref()?;
        let key = job.keys.as_ref().and_then(|keys| keys.rate.clone());
        let interval = rule.per.as_nanos().div_ceil(u128::from(rule.limit)) as u64;
        let id = LimitId { kind: LimitKind::Rate, name: job.definition.name.as_str().into(), key };
        Some((id, interval, u64::from(rule.burst)))
    }

    pub(super) fn has_permit(&self, job: &Job) -> bool {
        let Some((id, permits)) = Self::permit_of(job) else { return true };
        let holds =
            |other: &&Job| other.attempt().is_some() && Self::permit_of(other).is_some_and(|it| it.0 == id);
        self.jobs.iter().filter(holds).count() < permits
    }

    pub(super) fn has_token(&self, job: &Job) -> bool {
        let Some((id, interval, burst)) = Self::rate_of(job) else { return true };
        let recovered = self.rates.iter().find(|(of, _)| *of == id).map_or(0, |(_, recovered)| *recovered);
        recovered.saturating_sub(interval * (burst - 1)) <= self.now.up.0
    }

    /// Both jobs wait, in different lanes, and need a permit or a token of the same limit.
    pub(super) fn share_limit(one: &Job, other: &Job) -> bool {
        let both_wait = lane(one).is_some() && lane(other).is_some() && lane(one) != lane(other);
        let permits = Self::permit_of(one).zip(Self::permit_of(other)).is_some_and(|(a, b)| a.0 == b.0);
        let rates = Self::rate_of(one).zip(Self::rate_of(other)).is_some_and(|(a, b)| a.0 == b.0);
        both_wait && (permits || rates)
    }

    /// Nothing but workers keeps the job from its start.
    pub(super) fn is_let(&self, job: &Job) -> bool {
        !self.is_job_on_hold(job) && self.has_permit(job) && self.has_token(job)
    }

    /// The job starts under its rate.
    pub(super) fn use_rate(&mut self, id: u64) {
        let job = self.job(id).expect("it starts").clone();
        let Some((id, interval, _)) = Self::rate_of(&job) else { return };
        let before = self.rates.iter().find(|(of, _)| *of == id).map_or(0, |(_, recovered)| *recovered);
        let recovered = before.max(self.now.up.0) + interval;
        self.rates.retain(|(of, _)| *of != id);
        let ahead = (recovered - self.now.up.0).div_ceil(1_000_000);
        self.say(format!("{id} recovers {}", self.now.utc.0 + ahead as i64));
        self.rates.push((id, recovered));
    }

    /// Why a job with limits waits, if it is not for workers.
    pub(super) fn why_limited(&self, job: &Job, by_workers: PendingReason) -> Option<PendingReason> {
        let is_free = |it: &super::Worker| self.load(it).is_some_and(|load| load < 1_000);
        match () {
            () if !self.has_permit(job) => Some(PendingReason::Limited),
            () if !self.has_token(job) => Some(PendingReason::RateLimited),
            () if by_workers != PendingReason::Soon => None,
            () if job.is_limited() && !self.workers.iter().any(is_free) => Some(PendingReason::Busy),
            () => None,
        }
    }

    /// A job with limits waits before this one and lacks only a free slot.
    pub(super) fn is_held_back(&self, job: &Job) -> bool {
        let waits = |it: &&Job| matches!(it.standing, LiveState::Queued { .. }) && it.is_limited();
        let mut before =
            self.jobs.iter().filter(waits).filter(|it| it.order() < job.order() && self.is_let(it));
        before.any(|it| {
            let able =
                |worker: &super::Worker| self.may_run(worker, it) && self.has_left(worker, &it.definition);
            self.workers.iter().any(|worker| self.load_for(worker, it).is_some() && able(worker))
        })
    }

    /// The waiting jobs that may be next, in order: of each lane the first one; of lanes that take turns, by turn, at the place of the
    /// first of their jobs that may start.
    pub(super) fn candidates(&self) -> Vec<Job> {
        let waits = |job: &&Job| matches!(job.standing, LiveState::Queued { .. });
        let mut firsts: Vec<Job> = Vec::new();
        let mut waiting: Vec<&Job> = self.jobs.iter().filter(waits).filter(|job| self.is_let(job)).collect();
        waiting.sort_by_key(|job| job.order());
        for job in waiting {
            let is_first = !firsts.iter().any(|it| lane(it) == lane(job));
            if is_first {
                firsts.push(job.clone());
            }
        }
        let place = |job: &Job| {
            let shares = |it: &&Job| {
                it.id == job.id || (takes_turns(it) && takes_turns(job) && it.kind() == job.kind())
            };
            let first = firsts.iter().filter(shares).min_by_key(|it| it.order()).expect("itself");
            // Those of the priority of the oldest take turns, whatever their age.
            (first.order(), job.priority != first.priority)
        };
        let turn = |job: &Job| {
            self.turns.iter().find(|(of, _)| Some(of) == lane(job).as_ref()).map_or(0, |(_, turn)| *turn)
        };
        let mut sorted = firsts.clone();
        sorted.sort_by_key(|job| (place(job), turn(job)));
        sorted
    }

    /// The first of the jobs that wait in the lane of this one.
    pub(super) fn first_of_lane(&self, job: &Job) -> Option<&Job> {
        let of = lane(job)?;
        self.jobs.iter().filter(|it| lane(it).as_ref() == Some(&of)).min_by_key(|it| it.order())
    }

    /// A job begins to wait: a lane that was empty has its turn after all others.
    pub(super) fn begins_to_wait(&mut self, id: u64) {
        let job = self.job(id).expect("it waits").clone();
        self.drop_empty_lanes(Some(id));
        if takes_turns(&job)
            && let Some(lane) = lane(&job)
            && !self.turns.iter().any(|(of, _)| *of == lane)
        {
            self.turn += 1;
            self.turns.push((lane, self.turn));
        }
    }

    /// A job starts: its lane has had its turn. Called while it waits.
    pub(super) fn has_its_turn(&mut self, id: u64) {
        self.drop_empty_lanes(None);
        let job = self.job(id).expect("it waits").clone();
        if takes_turns(&job) {
            self.turn += 1;
            let (lane, turn) = (lane(&job), self.turn);
            self.turns.iter_mut().filter(|(of, _)| lane.as_ref() == Some(of)).for_each(|(_, it)| *it = turn);
        }
    }

    /// Forgets the turns of lanes in which nobody waits but, perhaps, one job that has just come.
    pub(super) fn drop_empty_lanes(&mut self, new: Option<u64>) {
        let waiting: Vec<Lane> =
            self.jobs.iter().filter(|job| Some(job.id) != new).filter_map(lane).collect();
        self.turns.retain(|(of, _)| waiting.contains(of));
    }
}

impl Job {
    pub(super) fn is_limited(&self) -> bool {
        let limits = &self.definition.limits;
        limits.concurrency.is_some() || limits.rate.is_some() || resources::reserves(&self.definition)
    }
}

fn lane(job: &Job) -> Option<Lane> {
    let LiveState::Queued { pinned } = job.standing else { return None };
    if job.batch_paused {
        return None;
    }
    Some(Lane { kind: job.kind(), pinned, keys: job.keys.clone() })
}

fn takes_turns(job: &Job) -> bool {
    matches!(job.standing, LiveState::Queued { pinned: None }) && job.keys.is_some() && !job.batch_paused
}

/// When rates have recovered from all starts, in nanoseconds of the monotonic clock.
pub(super) type Rates = Vec<(LimitId, u64)>;
