//! Slows down the guessing of tokens: an address with too many failed requests is locked out for a while.
//!
//! The caller asks [`FailureLimiter::lock_out`] before it compares a token, and records a failure after the comparison. A locked-out
//! address is refused even with a valid token.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests with a wrong token, per network: [`FAILURES_BURST`] at once, then one per [`FAILURE_INTERVAL`].
///
/// The value of a network is the time at which all of its failures are forgotten: a token bucket in one number.
#[derive(Debug, Default)]
pub(super) struct FailureLimiter {
    networks: Mutex<FailingNetworks>,
}

#[derive(Debug, Default)]
struct FailingNetworks {
    recovers_at: HashMap<IpAddr, Instant>,
    /// The last removal of expired entries.
    purged_at: Option<Instant>,
}

impl FailingNetworks {
    /// Removes expired entries. A removal reads all entries, so that there is one in [`PURGE_INTERVAL`] at most.
    fn purge(&mut self, now: Instant) {
        if self.purged_at.is_some_and(|purged_at| now < purged_at + PURGE_INTERVAL) {
            return;
        }
        self.purged_at = Some(now);
        self.recovers_at.retain(|_, recovers_at| *recovers_at > now);
    }
}

impl FailureLimiter {
    /// The time that this address still has to wait; `None` if its token may be compared.
    pub(super) fn lock_out(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let mut networks = self.networks();
        if let Some(recovers_at) = networks.recovers_at.get(&network(peer)) {
            let next = (*recovers_at).max(now) + FAILURE_INTERVAL;
            return next
                .checked_duration_since(now + FAILURE_INTERVAL * FAILURES_BURST)
                .filter(|wait| !wait.is_zero());
        }
        if networks.recovers_at.len() >= NETWORKS_MAX {
            networks.purge(now);
        }
        // Too many networks fail at once: unknown ones wait until some entries have expired.
        (networks.recovers_at.len() >= NETWORKS_MAX).then_some(FAILURE_INTERVAL)
    }

    /// Counts a failure of this address.
    pub(super) fn record(&self, peer: IpAddr, now: Instant) {
        let mut networks = self.networks();
        if networks.recovers_at.len() >= NETWORKS_MAX / 2 {
            networks.purge(now);
        }
        let recovers_at = networks.recovers_at.entry(network(peer)).or_insert(now);
        *recovers_at = (*recovers_at).max(now) + FAILURE_INTERVAL;
    }

    fn networks(&self) -> MutexGuard<'_, FailingNetworks> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Entries expire after six seconds at the earliest.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

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
        assert_eq!(failures.lock_out(other, now + FAILURE_INTERVAL), None, "nobody has failed since");
    }
}
