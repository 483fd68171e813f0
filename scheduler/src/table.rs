//! Hash tables keyed by numbers of this server, and by texts of its users. The caller seeds the hasher, so that no test and no attacker
//! can depend on an order.

use core::hash::{BuildHasher, Hash, Hasher};

/// A hash table.
pub type Table<K, V> = hashbrown::HashMap<K, V, Seed>;

/// The seed of all tables of one scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seed(pub u64);

impl BuildHasher for Seed {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(self.0)
    }
}

/// Folds each word in by one wide multiplication. Without the seed, which is drawn at each start, nobody can choose keys that collide.
#[derive(Clone, Copy, Debug)]
pub struct Mixer(u64);

impl Mixer {
    const fn fold(&mut self, word: u64) {
        let product = ((self.0 ^ word) as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
        self.fold(bytes.len() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn write_u128(&mut self, word: u128) {
        self.fold(word as u64);
        self.fold((word >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns memory of a table that was much larger.
pub fn shrink<K: Eq + Hash, V>(table: &mut Table<K, V>) {
    let (used, room) = (table.len(), table.capacity());
    if room > CAPACITY_KEPT && used < room / 8 {
        table.shrink_to((used * 2).max(CAPACITY_KEPT));
    }
}

/// Capacity in entries that is always kept: a few megabytes.
const CAPACITY_KEPT: usize = 65_536;
