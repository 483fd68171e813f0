//! Compares the parents with the jobs. For tests only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::{JobId, WorkerId};

use super::RunOnRole;
use crate::core::Scheduler;
use crate::job::{Job, LiveState};

/// Differences between the parents and the jobs.
pub(crate) fn faults(scheduler: &Scheduler) -> Vec<String> {
    let mut faults = Vec::new();
    let mut members: BTreeMap<JobId, BTreeSet<JobId>> = BTreeMap::new();
    for (id, job) in &scheduler.jobs {
        match job.role() {
            RunOnRole::None => {}
            RunOnRole::Parent if scheduler.parents.get(*id).is_none() => {
                faults.push(format!("job {id} is a parent that is not listed"));
            }
            RunOnRole::Parent => {}
            RunOnRole::Member(member) => drop(members.entry(member.parent).or_default().insert(*id)),
        }
    }
    for (id, parent) in scheduler.parents.iter() {
        let is_due = scheduler.jobs.get(&id).map(|job| matches!(job.live_state, LiveState::Parent { .. }));
        let live = members.remove(&id).unwrap_or_default();
        if is_due.is_none() || live != parent.live {
            faults.push(format!("parent {id} lists members {:?}, not {live:?}", parent.live));
        }
        if scheduler.parents.starved.contains(&id) != (live.is_empty() && scheduler.parents.is_making(id)) {
            faults
                .push(format!("parent {id} waits for a member without any other, or is listed so in error"));
        }
        if is_due == Some(true) && parent.is_over() && !scheduler.parents.to_review.contains(&id) {
            faults.push(format!("parent {id} should have ended with its last member"));
        }
        if u64::from(parent.row.counts.total - parent.row.counts.ended()) != parent.live.len() as u64 {
            faults.push(format!("parent {id} counts its members wrongly: {:?}", parent.row.counts));
        }
        let holder = |worker: &WorkerId| {
            let holds = |job: &&JobId| {
                let attempt = scheduler.jobs.get(*job).and_then(Job::attempt);
                attempt.is_some_and(|attempt| attempt.worker == *worker)
            };
            live.iter().filter(holds).count()
        };
        if parent.held.keys().any(|worker| holder(worker) != 1) {
            faults.push(format!("parent {id} has other members on its workers than {:?}", parent.held));
        }
    }
    if !members.is_empty() {
        faults.push(format!("members are left of ended parents: {members:?}"));
    }
    faults
}
