//! Room for the narrowings of a request. Definitions with a narrowing stay known after their last job has ended, so that the same request
//! costs nothing the next time. Unused ones are removed together: by a load of jobs.yaml, or here when there are too many.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::core::Scheduler;
use crate::ids::DefinitionNo;
use crate::new_jobs::NewJobs;
use crate::placement::narrowing::{CONDITIONS_MAX, NARROWED_MAX, Narrowing};
use crate::placement::rules::LabelRule;
use crate::step::Rejection;

/// Learns the narrowings of these jobs, beside those of other jobs. They are learned together, so that a request walks over the workers once,
/// however many conditions it has.
///
/// # Errors
/// Too many other ones are in use.
pub(crate) fn learn(scheduler: &mut Scheduler, jobs: &NewJobs) -> Result<(), Rejection> {
    let mut asked: BTreeSet<(DefinitionNo, &Arc<Narrowing>)> = BTreeSet::new();
    for job in jobs.distinct() {
        if let Some((base, narrowing)) = scheduler.definitions.find(job.revision).zip(job.narrowing.as_ref())
        {
            asked.insert((base, narrowing));
        }
    }
    asked.retain(|(base, narrowing)| scheduler.definitions.find_narrowed(*base, narrowing).is_none());
    if asked.is_empty() {
        return Ok(());
    }
    make_room(scheduler, &asked)?;
    scheduler.narrow_all(asked.into_iter().map(|(base, narrowing)| (base, narrowing.clone())));
    Ok(())
}

fn make_room(
    scheduler: &mut Scheduler,
    asked: &BTreeSet<(DefinitionNo, &Arc<Narrowing>)>,
) -> Result<(), Rejection> {
    let definitions = &scheduler.definitions;
    let classes = scheduler.fleet.classes();
    let conditions: BTreeSet<&[LabelRule]> = asked
        .iter()
        .map(|(_, narrowing)| &narrowing.requires[..])
        .filter(|conditions| !classes.knows_conditions(conditions))
        .collect();
    let fits = definitions.narrowed_count() + asked.len() <= NARROWED_MAX
        && classes.conditions_count() + conditions.len() <= CONDITIONS_MAX;
    if fits {
        return Ok(());
    }
    let (used, used_conditions) = definitions.narrowings_in_use();
    let is_worth_it = used + asked.len() <= NARROWED_MAX - NARROWED_MAX / FREED_PART
        && used_conditions + conditions.len() <= CONDITIONS_MAX - CONDITIONS_MAX / FREED_PART;
    if !is_worth_it {
        return Err(Rejection::TooManyNarrowings);
    }
    remove_unused(scheduler);
    Ok(())
}

/// A removal leaves at least this part of the room, so that the next one is as many requests away.
const FREED_PART: usize = 4;

// Walks over all definitions, workers and lanes. It follows at least CONDITIONS_MAX / FREED_PART requests with narrowings that were new.
fn remove_unused(scheduler: &mut Scheduler) {
    scheduler.definitions.drop_unused_narrowed();
    scheduler.fleet.replace_needs(scheduler.definitions.needs());
    scheduler.ready.unpark_all();
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    use protocol::{JobId, Now, Revision, Timestamp, Uptime, WorkerId};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::definition::Definition;
    use crate::ids::Ticket;
    use crate::input::{CancelRequest, CancelScope, Input, Submit};
    use crate::new_jobs::NewJob;
    use crate::placement::rules::{Comparison, Condition, WorkerSelector};

    const NOW: Now = Now { utc: Timestamp(0), up: Uptime(1) };

    fn scheduler() -> Scheduler {
        let mut scheduler =
            Scheduler::new(Config { slice: 5_000, ..Config::for_tests() }, Counters::default());
        scheduler.step(NOW, Input::ReplaceDefinitions(vec![Definition::for_tests(1)]));
        scheduler
    }

    fn on_worker(number: usize) -> Option<Arc<Narrowing>> {
        Narrowing::asked(vec![WorkerSelector::Id(WorkerId(number as u64))], Vec::new())
    }

    fn with_label(number: usize) -> Option<Arc<Narrowing>> {
        let condition = Condition::Compare(Comparison::Greater, number as i64);
        Narrowing::asked(Vec::new(), vec![LabelRule { label: "cores".into(), condition }])
    }

    /// Submits a job, and returns whether it was made.
    fn submit(scheduler: &mut Scheduler, narrowing: Option<Arc<Narrowing>>) -> bool {
        let before = scheduler.live_jobs();
        let job = NewJob { revision: Revision(1), narrowing, ..NewJob::default() };
        scheduler.step(
            NOW,
            Input::Submit(Submit {
                ticket: Ticket(1),
                jobs: vec![job].into(),
                batch: None,
                require_worker: false,
                idempotency_key: None,
            }),
        );
        scheduler.live_jobs() > before
    }

    fn cancel_first(scheduler: &mut Scheduler, count: usize) {
        for job in 1..=count as u64 {
            let (ticket, job, scope) = (Ticket(1), JobId(job), CancelScope::Any);
            scheduler.step(NOW, Input::Cancel(CancelRequest { ticket, job, scope, by: String::new() }));
        }
    }

    #[test]
    fn too_many_different_narrowings_are_refused_until_some_have_no_jobs() {
        for (narrowing, max) in [
            (on_worker as fn(usize) -> Option<Arc<Narrowing>>, NARROWED_MAX),
            (with_label as fn(usize) -> Option<Arc<Narrowing>>, CONDITIONS_MAX),
        ] {
            let mut scheduler = scheduler();
            assert!((1..=max).all(|number| submit(&mut scheduler, narrowing(number))));
            assert!(!submit(&mut scheduler, narrowing(max + 1)), "there is no room for another one");
            assert!(submit(&mut scheduler, narrowing(max)), "this one is known");
            assert!(submit(&mut scheduler, None));
            cancel_first(&mut scheduler, max / FREED_PART);
            assert!(!submit(&mut scheduler, narrowing(max + 1)), "a removal would free too little");
            assert_eq!(scheduler.definitions.narrowed_count(), max, "they stay known without jobs");
            cancel_first(&mut scheduler, max / FREED_PART + 1);
            assert!(submit(&mut scheduler, narrowing(max + 1)));
            assert_eq!(scheduler.definitions.narrowed_count(), max - max / FREED_PART);
            assert!(crate::audit::audit(&scheduler).is_empty());
        }
    }
}
