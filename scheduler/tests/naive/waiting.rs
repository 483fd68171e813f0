//! Waiting jobs, and why they wait.

use super::matching::{Asked, has_asked_labels, is_asked_for, is_listed, matches};
use super::placing::is_excluded;
use super::resources;
use super::{Job, LiveState, Model, Worker};
use crate::world::protocol::WorkerId;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::snapshot::Waiting;
use crate::world::scheduler::step::PendingReason;

impl Model {
    /// How many jobs wait, by definition and the worker that they are pinned to, and why. Reasons of jobs with limits are those of the
    /// workers: whether a limit keeps them was perhaps not looked at.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let mut waiting: Vec<Waiting> = Vec::new();
        for job in &self.jobs {
            let LiveState::Queued { pinned: pinned_to } = job.standing else { continue };
            let revision = job.definition.revision;
            let is_apart = job.batch_paused && !self.is_on_hold(&job.definition);
            let is_of_kind = |it: &&mut Waiting| {
                (it.revision, it.pinned_to) == (revision, pinned_to)
                    && it.narrowing == job.narrowing
                    && (self.is_on_hold(&job.definition) || is_apart == (it.reason == PendingReason::Paused))
            };
            match waiting.iter_mut().find(is_of_kind) {
                Some(of_its_kind) => of_its_kind.count += 1,
                None => {
                    let reason = match is_apart {
                        true => PendingReason::Paused,
                        false => self.why_any(&job.definition, &job.narrowing, pinned_to),
                    };
                    let narrowing = job.narrowing.clone();
                    waiting.push(Waiting { revision, narrowing, pinned_to, reason, count: 1 });
                }
            }
        }
        waiting.sort();
        waiting
    }

    /// Puts what is told of waiting jobs into the form of [`Self::waiting`].
    pub(crate) fn without_limits(&self, told: &[Waiting]) -> Vec<Waiting> {
        let mut waiting: Vec<Waiting> = Vec::new();
        for it in told {
            let definition = self.definitions.iter().find(|definition| definition.revision == it.revision);
            let is_paused = it.reason == PendingReason::Paused;
            let limited = definition.filter(|_| !is_paused).filter(|it| {
                it.limits.concurrency.is_some() || it.limits.rate.is_some() || resources::reserves(it)
            });
            let reason =
                limited.map_or(it.reason, |definition| self.why_any(definition, &it.narrowing, it.pinned_to));
            match waiting.iter_mut().find(|other| {
                (other.revision, other.pinned_to) == (it.revision, it.pinned_to)
                    && other.narrowing == it.narrowing
                    && is_paused == (other.reason == PendingReason::Paused)
            }) {
                Some(other) => other.count += it.count,
                None => waiting.push(Waiting { reason, ..it.clone() }),
            }
        }
        waiting.sort();
        waiting
    }

    /// Jobs that are said to wait for a limit have one of this kind. If a slot is free, all limits were looked at, so as many jobs lack it.
    pub(crate) fn fault_of_limits(&self, told: &[Waiting]) -> Option<String> {
        let has_free_slot = self.workers.iter().any(|it| self.load(it).is_some_and(|load| load < 1_000));
        told.iter().find_map(|told| {
            let waits = |job: &&Job| {
                let is_of = job.definition.revision == told.revision;
                is_of
                    && !job.batch_paused
                    && matches!(job.standing, LiveState::Queued { pinned } if pinned == told.pinned_to)
            };
            let jobs = self.jobs.iter().filter(waits);
            let limits = |job: &&Job| {
                let limits = &job.definition.limits;
                (limits.concurrency.is_some(), limits.rate.is_some())
            };
            let possible = match told.reason {
                PendingReason::Limited if has_free_slot => jobs.filter(|job| !self.has_permit(job)).count(),
                PendingReason::RateLimited if has_free_slot => {
                    jobs.filter(|job| !self.has_token(job)).count()
                }
                PendingReason::Limited => jobs.filter(|job| limits(job).0).count(),
                PendingReason::RateLimited => jobs.filter(|job| limits(job).1).count(),
                _ => return None,
            };
            (told.count > possible as u64).then(|| format!("{told:?}, but only {possible} lack that"))
        })
    }

    pub(crate) fn pending(&self, job: &Job) -> Option<PendingReason> {
        match job.standing {
            LiveState::Scheduled => Some(PendingReason::NotDue),
            LiveState::Queued { .. } if job.batch_paused => Some(PendingReason::Paused),
            LiveState::Queued { .. } if self.is_on_hold(&job.definition) => self.why_on_hold(&job.definition),
            LiveState::Queued { pinned } => {
                let by_workers = self.why(&job.definition, &job.narrowing, pinned, self.first_of_lane(job));
                let by_limits =
                    self.why_limited(job, by_workers).filter(|_| by_workers >= PendingReason::ServerFull);
                Some(by_limits.unwrap_or(by_workers))
            }
            LiveState::Quarantined => Some(PendingReason::Quarantined),
            LiveState::Held(_) | LiveState::Ended(_) => None,
        }
    }

    /// As [`Self::why`], for the first job of a definition, whatever its keys are.
    fn why_any(&self, definition: &Definition, asked: &Asked, pinned: Option<WorkerId>) -> PendingReason {
        let waits = |job: &&Job| {
            matches!(job.standing, LiveState::Queued { pinned: only } if only == pinned)
                && job.kind() == (definition.revision.0, asked.clone())
                && !job.batch_paused
        };
        self.why(definition, asked, pinned, self.jobs.iter().filter(waits).min_by_key(|job| job.order()))
    }

    /// The obstacle of the worker that is the nearest to taking `first`, the first job of a lane.
    fn why(
        &self,
        definition: &Definition,
        asked: &Asked,
        pinned: Option<WorkerId>,
        first: Option<&Job>,
    ) -> PendingReason {
        if let Some(reason) = self.why_on_hold(definition) {
            return reason;
        }
        let has_free_slot = |it: &Worker| self.burden(it) < it.slots();
        let first_obstacle = |it: &Worker| match () {
            () if !is_listed(it, definition) || !is_asked_for(it, asked) => PendingReason::NoMatch,
            () if it.session.is_none() => PendingReason::NoWorker,
            () if !it.offers && !it.runtime_broken => PendingReason::NoRuntime,
            () if !matches(it, definition) || !has_asked_labels(it, asked) => PendingReason::NoMatch,
            () if !resources::is_offered(it, definition) => PendingReason::TooLarge,
            () if !it.offers => PendingReason::RuntimeUnavailable,
            () if it.cordoned || it.leaving => PendingReason::Cordoned,
            () if is_excluded(it, definition) => PendingReason::Excluded,
            () if self.is_probing(it) => PendingReason::Excluded,
            () if !has_free_slot(it) => PendingReason::Busy,
            () if !self.has_left(it, definition) => PendingReason::Resources,
            () if first.is_none_or(|job| !self.is_admitted(it, job)) => PendingReason::SetAside,
            () => PendingReason::Soon,
        };
        let able = self.workers.iter().filter(|it| pinned.is_none_or(|only| only == it.id));
        let nearest = able.map(first_obstacle).max().unwrap_or(PendingReason::NoWorker);
        nearest.max(pinned.map_or(nearest, |_| PendingReason::PinnedWorkerAway))
    }
}
