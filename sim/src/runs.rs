//! Many runs, over all cores; and one run, looked at closely.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::clock::Moment;
use crate::options::Options;
use crate::oracle::Violation;
use crate::result::{Failure, Sum};
use crate::run::run;
use crate::script::Script;
use crate::shrink;
use crate::swarm::Swarm;
use crate::world::Outcome;

/// Runs seeds until there are enough transitions, or something is wrong.
pub(crate) fn many(options: &Options) -> ExitCode {
    let begun = Instant::now();
    let (first, end) = options.range();
    println!("seeds from {first} on");
    let shared = Shared {
        next: AtomicU64::new(first),
        end: end.unwrap_or(u64::MAX),
        enough: if end.is_some() { u64::MAX } else { options.transitions },
        made: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        sum: Mutex::default(),
    };
    silence_panics();
    thread::scope(|scope| {
        for _ in 0..options.threads() {
            scope.spawn(|| shared.work());
        }
    });
    let mut sum = shared.sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    sum.first = first;
    sum.threads = options.threads();
    sum.seconds = begun.elapsed().as_secs_f64();
    sum.print();
    if let Some(Failure { seed, violation }) = &sum.failure {
        println!(
            "after {} transitions seed {seed} violates: {}: {}",
            sum.transitions, violation.rule, violation.what
        );
        if !options.brief {
            shrink::explain(*seed, violation);
        }
        return ExitCode::FAILURE;
    }
    sum.verdict()
}

/// Runs one seed.
pub(crate) fn replay(seed: u64, options: &Options) -> ExitCode {
    silence_panics();
    let swarm = Swarm::draw(seed);
    let script = Script::draw(seed, &swarm);
    let outcome = run(seed, &swarm, script, options.trace);
    print!("{}", outcome.trace);
    println!("seed {seed}: {} transitions, trace hash {:016x}", outcome.transitions, outcome.hash);
    match outcome.violation {
        None => ExitCode::SUCCESS,
        Some(violation) if options.brief => {
            println!("violates: {}: {}", violation.rule, violation.what);
            ExitCode::FAILURE
        }
        Some(violation) => {
            shrink::explain(seed, &violation);
            ExitCode::FAILURE
        }
    }
}

struct Shared {
    next: AtomicU64,
    end: u64,
    enough: u64,
    made: AtomicU64,
    stop: AtomicBool,
    sum: Mutex<Sum>,
}

impl Shared {
    fn work(&self) {
        let mut sum = Sum::default();
        while !self.stop.load(Ordering::Relaxed) && self.made.load(Ordering::Relaxed) < self.enough {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                break;
            }
            let outcome = self.run(seed);
            self.made.fetch_add(outcome.transitions, Ordering::Relaxed);
            sum.take(&outcome);
            if let Some(violation) = outcome.violation {
                sum.failure = Some(Failure { seed, violation });
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        self.sum.lock().unwrap_or_else(PoisonError::into_inner).add(sum);
    }

    /// One in a hundred seeds is run twice, and must go the same way.
    fn run(&self, seed: u64) -> Outcome {
        let swarm = Swarm::draw(seed);
        let script = Script::draw(seed, &swarm);
        let mut outcome = run(seed, &swarm, script.clone(), false);
        if seed.is_multiple_of(100) {
            let again = run(seed, &swarm, script, false);
            if again.hash != outcome.hash && outcome.violation.is_none() {
                let what = format!("trace hashes {:016x} and {:016x}", outcome.hash, again.hash);
                outcome.violation = Some(Violation { at: Moment(0), rule: "a seed goes one way", what });
            }
        }
        outcome
    }
}

/// The message of a panic is printed with its seed; the hook would print it without.
fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_hash_is_deterministic_and_differs_by_seed() {
        let hash = |seed| {
            let swarm = Swarm::draw(seed);
            let script = Script::draw(seed, &swarm);
            run(seed, &swarm, script, false).hash
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }

    /// The hash is of when, and how much; what is told is all of it.
    #[test]
    fn trace_is_deterministic_per_seed() {
        for seed in 1..=20 {
            let swarm = Swarm::draw(seed);
            let script = Script::draw(seed, &swarm);
            let [one, other] = [(); 2].map(|()| run(seed, &swarm, script.clone(), true).trace);
            assert!(one == other, "seed {seed}");
        }
    }

    #[test]
    fn tracing_does_not_change_the_run_hash() {
        let swarm = Swarm::draw(3);
        let script = Script::draw(3, &swarm);
        let silent = run(3, &swarm, script.clone(), false);
        let told = run(3, &swarm, script, true);
        assert_eq!(silent.hash, told.hash);
        assert!(silent.trace.is_empty() && !told.trace.is_empty());
    }
}
