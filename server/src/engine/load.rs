//! Starts the engine: loads the store under a new epoch, and rebuilds the scheduler from the jobs that have not ended.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::order::Intervals;
use protocol::{Now, Revision};
use scheduler::input::GroupNo;
use scheduler::{Config, Counters, PriorityAgeing, Scheduler, ServerLimits};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::dispatch::EffectDispatcher;
use super::group::OpenGroup;
use super::joins::JoinLimiter;
use super::refused::Refused;
use super::writer::StoreWriter;
use super::{CommitClock, Engine, EngineError, EngineHandles, Handle, OverridesCache, SessionInbox};
use crate::auth::workers::WorkerRegistry;
use crate::catalogue::Definitions;
use crate::clock;
use crate::config::jobs_file;
use crate::events::{self, Known};
use crate::params::params_of_result;
use crate::store::{LiveJob, LoadError, LoadItem, Loaded, Store, StoredDefinition, Unconfirmed};

/// Commands that may wait for the engine; beyond that, HTTP answers 503 with `Retry-After`.
const COMMANDS_WAITING: usize = 4_096;
/// Batches of reports that may wait; beyond that, workers' sockets are not read.
const REPORTS_WAITING: usize = 1_024;
/// Members of a large batch that are added in one transaction, together with other inputs.
const SLICE: usize = 1_000;

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
        let mut restore = Restore {
            now: clock::now(),
            intervals,
            jobs: jobs.into(),
            scheduler: None,
            known: Known::default(),
            unparsed: HashMap::new(),
            failed: None,
        };
        let loaded = store.load(&mut |item| restore.add(item))?;
        let (mut scheduler, mut known) = restore.finish(&loaded.unconfirmed)?;
        scheduler.restore_unique(&loaded.unique);
        scheduler.restore_dependencies(&loaded.dependencies);
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
            under_way: None,
            commit,
            next_group: GroupNo(loaded.group.0 + 1),
            next_ticket: 1,
            snapshot_at: Instant::now(),
            snapshot_due: false,
            snapshot_urgent: false,
            last_turn: Arc::default(),
            clock: clock::Watch::new(clock::now()),
        };
        engine.scheduler.begin(engine.next_group);
        engine.define(definitions);
        let handles = EngineHandles {
            record_writer: engine.writer.record_writer(loaded.epoch),
            remover: engine.writer.remover(loaded.epoch, handle.health()),
            handle,
            gate: SessionInbox { inbox: report_inbox, epoch: loaded.epoch },
            overrides,
            cluster: loaded.cluster,
            retention_by: loaded.retention_by,
            workers,
            event_feed,
            events,
            metrics,
        };
        Ok((engine, handles))
    }
}

/// Settings for the jobs of all definitions together.
#[derive(Clone, Copy, Debug)]
pub struct JobSettings {
    /// Jobs that have not ended.
    pub live_max: usize,
    /// Jobs that run, and jobs that wait.
    pub server: ServerLimits,
    /// Growth of the priority of waiting jobs.
    pub priority_ageing: PriorityAgeing,
}

/// Only the number of jobs that have not ended is limited.
impl From<usize> for JobSettings {
    fn from(live_max: usize) -> Self {
        Self { live_max, server: ServerLimits::default(), priority_ageing: PriorityAgeing::OFF }
    }
}

/// A scheduler that is being rebuilt while the store hands out its state.
struct Restore {
    now: Now,
    intervals: Intervals,
    jobs: JobSettings,
    scheduler: Option<Scheduler>,
    /// The same state for the event feed.
    known: Known,
    /// Definitions that cannot be parsed, with the reason.
    unparsed: HashMap<Revision, String>,
    /// The first item that could not be restored. Later items are ignored.
    failed: Option<String>,
}

impl Restore {
    fn add(&mut self, item: LoadItem<'_>) {
        if self.failed.is_some() {
            return;
        }
        let restored = match item {
            LoadItem::Base(loaded) => {
                self.known = Known::at(loaded.epoch, loaded.group);
                loaded.workers.iter().for_each(|row| self.known.restore_worker(row));
                loaded.parents.iter().for_each(|parent| self.known.restore_parent(parent));
                self.scheduler = Some(self.begin(loaded));
                Ok(())
            }
            LoadItem::Definition(stored) => {
                self.known.restore_definition(stored);
                self.definition(stored);
                Ok(())
            }
            LoadItem::Job(job, origin) => {
                self.known.restore_job(&job, origin);
                self.job(job)
            }
        };
        self.failed = restored.err();
    }

    fn begin(&self, loaded: &Loaded) -> Scheduler {
        let config = Config {
            cluster: loaded.cluster,
            epoch: loaded.epoch,
            intervals: self.intervals,
            seed: rand::random(),
            slice: SLICE,
            jobs_max: self.jobs.live_max,
            server_limits: self.jobs.server,
            priority_ageing: self.jobs.priority_ageing,
            params_of_result,
        };
        let last = Counters {
            job: loaded.last_job,
            fence: loaded.last_fence,
            worker: loaded.last_worker,
            group: loaded.group,
        };
        let mut scheduler = Scheduler::new(config, last);
        for worker in &loaded.workers {
            scheduler.restore_worker(self.now, worker.clone());
        }
        scheduler.restore_schedules(loaded.schedules.clone());
        scheduler.restore_expectations(loaded.expectations.clone());
        scheduler.restore_rates(self.now, &loaded.rates);
        loaded.batches.iter().for_each(|batch| scheduler.restore_batch(*batch));
        scheduler.restore_parents(loaded.parents.clone());
        scheduler
    }

    fn definition(&mut self, stored: &StoredDefinition) {
        match jobs_file::parse_stored(stored) {
            Ok(definition) => {
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.restore_definition(Arc::new(definition));
                }
            }
            // Fatal only if a live job needs it: see `job`.
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(name = stored.name, why, "a stored definition cannot be parsed");
                self.unparsed
                    .insert(stored.revision, format!("definition {} of a waiting job: {why}", stored.name));
            }
        }
    }

    fn job(&mut self, job: LiveJob) -> Result<(), String> {
        if let Some(why) = self.unparsed.get(&job.revision) {
            return Err(why.clone());
        }
        let id = job.job;
        let is_restored = match &mut self.scheduler {
            Some(scheduler) => scheduler.restore_job(self.now, job),
            None => false,
        };
        if is_restored { Ok(()) } else { Err(format!("job {id} refers to a definition that is not stored")) }
    }

    /// Adds the unconfirmed stops last: the scheduler asks about them in the runtime that their definitions name.
    fn finish(self, unconfirmed: &[Unconfirmed]) -> Result<(Scheduler, Known), LoadError> {
        match (self.scheduler, self.failed) {
            (Some(mut scheduler), None) => {
                scheduler.restore_unconfirmed(unconfirmed);
                Ok((scheduler, self.known))
            }
            (_, failed) => {
                Err(LoadError::Unusable(failed.unwrap_or_else(|| "the store handed out nothing".into())))
            }
        }
    }
}
