//! A complete inventory of a worker, as `inventory` and `unconfirmed` compare it with the state.

use alloc::collections::{BTreeMap, BTreeSet};

use protocol::report::Phase;
use protocol::{RuntimeKind, SessionId, Token};

/// A complete inventory.
pub(crate) struct ReceivedInventory {
    pub(crate) session: SessionId,
    pub(crate) is_first: bool,
    pub(crate) known: BTreeMap<Token, Phase>,
    /// Runtimes whose part of the list is complete. A runtime that the worker does not offer any more says
    /// nothing about its earlier attempts.
    pub(crate) complete: BTreeSet<RuntimeKind>,
}
