//! The errors of a store. Each variant asks the caller for a reaction of its own.

use protocol::Epoch;

/// Why a store cannot be loaded. Each says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It belongs to something else, or to a newer Longshore, or is damaged.
    #[error("{0}")]
    Unusable(String),
    /// There is no store in the directory, but somebody else's things are.
    #[error("{0}")]
    Foreign(String),
    /// A file operation, or an operation of the database, failed.
    #[error("cannot read the store")]
    Io(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The reason why a group was not committed. Each variant asks for another reaction.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Another server writes under a later epoch: the engine must end.
    #[error("epoch {ours} is no longer the one that writes")]
    EpochReplaced {
        /// The epoch of the group.
        ours: Epoch,
    },
    /// The disk is full or busy: try the same group again, and answer nothing.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A change contradicts the rows: the process must end and rebuild its state from the store.
    #[error("the store refuses a change: {0}")]
    Refused(String),
    /// A read or sync failed, and must not be tried again in this process: the process must end.
    #[error("the disk failed")]
    Fatal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A read failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the store")]
pub struct ReadError(#[source] pub Box<dyn std::error::Error + Send + Sync>);
