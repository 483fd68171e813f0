//! Starts the engine on what a store holds.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::order::Intervals;
use scheduler::ids::GroupNo;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::dispatch::EffectDispatcher;
use super::group::OpenGroup;
use super::joins::JoinLimiter;
use super::rebuild::{JobSettings, Rebuilt, rebuild};
use super::refused::Refused;
use super::writer::StoreWriter;
use super::{CommitClock, Engine, EngineError, EngineHandles, Handle, OverridesCache, SessionInbox};
use crate::auth::workers::WorkerRegistry;
use crate::catalogue::Definitions;
use crate::clock;
use crate::events;
use crate::store::Store;

/// Commands that may wait for the engine; beyond that, HTTP answers 503 with `Retry-After`.
const COMMANDS_WAITING: usize = 4_096;
/// Batches of reports that may wait; beyond that, workers' sockets are not read.
const REPORTS_WAITING: usize = 1_024;

impl Engine {
    /// Loads the store under a new epoch and rebuilds the scheduler. `definitions` are those of jobs.yaml; `limits` bound the jobs of
    /// all definitions together; reports of refused groups are kept in `data_dir`.
    ///
    /// # Errors
    /// The store cannot be loaded; nothing was written but the epoch.
    pub fn load(
        mut store: Box<dyn Store>,
        definitions: &Definitions,
        intervals: Intervals,
        jobs: impl Into<JobSettings>,
        data_dir: PathBuf,
    ) -> Result<(Self, EngineHandles), EngineError> {
        let Rebuilt { loaded, mut scheduler, mut known } = rebuild(store.as_mut(), intervals, jobs.into())?;
        let (command_inbox, commands) = mpsc::channel(COMMANDS_WAITING);
        let (report_inbox, reports) = mpsc::channel(REPORTS_WAITING);
        let first = Arc::new(scheduler.snapshot());
        known.restore_snapshot(first.clone());
        let metrics = known.metrics();
        let (event_sender, event_feed, events) = events::channel(known);
        let (publish, snapshot) = watch::channel(first);
        let overrides = Arc::new(OverridesCache::default());
        let commit = CommitClock::default();
        let handle = Handle::new(command_inbox, snapshot, commit.clone());
        let refused = Arc::new(Refused::open(&data_dir, handle.health()));
        let workers = Arc::new(WorkerRegistry::new(&loaded.workers));
        let mut engine = Self {
            scheduler,
            writer: StoreWriter::start(store, data_dir, refused.clone()).map_err(EngineError::Thread)?,
            refused,
            unanswered: Vec::new(),
            dispatcher: EffectDispatcher::new(
                publish,
                overrides.clone(),
                handle.watches().clone(),
                event_sender,
            ),
            commands,
            reports,
            overrides: overrides.clone(),
            epoch: loaded.epoch,
            notify: definitions.notify_rules(),
            joins: JoinLimiter::new(&loaded.workers),
            workers: workers.clone(),
            open: OpenGroup::default(),
            in_flight: None,
            commit,
            next_group: GroupNo(loaded.group.0 + 1),
            next_ticket: 1,
            snapshot_at: Instant::now(),
            snapshot_due: false,
            snapshot_urgent: false,
            explains: Vec::new(),
            last_turn: Arc::default(),
            clock: clock::Watch::new(clock::now()),
        };
        engine.scheduler.begin(engine.next_group);
        engine.define(clock::now(), definitions);
        let handles = EngineHandles {
            record_writer: engine.writer.record_writer(loaded.epoch),
            remover: engine.writer.remover(loaded.epoch, handle.health()),
            handle,
            session_inbox: SessionInbox { inbox: report_inbox, epoch: loaded.epoch },
            overrides,
            cluster: loaded.cluster,
            last_retention_time: loaded.last_retention_time,
            workers,
            event_feed,
            events,
            metrics,
        };
        Ok((engine, handles))
    }
}
