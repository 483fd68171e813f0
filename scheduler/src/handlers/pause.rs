//! Somebody pauses schedules, or lets them go on. Slots up to now are decided by what held before, so a pause never reaches back, and
//! what was skipped under it never fires.

use protocol::Now;

use crate::core::Scheduler;
use crate::handlers::fire;
use crate::input::PauseRequest;
use crate::schedules::PauseTarget;
use crate::step::{Answer, Change, Rejection};

pub(crate) fn pause(scheduler: &mut Scheduler, now: Now, request: PauseRequest) {
    let PauseRequest { ticket, target, paused } = request;
    // An operator's command may look at all schedules.
    let reached = scheduler.schedules.reached_by(&target);
    let is_known = scheduler.schedules.paused.contains_key(&target);
    if reached.is_empty() && target != PauseTarget::Everything && !is_known {
        scheduler.reply(ticket, Answer::Rejected(Rejection::UnknownSchedule));
        return;
    }
    for number in &reached {
        fire::fire(scheduler, now, *number);
    }
    if paused != is_known {
        let since = paused.then_some(now.utc);
        match since {
            Some(since) => drop(scheduler.schedules.paused.insert(target.clone(), since)),
            None => drop(scheduler.schedules.paused.remove(&target)),
        }
        scheduler.change(Change::Paused { target, since });
        for number in reached {
            fire::arm(scheduler, number);
        }
    }
    scheduler.reply(ticket, Answer::Done);
}
