//! The connection to the server as all waits of a verb see it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::outage::{Awaited, Outage};

/// The connection to the server, which all waits share: an outage is noted once.
pub(super) struct Contact {
    /// `None` once the wait is over.
    outage: Mutex<Option<Outage>>,
    awaited: Awaited,
}

impl Contact {
    pub(super) const fn new(outage: Outage, awaited: Awaited) -> Self {
        Self { outage: Mutex::new(Some(outage)), awaited }
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn end_outage(&self) {
        if let Some(outage) = &mut *self.outage() {
            outage.end();
        }
    }

    /// The pause before the next try.
    ///
    /// # Errors
    /// The outage has lasted too long, or the error is none that passes.
    pub(super) fn retry_or_fail(&self, error: anyhow::Error) -> anyhow::Result<Duration> {
        let mut outage = self.outage();
        let Some(outage) = &mut *outage else { return Err(error) };
        outage.retry_or_fail(error, self.awaited)?;
        Ok(outage.pause())
    }

    /// The reason for which no request was answered; `None` if none has failed.
    pub(super) fn take_failure(&self) -> Option<anyhow::Error> {
        self.outage().take()?.into_failure()
    }
}
