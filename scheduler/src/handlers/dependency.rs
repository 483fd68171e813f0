//! Lets jobs start, or cancels them, when the jobs and batches that they wait for have ended (`after`).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::dependencies::{
    COMES_AFTER, Dependency, DependencyRow, DependencyVerdict, LiveDependency, Predecessor, PredecessorId,
    SKIPPED, Unmet,
};
use crate::handlers::{attempt_end, batch, due, expire};
use crate::new_jobs::NewJobs;
use crate::results;
use crate::state::State;
use crate::step::{Change, Rejection};

/// Checks that the jobs and batches that a request waits for have not ended since the archive was read.
pub(crate) fn check(scheduler: &Scheduler, jobs: &NewJobs) -> Result<(), Rejection> {
    let has_ended = |on: &PredecessorId| match *on {
        PredecessorId::Job(job) => scheduler.live_job(job).is_none(),
        PredecessorId::Batch(first) => {
            !scheduler.batches.has(first) || scheduler.pending_batches.hides(first)
        }
    };
    match predecessors(jobs).into_iter().find(has_ended) {
        Some(on) => Err(Rejection::PredecessorEnded(on)),
        None => Ok(()),
    }
}

/// The jobs and batches that the jobs of a request come after, and that had not ended when it was made.
pub(crate) fn predecessors(jobs: &NewJobs) -> BTreeSet<PredecessorId> {
    let jobs = match jobs {
        NewJobs::Each(jobs) => jobs.as_slice(),
        // They come after the same jobs.
        NewJobs::Copies(job, _) => core::slice::from_ref(&**job),
    };
    let live = |dependency: &Dependency| match dependency.on {
        Predecessor::Live(on) => Some(on),
        Predecessor::Ended(..) | Predecessor::Member(_) => None,
    };
    jobs.iter().flat_map(|job| &job.after).filter_map(live).collect()
}

/// A new job with these dependencies has to wait.
pub(crate) fn waits(after: &[Dependency]) -> bool {
    after.iter().any(|dependency| !matches!(dependency.on, Predecessor::Ended(..)))
}

/// Writes down what a new job, which is in the table of jobs, waits for. `first` is the first job of its request.
pub(crate) fn begin(scheduler: &mut Scheduler, job: JobId, after: &[Dependency], first: JobId) {
    let mut left = Vec::new();
    for Dependency { on, requires } in after.iter().copied() {
        let (on, ended) = match on {
            Predecessor::Live(on) => (on, None),
            Predecessor::Ended(on, state) => (on, Some(state)),
            Predecessor::Member(at) => (PredecessorId::Job(JobId(first.0 + u64::from(at))), None),
        };
        if ended.is_none() {
            left.push((on, requires));
        }
        scheduler.change(Change::Dependency(DependencyRow { job, on, requires, ended }));
    }
    if left.is_empty() {
        if !after.is_empty() {
            take_results(scheduler, job);
        }
        return;
    }
    let ended = left.iter().filter_map(|(on, _)| Some((*on, end_since_check(scheduler, job, *on)?)));
    let ended: Vec<(PredecessorId, State)> = ended.collect();
    scheduler.dependencies.add(job, left);
    for (on, state) in ended {
        scheduler.dependencies.record_end(on, Some(state));
    }
}

/// The state of a job or a batch that has ended since the request was checked: while a large batch was being made, or to make room for a job
/// of this very request.
fn end_since_check(scheduler: &Scheduler, job: JobId, on: PredecessorId) -> Option<State> {
    // A later member is made after this one.
    if on.job().is_some_and(|on| on > job) || scheduler.is_predecessor_live(on) {
        return None;
    }
    scheduler.pending_batches.end_of(on).or_else(|| {
        scheduler.out.changes.iter().rev().find_map(|change| match change {
            Change::Ended(ended) if on == PredecessorId::Job(ended.job) => Some(ended.state),
            Change::BatchEnded { first, state, .. } if on == PredecessorId::Batch(*first) => Some(*state),
            _ => None,
        })
    })
}

/// A job ends: those that wait for it learn that with the next portions.
pub(crate) fn ended(scheduler: &mut Scheduler, job: JobId, state: State) {
    let on = PredecessorId::Job(job);
    scheduler.pending_batches.record_end(on, state);
    if scheduler.dependencies.record_end(on, Some(state)) {
        scheduler.change(Change::DependenciesDropped { job, is_skipped: false });
    }
}

/// The last member of a batch has ended: the jobs that wait for the batch learn that with the next portions.
pub(crate) fn batch_ended(scheduler: &mut Scheduler, first: JobId, state: State) {
    let on = PredecessorId::Batch(first);
    scheduler.pending_batches.record_end(on, state);
    scheduler.dependencies.record_end(on, Some(state));
}

/// Passes a portion of the ends on. The rest follows in the next step.
pub(crate) fn pass_on(scheduler: &mut Scheduler, now: Now) {
    for _ in 0..ENDS_PER_STEP {
        if let Some(row) = scheduler.dependencies.pass_on() {
            scheduler.change(Change::Dependency(row));
        }
        let Scheduler { dependencies, pending_batches, .. } = scheduler;
        let Some((job, verdict)) = dependencies.next_decided(|job| pending_batches.hides(job)) else {
            if scheduler.dependencies.has_work() {
                continue;
            }
            return;
        };
        match verdict {
            DependencyVerdict::Met => start(scheduler, now, job),
            DependencyVerdict::Unmet(_) if batch::is_cancelled(scheduler, job) => {
                // The cancel of its batch ended what it came after, and would end it next: the requester is the reason.
                batch::cancel_if_stopped(scheduler, now, job);
                scheduler.change(Change::DependenciesDropped { job, is_skipped: false });
            }
            DependencyVerdict::Unmet(unmet) => cancel(scheduler, now, job, unmet),
        }
    }
}

/// The results of the jobs that this one came after give it parameters.
fn take_results(scheduler: &mut Scheduler, job: JobId) {
    let definition = scheduler.jobs.get(&job).and_then(|job| scheduler.definition(job));
    if let Some(definition) = definition.filter(|definition| results::takes_params(&definition.submission)) {
        scheduler.change(Change::ResultsTaken { job, definition });
    }
}

fn start(scheduler: &mut Scheduler, now: Now, id: JobId) {
    take_results(scheduler, id);
    let Some(due_at) = scheduler.jobs.get(&id).map(|job| job.due_at) else { return };
    expire::start_queue_timeout(scheduler, id, due_at.max(now.utc));
    if due_at <= now.utc {
        due::start_due_job(scheduler, now, id);
    } else {
        due::set_timer(scheduler, id);
    }
}

fn cancel(scheduler: &mut Scheduler, now: Now, id: JobId, unmet: Unmet) {
    if unmet.is_skipped {
        scheduler.dependencies.skip(id);
        scheduler.batches.skip(id);
    }
    attempt_end::end_unheld(scheduler, now, id, State::Cancelled, reason(unmet));
    scheduler.change(Change::DependenciesDropped { job: id, is_skipped: unmet.is_skipped });
}

/// The reason in the record of a job that cannot start any more.
fn reason(Unmet { on, state, is_skipped }: Unmet) -> String {
    match state {
        Some(State::Succeeded) => {
            format!("{SKIPPED}: it runs only if {on} fails, but {on} succeeded")
        }
        Some(_) if is_skipped => format!("{SKIPPED}, because {on} before it was skipped"),
        Some(state) => format!("{on}, {COMES_AFTER}, ended as {}", state.name()),
        None => format!("{on}, {COMES_AFTER}, is not kept any more"),
    }
}

/// Ends that one step passes on, each to one job.
const ENDS_PER_STEP: usize = 500;

impl Scheduler {
    /// True if the job, or a member of the batch, has not ended; also while no request may see it yet.
    fn is_predecessor_live(&self, on: PredecessorId) -> bool {
        match on {
            PredecessorId::Job(job) => self.jobs.contains_key(&job),
            PredecessorId::Batch(first) => self.batches.has(first),
        }
    }

    /// Adds the dependencies that were not decided. Call it after all jobs and batches were added.
    pub fn restore_dependencies(&mut self, rows: &[LiveDependency]) {
        for row in rows.iter().filter(|row| self.jobs.contains_key(&row.job)) {
            self.dependencies.add(row.job, [(row.on, row.requires)]);
        }
        let ended = rows.iter().filter(|row| !self.is_predecessor_live(row.on));
        for (on, row) in ended.map(|row| (row.on, *row)).collect::<BTreeMap<_, _>>() {
            let state = row.state;
            if let Some(job) = on.job().filter(|_| row.is_skipped) {
                self.dependencies.skip(job);
            }
            self.dependencies.record_end(on, state);
        }
    }
}
