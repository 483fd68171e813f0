//! Jobs that come, run, fail, end and are cancelled, by chance.

use baddisk::Dice;
use protocol::container::Body;
use protocol::report::Outcome;
use protocol::{AttemptNo, Epoch, JobId, Timestamp};
use scheduler::input::{Details, GroupNo, KeyHolder};
use scheduler::job::State;
use scheduler::step::{AddedJob, Change, Note};

use crate::store::Group;
use crate::store::conformance::desk;

/// What there is to go on with.
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
    pub(super) fn group(&mut self, epoch: Epoch, number: GroupNo, dice: &mut Dice) -> Group {
        let changes = (0..=dice.below(8)).flat_map(|_| self.happen(dice)).collect();
        let definitions = vec![desk::definition(1), desk::definition(2)];
        Group { epoch, number, at: Timestamp(0), definitions, changes }
    }

    /// The keys that a group has given away.
    pub(super) fn keys(group: &Group) -> impl Iterator<Item = &str> {
        group.changes.iter().filter_map(|change| match change {
            Change::Keyed { key, .. } => Some(&**key),
            _ => None,
        })
    }

    fn happen(&mut self, dice: &mut Dice) -> Vec<Change> {
        match dice.below(8) {
            0..=2 => self.add(dice),
            3 | 4 if !self.waiting.is_empty() => self.assign(dice),
            5 | 6 if !self.held.is_empty() => self.go_on(dice),
            7 if !self.waiting.is_empty() => {
                let (job, _) = take(&mut self.waiting, dice);
                vec![desk::ended(job, State::Cancelled, None)]
            }
            _ => vec![desk::worker(1 + dice.below(3), "anna")],
        }
    }

    fn add(&mut self, dice: &mut Dice) -> Vec<Change> {
        self.jobs += 1;
        self.waiting.push((self.jobs, AttemptNo(0)));
        let args = vec!["x".repeat(usize::try_from(dice.below(3_000)).unwrap_or(0))];
        let body = Body { args, ..Body::default() };
        let details = Some(Box::new(Details { body, labels: vec![("team".into(), "blue".into())] }));
        let mut changes = vec![Change::Added(AddedJob { details, ..desk::job(self.jobs) })];
        if dice.chance(30) {
            self.keys += 1;
            let holder = KeyHolder { job: JobId(self.jobs), count: 1, digest: 7 };
            changes.push(Change::Keyed {
                key: format!("key {}", self.keys).into(),
                holder,
                at: Timestamp(1),
            });
        }
        changes
    }

    fn assign(&mut self, dice: &mut Dice) -> Vec<Change> {
        let (job, number) = take(&mut self.waiting, dice);
        self.fences += 1;
        let number = AttemptNo(number.0 + 1);
        self.held.push((job, number, self.fences, false));
        vec![desk::assigned_as(job, self.fences, number.0, 1)]
    }

    fn go_on(&mut self, dice: &mut Dice) -> Vec<Change> {
        let (job, number, fence, has_started) = take(&mut self.held, dice);
        if !has_started {
            self.held.push((job, number, fence, true));
            return vec![desk::started(job, fence)];
        }
        if dice.chance(60) {
            return vec![desk::succeeded(job, fence)];
        }
        self.waiting.push((job, number));
        let note = Note::CancelRequested { by: "nobody".into() };
        vec![
            desk::waiting(desk::closed(job, fence, Outcome::Failed), State::Queued),
            Change::Noted { job: JobId(job), at: Timestamp(9), note },
        ]
    }
}

fn take<T>(from: &mut Vec<T>, dice: &mut Dice) -> T {
    from.swap_remove(usize::try_from(dice.below(from.len() as u64)).unwrap_or(0))
}
