//! A limit on new workers a minute. Each one adds a row that is kept for days, and anybody with the worker token can make up secrets.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use protocol::{Uptime, WorkerId};
use scheduler::fleet::row::WorkerRow;
use scheduler::step::Change;

/// Workers that may join for the first time in a minute: as many as a whole large fleet has. More come from a loop that makes up a new
/// secret for each connection.
pub(super) const JOINS_PER_MINUTE: u32 = 10_000;

const WINDOW: Duration = Duration::from_secs(60);

/// The secrets of known workers, and how many have joined in the present minute.
#[derive(Debug, Default)]
pub(super) struct JoinLimiter {
    by_worker: HashMap<WorkerId, [u8; 32]>,
    known: HashSet<[u8; 32]>,
    window: Option<Uptime>,
    joined: u32,
}

impl JoinLimiter {
    /// A limiter that knows these workers.
    pub(super) fn new(workers: &[WorkerRow]) -> Self {
        let mut limiter = Self::default();
        workers.iter().for_each(|row| limiter.add(row));
        limiter.joined = 0;
        limiter
    }

    /// True if a worker with this secret may connect: it is known, or the minute has room for another one. It counts once it has joined,
    /// not with each try.
    pub(super) fn admits(&mut self, secret_hash: &[u8; 32], now: Uptime) -> bool {
        if self.known.contains(secret_hash) {
            return true;
        }
        if self.window.is_none_or(|began| now.since(began) >= WINDOW) {
            (self.window, self.joined) = (Some(now), 0);
        }
        self.joined < JOINS_PER_MINUTE
    }

    /// Follows the workers' rows.
    pub(super) fn apply_change(&mut self, change: &Change) {
        match change {
            Change::Worker(row) | Change::CordonEnded { row, .. } => self.add(row),
            Change::WorkerForgotten(worker) => {
                if let Some(secret_hash) = self.by_worker.remove(worker) {
                    self.known.remove(&secret_hash);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, row: &WorkerRow) {
        match self.by_worker.insert(row.worker, row.secret_hash) {
            // A change of a known worker is no join.
            Some(former) if former == row.secret_hash => return,
            Some(former) => drop(self.known.remove(&former)),
            None => {}
        }
        self.joined += u32::from(self.known.insert(row.secret_hash));
    }
}

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;

    fn hash(number: u32) -> [u8; 32] {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_le_bytes());
        hash
    }

    fn row(number: u32) -> WorkerRow {
        WorkerRow {
            worker: WorkerId(u64::from(number)),
            name: "w".into(),
            secret_hash: hash(number),
            joined_at: Timestamp(0),
            seen_at: Timestamp(0),
            cordoned: false,
            cordon: None,
            slots: None,
            drain: None,
            labels: Vec::new(),
            process: None,
            join_token: None,
            granted: Vec::new(),
            revoked_at: None,
        }
    }

    #[test]
    fn new_workers_are_limited_a_minute_and_known_ones_are_not() {
        let at = |seconds: u64| Uptime(seconds * 1_000_000_000);
        let mut limiter = JoinLimiter::new(&[row(1)]);
        for number in 0..JOINS_PER_MINUTE {
            assert!(limiter.admits(&hash(10 + number), at(1)));
            assert!(limiter.admits(&hash(10 + number), at(1)), "a second try is no second worker");
            limiter.apply_change(&Change::Worker(row(10 + number)));
        }
        assert!(!limiter.admits(&hash(5), at(60)), "one more within the minute");
        assert!(limiter.admits(&hash(1), at(60)), "known since the start");
        assert!(limiter.admits(&hash(10), at(60)), "joined in this minute");
        assert!(limiter.admits(&hash(5), at(61)), "the next minute");
        limiter.apply_change(&Change::WorkerForgotten(WorkerId(1)));
        assert!(!limiter.known.contains(&hash(1)), "a forgotten worker is a new one");
    }

    #[test]
    fn changes_of_known_workers_take_no_room_of_new_ones() {
        let mut limiter = JoinLimiter::new(&[row(1)]);
        assert!(limiter.admits(&hash(2), Uptime(0)));
        for _ in 0..=JOINS_PER_MINUTE {
            limiter.apply_change(&Change::Worker(row(1)));
        }
        assert!(limiter.admits(&hash(2), Uptime(1)), "nobody has joined");
    }
}
