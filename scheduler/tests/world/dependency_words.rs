//! Words of scenarios about jobs that come after others.

use crate::world::World;
use crate::world::protocol::JobId;
use crate::world::scheduler::dependencies::{Dependency, Predecessor, PredecessorId, RequiredEnd};
use crate::world::scheduler::job::State;
use crate::world::scheduler::new_jobs::NewJob;

/// `j1:failed,j2` are jobs that exist, `b3` is a batch. `j1+succeeded` had succeeded when the archive was read.
pub(crate) fn after(words: &str) -> Vec<Dependency> {
    words.split(',').map(existing).collect()
}

fn existing(word: &str) -> Dependency {
    let Some((job, state)) = word.split_once('+') else {
        return known(word, Predecessor::Live);
    };
    let (state, requires) = state.split_once(':').unwrap_or((state, "succeeded"));
    let state = State::ALL.into_iter().find(|known| known.name() == state).unwrap();
    known(&format!("{job}:{requires}"), |on| Predecessor::Ended(on, state))
}

/// `j1` is a job, `b1` the batch with that first job.
fn known(word: &str, on: impl Fn(PredecessorId) -> Predecessor) -> Dependency {
    let (word, is_batch) = (word.trim_start_matches('b'), word.starts_with('b'));
    let id = if is_batch { PredecessorId::Batch } else { PredecessorId::Job };
    dependency(word, |number| on(id(JobId(number))))
}

/// `load<0,2:ended,j1,b3` is a job of `load` that comes after the first and the third of the list, a job that exists, and a batch.
pub(crate) fn entry(world: &World, words: &str) -> NewJob {
    let (name, after) = words.split_once('<').unwrap_or((words, ""));
    let member = |at: u64| Predecessor::Member(u32::try_from(at).unwrap());
    let after =
        after.split(',').filter(|word| !word.is_empty()).map(|word| match word.starts_with(['j', 'b']) {
            true => known(word, Predecessor::Live),
            false => dependency(word, member),
        });
    let after = after.collect();
    NewJob { revision: world.definitions[name].revision, after, ..NewJob::default() }
}

fn dependency(word: &str, on: impl Fn(u64) -> Predecessor) -> Dependency {
    let (job, requires) = word.split_once(':').unwrap_or((word, "succeeded"));
    let on = on(job.trim_start_matches('j').parse().unwrap());
    Dependency { on, requires: RequiredEnd::named(requires).unwrap() }
}
