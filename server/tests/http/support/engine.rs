//! A stand-in for engine and archive: it answers as they do, without a scheduler, and tests can inspect and change it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_server::engine::Command;
use longshore_server::store::{
    Archive, BatchFilter, BatchRow, BatchState, DependencyRecord, FailureStatus, FireFilter, FireRecord,
    GivenParams, HourlyEnds, JobFilter, JobRecord, JobRow, MemberOnWorker, OutputLimits, Pipeline, ReadError,
    ScheduleState, StoredDefinition,
};
use protocol::container::Overrides;
use protocol::{JobId, Revision, Timestamp, Token, WorkerId};
use scheduler::batches::BatchOptions;
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::input::{KeyHolder, Operation};
use scheduler::job::State;
use scheduler::new_jobs::NewJobs;
use scheduler::origin::Intervention;
use scheduler::pauses::PauseResult;
use scheduler::schedule::backfill::LedgerReading;
use scheduler::snapshot::Snapshot;
use scheduler::step::{Accepted, Answer, Note, PendingReason, Rejection};
use tokio::sync::{mpsc, watch};

use super::job_filter::fits;
use super::operations::{operate, show, update};
use super::world::World;

/// The stand-in, shared with the tests.
#[derive(Clone, Default)]
pub(crate) struct StandInEngine(Arc<Mutex<World>>);

impl StandInEngine {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> Result<MutexGuard<'_, World>, ReadError> {
        let world = self.world();
        if world.unreadable {
            return Err(ReadError(Box::new(std::io::Error::other("a secret of the disk"))));
        }
        Ok(world)
    }
}

impl Archive for StandInEngine {
    fn batch(&self, first: JobId) -> Result<Option<BatchRow>, ReadError> {
        Ok(self.read()?.batch(first))
    }

    fn batches(&self, _: &BatchFilter) -> Result<Vec<BatchRow>, ReadError> {
        Ok(Vec::new())
    }

    fn batch_dependents(&self, _: JobId, _: usize) -> Result<Vec<DependencyRecord>, ReadError> {
        Ok(Vec::new())
    }

    fn batch_states(&self, ids: &[JobId]) -> Result<Vec<(JobId, BatchState)>, ReadError> {
        let read = self.read()?;
        Ok(ids.iter().filter_map(|first| Some((*first, read.batch(*first)?.state))).collect())
    }

    fn members_on_workers(&self, _: JobId, _: usize) -> Result<Vec<MemberOnWorker>, ReadError> {
        Ok(Vec::new())
    }

    fn states(&self, ids: &[JobId]) -> Result<Vec<(JobId, String, State)>, ReadError> {
        let read = self.read()?;
        let known = read.jobs.iter().filter(|job| ids.contains(&job.row.job));
        Ok(known.map(|job| (job.row.job, job.row.definition.clone(), job.row.state)).collect())
    }

    fn instants_for_followers(&self, _: &[JobId]) -> Result<Vec<(JobId, String)>, ReadError> {
        Ok(Vec::new())
    }

    fn pipeline(&self, _: JobId, _: usize) -> Result<Pipeline, ReadError> {
        Ok(Pipeline { jobs: Vec::new(), is_whole: true })
    }

    fn retries(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, (JobId, State)>, ReadError> {
        let world = self.read()?;
        let retries = world.jobs.iter().filter_map(|it| Some((it.row.retry_of?, (it.row.job, it.row.state))));
        Ok(retries.filter(|(of, _)| ids.contains(of)).collect())
    }

    fn failures(&self, ids: &[JobId]) -> Result<Vec<FailureStatus>, ReadError> {
        let mut world = self.read()?;
        Ok(ids.iter().map(|id| world.record(id.0).row.failure.clone()).collect())
    }

    fn unresolved(&self) -> Result<BTreeMap<String, u64>, ReadError> {
        Ok(self.read()?.unresolved())
    }

    fn job(&self, id: JobId) -> Result<Option<JobRecord>, ReadError> {
        let mut world = self.read()?;
        world.job_reads += 1;
        Ok(world.jobs.iter().find(|record| record.row.job == id).cloned())
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, ReadError> {
        let world = self.read()?;
        let rows = world.jobs.iter().rev().map(|record| &record.row);
        Ok(rows.filter(|row| fits(filter, row)).take(filter.limit).cloned().collect())
    }

    fn key(&self, key: &str) -> Result<(Option<KeyHolder>, GroupNo), ReadError> {
        Ok((self.read()?.keys.get(key).copied(), GroupNo(1)))
    }

    fn keys_with(&self, prefix: &str) -> Result<Vec<String>, ReadError> {
        Ok(self.read()?.keys.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }

    fn overrides(&self, _ids: &[JobId]) -> Result<Vec<(JobId, Overrides)>, ReadError> {
        Ok(Vec::new())
    }

    fn given_params(&self, ids: &[JobId]) -> Result<Vec<GivenParams>, ReadError> {
        let params = |id: &JobId| self.job(*id).map(|job| job.map(|job| job.params).unwrap_or_default());
        ids.iter().map(|id| Ok(GivenParams { params: params(id)?, index: None })).collect()
    }

    fn attempts_of(&self, _worker: WorkerId, _tokens: &[Token]) -> Result<Vec<(Token, Revision)>, ReadError> {
        Ok(Vec::new())
    }

    fn unknown_attempts(&self, _tokens: &[Token]) -> Result<Vec<Token>, ReadError> {
        let mut world = self.world();
        if world.failing_lookups == 0 {
            return Ok(Vec::new());
        }
        world.failing_lookups -= 1;
        Err(ReadError("the disk does not answer".into()))
    }

    fn was_restored(&self) -> Result<bool, ReadError> {
        Ok(false)
    }

    fn definition(&self, revision: Revision) -> Result<Option<StoredDefinition>, ReadError> {
        Ok(self.read()?.stored.get(&revision).cloned())
    }

    fn revisions(&self, name: &str, limit: usize) -> Result<Vec<StoredDefinition>, ReadError> {
        let world = self.read()?;
        let named = world.revisions.iter().rev().filter_map(|it| world.stored.get(it));
        Ok(named.filter(|stored| stored.name == name).take(limit).cloned().collect())
    }

    fn definition_names(&self) -> Result<Vec<String>, ReadError> {
        let names: std::collections::BTreeSet<String> =
            self.read()?.jobs.iter().map(|record| record.row.definition.clone()).collect();
        Ok(names.into_iter().collect())
    }

    fn scheduled_jobs(&self) -> Result<BTreeMap<String, u64>, ReadError> {
        let mut counts = BTreeMap::new();
        for record in self.read()?.jobs.iter().filter(|record| record.row.state == State::Scheduled) {
            *counts.entry(record.row.definition.clone()).or_default() += 1;
        }
        Ok(counts)
    }

    fn workers(&self) -> Result<Vec<WorkerRow>, ReadError> {
        Ok(self.read()?.workers.clone())
    }

    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, ReadError> {
        Ok(self.read()?.workers.iter().find(|row| row.worker == id).cloned())
    }

    fn worker_named(&self, name: &str) -> Result<Option<WorkerId>, ReadError> {
        Ok(self.read()?.workers.iter().find(|row| &*row.name == name).map(|row| row.worker))
    }

    fn first_with_output(&self, ids: &[JobId], _: &OutputLimits) -> Result<Option<JobId>, ReadError> {
        Ok(ids.first().copied())
    }

    fn was_removed(&self, _id: JobId) -> Result<bool, ReadError> {
        Ok(false)
    }

    fn last_ended(&self, definition: &str) -> Result<Option<JobRow>, ReadError> {
        let world = self.read()?;
        let ended = |row: &&JobRow| row.definition == definition && row.state.has_ended();
        Ok(world.jobs.iter().rev().map(|record| &record.row).find(ended).cloned())
    }

    fn ends_by_hour(&self, since: Timestamp) -> Result<Vec<HourlyEnds>, ReadError> {
        let world = self.read()?;
        let mut hours: BTreeMap<i64, HourlyEnds> = BTreeMap::new();
        for row in world.jobs.iter().map(|record| &record.row) {
            let Some(ended_at) = row.ended_at.filter(|at| *at >= since) else { continue };
            let hour = ended_at.0.div_euclid(3_600_000);
            let ends = hours.entry(hour).or_insert(HourlyEnds { hour, ..HourlyEnds::default() });
            match row.state {
                State::Succeeded => ends.succeeded += 1,
                State::Failed | State::Expired | State::Lost => ends.failed += 1,
                _ => {}
            }
        }
        Ok(hours.into_values().collect())
    }

    fn schedules(&self) -> Result<ScheduleState, ReadError> {
        Ok(self.read()?.schedules.clone())
    }

    fn fires(&self, of: &str, filter: &FireFilter, limit: usize) -> Result<Vec<FireRecord>, ReadError> {
        Ok(self.read()?.fires_of(of, filter, limit))
    }

    fn ledger(
        &self,
        _: &str,
        _: &str,
        _: (protocol::Timestamp, protocol::Timestamp),
        _: usize,
    ) -> Result<(LedgerReading, GroupNo), ReadError> {
        let decided_until = self.world().decided_until;
        Ok((LedgerReading { decided_until, ..LedgerReading::default() }, GroupNo::default()))
    }
}

/// Answers as the engine does, without a scheduler.
pub(crate) async fn answer(
    mut commands: mpsc::Receiver<Command>,
    stand: StandInEngine,
    publish: watch::Sender<Arc<Snapshot>>,
) {
    while let Some(command) = commands.recv().await {
        let gate = stand.world().submission_gate.clone();
        if let (Command::Submit { .. }, Some(gate)) = (&command, gate) {
            gate.wait().await;
            gate.wait().await;
        }
        let mut world = stand.world();
        // The asking handler may have ended.
        let _ = match command {
            Command::Submit { jobs, batch, require_worker, key, reply } => {
                reply.send(submit(&mut world, jobs, batch, require_worker, key))
            }
            Command::Cancel { job, reply, .. } => reply.send(cancel(&mut world, job)),
            Command::CancelBatch { batch, reply, .. } => reply.send(world.cancel_batch(batch)),
            Command::Release { job, by, reply } => reply.send(release(&mut world, job, by)),
            Command::Update { job, update: values, by, reply } => {
                reply.send(update(&mut world, job, values, by))
            }
            Command::ReserveLabels { reply, .. } | Command::Backfill { reply, .. } => {
                reply.send(Answer::Done)
            }
            Command::Operate { worker, operation, reply } => {
                let known = world.workers.iter().any(|row| row.worker == worker);
                let answer = match (known, &operation, worker) {
                    (false, ..) => Answer::Rejected(Rejection::UnknownWorker),
                    (_, Operation::Forget, WorkerId(1)) => Answer::Rejected(Rejection::WorkerConnected),
                    (_, Operation::StopUnmanaged(Some(_)), _) => Answer::Rejected(Rejection::NotUnmanaged),
                    _ => Answer::Done,
                };
                if let Some(row) = world.workers.iter_mut().find(|row| row.worker == worker) {
                    operate(row, &operation);
                    publish.send_modify(|snapshot| show(Arc::make_mut(snapshot), row));
                }
                world.operations.push((worker, operation));
                reply.send(answer)
            }
            Command::Pause { target, paused, until, origin, reply } => {
                let in_force = Intervention { since: Timestamp(7_000), until, origin: origin.clone() };
                let in_force = Some(in_force).filter(|_| paused);
                let former = publish.borrow().pauses.get(&target).cloned();
                world.pause_ends.push(until);
                world.pauses.push((target, paused));
                world.pause_origins.push(origin);
                reply.send(Answer::Pause(PauseResult { former, in_force }.into()))
            }
            Command::ReplaceDefinitions { definitions } => {
                world.define(&definitions);
                continue;
            }
            Command::AddDefinition { .. } | Command::MissingSecrets(_) => continue,
            Command::PendingReasons { .. } | Command::ChangeBatch { .. } => continue,
            Command::Limits { selection, reply } => {
                world.limit_selections.push(selection);
                let _ = reply.send(world.limits.clone());
                continue;
            }
            Command::Explain { job, reply } => {
                let known = world.jobs.iter().any(|record| record.row.job == job);
                let _ = reply.send(world.explanation.clone().filter(|_| known));
                continue;
            }
            Command::AwaitEnd { job, reply } => {
                let live =
                    world.jobs.iter().any(|record| record.row.job == job && !record.row.state.has_ended());
                if live {
                    world.waiting.entry(job).or_default().push(reply);
                }
                continue;
            }
        };
    }
}

fn submit(
    world: &mut World,
    jobs: NewJobs,
    batch: Option<BatchOptions>,
    require_worker: bool,
    key: Option<scheduler::input::IdempotencyKey>,
) -> Answer {
    if let Some(key) = &key
        && let Some(found) = key.found
    {
        return match found.digest == key.digest {
            true => Answer::Replayed(found),
            false => Answer::Rejected(Rejection::KeyMismatch(found)),
        };
    }
    if jobs.iter().any(|job| !world.stored.contains_key(&job.revision)) {
        return Answer::Rejected(Rejection::UnknownDefinition);
    }
    if require_worker && let Some(reason) = world.pending {
        return Answer::Rejected(Rejection::NoWorker(reason));
    }
    if jobs.iter().any(|job| job.revision == Revision(4)) {
        return Answer::Rejected(Rejection::Disabled);
    }
    if let Some(job) = world.duplicate {
        return Answer::Duplicate(job);
    }
    let first = JobId(world.jobs.len() as u64 + 1);
    let count = jobs.len() as u32;
    for job in jobs {
        world.add(job, batch.as_ref().map(|_| first));
    }
    if let Some(key) = key {
        world.keys.insert(key.key.to_string(), KeyHolder { job: first, count, digest: key.digest });
    }
    Answer::Accepted(Accepted {
        first,
        count,
        created_at: Timestamp(1_000),
        state: State::Queued,
        pending: world.pending.or(Some(PendingReason::Soon)),
        replaces: None,
    })
}

fn cancel(world: &mut World, job: JobId) -> Answer {
    let state = world.jobs.iter().find(|record| record.row.job == job).map(|record| record.row.state);
    match state {
        Some(State::Running) => Answer::CancelRequested { state: State::Running },
        Some(state) if !state.has_ended() => {
            world.end(job.0, State::Cancelled, 0);
            Answer::CancelRequested { state: State::Cancelled }
        }
        _ => Answer::Rejected(Rejection::NotLive),
    }
}

fn release(world: &mut World, job: JobId, by: String) -> Answer {
    let Some(record) = world.jobs.iter_mut().find(|record| record.row.job == job) else {
        return Answer::Rejected(Rejection::NotLive);
    };
    match record.row.state {
        State::Quarantined => {
            record.row.state = State::Queued;
            record.notes.push((Timestamp(5_000), Note::Released { by }));
            Answer::Done
        }
        state if state.has_ended() => Answer::Rejected(Rejection::NotLive),
        state => Answer::Rejected(Rejection::NothingToRelease(state)),
    }
}
