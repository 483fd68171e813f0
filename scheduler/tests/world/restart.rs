//! A start of the server: a new scheduler that knows what a store would hand to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::World;
use super::protocol::report::Outcome;
use super::protocol::{AttemptNo, Epoch, JobId, Now, WorkerId};
use super::scheduler::batches::LiveBatch;
use super::scheduler::dependencies::{LiveDependency, PredecessorId, RequiredEnd, SKIPPED};
use super::scheduler::expectations::ExpectationRow;
use super::scheduler::fleet::row::WorkerRow;
use super::scheduler::hooks::HookResult;
use super::scheduler::ids::GroupNo;
use super::scheduler::input::Input;
use super::scheduler::job::{LastPlacement, State};
use super::scheduler::limits::RateRow;
use super::scheduler::restore::{LiveAttempt, LiveJob, Unconfirmed};
use super::scheduler::retry::{self, RetryBudget};
use super::scheduler::run_on::LiveParent;
use super::scheduler::schedules::LiveSchedules;
use super::scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Note};
use super::scheduler::unique::UniqueRow;
use super::scheduler::{Config, Counters, Scheduler};

impl World {
    /// The scheduler's process stands still; then its timers ring before it has read anything.
    pub fn stand_still(&mut self, duration: Duration) {
        let sessions = self.workers.values().filter_map(|member| member.session);
        let heard = sessions.map(|session| (session, self.now.up)).collect();
        self.now = Now { utc: self.now.utc + duration, up: self.now.up + duration };
        self.step(Input::SessionsActive(heard));
        self.step(Input::Tick);
    }

    /// The scheduler's process ends, and a new one starts from what has not ended; the clock on its wall is set meanwhile. What it starts
    /// from may be a backup that was made just before.
    pub fn restart_server(&mut self, slice: usize, ahead: Duration, behind: Duration, is_restored: bool) {
        self.now.utc = self.now.utc + ahead - behind;
        let now = self.now;
        let changes: Vec<&Change> = self.steps.iter().flat_map(|(_, step)| &step.changes).collect();
        let config = Config { epoch: Epoch(2), seed: 2, slice, jobs_max: usize::MAX, ..self.config };
        let fence = self.nonces.keys().map(|(_, fence)| *fence).max().unwrap_or_default();
        if is_restored {
            self.restored = fence;
        }
        let given = changes.iter().filter_map(|it| match it {
            Change::Added(added) => Some(added.job),
            Change::PendingBatch { last, .. } => Some(*last),
            _ => None,
        });
        let job = given.max().unwrap_or_default();
        let changes = without_unfinished(&changes);
        let joined = changes
            .iter()
            .filter_map(|it| if let Change::Worker(row) = it { Some(row.worker) } else { None });
        let worker = joined.max().unwrap_or_default();
        let last = Counters { job, fence, worker, group: GroupNo(self.steps.len() as u64) };
        let mut scheduler = Scheduler::new(config, last);
        self.definitions.values().for_each(|it| scheduler.restore_definition(it.clone()));
        let mut rows: BTreeMap<WorkerId, &WorkerRow> = BTreeMap::new();
        for change in &changes {
            match change {
                Change::Worker(row) | Change::CordonEnded { row, .. } => drop(rows.insert(row.worker, row)),
                Change::WorkerForgotten(worker) => drop(rows.remove(worker)),
                _ => {}
            }
        }
        rows.into_values().for_each(|row| scheduler.restore_worker(now, row.clone()));
        scheduler.restore_rates(now, &rates(&changes));
        let (live, unconfirmed) = kept(&changes);
        scheduler.restore_schedules(schedules(&changes, &live));
        let unconfirmed: Vec<Unconfirmed> = unconfirmed
            .values()
            .flat_map(|it| it.lost.iter().map(move |lost| (it, *lost)))
            .map(|(it, (token, worker))| {
                let gpus = it.gpus.get(&token.fence).cloned().unwrap_or_default();
                Unconfirmed { token, worker, revision: it.revision, gpus }
            })
            .collect();
        scheduler.restore_unconfirmed(&unconfirmed);
        scheduler.restore_expectations(expectations(&changes));
        batches(&changes, &live).into_iter().for_each(|batch| scheduler.restore_batch(batch));
        scheduler.restore_parents(parents(&changes, &live));
        for mut live in live.into_values() {
            live.attempt.iter_mut().for_each(|it| it.from_backup = it.token.fence <= self.restored);
            assert!(scheduler.restore_job(now, live), "its definition is known");
        }
        scheduler.restore_unique(&unique(&changes));
        scheduler.restore_dependencies(&dependencies(&changes));
        scheduler.begin(GroupNo(self.steps.len() as u64 + 1));
        (self.scheduler, self.stepped) = (scheduler, now.up);
        self.workers.values_mut().for_each(|member| member.session = None);
        self.step(Input::ReplaceDefinitions(self.definitions.values().cloned().collect()));
    }
}

/// The changes without the members of large batches that were never finished: a start removes them.
fn without_unfinished<'c>(changes: &[&'c Change]) -> Vec<&'c Change> {
    let mut unfinished = BTreeMap::new();
    for change in changes {
        match change {
            Change::PendingBatch { first, last } => drop(unfinished.insert(*first, *last)),
            Change::BatchCompleted { first } => drop(unfinished.remove(first)),
            _ => {}
        }
    }
    let is_of_one = |job: JobId| unfinished.iter().any(|(first, last)| (*first..=*last).contains(&job));
    let is_kept = |change: &&&Change| match change {
        Change::Added(added) => !is_of_one(added.job),
        Change::BatchAdded(batch) => !is_of_one(batch.first),
        _ => true,
    };
    changes.iter().filter(is_kept).copied().collect()
}

/// The stored state of expectations after these changes.
fn expectations(changes: &[&Change]) -> Vec<ExpectationRow> {
    let mut rows = BTreeMap::new();
    for change in changes {
        match change {
            Change::Expectation(row) => drop(rows.insert(row.definition.clone(), row.clone())),
            Change::ExpectationDropped { definition } => drop(rows.remove(definition)),
            _ => {}
        }
    }
    rows.into_values().collect()
}

/// The batches with members that have not ended.
fn batches(changes: &[&Change], live: &Jobs) -> Vec<LiveBatch> {
    let mut batches: BTreeMap<JobId, LiveBatch> = BTreeMap::new();
    for change in changes {
        match change {
            Change::BatchAdded(batch) => drop(batches.insert(batch.first, LiveBatch::new(batch))),
            Change::BatchCancelled { first, by, .. } => {
                batches.get_mut(first).unwrap().cancelled_by = Some(by.clone());
            }
            Change::BatchReplaced { first, .. } => batches.get_mut(first).unwrap().unique_key = None,
            Change::BatchChanged { first, limits } => {
                let batch = batches.get_mut(first).unwrap();
                (batch.max_failures, batch.concurrency) = (limits.max_failures, limits.concurrency);
            }
            Change::BatchEnded { first, .. } => drop(batches.remove(first)),
            Change::Ended(ended) => {
                if let Some((_, batch)) = batches.range_mut(..=ended.job).next_back()
                    && ended.job < batch.end()
                {
                    batch.failed += u32::from(ended.state.is_failure());
                    batch.cancelled += u32::from(ended.state == State::Cancelled);
                    batch.skipped += u32::from(ended.reason.starts_with(SKIPPED));
                }
            }
            _ => {}
        }
    }
    for batch in batches.values_mut() {
        batch.live = u32::try_from(live.range(batch.first..batch.end()).count()).unwrap();
    }
    batches.into_values().collect()
}

/// The parents that have not ended, with the members that a store would hand out.
fn parents(changes: &[&Change], live: &Jobs) -> Vec<LiveParent> {
    let mut parents: BTreeMap<JobId, LiveParent> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Parent(row) => match parents.get_mut(&row.job) {
                Some(parent) => parent.row = row.clone(),
                None => {
                    let (members, used) = (Vec::new(), Vec::new());
                    parents.insert(row.job, LiveParent { row: row.clone(), members, used });
                }
            },
            Change::Member(member) => parents.get_mut(&member.parent).unwrap().members.push(*member),
            Change::WorkerUsed(of) => parents.get_mut(&of.parent).unwrap().used.push(*of),
            _ => {}
        }
    }
    parents.retain(|id, _| live.contains_key(id));
    for parent in parents.values_mut().filter(|parent| parent.row.is_complete) {
        parent.members.retain(|member| live.contains_key(&member.job));
    }
    parents.into_values().collect()
}

/// The stored state of schedules after these changes.
fn schedules(changes: &[&Change], live: &Jobs) -> LiveSchedules {
    let mut rows = BTreeMap::new();
    let mut paused = BTreeMap::new();
    let mut jobs = Vec::new();
    for change in changes {
        match change {
            Change::Schedule(row) => {
                rows.insert((row.definition.clone(), row.schedule.clone()), row.clone());
            }
            Change::Paused { target, pause } => match pause.in_force() {
                Some(pause) => drop(paused.insert(target.clone(), pause.clone())),
                None => drop(paused.remove(target)),
            },
            Change::Fire(row) if row.verdict.has_fired() => {
                jobs.extend(row.verdict.job().map(|job| (job, row.definition.clone())));
            }
            _ => {}
        }
    }
    jobs.retain(|(job, _)| live.contains_key(job));
    LiveSchedules { rows: rows.into_values().collect(), paused: paused.into_iter().collect(), jobs }
}

/// The stored state of rates after these changes.
fn rates(changes: &[&Change]) -> Vec<RateRow> {
    let mut rows = BTreeMap::new();
    for change in changes {
        if let Change::RateUsed(row) = change {
            rows.insert(row.id.clone(), row.clone());
        }
    }
    rows.into_values().collect()
}

/// The dependencies that are not decided after these changes.
fn dependencies(changes: &[&Change]) -> Vec<LiveDependency> {
    let mut open = BTreeMap::new();
    let mut ends = BTreeMap::new();
    let mut skipped = BTreeSet::new();
    for change in changes {
        match change {
            Change::Dependency(row) if row.ended.is_some_and(|state| row.requires.is_met_by(state)) => {
                open.remove(&(row.job, row.on));
            }
            Change::Dependency(row) => drop(open.insert((row.job, row.on), row.requires)),
            Change::DependenciesDropped { job, is_skipped } => {
                open.retain(|(waiting, _), _| waiting != job);
                skipped.extend(is_skipped.then_some(*job));
            }
            Change::Ended(ended) => drop(ends.insert(PredecessorId::Job(ended.job), ended.state)),
            Change::BatchEnded { first, state, .. } => {
                ends.insert(PredecessorId::Batch(*first), *state);
            }
            _ => {}
        }
    }
    let live = |((job, on), requires): ((JobId, PredecessorId), RequiredEnd)| {
        let is_skipped = on.job().is_some_and(|job| skipped.contains(&job));
        let state = ends.get(&on).copied();
        LiveDependency { job, on, requires, state, is_skipped }
    };
    open.into_iter().map(live).collect()
}

/// The unique keys that are taken after these changes.
fn unique(changes: &[&Change]) -> Vec<UniqueRow> {
    let mut rows = BTreeMap::new();
    for change in changes {
        if let Change::Unique(row) = change {
            rows.insert(row.id.clone(), row.clone());
        }
    }
    rows.into_values().filter(|row| row.holder.is_some()).collect()
}

type Jobs = BTreeMap<JobId, LiveJob>;

/// The jobs that have not ended, as a store would have them after these changes; and those whose cancel is not confirmed, as they were.
fn kept(changes: &[&Change]) -> (Jobs, Jobs) {
    let (mut live, mut unconfirmed) = (Jobs::new(), Jobs::new());
    for change in changes {
        let job = match change {
            Change::Added(added) => {
                live.insert(added.job, new_job(added));
                continue;
            }
            Change::Ended(ended) => {
                let mut it = live.remove(&ended.job).expect("it was added");
                if !ended.confirmed {
                    let worker = it.attempt.as_ref().map(|attempt| attempt.worker);
                    if let (Some(closed), Some(worker)) = (&ended.closed, worker) {
                        lose(&mut it, closed, worker);
                    }
                    unconfirmed.insert(ended.job, it);
                }
                continue;
            }
            Change::Hook(row) => {
                if let HookResult::Made { job, depth } = row.result {
                    live.get_mut(&job).expect("it was added").hook_depth = depth;
                }
                continue;
            }
            Change::Assigned(Assigned { token, .. })
            | Change::Started { token, .. }
            | Change::Stopping { token, .. } => token.job,
            Change::AttemptClosed { job, .. }
            | Change::BecameDue { job }
            | Change::QuarantineReleased { job }
            | Change::Expiry { job, .. } => *job,
            Change::Updated(updated) => updated.job,
            Change::Noted { job, note: Note::ContainerGone { token, .. }, .. } => {
                let job = live.get_mut(job).or_else(|| unconfirmed.get_mut(job)).expect("it was added");
                job.lost.retain(|(of, _)| of != token);
                continue;
            }
            Change::Noted { job, note: Note::CancelRequested { by }, .. } => {
                let attempt = live.get_mut(job).and_then(|job| job.attempt.as_mut());
                if let Some(attempt) = attempt {
                    attempt.cancelled_by.get_or_insert_with(|| by.clone());
                }
                continue;
            }
            Change::ContainerGone { token, .. } => {
                unconfirmed.remove(&token.job);
                continue;
            }
            _ => continue,
        };
        apply(live.get_mut(&job).expect("it was added"), change);
    }
    (live, unconfirmed)
}

fn lose(it: &mut LiveJob, closed: &ClosedAttempt, worker: WorkerId) {
    if closed.outcome == Outcome::Lost {
        it.lost.push((closed.token, worker));
    }
}

fn new_job(added: &AddedJob) -> LiveJob {
    LiveJob {
        job: added.job,
        revision: added.revision,
        state: added.state,
        priority: added.priority,
        due_at: added.due_at,
        expires_at: None,
        timeout: added.timeout,
        has_overrides: false,
        narrowing: added.narrowing.clone(),
        keys: added.keys.clone(),
        job_failures: 0,
        oom_kills: 0,
        losses: Vec::new(),
        attempts: AttemptNo(0),
        has_started: false,
        hook_depth: 0,
        last: None,
        lost: Vec::new(),
        gpus: BTreeMap::new(),
        attempt: None,
    }
}

fn apply(live: &mut LiveJob, change: &Change) {
    match change {
        Change::Assigned(assigned) => {
            (live.state, live.attempts) = (State::Assigned, assigned.number);
            live.attempt = Some(LiveAttempt {
                token: assigned.token,
                worker: assigned.worker,
                session: assigned.session,
                assigned_at: assigned.at,
                started_at: None,
                stopping: None,
                cancelled_by: None,
                from_backup: false,
            });
            live.gpus.insert(assigned.token.fence, assigned.gpus.clone());
        }
        Change::Started { at, .. } => {
            (live.state, live.has_started) = (State::Running, true);
            live.attempt.as_mut().expect("it is held").started_at = Some(*at);
        }
        Change::Stopping { cause, .. } => {
            live.attempt.as_mut().expect("it is held").stopping = Some(*cause);
        }
        Change::AttemptClosed { closed, due_at, state, .. } => {
            let over = live.attempt.take().expect("it is held");
            live.has_started |= closed.started_at.is_some();
            live.last = LastPlacement::after(over.worker, closed.outcome).or(live.last);
            (live.state, live.due_at) = (*state, *due_at);
            live.job_failures += u32::from(retry::budget(closed.outcome) == RetryBudget::Job);
            live.oom_kills += u32::from(closed.outcome == Outcome::OomKilled);
            if retry::budget(closed.outcome) == RetryBudget::Infrastructure {
                retry::record_loss(&mut live.losses, closed.ended_at);
            }
            lose(live, closed, over.worker);
        }
        Change::BecameDue { .. } => live.state = State::Queued,
        Change::Expiry { at, .. } => live.expires_at = *at,
        Change::Updated(updated) => {
            (live.state, live.due_at, live.priority) = (updated.state, updated.due_at, updated.priority);
        }
        Change::QuarantineReleased { .. } => {
            live.state = State::Queued;
            live.losses.clear();
        }
        _ => {}
    }
}
