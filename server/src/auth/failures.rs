//! Slows down the guessing of tokens: an address with too many failed requests is locked out for a while.
//!
//! The caller asks [`FailureLimiter::lock_out`] before it compares a token, and records a failure after the comparison. A locked-out
//! address is refused even with a valid token.
//!
//! A guesser tries different tokens. A client that was configured wrongly repeats one, and often has healthy clients beside it at its
//! address. So a wrong token counts once while its network is remembered.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// Requests with a wrong token, per network: [`FAILURES_BURST`] at once, then one per [`FAILURE_INTERVAL`].
#[derive(Debug, Default)]
pub(super) struct FailureLimiter {
    networks: Mutex<FailingNetworks>,
}

#[derive(Debug, Default)]
struct FailingNetworks {
    failing: HashMap<IpAddr, FailingNetwork>,
    /// The last removal of expired entries.
    purged_at: Option<Instant>,
}

#[derive(Debug)]
struct FailingNetwork {
    /// The time at which all failures are forgotten: a token bucket in one number.
    recovers_at: Instant,
    /// The last wrong tokens, the latest last: [`RECENT_MAX`] at most.
    recent: Vec<Fingerprint>,
    /// The last lock-out that was to be logged.
    logged_at: Option<Instant>,
}

/// A wrong token, as the first bytes of its SHA-256: nobody finds two useful guesses that agree in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of what a request showed as its proof, in parts.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // The length keeps `ab, c` apart from `a, bc`.
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        Self(hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The address may go on.
    Tolerated,
    /// The address is locked out from now on.
    LocksOut {
        /// How long.
        wait: Duration,
        /// False if the log has said so within [`LOG_INTERVAL`]: an address that goes on guessing is locked out every few seconds.
        is_news: bool,
    },
}

impl FailingNetwork {
    const fn new(now: Instant) -> Self {
        Self { recovers_at: now, recent: Vec::new(), logged_at: None }
    }

    /// The time until a token is compared again; `None` for at once.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let next = self.recovers_at.max(now) + FAILURE_INTERVAL;
        next.checked_duration_since(now + FAILURE_INTERVAL * FAILURES_BURST).filter(|wait| !wait.is_zero())
    }

    /// Remembers a wrong token, and returns true if it was known. A repeated one stays known.
    fn remember(&mut self, token: Fingerprint) -> bool {
        let known = self.recent.iter().position(|recent| *recent == token);
        match known {
            Some(position) => drop(self.recent.remove(position)),
            None if self.recent.len() >= RECENT_MAX => drop(self.recent.remove(0)),
            None => {}
        }
        self.recent.push(token);
        known.is_some()
    }
}

impl FailingNetworks {
    /// Removes expired entries. A removal reads all entries, so that there is one in [`PURGE_INTERVAL`] at most.
    fn purge(&mut self, now: Instant) {
        if self.purged_at.is_some_and(|purged_at| now < purged_at + PURGE_INTERVAL) {
            return;
        }
        self.purged_at = Some(now);
        self.failing.retain(|_, network| network.recovers_at > now);
    }
}

impl FailureLimiter {
    /// The time that this address still has to wait; `None` if its token may be compared.
    pub(super) fn lock_out(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        self.networks().failing.get(&network(peer))?.wait(now)
    }

    /// Counts a failure of this address, unless the same token has failed before.
    pub(super) fn record(&self, peer: IpAddr, token: Fingerprint, now: Instant) -> Failure {
        let mut networks = self.networks();
        if networks.failing.len() >= NETWORKS_MAX / 2 {
            networks.purge(now);
        }
        // Too many networks fail at once. Others are not counted until some entries have expired: to lock all of them out would let
        // one guesser with many addresses shut the server, and no number of guesses finds a token of 128 bits.
        if networks.failing.len() >= NETWORKS_MAX && !networks.failing.contains_key(&network(peer)) {
            return Failure::Tolerated;
        }
        let failing = networks.failing.entry(network(peer)).or_insert_with(|| FailingNetwork::new(now));
        if failing.remember(token) {
            return Failure::Tolerated;
        }
        failing.recovers_at = failing.recovers_at.max(now) + FAILURE_INTERVAL;
        let Some(wait) = failing.wait(now) else { return Failure::Tolerated };
        let is_news = failing.logged_at.is_none_or(|at| now >= at + LOG_INTERVAL);
        if is_news {
            failing.logged_at = Some(now);
        }
        Failure::LocksOut { wait, is_news }
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

/// Wrong tokens that are remembered of a network. More than [`FAILURES_BURST`], so that a few clients that each repeat their own do not
/// lock their address out for ever.
const RECENT_MAX: usize = 16;

/// The log names an address that goes on guessing once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(3_600);

/// Networks remembered at once: two megabytes. Expired entries are removed from half of this number on.
const NETWORKS_MAX: usize = 10_000;

/// Entries expire after six seconds at the earliest.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u32) -> Fingerprint {
        Fingerprint::of(&[&number.to_le_bytes()])
    }

    /// Fails with different tokens until the address is locked out.
    fn fail_often(failures: &FailureLimiter, peer: IpAddr, now: Instant) {
        for number in 0..FAILURES_BURST {
            assert_eq!(failures.lock_out(peer, now), None);
            let is_last = number + 1 == FAILURES_BURST;
            let locks_out = Failure::LocksOut { wait: FAILURE_INTERVAL, is_news: true };
            let expected = if is_last { locks_out } else { Failure::Tolerated };
            assert_eq!(failures.record(peer, token(number), now), expected);
        }
    }

    #[test]
    fn a_token_that_is_repeated_counts_once() {
        let failures = FailureLimiter::default();
        let (peer, now) = ("10.0.0.1".parse().unwrap(), Instant::now());
        for number in (0..FAILURES_BURST - 1).cycle().take(200) {
            assert_eq!(failures.record(peer, token(number), now), Failure::Tolerated);
        }
        assert_eq!(failures.lock_out(peer, now), None);
        assert_ne!(failures.record(peer, token(99), now), Failure::Tolerated, "another one is a guess");
    }

    #[test]
    fn tokens_beyond_those_that_are_remembered_count_again() {
        let failures = FailureLimiter::default();
        let (peer, now) = ("10.0.0.1".parse().unwrap(), Instant::now());
        let count = u32::try_from(RECENT_MAX).unwrap() + 1;
        for round in 1..=3 {
            for number in 0..count {
                failures.record(peer, token(number), now);
            }
            let recovers_at = failures.networks().failing[&peer].recovers_at;
            assert_eq!(recovers_at, now + FAILURE_INTERVAL * count * round);
            assert_eq!(failures.networks().failing[&peer].recent.len(), RECENT_MAX);
        }
    }

    #[test]
    fn the_log_names_a_guesser_once_an_hour() {
        let failures = FailureLimiter::default();
        let (peer, start) = ("10.0.0.1".parse().unwrap(), Instant::now());
        fail_often(&failures, peer, start);
        let mut news = 0;
        for number in 1..=600 {
            let now = start + FAILURE_INTERVAL * number;
            assert_eq!(failures.lock_out(peer, now), None);
            match failures.record(peer, token(1_000 + number), now) {
                Failure::LocksOut { is_news, .. } => news += u32::from(is_news),
                Failure::Tolerated => panic!("the address has used its tries"),
            }
        }
        assert_eq!(news, 1, "600 lock-outs within an hour");
    }

    #[test]
    fn the_parts_of_a_proof_are_kept_apart() {
        assert_eq!(Fingerprint::of(&[b"ab", b"c"]), Fingerprint::of(&[b"ab", b"c"]));
        assert_ne!(Fingerprint::of(&[b"ab", b"c"]), Fingerprint::of(&[b"a", b"bc"]));
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
    fn a_flood_of_networks_locks_out_nobody_else_and_takes_no_more_memory() {
        let failures = FailureLimiter::default();
        let now = Instant::now();
        let first = "10.0.0.1".parse().unwrap();
        fail_often(&failures, first, now);
        for number in 0..2 * u32::try_from(NETWORKS_MAX).unwrap() {
            failures.record(IpAddr::from(number.to_be_bytes()), token(0), now);
        }
        assert_eq!(failures.networks().failing.len(), NETWORKS_MAX);
        let other = "192.0.2.1".parse().unwrap();
        assert_eq!(failures.lock_out(other, now), None, "it may have a valid token");
        assert!(failures.lock_out(first, now).is_some(), "a known guesser stays locked out");
        let later = now + FAILURE_INTERVAL * (FAILURES_BURST + 1);
        fail_often(&failures, other, later);
        assert!(failures.lock_out(other, later).is_some(), "there is room again");
    }
}
