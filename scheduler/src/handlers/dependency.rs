//! Lets jobs start, or cancels them, when the jobs that they wait for have ended (`after`).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::dependencies::{
    COMES_AFTER, Dependency, DependencyRow, LiveDependency, Predecessor, SKIPPED, Unmet, Verdict,
};
use crate::handlers::{attempt_end, due, expire};
use crate::new_jobs::NewJobs;
use crate::results;
use crate::state::State;
use crate::step::{Change, Rejection};

/// Checks that the jobs that a request waits for have not ended since the archive was read.
pub(crate) fn check(scheduler: &Scheduler, jobs: &NewJobs) -> Result<(), Rejection> {
    match predecessors(jobs).into_iter().find(|job| scheduler.live_job(*job).is_none()) {
        Some(job) => Err(Rejection::PredecessorEnded(job)),
        None => Ok(()),
    }
}

/// The jobs that those of a request come after, and that had not ended when it was made.
pub(crate) fn predecessors(jobs: &NewJobs) -> BTreeSet<JobId> {
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
            Predecessor::Member(at) => (JobId(first.0 + u64::from(at)), None),
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
    let ended: Vec<(JobId, State)> = ended.collect();
    scheduler.dependencies.add(job, left);
    for (on, state) in ended {
        scheduler.dependencies.record_end(on, Some(state));
    }
}

/// The state of a job that has ended since the request was checked: while a large batch was being made, or to make room for a job of this
/// very request.
fn end_since_check(scheduler: &Scheduler, job: JobId, on: JobId) -> Option<State> {
    // A later member is made after this one.
    if on > job || scheduler.jobs.contains_key(&on) {
        return None;
    }
    scheduler.pending_batches.end_of(on).or_else(|| {
        scheduler.out.changes.iter().rev().find_map(|change| match change {
            Change::Ended(ended) if ended.job == on => Some(ended.state),
            _ => None,
        })
    })
}

/// A job ends: those that wait for it learn that with the next portions.
pub(crate) fn ended(scheduler: &mut Scheduler, job: JobId, state: State) {
    scheduler.pending_batches.record_end(job, state);
    if scheduler.dependencies.record_end(job, Some(state)) {
        scheduler.change(Change::DependenciesDropped { job, is_skipped: false });
    }
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
            Verdict::Met => start(scheduler, now, job),
            Verdict::Unmet(unmet) => cancel(scheduler, now, job, unmet),
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
    }
    attempt_end::end_unheld(scheduler, now, id, State::Cancelled, reason(unmet));
    scheduler.change(Change::DependenciesDropped { job: id, is_skipped: unmet.is_skipped });
}

/// The reason in the record of a job that cannot start any more.
fn reason(Unmet { on, state, is_skipped }: Unmet) -> String {
    match state {
        Some(State::Succeeded) => {
            format!("{SKIPPED}: it runs only if job {on} fails, but job {on} succeeded")
        }
        Some(_) if is_skipped => format!("{SKIPPED}, because job {on} before it was skipped"),
        Some(state) => format!("job {on}, {COMES_AFTER}, ended as {}", state.name()),
        None => format!("job {on}, {COMES_AFTER}, is not kept any more"),
    }
}

/// Ends that one step passes on, each to one job.
const ENDS_PER_STEP: usize = 500;

impl Scheduler {
    /// Adds the dependencies that were not decided. Call it after all jobs were added.
    pub fn restore_dependencies(&mut self, rows: &[LiveDependency]) {
        for row in rows.iter().filter(|row| self.jobs.contains_key(&row.job)) {
            self.dependencies.add(row.job, [(row.on, row.requires)]);
        }
        let ended = rows.iter().filter(|row| !self.jobs.contains_key(&row.on));
        for (on, row) in ended.map(|row| (row.on, *row)).collect::<BTreeMap<_, _>>() {
            let state = row.state;
            if row.is_skipped {
                self.dependencies.skip(on);
            }
            self.dependencies.record_end(on, state);
        }
    }
}
