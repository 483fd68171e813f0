//! The conditions that must hold once the faults are over: every job has ended or waits for a reason that lasts, and nothing stale is left.

use std::time::Duration;

use protocol::JobId;
use scheduler::definition::{OnLost, RetryOn};
use scheduler::job::State;
use scheduler::placement::rules::WorkerSelector;
use scheduler::snapshot::WorkerState;

use crate::agenda::Event;
use crate::disk::Row;
use crate::docker::Container;
use crate::machine::Machine;
use crate::oracle::set_aside::not_awaited;
use crate::world::World;

impl World {
    /// Ends the run if nothing is left to happen. It is a violation if nothing has moved for too long.
    pub(crate) fn check_quiet(&mut self) {
        for no in 0..self.machines.len() as u16 {
            self.rejoin(no);
            self.move_to_zone_a(no);
        }
        if self.pending().next().is_none() {
            self.is_over = true;
            return;
        }
        self.resume_late_pauses();
        let still_for = self.now.since(self.oracle.moved_at.max(self.script.ends));
        let since_end = self.now.since(self.script.ends);
        // A job that is due later moves later, and a clock that was set makes that much later.
        let utc = self.server.clock.utc(self.now);
        let waits = self.server.disk.rows().any(|(_, row)| row.state == State::Scheduled && row.due_at > utc);
        let waits = waits || self.server.disk.schedules.pause_ends().any(|(_, end)| end > utc);
        if (still_for > WAIT_TIMEOUT && !waits) || since_end > LONGEST {
            let pending: Vec<String> = self.pending().collect();
            return self.oracle.violated(self.now, "liveness", pending.join("; "));
        }
        self.agenda.schedule(self.now + CHECK_QUIET_EVERY, Event::CheckQuiet);
    }

    /// The conditions that do not hold yet at the end. Until then the first one is enough, and all of them take long to find.
    fn pending(&self) -> impl Iterator<Item = String> {
        let disk = &self.server.disk;
        let forming = disk.is_forming().then(|| "a batch is still being made".to_owned());
        let jobs = disk.rows().filter(|(_, row)| !row.state.has_ended());
        let jobs = jobs.filter_map(|(job, row)| self.why_not_ended(job, row));
        let unconfirmed = disk.rows().flat_map(|(_, row)| self.unconfirmed(row));
        let workers = std::iter::once_with(|| self.unsettled_workers()).flatten();
        let machines = self.machines.iter().filter(|it| !it.is_gone);
        let leftovers = machines.flat_map(|machine| self.leftovers(machine));
        forming.into_iter().chain(jobs).chain(unconfirmed).chain(workers).chain(leftovers)
    }

    /// Attempts of a job that no report has said to be gone.
    fn unconfirmed(&self, row: &Row) -> Vec<String> {
        // The server has stopped waiting for all of them once one of their workers is forgotten.
        if row.unconfirmed().any(|attempt| !self.server.disk.workers.contains_key(&attempt.worker)) {
            return Vec::new();
        }
        // An order that was lost is reported as gone by the next inventory, and its worker may stay connected.
        let is_lost = |token| self.machines.iter().any(|it| it.lost_orders.contains(&token));
        let unconfirmed = row.unconfirmed().filter(|it| !self.is_gone(it.worker) && !is_lost(it.token));
        let violation = |token, worker| format!("no report says that {token} is gone from worker {worker}");
        unconfirmed.map(|attempt| violation(attempt.token, attempt.worker)).collect()
    }

    /// Containers and directories of a machine that nobody wants any more.
    fn leftovers(&self, machine: &Machine) -> Vec<String> {
        let (no, disk) = (machine.no, &self.server.disk);
        let stale = |it: &&Container| it.is_running() && !disk.is_current(it.token);
        let containers = machine.engine.containers.iter().filter(stale);
        let containers = containers.map(|it| format!("w{no} still runs {}, which is stale", it.token));
        let kept = machine.directory.attempts.iter().map(|kept| kept.launch.token);
        let kept = kept.filter(|token| !disk.is_current(*token));
        containers.chain(kept.map(|token| format!("w{no} still keeps what is left of {token}"))).collect()
    }

    /// Live workers that the server does not see as connected, or with reports that it has not acknowledged.
    fn unsettled_workers(&self) -> Vec<String> {
        let Some(server) = &self.server.process else { return vec!["the server is away".to_owned()] };
        let known: Vec<_> = server.scheduler.worker_facts().collect();
        let mut pending = not_awaited(&self.server.disk, server.scheduler.workers_set_aside());
        for machine in self.machines.iter().filter(|it| !it.is_gone) {
            let no = machine.no;
            let Some(worker) = machine.process.as_ref().and_then(|process| process.worker.as_ref()) else {
                continue;
            };
            let id = machine.directory.membership.map(|it| it.worker);
            let state = known.iter().find(|it| Some(it.id) == id).map(|it| it.state);
            if !matches!(state, Some(WorkerState::Ready | WorkerState::Draining | WorkerState::Suspect)) {
                pending.push(format!("w{no} is alive, and the server sees it as {state:?}"));
            }
            if worker.unacknowledged() > 0 {
                pending.push(format!("{} reports of w{no} are not acknowledged", worker.unacknowledged()));
            }
        }
        pending
    }

    /// The reason why this job should have ended by now; `None` if it may wait for ever.
    fn why_not_ended(&self, job: JobId, row: &Row) -> Option<String> {
        let definition = self.workload.definition(row.revision);
        let now = self.server.clock.utc(self.now);
        let deadline = self.server.disk.expiries.get(&job);
        let may_wait = match row.state {
            State::Scheduled | State::Queued | State::Quarantined
                if deadline.is_some_and(|at| *at <= now) =>
            {
                false
            }
            State::Quarantined => true,
            // Its clock was set back, so it is due later than the run lasts.
            State::Scheduled => {
                row.due_at.since(now) > LONG_AHEAD || self.server.disk.follows_a_live_job(job)
            }
            // Its members say why they wait.
            State::Queued if self.server.disk.is_parent(job) => {
                !self.server.disk.live_members(job).is_empty()
            }
            // After a job failure it waits for its worker. After an infrastructure failure it waits for nobody.
            State::Queued => {
                let last = row.last.filter(|last| !last.infrastructure_failure && self.is_gone(last.worker));
                (last.is_some() && definition.retry.on == RetryOn::Same)
                    || self.waits_for_limit_of_removed_machines(job, row)
                    || self.has_no_worker_left(job, row, &definition.name)
                    || self.lists_only_removed_machines(row, &definition.name)
            }
            // An attempt on a worker that never comes back may have started.
            State::Assigned | State::Running => self.is_held_by_removed_machine(job, row),
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

    /// True if the job is a member, and each worker that it may go to is gone, not listed, or taken by a sibling.
    fn has_no_worker_left(&self, job: JobId, row: &Row, name: &str) -> bool {
        let is_listed = |no: u16| self.is_listed(row, name, no);
        let alive = self.machines.iter().filter(|it| !it.is_gone && is_listed(it.no));
        let workers: Vec<_> =
            alive.filter_map(|it| it.directory.membership.map(|membership| membership.worker)).collect();
        self.server.disk.has_no_place(job, &workers)
    }

    /// True if jobs.yaml or the submission lists workers for this job, whatever its revision says, and none of them will come back.
    fn lists_only_removed_machines(&self, row: &Row, name: &str) -> bool {
        let asks = row.narrowing.as_ref().is_some_and(|asked| !asked.workers.is_empty());
        let has_list = asks || !self.workload.listed_workers(name).is_empty();
        has_list && !self.machines.iter().any(|it| !it.is_gone && self.is_listed(row, name, it.no))
    }

    /// True if jobs.yaml and the submission of a job allow this machine by its name.
    fn is_listed(&self, row: &Row, name: &str, no: u16) -> bool {
        let worker = WorkerSelector::Name(format!("w{no}"));
        let asked = row.narrowing.as_ref().map_or(&[][..], |asked| &asked.workers);
        [self.workload.listed_workers(name), asked]
            .iter()
            .all(|list| list.is_empty() || list.contains(&worker))
    }

    /// True if the worker of its attempt never comes back, and is waited for: by the definition, or because no other worker may run the job.
    fn is_held_by_removed_machine(&self, job: JobId, row: &Row) -> bool {
        let definition = self.workload.definition(row.revision);
        let is_gone = row.latest.as_ref().is_some_and(|latest| self.is_gone(latest.worker));
        let has_no_other = || {
            let name = &definition.name;
            let is_retried = definition.loss.on_lost == OnLost::Retry;
            is_retried
                && (self.has_no_worker_left(job, row, name) || self.lists_only_removed_machines(row, name))
        };
        is_gone && (definition.given_up_after(false).is_none() || has_no_other())
    }

    /// True if all permits of a limit of the job are held by attempts on workers that never come back, and that nobody gives up.
    fn waits_for_limit_of_removed_machines(&self, job: JobId, row: &Row) -> bool {
        let stuck: Vec<(JobId, &Row)> = self
            .server
            .disk
            .rows()
            .filter(|(job, holder)| {
                holder.current().is_some() && self.is_held_by_removed_machine(*job, holder)
            })
            .collect();
        let of_definition = row.permit.as_ref().is_some_and(|(limit, permits)| {
            let holds =
                |(_, holder): &&(JobId, &Row)| holder.permit.as_ref().is_some_and(|(held, _)| held == limit);
            stuck.iter().filter(holds).count() >= *permits
        });
        let limit = self.server.disk.batch_limit(job);
        let of_batch = limit.is_some_and(|(_, permits)| {
            stuck.iter().filter(|(holder, _)| self.server.disk.batch_limit(*holder) == limit).count()
                >= permits
        });
        of_definition || of_batch
    }

    /// True if no worker of this identity will ever come back.
    fn is_gone(&self, worker: protocol::WorkerId) -> bool {
        let mut alive = self.machines.iter().filter(|it| !it.is_gone);
        !alive.any(|it| it.directory.membership.is_some_and(|membership| membership.worker == worker))
    }
}

const CHECK_QUIET_EVERY: Duration = Duration::from_secs(5);
/// Ten leases, the longest that a container, its stop and the wait for its successor may take, and a backoff that a clock which was set
/// back has made longer.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300 + 300 + LONG_AHEAD.as_secs());
/// Many jobs, one after the other, each several times.
const LONGEST: Duration = Duration::from_secs(200_000);
/// No backoff is as long.
const LONG_AHEAD: Duration = Duration::from_secs(600);
