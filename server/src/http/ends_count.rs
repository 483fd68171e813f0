//! The last count of jobs that ended, by hour. The dashboard counts them now and then, because counting reads every job that ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::MutexGuard;

use crate::store::HourlyEnds;

/// The last count of the ends of a day.
#[derive(Debug, Default)]
pub(crate) struct EndsCount {
    last: Mutex<Option<Counted>>,
    counting: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Counted {
    at: Instant,
    hours: Arc<Vec<HourlyEnds>>,
}

/// A count is good for this long.
const FRESH: Duration = Duration::from_secs(20);

impl EndsCount {
    /// The last count, however old it is; `None` if there was none yet.
    pub(crate) fn last(&self) -> Option<Arc<Vec<HourlyEnds>>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|counted| Arc::clone(&counted.hours))
    }

    /// True if there is a count, and it is still good.
    pub(crate) fn is_fresh(&self) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().is_some_and(|counted| counted.at.elapsed() <= FRESH)
    }

    /// The right to count; `None` while another task counts.
    pub(crate) fn begin(&self) -> Option<MutexGuard<'_, ()>> {
        self.counting.try_lock().ok()
    }

    /// Replaces the last count.
    pub(crate) fn set(&self, hours: Vec<HourlyEnds>) {
        let counted = Counted { at: Instant::now(), hours: Arc::new(hours) };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
    }
}
