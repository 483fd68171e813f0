//! Errors that keep the engine from starting, or end it.

use crate::store::{CommitError, LoadError};

/// The engine cannot start, or ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Another epoch writes.
    #[error("another server has taken over this store")]
    EpochReplaced(#[source] CommitError),
    /// The thread that writes has panicked.
    #[error("the store's thread has ended by a fault of its own; nothing is written any more")]
    StoreThreadEnded,
    /// The system gives no thread.
    #[error("cannot start a thread of the engine")]
    Thread(#[source] std::io::Error),
}
