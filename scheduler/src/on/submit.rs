//! Somebody wants jobs: all of them are accepted, or none.

use alloc::collections::BTreeSet;

use protocol::{JobId, Now, Revision, Timestamp};

use crate::definitions::DefinitionNo;
use crate::explain;
use crate::forming::is_large;
use crate::input::{KeyHolder, NewJob, Submit};
use crate::job::{Job, Standing, State};
use crate::on;
use crate::place;
use crate::ready::{LaneKey, Place};
use crate::scheduler::Scheduler;
use crate::step::{AddedJob, Answer, Change, PendingReason, Rejection};
use crate::timers::Date;

pub(crate) fn submit(it: &mut Scheduler, now: Now, request: Submit) {
    let ticket = request.ticket;
    match check(it, &request) {
        Err(rejection) => it.reply(ticket, Answer::Rejected(rejection)),
        Ok(Found::Before(holder)) => it.reply(ticket, Answer::Replayed(holder)),
        // It is told the same as the one before it, as soon as that is true.
        Ok(Found::OnItsWay) => {}
        Ok(Found::Good(definitions)) if is_large(&request.jobs, it.config.slice) => {
            on::form(it, request, definitions);
        }
        Ok(Found::Good(_)) => accept(it, now, request),
    }
}

/// What a request turns out to be.
enum Found {
    /// This very request was accepted before.
    Before(KeyHolder),
    /// A request with its key is being made; it waits for that one's answer.
    OnItsWay,
    /// It may be accepted; its jobs are of these definitions.
    Good(BTreeSet<DefinitionNo>),
}

fn check(it: &mut Scheduler, request: &Submit) -> Result<Found, Rejection> {
    if let Some(key) = &request.key {
        if let Some(batch) = it.forming.keyed(&key.key) {
            let waits = batch.echo(request.ticket, key.digest);
            return if waits { Ok(Found::OnItsWay) } else { Err(Rejection::Crowded) };
        }
        if let Some(holder) = it.keys.holder(key)? {
            return Ok(Found::Before(holder));
        }
    }
    let mut last = None;
    let mut found = BTreeSet::new();
    for job in &request.jobs {
        // Most batches are of one definition.
        if last.replace(job.revision) == Some(job.revision) {
            continue;
        }
        let number = it.definitions.find(job.revision).ok_or(Rejection::UnknownDefinition)?;
        if found.insert(number) {
            check_definition(it, number, request.require_worker)?;
        }
    }
    if !has_room(it, request.jobs.len()) {
        return Err(Rejection::QueueFull { jobs_max: it.config.jobs_max, asked: request.jobs.len() });
    }
    Ok(Found::Good(found))
}

/// Whether so many more jobs may come. Those of large batches that are still to be made have their places already.
fn has_room(it: &Scheduler, more: usize) -> bool {
    it.jobs.len().saturating_add(it.forming.to_be_made()).saturating_add(more) <= it.config.jobs_max
}

fn check_definition(it: &Scheduler, number: DefinitionNo, require_worker: bool) -> Result<(), Rejection> {
    let definition = it.definitions.at(number).ok_or(Rejection::UnknownDefinition)?;
    if !definition.enabled {
        return Err(Rejection::Disabled);
    }
    if require_worker {
        let reason = explain::why_waiting(it, definition, None);
        if reason < PendingReason::Busy {
            return Err(Rejection::NoWorker(reason));
        }
    }
    Ok(())
}

fn accept(it: &mut Scheduler, now: Now, request: Submit) {
    let first = JobId(it.last.job.0 + 1);
    let count = u32::try_from(request.jobs.len()).unwrap_or(u32::MAX);
    let batch = request.batch.then_some(first);
    it.out.changes.reserve(request.jobs.len() + 1);
    let mut found: Option<(Revision, DefinitionNo)> = None;
    for new in request.jobs {
        let number = match found {
            Some((revision, number)) if revision == new.revision => Some(number),
            _ => it.definitions.find(new.revision),
        };
        // `check` has found every definition, and nothing has run in between.
        let Some(number) = number else { continue };
        found = Some((new.revision, number));
        let id = JobId(it.last.job.0 + 1);
        it.last.job = id;
        match add(it, now.utc, id, new, number, batch) {
            Wait::Until(at) => it.timers.set_date(at, Date::Due(id)),
            Wait::In(lane, place) => it.ready.push(lane, place),
        }
    }
    if let Some(key) = request.key {
        let holder = KeyHolder { job: first, count, digest: key.digest };
        it.keys.remember(it.last.group, key.key.clone(), holder);
        it.change(Change::Keyed { key: key.key, holder, at: now.utc });
    }
    it.reply_accepted(request.ticket, first, count, now.utc);
}

/// What a new job waits for.
pub(crate) enum Wait {
    /// An instant.
    Until(Timestamp),
    /// Its turn in a lane.
    In(LaneKey, Place),
}

/// Makes a job. The caller lets it wait.
pub(crate) fn add(
    it: &mut Scheduler,
    created_at: Timestamp,
    id: JobId,
    new: NewJob,
    number: DefinitionNo,
    batch: Option<JobId>,
) -> Wait {
    let default_priority = it.definitions.at(number).map_or(0, |definition| definition.priority);
    let mut job = Job {
        definition: number,
        priority: new.priority.unwrap_or(default_priority),
        has_body: new.details.as_ref().is_some_and(|details| !details.body.is_empty()),
        due_at: new.run_at.map_or(created_at, |at| at.max(created_at)),
        standing: Standing::Scheduled,
        past: None,
    };
    if new.timeout.is_some() {
        job.past_mut().timeout = new.timeout;
    }
    let (state, wait) = if job.due_at > created_at {
        (State::Scheduled, Wait::Until(job.due_at))
    } else {
        let lane = place::lane_of(it, &job);
        job.standing = Standing::Queued(lane);
        (State::Queued, Wait::In(lane, job.place(id)))
    };
    it.definitions.take(number);
    it.change(Change::Added(AddedJob {
        job: id,
        revision: new.revision,
        state,
        priority: job.priority,
        created_at,
        due_at: job.due_at,
        timeout: new.timeout,
        batch,
        retry_of: new.retry_of,
        details: new.details,
    }));
    it.jobs.insert(id, job);
    wait
}
