//! Large batches on their way. Their members are made in slices, one for each group, so that nothing else is held up. Until the last
//! one is made they are nobody's business: not placed, not due, not found, not counted.
//!
//! ```text
//! asked for ──▶ waits for the batches before it ──▶ slice, slice, … ──▶ the last slice: all are ready, and it is answered
//! ```
//!
//! One after another, not in turns: the first is done sooner and the last no later, and a crash leaves the rows of one batch at most.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use protocol::{JobId, Timestamp};

use crate::definitions::DefinitionNo;
use crate::input::{Details, GroupNo, NewJob, Ticket};
use crate::ready::{LaneKey, Place};

/// How many members may be waiting to be made: ten of the largest requests, some 100 MB beside what they add to their definitions.
const MEMBERS_MAX: usize = 1_000_000;

/// How many repetitions of one request may wait for its answer: more than this are no client's retries.
const ECHOES_MAX: usize = 1_024;

/// So many bytes of what a member adds to its definition weigh as much as its row.
const BYTES_PER_WEIGHT: usize = 1_024;

/// All large batches that are not made yet.
#[derive(Debug, Default)]
pub struct Forming {
    under_way: Option<UnderWay>,
    waiting: VecDeque<Batch>,
    /// The last group that got its slice.
    sliced_in: Option<GroupNo>,
}

/// A large batch that was asked for.
#[derive(Debug)]
pub struct Batch {
    /// Where the answer goes.
    pub ticket: Ticket,
    /// The request's idempotency key, and its digest.
    pub key: Option<(Arc<str>, u128)>,
    /// Requests that came with the same key meanwhile, each with its digest: they are told the same, once it is true.
    pub echoes: Vec<(Ticket, u128)>,
    /// Members that are still to be made.
    pub rest: vec::IntoIter<NewJob>,
    /// How many members it will have.
    pub count: u32,
    /// What its members are made of: held, so that another reading of jobs.yaml does not take it away.
    pub definitions: BTreeSet<DefinitionNo>,
}

/// The batch whose members are being made.
#[derive(Debug)]
pub struct UnderWay {
    /// What was asked for.
    pub batch: Batch,
    /// Its first member; the others follow.
    pub first: JobId,
    /// When the first slice was made: the instant of all members.
    pub created_at: Timestamp,
    /// Members that will wait for a slot.
    pub lanes: BTreeMap<LaneKey, BTreeSet<Place>>,
    /// Members that will wait for an instant.
    pub dates: Vec<(Timestamp, JobId)>,
}

impl Forming {
    /// Whether a batch of so many members can be taken on now.
    #[must_use]
    pub fn has_room(&self, members: usize) -> bool {
        self.to_be_made() + members <= MEMBERS_MAX
    }

    /// How many members of all batches are still to be made.
    #[must_use]
    pub fn to_be_made(&self) -> usize {
        self.batches().map(|batch| batch.rest.len()).sum()
    }

    /// Lets a batch wait until those before it are made.
    pub fn push(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    /// The batch that came with this key, if it is not made yet.
    pub fn keyed(&mut self, key: &str) -> Option<&mut Batch> {
        let under_way = self.under_way.iter_mut().map(|it| &mut it.batch);
        let mut batches = under_way.chain(&mut self.waiting);
        batches.find(|batch| batch.key.as_ref().is_some_and(|(own, _)| **own == *key))
    }

    /// Whether there is a slice to be made in this group.
    #[must_use]
    pub fn wants_slice(&self, group: GroupNo) -> bool {
        self.batches().next().is_some() && self.sliced_in != Some(group)
    }

    /// Takes out the batch that gets this group's slice. `begin` says how one is begun that has waited so far.
    pub fn take(&mut self, group: GroupNo, begin: impl FnOnce(Batch) -> UnderWay) -> Option<UnderWay> {
        if !self.wants_slice(group) {
            return None;
        }
        self.sliced_in = Some(group);
        self.under_way.take().or_else(|| self.waiting.pop_front().map(begin))
    }

    /// Puts a batch back that is to get another slice.
    pub fn put_back(&mut self, under_way: UnderWay) {
        self.under_way = Some(under_way);
    }

    /// Whether this job is a member that has been made, of a batch that has not.
    #[must_use]
    pub fn hides(&self, job: JobId) -> bool {
        self.under_way.as_ref().is_some_and(|it| it.made().contains(&job.0))
    }

    /// How many jobs are hidden.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.under_way
            .as_ref()
            .map_or(0, |it| it.lanes.values().map(BTreeSet::len).sum::<usize>() + it.dates.len())
    }

    /// The batch whose members are being made: for the audit.
    #[must_use]
    pub const fn under_way(&self) -> Option<&UnderWay> {
        self.under_way.as_ref()
    }

    /// All of them, in the order in which they will be made.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.under_way.iter().map(|it| &it.batch).chain(&self.waiting)
    }
}

impl Batch {
    /// Lets a request that came with the same key wait for the answer to this one. Returns whether it may: too many do already.
    pub fn echo(&mut self, ticket: Ticket, digest: u128) -> bool {
        let has_room = self.echoes.len() < ECHOES_MAX;
        if has_room {
            self.echoes.push((ticket, digest));
        }
        has_room
    }
}

impl UnderWay {
    /// The number of the last member.
    #[must_use]
    pub fn last(&self) -> JobId {
        JobId(self.first.0 + u64::from(self.batch.count) - 1)
    }

    /// The number of the next member.
    #[must_use]
    pub fn next(&self) -> JobId {
        JobId(self.made().end)
    }

    /// The numbers of those that were made.
    #[must_use]
    pub fn made(&self) -> core::ops::Range<u64> {
        let made = u64::from(self.batch.count).saturating_sub(self.batch.rest.len() as u64);
        self.first.0..self.first.0 + made
    }
}

/// Whether these jobs are more than one slice.
#[must_use]
pub fn is_large(jobs: &[NewJob], slice: usize) -> bool {
    let mut weight = 0;
    jobs.len() > 1
        && jobs.iter().any(|job| {
            weight += self::weight(job);
            weight > slice
        })
}

/// What it costs to write a job down, compared to one that adds nothing to its definition.
#[must_use]
pub fn weight(job: &NewJob) -> usize {
    1 + job.details.as_ref().map_or(0, |details| bytes(details) / BYTES_PER_WEIGHT)
}

fn bytes(details: &Details) -> usize {
    let pairs = |pairs: &[(String, String)]| {
        pairs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    };
    let body = &details.body;
    pairs(&details.labels)
        + pairs(&body.environment)
        + body.args.iter().map(String::len).sum::<usize>()
        + body.input.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use protocol::container::Body;

    use super::*;

    fn with_args(bytes: usize) -> NewJob {
        let details =
            Details { body: Body { args: vec!["x".repeat(bytes)], ..Body::default() }, ..Details::default() };
        NewJob { details: Some(details.into()), ..NewJob::default() }
    }

    #[test]
    fn a_batch_is_large_by_its_members_or_by_what_they_bring_along() {
        assert!(!is_large(&vec![NewJob::default(); 100], 100));
        assert!(is_large(&vec![NewJob::default(); 101], 100));
        assert!(!is_large(&vec![with_args(1_000); 100], 100));
        assert!(is_large(&vec![with_args(11_000); 10], 100));
        assert!(!is_large(&[with_args(1_000_000)], 100), "one job cannot be divided");
    }

    #[test]
    fn a_member_weighs_as_much_as_all_that_it_brings_along() {
        let some = "x".repeat(BYTES_PER_WEIGHT);
        let pairs = vec![(some.clone(), some.clone())];
        let body = Body { environment: pairs.clone(), args: vec![some.clone(); 2], input: Some(some) };
        let details = Details { labels: pairs, body };
        assert_eq!(weight(&NewJob { details: Some(details.into()), ..NewJob::default() }), 1 + 2 + 2 + 2 + 1);
        assert_eq!(weight(&NewJob::default()), 1);
    }

    #[test]
    fn only_so_many_members_wait_to_be_made() {
        let mut forming = Forming::default();
        assert!(forming.has_room(MEMBERS_MAX) && !forming.has_room(MEMBERS_MAX + 1));
        let rest = vec![NewJob::default(); 10].into_iter();
        let (key, echoes, definitions) = (None, Vec::new(), BTreeSet::new());
        forming.push(Batch { ticket: Ticket(1), key, echoes, rest, count: 10, definitions });
        assert!(forming.has_room(MEMBERS_MAX - 10) && !forming.has_room(MEMBERS_MAX - 9));
    }
}
