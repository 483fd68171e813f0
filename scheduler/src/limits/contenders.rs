//! The jobs that compete for the permits of a limit, for rules that cancel some of them for a new job (`on_full`).
//!
//! A job competes while it is queued or holds a permit. Jobs that are scheduled, between two attempts, or in quarantine do not, and neither do
//! members of a large batch that is not complete. A job whose attempt is being cancelled has made room already.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use protocol::JobId;

use super::{LimitNo, Limits, RequiredLimits};

/// The jobs that compete for the permits of one limit, beside the holders.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contenders {
    /// Number of jobs that are queued.
    pub(super) queued: u64,
    /// Holders whose attempts are being cancelled.
    pub(super) leaving: BTreeSet<JobId>,
    /// Jobs that compete, oldest first; only those whose definition cancels the oldest one.
    pub(super) oldest: BTreeSet<JobId>,
}

impl Contenders {
    /// A job has left the queue, or has no attempt any more.
    pub(super) fn remove(&mut self, job: JobId) {
        self.leaving.remove(&job);
        self.oldest.remove(&job);
    }
}

impl Limits {
    /// Lets a queued job compete for the permit of its limit. `cancels_oldest` is the rule of its definition.
    pub(crate) fn enter_queue(&mut self, job: JobId, needs: RequiredLimits, cancels_oldest: bool) {
        let Some(limit) = needs.permit.and_then(|number| self.limit_mut(number)) else { return };
        limit.contenders.queued += 1;
        if cancels_oldest {
            limit.contenders.oldest.insert(job);
        }
    }

    /// Ends the competition of a queued job that leaves without a start.
    pub(crate) fn leave_queue(&mut self, job: JobId, needs: RequiredLimits) {
        self.uncount_queued(needs);
        if let Some(limit) = needs.permit.and_then(|number| self.limit_mut(number)) {
            limit.contenders.remove(job);
        }
    }

    /// A job is not queued any more.
    pub(super) fn uncount_queued(&mut self, needs: RequiredLimits) {
        if let Some(limit) = needs.permit.and_then(|number| self.limit_mut(number)) {
            limit.contenders.queued = limit.contenders.queued.saturating_sub(1);
        }
    }

    /// Ends the competition of a holder whose attempt is being cancelled.
    pub(crate) fn leave_competition(&mut self, job: JobId, needs: RequiredLimits) {
        let Some(limit) = needs.permit.and_then(|number| self.limit_mut(number)) else { return };
        if limit.holders.contains(&job) {
            limit.contenders.oldest.remove(&job);
            limit.contenders.leaving.insert(job);
        }
    }

    /// The jobs that compete for the permits of this limit, for the audit.
    pub(super) fn contenders_of(&self, number: LimitNo) -> Option<&Contenders> {
        self.limit(number).map(|limit| &limit.contenders)
    }

    /// Number of jobs that compete for the permits of this limit.
    pub(crate) fn contenders(&self, number: LimitNo) -> u64 {
        self.limit(number).map_or(0, |limit| {
            let holders = limit.holders.len() - limit.contenders.leaving.len();
            limit.contenders.queued + holders as u64
        })
    }

    /// The oldest jobs that hold a permit of this limit and are not being cancelled, but none of this range. Walks the holders.
    pub(crate) fn oldest_holders(&self, number: LimitNo, but: &Range<JobId>, count: usize) -> Vec<JobId> {
        let Some(limit) = self.limit(number) else { return Vec::new() };
        if limit.holders.len() == limit.contenders.leaving.len() {
            return Vec::new();
        }
        let staying = limit.holders.difference(&limit.contenders.leaving);
        staying.filter(|job| !but.contains(job)).take(count).copied().collect()
    }

    /// The oldest jobs that compete for this limit and whose definition cancels the oldest one, but none of this range.
    pub(crate) fn oldest_contenders(&self, number: LimitNo, but: &Range<JobId>, count: usize) -> Vec<JobId> {
        let Some(limit) = self.limit(number) else { return Vec::new() };
        let oldest = &limit.contenders.oldest;
        oldest.range(..but.start).chain(oldest.range(but.end..)).take(count).copied().collect()
    }
}
