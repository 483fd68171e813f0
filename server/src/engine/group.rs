//! The group that is being decided, and the effects that follow its commit.

use std::sync::Arc;

use protocol::{JobId, Timestamp};
use scheduler::explain::Explanation;
use scheduler::limits::LimitsReport;
use scheduler::snapshot::Snapshot;
use scheduler::step::{Change, Effect};
use tokio::sync::oneshot;

use super::command::PendingReasons;
use super::refused::Fingerprint;
use crate::store::{DefinitionHashes, Group, StoredDefinition};

/// The group that is being decided.
#[derive(Debug, Default)]
pub(super) struct OpenGroup {
    pub(super) changes: Vec<Change>,
    pub(super) definitions: Vec<Arc<StoredDefinition>>,
    /// All definitions, if they were loaded in this group.
    pub(super) loaded: Option<Arc<DefinitionHashes>>,
    pub(super) effects: GroupEffects,
    /// The fingerprints of its inputs, recorded if the store refuses the group.
    pub(super) fingerprints: Vec<Fingerprint>,
    /// True if the group takes no more inputs, because one of them or the next one is suspected.
    pub(super) closed: bool,
}

/// Everything that happens after a group's commit.
#[derive(Debug, Default)]
pub(super) struct GroupEffects {
    pub(super) list: Vec<Effect>,
    /// Waiters for jobs that had already left the scheduler: dropped once the end is durable.
    pub(super) not_live: Vec<oneshot::Sender<scheduler::job::State>>,
    /// Explanations, which may be based on changes that are not durable yet.
    pub(super) explanations: Vec<(oneshot::Sender<Option<Explanation>>, Option<Explanation>)>,
    /// State of limits, likewise.
    pub(super) limits: Vec<(oneshot::Sender<LimitsReport>, LimitsReport)>,
    /// Reasons of waiting jobs, likewise.
    pub(super) reasons: Vec<(oneshot::Sender<PendingReasons>, PendingReasons)>,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// The committed group, for the event feed; none if it had no changes.
    pub(super) group: Option<Arc<Group>>,
    /// Jobs whose attempts have changed: their watchers wake.
    pub(super) changed_jobs: Vec<JobId>,
}

impl GroupEffects {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
            && self.not_live.is_empty()
            && self.explanations.is_empty()
            && self.limits.is_empty()
            && self.reasons.is_empty()
            && self.snapshot.is_none()
    }
}

impl OpenGroup {
    /// Takes everything that is to be committed, as decided at this instant.
    pub(super) fn take_changes(&mut self, at: Timestamp) -> Group {
        let (definitions, changes) =
            (std::mem::take(&mut self.definitions), std::mem::take(&mut self.changes));
        Group { at, definitions, changes, loaded: self.loaded.take(), ..Group::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.definitions.is_empty() && self.effects.is_empty()
    }
}
