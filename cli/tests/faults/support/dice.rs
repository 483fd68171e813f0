//! Chance that can be repeated: its seed is printed, and can be given.

/// A generator of numbers (SplitMix64): small, and good enough to choose moments.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// With the seed in `LONGSHORE_SEED`, or a new one.
    pub(crate) fn of_this_run() -> Self {
        let given = std::env::var("LONGSHORE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since_1970.map_or(0, |it| u64::from(it.subsec_nanos()) ^ it.as_secs())
        });
        println!("repeat this with LONGSHORE_SEED={seed}");
        Self(seed)
    }

    /// Dice of their own for another task.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// A number from 0 to below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
