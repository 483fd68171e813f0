//! State that the writer and the readers share.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::watch;

use super::output::AttemptKey;
use super::segments::SegmentSet;

/// State that the writer and the readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) segments: RwLock<SegmentSet>,
    /// Counts the appends to each followed attempt.
    pub(super) followed: Mutex<HashMap<AttemptKey, watch::Sender<u64>>>,
}

impl Shared {
    pub(super) fn segments(&self) -> RwLockReadGuard<'_, SegmentSet> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn segments_mut(&self) -> RwLockWriteGuard<'_, SegmentSet> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner)
    }
}
