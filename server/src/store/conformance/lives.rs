//! Stories of jobs: from change to change, folded, lost, tried again, restarted.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::container::Overrides;
use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{AttemptNo, Fence, JobId, Nonce, SessionId, Timestamp, WorkerId};
use scheduler::details::JobDetails;
use scheduler::job::{AttemptTimeout, LastPlacement, State};
use scheduler::step::{AddedJob, Change, ClosedAttempt, Note, Updated};

use super::Backend;
use super::harness::*;
use crate::store::{JobFilter, LiveJob};

pub(in crate::store) fn a_job_lives_from_change_to_change(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let scheduled = AddedJob {
        state: State::Scheduled,
        timeout: Some(AttemptTimeout::After(Duration::from_secs(9))),
        ..job(1)
    };
    harness.commit(vec![worker(1, "w1"), Change::Added(scheduled)]);
    assert_eq!(harness.state(1), State::Scheduled);
    harness.commit(vec![Change::BecameDue { job: JobId(1) }]);
    assert_eq!(harness.state(1), State::Queued);
    harness.commit(vec![assigned(1, 5)]);
    assert_eq!(harness.state(1), State::Assigned);
    harness.commit(vec![started(1, 5)]);
    assert_eq!(harness.state(1), State::Running);
    harness.commit(vec![stopping(1, 5, StopCause::Cancel)]);
    harness.commit(vec![stopping(1, 5, StopCause::Timeout)]);
    harness.commit(vec![ended(1, State::Cancelled, Some(closed(1, 5, Outcome::Cancelled)))]);
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    let row = &record.row;
    assert_eq!((row.state, row.priority, &*row.definition), (State::Cancelled, -3, "resize"));
    assert_eq!(
        (row.timeout, row.attempts),
        (Some(AttemptTimeout::After(Duration::from_secs(9))), AttemptNo(1))
    );
    assert_eq!((row.ended_at, &*row.reason, row.confirmed), (Some(Timestamp(5_001)), "because", true));
    let attempt = row.attempt.as_ref().unwrap();
    assert_eq!((attempt.fence, attempt.nonce, attempt.worker), (Fence(5), Nonce(u64::MAX - 5), WorkerId(1)));
    assert_eq!((&*attempt.worker_name, &*attempt.container, &*attempt.message), ("w1", "c5", "it broke"));
    assert_eq!((attempt.assigned_at, attempt.started_at), (Timestamp(3_000), Some(Timestamp(4_001))));
    assert_eq!((attempt.outcome, attempt.ended_at), (Some(Outcome::Cancelled), Some(Timestamp(5_000))));
    assert_eq!(attempt.stopping, Some(StopCause::Cancel), "the cause recorded first");
    assert_eq!(attempt.output, OutputLengths { stdout: 10, stderr: 20 });
    assert!(record.past.is_empty());
}

pub(in crate::store) fn a_whole_life_in_one_group_is_the_same(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![worker(1, "w1"), added(1), assigned(1, 1), started(1, 1), succeeded(1, 1)]);
    for change in [added(2), assigned(2, 1), started(2, 1), succeeded(2, 1)] {
        harness.commit(vec![change]);
    }
    harness.commit(vec![added(3), assigned(3, 1)]);
    harness.commit(vec![started(3, 1), succeeded(3, 1)]);
    harness.commit(vec![added(4)]);
    harness.commit(vec![assigned(4, 1), started(4, 1)]);
    harness.commit(vec![succeeded(4, 1)]);
    let rows = |number: u64| {
        let mut record = harness.archive().job(JobId(number)).unwrap().unwrap();
        let nonce = token(number, 1).nonce;
        assert_eq!(record.row.attempt.as_ref().map(|attempt| attempt.nonce), Some(nonce));
        (record.row.job, record.row.created_at) = (JobId(0), Timestamp(0));
        record
    };
    let whole = rows(1);
    assert_eq!(whole.row.state, State::Succeeded);
    for other in 2..=4 {
        assert_eq!(rows(other), whole, "job {other}");
    }
    harness.commit(vec![added(5), ended(5, State::Cancelled, None)]);
    assert_eq!(harness.state(5), State::Cancelled);
    assert!(harness.restart().1.is_empty());
}

pub(in crate::store) fn budgets_are_counted_by_outcome(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1)]);
    for (fence, outcome) in (1..).zip(Outcome::ALL.into_iter().skip(1)) {
        harness.commit(vec![assigned_as(1, fence, u32::try_from(fence).unwrap(), 1)]);
        harness.commit(vec![waiting(closed(1, fence, outcome), State::Queued)]);
    }
    let (_, live) = harness.restart();
    // failed, oom_killed, timed_out, pull_failed, start_failed; lost, daemon_lost, host_failed.
    assert_eq!((live[0].job_failures, live[0].oom_kills), (5, 1));
    assert_eq!(live[0].losses, [Timestamp(5_000); 3]);
    // The last one, and those before it, whether there is another by now or not.
    harness
        .commit(vec![assigned_as(1, 48, 48, 1), waiting(closed(1, 48, Outcome::OomKilled), State::Queued)]);
    assert_eq!(harness.restart().1[0].oom_kills, 2);
    harness.commit(vec![assigned_as(1, 49, 49, 1)]);
    assert_eq!(harness.restart().1[0].oom_kills, 2);
    harness.commit(vec![waiting(closed(1, 49, Outcome::Released), State::Queued)]);
    let late = ClosedAttempt { ended_at: Timestamp(5_000 + 24 * 3_600_000), ..closed(1, 50, Outcome::Lost) };
    harness.commit(vec![assigned_as(1, 50, 50, 1), waiting(late.clone(), State::Quarantined)]);
    let (_, live) = harness.restart();
    assert_eq!(live[0].losses, [late.ended_at], "older ones are forgotten after a day");
    assert_eq!(live[0].state, State::Quarantined);
}

pub(in crate::store) fn a_deadline_is_kept_until_it_is_lifted(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let expires = |job, at: Option<i64>| Change::Expiry { job: JobId(job), at: at.map(Timestamp) };
    let shown = |harness: &Harness<'_>, job| {
        let record = harness.archive().job(JobId(job)).unwrap().unwrap();
        record.row.expires_at.map(|at| at.0)
    };
    harness.commit(vec![worker(1, "w1"), added(1), expires(1, Some(70)), added(2)]);
    assert_eq!((shown(&harness, 1), shown(&harness, 2)), (Some(70), None));
    harness.commit(vec![expires(1, Some(90)), assigned(1, 1)]);
    let live = harness.restart().1;
    assert_eq!(live.iter().map(|it| it.expires_at).collect::<Vec<_>>(), [Some(Timestamp(90)), None]);
    harness.commit(vec![started(1, 1), expires(1, None)]);
    assert_eq!(shown(&harness, 1), None);
    harness.commit(vec![expires(2, Some(5))]);
    harness.commit(vec![expires(2, None), ended(2, State::Expired, None)]);
    assert_eq!((shown(&harness, 2), harness.state(2)), (None, State::Expired));
    let filter = JobFilter { limit: 10, ..JobFilter::default() };
    assert!(harness.archive().jobs(&filter).unwrap().iter().all(|row| row.expires_at.is_none()));
    assert_eq!(harness.restart().1[0].expires_at, None);
}

pub(in crate::store) fn a_successor_keeps_the_attempt_before_it(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![worker(1, "w1"), worker(2, "w2"), added(1), assigned(1, 1), started(1, 1)]);
    // Three attempts in one group.
    harness.commit(vec![
        waiting(closed(1, 1, Outcome::Failed), State::Queued),
        assigned_as(1, 2, 2, 2),
        waiting(closed(1, 2, Outcome::Released), State::Scheduled),
        Change::BecameDue { job: JobId(1) },
        assigned_as(1, 3, 3, 1),
    ]);
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    let past: Vec<_> =
        record.past.iter().map(|it| (it.number.0, it.fence.0, it.outcome, &*it.worker_name)).collect();
    assert_eq!(past, [(1, 1, Some(Outcome::Failed), "w1"), (2, 2, Some(Outcome::Released), "w2")]);
    assert_eq!(record.past[0].exit_code, Some(3));
    assert_eq!(record.past[1].released, Some(ReleaseCause::Full));
    let current = record.row.attempt.unwrap();
    assert_eq!((current.number, current.fence, current.outcome), (AttemptNo(3), Fence(3), None));
    assert_eq!(
        (current.exit_code, &*current.message, current.ended_at),
        (None, "", None),
        "nothing of the one before"
    );
    harness.commit(vec![waiting(closed(1, 3, Outcome::Lost), State::Queued)]);
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    assert_eq!(record.row.attempt.unwrap().outcome, Some(Outcome::Lost), "the latest stays with its job");
    assert_eq!((record.past.len(), record.row.due_at), (2, Timestamp(9_000)));
}

pub(in crate::store) fn a_cancel_is_recorded_whatever_stops_the_job_already(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=3).flat_map(|job| [added(job), assigned(job, job), started(job, job)]).collect());
    harness.commit((1..=3).map(|job| stopping(job, job, StopCause::Drain)).collect());
    harness.commit((1..=2).map(|job| stopping(job, job, StopCause::Timeout)).collect());
    harness.commit(vec![stopping(2, 2, StopCause::Cancel)]);
    let interrupted = ended(3, State::Cancelled, Some(closed(3, 3, Outcome::Interrupted)));
    harness.commit(vec![stopping(3, 3, StopCause::Cancel), interrupted]);
    let causes = [1, 2, 3]
        .map(|job| harness.archive().job(JobId(job)).unwrap().unwrap().row.attempt.unwrap().stopping);
    assert_eq!(causes, [Some(StopCause::Drain), Some(StopCause::Cancel), Some(StopCause::Cancel)]);
}

pub(in crate::store) fn a_freed_job_is_queued_with_a_fresh_budget(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let lost = |job, fence| waiting(closed(job, fence, Outcome::Lost), State::Quarantined);
    let freed = |job| Change::QuarantineReleased { job: JobId(job) };
    harness.commit((1..=3).map(added).collect());
    harness.commit((1..=3).flat_map(|job| [assigned(job, job), started(job, job), lost(job, job)]).collect());
    harness.commit(vec![freed(1)]);
    harness.commit(vec![freed(2), assigned_as(2, 4, 2, 1), started(2, 4)]);
    // Given up and handed out again in one go.
    harness.commit(vec![freed(3), assigned_as(3, 5, 2, 1)]);
    harness.commit(vec![lost(3, 5), freed(3), assigned_as(3, 6, 3, 2)]);
    let (_, live) = harness.restart();
    let shown: Vec<_> = live.iter().map(|job| (job.state, job.losses.len(), job.attempts.0)).collect();
    assert_eq!(shown, [(State::Queued, 0, 1), (State::Running, 0, 2), (State::Assigned, 0, 3)]);
    let record = harness.archive().job(JobId(3)).unwrap().unwrap();
    assert_eq!(record.past.iter().map(|it| it.outcome).collect::<Vec<_>>(), [Some(Outcome::Lost); 2]);
    harness.commit(vec![ended(1, State::Cancelled, None)]);
    harness.refused(vec![freed(1)]);
    harness.refused(vec![freed(2)]);
}

pub(in crate::store) fn a_waiting_job_keeps_its_new_start_and_priority(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let updated = |job, state, due_at, priority| {
        Change::Updated(Updated { job: JobId(job), state, due_at: Timestamp(due_at), priority })
    };
    let later = |job| updated(job, State::Scheduled, 90_000, 7);
    harness.commit((1..=4).map(added).collect());
    harness.commit(vec![later(1), later(2)]);
    harness.commit(vec![updated(2, State::Queued, 5_000, -7), assigned(2, 1)]);
    // Several changes of one job in one group, in their order.
    harness.commit(vec![
        later(3),
        Change::BecameDue { job: JobId(3) },
        updated(3, State::Queued, 6_000, 1),
        assigned(3, 2),
    ]);
    harness.commit(vec![added(5), later(5), assigned(4, 3)]);
    let (_, live) = harness.restart();
    let shown: Vec<_> = live.iter().map(|job| (job.state, job.due_at.0, job.priority)).collect();
    assert_eq!(
        shown[..3],
        [(State::Scheduled, 90_000, 7), (State::Assigned, 5_000, -7), (State::Assigned, 6_000, 1)]
    );
    assert_eq!(shown[4], (State::Scheduled, 90_000, 7));
    harness.refused(vec![later(2)]);
    harness.refused(vec![added(6), assigned(6, 9), later(6)]);
    harness.commit(vec![ended(1, State::Cancelled, None)]);
    harness.refused(vec![later(1)]);
}

pub(in crate::store) fn a_restart_gives_back_exactly_what_lives(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let with_body = JobDetails {
        overrides: Overrides { args: vec!["-v".into()], ..Overrides::default() },
        ..JobDetails::default()
    };
    let never_ends =
        AddedJob { timeout: Some(AttemptTimeout::Unlimited), details: Some(Box::new(with_body)), ..job(2) };
    harness
        .commit((1..=6).map(|n| if n == 2 { Change::Added(never_ends.clone()) } else { added(n) }).collect());
    harness.commit(vec![assigned(3, 1), assigned_as(4, 2, 1, 9), assigned(5, 3), assigned(6, 4)]);
    harness.commit(vec![started(4, 2), started(5, 3), stopping(4, 2, StopCause::Timeout)]);
    harness.commit(vec![succeeded(5, 3), waiting(closed(6, 4, Outcome::Lost), State::Scheduled)]);
    let (loaded, live) = harness.restart();
    assert_eq!((loaded.last_job, loaded.last_fence), (JobId(6), Fence(4)));
    assert_eq!(harness.definitions, [(*definition(1)).clone()], "only those of live jobs");
    let by_job: BTreeMap<u64, &LiveJob> = live.iter().map(|job| (job.job.0, job)).collect();
    assert_eq!(
        live.iter().map(|job| job.job.0).collect::<Vec<_>>(),
        [1, 2, 3, 4, 6],
        "in the order of their ids"
    );
    assert_eq!(
        (by_job[&1].state, by_job[&1].has_overrides, by_job[&1].timeout),
        (State::Queued, false, None)
    );
    assert_eq!((by_job[&2].has_overrides, by_job[&2].timeout), (true, Some(AttemptTimeout::Unlimited)));
    assert_eq!((by_job[&1].priority, by_job[&1].due_at, by_job[&1].last), (-3, Timestamp(2_000), None));
    let running = by_job[&4].attempt.as_ref().unwrap();
    assert_eq!((running.token, running.worker, running.session), (token(4, 2), WorkerId(9), SessionId(79)));
    assert_eq!((running.assigned_at, running.started_at), (Timestamp(3_000), Some(Timestamp(4_000))));
    assert_eq!((running.stopping, by_job[&4].state), (Some(StopCause::Timeout), State::Running));
    assert_eq!(by_job[&3].attempt.as_ref().unwrap().started_at, None);
    let lost = by_job[&6];
    assert_eq!((lost.state, lost.due_at, lost.attempts), (State::Scheduled, Timestamp(9_000), AttemptNo(1)));
    let stay = LastPlacement { worker: WorkerId(1), infrastructure_failure: true };
    assert_eq!((lost.last, &lost.attempt), (Some(stay), &None));
}

pub(in crate::store) fn a_restart_knows_the_first_requester_of_a_cancel(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=4).map(added).chain((1..=3).map(|job| assigned(job, job))).collect());
    let requested = |job, at, by: &str| Change::Noted {
        job: JobId(job),
        at: Timestamp(at),
        note: Note::CancelRequested { by: by.into() },
    };
    // 1 is cancelled twice, 2 is stopped for its timeout, 3 runs under an earlier version that wrote no note, and 4 waits.
    harness.commit(vec![requested(1, 1, "job 4, which takes its place"), stopping(1, 1, StopCause::Cancel)]);
    harness.commit(vec![requested(1, 2, "ann"), stopping(2, 2, StopCause::Timeout)]);
    harness.commit(vec![stopping(3, 3, StopCause::Cancel)]);
    let (_, live) = harness.restart();
    let requesters: Vec<_> = live.into_iter().map(|job| job.attempt.map(|it| it.cancelled_by)).collect();
    let first = Some("job 4, which takes its place".to_owned());
    assert_eq!(requesters, [Some(first), Some(None), Some(None), None]);
}

pub(in crate::store) fn where_a_job_was_last_is_not_where_it_is_or_was_given_back(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=4).map(added).collect());
    let stay = |worker, infrastructure_failure| {
        Some(LastPlacement { worker: WorkerId(worker), infrastructure_failure })
    };
    // 1 fails by itself; 2 is lost and then given back, twice; 3 is given back only; 4 is lost, fails by itself, and is tried again.
    harness.commit(vec![assigned_as(1, 1, 1, 7), waiting(closed(1, 1, Outcome::Failed), State::Queued)]);
    harness.commit(vec![assigned_as(2, 2, 1, 7), waiting(closed(2, 2, Outcome::Lost), State::Queued)]);
    harness.commit(vec![assigned_as(2, 3, 2, 8), waiting(closed(2, 3, Outcome::Released), State::Queued)]);
    harness.commit(vec![assigned_as(2, 4, 3, 9), waiting(closed(2, 4, Outcome::Released), State::Queued)]);
    harness.commit(vec![assigned_as(3, 5, 1, 7), waiting(closed(3, 5, Outcome::Released), State::Queued)]);
    harness.commit(vec![assigned_as(4, 6, 1, 7), waiting(closed(4, 6, Outcome::HostFailed), State::Queued)]);
    harness.commit(vec![assigned_as(4, 7, 2, 8), waiting(closed(4, 7, Outcome::OomKilled), State::Queued)]);
    harness.commit(vec![assigned_as(4, 8, 3, 9)]);
    let (_, live) = harness.restart();
    let last: Vec<_> = live.iter().map(|job| job.last).collect();
    assert_eq!(last, [stay(7, false), stay(7, true), None, stay(8, false)]);
    let unconfirmed: Vec<_> = live.into_iter().map(|job| job.lost).collect();
    let doubts = [vec![], vec![(token(2, 2), WorkerId(7))], vec![], vec![]];
    assert_eq!(unconfirmed, doubts, "what came after it does not answer for it");
}
