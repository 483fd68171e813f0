//! Somebody wants jobs: all of them are accepted, or none.

use protocol::{JobId, Now, Revision};

use crate::definitions::DefinitionNo;
use crate::input::{KeyHolder, NewJob, Submit};
use crate::job::{Job, Standing, State};
use crate::place;
use crate::scheduler::Scheduler;
use crate::step::{AddedJob, Answer, Change, PendingReason, Rejection};
use crate::timers::Date;

pub(crate) fn submit(it: &mut Scheduler, now: Now, request: Submit) {
    let ticket = request.ticket;
    match check(it, &request) {
        Err(rejection) => it.reply(ticket, Answer::Rejected(rejection)),
        Ok(Some(holder)) => it.reply(ticket, Answer::Replayed(holder)),
        Ok(None) => accept(it, now, request),
    }
}

/// Whether the request may be accepted; `Some` if this very request was accepted before.
fn check(it: &Scheduler, request: &Submit) -> Result<Option<KeyHolder>, Rejection> {
    if let Some(key) = &request.key
        && let Some(holder) = it.keys.holder(key)?
    {
        return Ok(Some(holder));
    }
    let mut checked = None;
    for job in &request.jobs {
        if checked == Some(job.revision) {
            continue;
        }
        let definition = it.definitions.find(job.revision).and_then(|number| it.definitions.at(number));
        let definition = definition.ok_or(Rejection::UnknownDefinition)?;
        if !definition.enabled {
            return Err(Rejection::Disabled);
        }
        if request.require_worker {
            let reason = place::why_waiting(it, definition);
            if reason < PendingReason::Busy {
                return Err(Rejection::NoWorker(reason));
            }
        }
        checked = Some(job.revision);
    }
    Ok(None)
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
        add(it, now, new, number, batch);
    }
    if let Some(key) = request.key {
        let holder = KeyHolder { job: first, count, digest: key.digest };
        it.keys.remember(it.last.group, key.key.clone(), holder);
        it.change(Change::Keyed { key: key.key, holder, at: now.utc });
    }
    it.reply_accepted(request.ticket, first, count, now.utc);
}

fn add(it: &mut Scheduler, now: Now, new: NewJob, number: DefinitionNo, batch: Option<JobId>) {
    let id = JobId(it.last.job.0 + 1);
    it.last.job = id;
    let default_priority = it.definitions.at(number).map_or(0, |definition| definition.priority);
    let mut job = Job {
        definition: number,
        priority: new.priority.unwrap_or(default_priority),
        has_body: new.details.as_ref().is_some_and(|details| !details.body.is_empty()),
        due_at: new.run_at.map_or(now.utc, |at| at.max(now.utc)),
        standing: Standing::Scheduled,
        past: None,
    };
    if new.timeout.is_some() {
        job.past_mut().timeout = new.timeout;
    }
    let state = if job.due_at > now.utc {
        it.timers.set_date(job.due_at, Date::Due(id));
        State::Scheduled
    } else {
        let lane = place::lane_of(it, &job);
        job.standing = Standing::Queued(lane);
        it.ready.push(lane, job.place(id));
        State::Queued
    };
    it.definitions.take(number);
    it.change(Change::Added(AddedJob {
        job: id,
        revision: new.revision,
        state,
        priority: job.priority,
        created_at: now.utc,
        due_at: job.due_at,
        timeout: new.timeout,
        batch,
        retry_of: new.retry_of,
        details: new.details,
    }));
    it.jobs.insert(id, job);
}
