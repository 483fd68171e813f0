//! A memory budget for submissions that are not committed yet, single ones and batches. Memory is reserved as a body arrives, so that a slow
//! sender holds little, and is held until the engine has answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::Busy;
use crate::http::middleware::problem::Problem;

/// The budget that all submissions share.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    kib: Arc<Semaphore>,
}

/// The reservation of one body; released when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyReservation {
    kib: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    bytes: usize,
    /// The longest wait for memory.
    timeout: Duration,
}

impl BodyBudget {
    /// A budget of this many bytes, in whole KiB.
    pub(crate) fn within(bytes: usize) -> Self {
        Self { kib: Arc::new(Semaphore::new(bytes >> 10)) }
    }

    /// An empty reservation for a body that may arrive for minutes: it waits for memory.
    pub(crate) fn reservation(&self) -> BodyReservation {
        BodyReservation { kib: Arc::clone(&self.kib), held: None, bytes: 0, timeout: TIMEOUT }
    }

    /// An empty reservation for a small body: it fails at once if there is no memory.
    pub(crate) fn reservation_at_once(&self) -> BodyReservation {
        BodyReservation { timeout: Duration::ZERO, ..self.reservation() }
    }
}

impl BodyReservation {
    /// Reserves memory for further bytes, by whole KiB.
    ///
    /// # Errors
    /// `busy` if other bodies hold the budget for too long.
    pub(crate) async fn reserve(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes += bytes;
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let lacking = self.bytes.div_ceil(1 << 10).saturating_sub(held);
        let Some(lacking) = u32::try_from(lacking).ok().filter(|lacking| *lacking > 0) else { return Ok(()) };
        let waiting = Arc::clone(&self.kib).acquire_many_owned(lacking);
        let more = tokio::time::timeout(self.timeout, waiting).await;
        // The semaphore is never closed: an error means that the wait timed out.
        let Ok(Ok(more)) = more else { return Err(Busy.into()) };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

/// The longest wait for memory. Of several bodies that block one another, the first to give up frees memory for the others.
const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    // The clock runs ahead by itself while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_slow_body_reserves_only_what_has_arrived() {
        let bodies = BodyBudget::within(3 << 20);
        let mut slow = bodies.reservation();
        slow.reserve(1).await.unwrap();
        slow.reserve(1_000).await.unwrap();
        let mut quick = bodies.reservation();
        for _ in 0..2 {
            quick.reserve(1 << 20).await.unwrap();
        }
        quick.reserve((1 << 20) - (1 << 10)).await.unwrap();
        let at_once = bodies.reservation_at_once().reserve(1).await;
        assert_eq!(at_once.unwrap_err().code(), crate::http::middleware::code::ProblemCode::Busy);
        assert_eq!(
            quick.reserve(1).await.unwrap_err().code(),
            crate::http::middleware::code::ProblemCode::Busy
        );
        drop(slow);
        let mut next = bodies.reservation();
        next.reserve(1 << 10).await.unwrap();
    }
}
