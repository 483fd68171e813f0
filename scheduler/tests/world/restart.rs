//! A start of the server: a new scheduler that knows what a store would hand to it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::World;
use super::protocol::order::Intervals;
use super::protocol::{ClusterId, Epoch, JobId, Token, WorkerId};
use super::scheduler::input::{GroupNo, Input};
use super::scheduler::job::State;
use super::scheduler::restore::{LiveAttempt, LiveJob};
use super::scheduler::step::{Change, WorkerRow};
use super::scheduler::{Config, Counters, Scheduler};

impl World {
    /// The scheduler's process ends, and a new one starts from what is held by workers; the clock on its wall is set meanwhile.
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
        let job = self.nonces.keys().map(|(job, _)| *job).max().unwrap_or_default();
        let worker = WorkerId(self.workers.len() as u64);
        let last = Counters { job, fence, worker, group: GroupNo(self.steps.len() as u64) };
        let mut scheduler = Scheduler::new(config, last);
        self.definitions.values().for_each(|it| scheduler.restore_definition(it.clone()));
        let rows =
            changes.iter().filter_map(|it| if let Change::Worker(row) = it { Some(row) } else { None });
        let rows: BTreeMap<WorkerId, &WorkerRow> = rows.map(|row| (row.worker, row)).collect();
        rows.into_values().for_each(|row| scheduler.restore_worker(now, row.clone()));
        for (job, (token, _)) in &self.held {
            let live = live_job(&changes, *job, *token);
            assert!(scheduler.restore_job(now, live), "its definition is known");
        }
        scheduler.begin(GroupNo(self.steps.len() as u64 + 1));
        (self.scheduler, self.stepped) = (scheduler, now.up);
        self.workers.values_mut().for_each(|member| member.session = None);
        self.step(Input::Define(self.definitions.values().cloned().collect()));
    }
}

/// A job that is held, as a store would have it after these changes.
fn live_job(changes: &[&Change], job: JobId, token: Token) -> LiveJob {
    let added = changes.iter().find_map(|it| match it {
        Change::Added(it) if it.job == job => Some(it),
        _ => None,
    });
    let assigned = changes.iter().find_map(|it| match it {
        Change::Assigned(it) if it.token == token => Some(it),
        _ => None,
    });
    let (added, assigned) = (added.expect("it was added"), assigned.expect("it is held"));
    let started_at = changes.iter().find_map(|it| match it {
        Change::Started { token: of, at, .. } if *of == token => Some(*at),
        _ => None,
    });
    LiveJob {
        job,
        revision: added.revision,
        state: if started_at.is_some() { State::Running } else { State::Assigned },
        priority: added.priority,
        due_at: added.due_at,
        timeout: added.timeout,
        has_body: false,
        own_failures: 0,
        losses: Vec::new(),
        attempts: assigned.number,
        last_worker: Some(assigned.worker),
        lost: None,
        attempt: Some(LiveAttempt {
            token,
            worker: assigned.worker,
            session: assigned.session,
            assigned_at: assigned.at,
            started_at,
            stopping: None,
        }),
    }
}
