//! Room in memory for large bodies: all of them together may hold so much. It is taken as they arrive, so that who sends slowly holds
//! little.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::problem::Problem;
use crate::engine::Busy;

/// What all large bodies share.
#[derive(Debug)]
pub(super) struct LargeBodies {
    mib: Semaphore,
}

/// What one of them holds; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Room<'b> {
    of: &'b LargeBodies,
    held: Option<SemaphorePermit<'b>>,
    bytes: usize,
}

impl LargeBodies {
    /// Bodies that may hold so much together.
    pub(super) const fn within(mib: usize) -> Self {
        Self { mib: Semaphore::const_new(mib) }
    }

    /// Nothing yet.
    pub(super) const fn room(&self) -> Room<'_> {
        Room { of: self, held: None, bytes: 0 }
    }
}

impl Room<'_> {
    /// Takes room for so many bytes more, by whole MiB.
    ///
    /// # Errors
    /// `busy` if others hold it.
    pub(super) async fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes += bytes;
        let held = self.held.as_ref().map_or(0, SemaphorePermit::num_permits);
        let lacking = self.bytes.div_ceil(1 << 20).saturating_sub(held);
        let Some(lacking) = u32::try_from(lacking).ok().filter(|lacking| *lacking > 0) else { return Ok(()) };
        let more = tokio::time::timeout(PATIENCE, self.of.mib.acquire_many(lacking)).await;
        // The semaphore is never closed: none means that waiting took too long.
        let Ok(Ok(more)) = more else { return Err(Busy.into()) };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

/// How long a body waits for room. Where several wait for one another, the first to give up makes room for the others.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    // The clock runs ahead by itself while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn who_sends_slowly_holds_no_more_than_has_come() {
        let bodies = LargeBodies::within(3);
        let mut slow = bodies.room();
        slow.take(1).await.unwrap();
        slow.take(1_000).await.unwrap();
        let mut quick = bodies.room();
        for _ in 0..2 {
            quick.take(1 << 20).await.unwrap();
        }
        assert_eq!(quick.take(1).await.unwrap_err().code(), super::super::code::Code::Busy);
        drop(slow);
        let mut next = bodies.room();
        next.take(1 << 20).await.unwrap();
    }
}
