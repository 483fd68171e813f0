//! One suite, run against every store. A backend passes by giving the same answers as this file expects, before and after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::container::Body;
use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{
    AttemptNo, ClusterId, Epoch, Fence, JobId, Nonce, Revision, SessionId, Timestamp, Token, WorkerId,
};
use scheduler::input::{Details, GroupNo, KeyHolder};
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended, Note, WorkerRow};

use super::{Archive, CommitError, Group, JOBS_MAX, JobFilter, LiveJob, Loaded, Store, StoredDefinition};

/// Something that has a store which can be closed and opened again.
pub(super) trait Backend {
    fn open(&mut self) -> (Box<dyn Store>, Box<dyn Archive>);
}

/// Makes one test per story.
macro_rules! conforms {
    ($backend:expr) => {
        crate::store::conformance::conforms! {$backend;
            a_fresh_store_is_empty_and_keeps_its_installation,
            a_group_that_was_committed_is_left_alone,
            an_older_epoch_is_fenced,
            a_job_lives_from_change_to_change,
            a_whole_life_in_one_group_is_the_same,
            budgets_are_counted_by_outcome,
            a_successor_keeps_the_attempt_before_it,
            a_restart_gives_back_exactly_what_lives,
            whatever_contradicts_the_rows_is_refused_and_changes_nothing,
            the_same_end_twice_changes_nothing,
            keys_are_read_with_the_commit_that_was_seen,
            late_notes_are_kept,
            a_late_report_of_what_is_known_is_no_note,
            workers_are_kept_until_forgotten,
            bodies_and_labels_come_back,
            lists_obey_every_filter,
            pages_follow_one_another,
            the_last_end_of_a_definition_is_found,
        }
    };
    ($backend:expr; $($story:ident,)*) => {$(
        #[test]
        fn $story() {
            crate::store::conformance::$story(&mut $backend);
        }
    )*};
}
pub(super) use conforms;

/// A store under test, with what its engine would know.
struct Desk<'b> {
    backend: &'b mut dyn Backend,
    store: Option<Box<dyn Store>>,
    archive: Option<Box<dyn Archive>>,
    epoch: Epoch,
    group: GroupNo,
}

impl<'b> Desk<'b> {
    fn new(backend: &'b mut dyn Backend) -> Self {
        let mut desk = Self { backend, store: None, archive: None, epoch: Epoch(0), group: GroupNo(0) };
        desk.restart();
        desk
    }

    fn restart(&mut self) -> (Loaded, Vec<LiveJob>) {
        (self.store, self.archive) = (None, None);
        let (mut store, archive) = self.backend.open();
        let mut live = Vec::new();
        let loaded = store.load(&mut |job| live.push(job)).unwrap();
        (self.epoch, self.group) = (loaded.epoch, loaded.group);
        (self.store, self.archive) = (Some(store), Some(archive));
        (loaded, live)
    }

    fn group(&self, changes: Vec<Change>) -> Group {
        Group {
            epoch: self.epoch,
            number: GroupNo(self.group.0 + 1),
            at: Timestamp(0),
            definitions: vec![definition(1), definition(2)],
            changes,
        }
    }

    fn commit_group(&mut self, group: &Group) -> Result<(), CommitError> {
        self.store.as_mut().unwrap().commit(group)
    }

    fn commit(&mut self, changes: Vec<Change>) {
        let group = self.group(changes);
        self.commit_group(&group).unwrap();
        self.group = group.number;
    }

    fn refused(&mut self, changes: Vec<Change>) -> String {
        let group = self.group(changes);
        match self.commit_group(&group) {
            Err(CommitError::Refused(why)) => why,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    fn archive(&self) -> &dyn Archive {
        self.archive.as_deref().unwrap()
    }

    fn state(&self, job: u64) -> State {
        self.archive().job(JobId(job)).unwrap().unwrap().row.state
    }

    fn list(&self, filter: JobFilter) -> Vec<u64> {
        let limit = if filter.limit == 0 { 500 } else { filter.limit };
        self.archive().jobs(&JobFilter { limit, ..filter }).unwrap().iter().map(|row| row.job.0).collect()
    }
}

fn definition(number: u128) -> Arc<StoredDefinition> {
    let name = if number % 2 == 1 { "resize" } else { "mail" };
    Arc::new(StoredDefinition { revision: Revision(number), name: name.into(), entry: "{}".into() })
}

fn token(job: u64, fence: u64) -> Token {
    // Nonces use all 64 bits.
    Token { job: JobId(job), fence: Fence(fence), nonce: Nonce(u64::MAX - fence) }
}

fn job(job: u64) -> AddedJob {
    AddedJob {
        job: JobId(job),
        revision: Revision(1),
        state: State::Queued,
        priority: -3,
        created_at: Timestamp(1_000 + job.cast_signed()),
        due_at: Timestamp(2_000),
        timeout: None,
        batch: None,
        retry_of: None,
        details: None,
    }
}

fn added(number: u64) -> Change {
    Change::Added(job(number))
}

fn assigned(job: u64, fence: u64) -> Change {
    assigned_as(job, fence, 1, 1)
}

fn assigned_as(job: u64, fence: u64, number: u32, worker: u64) -> Change {
    Change::Assigned(Assigned {
        token: token(job, fence),
        number: AttemptNo(number),
        worker: WorkerId(worker),
        session: SessionId(70 + worker),
        at: Timestamp(3_000),
    })
}

fn started(job: u64, fence: u64) -> Change {
    Change::Started { token: token(job, fence), at: Timestamp(4_000), container: format!("c{fence}") }
}

fn stopping(job: u64, fence: u64, cause: StopCause) -> Change {
    Change::Stopping { token: token(job, fence), cause, at: Timestamp(4_500), by: "someone".into() }
}

fn closed(job: u64, fence: u64, outcome: Outcome) -> ClosedAttempt {
    ClosedAttempt {
        token: token(job, fence),
        outcome,
        exit_code: (outcome == Outcome::Failed).then_some(3),
        message: if outcome == Outcome::Succeeded { String::new() } else { "it broke".into() },
        started_at: Some(Timestamp(4_001)),
        ended_at: Timestamp(5_000),
        output: OutputLengths { stdout: 10, stderr: 20 },
        result: (outcome == Outcome::Succeeded).then(|| "{\"n\":1}".into()),
        released: (outcome == Outcome::Released).then_some(ReleaseCause::Full),
    }
}

fn waiting(closed: ClosedAttempt, state: State) -> Change {
    Change::Waiting { job: closed.token.job, closed, due_at: Timestamp(9_000), state }
}

fn ended(job: u64, state: State, closed: Option<ClosedAttempt>) -> Change {
    let reason = if state == State::Succeeded { String::new() } else { "because".into() };
    Change::Ended(Ended { job: JobId(job), state, at: Timestamp(5_001), reason, closed, confirmed: true })
}

fn succeeded(job: u64, fence: u64) -> Change {
    ended(job, State::Succeeded, Some(closed(job, fence, Outcome::Succeeded)))
}

fn worker(number: u64, name: &str) -> Change {
    Change::Worker(WorkerRow {
        worker: WorkerId(number),
        name: name.into(),
        secret_hash: [7; 32],
        joined_at: Timestamp(1),
        seen_at: Timestamp(2),
        cordoned: true,
        slots: Some(4),
    })
}

pub(super) fn a_fresh_store_is_empty_and_keeps_its_installation(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let (first, live) = desk.restart();
    assert!(live.is_empty() && first.workers.is_empty() && first.definitions.is_empty());
    assert_ne!(first.cluster, ClusterId(0));
    assert_eq!((first.last_job, first.last_fence, first.group), (JobId(0), Fence(0), GroupNo(0)));
    let (second, _) = desk.restart();
    assert_eq!(second.cluster, first.cluster);
    assert!(second.epoch > first.epoch);
    assert_eq!(desk.archive().job(JobId(1)).unwrap(), None);
    assert_eq!(desk.archive().definition(Revision(1)).unwrap(), None);
}

pub(super) fn a_group_that_was_committed_is_left_alone(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let group = desk.group(vec![added(1)]);
    desk.commit_group(&group).unwrap();
    desk.commit_group(&group).expect("its result was not known, so it is tried again");
    desk.group = group.number;
    assert_eq!(desk.list(JobFilter::default()), [1]);
    let (loaded, _) = desk.restart();
    assert_eq!(loaded.group, group.number);
}

pub(super) fn an_older_epoch_is_fenced(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let old = desk.group(vec![added(1)]);
    desk.restart();
    assert!(matches!(desk.commit_group(&old), Err(CommitError::Fenced { ours }) if ours == old.epoch));
    assert!(desk.list(JobFilter::default()).is_empty());
}

pub(super) fn a_job_lives_from_change_to_change(backend: &mut dyn Backend) {
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

pub(super) fn a_whole_life_in_one_group_is_the_same(backend: &mut dyn Backend) {
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

pub(super) fn budgets_are_counted_by_outcome(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit(vec![added(1)]);
    for (fence, outcome) in (1..).zip(Outcome::ALL.into_iter().skip(1)) {
        desk.commit(vec![assigned_as(1, fence, u32::try_from(fence).unwrap(), 1)]);
        desk.commit(vec![waiting(closed(1, fence, outcome), State::Queued)]);
    }
    let (_, live) = desk.restart();
    // failed, oom_killed, timed_out, pull_failed, start_failed; lost, daemon_lost, host_failed.
    assert_eq!(live[0].own_failures, 5);
    assert_eq!(live[0].losses, [Timestamp(5_000); 3]);
    let late = ClosedAttempt { ended_at: Timestamp(5_000 + 24 * 3_600_000), ..closed(1, 50, Outcome::Lost) };
    desk.commit(vec![assigned_as(1, 50, 50, 1), waiting(late.clone(), State::Quarantined)]);
    let (_, live) = desk.restart();
    assert_eq!(live[0].losses, [late.ended_at], "older ones are forgotten after a day");
    assert_eq!(live[0].state, State::Quarantined);
}

pub(super) fn a_successor_keeps_the_attempt_before_it(backend: &mut dyn Backend) {
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

pub(super) fn a_restart_gives_back_exactly_what_lives(backend: &mut dyn Backend) {
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
    assert_eq!(
        (by_job[&1].priority, by_job[&1].due_at, by_job[&1].last_worker),
        (-3, Timestamp(2_000), None)
    );
    let running = by_job[&4].attempt.as_ref().unwrap();
    assert_eq!((running.token, running.worker, running.session), (token(4, 2), WorkerId(9), SessionId(79)));
    assert_eq!((running.assigned_at, running.started_at), (Timestamp(3_000), Some(Timestamp(4_000))));
    assert_eq!((running.stopping, by_job[&4].state), (Some(StopCause::Timeout), State::Running));
    assert_eq!(by_job[&3].attempt.as_ref().unwrap().started_at, None);
    let lost = by_job[&6];
    assert_eq!((lost.state, lost.due_at, lost.attempts), (State::Scheduled, Timestamp(9_000), AttemptNo(1)));
    assert_eq!((lost.last_worker, &lost.attempt), (Some(WorkerId(1)), &None));
}

pub(super) fn whatever_contradicts_the_rows_is_refused_and_changes_nothing(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit(vec![added(1), added(2), assigned(2, 1), added(3), assigned(3, 2), started(3, 2), added(4)]);
    desk.commit(vec![ended(4, State::Expired, None)]);
    let wrong = |job, fence| ClosedAttempt {
        token: Token { nonce: Nonce(1), ..token(job, fence) },
        ..closed(job, fence, Outcome::Succeeded)
    };
    let unknown = AddedJob { revision: Revision(99), ..job(10) };
    for (why, change) in [
        ("given twice", added(1)),
        ("a number of an ended job", added(4)),
        ("no such definition", Change::Added(unknown)),
        ("not queued", assigned(2, 9)),
        ("no such job", assigned(77, 9)),
        ("not scheduled", Change::Due { job: JobId(1) }),
        ("another fence", started(2, 9)),
        ("started before", started(3, 2)),
        ("nothing to stop", stopping(1, 1, StopCause::Cancel)),
        ("another nonce", ended(3, State::Succeeded, Some(wrong(3, 2)))),
        ("it has an attempt", ended(3, State::Cancelled, None)),
        ("it has no attempt", ended(1, State::Succeeded, Some(closed(1, 1, Outcome::Succeeded)))),
        ("it has ended", ended(4, State::Cancelled, None)),
        ("it has ended", assigned(4, 9)),
        ("another nonce", waiting(wrong(3, 2), State::Queued)),
    ] {
        let refusal = desk.refused(vec![added(11), change]);
        assert!(refusal.contains("expected") || refusal.contains("never stored"), "{why}: {refusal}");
        assert_eq!(desk.list(JobFilter::default()), [4, 3, 2, 1], "{why}: all of the group or nothing");
    }
    let states: Vec<_> = desk.restart().1.iter().map(|job| job.state).collect();
    assert_eq!(states, [State::Queued, State::Assigned, State::Running]);
    desk.commit(vec![added(11)]);
}

pub(super) fn the_same_end_twice_changes_nothing(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit(vec![added(1), assigned(1, 1), started(1, 1)]);
    desk.commit(vec![succeeded(1, 1)]);
    let before = desk.archive().job(JobId(1)).unwrap();
    let later = Change::Ended(Ended {
        job: JobId(1),
        state: State::Succeeded,
        at: Timestamp(8_000),
        reason: String::new(),
        closed: Some(closed(1, 1, Outcome::Succeeded)),
        confirmed: true,
    });
    desk.commit(vec![later]);
    assert_eq!(desk.archive().job(JobId(1)).unwrap(), before);
    desk.refused(vec![ended(1, State::Failed, Some(closed(1, 1, Outcome::Failed)))]);
}

pub(super) fn keys_are_read_with_the_commit_that_was_seen(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let holder = KeyHolder { job: JobId(1), count: 2, digest: u128::MAX - 1 };
    let keyed = Change::Keyed { key: "submit/a".into(), holder, at: Timestamp(1) };
    assert_eq!(desk.archive().key("submit/a").unwrap(), (None, GroupNo(0)));
    desk.commit(vec![added(1), added(2), keyed.clone()]);
    assert_eq!(desk.archive().key("submit/a").unwrap(), (Some(holder), desk.group));
    assert_eq!(desk.archive().key("submit/b").unwrap(), (None, desk.group));
    desk.refused(vec![added(3), keyed]);
    desk.restart();
    assert_eq!(desk.archive().key("submit/a").unwrap(), (Some(holder), desk.group));
}

pub(super) fn late_notes_are_kept(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit(vec![added(1), assigned(1, 1), started(1, 1), succeeded(1, 1)]);
    let notes = [
        Note::LateReport { token: token(1, 1), worker: WorkerId(2), said: "success".into() },
        Note::CancelRequested { by: "someone".into() },
        Note::Unreachable { token: token(1, 1), worker: WorkerId(2) },
        Note::Revived { token: token(1, 1), worker: WorkerId(2) },
    ];
    for (at, note) in (1..).zip(&notes) {
        desk.commit(vec![Change::Noted { job: JobId(1), at: Timestamp(at), note: note.clone() }]);
    }
    desk.restart();
    let kept = desk.archive().job(JobId(1)).unwrap().unwrap().notes;
    assert_eq!(kept, (1..).map(Timestamp).zip(notes).collect::<Vec<_>>());
}

pub(super) fn a_late_report_of_what_is_known_is_no_note(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let again = waiting(closed(1, 1, Outcome::Failed), State::Queued);
    desk.commit(vec![added(1), assigned(1, 1), started(1, 1), again]);
    desk.commit(vec![assigned_as(1, 2, 2, 1), started(1, 2)]);
    desk.commit(vec![succeeded(1, 2)]);
    let (bearer, stranger) = (WorkerId(1), WorkerId(2));
    let report = |fence, worker, said: &str| Change::Noted {
        job: JobId(1),
        at: Timestamp(9),
        note: Note::LateReport { token: token(1, fence), worker, said: said.into() },
    };
    desk.commit(vec![
        report(1, bearer, "running"),
        report(1, bearer, "failed"),
        report(2, bearer, "running"),
        report(2, bearer, "succeeded"),
    ]);
    let nobody = Token { job: JobId(77), ..token(1, 1) };
    let note = Note::LateReport { token: nobody, worker: bearer, said: "succeeded".into() };
    desk.commit(vec![Change::Noted { job: JobId(77), at: Timestamp(9), note }]);
    let notes = |desk: &Desk<'_>| desk.archive().job(JobId(1)).unwrap().unwrap().notes.len();
    assert_eq!(notes(&desk), 0);
    desk.commit(vec![
        report(1, bearer, "succeeded"),
        report(2, bearer, "failed"),
        report(2, stranger, "succeeded"),
    ]);
    assert_eq!(notes(&desk), 3, "what contradicts the record is kept");
}

pub(super) fn workers_are_kept_until_forgotten(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    desk.commit(vec![worker(2, "two"), worker(1, "one"), added(1), assigned_as(1, 1, 1, 2)]);
    let Change::Worker(renamed) = worker(2, "zwei") else { unreachable!("it is one") };
    desk.commit(vec![Change::Worker(WorkerRow { cordoned: false, slots: None, ..renamed.clone() })]);
    let workers = desk.archive().workers().unwrap();
    assert_eq!(workers.iter().map(|row| &*row.name).collect::<Vec<_>>(), ["one", "zwei"]);
    assert_eq!(workers[1], WorkerRow { cordoned: false, slots: None, ..renamed });
    desk.commit(vec![Change::WorkerForgotten(WorkerId(2))]);
    let (loaded, _) = desk.restart();
    assert_eq!(loaded.workers, workers[..1]);
    assert_eq!(loaded.last_worker, WorkerId(2), "its number is not given again");
    let attempt = desk.archive().job(JobId(1)).unwrap().unwrap().row.attempt.unwrap();
    assert_eq!(&*attempt.worker_name, "zwei", "its attempts keep its name");
}

pub(super) fn bodies_and_labels_come_back(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let body = Body {
        environment: vec![("A".into(), "ä \"quoted\"\n".into())],
        args: vec!["--fast".into(), String::new()],
        input: Some("{}".into()),
    };
    let labels = vec![("team".to_owned(), "blue".to_owned()), ("tier".to_owned(), "1".to_owned())];
    let full = Details { body: body.clone(), labels: labels.clone() };
    let only_labels = Details { body: Body::default(), labels: labels.clone() };
    let with = |number, details| Change::Added(AddedJob { details: Some(Box::new(details)), ..job(number) });
    desk.commit(vec![with(1, full), with(2, only_labels), with(3, Details::default()), added(4)]);
    desk.restart();
    let ids = [4, 3, 2, 1].map(JobId);
    assert_eq!(desk.archive().bodies(&ids).unwrap(), [(JobId(1), body.clone())]);
    let record = desk.archive().job(JobId(1)).unwrap().unwrap();
    assert_eq!((record.body, &record.row.labels), (body, &labels));
    let rows = desk.archive().jobs(&JobFilter { limit: 10, ..JobFilter::default() }).unwrap();
    let labelled: Vec<_> = rows.iter().map(|row| row.labels.len()).collect();
    assert_eq!(labelled, [0, 0, 2, 2]);
}

pub(super) fn lists_obey_every_filter(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    let labels = vec![("team".to_owned(), "blue".to_owned())];
    let labelled = Details { body: Body::default(), labels };
    desk.commit(vec![
        added(1),
        Change::Added(AddedJob { revision: Revision(2), ..job(2) }),
        Change::Added(AddedJob { details: Some(Box::new(labelled.clone())), ..job(3) }),
        Change::Added(AddedJob { batch: Some(JobId(4)), ..job(4) }),
        Change::Added(AddedJob { batch: Some(JobId(4)), details: Some(Box::new(labelled)), ..job(5) }),
        Change::Added(AddedJob { retry_of: Some(JobId(1)), ..job(6) }),
    ]);
    desk.commit(vec![
        assigned_as(1, 1, 1, 8),
        assigned_as(2, 2, 1, 9),
        assigned_as(3, 3, 1, 8),
        started(3, 3),
    ]);
    desk.commit(vec![succeeded(1, 1), ended(2, State::Failed, Some(closed(2, 2, Outcome::Failed)))]);
    desk.commit(vec![ended(4, State::Cancelled, None)]);
    let none = JobFilter::default;
    let states = |states: &[State]| JobFilter { states: states.to_vec(), ..JobFilter::default() };
    assert_eq!(desk.list(none()), [6, 5, 4, 3, 2, 1]);
    assert_eq!(desk.list(states(&[State::Queued])), [6, 5]);
    assert_eq!(desk.list(states(&[State::Running, State::Succeeded])), [3, 1]);
    assert_eq!(desk.list(states(&[State::Failed, State::Cancelled, State::Failed])), [4, 2]);
    assert_eq!(desk.list(states(&State::ALL)), [6, 5, 4, 3, 2, 1]);
    assert_eq!(desk.list(JobFilter { name: Some("mail".into()), ..none() }), [2]);
    assert_eq!(desk.list(JobFilter { name: Some("resize".into()), ..none() }), [6, 5, 4, 3, 1]);
    assert!(desk.list(JobFilter { name: Some("unheard".into()), ..none() }).is_empty());
    assert_eq!(desk.list(JobFilter { name: Some("mail".into()), ..states(&[State::Failed]) }), [2]);
    assert!(desk.list(JobFilter { name: Some("resize".into()), ..states(&[State::Failed]) }).is_empty());
    assert_eq!(desk.list(JobFilter { worker: Some(WorkerId(8)), ..none() }), [3, 1]);
    assert_eq!(desk.list(JobFilter { worker: Some(WorkerId(8)), ..states(&[State::Succeeded]) }), [1]);
    assert_eq!(desk.list(JobFilter { batch: Some(JobId(4)), ..none() }), [5, 4]);
    assert_eq!(desk.list(JobFilter { batch: Some(JobId(4)), ..states(&[State::Cancelled]) }), [4]);
    let blue = || Some(("team".to_owned(), "blue".to_owned()));
    assert_eq!(desk.list(JobFilter { label: blue(), ..none() }), [5, 3]);
    assert_eq!(desk.list(JobFilter { label: blue(), ..states(&[State::Running]) }), [3]);
    assert!(desk.list(JobFilter { label: Some(("team".into(), "red".into())), ..none() }).is_empty());
    assert_eq!(desk.list(JobFilter { since: Some(Timestamp(1_005)), ..none() }), [6, 5]);
    assert_eq!(desk.list(JobFilter { until: Some(Timestamp(1_003)), ..none() }), [2, 1]);
    assert!(desk.list(JobFilter { since: Some(Timestamp(9_999)), ..none() }).is_empty());
    assert!(desk.list(JobFilter { until: Some(Timestamp(0)), ..none() }).is_empty());
    let row = &desk.archive().jobs(&JobFilter { limit: 1, ..none() }).unwrap()[0];
    assert_eq!((row.retry_of, row.batch), (Some(JobId(1)), None));
}

pub(super) fn pages_follow_one_another(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    // Enough for several blocks of a coarse index; every third one ends, a third of those badly.
    let total = 10_000;
    desk.commit((1..=total).map(added).collect());
    let ending = |number: u64| match number {
        n if n % 9 == 0 => Some(ended(n, State::Failed, Some(closed(n, n, Outcome::Failed)))),
        n if n % 3 == 0 => Some(succeeded(n, n)),
        _ => None,
    };
    desk.commit((1..=total).filter(|n| n % 3 == 0).map(|n| assigned_as(n, n, 1, 1 + n % 2)).collect());
    desk.commit((1..=total).filter_map(ending).collect());
    let all = |filter: &JobFilter| {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let page = desk.list(JobFilter { before, limit: 400, ..filter.clone() });
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
    let worker = JobFilter { worker: Some(WorkerId(2)), ..JobFilter::default() };
    assert_eq!(all(&worker), down(|n| n % 3 == 0 && n % 2 == 1));
    assert_eq!(
        desk.archive().jobs(&JobFilter { limit: 9_999, ..JobFilter::default() }).unwrap().len(),
        JOBS_MAX
    );
}

pub(super) fn the_last_end_of_a_definition_is_found(backend: &mut dyn Backend) {
    let mut desk = Desk::new(backend);
    assert_eq!(desk.archive().last_ended("resize").unwrap(), None);
    desk.commit(vec![
        added(1),
        added(2),
        added(3),
        Change::Added(AddedJob { revision: Revision(2), ..job(4) }),
    ]);
    desk.commit(vec![assigned(1, 1), assigned(2, 2), assigned(4, 4)]);
    desk.commit(vec![
        succeeded(1, 1),
        ended(2, State::Failed, Some(closed(2, 2, Outcome::Failed))),
        succeeded(4, 4),
    ]);
    let last = |name: &str| desk.archive().last_ended(name).unwrap().map(|row| (row.job.0, row.state));
    assert_eq!(last("resize"), Some((2, State::Failed)));
    assert_eq!(last("mail"), Some((4, State::Succeeded)));
    assert_eq!(last("unheard"), None);
}
