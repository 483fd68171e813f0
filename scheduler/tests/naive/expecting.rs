//! Expectations of definitions, by name.

use std::time::Duration;

use super::{Job, Model};
use crate::world::protocol::report::Outcome;
use crate::world::protocol::{JobId, Timestamp, Uptime};
use crate::world::scheduler::definition::Expect;
use crate::world::scheduler::expectations::{ExpectationRow, SlowRun};
use crate::world::scheduler::step::Change;

#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) expect: Expect,
    row: ExpectationRow,
}

impl Model {
    /// jobs.yaml was read: the walks add definitions, and change none.
    pub(super) fn expect_anew(&mut self) {
        for definition in self.definitions.clone() {
            let is_known = self.expected.iter().any(|it| *it.row.definition == definition.name);
            if definition.expect == Expect::default() || is_known {
                continue;
            }
            let awaited_since = definition.expect.success_within.map(|_| self.now.utc);
            let name = definition.name.as_str().into();
            let row = ExpectationRow { definition: name, awaited_since, stale_since: None, slow: None };
            self.expected.push(Expected { expect: definition.expect, row: row.clone() });
            self.tell(&row);
        }
    }

    fn tell(&mut self, row: &ExpectationRow) {
        let line = super::said::change(&Change::Expectation(row.clone()));
        self.said.extend(line);
    }

    fn change_row(&mut self, name: &str, change: impl FnOnce(Expect, &mut ExpectationRow)) {
        let Some(found) = self.expected.iter_mut().find(|it| *it.row.definition == *name) else { return };
        let before = found.row.clone();
        change(found.expect, &mut found.row);
        let row = found.row.clone();
        if row != before {
            self.tell(&row);
        }
    }

    /// When the next one is stale, and which.
    pub(super) fn stale_dates(&self) -> impl Iterator<Item = (Timestamp, usize)> {
        let all = self.expected.iter().enumerate().filter(|(_, it)| it.row.stale_since.is_none());
        all.filter_map(|(index, it)| Some((it.row.awaited_since? + it.expect.success_within?, index)))
    }

    pub(super) fn become_stale(&mut self, index: usize) {
        let (now, name) = (self.now.utc, self.expected[index].row.definition.clone());
        self.change_row(&name, |_, row| row.stale_since = Some(now));
    }

    /// An attempt is over; what ran at all says so by its exit code, and ran for a second.
    pub(super) fn judge_run(&mut self, job: &Job, outcome: Outcome, exit_code: Option<i32>) {
        let now = self.now.utc;
        let Some(attempt) = job.attempt() else { return };
        let told = exit_code.map(|_| (now - Duration::from_secs(1)).max(attempt.assigned.utc));
        let ran = told.or(attempt.started).map(|at| now.since(at));
        let (id, was_slow) = (JobId(job.id), attempt.was_slow);
        self.change_row(&job.definition.name, |expect, row| {
            if outcome == Outcome::Succeeded && expect.success_within.is_some() {
                (row.awaited_since, row.stale_since) = (Some(now), None);
            }
            if was_slow {
                return;
            }
            if ran.is_some() && expect.max_duration.is_some() && ran > expect.max_duration {
                row.slow = Some(slow_again(row.slow, id, now));
            } else if outcome == Outcome::Succeeded {
                row.slow = None;
            }
        });
    }

    /// A run is told to have begun that long ago.
    pub(super) fn watch_run(&mut self, id: u64, ago: Duration) {
        let now = self.now.up;
        let Some(job) = self.job(id) else { return };
        let found = self.expected.iter().find(|it| *it.row.definition == job.definition.name);
        let Some(max) = found.and_then(|it| it.expect.max_duration) else { return };
        let last = found.and_then(|it| it.row.slow).map(|slow| slow.job.0);
        if ago >= max && last.is_some_and(|last| id <= last) {
            if let Some(attempt) = self.attempt_mut(id).filter(|attempt| attempt.slow.is_none()) {
                attempt.was_slow = true;
            }
            return;
        }
        if let Some(attempt) = self.attempt_mut(id) {
            attempt.slow = attempt.slow.or(Some(now + max.saturating_sub(ago)));
        }
    }

    pub(super) fn slow_alarms(&self) -> impl Iterator<Item = (Uptime, u64)> {
        self.jobs.iter().filter_map(|job| Some((job.attempt()?.slow?, job.id)))
    }

    pub(super) fn become_slow(&mut self, id: u64) {
        let now = self.now.utc;
        if let Some(attempt) = self.attempt_mut(id) {
            (attempt.slow, attempt.was_slow) = (None, true);
        }
        let name = self.job(id).expect("it runs").definition.name.clone();
        self.change_row(&name, |_, row| row.slow = Some(slow_again(row.slow, JobId(id), now)));
    }
}

/// The job that was noticed last counts; the time is that of the first run.
fn slow_again(before: Option<SlowRun>, job: JobId, now: Timestamp) -> SlowRun {
    SlowRun { job, since: before.map_or(now, |before| before.since) }
}
