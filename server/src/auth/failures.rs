//! Slows down the guessing of tokens: an address with too many failed requests is locked out for a while.
//!
//! The caller asks [`FailureLimiter::lock_out`] before it compares a token, and records a failure after the comparison. A locked-out
//! address is refused even with a valid token.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests without a valid token, per network: [`FAILURES_BURST`] at once, then one per [`FAILURE_INTERVAL`].
///
/// The value of a network is the time at which all of its failures are forgotten: a token bucket in one number.
#[derive(Debug, Default)]
pub(super) struct FailureLimiter {
    recovers_at: Mutex<HashMap<IpAddr, Instant>>,
}

impl FailureLimiter {
    /// The time that this address still has to wait; `None` if its token may be compared.
    pub(super) fn lock_out(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let recovers_at = self.entries();
        match recovers_at.get(&network(peer)) {
            Some(recovers_at) => {
                let next = (*recovers_at).max(now) + FAILURE_INTERVAL;
                next.checked_duration_since(now + FAILURE_INTERVAL * FAILURES_BURST)
                    .filter(|wait| !wait.is_zero())
            }
            // Too many networks fail at once: unknown ones wait until some entries have expired.
            None if recovers_at.len() >= NETWORKS_MAX => Some(FAILURE_INTERVAL),
            None => None,
        }
    }

    /// Counts a failure of this address.
    pub(super) fn record(&self, peer: IpAddr, now: Instant) {
        let mut recovers_at = self.entries();
        if recovers_at.len() >= NETWORKS_MAX / 2 {
            recovers_at.retain(|_, recovers_at| *recovers_at > now);
        }
        let recovers_at = recovers_at.entry(network(peer)).or_insert(now);
        *recovers_at = (*recovers_at).max(now) + FAILURE_INTERVAL;
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.recovers_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network that one customer commonly has: an IPv4 address, or 2^64 IPv6 addresses.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        other => other,
    }
}

/// Ten a minute are more than a person mistypes and far fewer than a guess needs.
const FAILURES_BURST: u32 = 10;
const FAILURE_INTERVAL: Duration = Duration::from_secs(6);

/// Networks remembered at once: a megabyte. Expired entries are removed from half of this number on.
const NETWORKS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn fail_often(failures: &FailureLimiter, peer: IpAddr, now: Instant) {
        for _ in 0..FAILURES_BURST {
            assert_eq!(failures.lock_out(peer, now), None);
            failures.record(peer, now);
        }
    }

    #[test]
    fn an_address_with_too_many_failures_waits_and_recovers() {
        let failures = FailureLimiter::default();
        let (peer, now) = ("10.0.0.1".parse().unwrap(), Instant::now());
        fail_often(&failures, peer, now);
        assert_eq!(failures.lock_out(peer, now), Some(FAILURE_INTERVAL));
        assert_eq!(failures.lock_out("10.0.0.2".parse().unwrap(), now), None);
        assert_eq!(failures.lock_out(peer, now + FAILURE_INTERVAL), None);
    }

    #[test]
    fn addresses_of_one_64_bit_network_are_locked_out_together() {
        let failures = FailureLimiter::default();
        let now = Instant::now();
        fail_often(&failures, "2001:db8::1".parse().unwrap(), now);
        assert!(failures.lock_out("2001:db8::2:1".parse().unwrap(), now).is_some());
        assert_eq!(failures.lock_out("2001:db8:0:1::1".parse().unwrap(), now), None);
    }

    #[test]
    fn a_flood_of_networks_locks_out_unknown_ones_until_entries_expire() {
        let failures = FailureLimiter::default();
        let now = Instant::now();
        for number in 0..u32::try_from(NETWORKS_MAX).unwrap() {
            failures.record(IpAddr::from(number.to_be_bytes()), now);
        }
        let other = "192.0.2.1".parse().unwrap();
        assert_eq!(failures.lock_out(other, now), Some(FAILURE_INTERVAL));
        failures.record("0.0.0.1".parse().unwrap(), now + FAILURE_INTERVAL * 2);
        assert_eq!(failures.lock_out(other, now + FAILURE_INTERVAL * 2), None);
    }
}
