//! A story of the job of a definition that ended last.

use protocol::Revision;
use protocol::report::Outcome;
use scheduler::job::State;
use scheduler::step::{AddedJob, Change};

use super::Backend;
use super::harness::*;

pub(in crate::store) fn the_last_end_of_a_definition_is_found(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    assert_eq!(harness.archive().last_ended("resize").unwrap(), None);
    harness.commit(vec![
        added(1),
        added(2),
        added(3),
        Change::Added(AddedJob { revision: Revision(2), ..job(4) }),
    ]);
    harness.commit(vec![assigned(1, 1), assigned(2, 2), assigned(4, 4)]);
    harness.commit(vec![
        succeeded(1, 1),
        ended(2, State::Failed, Some(closed(2, 2, Outcome::Failed))),
        succeeded(4, 4),
    ]);
    let last = |name: &str| harness.archive().last_ended(name).unwrap().map(|row| (row.job.0, row.state));
    assert_eq!(last("resize"), Some((2, State::Failed)));
    assert_eq!(last("mail"), Some((4, State::Succeeded)));
    assert_eq!(last("unheard"), None);
    harness.commit(vec![ended_at(3, State::Cancelled, 4_900)]);
    let last = |name: &str| harness.archive().last_ended(name).unwrap().map(|row| (row.job.0, row.state));
    assert_eq!(last("resize"), Some((2, State::Failed)), "the newest one ended earlier");
    // A long job ends after many that were made after it.
    harness.commit((5..=90).map(added).collect());
    harness.commit((6..=90).map(|job| ended_at(job, State::Cancelled, 5_100)).collect());
    harness.commit(vec![ended_at(5, State::Cancelled, 5_200)]);
    harness.commit(vec![added(91)]);
    harness.commit(vec![ended_at(91, State::Cancelled, 5_150)]);
    let last = |harness: &Harness<'_>| harness.archive().last_ended("resize").unwrap().map(|row| row.job.0);
    assert_eq!(last(&harness), Some(5));
    harness.restart();
    assert_eq!(last(&harness), Some(5));
}
