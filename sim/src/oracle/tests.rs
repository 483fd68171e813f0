//! Histories that must never be, made by hand: each is flagged under its own rule.

use protocol::order::StopCause;
use protocol::report::{Numbered, Outcome, OutputLengths, ReleaseCause, Released};
use protocol::{
    AttemptNo, ClusterId, Epoch, Fence, JobId, Nonce, Order, Report, ReportNo, SessionId, Timestamp, Token,
    WorkerId,
};
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended};

use super::{Oracle, Scene};
use crate::clock::Moment;
use crate::dice::Dice;
use crate::disk::{Disk, Group};
use crate::docker::ContainerEnd;
use crate::workload::{AspectDice, Workload};

const JOB: JobId = JobId(1);
const SCENE: Scene<'static> =
    Scene { now: Moment(9), machines: &[], attentive_since: Moment(0), drift_ppm: 0, ageing: None };

fn token(fence: u64) -> Token {
    Token { job: JOB, fence: Fence(fence), nonce: Nonce(fence) }
}

fn workload() -> Workload {
    Workload::new(
        1,
        AspectDice {
            nature: Dice::new(1, 1),
            delays: Dice::new(1, 2),
            timetables: Dice::new(1, 3),
            waits: Dice::new(1, 4),
            limits: Dice::new(1, 5),
            hooks: Dice::new(1, 6),
            sets: Dice::new(1, 7),
        },
    )
}

fn added(workload: &Workload) -> Change {
    Change::Added(AddedJob {
        job: JOB,
        revision: workload.revision(0),
        state: State::Queued,
        priority: 0,
        created_at: Timestamp(0),
        due_at: Timestamp(0),
        timeout: None,
        batch: None,
        retry_of: None,
        submitted_by: None,
        narrowing: None,
        keys: None,
        details: None,
    })
}

fn assigned(fence: u64, number: u32) -> Change {
    Change::Assigned(Assigned {
        gpus: Default::default(),
        token: token(fence),
        number: AttemptNo(number),
        worker: WorkerId(1),
        session: SessionId(1),
        at: Timestamp(1),
    })
}

fn closed(fence: u64, outcome: Outcome, message: &str) -> ClosedAttempt {
    ClosedAttempt {
        token: token(fence),
        outcome,
        exit_code: (outcome == Outcome::Succeeded).then_some(0),
        message: message.into(),
        started_at: None,
        ended_at: Timestamp(3),
        output: OutputLengths::default(),
        usage: Default::default(),
        result: None,
        released: None,
    }
}

fn ended(state: State, closed: ClosedAttempt) -> Change {
    let (reason, closed) = (String::new(), Some(closed));
    Change::Ended(Ended { job: JOB, state, at: Timestamp(3), reason, closed, confirmed: true })
}

/// The verdicts of the disk and the oracle on these changes.
fn verdict(oracle: &mut Oracle, changes: Vec<Change>) -> (Disk, Result<(), String>) {
    let workload = workload();
    let mut disk = Disk::new(ClusterId(1));
    disk.epoch = Epoch(1);
    let definitions = workload.current();
    let group = Group { epoch: Epoch(1), number: GroupNo(1), definitions, changes };
    let taken = disk.apply(group, &mut |change, _, rows, index| {
        let Some(row) = &rows[index] else { return };
        oracle.moved(SCENE, workload.definition(row.revision), change, rows, index);
    });
    (disk, taken)
}

fn refusal(changes: Vec<Change>) -> String {
    verdict(&mut Oracle::new(1, false), changes).1.expect_err("a contradiction")
}

fn rule(oracle: &Oracle) -> &'static str {
    oracle.violation.as_ref().map_or("nothing is wrong", |it| it.rule)
}

#[test]
fn the_disk_refuses_moves_that_no_job_makes() {
    let first = || added(&workload());
    let over = || ended(State::Succeeded, closed(1, Outcome::Succeeded, ""));
    assert!(refusal(vec![first(), assigned(1, 1), assigned(2, 2)]).contains("is assigned"));
    assert!(refusal(vec![first(), assigned(1, 1), over(), over()]).contains("ends"));
    assert!(refusal(vec![first(), assigned(2, 1), over()]).contains("ends"));
    assert!(refusal(vec![first(), first()]).contains("is added after"));
    assert!(refusal(vec![first(), Change::BecameDue { job: JOB }]).contains("is due"));
    assert!(refusal(vec![assigned(1, 1)]).contains("does not exist"));
}

#[test]
fn a_success_that_never_ran_is_no_success() {
    let mut oracle = Oracle::new(1, false);
    let over = ended(State::Succeeded, closed(1, Outcome::Succeeded, ""));
    let _ = verdict(&mut oracle, vec![added(&workload()), assigned(1, 1), over.clone()]);
    assert_eq!(rule(&oracle), "I7 what is believed is true");

    let mut honest = Oracle::new(1, false);
    let workload = workload();
    let revision = workload.revision(0);
    honest.check_run(Moment(1), &workload, &Disk::new(ClusterId(1)), &[], (0, token(1), revision));
    honest.container_ended(
        token(1),
        ContainerEnd { at: Moment(2), code: 0, oom: false, by_engine: false, by_us: false },
    );
    let _ = verdict(&mut honest, vec![added(&workload), assigned(1, 1), over]);
    assert_eq!(honest.violation, None);
}

#[test]
fn a_container_that_runs_on_has_not_been_given_back() {
    let mut oracle = Oracle::new(1, false);
    let workload = workload();
    oracle.check_run(
        Moment(1),
        &workload,
        &Disk::new(ClusterId(1)),
        &[],
        (0, token(1), workload.revision(0)),
    );
    let closed = closed(1, Outcome::Released, "");
    let back = Change::AttemptClosed { job: JOB, closed, due_at: Timestamp(3), state: State::Queued };
    let _ = verdict(&mut oracle, vec![added(&workload), assigned(1, 1), back]);
    assert_eq!(rule(&oracle), "I7 what is believed is true");
}

#[test]
fn oracle_rejects_a_job_failed_by_a_released_attempt() {
    let mut oracle = Oracle::new(1, false);
    let failed = ended(State::Failed, closed(1, Outcome::Released, ""));
    let _ = verdict(&mut oracle, vec![added(&workload()), assigned(1, 1), failed]);
    assert_eq!(rule(&oracle), "I9 I10 the right budget pays");
}

#[test]
fn an_attempt_that_runs_twice_is_seen() {
    let mut oracle = Oracle::new(2, false);
    let (workload, disk) = (workload(), Disk::new(ClusterId(1)));
    for machine in 0..2 {
        oracle.check_run(Moment(1), &workload, &disk, &[], (machine, token(1), workload.revision(0)));
    }
    assert_eq!(rule(&oracle), "I12 an attempt runs once");
}

/// An attempt ran on its machine, once more after that was set back, and now the machine is again as it was after the first run. Each of the two
/// ends is true, and no other one.
#[test]
fn oracle_accepts_either_outcome_after_a_snapshot_restore() {
    let end = |code| ContainerEnd { at: Moment(2), code, oom: false, by_engine: false, by_us: false };
    let is_true = |outcome, code| {
        let mut oracle = Oracle::new(1, false);
        let (workload, disk) = (workload(), Disk::new(ClusterId(1)));
        for code in [0, 7] {
            oracle.check_run(Moment(1), &workload, &disk, &[], (0, token(1), workload.revision(0)));
            oracle.container_ended(token(1), end(code));
            oracle.lost_sight(token(1));
        }
        oracle.container_restored_from_snapshot(token(1), Some((Moment(1), end(0))));
        let over = ended(State::Cancelled, ClosedAttempt { exit_code: Some(code), ..closed(1, outcome, "") });
        let _ = verdict(&mut oracle, vec![added(&workload), assigned(1, 1), over]);
        oracle.violation.is_none_or(|it| it.rule != "I7 what is believed is true")
    };
    assert!(is_true(Outcome::Succeeded, 0));
    assert!(is_true(Outcome::Failed, 7));
    assert!(!is_true(Outcome::Failed, 3));
}

#[test]
fn what_is_acknowledged_must_be_durable() {
    let mut oracle = Oracle::new(1, false);
    let (disk, _) = verdict(&mut oracle, vec![added(&workload()), assigned(1, 1)]);
    let list = vec![Released { token: token(1), cause: ReleaseCause::Full, why: String::new() }];
    let report = Report::Released(Numbered { first: ReportNo(1), list });
    oracle.worker_says(0, protocol::Uptime(1), &report);
    oracle.ordered(Moment(2), &disk, 0, &Order::Acknowledge(ReportNo(0)));
    assert_eq!(oracle.violation, None, "nothing of it is acknowledged");
    oracle.ordered(Moment(2), &disk, 0, &Order::Acknowledge(ReportNo(1)));
    assert_eq!(rule(&oracle), "I19 acknowledged before it was durable");
}

#[test]
fn a_server_that_was_away_may_not_give_up_an_attempt() {
    let mut oracle = Oracle::new(1, false);
    let (disk, _) = verdict(&mut oracle, vec![added(&workload()), assigned(1, 1)]);
    let silent = closed(1, Outcome::Lost, "its worker has not been heard of");
    let scene = |seconds: u64| Scene { now: Moment(seconds * 1_000_000_000), ..SCENE };
    oracle.check_silence(scene(600), &disk, &workload(), (&silent, State::Queued));
    assert_eq!(oracle.violation, None);
    oracle.check_silence(scene(5), &disk, &workload(), (&silent, State::Queued));
    assert_eq!(rule(&oracle), "promise 5 the server's absence is held against nobody");
}

#[test]
fn oracle_rejects_an_end_announced_before_its_commit() {
    let mut oracle = Oracle::new(1, false);
    let (disk, _) = verdict(&mut oracle, vec![added(&workload())]);
    oracle.told_end(Moment(1), &disk, JOB, State::Cancelled);
    assert_eq!(rule(&oracle), "I18 told before it was durable");
}

#[test]
fn a_job_that_is_being_cancelled_is_not_tried_again() {
    let mut oracle = Oracle::new(1, false);
    oracle.cancelled.insert(JOB);
    let _ = verdict(&mut oracle, vec![added(&workload()), assigned(1, 1)]);
    assert_eq!(rule(&oracle), "I17 what was cancelled gets no further attempt");
}

/// A container ends by itself at second 2; its worker decides to stop it at this second, and the attempt counts as cancelled.
fn cancelled_at(second: u64) -> Oracle {
    let mut oracle = Oracle::new(1, false);
    let workload = workload();
    let at = |second: u64| Moment(second * 1_000_000_000);
    oracle.check_run(at(1), &workload, &Disk::new(ClusterId(1)), &[], (0, token(1), workload.revision(0)));
    let end = ContainerEnd { at: at(2), code: 3, oom: false, by_engine: false, by_us: false };
    oracle.container_ended(token(1), end);
    oracle.truth(token(1)).stopped = Some(at(second));
    let stopping =
        Change::Stopping { token: token(1), cause: StopCause::Cancel, at: Timestamp(2), by: String::new() };
    let over = ended(State::Cancelled, closed(1, Outcome::Cancelled, ""));
    let _ = verdict(&mut oracle, vec![added(&workload), assigned(1, 1), stopping, over]);
    oracle
}

#[test]
fn what_had_ended_before_it_was_stopped_was_not_cancelled() {
    assert_eq!(rule(&cancelled_at(5)), "I7 what ended by itself has its own outcome");
    assert_eq!(cancelled_at(1).violation, None, "the cause was there first");
}

#[test]
fn an_attempt_that_its_worker_was_told_to_keep_is_not_given_up_at_once() {
    let mut oracle = Oracle::new(1, false);
    let (disk, _) = verdict(&mut oracle, vec![added(&workload()), assigned(1, 1)]);
    let silent = closed(1, Outcome::Lost, "its worker has not been heard of");
    let scene = Scene { now: Moment(600_000_000_000), ..SCENE };
    oracle.truth(token(1)).kept = Some(Moment(300_000_000_000));
    oracle.check_silence(scene, &disk, &workload(), (&silent, State::Queued));
    assert_eq!(oracle.violation, None);
    oracle.truth(token(1)).kept = Some(Moment(590_000_000_000));
    oracle.check_silence(scene, &disk, &workload(), (&silent, State::Queued));
    assert_eq!(rule(&oracle), "promise 5 who comes back keeps what it has");
}

#[test]
fn a_cancel_is_not_confirmed_while_the_container_runs() {
    let mut oracle = Oracle::new(1, false);
    let workload = workload();
    oracle.check_run(
        Moment(1),
        &workload,
        &Disk::new(ClusterId(1)),
        &[],
        (0, token(1), workload.revision(0)),
    );
    let lost = closed(1, Outcome::Lost, "its worker has not been heard of");
    let over = ended(State::Cancelled, lost);
    let _ = verdict(&mut oracle, vec![added(&workload), assigned(1, 1), over]);
    assert_eq!(rule(&oracle), "I17 what is confirmed is gone");
}

#[test]
fn a_group_that_was_refused_is_refused_again() {
    let mut disk = Disk::new(ClusterId(1));
    disk.epoch = Epoch(1);
    disk.refused = Some((Epoch(1), GroupNo(1)));
    let group = |number| Group { epoch: Epoch(1), number: GroupNo(number), ..Group::default() };
    assert!(disk.apply(group(1), &mut |_, _, _, _| ()).is_err_and(|why| why.contains("was refused")));
    assert_eq!(disk.apply(group(2), &mut |_, _, _, _| ()), Ok(()));
}
