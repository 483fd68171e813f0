//! Tests of the checker: each bad history differs from a good one in one thing, and must be found.

use super::*;
use crate::marks::MarkKind;

/// Four requests: a keyed Docker job that ended at its second attempt, a batch of three, one without an answer, and an exclusive job.
fn good() -> RoundRecords {
    let submit = |label: &str, count, key: Option<&str>| Event::Submit {
        label: label.to_owned(),
        count,
        key: key.map(str::to_owned),
    };
    let answered = |label: &str, status, job| Event::Answered { label: label.to_owned(), status, job };
    RoundRecords {
        history: vec![
            submit("a", 1, Some("key-a")),
            submit("b", 3, None),
            answered("b", 201, Some(2)),
            answered("a", 503, None),
            answered("a", 201, Some(1)),
            answered("a", 200, Some(1)),
            submit("c", 1, None),
            submit("d", 1, None),
            answered("d", 201, Some(5)),
            seen(1, "running", Some(11), None),
            Event::Fault { kind: "kill_server".to_owned(), what: "kill -9 of the server".to_owned() },
            seen(1, "running", Some(15), None),
            seen(1, "failed", Some(15), Some(15)),
            seen(1, "failed", Some(15), Some(15)),
        ],
        marks: vec![
            mark(1, 11, MarkKind::Start, 100),
            mark(1, 15, MarkKind::Start, 200),
            mark(1, 11, MarkKind::Stop, 250),
            mark(1, 15, MarkKind::Stop, 300),
            mark(5, 50, MarkKind::Start, 100),
            mark(5, 50, MarkKind::Alive, 150),
            mark(5, 50, MarkKind::Stop, 200),
            mark(5, 52, MarkKind::Start, 300),
            mark(5, 52, MarkKind::Stop, 400),
        ],
        store: StoreContents {
            jobs: vec![
                job(1, "docker-1", "a", "failed", 15),
                job(2, "fake", "b", "succeeded", 12),
                job(3, "fake", "b", "succeeded", 13),
                job(4, "fake", "b", "succeeded", 14),
                job(5, "docker-once-1", "d", "failed", 52),
            ],
            attempts: vec![
                attempt(1, 11, 1, "lost", None),
                attempt(1, 15, 2, "failed", Some(15)),
                attempt(2, 12, 1, "succeeded", Some(0)),
                attempt(3, 13, 1, "succeeded", Some(0)),
                attempt(4, 14, 1, "succeeded", Some(0)),
                attempt(5, 50, 1, "lost", None),
                attempt(5, 51, 2, "released", None),
                attempt(5, 52, 3, "failed", Some(2)),
            ],
            keys: vec![("key-a".to_owned(), 1, 1)],
            late_reports: 1,
        },
        leftovers: Vec::new(),
    }
}

fn seen(job: u64, state: &str, fence: Option<u64>, exit_code: Option<i64>) -> Event {
    Event::Seen { job, status: 200, state: state.to_owned(), fence, exit_code }
}

fn mark(job: u64, fence: u64, kind: MarkKind, up_ms: u64) -> Mark {
    let code = (kind == MarkKind::Stop).then_some((fence % 50).cast_signed());
    Mark { job, fence, mark: kind, code, host: "here".to_owned(), pid: 1, up_ms }
}

fn job(id: u64, name: &str, label: &str, state: &str, fence: u64) -> Job {
    Job {
        id,
        name: name.to_owned(),
        label: Some(label.to_owned()),
        state: state.to_owned(),
        fence: Some(fence),
        ended_up_ms: Some(1_000),
        confirmed: state != "cancelled",
    }
}

fn attempt(job: u64, fence: u64, number: u64, outcome: &str, exit_code: Option<i64>) -> Attempt {
    let at = i64::try_from(fence).unwrap();
    Attempt {
        job,
        fence,
        number,
        outcome: Some(outcome.to_owned()),
        exit_code,
        assigned_ms: Some(at),
        reported_gone_ms: (outcome == "lost").then_some(at),
    }
}

#[track_caller]
fn assert_found(violation: Violation, change: impl FnOnce(&mut RoundRecords)) {
    let mut records = good();
    change(&mut records);
    let findings = check(&records);
    assert!(findings.iter().any(|it| it.violation == violation), "{violation:?} is not among {findings:?}");
}

fn drop_job(records: &mut RoundRecords, id: u64) {
    records.store.jobs.retain(|job| job.id != id);
    records.store.attempts.retain(|attempt| attempt.job != id);
    records.marks.retain(|mark| mark.job != id);
}

#[test]
fn good_history_has_no_findings() {
    assert_eq!(check(&good()), []);
    // A request without an answer may or may not have made its job.
    let mut also_good = good();
    also_good.store.jobs.push(job(6, "fake", "c", "succeeded", 60));
    also_good.store.attempts.push(attempt(6, 60, 1, "succeeded", Some(0)));
    assert_eq!(check(&also_good), []);
}

#[test]
fn missing_accepted_job_is_lost() {
    assert_found(Violation::LostOrAltered, |it| drop_job(it, 5));
    assert_found(Violation::LostOrAltered, |it| {
        for id in 2..=4 {
            drop_job(it, id);
        }
    });
    assert_found(Violation::LostOrAltered, |it| {
        it.history.push(Event::Seen {
            job: 1,
            status: 404,
            state: String::new(),
            fence: None,
            exit_code: None,
        });
    });
    assert_found(Violation::LostOrAltered, |it| it.history.push(seen(9, "succeeded", Some(9), Some(0))));
    assert_found(Violation::LostOrAltered, |it| {
        it.history[8] = Event::Answered { label: "d".to_owned(), status: 201, job: Some(7) };
    });
}

#[test]
fn a_batch_that_exists_in_part_is_found() {
    assert_found(Violation::PartialBatch, |it| drop_job(it, 3));
    assert_found(Violation::PartialBatch, |it| {
        it.store.jobs[3].id = 9;
        it.store.attempts[4].job = 9;
    });
}

#[test]
fn request_that_makes_jobs_twice_is_duplicated() {
    assert_found(Violation::Duplicated, |it| it.store.jobs.push(job(6, "docker-1", "a", "failed", 15)));
    assert_found(Violation::Duplicated, |it| {
        it.history.push(Event::Answered { label: "a".to_owned(), status: 201, job: Some(6) });
    });
    assert_found(Violation::Duplicated, |it| it.store.keys[0].1 = 2);
    assert_found(Violation::Duplicated, |it| it.store.keys.clear());
}

#[test]
fn job_without_a_request_is_unexpected() {
    assert_found(Violation::Unexpected, |it| it.store.jobs.push(job(6, "fake", "z", "succeeded", 60)));
    assert_found(Violation::Unexpected, |it| it.store.jobs[1].label = None);
}

#[test]
fn ended_job_that_changes_is_found() {
    assert_found(Violation::Changed, |it| it.history.push(seen(1, "succeeded", Some(15), Some(0))));
    assert_found(Violation::Changed, |it| it.history.push(seen(1, "queued", Some(15), None)));
    assert_found(Violation::Changed, |it| it.history.push(seen(2, "failed", Some(12), Some(1))));
}

#[test]
fn end_of_a_superseded_attempt_is_found() {
    // The exit code of the old attempt is stored for the new one.
    assert_found(Violation::StaleReportApplied, |it| it.store.attempts[1].exit_code = Some(11));
    // The end of the old attempt is stored as the end of the job.
    assert_found(Violation::StaleReportApplied, |it| it.store.jobs[0].fence = Some(11));
    assert_found(Violation::StaleReportApplied, |it| {
        it.history.insert(12, seen(1, "running", Some(11), None))
    });
}

#[test]
fn an_outcome_without_a_mark_is_wrong() {
    assert_found(Violation::WrongOutcome, |it| it.store.attempts[1].exit_code = Some(137));
    assert_found(Violation::WrongOutcome, |it| {
        it.marks.retain(|mark| (mark.fence, mark.mark) != (15, MarkKind::Stop))
    });
    assert_found(Violation::WrongOutcome, |it| it.store.attempts[1].outcome = Some("succeeded".to_owned()));
    assert_found(Violation::WrongOutcome, |it| it.store.jobs[0].state = "succeeded".to_owned());
}

#[test]
fn second_and_unassigned_starts_are_found() {
    assert_found(Violation::StartedTwice, |it| it.marks.push(mark(1, 15, MarkKind::Start, 500)));
    assert_found(Violation::StartedTwice, |it| it.marks.push(mark(1, 15, MarkKind::Stop, 500)));
    assert_found(Violation::NeverAssigned, |it| it.marks.push(mark(1, 16, MarkKind::Start, 500)));
    assert_found(Violation::NeverAssigned, |it| it.marks.push(mark(77, 78, MarkKind::Start, 500)));
}

#[test]
fn start_of_an_attempt_reported_as_unstarted_is_found() {
    let saying = |outcome: &str, denies: bool| {
        let mut records = good();
        let attempt = records.store.attempts.iter_mut().find(|it| it.fence == 51).unwrap();
        (attempt.outcome, attempt.reported_gone_ms) = (Some(outcome.to_owned()), Some(51));
        assert_eq!(check(&records), [], "{outcome}: and it has not");
        records.marks.push(mark(5, 51, MarkKind::Start, 120));
        let found = check(&records).iter().any(|it| it.violation == Violation::StartContradicted);
        assert_eq!(found, denies, "{outcome}");
    };
    for outcome in ["released", "pull_failed", "start_failed", "host_failed"] {
        saying(outcome, true);
    }
    for outcome in ["lost", "daemon_lost", "cancelled", "timed_out", "interrupted"] {
        saying(outcome, false);
    }
}

#[test]
fn overlapping_attempts_of_an_exclusive_job_are_found() {
    let overlapping = |it: &mut RoundRecords| it.marks[7].up_ms = 140;
    assert_found(Violation::Overlapped, overlapping);
    // An attempt that was stopped before its end overlaps, too: it wrote signs of life.
    assert_found(Violation::Overlapped, |it| {
        overlapping(it);
        it.marks.retain(|mark| (mark.fence, mark.mark) != (50, MarkKind::Stop));
    });
    // An attempt that was killed before the next one began does not overlap.
    let mut killed = good();
    killed.marks.retain(|mark| (mark.fence, mark.mark) != (50, MarkKind::Stop));
    assert_eq!(check(&killed), []);
    // The attempts of the other job overlap, which is allowed.
    assert_eq!(good().marks[2].up_ms, 250);
}

#[test]
fn successor_of_a_waiting_job_before_its_report_is_found() {
    let lost = |it: &mut RoundRecords| {
        assert_eq!(it.store.attempts[5].fence, 50);
        it.store.attempts[5].reported_gone_ms = None;
    };
    assert_found(Violation::ReplacedTooEarly, lost);
    assert_found(Violation::ReplacedTooEarly, |it| it.store.attempts[5].reported_gone_ms = Some(52));
    // Jobs without `on_lost: wait` are exempt, and so are old records without these columns.
    let mut others = good();
    others.store.attempts[0].reported_gone_ms = None;
    assert_eq!(check(&others), []);
    let mut old = good();
    lost(&mut old);
    old.store.attempts.iter_mut().for_each(|attempt| attempt.assigned_ms = None);
    assert_eq!(check(&old), []);
}

#[test]
fn gaps_and_repeated_fences_are_found() {
    assert_found(Violation::FenceOrNumberWrong, |it| it.store.attempts[1].number = 3);
    assert_found(Violation::FenceOrNumberWrong, |it| it.store.attempts[3].fence = 12);
    assert_found(Violation::FenceOrNumberWrong, |it| {
        it.store.attempts[0].number = 2;
        it.store.attempts[1].number = 1;
    });
}

#[test]
fn attempt_interrupted_by_a_deploy_is_found() {
    let only_deploys = |it: &mut RoundRecords| {
        it.history.retain(|event| !matches!(event, Event::Fault { .. }));
        it.history.push(Event::Fault { kind: "deploy_worker".to_owned(), what: String::new() });
    };
    // Lost attempts are expected after a kill, but not after a deploy.
    assert_found(Violation::InterruptedByDeploy, only_deploys);
    assert_found(Violation::InterruptedByDeploy, |it| {
        only_deploys(it);
        it.store.attempts.retain(|attempt| attempt.outcome.as_deref() != Some("lost"));
        it.marks.retain(|mark| (mark.fence, mark.mark) != (52, MarkKind::Stop));
    });
}

#[test]
fn unsettled_jobs_and_leftover_processes_are_found() {
    for state in ["scheduled", "queued", "assigned", "running", "quarantined", "lost"] {
        assert_found(Violation::NotFinished, |it| it.store.jobs[1].state = state.to_owned());
    }
    assert_found(Violation::Orphaned, |it| it.leftovers.push("container 1234".to_owned()));
}

#[test]
fn server_errors_and_answers_without_a_job_are_found() {
    assert_found(Violation::WrongAnswer, |it| {
        it.history.push(Event::Answered { label: "c".to_owned(), status: 500, job: None });
    });
    assert_found(Violation::WrongAnswer, |it| {
        it.history.push(Event::Answered { label: "c".to_owned(), status: 201, job: None });
    });
    assert_found(Violation::WrongAnswer, |it| {
        it.history.push(Event::Seen {
            job: 1,
            status: 500,
            state: String::new(),
            fence: None,
            exit_code: None,
        });
    });
}

#[test]
fn findings_are_counted_by_violation() {
    let mut records = good();
    records.leftovers = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(
        count_by_violation(&check(&records)).into_iter().collect::<Vec<_>>(),
        [(Violation::Orphaned, 2)]
    );
}

#[test]
fn cancelled_container_that_goes_on_is_found_if_the_cancel_is_confirmed() {
    let mut records = good();
    records.store.jobs.push(Job { confirmed: true, ..job(6, "docker-plain-1", "e", "cancelled", 60) });
    records.store.attempts.push(attempt(6, 60, 1, "cancelled", None));
    records.history.push(Event::Submit { label: "e".to_owned(), count: 1, key: None });
    records.history.push(Event::Cancelled { job: 6, status: 200 });
    records.marks.push(mark(6, 60, MarkKind::Start, 900));
    assert_eq!(check(&records), []);
    for goes_on in [MarkKind::Alive, MarkKind::Stop] {
        records.marks.push(mark(6, 60, goes_on, 2_000));
        assert_eq!(
            count_by_violation(&check(&records)).into_iter().collect::<Vec<_>>(),
            [(Violation::RanAfterCancel, 1)]
        );
        records.marks.pop();
    }
    records.marks.push(mark(6, 60, MarkKind::Stop, 2_000));
    records.store.jobs.last_mut().unwrap().confirmed = false;
    assert_eq!(check(&records), []);
}

#[test]
fn self_fence_must_hold_if_workers_and_engine_work() {
    let mut records = good();
    records.store.jobs.push(job(6, "docker-fenced-1", "e", "failed", 61));
    records.store.attempts.push(attempt(6, 60, 1, "lost", None));
    records.store.attempts.push(attempt(6, 61, 2, "failed", Some(11)));
    records.history.push(Event::Submit { label: "e".to_owned(), count: 1, key: None });
    records.marks.push(mark(6, 60, MarkKind::Start, 100));
    records.marks.push(mark(6, 61, MarkKind::Start, 200));
    records.marks.push(mark(6, 60, MarkKind::Stop, 250));
    records.marks.push(mark(6, 61, MarkKind::Stop, 300));
    assert_eq!(
        count_by_violation(&check(&records)).into_iter().collect::<Vec<_>>(),
        [(Violation::Overlapped, 1)]
    );
    records.history.push(Event::Fault { kind: "pause_worker".to_owned(), what: "frozen".to_owned() });
    assert_eq!(check(&records), []);
}
