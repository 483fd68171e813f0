//! Rebuilds the scheduler from what a start reads. Reading rows takes about as long as rebuilding, so each has a thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use protocol::order::Intervals;
use protocol::{Now, Revision};
use scheduler::{Config, Counters, PriorityAgeing, Scheduler, ServerLimits};

use super::EngineError;
use crate::clock;
use crate::config::jobs_file;
use crate::events::FeedState;
use crate::params::params_of_result;
use crate::store::{JobOrigin, LiveJob, LoadError, LoadItem, Loaded, Store, StoredDefinition};

/// Members of a large batch that are added in one transaction, together with other inputs.
const SLICE: usize = 1_000;
/// Jobs that go to the other thread at once.
const CHUNK: usize = 1_000;
/// Chunks that may wait there: some megabytes.
const CHUNKS_WAITING: usize = 4;

/// Settings for the jobs of all definitions together.
#[derive(Clone, Copy, Debug)]
pub struct JobSettings {
    /// Jobs that have not ended.
    pub live_max: usize,
    /// Jobs that run, and jobs that wait.
    pub server: ServerLimits,
    /// Growth of the priority of waiting jobs.
    pub priority_ageing: PriorityAgeing,
    /// The wait for resources after which a worker is set aside for a job; never if absent.
    pub set_aside_after: Option<Duration>,
}

/// Only the number of jobs that have not ended is limited.
impl From<usize> for JobSettings {
    fn from(live_max: usize) -> Self {
        Self {
            live_max,
            server: ServerLimits::default(),
            priority_ageing: PriorityAgeing::OFF,
            set_aside_after: None,
        }
    }
}

/// The state of a store, rebuilt.
pub(super) struct Rebuilt {
    /// The state beside the live jobs.
    pub(super) loaded: Loaded,
    /// The scheduler with the live jobs.
    pub(super) scheduler: Scheduler,
    /// The same state for the event feed.
    pub(super) known: FeedState,
}

/// Loads a store under a new epoch.
pub(super) fn rebuild(
    store: &mut dyn Store,
    intervals: Intervals,
    settings: JobSettings,
) -> Result<Rebuilt, EngineError> {
    let now = clock::now();
    thread::scope(|scope| {
        let (parts, inbox) = mpsc::sync_channel(CHUNKS_WAITING);
        let spawned = thread::Builder::new()
            .name("rebuild".to_owned())
            .spawn_scoped(scope, move || take_all(inbox, now));
        let rebuilding = spawned.map_err(EngineError::Thread)?;
        let mut reader = Reader { now, intervals, settings, parts, chunk: Vec::new() };
        let loaded = store.load(&mut |item| reader.pass_on(item));
        reader.flush();
        drop(reader);
        let rebuilt = join(rebuilding);
        let loaded = loaded?;
        let (scheduler, known) = rebuilt?.finish(&loaded);
        Ok(Rebuilt { loaded, scheduler, known })
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A part of the state, for the thread that rebuilds. Parts come in this order, but for definitions, each of which comes before its first job.
enum Part {
    Base(Box<Rebuilding>),
    Definition(StoredDefinition),
    Jobs(Vec<(LiveJob, JobOrigin)>),
}

/// Passes parts on. A send fails only if the other thread has returned early or has panicked; [`join`] passes its error or panic on.
struct Reader {
    now: Now,
    intervals: Intervals,
    settings: JobSettings,
    parts: SyncSender<Part>,
    chunk: Vec<(LiveJob, JobOrigin)>,
}

impl Reader {
    fn pass_on(&mut self, item: LoadItem<'_>) {
        match item {
            LoadItem::Base(loaded) => {
                let base = Rebuilding::begin(self.now, self.intervals, self.settings, loaded);
                let _ = self.parts.send(Part::Base(Box::new(base)));
            }
            LoadItem::Definition(stored) => {
                let _ = self.parts.send(Part::Definition(stored.clone()));
            }
            LoadItem::Job(job, origin) => {
                self.chunk.push((job, origin));
                if self.chunk.len() >= CHUNK {
                    self.flush();
                }
            }
        }
    }

    fn flush(&mut self) {
        let next = Vec::with_capacity(CHUNK);
        let _ = self.parts.send(Part::Jobs(std::mem::replace(&mut self.chunk, next)));
    }
}

/// Takes all parts. After a fault, jobs are ignored, and definitions are still read: the log names each that cannot be parsed.
fn take_all(parts: Receiver<Part>, now: Now) -> Result<Rebuilding, LoadError> {
    let Ok(Part::Base(mut rebuilding)) = parts.recv() else {
        return Err(LoadError::Unusable("the store has passed nothing on".to_owned()));
    };
    let mut restored = Ok(());
    for part in parts {
        match part {
            Part::Base(base) => rebuilding = base,
            Part::Definition(stored) => rebuilding.definition(&stored),
            Part::Jobs(jobs) if restored.is_ok() => {
                restored = jobs.into_iter().try_for_each(|(job, origin)| rebuilding.job(now, job, origin));
            }
            Part::Jobs(_) => {}
        }
    }
    restored.map(|()| *rebuilding).map_err(LoadError::Unusable)
}

/// A scheduler that is being rebuilt.
struct Rebuilding {
    scheduler: Scheduler,
    known: FeedState,
    /// Definitions that cannot be parsed, with the reason.
    unparsed: HashMap<Revision, String>,
}

impl Rebuilding {
    fn begin(now: Now, intervals: Intervals, settings: JobSettings, loaded: &Loaded) -> Self {
        let mut known = FeedState::at(loaded.epoch, loaded.group);
        loaded.workers.iter().for_each(|row| known.restore_worker(row));
        loaded.parents.iter().for_each(|parent| known.restore_parent(parent));
        let config = Config {
            cluster: loaded.cluster,
            epoch: loaded.epoch,
            intervals,
            seed: rand::random(),
            slice: SLICE,
            jobs_max: settings.live_max,
            server_limits: settings.server,
            priority_ageing: settings.priority_ageing,
            set_aside_after: settings.set_aside_after,
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
            scheduler.restore_worker(now, worker.clone());
        }
        scheduler.restore_schedules(loaded.schedules.clone());
        scheduler.restore_expectations(loaded.expectations.clone());
        scheduler.restore_rates(now, &loaded.rates);
        loaded.batches.iter().for_each(|batch| scheduler.restore_batch(batch.clone()));
        scheduler.restore_parents(loaded.parents.clone());
        Self { scheduler, known, unparsed: HashMap::new() }
    }

    fn definition(&mut self, stored: &StoredDefinition) {
        self.known.restore_definition(stored);
        match jobs_file::parse_stored(stored) {
            Ok(definition) => self.scheduler.restore_definition(Arc::new(definition)),
            // Fatal only if a live job needs it: see `job`.
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(name = stored.name, why, "a stored definition cannot be parsed");
                self.unparsed
                    .insert(stored.revision, format!("definition {} of a waiting job: {why}", stored.name));
            }
        }
    }

    fn job(&mut self, now: Now, job: LiveJob, origin: JobOrigin) -> Result<(), String> {
        if let Some(why) = self.unparsed.get(&job.revision) {
            return Err(why.clone());
        }
        self.known.restore_job(&job, origin);
        let id = job.job;
        match self.scheduler.restore_job(now, job) {
            true => Ok(()),
            false => Err(format!("job {id} refers to a definition that is not stored")),
        }
    }

    /// Adds the unconfirmed stops last: the scheduler asks about them in the runtime that their definitions name.
    fn finish(mut self, loaded: &Loaded) -> (Scheduler, FeedState) {
        self.scheduler.restore_unconfirmed(&loaded.unconfirmed);
        self.scheduler.restore_unique(&loaded.unique);
        self.scheduler.restore_dependencies(&loaded.dependencies);
        (self.scheduler, self.known)
    }
}

#[cfg(test)]
mod tests {
    use protocol::order::Intervals;
    use protocol::{AttemptNo, JobId, Timestamp};
    use scheduler::job::State;

    use super::*;

    const REVISION: Revision = Revision(7);

    /// The state that the base and these parts make.
    fn rebuilt(later: Vec<Part>) -> Result<Rebuilding, LoadError> {
        let now = clock::now();
        let base = Rebuilding::begin(now, Intervals::default(), 10.into(), &Loaded::default());
        let (parts, inbox) = mpsc::sync_channel(later.len() + 1);
        for part in std::iter::once(Part::Base(Box::new(base))).chain(later) {
            parts.send(part).expect("there is room");
        }
        drop(parts);
        take_all(inbox, now)
    }

    fn job(number: u64) -> (LiveJob, JobOrigin) {
        let job = LiveJob {
            job: JobId(number),
            revision: REVISION,
            state: State::Queued,
            priority: 0,
            due_at: Timestamp(0),
            expires_at: None,
            timeout: None,
            has_overrides: false,
            narrowing: None,
            keys: None,
            job_failures: 0,
            oom_kills: 0,
            losses: Vec::new(),
            attempts: AttemptNo(0),
            has_started: false,
            hook_depth: 0,
            last: None,
            lost: Vec::new(),
            gpus: Default::default(),
            attempt: None,
        };
        (job, JobOrigin { created_at: Timestamp(0), batch: None })
    }

    fn damaged() -> Part {
        Part::Definition(StoredDefinition {
            revision: REVISION,
            name: "report".to_owned(),
            entry: "{}".to_owned(),
        })
    }

    #[test]
    fn a_damaged_definition_matters_only_to_a_job_of_it() {
        assert!(rebuilt(vec![damaged()]).is_ok());
        let refused = rebuilt(vec![damaged(), Part::Jobs(vec![job(1)]), Part::Jobs(vec![job(2)])]);
        let why = refused.err().expect("the job needs its definition").to_string();
        assert!(why.contains("definition report of a waiting job: ") && why.contains("damaged"), "{why}");
    }

    #[test]
    fn a_job_without_a_definition_is_named() {
        let refused = rebuilt(vec![Part::Jobs(vec![job(3)])]);
        let why = refused.err().expect("no definition").to_string();
        assert!(why.contains("job 3 refers to a definition that is not stored"), "{why}");
    }

    #[test]
    fn a_store_that_hands_out_nothing_is_refused() {
        let (parts, inbox) = mpsc::sync_channel::<Part>(1);
        drop(parts);
        let why = take_all(inbox, clock::now()).err().expect("nothing").to_string();
        assert!(why.contains("passed nothing on"), "{why}");
    }
}
