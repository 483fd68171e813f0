//! What must hold once the faults are over: every job comes to its end or waits for a reason that is one, and nothing stale is left.

use std::time::Duration;

use protocol::JobId;
use scheduler::definition::{OnLost, RetryOn};
use scheduler::job::State;
use scheduler::snapshot::WorkerState;

use crate::agenda::Event;
use crate::disk::Row;
use crate::docker::Container;
use crate::world::World;

impl World {
    /// Looks whether all is as it should be by now; if nothing has moved for too long, that is a violation.
    pub(crate) fn look(&mut self) {
        for no in 0..self.machines.len() as u16 {
            self.rejoin(no);
        }
        let pending = self.pending();
        if pending.is_empty() {
            self.is_over = true;
            return;
        }
        let still_for = self.now.since(self.oracle.moved_at.max(self.script.ends));
        let since_end = self.now.since(self.script.ends);
        // What is due later moves later, and a clock that was set makes that much later.
        let utc = self.server.clock.utc(self.now);
        let waits = self.server.disk.rows().any(|(_, row)| row.state == State::Scheduled && row.due_at > utc);
        if (still_for > PATIENCE && !waits) || since_end > LONGEST {
            return self.oracle.fault(self.now, "liveness", pending.join("; "));
        }
        self.agenda.note(self.now + LOOK_EVERY, Event::Look);
    }

    /// What is not as it should be at the end.
    fn pending(&self) -> Vec<String> {
        let mut pending = Vec::new();
        if self.server.disk.is_forming() {
            pending.push("a batch is still being made".to_owned());
        }
        let rows = self.server.disk.rows();
        for (job, row) in rows.filter(|(_, row)| !row.state.has_ended()) {
            pending.extend(self.why_not_ended(job, row));
        }
        for (_, row) in self.server.disk.rows() {
            for doubt in row.unconfirmed().filter(|doubt| !self.is_gone(doubt.worker)) {
                pending.push(format!(
                    "nobody has told that {} is gone from worker {}",
                    doubt.token, doubt.worker
                ));
            }
        }
        pending.extend(self.not_at_ease());
        for machine in self.machines.iter().filter(|it| !it.is_gone) {
            let no = machine.no;
            let stale = |it: &&Container| it.is_running() && !self.server.disk.is_current(it.token);
            for container in machine.engine.containers.iter().filter(stale) {
                pending.push(format!("w{no} still runs {}, which is stale", container.token));
            }
            for kept in &machine.directory.attempts {
                if !self.server.disk.is_current(kept.launch.token) {
                    pending.push(format!("w{no} still keeps what is left of {}", kept.launch.token));
                }
            }
        }
        pending
    }

    /// Workers that are here, and that the server does not take for connected, or that have something to say which nobody has acknowledged.
    fn not_at_ease(&self) -> Vec<String> {
        let Some(server) = &self.server.process else { return vec!["the server is away".to_owned()] };
        let known = server.brain.snapshot();
        let mut pending = Vec::new();
        for machine in self.machines.iter().filter(|it| !it.is_gone) {
            let no = machine.no;
            let Some(brain) = machine.process.as_ref().and_then(|process| process.brain.as_ref()) else {
                continue;
            };
            let id = machine.directory.membership.map(|it| it.worker);
            let state = known.workers.iter().find(|it| Some(it.id) == id).map(|it| it.state);
            if !matches!(state, Some(WorkerState::Ready | WorkerState::Draining)) {
                pending.push(format!("w{no} is here, and is {state:?} to the server"));
            }
            if brain.unacknowledged() > 0 {
                pending.push(format!("{} reports of w{no} are not acknowledged", brain.unacknowledged()));
            }
        }
        pending
    }

    /// Why a job may not stand where it does for ever; nothing if it may.
    fn why_not_ended(&self, job: JobId, row: &Row) -> Option<String> {
        let definition = self.workload.definition(row.revision);
        let is_gone = row.latest.as_ref().is_some_and(|latest| self.is_gone(latest.worker));
        let may_wait = match row.state {
            State::Quarantined => true,
            // Its clock was set: what is due in a day is due in a day.
            State::Scheduled => row.due_at.since(self.server.clock.utc(self.now)) > LONG_AHEAD,
            // Where it failed by itself it waits for its worker. Whom the platform failed waits for nobody.
            State::Queued => {
                let last = row.last.filter(|last| !last.failed_by_platform && self.is_gone(last.worker));
                last.is_some() && definition.retry.on == RetryOn::Same
            }
            State::Assigned | State::Running => is_gone && definition.loss.on_lost == OnLost::Wait,
            _ => true,
        };
        if may_wait {
            return None;
        }
        let holder =
            row.latest.as_ref().map(|latest| format!(" with {} on worker {}", latest.token, latest.worker));
        Some(format!(
            "job {job} of {} is {}{}",
            definition.name,
            row.state.name(),
            holder.unwrap_or_default()
        ))
    }

    /// Whether no worker of this identity will ever come back.
    fn is_gone(&self, worker: protocol::WorkerId) -> bool {
        let mut alive = self.machines.iter().filter(|it| !it.is_gone);
        !alive.any(|it| it.directory.membership.is_some_and(|membership| membership.worker == worker))
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Ten leases, the longest that a container, its stop and the wait for its successor may take, and a backoff that a clock which was set
/// back has made longer.
const PATIENCE: Duration = Duration::from_secs(300 + 300 + LONG_AHEAD.as_secs());
/// Many jobs, one after the other, each several times.
const LONGEST: Duration = Duration::from_secs(200_000);
/// No backoff is as long.
const LONG_AHEAD: Duration = Duration::from_secs(600);
