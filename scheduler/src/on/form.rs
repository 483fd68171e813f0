//! A large batch is made, slice by slice: all of its members appear at once, or none ever.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::definitions::DefinitionNo;
use crate::forming::{Batch, UnderWay, weight};
use crate::input::{KeyHolder, Submit};
use crate::on::submit::{Wait, add};
use crate::scheduler::Scheduler;
use crate::step::{Answer, Change, Rejection};
use crate::timers::Date;

/// Takes on a request that has been found good. It gets its numbers when its first slice is made.
pub(crate) fn form(it: &mut Scheduler, request: Submit, definitions: BTreeSet<DefinitionNo>) {
    if !it.forming.has_room(request.jobs.len()) {
        it.reply(request.ticket, Answer::Rejected(Rejection::Crowded));
        return;
    }
    for number in &definitions {
        it.definitions.take(*number);
    }
    it.forming.push(Batch {
        ticket: request.ticket,
        key: request.key.map(|key| (key.key, key.digest)),
        echoes: Vec::new(),
        count: u32::try_from(request.jobs.len()).unwrap_or(u32::MAX),
        rest: request.jobs.into_iter(),
        definitions,
    });
}

/// Makes one slice, unless this group has one already.
pub(crate) fn slice(it: &mut Scheduler, now: Now) {
    let group = it.last.group;
    let first = JobId(it.last.job.0 + 1);
    let begin =
        |batch| UnderWay { batch, first, created_at: now.utc, lanes: BTreeMap::new(), dates: Vec::new() };
    let Some(mut batch) = it.forming.take(group, begin) else { return };
    if batch.made().is_empty() {
        it.last.job = batch.last();
        it.change(Change::Forming { first: batch.first, last: batch.last() });
    }
    let mut room = it.config.slice;
    while room > 0 {
        let id = batch.next();
        let Some(new) = batch.batch.rest.next() else { break };
        room = room.saturating_sub(weight(&new));
        // It was found when the batch was accepted, and has been held since.
        let Some(number) = it.definitions.find(new.revision) else { continue };
        match add(it, batch.created_at, id, new, number, Some(batch.first)) {
            Wait::Until(at) => batch.dates.push((at, id)),
            Wait::In(lane, place) => drop(batch.lanes.entry(lane).or_default().insert(place)),
        }
    }
    if batch.batch.rest.len() == 0 {
        complete(it, now, batch);
    } else {
        it.forming.put_back(batch);
    }
}

/// All members are made: from here on they are jobs like all others.
fn complete(it: &mut Scheduler, now: Now, made: UnderWay) {
    let UnderWay { batch, first, created_at, lanes, dates } = made;
    for (lane, places) in lanes {
        it.ready.admit(lane, places);
    }
    for (at, job) in dates {
        it.timers.set_date(at, Date::Due(job));
    }
    for number in batch.definitions {
        it.definitions.drop_one(number);
    }
    it.change(Change::Formed { first });
    it.reply_accepted(batch.ticket, first, batch.count, created_at);
    let Some((key, digest)) = batch.key else { return };
    let holder = KeyHolder { job: first, count: batch.count, digest };
    it.keys.remember(it.last.group, key.clone(), holder);
    it.change(Change::Keyed { key, holder, at: now.utc });
    for (ticket, asked) in batch.echoes {
        let mismatch = Answer::Rejected(Rejection::KeyMismatch(holder));
        it.reply(ticket, if asked == digest { Answer::Replayed(holder) } else { mismatch });
    }
}
