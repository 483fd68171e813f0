//! Chance, from a seed: the same seed and stream give the same throws on every machine. Each part of the world has a stream of its own,
//! so that leaving out one event of a run does not change every draw after it. The algorithm is that of `testkit::SeededRng`, repeated
//! here so that the simulation does not compile an HTTP client, and so that its seeds keep naming the same runs.
//!
//! The streams of a seed. Their numbers are never changed, because a seed would then name another run; what is added takes a new number.
//!
//! | stream | draws |
//! |---|---|
//! | 1, 16 | the swarm; what was added to it later |
//! | 2, 17 | the script; what was added to it later |
//! | 10, 14 | clocks, before and during the run all else of the world |
//! | 11, 12 | the server; the network |
//! | 13, 15, 18, 19, 29, 30, 40 | the workload: nature, delays, timetables, limits, waits, hooks, sets |
//! | 17 | also the ageing of the swarm, by mistake: it shares the first draws of the later script |
//! | 100 and more | the machines |

use std::time::Duration;

/// A stream of throws.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    /// Any number.
    pub(crate) const fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`; zero if that is zero.
    pub(crate) const fn below(&mut self, limit: u64) -> u64 {
        ((self.any() as u128 * limit as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index of a list of this length.
    pub(crate) const fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of these.
    pub(crate) const fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }

    /// True if something happens that happens so often in a thousand.
    pub(crate) const fn permille(&mut self, rate: u32) -> bool {
        self.below(1_000) < rate as u64
    }

    /// A random duration between these numbers of milliseconds.
    pub(crate) const fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low * 1_000, high * 1_000))
    }

    /// A random duration between these numbers of seconds.
    pub(crate) const fn seconds(&mut self, low: u64, high: u64) -> Duration {
        self.millis(low * 1_000, high * 1_000)
    }

    /// Mostly short, sometimes up to `most`: each halving of the length is about as frequent.
    pub(crate) const fn skewed(&mut self, most: Duration) -> Duration {
        let nanos = most.as_nanos() as u64 >> self.below(12);
        Duration::from_nanos(self.below(nanos + 1))
    }
}

/// Spreads every bit over all others (the finalizer of SplitMix64).
pub(crate) const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throws_stay_within_their_limits_and_reach_them() {
        let mut dice = Dice::new(7, 1);
        let mut seen = [false; 6];
        for _ in 0..200 {
            seen[dice.between(0, 5) as usize] = true;
        }
        assert!(seen.iter().all(|it| *it));
        assert_eq!(dice.below(0), 0);
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let throws = |stream| {
            let mut dice = Dice::new(1, stream);
            [dice.any(), dice.any()]
        };
        assert_eq!(throws(1), throws(1));
        assert_ne!(throws(1), throws(2));
    }
}
