//! Names of schedules that outlive restarts and revisions: the `id` of jobs.yaml, or else one derived from rule and zone. The hash is
//! FNV-1a with a final mix: it is stored, so it must be the same in each process and release.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;

use super::{Rule, Zone};

/// Prefix of derived ids. An `id` of jobs.yaml must not begin with it.
pub const DERIVED_PREFIX: &str = "auto-";

/// Names a schedule among those of its definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(Arc<str>);

impl ScheduleId {
    /// One that a person chose, or that was stored.
    #[must_use]
    pub fn named(id: &str) -> Self {
        Self(id.into())
    }

    /// That of a schedule without `id`: the same as long as rule and zone are written the same.
    #[must_use]
    pub fn derived(rule: &Rule, zone: &Zone) -> Self {
        let rule = format!("{rule}");
        Self(format!("{DERIVED_PREFIX}{:016x}", hash(&[&rule, zone.name()])).into())
    }

    /// It follows from rule and zone: another rule is another schedule.
    #[must_use]
    pub fn is_derived(&self) -> bool {
        self.0.starts_with(DERIVED_PREFIX)
    }

    /// As shown and stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hash of texts that does not depend on the process.
pub(super) fn hash(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    mix(hash, 0)
}

/// Spreads the bits of both words over the result.
pub(super) const fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_id_never_changes_for_the_same_rule() {
        let rule = Rule::cron("0 2 * * *").expect("a good rule");
        let id = ScheduleId::derived(&rule, &Zone::utc());
        assert_eq!(id.as_str(), "auto-d4fa80da276205f9", "stored state refers to it");
        let berlin = Zone::named("Europe/Berlin").expect("a zone");
        assert_ne!(id, ScheduleId::derived(&rule, &berlin));
    }

    #[test]
    fn borders_between_parts_count() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }
}
