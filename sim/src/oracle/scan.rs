//! Now and then everything is looked at, whatever has changed: what is wrong and was overlooked when it happened is still wrong.

use protocol::report::Outcome;
use protocol::{JobId, WorkerId};
use scheduler::Scheduler;
use scheduler::job::State;

use super::{Oracle, Scene};
use crate::disk::{Disk, Row};

/// The end of a job, which stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    state: State,
    outcome: Option<Outcome>,
    is_confirmed: bool,
}

impl Ending {
    fn of(row: &Row) -> Self {
        let outcome = row.latest.as_ref().and_then(|latest| latest.outcome);
        Self { state: row.state, outcome, is_confirmed: row.confirmed }
    }
}

impl Oracle {
    /// I1 to I3, I6, I21 and I23, over everything.
    pub(super) fn scan(&mut self, scene: Scene<'_>, disk: &Disk, scheduler: &Scheduler) {
        let wrong = self
            .is_missing(disk)
            .or_else(|| self.has_changed(disk))
            .or_else(|| miscounted(disk))
            .or_else(|| self.is_misheld(disk))
            .or_else(|| misaudited(scene, scheduler));
        if let Some((rule, what)) = wrong {
            self.violated(scene.now, rule, what);
        }
    }

    /// Accepted jobs exist, and a key stands for what it stood for.
    fn is_missing(&self, disk: &Disk) -> Option<Wrong> {
        let mut accepted =
            self.accepted.iter().flat_map(|(first, count)| first.0..first.0 + u64::from(*count));
        if let Some(job) = accepted.find(|job| disk.row(JobId(*job)).is_none()) {
            return Some(("I1 an accepted job exists", format!("job {job} is gone")));
        }
        let lost = self.keys.iter().find(|(key, holder)| disk.keys.get(*key) != Some(*holder));
        lost.map(|(key, _)| ("I2 a key stands for one request", format!("{key} is forgotten")))
    }

    /// An ended job has not changed since it was last looked at.
    fn has_changed(&mut self, disk: &Disk) -> Option<Wrong> {
        for (job, row) in disk.rows().filter(|(_, row)| row.state.has_ended()) {
            let index = job.0 as usize;
            if index >= self.endings.len() {
                self.endings.resize(index + 1, None);
            }
            let now = Ending::of(row);
            let before = self.endings[index].replace(now).unwrap_or(now);
            // That a cancel has stopped its container may be told later.
            let is_confirmation = Ending { is_confirmed: true, ..before } == now;
            if before != now && !is_confirmation {
                return Some((
                    "I6 an ended job never changes",
                    format!("job {job} was {before:?} and is {now:?}"),
                ));
            }
        }
        None
    }

    /// No attempt is current on a worker that this store does not know.
    fn is_misheld(&self, disk: &Disk) -> Option<Wrong> {
        let is_known = |worker: WorkerId| disk.workers.contains_key(&worker);
        let held = disk.rows().filter_map(|(_, row)| row.latest.as_ref().filter(|it| it.outcome.is_none()));
        let stray = held.into_iter().find(|latest| !is_known(latest.worker))?;
        Some(("I3 an attempt has a worker", format!("{} is on worker {}", stray.token, stray.worker)))
    }
}

fn miscounted(disk: &Disk) -> Option<Wrong> {
    let live = disk.rows().filter(|(_, row)| !row.state.has_ended()).count() as u64;
    let without = disk
        .rows()
        .find(|(_, row)| matches!(row.state, State::Assigned | State::Running) != row.current().is_some());
    if let Some((job, row)) = without {
        let what = format!("job {job} is {} with {:?}", row.state.name(), row.current());
        return Some(("I3 who is handed out has one attempt", what));
    }
    (live != disk.live).then(|| ("I21 the live jobs are counted", format!("{live}, not {}", disk.live)))
}

fn misaudited(scene: Scene<'_>, scheduler: &Scheduler) -> Option<Wrong> {
    if let Some(fault) = scheduler::audit::audit(scheduler).pop() {
        return Some(("I21 audit of the scheduler", fault));
    }
    scene.machines.iter().find_map(|machine| {
        let worker = machine.process.as_ref()?.worker.as_ref()?;
        let fault = worker.audit().pop()?;
        Some(("I23 audit of the worker", format!("w{}: {fault}", machine.no)))
    })
}

type Wrong = (&'static str, String);
