//! Disks that are copied, set back, or mixed up: a worker's state directory is used on a second machine as well, a machine goes on from a
//! snapshot of its disk, with everything on it as it was then, and a state directory names another cluster.

use std::time::Duration;

use protocol::{ClusterId, Token};

use crate::agenda::Event;
use crate::connection::End;
use crate::docker::State;
use crate::machine::{Directory, Snapshot};
use crate::world::World;

impl World {
    /// The state directory of a machine takes the place of another one's, whose worker starts from it; until somebody finds that out.
    pub(crate) fn copy_directory(&mut self, from: u16, onto: u16, lasts: Duration) {
        if from == onto {
            return;
        }
        self.crash_worker(onto);
        let directory = self.machines[usize::from(from)].directory.copy();
        let machine = &mut self.machines[usize::from(onto)];
        // It was this worker before, from another copy, and the containers of that are still here; the directory does not know them.
        let rows = self.server.disk.workers.values();
        for row in rows.filter(|row| row.secret_hash == directory.secret) {
            if machine.engine.containers.iter().any(|it| it.worker == row.worker) {
                self.oracle.confuse(row.worker);
            }
        }
        machine.directory = directory;
        self.oracle.causes_lost = true;
        let back_after = self.dice.millis(0, 5_000);
        self.start_worker_after(onto, back_after);
        self.agenda.schedule(self.now + lasts, Event::CopyFound { machine: onto });
    }

    /// A copy is noticed by a person, who removes its directory and starts its worker anew.
    pub(crate) fn remove_copy(&mut self, no: u16) {
        if self.machines[usize::from(no)].directory.is_copy {
            self.crash_worker(no);
            self.machines[usize::from(no)].wipe(false);
            self.start_worker_after(no, Duration::from_secs(1));
        }
    }

    /// From its next start on, the worker of a machine says that it has joined another cluster.
    pub(crate) fn stray(&mut self, no: u16, lasts: Duration) {
        let Some(membership) = &mut self.machines[usize::from(no)].directory.membership else { return };
        membership.cluster = OTHER_CLUSTER;
        self.crash_worker(no);
        let back_after = self.dice.millis(0, 5_000);
        self.start_worker_after(no, back_after);
        self.agenda.schedule(self.now + lasts, Event::StrayFound { machine: no });
    }

    /// The state directory names this cluster again.
    pub(crate) fn return_stray(&mut self, no: u16) {
        let cluster = self.server.disk.cluster;
        let membership = &mut self.machines[usize::from(no)].directory.membership;
        if let Some(membership) = membership.as_mut().filter(|it| it.cluster != cluster) {
            membership.cluster = cluster;
            self.crash_worker(no);
            self.start_worker_after(no, Duration::from_secs(1));
        }
    }

    /// The disk of a machine is kept as it is, and is put back after a while.
    pub(crate) fn take_snapshot(&mut self, no: u16, back_after: Duration) {
        let number = self.snapshots.len() as u32;
        let machine = &self.machines[usize::from(no)];
        let directory = Directory { contact: None, ..machine.directory.clone() };
        let containers = machine.engine.containers.clone();
        self.snapshots.push(Some(Snapshot { machine: no, directory, containers }));
        self.agenda.schedule(self.now + back_after, Event::SetBack { snapshot: number });
    }

    /// A machine goes on from a snapshot. What happened on it since then never did, as far as anything on it can tell; what ran then has
    /// gone down with its engine.
    pub(crate) fn set_back(&mut self, number: u32) {
        let Some(Snapshot { machine: no, directory, containers }) = self.snapshots[number as usize].take()
        else {
            return;
        };
        if self.now >= self.script.ends || self.machines[usize::from(no)].is_gone {
            return;
        }
        self.trace.say(self.now, || format!("w{no}      is set back"));
        if let Some(link) = self.machines[usize::from(no)].process.as_ref().and_then(|process| process.link) {
            self.network.vanish(&mut self.agenda, self.now, link, End::Worker);
        }
        self.crash_worker(no);
        self.kill_clis(no);
        let engine = &mut self.machines[usize::from(no)].engine;
        let undone: Vec<Token> = engine.containers.drain(..).map(|it| it.token).collect();
        for mut container in containers {
            container.no = engine.number();
            if let State::Running { since, .. } = container.state {
                container.state =
                    State::Ended { since, at: self.now, code: 137, oom: false, by_engine: true };
            }
            engine.containers.push(container);
        }
        self.machines[usize::from(no)].directory = directory;
        for token in undone {
            self.oracle.lost_sight(token);
            self.oracle.container_removed(self.now, token);
        }
        for container in &self.machines[usize::from(no)].engine.containers {
            self.oracle.container_restored_from_snapshot(container.token, container.ended());
        }
        self.oracle.causes_lost = true;
        let back_after = self.dice.millis(500, 20_000);
        self.start_worker_after(no, back_after);
    }
}

/// The simulated server belongs to cluster 1.
const OTHER_CLUSTER: ClusterId = ClusterId(2);
