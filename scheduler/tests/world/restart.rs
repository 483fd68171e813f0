//! A start of the server: a new scheduler that knows what a store would hand to it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::World;
use super::protocol::order::Intervals;
use super::protocol::report::Outcome;
use super::protocol::{AttemptNo, ClusterId, Epoch, JobId, WorkerId};
use super::scheduler::input::{GroupNo, Input};
use super::scheduler::job::{State, Stay};
use super::scheduler::restore::{LiveAttempt, LiveJob};
use super::scheduler::retry::{self, Budget};
use super::scheduler::step::{AddedJob, Assigned, Change, WorkerRow};
use super::scheduler::{Config, Counters, Scheduler};

impl World {
    /// The scheduler's process ends, and a new one starts from what has not ended; the clock on its wall is set meanwhile.
    pub fn restart_server(&mut self, slice: usize, ahead: Duration, behind: Duration) {
        self.now.utc = self.now.utc + ahead - behind;
        let now = self.now;
        let changes: Vec<&Change> = self.steps.iter().flat_map(|(_, step)| &step.changes).collect();
        let config = Config {
            cluster: ClusterId(7),
            epoch: Epoch(2),
            intervals: Intervals::default(),
            seed: 2,
            slice,
        };
        let fence = self.nonces.keys().map(|(_, fence)| *fence).max().unwrap_or_default();
        let given = changes
            .iter()
            .filter_map(|it| if let Change::Added(added) = it { Some(added.job) } else { None });
        let job = given.max().unwrap_or_default();
        let worker = WorkerId(self.workers.len() as u64);
        let last = Counters { job, fence, worker, group: GroupNo(self.steps.len() as u64) };
        let mut scheduler = Scheduler::new(config, last);
        self.definitions.values().for_each(|it| scheduler.restore_definition(it.clone()));
        let rows =
            changes.iter().filter_map(|it| if let Change::Worker(row) = it { Some(row) } else { None });
        let rows: BTreeMap<WorkerId, &WorkerRow> = rows.map(|row| (row.worker, row)).collect();
        rows.into_values().for_each(|row| scheduler.restore_worker(now, row.clone()));
        for live in live_jobs(&changes).into_values() {
            assert!(scheduler.restore_job(now, live), "its definition is known");
        }
        scheduler.begin(GroupNo(self.steps.len() as u64 + 1));
        (self.scheduler, self.stepped) = (scheduler, now.up);
        self.workers.values_mut().for_each(|member| member.session = None);
        self.step(Input::Define(self.definitions.values().cloned().collect()));
    }
}

/// The jobs that have not ended, as a store would have them after these changes.
fn live_jobs(changes: &[&Change]) -> BTreeMap<JobId, LiveJob> {
    let mut live = BTreeMap::new();
    for change in changes {
        let job = match change {
            Change::Added(added) => {
                live.insert(added.job, new_job(added));
                continue;
            }
            Change::Ended(ended) => {
                live.remove(&ended.job);
                continue;
            }
            Change::Assigned(Assigned { token, .. })
            | Change::Started { token, .. }
            | Change::Stopping { token, .. } => token.job,
            Change::Waiting { job, .. } | Change::Due { job } | Change::Freed { job } => *job,
            _ => continue,
        };
        apply(live.get_mut(&job).expect("it was added"), change);
    }
    live
}

fn new_job(added: &AddedJob) -> LiveJob {
    LiveJob {
        job: added.job,
        revision: added.revision,
        state: added.state,
        priority: added.priority,
        due_at: added.due_at,
        timeout: added.timeout,
        has_body: false,
        own_failures: 0,
        losses: Vec::new(),
        attempts: AttemptNo(0),
        last: None,
        lost: None,
        attempt: None,
    }
}

fn apply(live: &mut LiveJob, change: &Change) {
    match change {
        Change::Assigned(assigned) => {
            (live.state, live.attempts, live.lost) = (State::Assigned, assigned.number, None);
            live.attempt = Some(LiveAttempt {
                token: assigned.token,
                worker: assigned.worker,
                session: assigned.session,
                assigned_at: assigned.at,
                started_at: None,
                stopping: None,
            });
        }
        Change::Started { at, .. } => {
            live.state = State::Running;
            live.attempt.as_mut().expect("it is held").started_at = Some(*at);
        }
        Change::Stopping { cause, .. } => {
            live.attempt.as_mut().expect("it is held").stopping = Some(*cause);
        }
        Change::Waiting { closed, due_at, state, .. } => {
            let over = live.attempt.take().expect("it is held");
            live.last = Stay::after(over.worker, closed.outcome).or(live.last);
            (live.state, live.due_at) = (*state, *due_at);
            live.own_failures += u32::from(retry::budget(closed.outcome) == Budget::Own);
            if retry::budget(closed.outcome) == Budget::Platform {
                retry::note_loss(&mut live.losses, closed.ended_at);
            }
            live.lost = (closed.outcome == Outcome::Lost).then_some(closed.token);
        }
        Change::Due { .. } => live.state = State::Queued,
        Change::Freed { .. } => {
            live.state = State::Queued;
            live.losses.clear();
        }
        _ => {}
    }
}
