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

/// Checks that the narrowings of these jobs can be known beside those of other jobs, and makes room for them.
///
/// # Errors
/// Too many other ones are in use.
pub(crate) fn make_room(scheduler: &mut Scheduler, jobs: &NewJobs) -> Result<(), Rejection> {
    let mut asked: BTreeSet<(DefinitionNo, &Arc<Narrowing>)> = BTreeSet::new();
    for job in jobs.distinct() {
        if let Some((base, narrowing)) = scheduler.definitions.find(job.revision).zip(job.narrowing.as_ref())
        {
            asked.insert((base, narrowing));
        }
    }
    let definitions = &scheduler.definitions;
    asked.retain(|(base, narrowing)| definitions.find_narrowed(*base, narrowing).is_none());
    if asked.is_empty() {
        return Ok(());
    }
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
