//! Jobs that wait for the ends of others (`after`).
//!
//! - A job with dependencies is scheduled. It becomes due when all jobs that it waits for have ended as it requires.
//! - If one of them ends otherwise, the job is cancelled, and those that wait for it learn that as any other end.
//! - The ends are passed on in portions, so no commit grows with the number of jobs that wait for one.
//!
//! `handlers::dependency` follows these rules; this module keeps who waits for whom.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use protocol::JobId;

use crate::batches::is_failure;
use crate::state::State;

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

    /// A job that ends in this state has ended as required.
    #[must_use]
    pub const fn is_met_by(self, state: State) -> bool {
        match self {
            Self::Success => matches!(state, State::Succeeded),
            Self::Failure => is_failure(state),
            Self::Any => state.has_ended(),
            Self::NoSuccess => state.has_ended() && !matches!(state, State::Succeeded),
        }
    }
}

/// A job that a new one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The job.
    pub on: Predecessor,
    /// The end that it must have.
    pub requires: RequiredEnd,
}

/// The job that a new one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// A job that had not ended when the archive was read.
    Live(JobId),
    /// A job that has ended, in this state.
    Ended(JobId, State),
    /// The job at this position of the same request, from 0.
    Member(u32),
}

/// The stored row of a dependency; `job` and `on` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DependencyRow {
    /// The job that waits.
    pub job: JobId,
    /// The job that it waits for.
    pub on: JobId,
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
    /// The job that it waits for.
    pub on: JobId,
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
    /// Each job that is waited for, with those that wait for it.
    dependents: BTreeSet<(JobId, JobId)>,
    /// Jobs that have ended, or are not kept any more, and whose dependents have not all learned that.
    ended: VecDeque<(JobId, Option<State>)>,
    /// Jobs that wait no longer.
    decided: VecDeque<JobId>,
    /// Jobs that were skipped and have ended, while their dependents have not all learned that.
    skipped: BTreeSet<JobId>,
}

/// A job that waits for others.
#[derive(Debug, Default)]
struct Waiting {
    /// The jobs that have not ended.
    left: BTreeMap<JobId, RequiredEnd>,
    /// The first job that ended otherwise than required.
    unmet: Option<Unmet>,
}

impl Waiting {
    fn verdict(&self) -> Option<Verdict> {
        match self.unmet {
            Some(unmet) => Some(Verdict::Unmet(unmet)),
            None => self.left.is_empty().then_some(Verdict::Met),
        }
    }
}

/// The decision about a job that waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All jobs have ended as required: it may start.
    Met,
    /// One of them ended otherwise: it is cancelled.
    Unmet(Unmet),
}

/// A job that ended otherwise than one after it requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The job.
    pub on: JobId,
    /// Its state; none if it is not kept any more.
    pub state: Option<State>,
    /// Nothing went wrong: it succeeded where a failure is required, or it was skipped itself. The later job is skipped as well.
    pub is_skipped: bool,
}

impl Dependencies {
    /// A new job waits for these, each named once.
    pub fn add(&mut self, job: JobId, on: impl IntoIterator<Item = (JobId, RequiredEnd)>) {
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
        if self.next_dependent(job).is_some() {
            self.skipped.insert(job);
        }
    }

    /// A job has ended, or is not kept any more: those that wait for it are to learn that. Returns whether it waited itself.
    pub fn record_end(&mut self, job: JobId, state: Option<State>) -> bool {
        let waited = self.remove(job);
        if self.next_dependent(job).is_some() {
            self.ended.push_back((job, state));
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
                self.skipped.remove(&on);
                continue;
            };
            self.dependents.remove(&(on, job));
            let Some(waiting) = self.waiting.get_mut(&job) else { continue };
            let Some(requires) = waiting.left.remove(&on) else { continue };
            let was_decided = waiting.unmet.is_some();
            if !state.is_some_and(|state| requires.is_met_by(state)) {
                let is_skipped = state == Some(State::Succeeded) || self.skipped.contains(&on);
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
    pub fn next_decided(&mut self, is_hidden: impl Fn(JobId) -> bool) -> Option<(JobId, Verdict)> {
        loop {
            let job = self.decided.pop_front()?;
            let verdict = self.waiting.get(&job).and_then(Waiting::verdict);
            if let Some(verdict) = verdict.filter(|_| !is_hidden(job)) {
                self.remove(job);
                return Some((job, verdict));
            }
        }
    }

    fn next_dependent(&self, on: JobId) -> Option<JobId> {
        self.dependents.range((on, JobId(0))..=(on, JobId(u64::MAX))).next().map(|(_, job)| *job)
    }
}

/// Finds jobs of a request that wait for each other in a circle: for each job, by its position, the positions that it waits for. Returns
/// the positions of one circle, in the order in which they wait.
#[must_use]
pub fn circle(waits_for: &[Vec<u32>]) -> Option<Vec<u32>> {
    let mut state = alloc::vec![Visit::New; waits_for.len()];
    for start in 0..waits_for.len() {
        let mut path: Vec<(usize, usize)> = alloc::vec![(start, 0)];
        if state[start] != Visit::New {
            continue;
        }
        state[start] = Visit::OnPath;
        while let Some((at, nth)) = path.last_mut() {
            let Some(next) = waits_for[*at].get(*nth).map(|next| *next as usize) else {
                state[*at] = Visit::Done;
                path.pop();
                continue;
            };
            *nth += 1;
            match state.get(next) {
                Some(Visit::New) => {
                    state[next] = Visit::OnPath;
                    path.push((next, 0));
                }
                Some(Visit::OnPath) => {
                    let of_circle = path.iter().skip_while(|(at, _)| *at != next);
                    return Some(of_circle.map(|(at, _)| u32::try_from(*at).unwrap_or(u32::MAX)).collect());
                }
                Some(Visit::Done) | None => {}
            }
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    OnPath,
    Done,
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const JOB: fn(u64) -> JobId = JobId;

    fn decided(dependencies: &mut Dependencies) -> Vec<(u64, Verdict)> {
        while dependencies.pass_on().is_some() {}
        core::iter::from_fn(|| dependencies.next_decided(|_| false)).map(|(job, it)| (job.0, it)).collect()
    }

    #[test]
    fn a_job_waits_for_all_of_its_dependencies() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(3), [(JOB(1), RequiredEnd::Success), (JOB(2), RequiredEnd::Any)]);
        dependencies.record_end(JOB(2), Some(State::Failed));
        assert_eq!(decided(&mut dependencies), []);
        assert!(dependencies.must_wait(JOB(3)));
        dependencies.record_end(JOB(1), Some(State::Succeeded));
        assert_eq!(decided(&mut dependencies), [(3, Verdict::Met)]);
        assert!(!dependencies.must_wait(JOB(3)) && !dependencies.has_work());
    }

    #[test]
    fn the_first_wrong_end_decides() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(3), [(JOB(1), RequiredEnd::Success), (JOB(2), RequiredEnd::Failure)]);
        dependencies.record_end(JOB(2), Some(State::Succeeded));
        dependencies.record_end(JOB(1), None);
        let unmet = Unmet { on: JOB(2), state: Some(State::Succeeded), is_skipped: true };
        assert_eq!(decided(&mut dependencies), [(3, Verdict::Unmet(unmet))]);
    }

    #[test]
    fn what_comes_after_a_skipped_job_is_skipped() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(2), [(JOB(1), RequiredEnd::Success)]);
        dependencies.skip(JOB(1));
        dependencies.record_end(JOB(1), Some(State::Cancelled));
        let [(2, Verdict::Unmet(unmet))] = decided(&mut dependencies)[..] else { panic!("it is decided") };
        assert!(unmet.is_skipped && dependencies.skipped.is_empty());
    }

    #[test]
    fn a_job_that_ended_while_it_waited_learns_nothing_more() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(2), [(JOB(1), RequiredEnd::Any)]);
        assert!(dependencies.record_end(JOB(2), Some(State::Cancelled)));
        assert!(!dependencies.record_end(JOB(1), Some(State::Succeeded)));
        assert_eq!(decided(&mut dependencies), []);
        assert!(!dependencies.has_work());
    }

    #[test]
    fn a_hidden_job_is_decided_when_it_is_visible() {
        let mut dependencies = Dependencies::default();
        dependencies.add(JOB(2), [(JOB(1), RequiredEnd::Any)]);
        dependencies.record_end(JOB(1), Some(State::Lost));
        assert!(dependencies.pass_on().is_some());
        assert_eq!(dependencies.next_decided(|_| true), None);
        dependencies.review(JOB(2));
        assert_eq!(dependencies.next_decided(|_| false), Some((JOB(2), Verdict::Met)));
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

    #[test]
    fn a_circle_is_found_wherever_it_is() {
        assert_eq!(circle(&[vec![], vec![0], vec![0, 1]]), None);
        assert_eq!(circle(&[vec![0]]), Some(vec![0]));
        assert_eq!(circle(&[vec![], vec![0, 3], vec![1], vec![2]]), Some(vec![1, 3, 2]));
        let chain: Vec<Vec<u32>> =
            (0..100_000).map(|at| if at == 0 { vec![] } else { vec![at - 1] }).collect();
        assert_eq!(circle(&chain), None);
    }
}
