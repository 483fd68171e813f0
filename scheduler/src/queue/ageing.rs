//! Ageing of priorities: a waiting job gains a priority step for each period that it waits.
//!
//! All jobs age at the same rate, so the order of two waiting jobs never changes, and a key that is computed once is enough. A job of
//! priority p that became due at d has the *virtual due time* d − p × period, and the job with the earlier one goes first. The virtual due
//! times of two jobs differ by as many periods as their aged priorities differ by steps, at any instant.
//!
//! Some rules compare whole steps: pinned jobs go before others of the same priority, and only a higher priority recalls attempts. For them
//! time since 1970 is cut into periods, and all jobs gain a step where one of these ends. The aged priority is that in the period of
//! [`REFERENCE_INSTANT`].

use core::num::NonZeroI64;
use core::ops::RangeInclusive;
use core::time::Duration;

use protocol::Timestamp;

/// The period after which a waiting job gains a priority step, if jobs age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityAgeing {
    /// Its length in milliseconds; absent if jobs do not age.
    period: Option<NonZeroI64>,
}

/// A priority in whole steps, as waiting jobs and prefetched attempts are compared by it. Without ageing it is the priority of the job.
/// With ageing it is the priority that the job would have at a fixed instant. Only comparisons with others mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgedPriority(i32);

/// The instant for which aged priorities are computed, in milliseconds since 1970: 19 January 2038. With the shortest period, numbers of
/// 32 bits then reach from 1970 to 2106. Jobs due before or after that differ by their virtual due times only.
const REFERENCE_INSTANT: i64 = (1 << 31) * 1_000;

/// Virtual due times for workers are earlier by this many steps. No priority is lower than `i8::MIN`, so none of them is later than the
/// job's due time.
const STEPS_EARLIER: i64 = -(i8::MIN as i64);

impl PriorityAgeing {
    /// Jobs keep their priority however long they wait.
    pub const OFF: Self = Self { period: None };

    /// The periods that are possible. A worker is told waiting times that are up to 255 periods longer: with the longest period that is five
    /// years, and the wire carries ten.
    pub const PERIODS: RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 60 * 60);

    /// Jobs gain a step for each period that they wait. Returns `None` if the period is not possible.
    #[must_use]
    pub fn every(period: Duration) -> Option<Self> {
        let millis = i64::try_from(period.as_millis()).ok().and_then(NonZeroI64::new);
        millis.filter(|_| Self::PERIODS.contains(&period)).map(|period| Self { period: Some(period) })
    }

    /// Whole steps that a job has gained which became due at this time; absent if jobs do not age.
    #[must_use]
    pub fn steps(self, due: Timestamp, now: Timestamp) -> Option<u64> {
        let period = self.period?.get();
        Some(u64::try_from(now.0.saturating_sub(due.0) / period).unwrap_or(0))
    }

    /// The priority in whole steps, and the time that decides within a step.
    pub(super) const fn rank(self, priority: i8, due: Timestamp) -> (AgedPriority, Timestamp) {
        match self.period {
            None => (AgedPriority(priority as i32), due),
            Some(period) => {
                let due = virtual_due(period, priority as i64, due);
                (AgedPriority(periods_until_reference(due.0, period.get())), due)
            }
        }
    }

    /// Priority and due time by which a worker sorts its local queue as the server sorts prefetched attempts. With ageing the priority is
    /// the same for all, and the time has the differences.
    #[must_use]
    pub const fn order_on_worker(self, priority: i8, due: Timestamp) -> (i8, Timestamp) {
        match self.period {
            None => (priority, due),
            Some(period) => (0, virtual_due(period, priority as i64 + STEPS_EARLIER, due)),
        }
    }
}

const fn virtual_due(period: NonZeroI64, steps: i64, due: Timestamp) -> Timestamp {
    Timestamp(due.0.saturating_sub(steps.saturating_mul(period.get())))
}

/// Number of periods that end from this time until the reference instant; negative after it.
const fn periods_until_reference(at: i64, period: i64) -> i32 {
    let periods = REFERENCE_INSTANT.div_euclid(period).saturating_sub(at.div_euclid(period));
    if periods > i32::MAX as i64 {
        i32::MAX
    } else if periods < i32::MIN as i64 {
        i32::MIN
    } else {
        periods as i32
    }
}

#[cfg(test)]
mod tests;
