//! I28, of pauses and cordons that end by themselves: each pause ends at the first step after its time, and none ends earlier. The store checks that no job of a
//! paused definition or batch gets an attempt until then. The pause of a batch ends with the batch.

use std::collections::BTreeMap;

use protocol::{JobId, Timestamp};
use scheduler::pauses::{PauseChange, PauseTarget};
use scheduler::step::{Change, Step};

use super::Oracle;
use crate::clock::Moment;
use crate::disk::Disk;

/// The ends of pauses as this process of the server has decided them.
pub(super) type PauseEnds = BTreeMap<PauseTarget, Timestamp>;

impl Oracle {
    pub(super) fn pauses_loaded(&mut self, disk: &Disk) {
        let ends = disk.workers.values().filter_map(|row| Some((row.worker, row.cordon_end()?)));
        self.cordon_ends = ends.collect();
        let paused = disk.schedules.paused_batches().filter_map(|target| match target {
            PauseTarget::Batch(first) => Some(*first),
            _ => None,
        });
        self.paused_batches = paused.collect();
        self.pause_ends = disk.schedules.pause_ends().map(|(target, end)| (target.clone(), end)).collect();
    }

    /// The server has decided something at this time of its wall clock.
    pub(crate) fn check_pause_ends(&mut self, now: Moment, utc: Timestamp, step: &Step) {
        let mut due = self.pause_ends.clone();
        due.retain(|_, end| *end <= utc);
        for change in &step.changes {
            self.check_cordon_end(now, utc, change);
            let Change::Paused { target, pause } = change else { continue };
            let before = self.pause_ends.remove(target);
            match pause {
                PauseChange::Set(pause) => {
                    self.pause_ends.extend(pause.until.map(|until| (target.clone(), until)));
                }
                PauseChange::Resumed { .. } => {}
                PauseChange::BatchEnded => drop(due.remove(target)),
                PauseChange::Ended(at) => {
                    due.remove(target);
                    if before != Some(*at) || *at > utc {
                        let what = format!("{target} goes on at {}, not at {before:?}", utc.0);
                        self.violated(now, "I28 a pause lasts until its end", what);
                    }
                }
            }
        }
        self.check_pauses_of_ended_batches(now, step);
        if let Some((target, end)) = due.first_key_value() {
            let what = format!("{target} was to go on at {}, and it is {}", end.0, utc.0);
            self.violated(now, "I28 a pause ends at its end", what);
        }
    }

    /// The limit on the job's batch has changed, perhaps in a decision that is not on the disk yet.
    pub(super) fn is_of_changed_batch(&self, disk: &Disk, job: JobId) -> bool {
        let batch = disk.batch_of(disk.counted_as(job));
        batch.is_some_and(|first| self.changed_batches.contains(&first))
    }

    /// The pause of a batch is over in the step in which its last member ends.
    fn check_pauses_of_ended_batches(&mut self, now: Moment, step: &Step) {
        for change in &step.changes {
            match change {
                Change::BatchChanged { first, .. } => drop(self.changed_batches.insert(*first)),
                Change::Paused { target: PauseTarget::Batch(first), pause } => match pause.in_force() {
                    Some(_) => drop(self.paused_batches.insert(*first)),
                    None => drop(self.paused_batches.remove(first)),
                },
                _ => {}
            }
        }
        let ended = step.changes.iter().find_map(|change| match change {
            Change::BatchEnded { first, .. } if self.paused_batches.contains(first) => Some(*first),
            _ => None,
        });
        if let Some(first) = ended {
            let what = format!("the batch of job {first} has ended, and is paused");
            self.violated(now, "I28 a pause of a batch ends with it", what);
        }
    }

    /// A cordon ends by itself at the time that was given with it last.
    fn check_cordon_end(&mut self, now: Moment, utc: Timestamp, change: &Change) {
        match change {
            Change::Worker(row) => {
                self.cordon_ends.remove(&row.worker);
                self.cordon_ends.extend(row.cordon_end().map(|end| (row.worker, end)));
            }
            Change::WorkerForgotten(worker) => drop(self.cordon_ends.remove(worker)),
            Change::CordonEnded { row, until } => {
                let before = self.cordon_ends.remove(&row.worker);
                if before != Some(*until) || *until > utc || row.cordoned {
                    let what = format!("worker {} takes jobs at {}, not at {before:?}", row.worker, utc.0);
                    self.violated(now, "I28 a cordon lasts until its end", what);
                }
            }
            _ => {}
        }
    }
}
