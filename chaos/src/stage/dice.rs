//! Chance that can be repeated from its seed.

/// A generator of numbers (SplitMix64): small, and good enough to choose moments.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed falls the same.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that nobody has chosen.
    #[must_use]
    pub fn fresh_seed() -> u64 {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_1970.map_or(0, |it| u64::from(it.subsec_nanos()) ^ it.as_secs())
    }

    /// Dice of their own for another task.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// A number from 0 to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One of these, by chance.
    ///
    /// # Panics
    /// There is none.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Puts them in another order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
