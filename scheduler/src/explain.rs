//! Answers why a job is not running: the obstacles of each worker, and the pending reason that follows from
//! them.
//!
//! `obstacles` lists everything that keeps a worker from a job. Placement checks a part of it,
//! `pending` takes the first obstacle of the nearest worker, and the API shows all obstacles of all
//! workers.

pub(crate) mod obstacles;
pub(crate) mod pending;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now, Timestamp, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::fleet::Worker;
use crate::job::{Job, LiveState};
use crate::limits::{LimitFacts, LimitSelection, LimitsReport};
use crate::origin::Intervention;
use crate::pauses::PauseTarget;
use crate::placement;
use crate::placement::narrowing::Narrowing;
use crate::queue::{LaneKey, QueueKey};
use crate::run_on::{Parent, ParentFacts};
use crate::state::State;
use crate::step::PendingReason;
pub use obstacles::Obstacle;
use obstacles::obstacles;

/// The state of a job that has not ended, with reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The job's state.
    pub state: State,
    /// The reason for waiting, if the job waits.
    pub pending: Option<PendingReason>,
    /// The job's definition.
    pub definition: Arc<Definition>,
    /// The workers that the job asks for, of those that the definition allows.
    pub narrowing: Option<Arc<Narrowing>>,
    /// The limits that the job needs, with their state.
    pub limits: Vec<LimitFacts>,
    /// The pauses that keep it from a start, with their beginnings.
    pub pauses: Vec<(PauseTarget, Intervention)>,
    /// Jobs of its lane that go before it, if it waits: those of its definition with the same keys.
    pub before: Option<JobsBefore>,
    /// Jobs that wait in its lane, itself included, if it waits.
    pub lane_jobs: Option<u64>,
    /// Jobs that wait in other lanes, if it waits. Some may go before it.
    pub other_jobs: Option<u64>,
    /// Its lane has all jobs of its definition that wait, of any revision, and does not belong to one worker.
    pub lane_has_all: bool,
    /// Steps of priority that it has gained by waiting, if it waits and priorities age.
    pub aged_steps: Option<u64>,
    /// Its members, if it runs on several workers.
    pub parent: Option<ParentFacts>,
    /// All known workers, ordered by id.
    pub workers: Vec<WorkerVerdict>,
}

/// The number of jobs that go before a waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobsBefore {
    /// All of them are counted.
    Exactly(u64),
    /// There are more than this number, which is [`BEFORE_MAX`].
    MoreThan(u64),
}

/// Jobs before another that are counted. All inputs wait while the engine counts, which takes less than a millisecond for this number.
pub const BEFORE_MAX: u64 = 10_000;

/// The verdict about one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerVerdict {
    /// The worker's id.
    pub worker: WorkerId,
    /// The worker's name.
    pub name: Arc<str>,
    /// Wall-clock time at which an operator revoked it.
    pub revoked_at: Option<Timestamp>,
    /// The command that cordoned or drained it, if it is known.
    pub cordon: Option<Intervention>,
    /// The member of the job that is pinned to the worker, or has it or had it.
    pub member: Option<JobId>,
    /// The obstacles, if any.
    pub verdict: PlacementVerdict,
}

/// The verdict about a worker for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementVerdict {
    /// The worker holds the job's current attempt.
    Holding,
    /// The worker may get the job.
    Able,
    /// The worker gets the job only if no other worker can take it: the last attempt ran here.
    LastResort,
    /// The worker cannot get the job. The obstacle that takes longest to overcome is first; the list is never
    /// empty.
    Unable(Vec<Obstacle>),
}

impl Scheduler {
    /// Explains the state of a job that has not ended. Walks over all workers, and over at most [`BEFORE_MAX`] jobs: it answers a request of
    /// an operator for one job.
    #[must_use]
    pub fn explain(&self, now: Now, id: JobId) -> Option<Explanation> {
        let job = self.live_job(id)?;
        let definition = self.definitions.at(job.definition)?.clone();
        let parent = self.parents.get(id);
        let workers = self.fleet.iter().map(|(worker, facts)| WorkerVerdict {
            member: parent.and_then(|parent| parent.member_on(worker)),
            worker,
            name: facts.row.name.clone(),
            revoked_at: facts.row.revoked_at,
            cordon: facts.row.cordon.clone(),
            verdict: verdict(self, job, &definition, facts),
        });
        let workers = workers.collect();
        let (state, pending) = pending::state_and_reason(self, id, pending::why_waiting_by_search);
        let needs = self.limits.needs(job.definition, placement::key_set_of(self, job));
        let limits = needs.all().filter_map(|limit| self.limits.facts_of(limit, now)).collect();
        let of_batch = self.paused_batch(id, job).and_then(|first| self.pauses.of_batch(first));
        let pauses = self.pauses.of_jobs(&definition).chain(of_batch);
        let pauses = pauses.map(|(target, pause)| (target, pause.clone())).collect();
        let lane = match job.live_state {
            LiveState::Queued(lane) => Some(lane),
            LiveState::Scheduled | LiveState::Held(_) | LiveState::Quarantined | LiveState::Parent { .. } => {
                None
            }
        };
        let key = job.queue_key(self.config.priority_ageing, id);
        let before = lane.map(|lane| self.jobs_before(lane, key));
        let lane_jobs = lane.map(|lane| self.ready.len_of_lane(lane));
        let of_name = self.definitions.named(&definition.name).map(|number| self.ready.len_of(number)).sum();
        let is_pinned = lane.is_some_and(|lane| lane.pinned_to().is_some());
        let lane_has_all = !is_pinned && lane_jobs == Some(of_name);
        let aged_steps = before.and(self.config.priority_ageing.steps(job.due_at, now.utc));
        Some(Explanation {
            state,
            pending,
            definition,
            narrowing: self.definitions.narrowing(job.definition).cloned(),
            limits,
            pauses,
            before,
            lane_jobs: lane_jobs.map(|jobs| jobs as u64),
            other_jobs: lane_jobs.map(|jobs| self.ready.len().saturating_sub(jobs) as u64),
            lane_has_all,
            aged_steps,
            parent: parent.map(Parent::facts),
            workers,
        })
    }

    /// Why these jobs wait, of those that have not ended and wait. Walks over them: it answers a request of an operator.
    #[must_use]
    pub fn pending_reasons(&mut self, jobs: &[JobId]) -> Vec<(JobId, PendingReason)> {
        self.fleet.regroup();
        let mut by_lane: BTreeMap<LaneKey, PendingReason> = BTreeMap::new();
        let mut reasons = Vec::with_capacity(jobs.len());
        for id in jobs {
            let Some(job) = self.live_job(*id) else { continue };
            let lane = match job.live_state {
                LiveState::Queued(lane) => Some(lane),
                _ => None,
            };
            let known = lane.and_then(|lane| by_lane.get(&lane).copied());
            let why = || pending::state_and_reason(self, *id, pending::why_waiting).1;
            let Some(reason) = known.or_else(why) else { continue };
            by_lane.extend(lane.map(|lane| (lane, reason)));
            reasons.push((*id, reason));
        }
        reasons
    }

    fn jobs_before(&self, lane: LaneKey, key: QueueKey) -> JobsBefore {
        // One more than is told, to see that there are more.
        let counted = self.ready.count_before(lane, key, BEFORE_MAX as usize + 1) as u64;
        if counted > BEFORE_MAX { JobsBefore::MoreThan(BEFORE_MAX) } else { JobsBefore::Exactly(counted) }
    }

    /// The state of the selected limits. Walks those only: it answers a request of an operator.
    #[must_use]
    pub fn limits(&self, now: Now, selection: &LimitSelection) -> LimitsReport {
        LimitsReport {
            running_max: self.config.server_limits.running_max,
            running: self.limits.held,
            queued: self.ready.len(),
            limits: self.limits.facts(now, selection),
        }
    }
}

fn verdict(scheduler: &Scheduler, job: &Job, definition: &Definition, worker: &Worker) -> PlacementVerdict {
    let id = worker.row.worker;
    if job.attempt().is_some_and(|attempt| attempt.worker == id) {
        return PlacementVerdict::Holding;
    }
    let lane = match job.live_state {
        LiveState::Queued(lane) if !lane.is_paused() => lane,
        // The lane that the job would wait in.
        _ => placement::lane_once_resumed(scheduler, job),
    };
    let obstacles: Vec<Obstacle> = obstacles(scheduler, worker, lane).collect();
    match () {
        () if !obstacles.is_empty() => PlacementVerdict::Unable(obstacles),
        () if placement::avoids(job, definition, id) => PlacementVerdict::LastResort,
        () => PlacementVerdict::Able,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use protocol::{Revision, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::ids::{GroupNo, Ticket};
    use crate::input::{Input, Submit};
    use crate::new_jobs::NewJob;

    const NOW: Now = Now { utc: Timestamp(0), up: Uptime(1) };

    /// Members of a batch that are created at once.
    const SLICE: usize = 1_000;

    fn submit(scheduler: &mut Scheduler, revision: u128, count: usize) {
        let jobs = vec![NewJob { revision: Revision(revision), ..NewJob::default() }; count];
        let submit = Submit {
            ticket: Ticket(1),
            jobs: jobs.into(),
            batch: (count > 1).then(Default::default),
            require_worker: false,
            idempotency_key: None,
        };
        scheduler.step(NOW, Input::Submit(submit));
        // A group creates one slice of a batch.
        for _ in 0..=count / SLICE {
            scheduler.begin(GroupNo(scheduler.counters.group.0 + 1));
            scheduler.step(NOW, Input::Tick);
        }
    }

    #[test]
    fn jobs_before_another_are_counted_up_to_a_maximum() {
        let mut scheduler =
            Scheduler::new(Config { slice: SLICE, ..Config::for_tests() }, Counters::default());
        scheduler.step(NOW, Input::ReplaceDefinitions(vec![Definition::for_tests(1)]));
        // Batches in slices wait in runs, and single jobs beside them.
        for _ in 0..4 {
            submit(&mut scheduler, 1, 4_999);
            submit(&mut scheduler, 1, 1);
        }
        let of = |job| scheduler.explain(NOW, JobId(job)).map(|it| (it.before, it.lane_jobs));
        let is = |before| Some((Some(before), Some(20_000)));
        assert_eq!(of(1), is(JobsBefore::Exactly(0)));
        assert_eq!(of(7_000), is(JobsBefore::Exactly(6_999)));
        assert_eq!(of(10_001), is(JobsBefore::Exactly(10_000)));
        assert_eq!(of(10_002), is(JobsBefore::MoreThan(10_000)));
        assert_eq!(of(20_000), is(JobsBefore::MoreThan(10_000)));

        scheduler
            .step(NOW, Input::ReplaceDefinitions(vec![Definition::for_tests(1), Definition::for_tests(2)]));
        submit(&mut scheduler, 2, 1);
        let reasons = scheduler.pending_reasons(&[JobId(1), JobId(20_001), JobId(20_002)]);
        let waits = PendingReason::NoWorker;
        assert_eq!(reasons, [(JobId(1), waits), (JobId(20_001), waits)], "the last one does not exist");
        let others = |job| scheduler.explain(NOW, JobId(job)).map(|it| it.other_jobs);
        assert_eq!((others(1), others(20_001)), (Some(Some(1)), Some(Some(20_000))));
    }
}
