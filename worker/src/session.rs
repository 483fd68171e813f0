//! The connection with the server: state, lease, heartbeats, backoff.

use alloc::collections::VecDeque;
use core::time::Duration;

use protocol::Uptime;
use protocol::order::Intervals;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) state: State,
    /// Begin of the lease: time at which the last answered heartbeat was sent, or the Hello of the last reconciled
    /// session. It outlives the connection.
    pub(crate) lease_from: Option<Uptime>,
    /// Time at which this session's Hello was sent, until the session is reconciled.
    hello_sent: Option<Uptime>,
    pub(crate) intervals: Intervals,
    /// Number of the last heartbeat. It counts on over connections, so a Pulse of an older connection renews
    /// nothing.
    last_heartbeat: u64,
    /// Unanswered heartbeats with the times at which they were sent.
    unanswered: VecDeque<(u64, Uptime)>,
    next_heartbeat_at: Uptime,
    /// Failed connections since the last Reconciled.
    failures: u32,
    rng: SmallRng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No socket.
    Down,
    /// Hello was sent.
    AwaitingWelcome { since: Uptime },
    /// Welcome was received; the Inventory is being sent.
    Joined,
    /// Reconciled was received; attempts may start.
    Reconciled,
}

impl Link {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: State::Down,
            lease_from: None,
            hello_sent: None,
            intervals: Intervals::default(),
            last_heartbeat: 0,
            unanswered: VecDeque::new(),
            next_heartbeat_at: Uptime(0),
            failures: 0,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    pub(crate) fn is_joined(&self) -> bool {
        matches!(self.state, State::Joined | State::Reconciled)
    }

    pub(crate) fn await_welcome(&mut self, now: Uptime) {
        self.state = State::AwaitingWelcome { since: now };
    }

    /// Handles Welcome. The lease counts from the sending of Hello once the session is reconciled, as the server counts it.
    pub(crate) fn join(&mut self, now: Uptime, hello_sent: Uptime, intervals: Intervals) {
        self.state = State::Joined;
        self.hello_sent = Some(hello_sent);
        self.unanswered.clear();
        self.set_intervals(intervals);
        self.next_heartbeat_at = now + self.jittered_interval();
    }

    pub(crate) fn reconciled(&mut self) {
        self.state = State::Reconciled;
        self.lease_from = self.lease_from.max(self.hello_sent.take());
        self.failures = 0;
    }

    pub(crate) fn disconnect(&mut self) {
        self.state = State::Down;
        self.hello_sent = None;
        self.unanswered.clear();
    }

    /// Sets the intervals, clamped so that the worker neither spins nor keeps its gate closed for ever.
    pub(crate) fn set_intervals(&mut self, intervals: Intervals) {
        let lease = intervals.lease.clamp(INTERVAL_MIN * 2, INTERVAL_MAX);
        self.intervals = Intervals {
            heartbeat: intervals.heartbeat.clamp(INTERVAL_MIN, lease / 2),
            lease,
            start_gate: intervals.start_gate.min(lease / 2),
        };
    }

    /// The number of a heartbeat that is due, recorded as sent now.
    pub(crate) fn next_heartbeat(&mut self, now: Uptime) -> Option<u64> {
        if !self.is_joined() || now < self.next_heartbeat_at {
            return None;
        }
        self.last_heartbeat += 1;
        if self.unanswered.len() >= UNANSWERED_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back((self.last_heartbeat, now));
        self.next_heartbeat_at = now + self.jittered_interval();
        Some(self.last_heartbeat)
    }

    /// Handles a Pulse: the lease counts from the sending of that heartbeat. Unknown numbers are ignored.
    /// Returns whether the lease was extended.
    pub(crate) fn renew(&mut self, number: u64) -> bool {
        let before = self.lease_from;
        while let Some(&(heartbeat, sent)) = self.unanswered.front()
            && heartbeat <= number
        {
            self.unanswered.pop_front();
            if heartbeat == number {
                self.lease_from = self.lease_from.max(Some(sent));
            }
        }
        self.lease_from > before
    }

    /// The lease is far enough from its end for a start.
    pub(crate) fn gate_is_open(&self, now: Uptime) -> bool {
        self.state == State::Reconciled
            && self
                .lease_from
                .is_some_and(|from| now < from + (self.intervals.lease - self.intervals.start_gate))
    }

    /// Time at which the connection needs attention: a heartbeat, or a missing Welcome.
    pub(crate) fn wake_at(&self) -> Option<Uptime> {
        match self.state {
            State::Down => None,
            State::AwaitingWelcome { since } => Some(since + WELCOME_WITHIN),
            State::Joined | State::Reconciled => Some(self.next_heartbeat_at),
        }
    }

    pub(crate) fn is_welcome_overdue(&self, now: Uptime) -> bool {
        matches!(self.state, State::AwaitingWelcome { since } if now >= since + WELCOME_WITHIN)
    }

    /// Exponential backoff with full jitter, without end.
    pub(crate) fn backoff(&mut self) -> Duration {
        let ceiling = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.up_to(ceiling)
    }

    /// A random duration up to this one.
    pub(crate) fn up_to(&mut self, ceiling: Duration) -> Duration {
        let millis = u64::try_from(ceiling.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.random_range(0..=millis))
    }

    fn jittered_interval(&mut self) -> Duration {
        self.intervals.heartbeat * self.rng.random_range(80..=120) / 100
    }
}

const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// More heartbeats than fit into a lease at ten a second.
const UNANSWERED_MAX: usize = 512;
/// Time after which a server that does not answer Hello counts as down.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);
/// See docs/design/leases-fencing-reconcile.md, L9: 0.2–15 s.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Uptime {
        Uptime(seconds * SECOND)
    }

    fn reconciled() -> Link {
        let mut link = Link::new(7);
        link.await_welcome(at(100));
        link.join(at(101), at(100), Intervals::default());
        link.reconciled();
        link
    }

    #[test]
    fn the_gate_closes_three_seconds_before_the_end_of_the_lease_counted_from_hello() {
        let link = reconciled();
        assert!(link.gate_is_open(at(126)));
        assert!(!link.gate_is_open(at(127)));
    }

    #[test]
    fn lease_is_renewed_from_the_send_time_of_its_heartbeat() {
        let mut link = reconciled();
        let first = link.next_heartbeat(at(108)).expect("due");
        let second = link.next_heartbeat(at(116)).expect("due");

        link.renew(second + 1);
        assert_eq!(link.lease_from, Some(at(100)), "a number never said renews nothing");
        let third = link.next_heartbeat(at(124)).expect("due");
        link.renew(third);
        assert_eq!(link.lease_from, Some(at(124)));
        link.renew(first);
        assert_eq!(link.lease_from, Some(at(124)), "an older answer takes nothing back");
    }

    #[test]
    fn heartbeats_keep_within_a_fifth_of_their_interval() {
        let mut link = reconciled();
        for _ in 0..1_000 {
            let interval = link.jittered_interval();
            assert!((Duration::from_secs(4)..=Duration::from_secs(6)).contains(&interval), "{interval:?}");
        }
    }

    #[test]
    fn the_backoff_grows_to_fifteen_seconds_and_stays_there() {
        let mut link = Link::new(1);
        assert!(link.backoff() <= BACKOFF_MIN);
        let longest = (0..1_000).map(|_| link.backoff()).max().expect("a thousand");
        assert!(longest <= BACKOFF_MAX && longest > BACKOFF_MAX / 2, "{longest:?}");
    }

    #[test]
    fn invalid_intervals_are_clamped() {
        let mut link = Link::new(1);
        link.set_intervals(Intervals {
            heartbeat: Duration::ZERO,
            lease: Duration::MAX,
            start_gate: Duration::MAX,
        });
        assert!(link.intervals.heartbeat >= INTERVAL_MIN);
        assert!(link.intervals.start_gate < link.intervals.lease);

        link.set_intervals(Intervals {
            heartbeat: Duration::MAX,
            lease: Duration::ZERO,
            start_gate: Duration::MAX,
        });
        assert!(link.intervals.heartbeat * 2 <= link.intervals.lease, "one may be lost");
        assert!(link.intervals.heartbeat >= INTERVAL_MIN);
        assert!(link.intervals.start_gate < link.intervals.lease);
    }
}
