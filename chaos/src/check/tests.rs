//! The checker finds what it is there to find: each bad history differs from a good one in one thing.

use super::*;
use crate::truth::Kind;

/// Four requests: a keyed Docker job that a second attempt ended, a batch of three, one without an answer, and one that must never
/// run beside itself.
fn good() -> Evidence {
    let submit = |label: &str, count, key: Option<&str>| Event::Submit {
        label: label.to_owned(),
        count,
        key: key.map(str::to_owned),
    };
    let answered = |label: &str, status, job| Event::Answered { label: label.to_owned(), status, job };
    Evidence {
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
        truth: vec![
            mark(1, 11, Kind::Start, 100),
            mark(1, 15, Kind::Start, 200),
            mark(1, 11, Kind::Stop, 250),
            mark(1, 15, Kind::Stop, 300),
            mark(5, 50, Kind::Start, 100),
            mark(5, 50, Kind::Alive, 150),
            mark(5, 50, Kind::Stop, 200),
            mark(5, 52, Kind::Start, 300),
            mark(5, 52, Kind::Stop, 400),
        ],
        kept: Kept {
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
        left: Vec::new(),
    }
}

fn seen(job: u64, state: &str, fence: Option<u64>, exit_code: Option<i64>) -> Event {
    Event::Seen { job, status: 200, state: state.to_owned(), fence, exit_code }
}

fn mark(job: u64, fence: u64, kind: Kind, up_ms: u64) -> Mark {
    let code = (kind == Kind::Stop).then_some((fence % 50).cast_signed());
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
        told_gone_ms: (outcome == "lost").then_some(at),
    }
}

#[track_caller]
fn is_found(verdict: Verdict, spoil: impl FnOnce(&mut Evidence)) {
    let mut evidence = good();
    spoil(&mut evidence);
    let findings = check(&evidence);
    assert!(findings.iter().any(|it| it.verdict == verdict), "{verdict:?} is not among {findings:?}");
}

fn drop_job(evidence: &mut Evidence, id: u64) {
    evidence.kept.jobs.retain(|job| job.id != id);
    evidence.kept.attempts.retain(|attempt| attempt.job != id);
    evidence.truth.retain(|mark| mark.job != id);
}

#[test]
fn a_good_history_has_no_findings() {
    assert_eq!(check(&good()), []);
    // Nobody promised anything about this one: it may be there, or not.
    let mut also_good = good();
    also_good.kept.jobs.push(job(6, "fake", "c", "succeeded", 60));
    also_good.kept.attempts.push(attempt(6, 60, 1, "succeeded", Some(0)));
    assert_eq!(check(&also_good), []);
}

#[test]
fn what_was_accepted_and_is_not_there_is_lost() {
    is_found(Verdict::Lost, |it| drop_job(it, 5));
    is_found(Verdict::Lost, |it| {
        for id in 2..=4 {
            drop_job(it, id);
        }
    });
    is_found(Verdict::Lost, |it| {
        it.history.push(Event::Seen {
            job: 1,
            status: 404,
            state: String::new(),
            fence: None,
            exit_code: None,
        });
    });
    is_found(Verdict::Lost, |it| it.history.push(seen(9, "succeeded", Some(9), Some(0))));
    is_found(Verdict::Lost, |it| {
        it.history[8] = Event::Answered { label: "d".to_owned(), status: 201, job: Some(7) };
    });
}

#[test]
fn a_batch_is_there_whole_or_not_at_all() {
    is_found(Verdict::Torn, |it| drop_job(it, 3));
    is_found(Verdict::Torn, |it| {
        it.kept.jobs[3].id = 9;
        it.kept.attempts[4].job = 9;
    });
}

#[test]
fn a_request_makes_its_jobs_once() {
    is_found(Verdict::Duplicated, |it| it.kept.jobs.push(job(6, "docker-1", "a", "failed", 15)));
    is_found(Verdict::Duplicated, |it| {
        it.history.push(Event::Answered { label: "a".to_owned(), status: 201, job: Some(6) });
    });
    is_found(Verdict::Duplicated, |it| it.kept.keys[0].1 = 2);
    is_found(Verdict::Duplicated, |it| it.kept.keys.clear());
}

#[test]
fn nothing_is_there_that_nobody_asked_for() {
    is_found(Verdict::Unexpected, |it| it.kept.jobs.push(job(6, "fake", "z", "succeeded", 60)));
    is_found(Verdict::Unexpected, |it| it.kept.jobs[1].label = None);
}

#[test]
fn an_ended_job_never_changes() {
    is_found(Verdict::Changed, |it| it.history.push(seen(1, "succeeded", Some(15), Some(0))));
    is_found(Verdict::Changed, |it| it.history.push(seen(1, "queued", Some(15), None)));
    is_found(Verdict::Changed, |it| it.history.push(seen(2, "failed", Some(12), Some(1))));
}

#[test]
fn a_superseded_attempt_is_not_believed() {
    // The old attempt's exit code under the new one's number.
    is_found(Verdict::StaleAccepted, |it| it.kept.attempts[1].exit_code = Some(11));
    // The old attempt's end has become the job's.
    is_found(Verdict::StaleAccepted, |it| it.kept.jobs[0].fence = Some(11));
    is_found(Verdict::StaleAccepted, |it| it.history.insert(12, seen(1, "running", Some(11), None)));
}

#[test]
fn an_outcome_is_the_attempts_own() {
    is_found(Verdict::Invented, |it| it.kept.attempts[1].exit_code = Some(137));
    is_found(Verdict::Invented, |it| it.truth.retain(|mark| (mark.fence, mark.mark) != (15, Kind::Stop)));
    is_found(Verdict::Invented, |it| it.kept.attempts[1].outcome = Some("succeeded".to_owned()));
    is_found(Verdict::Invented, |it| it.kept.jobs[0].state = "succeeded".to_owned());
}

#[test]
fn an_attempt_starts_once_and_only_if_it_was_granted() {
    is_found(Verdict::StartedTwice, |it| it.truth.push(mark(1, 15, Kind::Start, 500)));
    is_found(Verdict::StartedTwice, |it| it.truth.push(mark(1, 15, Kind::Stop, 500)));
    is_found(Verdict::Ungranted, |it| it.truth.push(mark(1, 16, Kind::Start, 500)));
    is_found(Verdict::Ungranted, |it| it.truth.push(mark(77, 78, Kind::Start, 500)));
}

#[test]
fn what_is_said_never_to_have_started_has_not() {
    let saying = |outcome: &str, denies: bool| {
        let mut evidence = good();
        let attempt = evidence.kept.attempts.iter_mut().find(|it| it.fence == 51).unwrap();
        (attempt.outcome, attempt.told_gone_ms) = (Some(outcome.to_owned()), Some(51));
        assert_eq!(check(&evidence), [], "{outcome}: and it has not");
        evidence.truth.push(mark(5, 51, Kind::Start, 120));
        let found = check(&evidence).iter().any(|it| it.verdict == Verdict::StartDenied);
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
fn what_must_not_run_beside_itself_does_not() {
    let overlapping = |it: &mut Evidence| it.truth[7].up_ms = 140;
    is_found(Verdict::Overlapped, overlapping);
    // Also if the first one is stopped before its end, as a superseded one is: it has said that it was there.
    is_found(Verdict::Overlapped, |it| {
        overlapping(it);
        it.truth.retain(|mark| (mark.fence, mark.mark) != (50, Kind::Stop));
    });
    // Killed before the second one began, which nobody but the machine that it ran on knows.
    let mut killed = good();
    killed.truth.retain(|mark| (mark.fence, mark.mark) != (50, Kind::Stop));
    assert_eq!(check(&killed), []);
    // The other job's attempts overlap too, and may.
    assert_eq!(good().truth[2].up_ms, 250);
}

#[test]
fn who_waits_for_a_lost_worker_gets_no_successor_before_it_has_told() {
    let lost = |it: &mut Evidence| {
        assert_eq!(it.kept.attempts[5].fence, 50);
        it.kept.attempts[5].told_gone_ms = None;
    };
    is_found(Verdict::GivenUp, lost);
    is_found(Verdict::GivenUp, |it| it.kept.attempts[5].told_gone_ms = Some(52));
    // Where nobody waits for a lost worker, nor in a round of before this was kept.
    let mut others = good();
    others.kept.attempts[0].told_gone_ms = None;
    assert_eq!(check(&others), []);
    let mut old = good();
    lost(&mut old);
    old.kept.attempts.iter_mut().for_each(|attempt| attempt.assigned_ms = None);
    assert_eq!(check(&old), []);
}

#[test]
fn attempts_are_numbered_without_holes_and_fences_given_once() {
    is_found(Verdict::Misnumbered, |it| it.kept.attempts[1].number = 3);
    is_found(Verdict::Misnumbered, |it| it.kept.attempts[3].fence = 12);
    is_found(Verdict::Misnumbered, |it| {
        it.kept.attempts[0].number = 2;
        it.kept.attempts[1].number = 1;
    });
}

#[test]
fn a_deploy_disturbs_nobody() {
    let only_deploys = |it: &mut Evidence| {
        it.history.retain(|event| !matches!(event, Event::Fault { .. }));
        it.history.push(Event::Fault { kind: "deploy_worker".to_owned(), what: String::new() });
    };
    // The lost attempts that are good after a kill are none after a deploy.
    is_found(Verdict::Disturbed, only_deploys);
    is_found(Verdict::Disturbed, |it| {
        only_deploys(it);
        it.kept.attempts.retain(|attempt| attempt.outcome.as_deref() != Some("lost"));
        it.truth.retain(|mark| (mark.fence, mark.mark) != (52, Kind::Stop));
    });
}

#[test]
fn everything_ends_and_nothing_is_left() {
    for state in ["scheduled", "queued", "assigned", "running", "quarantined", "lost"] {
        is_found(Verdict::NotEnded, |it| it.kept.jobs[1].state = state.to_owned());
    }
    is_found(Verdict::Orphaned, |it| it.left.push("container 1234".to_owned()));
}

#[test]
fn no_client_gets_an_answer_that_means_we_are_broken() {
    is_found(Verdict::Misanswered, |it| {
        it.history.push(Event::Answered { label: "c".to_owned(), status: 500, job: None });
    });
    is_found(Verdict::Misanswered, |it| {
        it.history.push(Event::Answered { label: "c".to_owned(), status: 201, job: None });
    });
    is_found(Verdict::Misanswered, |it| {
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
fn verdicts_are_counted_by_their_kind() {
    let mut evidence = good();
    evidence.left = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(count(&check(&evidence)).into_iter().collect::<Vec<_>>(), [(Verdict::Orphaned, 2)]);
}

#[test]
fn a_cancelled_container_that_goes_on_is_found_unless_nobody_claims_that_it_is_gone() {
    let mut evidence = good();
    evidence.kept.jobs.push(Job { confirmed: true, ..job(6, "docker-plain-1", "e", "cancelled", 60) });
    evidence.kept.attempts.push(attempt(6, 60, 1, "cancelled", None));
    evidence.history.push(Event::Submit { label: "e".to_owned(), count: 1, key: None });
    evidence.history.push(Event::Cancelled { job: 6, status: 200 });
    evidence.truth.push(mark(6, 60, Kind::Start, 900));
    assert_eq!(check(&evidence), []);
    for goes_on in [Kind::Alive, Kind::Stop] {
        evidence.truth.push(mark(6, 60, goes_on, 2_000));
        assert_eq!(count(&check(&evidence)).into_iter().collect::<Vec<_>>(), [(Verdict::WentOn, 1)]);
        evidence.truth.pop();
    }
    evidence.truth.push(mark(6, 60, Kind::Stop, 2_000));
    evidence.kept.jobs.last_mut().unwrap().confirmed = false;
    assert_eq!(check(&evidence), []);
}

#[test]
fn a_fence_must_hold_where_nothing_keeps_workers_from_it() {
    let mut evidence = good();
    evidence.kept.jobs.push(job(6, "docker-fenced-1", "e", "failed", 61));
    evidence.kept.attempts.push(attempt(6, 60, 1, "lost", None));
    evidence.kept.attempts.push(attempt(6, 61, 2, "failed", Some(11)));
    evidence.history.push(Event::Submit { label: "e".to_owned(), count: 1, key: None });
    evidence.truth.push(mark(6, 60, Kind::Start, 100));
    evidence.truth.push(mark(6, 61, Kind::Start, 200));
    evidence.truth.push(mark(6, 60, Kind::Stop, 250));
    evidence.truth.push(mark(6, 61, Kind::Stop, 300));
    assert_eq!(count(&check(&evidence)).into_iter().collect::<Vec<_>>(), [(Verdict::Overlapped, 1)]);
    evidence.history.push(Event::Fault { kind: "pause_worker".to_owned(), what: "frozen".to_owned() });
    assert_eq!(check(&evidence), []);
}
