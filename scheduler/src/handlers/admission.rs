//! Limits at a submission: too many jobs wait already (`max_queued`, `--max-queued`), or no permit is left and the definition says what to
//! do then (`on_full`).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;

use protocol::{AttemptNo, JobId, Now, Timestamp};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::handlers::{cancel, dependency, unique};
use crate::ids::DefinitionNo;
use crate::job::{Job, LiveState};
use crate::limits::LimitId;
use crate::limits::keys::JobKeys;
use crate::limits::rules::{Concurrency, OnFull};
use crate::new_jobs::NewJob;
use crate::pending_batch::Demand;
use crate::placement;
use crate::step::Rejection;

/// Checks that these jobs may wait, and that no rule refuses them. Returns what they count for, with which a large batch is remembered until
/// its members are made. Members of such batches count here from the moment at which they were accepted.
pub(crate) fn check<'j>(
    scheduler: &Scheduler,
    now: Timestamp,
    jobs: impl Iterator<Item = &'j NewJob>,
) -> Result<Demand, Rejection> {
    let mut last = None;
    let mut demand = Demand::default();
    for job in jobs {
        // Most batches have one definition.
        let number = match last {
            Some((revision, number)) if revision == job.revision => number,
            _ => scheduler.definitions.find(job.revision),
        };
        last = Some((job.revision, number));
        let Some((number, definition)) = number.and_then(|it| Some((it, scheduler.definitions.at(it)?)))
        else {
            continue;
        };
        if waits_at_once(job, now) && !unique::takes_over(scheduler, job) {
            demand.queued += 1;
            if definition.limits.queued_max.is_some() {
                *demand.queued_of.entry(number).or_default() += 1;
            }
        }
        check_permit(scheduler, definition, job, &mut demand.permits)?;
    }
    check_queues(scheduler, &demand)?;
    Ok(demand)
}

/// Checks that the queues of the server and of the definitions have room.
fn check_queues(scheduler: &Scheduler, demand: &Demand) -> Result<(), Rejection> {
    let pending = scheduler.pending_batches.demand();
    if let Some(queued_max) = scheduler.config.server_limits.queued_max {
        let asked = demand.queued;
        let waiting = scheduler.ready.len().saturating_add(pending.queued);
        if asked > 0 && waiting.saturating_add(asked) > queued_max {
            return Err(Rejection::TooManyQueued { queued_max, asked, of_definition: false });
        }
    }
    for (number, asked) in demand.queued_of.iter().map(|(number, asked)| (*number, *asked)) {
        let Some(definition) = scheduler.definitions.at(number) else { continue };
        let Some(queued_max) = definition.limits.queued_max else { continue };
        let waiting_of = |number| {
            scheduler.ready.len_of(number) + pending.queued_of.get(&number).copied().unwrap_or_default()
        };
        let waiting: usize = scheduler.definitions.named(&definition.name).map(waiting_of).sum();
        let queued_max = queued_max as usize;
        if waiting.saturating_add(asked) > queued_max {
            return Err(Rejection::TooManyQueued { queued_max, asked, of_definition: true });
        }
    }
    Ok(())
}

/// The job is queued when it is made: it waits neither for a time to come nor for other jobs. A start that has passed and a delay of
/// nothing are no times to come.
fn waits_at_once(job: &NewJob, now: Timestamp) -> bool {
    job.run_at.is_none_or(|start| start.resolve(now) <= now)
        && !dependency::waits(&job.after)
        && !job.waits_for_earlier
}

/// Counts a job for its limit of permits, if jobs of that limit may be refused, and refuses it if its own definition says so and as many jobs of
/// the limit have not ended as it has permits. Those before it in the same request count, and members that are still to be made.
fn check_permit(
    scheduler: &Scheduler,
    definition: &Definition,
    job: &NewJob,
    permits: &mut BTreeMap<LimitId, u64>,
) -> Result<(), Rejection> {
    let Some(rule) = definition.limits.concurrency.as_ref().filter(|rule| may_refuse(rule)) else {
        return Ok(());
    };
    let keys = JobKeys::of(&definition.limits, job.details.as_deref());
    let Some((id, jobs, limit)) = scheduler.limits.occupation(definition, keys.as_ref()) else {
        return Ok(());
    };
    let to_be_made = scheduler.pending_batches.demand().permits.get(&id).copied().unwrap_or_default();
    let asked = permits.entry(id.clone()).or_default();
    *asked += 1;
    let all = jobs.saturating_add(to_be_made).saturating_add(*asked);
    if rule.on_full == OnFull::Reject && all > u64::from(limit) {
        return Err(Rejection::LimitFull { limit: id.to_string().into(), permits: limit });
    }
    Ok(())
}

/// Jobs of the limit may be refused: by this definition, or by another one of the group.
fn may_refuse(rule: &Concurrency) -> bool {
    rule.on_full == OnFull::Reject || rule.group.is_some()
}

/// The limit that [`check`] has counted this job for.
pub(crate) fn permit_of(scheduler: &Scheduler, number: DefinitionNo, job: &NewJob) -> Option<LimitId> {
    let definition = scheduler.definitions.at(number)?;
    definition.limits.concurrency.as_ref().filter(|rule| may_refuse(rule))?;
    let keys = JobKeys::of(&definition.limits, job.details.as_deref());
    scheduler.limits.occupation(definition, keys.as_ref()).map(|(id, ..)| id)
}

/// Cancels jobs for a new one that has just been queued for the first time, if its definition says so and the permits do not suffice for all
/// jobs that hold one or are queued. Jobs that are tried again or were released from quarantine cancel nothing: they have had their turn.
/// Members of a batch do not cancel each other, and those of a large batch cancel nothing.
pub(crate) fn make_room(scheduler: &mut Scheduler, now: Now, new: JobId) {
    let Some(job) = scheduler.jobs.get(&new).filter(|job| is_new(job)) else { return };
    let Some(definition) = scheduler.definitions.at(job.definition) else { return };
    let Some(rule) = &definition.limits.concurrency else { return };
    let cancels_oldest = match rule.on_full {
        OnFull::Queue | OnFull::Reject => return,
        OnFull::CancelRunning => false,
        OnFull::CancelOldest => true,
    };
    let needs = scheduler.limits.needs(job.definition, placement::key_set_of(scheduler, job));
    let Some(limit) = needs.permit else { return };
    let Some(permits) = scheduler.limits.permits(limit) else { return };
    let excess = scheduler.limits.contenders(limit).saturating_sub(u64::from(permits));
    let batch = scheduler.batches.of(new);
    let is_large = batch.is_some_and(|batch| batch.count as usize > scheduler.config.slice);
    if excess == 0 || is_large {
        return;
    }
    let kept = batch.map_or(new..JobId(new.0 + 1), |batch| batch.first..batch.end());
    let count = usize::try_from(excess).unwrap_or(usize::MAX).min(CANCELLED_MAX);
    let cancelled = match cancels_oldest {
        true => scheduler.limits.oldest_contenders(limit, &kept, count),
        false => scheduler.limits.oldest_holders(limit, &kept, count),
    };
    for job in cancelled {
        cancel::cancel_for(scheduler, now, job, format!("job {new}, which takes its place"));
    }
}

/// Jobs that are cancelled at most for a new one. There are more only if a large batch waits, or a limit has become smaller.
const CANCELLED_MAX: usize = 1_000;

/// The job is queued, and has had no attempt.
fn is_new(job: &Job) -> bool {
    let attempts = job.extras.as_ref().map_or(AttemptNo(0), |extras| extras.attempts);
    matches!(job.live_state, LiveState::Queued(_)) && attempts == AttemptNo(0)
}
