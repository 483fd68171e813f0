//! Facts about jobs that have not ended, kept for their events: 32 bytes a job, in pages of 64 consecutive numbers; and how many queued
//! jobs are due since each second, which tells the longest wait.
//!
//! Changes name a job by its number alone. Reading its row for each event would cost more than the commit itself.

use std::collections::{BTreeMap, HashMap};

use protocol::{JobId, Timestamp};
use scheduler::job::State;

/// Jobs of one page.
const PAGE_JOBS: u64 = 64;

/// The index of a definition's revision in the table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DefinitionIndex(pub(super) u32);

/// Facts about a job that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobFacts {
    pub(super) created_at: Timestamp,
    pub(super) due_at: Timestamp,
    pub(super) definition: DefinitionIndex,
    /// The job's distance from the first job of its batch, plus one; 0 if it came alone.
    batch_distance: u32,
    pub(super) attempts: u32,
    pub(super) priority: i8,
    pub(super) state: State,
}

impl JobFacts {
    /// A job that was just accepted.
    pub(super) fn new(
        job: JobId,
        batch: Option<JobId>,
        definition: DefinitionIndex,
        times: (Timestamp, Timestamp),
    ) -> Self {
        let distance = batch.map_or(0, |first| job.0.saturating_sub(first.0) + 1);
        Self {
            created_at: times.0,
            due_at: times.1,
            definition,
            batch_distance: u32::try_from(distance).unwrap_or(0),
            attempts: 0,
            priority: 0,
            state: State::Queued,
        }
    }

    /// The first job of its batch.
    pub(super) fn batch(&self, job: JobId) -> Option<JobId> {
        (self.batch_distance > 0).then(|| JobId(job.0 - (u64::from(self.batch_distance) - 1)))
    }
}

/// Jobs that have not ended, by number.
#[derive(Debug, Default)]
pub(super) struct LiveJobs {
    pages: HashMap<u64, Page>,
    /// Queued jobs by the second since which they are due.
    queued: BTreeMap<i64, u32>,
    running: usize,
    /// The differences of the numbers of running jobs since they were last taken, by definition.
    running_changes: HashMap<DefinitionIndex, i64>,
    quarantined: usize,
}

/// The live jobs among 64 consecutive numbers, in their order.
#[derive(Debug, Default)]
struct Page {
    /// A bit for each job that is here.
    present: u64,
    facts: Vec<JobFacts>,
}

impl Page {
    /// The place of a job in `facts`, or where it would be.
    fn place(&self, job: JobId) -> Result<usize, usize> {
        let bit = job.0 % PAGE_JOBS;
        let before = (self.present & ((1 << bit) - 1)).count_ones() as usize;
        if self.present & (1 << bit) == 0 { Err(before) } else { Ok(before) }
    }
}

impl LiveJobs {
    /// Adds or replaces a job.
    pub(super) fn insert(&mut self, job: JobId, facts: JobFacts) {
        self.remove(job);
        self.count(&facts, true);
        let page = self.pages.entry(job.0 / PAGE_JOBS).or_default();
        if let Err(place) = page.place(job) {
            page.present |= 1 << (job.0 % PAGE_JOBS);
            page.facts.insert(place, facts);
        }
    }

    /// A job that has not ended.
    pub(super) fn get(&self, job: JobId) -> Option<JobFacts> {
        let page = self.pages.get(&(job.0 / PAGE_JOBS))?;
        page.facts.get(page.place(job).ok()?).copied()
    }

    /// Changes a job that has not ended, if it is known.
    pub(super) fn update(&mut self, job: JobId, change: impl FnOnce(&mut JobFacts)) {
        let Some(page) = self.pages.get_mut(&(job.0 / PAGE_JOBS)) else { return };
        let Ok(place) = page.place(job) else { return };
        let before = page.facts[place];
        change(&mut page.facts[place]);
        let after = page.facts[place];
        self.count(&before, false);
        self.count(&after, true);
    }

    /// Since when the oldest queued job is due, to the second.
    pub(super) fn oldest_queued(&self) -> Option<Timestamp> {
        self.queued.first_key_value().map(|(second, _)| Timestamp(second.saturating_mul(1_000)))
    }

    /// Jobs whose container runs, and jobs with `run_on` of which a member runs or has run.
    pub(super) const fn running(&self) -> usize {
        self.running
    }

    /// The differences of the numbers of running jobs since this was last called, by definition.
    pub(super) fn take_running_changes(&mut self) -> impl Iterator<Item = (DefinitionIndex, i64)> + use<> {
        std::mem::take(&mut self.running_changes).into_iter().filter(|(_, change)| *change != 0)
    }

    fn count_running(&mut self, definition: DefinitionIndex, change: i64) {
        *self.running_changes.entry(definition).or_default() += change;
    }

    /// Jobs that an operator has to release or cancel.
    pub(super) const fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Counts a job in or out.
    fn count(&mut self, facts: &JobFacts, is_added: bool) {
        match facts.state {
            State::Queued => self.count_queued(facts, is_added),
            State::Running if is_added => {
                self.running += 1;
                self.count_running(facts.definition, 1);
            }
            State::Running => {
                self.running -= 1;
                self.count_running(facts.definition, -1);
            }
            State::Quarantined if is_added => self.quarantined += 1,
            State::Quarantined => self.quarantined -= 1,
            _ => {}
        }
    }

    fn count_queued(&mut self, facts: &JobFacts, is_added: bool) {
        let second = facts.due_at.0.div_euclid(1_000);
        let count = self.queued.entry(second).or_default();
        *count = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
        if *count == 0 {
            self.queued.remove(&second);
        }
    }

    /// Removes a job that has ended.
    pub(super) fn remove(&mut self, job: JobId) -> Option<JobFacts> {
        let number = job.0 / PAGE_JOBS;
        let page = self.pages.get_mut(&number)?;
        let place = page.place(job).ok()?;
        page.present &= !(1 << (job.0 % PAGE_JOBS));
        let removed = page.facts.remove(place);
        if page.facts.is_empty() {
            self.pages.remove(&number);
        }
        self.count(&removed, false);
        Some(removed)
    }

    /// Forgets all jobs.
    pub(super) fn clear(&mut self) {
        for facts in std::mem::take(&mut self.pages).values().flat_map(|page| &page.facts) {
            if facts.state == State::Running {
                self.count_running(facts.definition, -1);
            }
        }
        self.queued.clear();
        (self.running, self.quarantined) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn facts(number: u32) -> JobFacts {
        JobFacts::new(JobId(9), Some(JobId(7)), DefinitionIndex(number), (Timestamp(1), Timestamp(2)))
    }

    #[test]
    fn facts_of_a_job_take_thirty_two_bytes() {
        assert_eq!(size_of::<JobFacts>(), 32);
    }

    #[test]
    fn quarantined_jobs_are_counted_until_they_go_on_or_end() {
        let mut jobs = LiveJobs::default();
        for job in 1..=2 {
            jobs.insert(JobId(job), facts(0));
            jobs.update(JobId(job), |facts| facts.state = State::Quarantined);
        }
        assert_eq!(jobs.quarantined(), 2);
        jobs.update(JobId(1), |facts| facts.state = State::Queued);
        assert_eq!(jobs.quarantined(), 1);
        jobs.remove(JobId(2));
        assert_eq!(jobs.quarantined(), 0);
    }

    #[test]
    fn running_jobs_are_counted_from_their_start_until_they_end_or_wait_again() {
        let mut jobs = LiveJobs::default();
        for job in 1..=3 {
            jobs.insert(JobId(job), facts(0));
            jobs.update(JobId(job), |facts| facts.state = State::Assigned);
        }
        assert_eq!(jobs.running(), 0, "they are prepared");
        for job in 1..=3 {
            jobs.update(JobId(job), |facts| facts.state = State::Running);
        }
        assert_eq!(jobs.running(), 3);
        jobs.update(JobId(1), |facts| facts.state = State::Queued);
        jobs.update(JobId(2), |facts| facts.state = State::Succeeded);
        jobs.remove(JobId(2));
        assert_eq!(jobs.running(), 1);
        jobs.clear();
        assert_eq!(jobs.running(), 0);
    }

    #[test]
    fn changes_of_running_jobs_are_told_once_by_definition() {
        let mut jobs = LiveJobs::default();
        for job in 1..=3 {
            jobs.insert(JobId(job), facts(u32::from(job == 3)));
            jobs.update(JobId(job), |facts| facts.state = State::Running);
        }
        let taken = |jobs: &mut LiveJobs| {
            let mut changes: Vec<_> =
                jobs.take_running_changes().map(|(of, change)| (of.0, change)).collect();
            changes.sort_unstable();
            changes
        };
        assert_eq!(taken(&mut jobs), [(0, 2), (1, 1)]);
        jobs.remove(JobId(3));
        jobs.update(JobId(1), |facts| facts.state = State::Queued);
        jobs.update(JobId(1), |facts| facts.state = State::Running);
        assert_eq!(taken(&mut jobs), [(1, -1)], "job 1 runs as before");
        jobs.clear();
        assert_eq!(taken(&mut jobs), [(0, -2)]);
        assert_eq!(taken(&mut jobs), []);
    }

    #[test]
    fn the_oldest_queued_job_is_known_to_the_second() {
        let mut jobs = LiveJobs::default();
        let due = |at| JobFacts::new(JobId(1), None, DefinitionIndex(0), (Timestamp(1), Timestamp(at)));
        jobs.insert(JobId(1), due(5_700));
        jobs.insert(JobId(2), due(5_800));
        jobs.insert(JobId(3), due(9_000));
        assert_eq!(jobs.oldest_queued(), Some(Timestamp(5_000)));
        jobs.update(JobId(1), |facts| facts.state = State::Assigned);
        assert_eq!(jobs.oldest_queued(), Some(Timestamp(5_000)), "job 2 still waits");
        jobs.remove(JobId(2));
        assert_eq!(jobs.oldest_queued(), Some(Timestamp(9_000)));
        jobs.update(JobId(3), |facts| facts.due_at = Timestamp(12_000));
        assert_eq!(jobs.oldest_queued(), Some(Timestamp(12_000)));
        jobs.remove(JobId(1));
        jobs.remove(JobId(3));
        assert_eq!(jobs.oldest_queued(), None);
    }

    #[test]
    fn the_batch_of_a_job_is_kept_as_a_distance() {
        assert_eq!(facts(0).batch(JobId(9)), Some(JobId(7)));
        let alone = JobFacts::new(JobId(9), None, DefinitionIndex(0), (Timestamp(1), Timestamp(2)));
        assert_eq!(alone.batch(JobId(9)), None);
    }

    proptest! {
        #[test]
        fn live_jobs_are_a_map(steps in prop::collection::vec((0u64..200, 0u8..3, any::<u32>()), 0..300)) {
            let (mut jobs, mut map) = (LiveJobs::default(), BTreeMap::new());
            for (job, verb, number) in steps {
                if verb == 0 {
                    let removed = jobs.remove(JobId(job)).map(|facts| facts.definition.0);
                    prop_assert_eq!(removed, map.remove(&job));
                } else {
                    jobs.insert(JobId(job), facts(number));
                    map.insert(job, number);
                }
            }
            for job in 0..200 {
                let found = jobs.get(JobId(job)).map(|facts| facts.definition.0);
                prop_assert_eq!(found, map.get(&job).copied());
            }
            prop_assert_eq!(jobs.oldest_queued().is_some(), !map.is_empty());
        }
    }
}
