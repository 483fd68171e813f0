//! Stories of what can be asked: keys, notes, workers, bodies, lists.

use protocol::container::Overrides;
use protocol::report::Outcome;
use protocol::{Fence, Incarnation, JobId, Nonce, Revision, Timestamp, Token, WorkerId};
use scheduler::details::JobDetails;
use scheduler::fleet::row::{Drain, WorkerRow};
use scheduler::ids::{GroupNo, JoinTokenId};
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::params::{JobParam, JobParams, ParamValue};
use scheduler::step::{AddedJob, Change, ClosedAttempt, Note};

use super::Backend;
use super::harness::*;
use crate::store::{Group, JOBS_MAX, JobFilter};

pub(in crate::store) fn keys_are_read_with_the_commit_that_was_seen(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let holder = KeyHolder { job: JobId(1), count: 2, digest: u128::MAX - 1 };
    let keyed = Change::IdempotencyKeyStored { key: "submit/a".into(), holder, at: Timestamp(1) };
    assert_eq!(harness.archive().key("submit/a").unwrap(), (None, GroupNo(0)));
    harness.commit(vec![added(1), added(2), keyed.clone()]);
    assert_eq!(harness.archive().key("submit/a").unwrap(), (Some(holder), harness.group));
    assert_eq!(harness.archive().key("submit/b").unwrap(), (None, harness.group));
    harness.refused(vec![added(3), keyed]);
    harness.restart();
    assert_eq!(harness.archive().key("submit/a").unwrap(), (Some(holder), harness.group));
}

pub(in crate::store) fn late_notes_are_kept(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), assigned(1, 1), started(1, 1), succeeded(1, 1)]);
    let notes = [
        Note::LateReport { token: token(1, 1), worker: WorkerId(2), said: "success".into() },
        Note::CancelRequested { by: "someone".into() },
        Note::Unreachable { token: token(1, 1), worker: WorkerId(2) },
        Note::Revived { token: token(1, 1), worker: WorkerId(2) },
        Note::Released { by: "someone".into() },
        Note::Updated { by: "someone".into(), due_at: Timestamp(-7), priority: -9 },
        Note::ResultLeftOut { why: "rows".into() },
        Note::WorkersLeftOut { workers: "w3 (is cordoned)".into() },
        Note::ContainerGone { token: token(1, 1), worker: WorkerId(2) },
    ];
    for (at, note) in (1..).zip(&notes) {
        harness.commit(vec![Change::Noted { job: JobId(1), at: Timestamp(at), note: note.clone() }]);
    }
    harness.restart();
    let kept = harness.archive().job(JobId(1)).unwrap().unwrap().notes;
    assert_eq!(kept, (1..).map(Timestamp).zip(notes).collect::<Vec<_>>());
}

pub(in crate::store) fn a_late_report_of_a_known_state_adds_no_note(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let again = waiting(closed(1, 1, Outcome::Failed), State::Queued);
    harness.commit(vec![added(1), assigned(1, 1), started(1, 1), again]);
    harness.commit(vec![assigned_as(1, 2, 2, 1), started(1, 2)]);
    harness.commit(vec![succeeded(1, 2)]);
    let (bearer, other) = (WorkerId(1), WorkerId(2));
    let report = |fence, worker, said: &str| Change::Noted {
        job: JobId(1),
        at: Timestamp(9),
        note: Note::LateReport { token: token(1, fence), worker, said: said.into() },
    };
    harness.commit(vec![
        report(1, bearer, "running"),
        report(1, bearer, "failed"),
        report(2, bearer, "running"),
        report(2, bearer, "succeeded"),
    ]);
    let nobody = Token { job: JobId(77), ..token(1, 1) };
    let note = Note::LateReport { token: nobody, worker: bearer, said: "succeeded".into() };
    harness.commit(vec![Change::Noted { job: JobId(77), at: Timestamp(9), note }]);
    let notes = |harness: &Harness<'_>| harness.archive().job(JobId(1)).unwrap().unwrap().notes.len();
    assert_eq!(notes(&harness), 0);
    harness.commit(vec![
        report(1, bearer, "succeeded"),
        report(2, bearer, "failed"),
        report(2, other, "succeeded"),
    ]);
    assert_eq!(notes(&harness), 3, "what contradicts the record is kept");
    // A worker does not know which exit codes are a success.
    let odd = ClosedAttempt { exit_code: Some(24), ..closed(2, 3, Outcome::Succeeded) };
    harness.commit(vec![added(2), assigned(2, 3), started(2, 3), ended(2, State::Succeeded, Some(odd))]);
    let again = Note::LateReport { token: token(2, 3), worker: bearer, said: "failed".into() };
    harness.commit(vec![Change::Noted { job: JobId(2), at: Timestamp(9), note: again }]);
    assert_eq!(harness.archive().job(JobId(2)).unwrap().unwrap().notes.len(), 0);
}

pub(in crate::store) fn workers_are_kept_until_forgotten(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![worker(2, "two"), worker(1, "one"), added(1), assigned_as(1, 1, 1, 2)]);
    let Change::Worker(renamed) = worker(2, "zwei") else { unreachable!("it is one") };
    harness.commit(vec![Change::Worker(WorkerRow { cordoned: false, slots: None, ..renamed.clone() })]);
    let drains = [
        Drain { process: None, deadline: Some(Timestamp(77)) },
        Drain { process: Some(Incarnation(u64::MAX)), deadline: None },
    ];
    for drain in drains.map(Some) {
        harness.commit(vec![Change::Worker(WorkerRow { drain, ..renamed.clone() })]);
        assert_eq!(harness.restart().0.workers[1].drain, drain);
    }
    let labels = vec![("gpu".to_owned(), "a \"big\" one".to_owned()), ("zone".to_owned(), String::new())];
    harness.commit(vec![Change::Worker(WorkerRow { labels: labels.clone(), ..renamed.clone() })]);
    assert_eq!(harness.restart().0.workers[1].labels, labels);
    let joined = WorkerRow {
        join_token: Some(JoinTokenId(u64::MAX)),
        granted: labels,
        revoked_at: Some(Timestamp(88)),
        ..renamed.clone()
    };
    harness.commit(vec![Change::Worker(joined.clone())]);
    assert_eq!(harness.restart().0.workers[1], joined);
    let of_nobody = WorkerRow { cordon: Some(Timestamp(6).into()), ..renamed.clone() };
    harness.commit(vec![Change::Worker(of_nobody.clone())]);
    assert_eq!(harness.restart().0.workers[1], of_nobody);
    harness.commit(vec![Change::Worker(WorkerRow { process: None, ..renamed.clone() })]);
    assert_eq!(harness.restart().0.workers[1].process, None);
    harness.commit(vec![Change::Worker(WorkerRow { cordoned: false, slots: None, ..renamed.clone() })]);
    let workers = harness.archive().workers().unwrap();
    assert_eq!(workers.iter().map(|row| &*row.name).collect::<Vec<_>>(), ["one", "zwei"]);
    assert_eq!(workers[1], WorkerRow { cordoned: false, slots: None, ..renamed });
    harness.commit(vec![Change::WorkerForgotten(WorkerId(2))]);
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.workers, workers[..1]);
    assert_eq!(loaded.last_worker, WorkerId(2), "its number is not given again");
    let attempt = harness.archive().job(JobId(1)).unwrap().unwrap().row.attempt.unwrap();
    assert_eq!(&*attempt.worker_name, "zwei", "its attempts keep its name");
    let named =
        |harness: &Harness<'_>, name| harness.archive().worker_named(name).unwrap().map(|worker| worker.0);
    assert_eq!(["one", "zwei", "two"].map(|name| named(&harness, name)), [Some(1), Some(2), None]);
    harness.commit(vec![worker(3, "zwei"), worker(4, "zwei"), worker(5, "one")]);
    harness.commit(vec![Change::WorkerForgotten(WorkerId(4)), Change::WorkerForgotten(WorkerId(5))]);
    assert_eq!(
        ["one", "zwei"].map(|name| named(&harness, name)),
        [Some(1), Some(3)],
        "the last that was not forgotten"
    );
}

pub(in crate::store) fn an_attempt_is_known_by_its_worker(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let again = waiting(closed(1, 1, Outcome::Failed), State::Queued);
    harness.commit(vec![added(1), added(2), assigned_as(1, 1, 1, 1), assigned_as(2, 2, 1, 2), again]);
    harness.commit(vec![assigned_as(1, 3, 2, 2), succeeded(2, 2)]);
    let forged = Token { nonce: Nonce(u64::MAX), ..token(1, 1) };
    let all = [token(2, 2), token(1, 1), token(1, 3), forged, token(1, 2), token(9, 9)];
    for _ in 0..2 {
        let of = |worker| {
            let found = harness.archive().attempts_of(WorkerId(worker), &all).unwrap();
            assert!(found.iter().all(|(_, revision)| *revision == Revision(1)));
            found.into_iter().map(|(token, _)| token).collect::<Vec<_>>()
        };
        assert_eq!(of(1), [token(1, 1)], "what has a successor was its own too");
        assert_eq!(of(2), [token(2, 2), token(1, 3)], "what has ended was its own too");
        assert_eq!(of(3), []);
        harness.restart();
    }
}

pub(in crate::store) fn unknown_attempts_differ_from_assigned_ones(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let released = waiting(closed(1, 1, Outcome::Released), State::Queued);
    harness.commit(vec![added(1), assigned(1, 1), released, assigned_as(1, 2, 2, 1)]);
    harness.commit(vec![added(2), assigned(2, 3), succeeded(2, 3), added(3)]);
    let given = [token(1, 1), token(1, 2), token(2, 3)];
    let other_nonce = Token { nonce: Nonce(1), ..token(1, 2) };
    let strange =
        [other_nonce, token(1, 3), token(3, 1), token(4, 4), token(u64::MAX, u64::MAX), token(0, 1)];
    let all: Vec<Token> = given.into_iter().chain(strange).collect();
    assert_eq!(harness.archive().unknown_attempts(&all).unwrap(), strange);

    let skip = |after, job, fence| Change::NumbersSkipped { after, job, fence, at: Timestamp(7) };
    harness.commit(vec![skip(JobId(3), JobId(9), Fence(40)), skip(JobId(9), JobId(9), Fence(50)), added(10)]);
    let (loaded, _) = harness.restart();
    assert_eq!((loaded.last_job, loaded.last_fence), (JobId(10), Fence(50)));
    let strange = [token(4, 4), token(9, 40), token(10, 45), token(11, 1)];
    assert_eq!(harness.archive().unknown_attempts(&strange).unwrap(), strange);
    harness.refused(vec![added(9)]);
    for number in [0, 4, 9, 10, 11, u64::MAX] {
        assert!(!harness.archive().was_removed(JobId(number)).unwrap(), "job {number} is here, or never was");
    }
}

pub(in crate::store) fn bodies_and_labels_come_back(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let overrides = Overrides {
        environment: vec![("A".into(), "ä \"quoted\"\n".into())],
        args: vec!["--fast".into(), String::new()],
        input: Some("{}".into()),
    };
    let labels = vec![("team".to_owned(), "blue".to_owned()), ("tier".to_owned(), "1".to_owned())];
    let full = JobDetails { overrides: overrides.clone(), labels: labels.clone(), ..JobDetails::default() };
    let only_labels =
        JobDetails { overrides: Overrides::default(), labels: labels.clone(), ..JobDetails::default() };
    let with = |number, details| Change::Added(AddedJob { details: Some(Box::new(details)), ..job(number) });
    harness.commit(vec![with(1, full), with(2, only_labels), with(3, JobDetails::default()), added(4)]);
    harness.restart();
    let ids = [4, 3, 2, 1].map(JobId);
    assert_eq!(harness.sent(&ids), [(JobId(1), overrides.clone())]);
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    assert_eq!((record.overrides, &record.row.labels), (overrides, &labels));
    let rows = harness.archive().jobs(&JobFilter { limit: 10, ..JobFilter::default() }).unwrap();
    let labelled: Vec<_> = rows.iter().map(|row| row.labels.len()).collect();
    assert_eq!(labelled, [0, 0, 2, 2]);
}

pub(in crate::store) fn parameters_come_back(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let given = |name: &str, value| JobParam { name: name.to_owned(), value, secret: name == "token" };
    let params = JobParams {
        given: vec![
            given("token", ParamValue::Text("5".into())),
            given("size", ParamValue::Integer(-640)),
            given("ratio", ParamValue::Number("0.25".into())),
            given("fast", ParamValue::Boolean(true)),
            given("files", ParamValue::List(vec!["a b".into(), String::new()])),
        ],
        environment: vec![pair("A", "1")],
        variables: vec![pair("PARAM_SIZE", "-640")],
        args: vec!["-640".into()],
    };
    let overrides = Overrides { args: vec!["x".into()], ..Overrides::default() };
    let details =
        JobDetails { overrides: overrides.clone(), params: params.clone(), ..JobDetails::default() };
    let defaults = JobParams { variables: vec![pair("PARAM_SIZE", "1")], ..JobParams::default() };
    let only_defaults = JobDetails { params: defaults, ..JobDetails::default() };
    let with = |number, details| Change::Added(AddedJob { details: Some(Box::new(details)), ..job(number) });
    harness.commit(vec![with(1, details), with(2, only_defaults.clone()), added(3)]);
    let (_, live) = harness.restart();
    assert_eq!(live.iter().map(|job| job.has_overrides).collect::<Vec<_>>(), [true, true, false]);
    let sent = harness.sent(&[1, 2, 3].map(JobId));
    let from_defaults = only_defaults.effective_overrides();
    assert_eq!(sent, [(JobId(1), params.applied_to(&overrides)), (JobId(2), from_defaults)]);
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    assert_eq!((record.overrides, record.params), (overrides, params.given));
    assert_eq!(harness.archive().job(JobId(2)).unwrap().unwrap().params, []);
}

pub(in crate::store) fn lists_obey_every_filter(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let labels = vec![("team".to_owned(), "blue".to_owned())];
    let labelled = JobDetails { overrides: Overrides::default(), labels, ..JobDetails::default() };
    harness.commit(vec![
        added(1),
        Change::Added(AddedJob { revision: Revision(2), ..job(2) }),
        Change::Added(AddedJob { details: Some(Box::new(labelled.clone())), ..job(3) }),
        Change::Added(AddedJob { batch: Some(JobId(4)), ..job(4) }),
        Change::Added(AddedJob { batch: Some(JobId(4)), details: Some(Box::new(labelled)), ..job(5) }),
        Change::Added(AddedJob { retry_of: Some(JobId(1)), ..job(6) }),
    ]);
    harness.commit(vec![
        assigned_as(1, 1, 1, 8),
        assigned_as(2, 2, 1, 9),
        assigned_as(3, 3, 1, 8),
        started(3, 3),
    ]);
    harness.commit(vec![succeeded(1, 1), ended(2, State::Failed, Some(closed(2, 2, Outcome::Failed)))]);
    harness.commit(vec![ended(4, State::Cancelled, None)]);
    let none = JobFilter::default;
    let states = |states: &[State]| JobFilter { states: states.to_vec(), ..JobFilter::default() };
    assert_eq!(harness.list(none()), [6, 5, 4, 3, 2, 1]);
    assert_eq!(harness.list(states(&[State::Queued])), [6, 5]);
    assert_eq!(harness.list(states(&[State::Running, State::Succeeded])), [3, 1]);
    assert_eq!(harness.list(states(&[State::Failed, State::Cancelled, State::Failed])), [4, 2]);
    assert_eq!(harness.list(states(&State::ALL)), [6, 5, 4, 3, 2, 1]);
    assert_eq!(harness.list(JobFilter { name: Some("mail".into()), ..none() }), [2]);
    assert_eq!(harness.list(JobFilter { name: Some("resize".into()), ..none() }), [6, 5, 4, 3, 1]);
    assert!(harness.list(JobFilter { name: Some("unheard".into()), ..none() }).is_empty());
    assert_eq!(harness.list(JobFilter { name: Some("mail".into()), ..states(&[State::Failed]) }), [2]);
    let both = || vec!["mail".to_owned(), "resize".to_owned()];
    assert_eq!(harness.list(JobFilter { names: both(), ..none() }), [6, 5, 4, 3, 2, 1]);
    assert_eq!(harness.list(JobFilter { names: both(), limit: 5, ..none() }), [6, 5, 4, 3, 2]);
    assert_eq!(harness.list(JobFilter { names: both(), limit: 1, ..none() }), [6]);
    assert!(harness.list(JobFilter { name: Some("resize".into()), ..states(&[State::Failed]) }).is_empty());
    assert_eq!(harness.list(JobFilter { worker: Some(WorkerId(8)), ..none() }), [3, 1]);
    assert_eq!(harness.list(JobFilter { worker: Some(WorkerId(8)), ..states(&[State::Succeeded]) }), [1]);
    assert_eq!(harness.list(JobFilter { batch: Some(JobId(4)), ..none() }), [5, 4]);
    assert_eq!(harness.list(JobFilter { batch: Some(JobId(4)), ..states(&[State::Cancelled]) }), [4]);
    let blue = || Some(("team".to_owned(), "blue".to_owned()));
    assert_eq!(harness.list(JobFilter { label: blue(), ..none() }), [5, 3]);
    assert_eq!(harness.list(JobFilter { label: blue(), ..states(&[State::Running]) }), [3]);
    assert!(harness.list(JobFilter { label: Some(("team".into(), "red".into())), ..none() }).is_empty());
    assert_eq!(harness.list(JobFilter { since: Some(Timestamp(1_005)), ..none() }), [6, 5]);
    assert_eq!(harness.list(JobFilter { until: Some(Timestamp(1_003)), ..none() }), [2, 1]);
    assert!(harness.list(JobFilter { since: Some(Timestamp(9_999)), ..none() }).is_empty());
    assert!(harness.list(JobFilter { until: Some(Timestamp(0)), ..none() }).is_empty());
    assert!(harness.archive().scheduled_jobs().unwrap().is_empty());
    let later = |number, revision| AddedJob { revision, state: State::Scheduled, ..job(number) };
    let scheduled = [later(7, Revision(1)), later(8, Revision(2)), later(9, Revision(1))];
    harness.commit(scheduled.map(Change::Added).into());
    let counts = [("mail".to_owned(), 1), ("resize".to_owned(), 2)];
    assert_eq!(harness.archive().scheduled_jobs().unwrap(), counts.into());
    let row = &harness.archive().jobs(&JobFilter { before: Some(JobId(7)), limit: 1, ..none() }).unwrap()[0];
    assert_eq!((row.retry_of, row.batch), (Some(JobId(1)), None));
}

pub(in crate::store) fn pages_follow_one_another(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    // Enough for several blocks of a coarse index; every third one ends, a third of those badly.
    let total = 10_000;
    harness.commit((1..=total).map(added).collect());
    let ending = |number: u64| match number {
        n if n % 9 == 0 => Some(ended(n, State::Failed, Some(closed(n, n, Outcome::Failed)))),
        n if n % 3 == 0 => Some(succeeded(n, n)),
        _ => None,
    };
    harness.commit((1..=total).filter(|n| n % 3 == 0).map(|n| assigned_as(n, n, 1, 1 + n % 2)).collect());
    harness.commit((1..=total).filter_map(ending).collect());
    let all = |filter: &JobFilter| {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let page = harness.list(JobFilter { before, limit: 400, ..filter.clone() });
            let Some(last) = page.last() else { break seen };
            before = Some(JobId(*last));
            seen.extend(page);
        }
    };
    let down = |keep: fn(&u64) -> bool| (1..=total).rev().filter(keep).collect::<Vec<_>>();
    assert_eq!(all(&JobFilter::default()), down(|_| true));
    let named = JobFilter { name: Some("resize".into()), ..JobFilter::default() };
    assert_eq!(all(&named), down(|_| true));
    let of = |states: &[State]| JobFilter { states: states.to_vec(), ..named.clone() };
    assert_eq!(all(&of(&[State::Succeeded])), down(|n| n % 3 == 0 && n % 9 != 0));
    assert_eq!(all(&of(&[State::Failed, State::Queued])), down(|n| n % 9 == 0 || n % 3 != 0));
    // One search for each of several outcomes, in pages that both fill.
    let outcomes = vec![Outcome::Succeeded, Outcome::Failed];
    let ended = JobFilter { outcomes, ..JobFilter::default() };
    assert_eq!(all(&ended), down(|n| n % 3 == 0));
    let worker = JobFilter { worker: Some(WorkerId(2)), ..JobFilter::default() };
    assert_eq!(all(&worker), down(|n| n % 3 == 0 && n % 2 == 1));
    assert_eq!(
        harness.archive().jobs(&JobFilter { limit: 9_999, ..JobFilter::default() }).unwrap().len(),
        JOBS_MAX
    );
}

pub(in crate::store) fn live_jobs_are_found_by_label_among_many_ended_ones(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let blue = || ("team".to_owned(), "blue".to_owned());
    let with_label = |number: u64| match number % 5 {
        0 => added(number),
        _ => Change::Added(AddedJob {
            details: Some(Box::new(JobDetails {
                overrides: Overrides::default(),
                labels: vec![blue()],
                ..JobDetails::default()
            })),
            ..job(number)
        }),
    };
    // Blocks of a coarse index: one of which all has ended but for an old straggler, one of which all has, one of which half lives,
    // and one in which a few do.
    let total = 14_000;
    let lives = |number: u64| match number {
        0..4_096 => number == 1,
        4_096..8_192 => false,
        8_192..12_288 => number.is_multiple_of(2),
        _ => number.is_multiple_of(100) || number % 100 == 1,
    };
    harness.commit((1..=total).map(with_label).collect());
    let gone = (1..=total).filter(|number| !lives(*number));
    harness.commit(gone.map(|number| ended(number, State::Cancelled, None)).collect());
    harness.commit(vec![assigned(9_002, 1), started(9_002, 1)]);
    let is_blue = |number: &u64| !number.is_multiple_of(5);
    let queued: Vec<u64> = (1..=total).rev().filter(|n| lives(*n) && is_blue(n) && *n != 9_002).collect();
    let page = |states: &[State], before: Option<u64>, limit: usize| {
        let before = before.map(JobId);
        harness.list(JobFilter {
            label: Some(blue()),
            states: states.to_vec(),
            before,
            limit,
            ..JobFilter::default()
        })
    };
    let mut seen: Vec<u64> = Vec::new();
    while let Some(more) = Some(page(&[State::Queued], seen.last().copied(), 300)).filter(|it| !it.is_empty())
    {
        seen.extend(more);
    }
    assert_eq!(seen, queued);
    assert_eq!(page(&[State::Running], None, 100), [9_002]);
    assert_eq!(page(&[State::Running], Some(9_002), 100), [0; 0]);
    assert_eq!(page(&[], None, 3), [13_999, 13_998, 13_997], "ended and live are one list");
    let of_batch = JobFilter { label: Some(blue()), batch: Some(JobId(1)), ..JobFilter::default() };
    assert!(harness.list(of_batch).is_empty());
}

pub(in crate::store) fn revisions_of_a_name_are_found_newest_first(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1)]);
    // The first one comes back: it keeps its place.
    let definitions = vec![definition(3), definition(5), definition(1)];
    let group = Group { definitions, ..harness.group(vec![added(2)]) };
    harness.commit_group(&group).unwrap();
    let found = |name: &str, limit| {
        let found = harness.archive().revisions(name, limit).unwrap();
        found.iter().map(|stored| stored.revision.0).collect::<Vec<_>>()
    };
    assert_eq!(found("resize", 9), [5, 3, 1]);
    assert_eq!((found("resize", 2), found("mail", 2), found("unheard", 2)), (vec![5, 3], vec![2], vec![]));
}
