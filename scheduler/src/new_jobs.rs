//! The jobs of one request. Those of an array are all alike, and are kept as one.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::iter;
use core::time::Duration;

use protocol::{JobId, Revision, Timestamp};

use crate::dependencies::Dependency;
use crate::details::JobDetails;
use crate::job::AttemptTimeout;
use crate::placement::narrowing::Narrowing;
use crate::run_on::MemberPlan;

/// One job of a submission.
#[derive(Clone, Debug, Default)]
pub struct NewJob {
    /// The revision of its definition.
    pub revision: Revision,
    /// Overrides the definition's priority.
    pub priority: Option<i8>,
    /// Overrides the definition's timeout.
    pub timeout: Option<AttemptTimeout>,
    /// Earliest start; at once if absent.
    pub run_at: Option<StartTime>,
    /// The ended job that this one repeats.
    pub retry_of: Option<JobId>,
    /// The name of the requester; none if nobody is known, or no request makes it. Jobs of one request share the text.
    pub submitted_by: Option<Arc<str>>,
    /// It waits for the ends of these jobs and batches.
    pub after: Vec<Dependency>,
    /// An earlier job of its schedule, or the one that it replaces by its unique key, must end first. Never set by a request.
    pub waits_for_earlier: bool,
    /// Its place in a chain of hooks; zero if no hook makes it. Never set by a request.
    pub hook_depth: u8,
    /// The workers of its members, if it repeats some of those of an earlier parent; its definition decides otherwise.
    pub members: Option<MemberPlan>,
    /// The workers that it asks for, of those that its definition allows; never empty.
    pub narrowing: Option<Arc<Narrowing>>,
    /// Its unique key, if the request says one; the definition has a rule then.
    pub unique_key: Option<Arc<str>>,
    /// Data that no decision depends on; passed through to the change.
    pub details: Option<Box<JobDetails>>,
}

/// The earliest start that a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartTime {
    /// At this instant; an instant in the past means at once.
    At(Timestamp),
    /// This long after the request is accepted.
    After(Duration),
}

impl StartTime {
    /// The instant, for a request that is accepted at `accepted_at`; never before that.
    #[must_use]
    pub fn resolve(self, accepted_at: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at.max(accepted_at),
            Self::After(delay) => accepted_at + delay,
        }
    }
}

/// The jobs of a request, in order.
#[derive(Clone, Debug)]
pub enum NewJobs {
    /// Each job by itself.
    Each(Vec<NewJob>),
    /// This many copies of one job.
    Copies(Box<NewJob>, u32),
}

impl NewJobs {
    /// The number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Each(jobs) => jobs.len(),
            Self::Copies(_, count) => *count as usize,
        }
    }

    /// There is no job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names the requester of all jobs.
    pub fn set_submitted_by(&mut self, name: &Arc<str>) {
        let jobs = match self {
            Self::Each(jobs) => jobs.as_mut_slice(),
            Self::Copies(job, _) => core::slice::from_mut(&mut **job),
        };
        jobs.iter_mut().for_each(|job| job.submitted_by = Some(Arc::clone(name)));
    }

    /// The jobs in order; a job that is kept once comes as often as it is asked for.
    pub fn iter(&self) -> impl Iterator<Item = &NewJob> + Clone {
        let (each, copy) = match self {
            Self::Each(jobs) => (jobs.as_slice(), None),
            Self::Copies(job, count) => (&[][..], Some((&**job, *count as usize))),
        };
        each.iter().chain(copy.into_iter().flat_map(|(job, count)| iter::repeat_n(job, count)))
    }

    /// The jobs in order; copies come once.
    pub fn distinct(&self) -> impl Iterator<Item = &NewJob> {
        match self {
            Self::Each(jobs) => jobs.as_slice(),
            Self::Copies(job, _) => core::slice::from_ref(&**job),
        }
        .iter()
    }
}

impl From<Vec<NewJob>> for NewJobs {
    fn from(jobs: Vec<NewJob>) -> Self {
        Self::Each(jobs)
    }
}

impl IntoIterator for NewJobs {
    type Item = NewJob;
    type IntoIter = Rest;

    fn into_iter(self) -> Rest {
        match self {
            Self::Each(jobs) => Rest::Each(jobs.into_iter()),
            Self::Copies(job, count) => Rest::Copies(iter::repeat_n(job, count as usize)),
        }
    }
}

/// The jobs that have not been taken out. Copies are made one by one.
#[derive(Clone, Debug)]
pub enum Rest {
    /// Each job by itself.
    Each(vec::IntoIter<NewJob>),
    /// Jobs that are all alike.
    Copies(iter::RepeatN<Box<NewJob>>),
}

impl Iterator for Rest {
    type Item = NewJob;

    fn next(&mut self) -> Option<NewJob> {
        match self {
            Self::Each(jobs) => jobs.next(),
            Self::Copies(copies) => copies.next().map(|job| *job),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Each(jobs) => jobs.size_hint(),
            Self::Copies(copies) => copies.size_hint(),
        }
    }
}

impl ExactSizeIterator for Rest {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_yield_the_requested_count() {
        let job = NewJob { priority: Some(3), ..NewJob::default() };
        let jobs = NewJobs::Copies(Box::new(job), 4);
        assert_eq!((jobs.len(), jobs.iter().count()), (4, 4));
        let mut rest = jobs.into_iter();
        assert_eq!(rest.next().and_then(|job| job.priority), Some(3));
        assert_eq!((rest.len(), rest.count()), (3, 3));
    }
}
