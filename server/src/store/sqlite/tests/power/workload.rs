//! Jobs that come, run, fail, end and are cancelled, by chance.

use baddisk::Rng;
use protocol::container::Overrides;
use protocol::report::Outcome;
use protocol::{AttemptNo, Epoch, JobId, Timestamp};
use scheduler::details::JobDetails;
use scheduler::ids::GroupNo;
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::{AddedJob, Change, Note};

use crate::store::Group;
use crate::store::conformance::harness;

/// The jobs that the next group can act on.
#[derive(Clone, Debug, Default)]
pub(super) struct Workload {
    jobs: u64,
    fences: u64,
    keys: u64,
    waiting: Vec<(u64, AttemptNo)>,
    /// With fence, and whether it has started.
    held: Vec<(u64, AttemptNo, u64, bool)>,
}

impl Workload {
    /// The next group: between one and eight things happen.
    pub(super) fn group(&mut self, epoch: Epoch, number: GroupNo, rng: &mut Rng) -> Group {
        let changes = (0..=rng.below(8)).flat_map(|_| self.happen(rng)).collect();
        let definitions = vec![harness::definition(1), harness::definition(2)];
        Group { epoch, number, definitions, changes, ..Group::default() }
    }

    /// The keys that may have been given while jobs up to this one were made: at most one each.
    pub(super) fn keys_of(JobId(last): JobId) -> impl Iterator<Item = String> {
        (1..=last).map(|number| format!("key {number}"))
    }

    fn happen(&mut self, rng: &mut Rng) -> Vec<Change> {
        match rng.below(8) {
            0..=2 => self.add(rng),
            3 | 4 if !self.waiting.is_empty() => self.assign(rng),
            5 | 6 if !self.held.is_empty() => self.go_on(rng),
            7 if !self.waiting.is_empty() => {
                let (job, _) = take(&mut self.waiting, rng);
                vec![harness::ended(job, State::Cancelled, None)]
            }
            _ => vec![harness::worker(1 + rng.below(3), "anna")],
        }
    }

    fn add(&mut self, rng: &mut Rng) -> Vec<Change> {
        self.jobs += 1;
        self.waiting.push((self.jobs, AttemptNo(0)));
        let args = vec!["x".repeat(usize::try_from(rng.below(3_000)).unwrap_or(0))];
        let overrides = Overrides { args, ..Overrides::default() };
        let details = Some(Box::new(JobDetails {
            overrides,
            labels: vec![("team".into(), "blue".into())],
            ..JobDetails::default()
        }));
        let mut changes = vec![Change::Added(AddedJob { details, ..harness::job(self.jobs) })];
        if rng.chance(30) {
            self.keys += 1;
            let holder = KeyHolder { job: JobId(self.jobs), count: 1, digest: 7 };
            changes.push(Change::IdempotencyKeyStored {
                key: format!("key {}", self.keys).into(),
                holder,
                at: Timestamp(1),
            });
        }
        changes
    }

    fn assign(&mut self, rng: &mut Rng) -> Vec<Change> {
        let (job, number) = take(&mut self.waiting, rng);
        self.fences += 1;
        let number = AttemptNo(number.0 + 1);
        self.held.push((job, number, self.fences, false));
        vec![harness::assigned_as(job, self.fences, number.0, 1)]
    }

    fn go_on(&mut self, rng: &mut Rng) -> Vec<Change> {
        let (job, number, fence, has_started) = take(&mut self.held, rng);
        if !has_started {
            self.held.push((job, number, fence, true));
            return vec![harness::started(job, fence)];
        }
        if rng.chance(60) {
            return vec![harness::succeeded(job, fence)];
        }
        self.waiting.push((job, number));
        let note = Note::CancelRequested { by: "nobody".into() };
        vec![
            harness::waiting(harness::closed(job, fence, Outcome::Failed), State::Queued),
            Change::Noted { job: JobId(job), at: Timestamp(9), note },
        ]
    }
}

fn take<T>(from: &mut Vec<T>, rng: &mut Rng) -> T {
    from.swap_remove(usize::try_from(rng.below(from.len() as u64)).unwrap_or(0))
}
