//! Processor time of the scheduler's decisions, without a server, a store or a network.
//!
//! Two models of different sizes run in turns in this process, on one thread, and the thread's own processor time is taken. The figure of
//! a size is the least of several windows, since other processes can only add to it. The ratio of two sizes is what says whether a
//! decision walks something: it is the same on a slow machine.

mod fairness;
mod flow;
mod model;
mod scenes;

use std::cell::Cell;

use crate::decisions::flow::Comparison;
use crate::decisions::scenes::Beside;
use crate::record::log_progress;

/// Takes all figures, or those of one question; `cycles` decisions in each window.
pub(crate) fn measure(cycles: u64, scale: Scale, only: Option<&str>) -> anyhow::Result<()> {
    log_progress(&format!("decisions, {cycles} in each window"));
    let run = Comparison { cycles, only, was_asked: Cell::new(false) };
    run.compare("blocked_keys_beside", &scale.keys, scenes::beside_blocked_keys)?;
    run.compare("blocked_keys_of_them", &scale.keys, scenes::among_blocked_keys)?;
    run.compare("workers_saturated", &scale.workers, scenes::saturated_workers)?;
    run.compare("workers_idle", &scale.workers, scenes::idle_workers)?;
    for (name, beside) in Beside::ALL {
        run.compare(name, &scale.definitions, |size| scenes::waiting_definitions(size, beside))?;
    }
    run.compare("waiting_batches", &scale.definitions, scenes::waiting_batches)?;
    run.compare("definitions_with_rules", &[0, scale.rule_definitions], scenes::rules)?;
    match only {
        None => fairness::measure(scale.fair_keys, scale.fair_jobs),
        Some(question) if !run.was_asked.get() => anyhow::bail!("decisions has no question {question}"),
        Some(_) => Ok(()),
    }
}

/// Sizes that are compared, the smallest first.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// Keys whose permits are all taken.
    keys: Vec<u64>,
    /// Connected workers.
    workers: Vec<u64>,
    /// Definitions, or batches, with waiting jobs.
    definitions: Vec<u64>,
    /// Definitions that use limits, labels and priorities.
    rule_definitions: u64,
    /// Keys with many jobs, and how many each has.
    fair_keys: u64,
    fair_jobs: u64,
}

impl Scale {
    /// The sizes that the figures are promised for.
    pub(crate) fn full() -> Self {
        Self {
            keys: vec![10, 1_000, 100_000],
            workers: vec![10, 1_000, 10_000],
            definitions: vec![0, 100, 5_000],
            rule_definitions: 1_000,
            fair_keys: 100,
            fair_jobs: 10_000,
        }
    }

    /// Sizes that take no time.
    #[cfg(test)]
    fn tiny() -> Self {
        Self {
            keys: vec![2, 5],
            workers: vec![2, 25],
            definitions: vec![0, 5],
            rule_definitions: 5,
            fair_keys: 3,
            fair_jobs: 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_can_be_taken() {
        measure(40, Scale::tiny(), None).unwrap();
    }
}
