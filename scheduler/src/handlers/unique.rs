//! Decides about jobs with unique keys: duplicates are left out, refused, or replace the job that has the key.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::dependencies::Predecessor;
use crate::handlers::{cancel, due};
use crate::ids::DefinitionNo;
use crate::job::{Job, LiveState};
use crate::limits::rules::{OnDuplicate, UniqueRule};
use crate::new_jobs::{NewJob, NewJobs};
use crate::pending_batch::is_large;
use crate::state::State;
use crate::step::{Change, Rejection};
use crate::unique::{UniqueHolder, UniqueId, UniqueRow};

/// Removes the jobs of a request that are duplicates. Within a request the first job with a key counts. Returns the job that has the key
/// if no job is left.
///
/// # Errors
/// A rule refuses duplicates, or the request is too large.
pub(crate) fn leave_out_duplicates(
    scheduler: &Scheduler,
    jobs: &mut NewJobs,
    definitions: &BTreeSet<DefinitionNo>,
    is_batch: bool,
) -> Result<Option<JobId>, Rejection> {
    let has_rule = |number: &DefinitionNo| rule_of(scheduler, *number).is_some();
    if !definitions.iter().any(has_rule) {
        return Ok(None);
    }
    // The members of a large batch get their numbers later than this decision.
    if is_large(jobs.iter(), scheduler.config.slice) {
        return Err(Rejection::TooManyUnique { max: scheduler.config.slice });
    }
    let mut seen = BTreeSet::new();
    let mut first = None;
    let mut left = Vec::new();
    for new in jobs.iter() {
        let taken = match check(scheduler, new)? {
            KeyCheck::None => false,
            KeyCheck::Taken(job) => {
                first = first.or(Some(job));
                true
            }
            // A member of a retried batch is left out, and a retry by itself is refused.
            KeyCheck::TakenFromRetry(job) if is_batch => {
                first = first.or(Some(job));
                true
            }
            KeyCheck::TakenFromRetry(job) => return Err(Rejection::Duplicate { job: Some(job) }),
            KeyCheck::Free(id, rule) => {
                let is_first = seen.insert(id);
                if !is_first && rule == OnDuplicate::Reject {
                    return Err(Rejection::Duplicate { job: None });
                }
                !is_first
            }
        };
        if !taken {
            left.push(new.clone());
        }
    }
    // Later jobs of the request refer to members by their positions, so none may be removed.
    let names_positions = |new: &NewJob| new.after.iter().any(|it| matches!(it.on, Predecessor::Member(_)));
    match (left.is_empty(), first) {
        (true, Some(job)) => return Ok(Some(job)),
        _ if left.len() < jobs.len() && jobs.iter().any(names_positions) => {
            return Err(Rejection::Duplicate { job: first });
        }
        _ if left.len() < jobs.len() => *jobs = left.into(),
        _ => {}
    }
    Ok(None)
}

/// The job that keeps a new one from being made, whatever the rule says about duplicates.
pub(crate) fn duplicate_of(scheduler: &Scheduler, new: &NewJob) -> Option<JobId> {
    match check(scheduler, new) {
        Ok(KeyCheck::Taken(job) | KeyCheck::TakenFromRetry(job))
        | Err(Rejection::Duplicate { job: Some(job) }) => Some(job),
        _ => None,
    }
}

/// The answer for the unique key of a new job.
enum KeyCheck {
    /// The definition has no rule.
    None,
    /// The key is free, or is taken over.
    Free(UniqueId, OnDuplicate),
    /// This job has the key, and the new one is left out.
    Taken(JobId),
    /// This job has the key. A new job would replace it, but a retry does not.
    TakenFromRetry(JobId),
}

fn check(scheduler: &Scheduler, new: &NewJob) -> Result<KeyCheck, Rejection> {
    let Some((id, rule)) = key_and_rule(scheduler, new) else { return Ok(KeyCheck::None) };
    // A retry is a deliberate repetition of what has ended.
    let is_taken = |holder: &UniqueHolder| {
        new.retry_of.is_none() || !scheduler.unique.is_kept(holder.job) || holder.predecessor.is_some()
    };
    match (scheduler.unique.holder(&id).filter(is_taken), rule.on_duplicate) {
        (Some(holder), OnDuplicate::Return) => Ok(KeyCheck::Taken(holder.job)),
        // The holder was made later than the job that a retry repeats: an old version must not replace a new one.
        (Some(holder), OnDuplicate::Replace) if new.retry_of.is_some() => {
            Ok(KeyCheck::TakenFromRetry(holder.job))
        }
        (Some(holder), OnDuplicate::Reject) => Err(Rejection::Duplicate { job: Some(holder.job) }),
        (_, on_duplicate) => Ok(KeyCheck::Free(id, on_duplicate)),
    }
}

fn key_and_rule<'s>(scheduler: &'s Scheduler, new: &NewJob) -> Option<(UniqueId, &'s UniqueRule)> {
    let definition = scheduler.definitions.at(scheduler.definitions.find(new.revision)?)?;
    let rule = definition.limits.unique.as_ref()?;
    // A retry has the key that its job keeps, also if the request had given it.
    let kept = new.retry_of.filter(|of| new.unique_key.is_none() && scheduler.unique.is_kept(*of));
    let kept = kept.and_then(|of| scheduler.unique.id_of(of)).filter(|id| *id.definition == definition.name);
    if let Some(id) = kept {
        return Some((id.clone(), rule));
    }
    let definition = Arc::from(definition.name.as_str());
    Some((UniqueId { definition, key: rule.key_of(new) }, rule))
}

fn rule_of(scheduler: &Scheduler, number: DefinitionNo) -> Option<&UniqueRule> {
    scheduler.definitions.at(number)?.limits.unique.as_ref()
}

/// The queue does not grow by this new job: one with its key is queued and is cancelled for it, or has an attempt and is waited for.
pub(crate) fn takes_over(scheduler: &Scheduler, new: &NewJob) -> bool {
    let holder = key_and_rule(scheduler, new).and_then(|(id, _)| scheduler.unique.holder(&id));
    holder.is_some_and(|holder| {
        let waited_for = holder.predecessor.is_some_and(|job| scheduler.jobs.contains_key(&job));
        waited_for || scheduler.jobs.get(&holder.job).is_some_and(Job::is_queued_or_held)
    })
}

/// Cancels the job that has the key of a new one. Returns what to claim for the new job once it is added; the caller has checked that it
/// may be made.
pub(crate) fn make_way(
    scheduler: &mut Scheduler,
    now: Now,
    new: &mut NewJob,
    job: JobId,
) -> Option<UniqueRow> {
    let (id, _) = key_and_rule(scheduler, new)?;
    if let Some(holder) = scheduler.unique.holder(&id) {
        cancel::cancel_for(scheduler, now, holder.job, format!("job {job}, which replaces it"));
    }
    // One that waited has ended, and its own predecessor has the key again.
    let holder = scheduler.unique.holder(&id);
    let both = holder.into_iter().flat_map(|holder| [Some(holder.job), holder.predecessor]).flatten();
    let predecessor = both.into_iter().find(|job| scheduler.jobs.contains_key(job));
    new.waits_for_earlier |= predecessor.is_some();
    Some(UniqueRow { id, holder: Some(UniqueHolder { job, predecessor }) })
}

/// Writes down who has a key.
pub(crate) fn put(scheduler: &mut Scheduler, row: UniqueRow) {
    scheduler.unique.put(&row);
    scheduler.change(Change::Unique(row));
}

/// Frees or keeps the key of a job that ends.
pub(crate) fn ended(scheduler: &mut Scheduler, job: JobId, number: DefinitionNo, state: State) {
    let Some(id) = scheduler.unique.id_of(job).cloned() else { return };
    let Some(holder) = scheduler.unique.holder(&id) else { return };
    if holder.predecessor == Some(job) {
        let is_kept = scheduler.unique.is_kept(holder.job);
        put(scheduler, UniqueRow { id, holder: Some(UniqueHolder { predecessor: None, ..holder }) });
        if is_kept {
            scheduler.unique.keep(holder.job);
        }
        due::set_timer(scheduler, holder.job);
        return;
    }
    // Its rule is that of its own revision. A definition without one does not keep keys.
    let frees = rule_of(scheduler, number).is_none_or(|rule| rule.clear.frees(state));
    if frees {
        let earlier = holder.predecessor.map(|job| UniqueHolder { job, predecessor: None });
        put(scheduler, UniqueRow { id, holder: earlier });
        return;
    }
    scheduler.unique.keep(job);
    if let Some(surplus) = scheduler.unique.surplus() {
        release(scheduler, surplus);
    }
}

/// Differences between the keys and the jobs. For tests only.
pub(crate) fn faults(scheduler: &Scheduler) -> Vec<String> {
    let mut faults = Vec::new();
    let mut listed = scheduler.unique.jobs();
    for (id, holder) in scheduler.unique.all() {
        let job = scheduler.jobs.get(&holder.job);
        if job.is_some() == scheduler.unique.is_kept(holder.job) {
            faults.push(format!(
                "job {} has the key {:?} and is neither live nor kept, or both",
                holder.job, id.key
            ));
        }
        let waits =
            job.is_none_or(|job| matches!(job.live_state, LiveState::Scheduled | LiveState::Quarantined));
        let is_held = |job| {
            let is_parent = |job: &Job| matches!(job.live_state, LiveState::Parent { .. });
            scheduler.jobs.get(&job).is_some_and(|job| job.attempt().is_some() || is_parent(job))
        };
        if holder.predecessor.is_some_and(|before| !is_held(before) || !waits) {
            faults.push(format!("job {} replaces one that has ended, or does not wait for it", holder.job));
        }
        listed.retain(|job| *job != holder.job && Some(*job) != holder.predecessor);
    }
    faults.extend(listed.iter().map(|job| format!("job {job} is listed for a key that it does not have")));
    faults
}

/// Frees the key of an ended job. Returns false if it has none.
pub(crate) fn release(scheduler: &mut Scheduler, job: JobId) -> bool {
    if !scheduler.unique.is_kept(job) {
        return false;
    }
    let Some(id) = scheduler.unique.id_of(job).cloned() else { return false };
    let predecessor = scheduler.unique.holder(&id).and_then(|holder| holder.predecessor);
    let earlier = predecessor.map(|job| UniqueHolder { job, predecessor: None });
    put(scheduler, UniqueRow { id, holder: earlier });
    true
}
