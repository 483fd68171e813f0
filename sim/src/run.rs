//! One run of a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock::Moment;
use crate::oracle::Violation;
use crate::script::Script;
use crate::swarm::Swarm;
use crate::world::{Outcome, World};

/// One run. A panic of a state machine is a violation like any other.
pub(crate) fn run(seed: u64, swarm: &Swarm, script: Script, trace: bool) -> Outcome {
    let world = World::new(seed, swarm.clone(), script, trace);
    catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()))
            .unwrap_or_default();
        Outcome {
            violation: Some(Violation { at: Moment(0), rule: "nobody panics", what }),
            ..Outcome::default()
        }
    })
}
