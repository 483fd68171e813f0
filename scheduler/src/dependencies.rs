//! Jobs that wait for the ends of others, or of whole batches (`after`).
//!
//! - A job with dependencies is scheduled. It becomes due when all that it waits for has ended as it requires.
//! - If one of them ends otherwise, the job is cancelled, and those that wait for it learn that as any other end.
//! - A batch ends with its last member, in the state [`crate::batches::LiveBatch::end_state`]. Only this end counts, so a member costs no more.
//! - The ends are passed on in portions, so no commit grows with the number of jobs that wait for one.
//!
//! `handlers::dependency` follows these rules; this module keeps who waits for whom.

mod circle;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::fmt;

use protocol::JobId;

use crate::state::State;

pub use circle::circle;

/// The end that a job requires of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequiredEnd {
    /// It succeeds.
    #[default]
    Success,
    /// It fails, expires, or is lost.
    Failure,
    /// It ends, no matter how.
    Any,
    /// It ends without success: also because it was cancelled, as a job is whose predecessor has failed.
    NoSuccess,
}

impl RequiredEnd {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Failure, Self::Any, Self::NoSuccess];

    /// Name in requests, the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "succeeded",
            Self::Failure => "failed",
            Self::Any => "ended",
            Self::NoSuccess => "not_succeeded",
        }
    }

    /// The requirement with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// A job or a batch that ends in this state has ended as required.
    #[must_use]
    pub const fn is_met_by(self, state: State) -> bool {
        match self {
            Self::Success => matches!(state, State::Succeeded),
            Self::Failure => state.is_failure(),
            Self::Any => state.has_ended(),
            Self::NoSuccess => state.has_ended() && !matches!(state, State::Succeeded),
        }
    }
}

/// A job or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PredecessorId {
    /// A single job.
    Job(JobId),
    /// All members of a batch, which has the number of its first member.
    Batch(JobId),
}

impl PredecessorId {
    /// The job, unless it is a batch.
    #[must_use]
    pub const fn job(self) -> Option<JobId> {
        match self {
            Self::Job(job) => Some(job),
            Self::Batch(_) => None,
        }
    }
}

impl fmt::Display for PredecessorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => write!(f, "job {job}"),
            Self::Batch(first) => write!(f, "batch {first}"),
        }
    }
}

/// A job or a batch that a new job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The job or the batch.
    pub on: Predecessor,
    /// The end that it must have.
    pub requires: RequiredEnd,
}

/// The job or the batch that a new job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// One that had not ended when the archive was read.
    Live(PredecessorId),
    /// One that has ended, in this state.
    Ended(PredecessorId, State),
    /// The job at this position of the same request, from 0.
    Member(u32),
}

/// The stored row of a dependency; `job` and `on` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DependencyRow {
    /// The job that waits.
    pub job: JobId,
    /// The job or the batch that it waits for.
    pub on: PredecessorId,
    /// The end that this one must have.
    pub requires: RequiredEnd,
    /// How it has ended, once the waiting job has learned that.
    pub ended: Option<State>,
}

/// A dependency that was not decided when the server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveDependency {
    /// The job that waits.
    pub job: JobId,
    /// The job or the batch that it waits for.
    pub on: PredecessorId,
    /// The end that this one must have.
    pub requires: RequiredEnd,
    /// Its state; absent if it is not kept any more.
    pub state: Option<State>,
    /// It was skipped: its reason begins with [`SKIPPED`].
    pub is_skipped: bool,
}

/// Beginning of the reason of a job that was skipped. It is stored, and a start knows by it that nothing went wrong with the job.
pub const SKIPPED: &str = "skipped";

/// Part of the reason of a job that was cancelled because another one did not end as it required, and was not skipped.
pub const COMES_AFTER: &str = "which it comes after";

/// All jobs that wait for others.
#[derive(Debug, Default)]
pub struct Dependencies {
    waiting: BTreeMap<JobId, Waiting>,
    /// Each job and each batch that is waited for, with the jobs that wait for it.
    dependents: BTreeSet<(PredecessorId, JobId)>,
    /// Jobs and batches that have ended, or are not kept any more, and whose dependents have not all learned that.
    ended: VecDeque<(PredecessorId, Option<State>)>,
    /// Jobs that wait no longer.
    decided: VecDeque<JobId>,
    /// Jobs that were skipped and have ended, while their dependents have not all learned that.
    skipped: BTreeSet<JobId>,
}

/// A job that waits for others.
#[derive(Debug, Default)]
struct Waiting {
    /// The jobs and batches that have not ended.
    left: BTreeMap<PredecessorId, RequiredEnd>,
    /// The first of them that ended otherwise than required.
    unmet: Option<Unmet>,
}

impl Waiting {
    fn verdict(&self) -> Option<DependencyVerdict> {
        match self.unmet {
            Some(unmet) => Some(DependencyVerdict::Unmet(unmet)),
            None => self.left.is_empty().then_some(DependencyVerdict::Met),
        }
    }
}

/// The decision about a job that waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyVerdict {
    /// All jobs and batches have ended as required: it may start.
    Met,
    /// One of them ended otherwise: it is cancelled.
    Unmet(Unmet),
}

/// A job or a batch that ended otherwise than a job after it requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The job or the batch.
    pub on: PredecessorId,
    /// Its state; none if it is not kept any more.
    pub state: Option<State>,
    /// Nothing went wrong: it succeeded where a failure is required, or it was skipped itself. The later job is skipped as well.
    pub is_skipped: bool,
}

impl Dependencies {
    /// A new job waits for these, each named once.
    pub fn add(&mut self, job: JobId, on: impl IntoIterator<Item = (PredecessorId, RequiredEnd)>) {
        let waiting = self.waiting.entry(job).or_default();
        for (on, requires) in on {
            waiting.left.insert(on, requires);
            self.dependents.insert((on, job));
        }
    }

    /// The job waits for others.
    #[must_use]
    pub fn must_wait(&self, job: JobId) -> bool {
        self.waiting.contains_key(&job)
    }

    /// The jobs that wait for others.
    pub fn waiting(&self) -> impl Iterator<Item = JobId> {
        self.waiting.keys().copied()
    }

    /// A job ends because it was skipped. Call it before [`Self::record_end`].
    pub fn skip(&mut self, job: JobId) {
        if self.next_dependent(PredecessorId::Job(job)).is_some() {
            self.skipped.insert(job);
        }
    }

    /// A job or a batch has ended, or is not kept any more: those that wait for it are to learn that. Returns whether it waited itself.
    pub fn record_end(&mut self, on: PredecessorId, state: Option<State>) -> bool {
        let waited = on.job().is_some_and(|job| self.remove(job));
        if self.next_dependent(on).is_some() {
            self.ended.push_back((on, state));
        }
        waited
    }

    /// The job waits no longer. Returns whether it did.
    pub fn remove(&mut self, job: JobId) -> bool {
        let Some(waiting) = self.waiting.remove(&job) else { return false };
        for on in waiting.left.into_keys() {
            self.dependents.remove(&(on, job));
        }
        true
    }

    /// Decides about a job whose dependencies may all have ended before it was visible.
    pub fn review(&mut self, job: JobId) {
        if self.waiting.get(&job).is_some_and(|waiting| waiting.verdict().is_some()) {
            self.decided.push_back(job);
        }
    }

    /// There is an end to pass on, or a decision to carry out.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.ended.is_empty() || !self.decided.is_empty()
    }

    /// Passes one end on to one job that waits for it. None if there is no more.
    pub fn pass_on(&mut self) -> Option<DependencyRow> {
        while let Some((on, state)) = self.ended.front().copied() {
            let Some(job) = self.next_dependent(on) else {
                self.ended.pop_front();
                if let Some(job) = on.job() {
                    self.skipped.remove(&job);
                }
                continue;
            };
            self.dependents.remove(&(on, job));
            let Some(waiting) = self.waiting.get_mut(&job) else { continue };
            let Some(requires) = waiting.left.remove(&on) else { continue };
            let was_decided = waiting.unmet.is_some();
            if !state.is_some_and(|state| requires.is_met_by(state)) {
                let was_skipped = on.job().is_some_and(|job| self.skipped.contains(&job));
                let is_skipped = state == Some(State::Succeeded) || was_skipped;
                waiting.unmet = waiting.unmet.or(Some(Unmet { on, state, is_skipped }));
            }
            if !was_decided && waiting.verdict().is_some() {
                self.decided.push_back(job);
            }
            return Some(DependencyRow { job, on, requires, ended: state });
        }
        None
    }

    /// The next job that waits no longer, which is removed. Jobs that `is_hidden` says are left for [`Self::review`].
    pub fn next_decided(&mut self, is_hidden: impl Fn(JobId) -> bool) -> Option<(JobId, DependencyVerdict)> {
        loop {
            let job = self.decided.pop_front()?;
            let verdict = self.waiting.get(&job).and_then(Waiting::verdict);
            if let Some(verdict) = verdict.filter(|_| !is_hidden(job)) {
                self.remove(job);
                return Some((job, verdict));
            }
        }
    }

    fn next_dependent(&self, on: PredecessorId) -> Option<JobId> {
        self.dependents.range((on, JobId(0))..=(on, JobId(u64::MAX))).next().map(|(_, job)| *job)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const JOB: fn(u64) -> JobId = JobId;
    const ON: fn(u64) -> PredecessorId = |job| PredecessorId::Job(JobId(job));
    const BATCH: fn(u64) -> PredecessorId = |first| PredecessorId::Batch(JobId(first));

    fn decided(dependencies: &mut Dependencies) -> Vec<(u64, DependencyVerdict)> {
        while dependencies.pass_on().is_some() {}
        core::iter::from_fn(|| dependencies.next_decided(|_| false)).map(|(job, it)| (job.0, it)).collect()
    }

    #[test]
    fn a_job_waits_for_all_of_its_dependencies() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(3), [(ON(1), RequiredEnd::Success), (ON(2), RequiredEnd::Any)]);
        dependencies.record_end(ON(2), Some(State::Failed));
        assert_eq!(decided(&mut dependencies), []);
        assert!(dependencies.must_wait(JOB(3)));
        dependencies.record_end(ON(1), Some(State::Succeeded));
        assert_eq!(decided(&mut dependencies), [(3, DependencyVerdict::Met)]);
        assert!(!dependencies.must_wait(JOB(3)) && !dependencies.has_work());
    }

    #[test]
    fn the_first_wrong_end_decides() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(3), [(ON(1), RequiredEnd::Success), (ON(2), RequiredEnd::Failure)]);
        dependencies.record_end(ON(2), Some(State::Succeeded));
        dependencies.record_end(ON(1), None);
        let unmet = Unmet { on: ON(2), state: Some(State::Succeeded), is_skipped: true };
        assert_eq!(decided(&mut dependencies), [(3, DependencyVerdict::Unmet(unmet))]);
    }

    #[test]
    fn a_batch_and_its_first_job_are_not_the_same() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(9), [(ON(7), RequiredEnd::Success), (BATCH(7), RequiredEnd::NoSuccess)]);
        assert!(!dependencies.record_end(ON(7), Some(State::Succeeded)));
        assert_eq!(decided(&mut dependencies), []);
        assert!(!dependencies.record_end(BATCH(7), Some(State::Failed)));
        assert_eq!(decided(&mut dependencies), [(9, DependencyVerdict::Met)]);
    }

    #[test]
    fn what_comes_after_a_skipped_job_is_skipped() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(2), [(ON(1), RequiredEnd::Success)]);
        dependencies.skip(JOB(1));
        dependencies.record_end(ON(1), Some(State::Cancelled));
        let [(2, DependencyVerdict::Unmet(unmet))] = decided(&mut dependencies)[..] else {
            panic!("it is decided")
        };
        assert!(unmet.is_skipped && dependencies.skipped.is_empty());
    }

    #[test]
    fn a_job_that_ended_while_it_waited_learns_nothing_more() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(2), [(ON(1), RequiredEnd::Any)]);
        assert!(dependencies.record_end(ON(2), Some(State::Cancelled)));
        assert!(!dependencies.record_end(ON(1), Some(State::Succeeded)));
        assert_eq!(decided(&mut dependencies), []);
        assert!(!dependencies.has_work());
    }

    #[test]
    fn a_hidden_job_is_decided_when_it_is_visible() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(2), [(ON(1), RequiredEnd::Any)]);
        dependencies.record_end(ON(1), Some(State::Lost));
        assert!(dependencies.pass_on().is_some());
        assert_eq!(dependencies.next_decided(|_| true), None);
        dependencies.review(JOB(2));
        assert_eq!(dependencies.next_decided(|_| false), Some((JOB(2), DependencyVerdict::Met)));
    }

    #[test]
    fn the_end_that_is_required_is_met_by_states_of_its_kind() {
        let met =
            |requires: RequiredEnd| State::ALL.into_iter().filter(move |state| requires.is_met_by(*state));
        assert!(met(RequiredEnd::Success).eq([State::Succeeded]));
        assert!(met(RequiredEnd::Failure).eq([State::Failed, State::Expired, State::Lost]));
        assert_eq!(met(RequiredEnd::Any).count(), 5);
        assert!(RequiredEnd::ALL.iter().all(|it| RequiredEnd::named(it.name()) == Some(*it)));
    }
}
