//! Names of limits, within this process and for good.

use alloc::sync::Arc;
use core::fmt;

use protocol::Timestamp;

/// Names a limit within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitNo(pub u32);

/// Names a limit for good: in the store and the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitId {
    /// Kind of the limit.
    pub kind: LimitKind,
    /// The definition, the group, or the number of the batch.
    pub name: Arc<str>,
    /// The value of its key, if it has one.
    pub key: Option<Arc<str>>,
}

/// Kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// Permits of a definition.
    Definition,
    /// Permits of a group.
    Group,
    /// Permits of a batch.
    Batch,
    /// The rate of a definition.
    Rate,
}

impl LimitKind {
    /// All kinds, in their order.
    pub const ALL: [Self; 4] = [Self::Definition, Self::Group, Self::Batch, Self::Rate];

    /// Name in the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Group => "group",
            Self::Batch => "batch",
            Self::Rate => "rate",
        }
    }
}

/// As people read it: `resize`, `group db-main`, `batch 12`, `rate of resize`, each with its key in brackets.
impl fmt::Display for LimitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            LimitKind::Definition => write!(f, "{}", self.name)?,
            LimitKind::Group => write!(f, "group {}", self.name)?,
            LimitKind::Batch => write!(f, "batch {}", self.name)?,
            LimitKind::Rate => write!(f, "rate of {}", self.name)?,
        }
        match &self.key {
            Some(key) => write!(f, " [{key}]"),
            None => Ok(()),
        }
    }
}

/// The limits that the jobs of one lane need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredLimits {
    /// Permits of jobs at once, of a definition or a group.
    pub permit: Option<LimitNo>,
    /// Permits of jobs at once, of a batch.
    pub batch: Option<LimitNo>,
    /// Tokens of a rate.
    pub token: Option<LimitNo>,
}

impl RequiredLimits {
    /// All of them.
    pub fn all(self) -> impl Iterator<Item = LimitNo> {
        self.permits().chain(self.token)
    }

    /// Those of permits.
    pub fn permits(self) -> impl Iterator<Item = LimitNo> {
        self.permit.into_iter().chain(self.batch)
    }
}

/// The stored state of a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateRow {
    /// The limit.
    pub id: LimitId,
    /// When it has recovered from all starts.
    pub recovered: Timestamp,
}
