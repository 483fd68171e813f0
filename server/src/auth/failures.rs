//! Guessing tokens is slowed down, address by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests without a valid token, per address: [`FAILURES_BURST`] at once, then one per [`FAILURE_INTERVAL`].
#[derive(Debug, Default)]
pub(super) struct Failures {
    since: Mutex<HashMap<IpAddr, Instant>>,
}

impl Failures {
    /// Counts one; if there were too many, says how long the address has to wait.
    ///
    /// An address is known by the instant at which all of its failures will be forgiven: a bucket in one number.
    pub(super) fn note(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.len() >= ADDRESSES_MAX {
            since.retain(|_, forgiven| *forgiven > now);
        }
        if since.len() >= ADDRESSES_MAX && !since.contains_key(&peer) {
            return Some(FAILURE_INTERVAL);
        }
        let forgiven = since.entry(peer).or_insert(now);
        let next = (*forgiven).max(now) + FAILURE_INTERVAL;
        let allowed = now + FAILURE_INTERVAL * FAILURES_BURST;
        if next > allowed {
            return Some(next - allowed);
        }
        *forgiven = next;
        None
    }
}

/// Ten a minute are more than a person mistypes and far fewer than a guess needs.
const FAILURES_BURST: u32 = 10;
const FAILURE_INTERVAL: Duration = Duration::from_secs(6);

/// Addresses remembered at once: a megabyte of them. More are turned away until some are forgiven.
const ADDRESSES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_too_often_has_to_wait_and_is_forgiven() {
        let failures = Failures::default();
        let (peer, now) = ("10.0.0.1".parse().unwrap(), Instant::now());
        for _ in 0..FAILURES_BURST {
            assert_eq!(failures.note(peer, now), None);
        }
        assert_eq!(failures.note(peer, now), Some(FAILURE_INTERVAL));
        assert_eq!(failures.note("10.0.0.2".parse().unwrap(), now), None);
        assert_eq!(failures.note(peer, now + FAILURE_INTERVAL), None);
    }
}
