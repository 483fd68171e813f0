//! A run that fails is tried again with parts of its script left out, until nothing more can be; what is left is the story.

use crate::oracle::Violation;
use crate::run::run;
use crate::script::Script;
use crate::swarm::Swarm;

/// Prints the shortest story that ends in the same violation, and how to see it again.
pub(crate) fn explain(seed: u64, violation: &Violation) {
    let swarm = Swarm::draw(seed);
    let script = Script::draw(seed, &swarm);
    let acts = script.acts.len();
    let short = shrink(script, |script| {
        run(seed, &swarm, script.clone(), false).violation.is_some_and(|it| it.rule == violation.rule)
    });
    let outcome = run(seed, &swarm, short.clone(), true);
    println!("{}", outcome.trace);
    let violation = outcome.violation.as_ref().unwrap_or(violation);
    println!(
        "VIOLATION in seed {seed} at {} ms: {}: {}",
        violation.at.0 / 1_000_000,
        violation.rule,
        violation.what
    );
    println!("above: the same with {} of {acts} acts", short.acts.len());
    println!("again: cargo run --release -p longshore-sim -- --replay {seed}");
}

/// Leaves out ever smaller parts (delta debugging) as long as what is left still fails.
fn shrink(mut script: Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut part = script.acts.len().div_ceil(2);
    let mut tries = 0;
    while part > 0 {
        let mut from = 0;
        while from < script.acts.len() && tries < TRIES_MAX {
            let mut shorter = script.clone();
            shorter.acts.drain(from..(from + part).min(script.acts.len()));
            tries += 1;
            if fails(&shorter) {
                script = shorter;
            } else {
                from += part;
            }
        }
        part /= 2;
    }
    script
}

/// A run takes milliseconds: this is some seconds.
const TRIES_MAX: u32 = 3_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::script::Act;

    #[test]
    fn only_what_is_needed_to_fail_is_left() {
        let acts = (0..100).map(|job| (Moment(job), Act::Cancel { job })).collect();
        let script = Script { acts, ..Script::default() };
        let has = |script: &Script, job| script.acts.iter().any(|(at, _)| *at == Moment(job));
        let short = shrink(script, |script| has(script, 17) && has(script, 83));
        let left: Vec<Moment> = short.acts.iter().map(|(at, _)| *at).collect();
        assert_eq!(left, [Moment(17), Moment(83)]);
    }
}
