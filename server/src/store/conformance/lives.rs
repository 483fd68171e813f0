//! Stories of jobs: from change to change, folded, lost, tried again, restarted.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::container::Body;
use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{AttemptNo, Fence, JobId, Nonce, SessionId, Timestamp, WorkerId};
use scheduler::input::Details;
use scheduler::job::{State, Stay};
use scheduler::step::{AddedJob, Change, ClosedAttempt};

use super::Backend;
use super::desk::*;
use crate::store::LiveJob;

pub(in crate::store) fn a_job_lives_from_change_to_change(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let scheduled =
        AddedJob { state: State::Scheduled, timeout: Some(Some(Duration::from_secs(9))), ..job(1) };
    desk.commit(vec![worker(1, "w1"), Change::Added(scheduled)]);
    assert_eq!(desk.state(1), State::Scheduled);
    desk.commit(vec![Change::Due { job: JobId(1) }]);
    assert_eq!(desk.state(1), State::Queued);
    desk.commit(vec![assigned(1, 5)]);
    assert_eq!(desk.state(1), State::Assigned);
    desk.commit(vec![started(1, 5)]);
    assert_eq!(desk.state(1), State::Running);
    desk.commit(vec![stopping(1, 5, StopCause::Cancel)]);
    desk.commit(vec![stopping(1, 5, StopCause::Timeout)]);
    desk.commit(vec![ended(1, State::Cancelled, Some(closed(1, 5, Outcome::Cancelled)))]);
    let record = desk.archive().job(JobId(1)).unwrap().unwrap();
    let row = &record.row;
    assert_eq!((row.state, row.priority, &*row.definition), (State::Cancelled, -3, "resize"));
    assert_eq!((row.timeout, row.attempts), (Some(Some(Duration::from_secs(9))), AttemptNo(1)));
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
    let mut desk = Desk::new(backend);
    desk.commit(vec![worker(1, "w1"), added(1), assigned(1, 1), started(1, 1), succeeded(1, 1)]);
    for change in [added(2), assigned(2, 1), started(2, 1), succeeded(2, 1)] {
        desk.commit(vec![change]);
    }
    desk.commit(vec![added(3), assigned(3, 1)]);
    desk.commit(vec![started(3, 1), succeeded(3, 1)]);
    desk.commit(vec![added(4)]);
    desk.commit(vec![assigned(4, 1), started(4, 1)]);
    desk.commit(vec![succeeded(4, 1)]);
    let rows = |number: u64| {
        let mut record = desk.archive().job(JobId(number)).unwrap().unwrap();
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
    desk.commit(vec![added(5), ended(5, State::Cancelled, None)]);
    assert_eq!(desk.state(5), State::Cancelled);
    assert!(desk.restart().1.is_empty());
}

pub(in crate::store) fn budgets_are_counted_by_outcome(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit(vec![added(1)]);
    for (fence, outcome) in (1..).zip(Outcome::ALL.into_iter().skip(1)) {
        desk.commit(vec![assigned_as(1, fence, u32::try_from(fence).unwrap(), 1)]);
        desk.commit(vec![waiting(closed(1, fence, outcome), State::Queued)]);
    }
    let (_, live) = desk.restart();
    // failed, oom_killed, timed_out, pull_failed, start_failed; lost, daemon_lost, host_failed.
    assert_eq!((live[0].own_failures, live[0].oom_kills), (5, 1));
    assert_eq!(live[0].losses, [Timestamp(5_000); 3]);
    // The last one, and those before it, whether there is another by now or not.
    desk.commit(vec![assigned_as(1, 48, 48, 1), waiting(closed(1, 48, Outcome::OomKilled), State::Queued)]);
    assert_eq!(desk.restart().1[0].oom_kills, 2);
    desk.commit(vec![assigned_as(1, 49, 49, 1)]);
    assert_eq!(desk.restart().1[0].oom_kills, 2);
    desk.commit(vec![waiting(closed(1, 49, Outcome::Released), State::Queued)]);
    let late = ClosedAttempt { ended_at: Timestamp(5_000 + 24 * 3_600_000), ..closed(1, 50, Outcome::Lost) };
    desk.commit(vec![assigned_as(1, 50, 50, 1), waiting(late.clone(), State::Quarantined)]);
    let (_, live) = desk.restart();
    assert_eq!(live[0].losses, [late.ended_at], "older ones are forgotten after a day");
    assert_eq!(live[0].state, State::Quarantined);
}

pub(in crate::store) fn a_successor_keeps_the_attempt_before_it(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit(vec![worker(1, "w1"), worker(2, "w2"), added(1), assigned(1, 1), started(1, 1)]);
    // Three attempts in one group.
    desk.commit(vec![
        waiting(closed(1, 1, Outcome::Failed), State::Queued),
        assigned_as(1, 2, 2, 2),
        waiting(closed(1, 2, Outcome::Released), State::Scheduled),
        Change::Due { job: JobId(1) },
        assigned_as(1, 3, 3, 1),
    ]);
    let record = desk.archive().job(JobId(1)).unwrap().unwrap();
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
    desk.commit(vec![waiting(closed(1, 3, Outcome::Lost), State::Queued)]);
    let record = desk.archive().job(JobId(1)).unwrap().unwrap();
    assert_eq!(record.row.attempt.unwrap().outcome, Some(Outcome::Lost), "the latest stays with its job");
    assert_eq!((record.past.len(), record.row.due_at), (2, Timestamp(9_000)));
}

pub(in crate::store) fn a_cancel_is_recorded_whatever_stops_the_job_already(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit((1..=3).flat_map(|job| [added(job), assigned(job, job), started(job, job)]).collect());
    desk.commit((1..=3).map(|job| stopping(job, job, StopCause::Drain)).collect());
    desk.commit((1..=2).map(|job| stopping(job, job, StopCause::Timeout)).collect());
    desk.commit(vec![stopping(2, 2, StopCause::Cancel)]);
    let interrupted = ended(3, State::Cancelled, Some(closed(3, 3, Outcome::Interrupted)));
    desk.commit(vec![stopping(3, 3, StopCause::Cancel), interrupted]);
    let causes =
        [1, 2, 3].map(|job| desk.archive().job(JobId(job)).unwrap().unwrap().row.attempt.unwrap().stopping);
    assert_eq!(causes, [Some(StopCause::Drain), Some(StopCause::Cancel), Some(StopCause::Cancel)]);
}

pub(in crate::store) fn a_freed_job_is_queued_with_a_fresh_budget(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let lost = |job, fence| waiting(closed(job, fence, Outcome::Lost), State::Quarantined);
    let freed = |job| Change::Freed { job: JobId(job) };
    desk.commit((1..=3).map(added).collect());
    desk.commit((1..=3).flat_map(|job| [assigned(job, job), started(job, job), lost(job, job)]).collect());
    desk.commit(vec![freed(1)]);
    desk.commit(vec![freed(2), assigned_as(2, 4, 2, 1), started(2, 4)]);
    // Given up and handed out again in one go.
    desk.commit(vec![freed(3), assigned_as(3, 5, 2, 1)]);
    desk.commit(vec![lost(3, 5), freed(3), assigned_as(3, 6, 3, 2)]);
    let (_, live) = desk.restart();
    let shown: Vec<_> = live.iter().map(|job| (job.state, job.losses.len(), job.attempts.0)).collect();
    assert_eq!(shown, [(State::Queued, 0, 1), (State::Running, 0, 2), (State::Assigned, 0, 3)]);
    let record = desk.archive().job(JobId(3)).unwrap().unwrap();
    assert_eq!(record.past.iter().map(|it| it.outcome).collect::<Vec<_>>(), [Some(Outcome::Lost); 2]);
    desk.commit(vec![ended(1, State::Cancelled, None)]);
    desk.refused(vec![freed(1)]);
    desk.refused(vec![freed(2)]);
}

pub(in crate::store) fn a_restart_gives_back_exactly_what_lives(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let with_body = Details { body: Body { args: vec!["-v".into()], ..Body::default() }, labels: Vec::new() };
    let never_ends = AddedJob { timeout: Some(None), details: Some(Box::new(with_body)), ..job(2) };
    desk.commit((1..=6).map(|n| if n == 2 { Change::Added(never_ends.clone()) } else { added(n) }).collect());
    desk.commit(vec![assigned(3, 1), assigned_as(4, 2, 1, 9), assigned(5, 3), assigned(6, 4)]);
    desk.commit(vec![started(4, 2), started(5, 3), stopping(4, 2, StopCause::Timeout)]);
    desk.commit(vec![succeeded(5, 3), waiting(closed(6, 4, Outcome::Lost), State::Scheduled)]);
    let (loaded, live) = desk.restart();
    assert_eq!((loaded.last_job, loaded.last_fence), (JobId(6), Fence(4)));
    assert_eq!(loaded.definitions, [(*definition(1)).clone()], "only those of live jobs");
    let by_job: BTreeMap<u64, &LiveJob> = live.iter().map(|job| (job.job.0, job)).collect();
    assert_eq!(
        live.iter().map(|job| job.job.0).collect::<Vec<_>>(),
        [1, 2, 3, 4, 6],
        "in the order of their ids"
    );
    assert_eq!((by_job[&1].state, by_job[&1].has_body, by_job[&1].timeout), (State::Queued, false, None));
    assert_eq!((by_job[&2].has_body, by_job[&2].timeout), (true, Some(None)));
    assert_eq!((by_job[&1].priority, by_job[&1].due_at, by_job[&1].last), (-3, Timestamp(2_000), None));
    let running = by_job[&4].attempt.as_ref().unwrap();
    assert_eq!((running.token, running.worker, running.session), (token(4, 2), WorkerId(9), SessionId(79)));
    assert_eq!((running.assigned_at, running.started_at), (Timestamp(3_000), Some(Timestamp(4_000))));
    assert_eq!((running.stopping, by_job[&4].state), (Some(StopCause::Timeout), State::Running));
    assert_eq!(by_job[&3].attempt.as_ref().unwrap().started_at, None);
    let lost = by_job[&6];
    assert_eq!((lost.state, lost.due_at, lost.attempts), (State::Scheduled, Timestamp(9_000), AttemptNo(1)));
    let stay = Stay { worker: WorkerId(1), failed_by_platform: true };
    assert_eq!((lost.last, &lost.attempt), (Some(stay), &None));
}

pub(in crate::store) fn where_a_job_was_last_is_not_where_it_is_or_was_given_back(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit((1..=4).map(added).collect());
    let stay = |worker, failed_by_platform| Some(Stay { worker: WorkerId(worker), failed_by_platform });
    // 1 fails by itself; 2 is lost and then given back, twice; 3 is given back only; 4 is lost, fails by itself, and is tried again.
    desk.commit(vec![assigned_as(1, 1, 1, 7), waiting(closed(1, 1, Outcome::Failed), State::Queued)]);
    desk.commit(vec![assigned_as(2, 2, 1, 7), waiting(closed(2, 2, Outcome::Lost), State::Queued)]);
    desk.commit(vec![assigned_as(2, 3, 2, 8), waiting(closed(2, 3, Outcome::Released), State::Queued)]);
    desk.commit(vec![assigned_as(2, 4, 3, 9), waiting(closed(2, 4, Outcome::Released), State::Queued)]);
    desk.commit(vec![assigned_as(3, 5, 1, 7), waiting(closed(3, 5, Outcome::Released), State::Queued)]);
    desk.commit(vec![assigned_as(4, 6, 1, 7), waiting(closed(4, 6, Outcome::HostFailed), State::Queued)]);
    desk.commit(vec![assigned_as(4, 7, 2, 8), waiting(closed(4, 7, Outcome::OomKilled), State::Queued)]);
    desk.commit(vec![assigned_as(4, 8, 3, 9)]);
    let (_, live) = desk.restart();
    let last: Vec<_> = live.iter().map(|job| job.last).collect();
    assert_eq!(last, [stay(7, false), stay(7, true), None, stay(8, false)]);
    let in_doubt: Vec<_> = live.into_iter().map(|job| job.lost).collect();
    let doubts = [vec![], vec![(token(2, 2), WorkerId(7))], vec![], vec![]];
    assert_eq!(in_doubt, doubts, "what came after it does not answer for it");
}
