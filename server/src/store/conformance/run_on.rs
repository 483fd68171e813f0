//! Stories of jobs on several workers.

use protocol::container::Overrides;
use protocol::{JobId, Timestamp, WorkerId};
use scheduler::details::JobDetails;
use scheduler::job::State;
use scheduler::run_on::{LiveParent, MemberPlan, MemberRow, ParentCounts, ParentRow, WorkerUse};
use scheduler::step::{AddedJob, Change};

use super::Backend;
use super::harness::*;
use crate::store::{JobFilter, MemberOnWorker, RetentionCutoffs, RunOnRole};

fn parent(number: u64, plan: MemberPlan) -> ParentRow {
    let counts = ParentCounts::default();
    ParentRow { job: JobId(number), plan, is_complete: false, counts, started_at: None, cancelled_by: None }
}

fn member(number: u64, of: u64, pinned: Option<u64>) -> MemberRow {
    MemberRow { job: JobId(number), parent: JobId(of), pinned: pinned.map(WorkerId) }
}

fn count(members: u32, except: &[u64]) -> MemberPlan {
    MemberPlan::Count { members, except: except.iter().copied().map(WorkerId).collect() }
}

pub(in crate::store) fn parents_come_back_with_their_members(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let all = parent(1, MemberPlan::All);
    let two = parent(4, count(2, &[7]));
    let named = parent(6, MemberPlan::Workers([WorkerId(3), WorkerId(9)].into()));
    let used = WorkerUse { parent: JobId(4), worker: WorkerId(5), member: JobId(5) };
    harness.commit(vec![
        added(1),
        Change::Parent(all.clone()),
        Change::Member(member(2, 1, Some(3))),
        added(2),
        Change::Member(member(3, 1, Some(4))),
        added(3),
        added(4),
        Change::Parent(two.clone()),
        Change::Member(member(5, 4, None)),
        added(5),
        Change::WorkerUsed(used),
        added(6),
        Change::Parent(named.clone()),
    ]);
    let mut complete = ParentRow { is_complete: true, started_at: Some(Timestamp(77)), ..all.clone() };
    complete.counts = ParentCounts { total: 2, failed: 1, ..ParentCounts::default() };
    let live = |row: &ParentRow, members: Vec<MemberRow>, used: Vec<WorkerUse>| LiveParent {
        row: row.clone(),
        members,
        used,
    };
    // While members are still to be made, those that have ended are needed, too.
    harness.commit(vec![ended_at(2, State::Failed, 5_000)]);
    let (loaded, _) = harness.restart();
    let both = vec![member(2, 1, Some(3)), member(3, 1, Some(4))];
    let others = [live(&two, vec![member(5, 4, None)], vec![used]), live(&named, Vec::new(), Vec::new())];
    assert_eq!(loaded.parents[..1], [live(&all, both, Vec::new())]);
    assert_eq!(loaded.parents[1..], others);
    harness.commit(vec![Change::Parent(complete.clone())]);
    let (loaded, jobs) = harness.restart();
    assert_eq!(loaded.parents[0], live(&complete, vec![member(3, 1, Some(4))], Vec::new()));
    assert_eq!((jobs[0].job, jobs[0].state), (JobId(1), State::Queued), "it has no attempt");
    let in_state = |state| JobFilter { states: vec![state], ..JobFilter::default() };
    assert_eq!(harness.list(in_state(State::Running)), [1], "a member has started");
    assert_eq!(harness.list(in_state(State::Queued)), [6, 5, 4, 3]);
    assert_eq!(
        harness.archive().job(JobId(1)).unwrap().unwrap().row.run_on_role,
        RunOnRole::Parent(complete.into())
    );
    assert_eq!(
        harness.archive().job(JobId(3)).unwrap().unwrap().row.run_on_role,
        RunOnRole::Member(member(3, 1, Some(4)))
    );
    assert_eq!(harness.list(JobFilter { parent: Some(JobId(1)), ..JobFilter::default() }), [3, 2]);
    assert_eq!(harness.list(JobFilter { without_members: true, ..JobFilter::default() }), [6, 4, 1]);
    let failed = JobFilter { parent: Some(JobId(1)), states: vec![State::Failed], ..JobFilter::default() };
    assert_eq!(harness.list(failed), [2]);
    let on_worker =
        |job, state, worker| MemberOnWorker { job: JobId(job), state, worker: Some(WorkerId(worker)) };
    let members = harness.archive().members_on_workers(JobId(1), 10).unwrap();
    assert_eq!(members, [on_worker(2, State::Failed, 3), on_worker(3, State::Queued, 4)]);
}

pub(in crate::store) fn a_parent_ends_without_an_attempt_and_keeps_its_counts(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let overrides = Overrides { args: vec!["--all".into()], ..Overrides::default() };
    let details = JobDetails { overrides: overrides.clone(), ..JobDetails::default() };
    let with_args = AddedJob { details: Some(details.into()), ..job(1) };
    let row = ParentRow { is_complete: true, started_at: Some(Timestamp(77)), ..parent(1, count(1, &[])) };
    harness.commit(vec![
        Change::Added(with_args),
        Change::Parent(row.clone()),
        Change::Member(member(2, 1, None)),
        added(2),
    ]);
    assert_eq!(harness.state(1), State::Running);
    assert_eq!(harness.archive().pipeline(JobId(1), 10).unwrap().jobs[0].state, State::Running);
    // A member has what its parent was given.
    let sent = harness.sent(&[JobId(1), JobId(2)]);
    assert_eq!(sent, [(JobId(1), overrides.clone()), (JobId(2), overrides)]);
    let mut last = row;
    last.counts = ParentCounts { total: 1, failed: 1, ..ParentCounts::default() };
    harness.commit(vec![
        ended_at(2, State::Failed, 5_000),
        Change::Parent(last.clone()),
        ended_at(1, State::Failed, 9_000),
    ]);
    assert_eq!(harness.restart().0.parents, []);
    let running = JobFilter { states: vec![State::Running], ..JobFilter::default() };
    assert_eq!(harness.list(running), [0; 0]);
    // The member ended earlier, and stays as long as its parent: a retry of it needs what the parent was given.
    let old = RetentionCutoffs { ended_since: Timestamp(6_000), ..KEEP };
    assert_eq!(harness.remove_all(old), 0);
    let of_parent = || JobFilter { parent: Some(JobId(1)), ..JobFilter::default() };
    assert_eq!(harness.list(of_parent()), [2]);
    assert_eq!(
        harness.archive().job(JobId(1)).unwrap().unwrap().row.run_on_role,
        RunOnRole::Parent(last.into())
    );
    let since = |at| JobFilter {
        ended_since: Some(Timestamp(at)),
        ended_until: Some(Timestamp(at + 1)),
        ..JobFilter::default()
    };
    assert_eq!(harness.list(since(5_000)), [2], "lists by end find what retention left");
    let all = RetentionCutoffs { ended_since: Timestamp(10_000), ..KEEP };
    assert_eq!(harness.remove_all(all), 2, "both at once");
    assert_eq!(harness.list(JobFilter::default()), [0; 0]);
    assert_eq!(harness.archive().job(JobId(1)).unwrap(), None);
}

pub(in crate::store) fn members_of_a_parent_that_lives_are_kept_and_go_with_it(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let row = parent(1, MemberPlan::All);
    // The second member is in another block of the coarse indexes than its parent.
    harness.commit(vec![
        added(1),
        Change::Parent(row.clone()),
        Change::Member(member(2, 1, Some(3))),
        added(2),
        added(3),
        Change::Member(member(5_000, 1, Some(4))),
        added(5_000),
    ]);
    harness.commit(vec![ended_at(2, State::Succeeded, 10), ended_at(3, State::Cancelled, 10)]);
    let nothing = RetentionCutoffs { ended_since: Timestamp(i64::MAX), ended_max: 0, ..KEEP };
    assert_eq!(harness.remove_all(nothing), 1);
    // Member 2 tells that worker 3 needs no other member.
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.parents[0].members, [member(2, 1, Some(3)), member(5_000, 1, Some(4))]);
    assert_eq!(harness.list(JobFilter::default()), [5_000, 2, 1]);
    let members = harness.archive().members_on_workers(JobId(1), 10).unwrap();
    assert_eq!(members.len(), 2);
    let complete = ParentRow { is_complete: true, ..row };
    harness.commit(vec![
        ended_at(5_000, State::Failed, 20),
        Change::Parent(complete),
        ended_at(1, State::Failed, 20),
    ]);
    assert_eq!(harness.remove_all(nothing), 3);
    assert_eq!(harness.list(JobFilter::default()), [0; 0]);
    assert_eq!(harness.restart().0.parents, []);
}
