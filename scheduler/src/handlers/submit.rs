//! Accepts jobs: all jobs of a request, or none.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use protocol::{JobId, Now, Revision, Timestamp};

use crate::batches::BatchOptions;
use crate::core::Scheduler;
use crate::explain::pending;
use crate::handlers::{self, admission, batch, batch_unique, dependency, narrowing, run_on, unique};
use crate::ids::DefinitionNo;
use crate::input::{KeyHolder, Submit};
use crate::job::{Job, LiveState};
use crate::limits::gate;
use crate::limits::keys::{JobKeys, KeySetNo};
use crate::new_jobs::NewJob;
use crate::pending_batch::{Demand, is_large};
use crate::placement;
use crate::queue::{LaneKey, QueueKey};
use crate::run_on::RunOnRole;
use crate::state::State;
use crate::step::{AddedJob, Answer, Change, PendingReason, Rejection};
use crate::timers::WallTimer;

pub(crate) fn submit(scheduler: &mut Scheduler, now: Now, mut request: Submit) {
    let ticket = request.ticket;
    match check(scheduler, now.utc, &mut request) {
        Err(rejection) => scheduler.reply(ticket, Answer::Rejected(rejection)),
        Ok(CheckedRequest::Replay(holder)) => scheduler.reply(ticket, Answer::Replayed(holder)),
        // The last slice of that batch answers both requests.
        Ok(CheckedRequest::JoinsPending) => {}
        Ok(CheckedRequest::UniqueKeyTaken(job)) => scheduler.reply(ticket, Answer::Duplicate(job)),
        Ok(CheckedRequest::BatchExists { first, count }) => {
            scheduler.reply(ticket, Answer::ExistingBatch { first, count });
        }
        Ok(CheckedRequest::New(definitions, demand))
            if is_large(request.jobs.iter(), scheduler.config.slice) =>
        {
            handlers::queue_batch(scheduler, request, definitions, demand);
        }
        Ok(CheckedRequest::New(..)) => accept(scheduler, now, request),
    }
}

/// Result of the checks of a request.
enum CheckedRequest {
    /// A request with the same idempotency key was accepted before.
    Replay(KeyHolder),
    /// A batch with the same idempotency key is being created; the request waits for its answer.
    JoinsPending,
    /// All of its jobs have unique keys that are taken; the first one by this job.
    UniqueKeyTaken(JobId),
    /// This batch with this number of members has the unique key of the one that was asked for.
    BatchExists { first: JobId, count: u32 },
    /// The request is new and may be accepted; its jobs have these definitions, and are counted by these limits.
    New(BTreeSet<DefinitionNo>, Demand),
}

fn check(
    scheduler: &mut Scheduler,
    now: Timestamp,
    request: &mut Submit,
) -> Result<CheckedRequest, Rejection> {
    if let Some(key) = &request.idempotency_key {
        if let Some(batch) = scheduler.pending_batches.keyed(&key.key) {
            let waits = batch.join(request.ticket, key.digest);
            return if waits {
                Ok(CheckedRequest::JoinsPending)
            } else {
                Err(Rejection::TooManyPendingBatches)
            };
        }
        if let Some(holder) = scheduler.keys.holder(key)? {
            return Ok(CheckedRequest::Replay(holder));
        }
    }
    narrowing::learn(scheduler, &request.jobs)?;
    if request.require_worker {
        // After the narrowings: their conditions have moved workers to other classes.
        scheduler.fleet.regroup();
    }
    let mut last = None;
    let mut found = BTreeSet::new();
    for job in request.jobs.iter() {
        // Most batches have one definition, which is looked up once.
        let of = (job.revision, job.narrowing.as_ref());
        if last.replace(of) == Some(of) {
            continue;
        }
        let number = scheduler.number_of(job).ok_or(Rejection::UnknownDefinition)?;
        if found.insert(number) {
            check_definition(scheduler, number, request.require_worker)?;
        }
    }
    if let Some((first, count)) = batch_unique::check(scheduler, request.batch.as_ref())? {
        return Ok(CheckedRequest::BatchExists { first, count });
    }
    let is_batch = request.batch.is_some();
    if let Some(job) = unique::leave_out_duplicates(scheduler, &mut request.jobs, &found, is_batch)? {
        return Ok(CheckedRequest::UniqueKeyTaken(job));
    }
    if !has_room(scheduler, request.jobs.len()) {
        return Err(Rejection::QueueFull { jobs_max: scheduler.config.jobs_max, asked: request.jobs.len() });
    }
    let demand = admission::check(scheduler, now, request.jobs.iter())?;
    dependency::check(scheduler, &request.jobs)?;
    Ok(CheckedRequest::New(found, demand))
}

/// There is room for this many further jobs. Members of large batches count before they are created.
pub(crate) fn has_room(scheduler: &Scheduler, more: usize) -> bool {
    scheduler.jobs.len().saturating_add(scheduler.pending_batches.to_be_made()).saturating_add(more)
        <= scheduler.config.jobs_max
}

fn check_definition(
    scheduler: &Scheduler,
    number: DefinitionNo,
    require_worker: bool,
) -> Result<(), Rejection> {
    let definition = scheduler.definitions.at(number).ok_or(Rejection::UnknownDefinition)?;
    if !definition.enabled {
        return Err(Rejection::Disabled);
    }
    if require_worker {
        // Workers do not matter as long as it is held back.
        if let Some(reason) = pending::why_held_back(scheduler, number) {
            return Err(Rejection::NoWorker(reason));
        }
        let reason = pending::why_waiting(scheduler, LaneKey::Definition(number, KeySetNo::UNLIMITED));
        if reason < PendingReason::Busy {
            return Err(Rejection::NoWorker(reason));
        }
    }
    Ok(())
}

fn accept(scheduler: &mut Scheduler, now: Now, request: Submit) {
    let first = JobId(scheduler.counters.job.0 + 1);
    let count = u32::try_from(request.jobs.len()).unwrap_or(u32::MAX);
    let batch = request.batch.as_ref().map(|_| first);
    scheduler.out.changes.reserve(request.jobs.len() + 2);
    let unique_key = request.batch.as_ref().and_then(BatchOptions::unique_key);
    if let Some(options) = request.batch {
        batch::begin(scheduler, now.utc, first, count, options);
    }
    let mut found: Option<(Revision, DefinitionNo)> = None;
    for new in request.jobs {
        let number = match found {
            Some((revision, number)) if revision == new.revision && new.narrowing.is_none() => Some(number),
            _ => scheduler.number_of(&new),
        };
        // `check` found every definition just before.
        let Some(number) = number else { continue };
        found = new.narrowing.is_none().then_some((new.revision, number));
        create(scheduler, now, new, number, batch);
    }
    if let Some(key) = request.idempotency_key {
        let holder = KeyHolder { job: first, count, digest: key.digest };
        scheduler.keys.remember(scheduler.counters.group, key.key.clone(), holder);
        scheduler.change(Change::IdempotencyKeyStored { key: key.key, holder, at: now.utc });
    }
    // The members of the other batch are cancelled only now: a hook of one of them must not get a number among those of the new ones.
    let replaces = batch_unique::take_key(scheduler, now, first, unique_key);
    scheduler.reply_accepted(request.ticket, first, count, now.utc, replaces);
}

/// Creates one job that was admitted, with its timers, and makes room for it if its definition says so.
pub(crate) fn create(
    scheduler: &mut Scheduler,
    now: Now,
    mut new: NewJob,
    number: DefinitionNo,
    batch: Option<JobId>,
) -> JobId {
    let id = JobId(scheduler.counters.job.0 + 1);
    scheduler.counters.job = id;
    let claim = unique::make_way(scheduler, now, &mut new, id);
    let wait = add(scheduler, now.utc, id, new, number, batch);
    begin_wait(scheduler, id, wait);
    if let Some(claim) = claim {
        unique::put(scheduler, claim);
    }
    admission::make_room(scheduler, now, id);
    id
}

/// Sets the timers of a new job, or adds it to its lane.
pub(crate) fn begin_wait(scheduler: &mut Scheduler, id: JobId, wait: InitialWait) {
    match wait {
        InitialWait::Until(at) => scheduler.timers.set_wall(at, WallTimer::Due(id)),
        InitialWait::In(lane, key) => {
            scheduler.ready.push(lane, key);
            gate::enter_queue(scheduler, lane, id);
        }
        InitialWait::Members => run_on::begin(scheduler, id),
        InitialWait::Others => {}
    }
    handlers::expire::arm(scheduler, id);
}

/// Counts a job that has not ended among those of its limits.
pub(crate) fn count_in(scheduler: &mut Scheduler, id: JobId, job: &mut Job, limit_keys: Option<&JobKeys>) {
    let Some(definition) = scheduler.definitions.at(job.definition) else { return };
    let with_batch = scheduler.batches.permits(job.role().numbered_as(id)).map(|permits| {
        let own = limit_keys.cloned().unwrap_or_default();
        JobKeys { batch: Some(permits), ..own }
    });
    let key_set = scheduler.limits.add_job((job.definition, definition), with_batch.as_ref().or(limit_keys));
    if key_set.is_keyed() {
        job.extras_mut().key_set = key_set;
    }
}

/// The first thing that a new job waits for.
pub(crate) enum InitialWait {
    /// Scheduled for this time.
    Until(Timestamp),
    /// Queued in this lane.
    In(LaneKey, QueueKey),
    /// Members that run in its place.
    Members,
    /// The ends of other jobs: those of `after`, or an earlier one of its schedule or of its unique key.
    Others,
}

/// Creates a job. [`begin_wait`] sets its timers or adds it to its lane; members of a large batch wait until all are made.
pub(crate) fn add(
    scheduler: &mut Scheduler,
    created_at: Timestamp,
    id: JobId,
    new: NewJob,
    number: DefinitionNo,
    batch: Option<JobId>,
) -> InitialWait {
    let default_priority = scheduler.definitions.at(number).map_or(0, |definition| definition.priority);
    let mut job = Job {
        definition: number,
        priority: new.priority.unwrap_or(default_priority),
        has_overrides: new.details.as_ref().is_some_and(|details| details.has_overrides()),
        due_at: new.run_at.map_or(created_at, |start| start.resolve(created_at)),
        live_state: LiveState::Scheduled,
        extras: None,
    };
    if new.timeout.is_some() {
        job.extras_mut().timeout = new.timeout;
    }
    if new.hook_depth > 0 {
        job.extras_mut().hook_depth = new.hook_depth;
    }
    let definition = scheduler.definitions.at(number).cloned();
    let plan = definition.as_ref().and_then(|definition| run_on::plan_of(definition, new.members));
    let limit_keys =
        definition.and_then(|definition| JobKeys::of(&definition.limits, new.details.as_deref()));
    let parent = plan.map(|plan| run_on::new_row(id, plan));
    // The limits count its members, not the parent itself.
    if parent.is_some() {
        job.extras_mut().role = RunOnRole::Parent;
    } else {
        count_in(scheduler, id, &mut job, limit_keys.as_ref());
    }
    let has_dependencies = dependency::waits(&new.after);
    let (state, wait) = if has_dependencies || new.waits_for_earlier {
        (State::Scheduled, InitialWait::Others)
    } else if job.due_at > created_at {
        (State::Scheduled, InitialWait::Until(job.due_at))
    } else if parent.is_some() {
        job.live_state = LiveState::Parent { has_started: false };
        (State::Queued, InitialWait::Members)
    } else {
        let lane = placement::lane_of(scheduler, id, &job);
        job.live_state = LiveState::Queued(lane);
        (State::Queued, InitialWait::In(lane, job.queue_key(scheduler.config.priority_ageing, id)))
    };
    scheduler.definitions.add_reference(number);
    scheduler.change(Change::Added(AddedJob {
        job: id,
        revision: new.revision,
        state,
        priority: job.priority,
        created_at,
        due_at: job.due_at,
        timeout: new.timeout,
        batch,
        retry_of: new.retry_of,
        submitted_by: new.submitted_by,
        narrowing: new.narrowing,
        keys: limit_keys.clone().map(Box::new),
        details: new.details,
    }));
    let is_parent = parent.is_some();
    if let Some(row) = parent {
        scheduler.change(Change::Parent(row.clone()));
        scheduler.parents.add(row, limit_keys.map(Box::new));
    }
    // With `after` the queue timeout begins once those jobs have ended. It runs while the job waits for an earlier one of its schedule or of
    // its unique key.
    let limit = scheduler.definitions.at(number).and_then(|definition| definition.waits.queue);
    if let Some(limit) = limit.filter(|_| !has_dependencies && !is_parent) {
        let at = Some(job.due_at + limit);
        job.extras_mut().expires_at = at;
        scheduler.change(Change::Expiry { job: id, at });
    }
    scheduler.jobs.insert(id, job);
    dependency::begin(scheduler, id, &new.after, batch.unwrap_or(id));
    wait
}
