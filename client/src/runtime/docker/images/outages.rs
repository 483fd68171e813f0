//! Registries that do not answer, by the image for which they were asked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::registry::RegistryLogin;
use tokio::time::Instant;

use super::failure::{PullFailure, PullFault};
use super::{PlatformImage, WantedImage};

/// Images whose registry did not answer the last time.
#[derive(Default)]
pub(super) struct Outages(Mutex<HashMap<PlatformImage, Outage>>);

/// Time range in which the registry of an image has not answered, and its last failure.
struct Outage {
    since: Instant,
    last: Instant,
    failure: PullFailure,
    login: Option<RegistryLogin>,
}

impl Outages {
    /// The failure that a further attempt shares: the registry did not answer within `shared_for`, or `is_asked` again for another attempt and
    /// has not answered yet. If all attempts asked, they would wait in all places of the worker, and none would be left for other jobs.
    pub(super) fn shared(
        &self,
        (wanted, login): WantedImage<'_>,
        shared_for: Duration,
        is_asked: impl FnOnce() -> bool,
    ) -> Option<PullFailure> {
        let outages = self.lock();
        let outage = outages.get(wanted).filter(|it| it.login.as_ref() == login)?;
        if outage.last.elapsed() >= FORGOTTEN_AFTER {
            return None;
        }
        (outage.last.elapsed() < shared_for || is_asked()).then(|| outage.failure.clone())
    }

    /// Records that the registry has not answered a try that began at `began`. Much older failures do not count. An outage of `max` is the
    /// failure of the job that asked; others share the failure of the registry.
    pub(super) fn record(
        &self,
        (wanted, login): WantedImage<'_>,
        began: Instant,
        mut failure: PullFailure,
        max: Duration,
    ) -> PullFailure {
        let mut outages = self.lock();
        outages.retain(|_, it| began.saturating_duration_since(it.last) < FORGOTTEN_AFTER);
        let since = outages.get(wanted).map_or(began, |it| it.since);
        let (last, login) = (Instant::now(), login.cloned());
        outages.insert(wanted.clone(), Outage { since, last, failure: failure.clone(), login });
        if since.elapsed() >= max {
            failure.fault = PullFault::Denied;
        }
        failure
    }

    /// The registry has answered.
    pub(super) fn end(&self, wanted: &PlatformImage) {
        self.lock().remove(wanted);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PlatformImage, Outage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longer than any pause that the server makes between two pulls of one definition.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_from_the_first_failed_try_to_the_last() {
        let (outages, wanted) = (Outages::default(), ("app".to_owned(), None));
        let minutes = |it: u64| Duration::from_secs(60 * it);
        let in_vain = async |waits: u64, takes: u64| {
            tokio::time::advance(minutes(waits)).await;
            let began = Instant::now();
            tokio::time::advance(minutes(takes)).await;
            let fault = outages.record((&wanted, None), began, PullFailure::default(), minutes(60)).fault;
            (outages.lock()[&wanted].since.elapsed(), fault)
        };
        assert_eq!(in_vain(0, 0).await, (minutes(0), PullFault::Registry));
        assert_eq!(in_vain(5, 1).await, (minutes(6), PullFault::Registry));
        assert_eq!(in_vain(1, 90).await, (minutes(97), PullFault::Denied), "one try took long");
        let shared = || outages.shared((&wanted, None), Duration::ZERO, || true).map(|it| it.fault);
        assert_eq!(shared(), Some(PullFault::Registry), "others are given back");
        tokio::time::advance(minutes(31)).await;
        assert_eq!(shared(), None, "nobody knows whether it still goes on");
        let after_hours = (minutes(2), PullFault::Registry);
        assert_eq!(in_vain(600, 2).await, after_hours, "it was there in between, for all that is known");
    }
}
