//! Ranges of protocol versions.

use bincode::{Decode, Encode};

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct VersionRange {
    /// The oldest version.
    pub lowest: u16,
    /// The newest version.
    pub highest: u16,
}

impl VersionRange {
    /// The newest version that both sides speak.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u16> {
        let highest = self.highest.min(other.highest);
        (highest >= self.lowest.max(other.lowest)).then_some(highest)
    }
}
