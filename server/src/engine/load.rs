//! A start of the engine: the store is loaded under a new epoch, and the scheduler is made anew from what has not ended.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::Revision;
use protocol::order::Intervals;
use scheduler::input::GroupNo;
use scheduler::{Config, Counters, Scheduler};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::perform::Performer;
use super::refused::Refused;
use super::writer::Writer;
use super::{Bodies, CommitClock, Ends, Engine, EngineError, Gate, Handle, Open};
use crate::catalogue::Definitions;
use crate::clock;
use crate::config::jobs_file;
use crate::store::{LiveJob, LoadError, Loaded, Store};

/// How many commands may wait for the engine; above, HTTP answers 503 with `Retry-After`.
const COMMANDS_WAITING: usize = 4_096;
/// How many batches of reports may wait; above, workers' sockets are not read further.
const REPORTS_WAITING: usize = 1_024;
/// How many members of a large batch share a transaction with everybody else.
const SLICE: usize = 1_000;

impl Engine {
    /// Loads the store under a new epoch and makes the scheduler anew. `definitions` are those of jobs.yaml; at most `jobs_max` jobs that
    /// have not ended are taken on; in the directory `evidence` is, or will be, what the store refuses.
    ///
    /// # Errors
    /// The store cannot be loaded; nothing was written but the epoch.
    pub fn load(
        mut store: Box<dyn Store>,
        definitions: &Definitions,
        intervals: Intervals,
        jobs_max: usize,
        evidence: PathBuf,
    ) -> Result<(Self, Ends), EngineError> {
        let mut live = Vec::new();
        let mut loaded = store.load(&mut |job| live.push(job))?;
        let scheduler = restore(&mut loaded, live, intervals, jobs_max)?;
        let (command_inbox, commands) = mpsc::channel(COMMANDS_WAITING);
        let (report_inbox, reports) = mpsc::channel(REPORTS_WAITING);
        let (publish, snapshot) = watch::channel(Arc::new(scheduler.snapshot()));
        let bodies = Arc::new(Bodies::default());
        let commit = CommitClock::default();
        let refused = Arc::new(Refused::open(&evidence));
        let mut engine = Self {
            scheduler,
            writer: Writer::start(store, evidence, refused.clone()).map_err(EngineError::Thread)?,
            refused,
            carried: Vec::new(),
            performer: Performer::new(publish, bodies.clone()),
            commands,
            reports,
            bodies: bodies.clone(),
            epoch: loaded.epoch,
            open: Open::default(),
            under_way: None,
            commit: commit.clone(),
            next_group: GroupNo(loaded.group.0 + 1),
            next_ticket: 1,
            snapshot_at: Instant::now(),
            snapshot_due: false,
            snapshot_urgent: false,
            clock: clock::Watch::new(clock::now()),
        };
        engine.scheduler.begin(engine.next_group);
        engine.define(definitions);
        let ends = Ends {
            handle: Handle::new(command_inbox, snapshot, commit),
            gate: Gate { inbox: report_inbox, epoch: loaded.epoch },
            bodies,
            remover: engine.writer.remover(loaded.epoch),
            cluster: loaded.cluster,
            retention_by: loaded.retention_by,
        };
        Ok((engine, ends))
    }
}

fn restore(
    loaded: &mut Loaded,
    live: Vec<LiveJob>,
    intervals: Intervals,
    jobs_max: usize,
) -> Result<Scheduler, LoadError> {
    let now = clock::now();
    let config = Config {
        cluster: loaded.cluster,
        epoch: loaded.epoch,
        intervals,
        seed: rand::random(),
        slice: SLICE,
        jobs_max,
    };
    let last = Counters {
        job: loaded.last_job,
        fence: loaded.last_fence,
        worker: loaded.last_worker,
        group: loaded.group,
    };
    let mut scheduler = Scheduler::new(config, last);
    let needed: HashSet<Revision> = live.iter().map(|job| job.revision).collect();
    for stored in &loaded.definitions {
        match jobs_file::parse_stored(stored) {
            Ok(definition) => scheduler.restore_definition(Arc::new(definition)),
            Err(why) if needed.contains(&stored.revision) => {
                let what = format!("definition {} of a waiting job: {why}", stored.name);
                return Err(LoadError::Unusable(what));
            }
            Err(_) => {
                tracing::warn!(name = stored.name, "the definition of an ended job cannot be read any more")
            }
        }
    }
    for worker in std::mem::take(&mut loaded.workers) {
        scheduler.restore_worker(now, worker);
    }
    for unconfirmed in std::mem::take(&mut loaded.unconfirmed) {
        scheduler.restore_unconfirmed(unconfirmed);
    }
    for job in live {
        let id = job.job;
        if !scheduler.restore_job(now, job) {
            return Err(LoadError::Unusable(format!("job {id} refers to a definition that is not stored")));
        }
    }
    Ok(scheduler)
}
