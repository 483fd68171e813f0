//! Random lives of jobs, told to three stores: to SQLite, which folds what a group does to a job into one write; to the store in
//! memory, which applies a group change by change; and to another one in memory that gets every change as a group of its own. All
//! three must hold the same afterwards, and refuse the same.

use std::sync::Arc;

use proptest::prelude::*;
use protocol::container::Body;
use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{
    AttemptNo, Epoch, Fence, Incarnation, JobId, Nonce, Revision, SessionId, Timestamp, Token, WorkerId,
};
use scheduler::input::{Details, GroupNo, KeyHolder};
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Drain, Ended, Note, Process, WorkerRow};

use super::directory::DataDirectory;
use super::memory::MemoryStore;
use super::{
    Archive, CommitError, Group, JobFilter, JobRecord, JobRow, LiveJob, Loaded, Store, StoredDefinition,
    sqlite,
};

/// What is to happen next; what that is depends on how far the job has come.
#[derive(Clone, Copy, Debug)]
struct Act {
    job: usize,
    verb: u8,
    dice: u8,
}

fn groups() -> impl Strategy<Value = Vec<Vec<Act>>> {
    let act =
        (any::<usize>(), any::<u8>(), any::<u8>()).prop_map(|(job, verb, dice)| Act { job, verb, dice });
    prop::collection::vec(prop::collection::vec(act, 1..25), 1..8)
}

/// As much of a job as is needed to go on with its life.
#[derive(Clone, Debug)]
struct Row {
    state: State,
    attempts: u32,
    current: Option<Token>,
    past: Vec<Token>,
}

#[derive(Clone, Debug, Default)]
struct Walk {
    rows: Vec<Row>,
    fence: u64,
    keys: u64,
    clock: i64,
}

impl Walk {
    fn change(&mut self, act: Act) -> Change {
        let Act { job, verb, dice } = act;
        // Losses are forgotten after a day: some of them must be that old.
        self.clock += i64::from(dice) * 100_000;
        if self.rows.is_empty() || (verb < 30 && self.rows.len() < JOBS_MAX) {
            return self.add(dice);
        }
        let index = job % self.rows.len();
        match verb {
            30..45 => self.note(index, dice),
            45..50 => self.keyed(),
            50..55 => worker(u64::from(dice % 3) + 1, self.now()),
            55..57 => Change::WorkerForgotten(WorkerId(u64::from(dice % 3) + 1)),
            57..60 => self.nonsense(index, dice),
            _ => self.go_on(index, dice),
        }
    }

    fn add(&mut self, dice: u8) -> Change {
        let state = if dice.is_multiple_of(4) { State::Scheduled } else { State::Queued };
        self.rows.push(Row { state, attempts: 0, current: None, past: Vec::new() });
        let body = Body { args: vec![format!("--{dice}")], ..Body::default() };
        let labels = vec![("dice".to_owned(), dice.to_string())];
        Change::Added(AddedJob {
            job: JobId(self.rows.len() as u64),
            revision: Revision(1 + u128::from(dice % 2)),
            state,
            priority: (dice % 5) as i8 - 2,
            created_at: self.now(),
            due_at: self.now(),
            timeout: [None, Some(None), Some(Some(std::time::Duration::from_secs(9)))][usize::from(dice % 3)],
            batch: dice.is_multiple_of(7).then_some(JobId(1)),
            retry_of: dice.is_multiple_of(11).then_some(JobId(1)),
            details: dice.is_multiple_of(3).then(|| Box::new(Details { body, labels })),
        })
    }

    fn go_on(&mut self, index: usize, dice: u8) -> Change {
        let job = JobId(index as u64 + 1);
        let row = &self.rows[index];
        match (row.state, row.current) {
            (State::Scheduled, _) if dice < 200 => {
                self.rows[index].state = State::Queued;
                Change::Due { job }
            }
            (State::Queued, _) if dice < 240 => self.assign(index, dice),
            (State::Quarantined, _) if dice < 200 => {
                self.rows[index].state = State::Queued;
                Change::Freed { job }
            }
            (State::Assigned | State::Running, Some(token)) => match dice % 5 {
                0 if row.state == State::Assigned => self.start(index, token),
                1 if row.state == State::Assigned => self.start(index, token),
                0 | 1 => stopping(token, dice, self.now()),
                2 => self.wait(index, token, dice),
                3 if dice > 128 => stopping(token, dice, self.now()),
                _ => self.end(index, Some(token), dice),
            },
            (State::Cancelled, _) if dice < 128 => self.confirm(index, dice),
            (state, _) if state.has_ended() => self.note(index, dice),
            _ => self.end(index, None, dice),
        }
    }

    fn assign(&mut self, index: usize, dice: u8) -> Change {
        self.fence += 1;
        let (now, fence) = (self.now(), self.fence);
        let row = &mut self.rows[index];
        let token =
            Token { job: JobId(index as u64 + 1), fence: Fence(fence), nonce: Nonce(u64::MAX - fence) };
        (row.state, row.current, row.attempts) = (State::Assigned, Some(token), row.attempts + 1);
        Change::Assigned(Assigned {
            token,
            number: AttemptNo(row.attempts),
            worker: WorkerId(u64::from(dice % 3) + 1),
            session: SessionId(u64::from(dice)),
            at: now,
        })
    }

    fn start(&mut self, index: usize, token: Token) -> Change {
        self.rows[index].state = State::Running;
        Change::Started { token, at: self.now(), container: format!("c{}", token.fence) }
    }

    fn wait(&mut self, index: usize, token: Token, dice: u8) -> Change {
        let state = [State::Scheduled, State::Queued, State::Quarantined][usize::from(dice % 3)];
        let row = &mut self.rows[index];
        (row.state, row.current) = (state, None);
        row.past.push(token);
        let closed = self.closed(token, dice);
        Change::Waiting { job: token.job, closed, due_at: self.now(), state }
    }

    fn end(&mut self, index: usize, token: Option<Token>, dice: u8) -> Change {
        let ends = [State::Succeeded, State::Failed, State::Cancelled, State::Expired, State::Lost];
        let state = ends[usize::from(dice) % ends.len()];
        let row = &mut self.rows[index];
        (row.state, row.current) = (state, None);
        row.past.extend(token);
        Change::Ended(Ended {
            job: JobId(index as u64 + 1),
            state,
            at: self.now(),
            reason: if state == State::Succeeded { String::new() } else { format!("because of {dice}") },
            closed: token.map(|token| self.closed(token, dice)),
            confirmed: dice.is_multiple_of(2),
        })
    }

    /// By the worker that had one of its attempts, or by another one.
    fn confirm(&self, index: usize, dice: u8) -> Change {
        let unknown = Token { job: JobId(index as u64 + 1), fence: Fence(1_000_000), nonce: Nonce(3) };
        let past = &self.rows[index].past;
        let token = past.get(usize::from(dice / 3) % past.len().max(1)).copied().unwrap_or(unknown);
        Change::Confirmed { token, worker: WorkerId(u64::from(dice % 3) + 1), at: self.now() }
    }

    fn closed(&self, token: Token, dice: u8) -> ClosedAttempt {
        let outcome = Outcome::ALL[usize::from(dice) % Outcome::ALL.len()];
        ClosedAttempt {
            token,
            outcome,
            exit_code: (outcome == Outcome::Failed).then_some(i32::from(dice)),
            message: if dice.is_multiple_of(2) { String::new() } else { "it broke".into() },
            started_at: dice.is_multiple_of(3).then(|| self.now()),
            ended_at: self.now(),
            output: OutputLengths { stdout: u64::from(dice), stderr: 1 << 40 },
            result: (outcome == Outcome::Succeeded).then(|| "{\"n\":1}".into()),
            released: (outcome == Outcome::Released).then_some(ReleaseCause::Full),
        }
    }

    /// A report is only late if its attempt is not the current one.
    fn note(&self, index: usize, dice: u8) -> Change {
        let row = &self.rows[index];
        let job = JobId(index as u64 + 1);
        let unknown = Token { job, fence: Fence(1_000_000), nonce: Nonce(3) };
        let token = row.past.get(usize::from(dice) % (row.past.len() + 1)).copied().unwrap_or(unknown);
        let worker = WorkerId(u64::from(dice % 3) + 1);
        let said = ["running", "succeeded", "failed", "released"][usize::from(dice / 4 % 4)].to_owned();
        let note = match dice % 5 {
            0 => Note::CancelRequested { by: format!("somebody {dice}") },
            1 => Note::Unreachable { token, worker },
            2 => Note::Revived { token, worker },
            3 => Note::Confirmed { token, worker },
            _ => Note::LateReport { token, worker, said },
        };
        Change::Noted { job, at: self.now(), note }
    }

    fn keyed(&mut self) -> Change {
        self.keys += 1;
        let holder = KeyHolder { job: JobId(1), count: 1, digest: u128::MAX - u128::from(self.keys) };
        Change::Keyed { key: format!("k{}", self.keys).into(), holder, at: self.now() }
    }

    /// What no brain would say, but one that has gone wrong.
    fn nonsense(&self, index: usize, dice: u8) -> Change {
        let job = JobId(index as u64 + 1);
        let row = &self.rows[index];
        let token = row.current.unwrap_or(Token { job, fence: Fence(self.fence), nonce: Nonce(1) });
        let forged = Token { nonce: Nonce(token.nonce.0 ^ 1), ..token };
        let mut astray = self.clone();
        match dice % 8 {
            0 => Change::Due { job },
            7 => Change::Freed { job },
            6 => Change::Started { token, at: self.now(), container: "again".into() },
            1 => Change::Started { token: forged, at: self.now(), container: "c".into() },
            2 => stopping(forged, dice, self.now()),
            3 => astray.wait(index, forged, dice),
            4 => astray.end(index, row.current.is_none().then_some(token), dice),
            _ => astray.assign(index, dice),
        }
    }

    const fn now(&self) -> Timestamp {
        Timestamp(1_000_000_000_000 + self.clock)
    }
}

fn stopping(token: Token, dice: u8, at: Timestamp) -> Change {
    let cause = [StopCause::Cancel, StopCause::Timeout, StopCause::Drain][usize::from(dice % 3)];
    Change::Stopping { token, cause, at, by: "somebody".into() }
}

fn worker(number: u64, at: Timestamp) -> Change {
    Change::Worker(WorkerRow {
        worker: WorkerId(number),
        name: format!("w{number}").into(),
        secret_hash: [7; 32],
        joined_at: at,
        seen_at: at,
        cordoned: number == 2,
        slots: (number == 3).then_some(4),
        drain: (number == 1).then_some(Drain { process: Some(Incarnation(u64::MAX)), deadline: Some(at) }),
        labels: if number == 2 { vec![("zone".into(), "a".into())] } else { Vec::new() },
        process: (number == 2).then_some(Process { incarnation: Incarnation(7), number: u64::MAX }),
    })
}

/// A store and where its engine is.
struct Desk {
    store: Box<dyn Store>,
    archive: Box<dyn Archive>,
    epoch: Epoch,
    group: GroupNo,
}

impl Desk {
    fn new(mut store: Box<dyn Store>, archive: Box<dyn Archive>) -> Self {
        let loaded = store.load(&mut |_| {}).expect("an empty store");
        Self { store, archive, epoch: loaded.epoch, group: loaded.group }
    }

    fn memory() -> Self {
        let store = MemoryStore::new();
        Self::new(Box::new(store.clone()), Box::new(store))
    }

    /// Whether the group was taken.
    fn commit(&mut self, changes: &[Change]) -> Result<(), String> {
        let number = GroupNo(self.group.0 + 1);
        let definition = |revision, name: &str| {
            Arc::new(StoredDefinition { revision: Revision(revision), name: name.into(), entry: "{}".into() })
        };
        let definitions = vec![definition(1, "resize"), definition(2, "mail")];
        let group =
            Group { epoch: self.epoch, number, at: Timestamp(0), definitions, changes: changes.to_vec() };
        match self.store.commit(&group) {
            Ok(()) => self.group = number,
            Err(CommitError::Refused(why)) => return Err(why),
            Err(other) => panic!("{other}"),
        }
        Ok(())
    }

    fn jobs(&self) -> Vec<JobRow> {
        self.archive.jobs(&JobFilter { limit: 500, ..JobFilter::default() }).expect("a list")
    }

    fn job(&self, job: JobId) -> Option<JobRecord> {
        self.archive.job(job).expect("a record")
    }

    /// What a restart finds, without what every start and every group counts up.
    fn restart(&mut self) -> (Vec<LiveJob>, impl PartialEq + std::fmt::Debug) {
        let mut live = Vec::new();
        let Loaded { epoch, last_job, last_fence, last_worker, workers, definitions, unconfirmed, .. } =
            self.store.load(&mut |job| live.push(job)).expect("it starts again");
        self.epoch = epoch;
        (live, (last_job, last_fence, last_worker, workers, definitions, unconfirmed))
    }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn a_folded_group_leaves_what_its_changes_leave_one_at_a_time(groups in groups()) {
        let directory = tempfile::tempdir()?;
        let place = Arc::new(DataDirectory::take(directory.path()).expect("a directory"));
        let (store, archive) = sqlite::open(&place).expect("a store");
        let mut folded = Desk::new(Box::new(store), Box::new(archive));
        let (mut whole, mut single) = (Desk::memory(), Desk::memory());
        let mut walk = Walk::default();
        for acts in groups {
            let mut next = walk.clone();
            let changes: Vec<Change> = acts.into_iter().map(|act| next.change(act)).collect();
            let (taken, expected) = (folded.commit(&changes), whole.commit(&changes));
            prop_assert_eq!(taken.is_ok(), expected.is_ok(), "{:?} and {:?} of {:#?}", taken, expected, changes);
            if taken.is_ok() {
                walk = next;
                for change in &changes {
                    single.commit(std::slice::from_ref(change)).map_err(TestCaseError::fail)?;
                }
            }
            for job in 0..=walk.rows.len() as u64 + 1 {
                let record = folded.job(JobId(job));
                prop_assert_eq!(&record, &whole.job(JobId(job)));
                prop_assert_eq!(&record, &single.job(JobId(job)));
            }
            prop_assert_eq!(folded.jobs(), single.jobs());
        }
        let found = folded.restart();
        prop_assert_eq!(&found, &whole.restart());
        prop_assert_eq!(&found, &single.restart());
    }
}

/// Few, so that much happens to each.
const JOBS_MAX: usize = 8;

/// This many cases, or as many as `PROPTEST_CASES` says.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}
