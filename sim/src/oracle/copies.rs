//! Copies of a worker: which may be admitted, and which promises are void once two have been.
//!
//! A copy is not admitted beside a process that is heard. One that comes while the original has no connection cannot be told from a restart;
//! from then on the two are *confused*: what one says about attempts in its directory is believed although the other runs them, and an
//! attempt that one does not know is handed to it although the other has it. Promises about attempts of that worker are void.

use std::time::Duration;

use protocol::{Order, Token, WorkerId};
use scheduler::fleet::row::WorkerRow;
use scheduler::step::{Effect, Step};

use super::Oracle;
use crate::clock::Moment;
use crate::docker::ContainerEnd;
use crate::machine::Machine;

/// Facts about workers' processes.
#[derive(Debug, Default)]
pub(super) struct WorkerProcesses {
    /// By the number of a process: its machine.
    processes: Vec<(u64, u16)>,
    admitted: Vec<Admitted>,
    confused: Vec<WorkerId>,
    /// By machine: when something that its present session said was taken in.
    heard: Vec<Moment>,
}

/// Facts about a worker that says Hello.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    /// The machine of another process of the same worker that is connected and was heard lately.
    pub(crate) other_live_machine: Option<u16>,
    /// It has joined another cluster, and was not started with `--rejoin`.
    pub(crate) is_of_other_cluster: bool,
}

/// The process of a worker that was let in last.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    worker: WorkerId,
    machine: u16,
    process: u64,
}

impl Oracle {
    /// A process has drawn its number.
    pub(crate) fn process_began(&mut self, no: u16, number: u64) {
        self.worker_processes.processes.push((number, no));
        self.worker_processes
            .heard
            .resize(self.worker_processes.heard.len().max(usize::from(no) + 1), Moment(0));
    }

    /// The server has received a report on a session of this machine.
    pub(crate) fn machine_heard(&mut self, now: Moment, no: u16) {
        if let Some(heard) = self.worker_processes.heard.get_mut(usize::from(no)) {
            *heard = now;
        }
    }

    /// True if the server has received a report from this machine within the last 14 s: less than half a lease even by the fastest clock.
    pub(crate) fn was_heard(&self, now: Moment, no: u16) -> bool {
        self.worker_processes.heard.get(usize::from(no)).is_some_and(|at| now.since(*at) < HALF_A_LEASE)
    }

    /// A worker is let in, or its row changes otherwise.
    pub(super) fn row_changed(&mut self, row: &WorkerRow) {
        let Some(process) = row.process else { return };
        let Some((_, machine)) =
            self.worker_processes.processes.iter().rfind(|(number, _)| *number == process.number).copied()
        else {
            return;
        };
        let Some(last) = self.worker_processes.admitted.iter_mut().find(|last| last.worker == row.worker)
        else {
            self.worker_processes.admitted.push(Admitted {
                worker: row.worker,
                machine,
                process: process.number,
            });
            return;
        };
        let before = std::mem::replace(&mut last.machine, machine);
        last.process = process.number;
        if before != machine {
            self.confuse(row.worker);
        }
    }

    /// Acts in the name of this worker are not reliable any more.
    pub(crate) fn confuse(&mut self, worker: WorkerId) {
        if !self.is_confused(worker) {
            self.worker_processes.confused.push(worker);
        }
    }

    /// The process of a worker that the scheduler has let in last.
    pub(crate) fn admitted_last(&self, worker: WorkerId) -> Option<u64> {
        self.worker_processes.admitted.iter().find(|last| last.worker == worker).map(|last| last.process)
    }

    /// R18: nobody is let in beside another process of the same worker that is connected and was heard lately, and no worker of another
    /// cluster is.
    pub(crate) fn check_admission(&mut self, now: Moment, caller: Caller, step: &Step) {
        let is_welcome = |effect: &Effect| matches!(effect, Effect::Send(_, Order::Welcome(_)));
        if !step.effects.iter().any(is_welcome) {
            return;
        }
        if caller.is_of_other_cluster {
            self.violated(now, "R18 no worker of another cluster is welcomed", "one is let in".to_owned());
        }
        if let Some(no) = caller.other_live_machine {
            let what = format!("another process is let in beside that of w{no}");
            self.violated(now, "R18 nobody is let in beside one that is heard", what);
        }
    }

    /// True if two copies of a worker have been let in by turns.
    pub(crate) fn is_confused(&self, worker: WorkerId) -> bool {
        self.worker_processes.confused.contains(&worker)
    }

    /// How many workers are.
    pub(crate) fn confused(&self) -> u64 {
        self.worker_processes.confused.len() as u64
    }

    /// True if what a machine does is that of a copy which others cannot be told from.
    pub(super) fn is_confused_machine(&self, machine: &Machine) -> bool {
        machine.directory.membership.is_some_and(|it| self.is_confused(it.worker))
    }

    /// A container is as it was when the snapshot of its machine's disk was taken. From now on it counts as removed and unseen: nobody there
    /// knows what became of it since, nor that its attempt may have run once more after the restore of an older snapshot.
    pub(crate) fn container_restored_from_snapshot(
        &mut self,
        token: Token,
        ended: Option<(Moment, ContainerEnd)>,
    ) {
        let truth = self.truth(token);
        (truth.removed, truth.unseen) = (true, true);
        if let Some((since, end)) = ended {
            truth.runs = truth.runs.max(1);
            let before = truth.end.replace(end);
            truth.since = since;
            self.other_ends.extend(before.map(|end| (token, end)));
        }
    }
}

/// Half a lease, shortened for clocks that run fast.
const HALF_A_LEASE: Duration = Duration::from_secs(14);
