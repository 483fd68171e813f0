//! Stories of hooks: which job was made for which event of which other job.

use protocol::report::Outcome;
use protocol::{JobId, Timestamp};
use scheduler::hooks::{HookEvent, HookRefusal, HookResult, HookRow};
use scheduler::job::State;
use scheduler::step::Change;

use super::Backend;
use super::harness::*;
use crate::store::{HookRecord, RetentionCutoffs};

fn row(parent: u64, event: HookEvent, target: &str, result: HookResult) -> HookRow {
    HookRow { parent: JobId(parent), event, target: target.into(), at: Timestamp(5_001), result }
}

const fn made(job: u64, depth: u8) -> HookResult {
    HookResult::Made { job: JobId(job), depth }
}

pub(in crate::store) fn a_hook_is_decided_once_and_shown_on_both_of_its_jobs(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let first = row(1, HookEvent::Failure, "mail", made(2, 1));
    let second = row(1, HookEvent::End, "mail", made(3, 1));
    let third = row(1, HookEvent::End, "gone", HookResult::LeftOut(HookRefusal::Removed));
    harness.commit(vec![added(1)]);
    harness.commit(vec![
        ended(1, State::Expired, None),
        added(2),
        Change::Hook(first.clone()),
        added(3),
        Change::Hook(second.clone()),
        Change::Hook(third.clone()),
    ]);
    for (event, target, result) in [
        (HookEvent::Failure, "mail", made(4, 1)),
        (HookEvent::End, "gone", made(4, 1)),
        (HookEvent::Failure, "gone", made(3, 1)),
    ] {
        harness.refused(vec![added(4), Change::Hook(row(1, event, target, result))]);
    }
    for _ in 0..2 {
        let record = |job| harness.archive().job(JobId(job)).unwrap().unwrap();
        let shown = |row: &HookRow, state| HookRecord { row: row.clone(), state };
        let queued = Some(State::Queued);
        assert_eq!(
            record(1).hooks,
            [shown(&first, queued), shown(&third, None), shown(&second, queued)],
            "in the order of events"
        );
        assert_eq!((record(1).parent, record(3).parent), (None, Some(second.clone())));
        assert_eq!(record(3).hooks, []);
        harness.restart();
    }
}

pub(in crate::store) fn a_restart_knows_the_depth_of_hooks_and_the_first_start(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=5).map(added).collect());
    harness.commit(vec![
        Change::Hook(row(9, HookEvent::Start, "resize", made(2, 7))),
        assigned(3, 1),
        assigned(4, 2),
        started(4, 2),
        assigned(5, 3),
        started(5, 3),
    ]);
    let again = waiting(closed(5, 3, Outcome::Failed), State::Queued);
    harness.commit(vec![again, assigned_as(5, 4, 2, 1)]);
    let (_, live) = harness.restart();
    let known: Vec<_> = live.iter().map(|job| (job.job.0, job.hook_depth, job.has_started)).collect();
    assert_eq!(known, [(1, 0, false), (2, 7, false), (3, 0, false), (4, 0, true), (5, 0, true)]);
}

pub(in crate::store) fn a_hook_is_kept_as_long_as_one_of_its_jobs(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let hook = row(1, HookEvent::End, "mail", made(2, 1));
    harness.commit(vec![added(1)]);
    harness.commit(vec![ended_at(1, State::Cancelled, 5_000), added(2), Change::Hook(hook.clone())]);
    let left_out = row(1, HookEvent::End, "gone", HookResult::LeftOut(HookRefusal::Disabled));
    harness.commit(vec![Change::Hook(left_out)]);
    harness.remove_all(RetentionCutoffs { ended_since: Timestamp(6_000), ..KEEP });
    assert_eq!(harness.archive().job(JobId(1)).unwrap(), None);
    let parent = |harness: &Harness<'_>, job| harness.archive().job(JobId(job)).unwrap().unwrap().parent;
    assert_eq!(parent(&harness, 2), Some(hook));
    harness.commit(vec![ended_at(2, State::Cancelled, 7_000)]);
    harness.remove_all(RetentionCutoffs { ended_since: Timestamp(8_000), ..KEEP });
    // The row is gone: the same hook could be written again.
    harness.commit(vec![added(3), Change::Hook(row(1, HookEvent::End, "mail", made(3, 1)))]);
    assert_eq!(parent(&harness, 3).map(|row| row.parent), Some(JobId(1)));
}
