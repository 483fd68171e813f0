//! Counters of each definition. A server with very many definitions counts those beyond the first thousand together.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use scheduler::job::State;

use super::labels::Labels;

/// Definitions with labels of their own. More would make every scrape slow, and the series expensive to keep.
pub(super) const DEFINITIONS_MAX: usize = 1_000;

/// The label of all further definitions.
pub(super) const OTHER: &str = "other";

/// The metrics of all definitions.
#[derive(Debug)]
pub(super) struct DefinitionTable {
    accepted: Family<Labels<1>, Counter>,
    ended: Family<Labels<2>, Counter>,
    queued: Family<Labels<1>, Gauge>,
    running: Family<Labels<1>, Gauge>,
    ran: Family<Labels<1>, Histogram, fn() -> Histogram>,
    cpu_seconds: Family<Labels<1>, SecondsCounter>,
    memory_peak: Family<Labels<1>, Histogram, fn() -> Histogram>,
    known: Mutex<HashMap<Box<str>, Arc<DefinitionMetrics>>>,
}

/// The metrics of one definition.
#[derive(Debug)]
pub(super) struct DefinitionMetrics {
    pub(super) accepted: Counter,
    /// Jobs that wait for a worker or a limit, as of the last scrape.
    queued: Gauge,
    /// Jobs whose container runs.
    pub(super) running: Gauge,
    pub(super) ran: Histogram,
    pub(super) cpu_seconds: SecondsCounter,
    pub(super) memory_peak: Histogram,
    /// A counter for each of [`State::ENDED`], in this order.
    ended: [Counter; State::ENDED.len()],
}

impl DefinitionMetrics {
    /// The counter of jobs that ended in this state.
    pub(super) fn ended(&self, state: State) -> Option<&Counter> {
        State::ENDED.iter().position(|end| *end == state).map(|index| &self.ended[index])
    }
}

impl DefinitionTable {
    /// Registers the families.
    pub(super) fn register(to: &mut Registry) -> Self {
        let table = Self {
            accepted: Family::default(),
            ended: Family::default(),
            queued: Family::default(),
            running: Family::default(),
            ran: Family::new_with_constructor(|| Histogram::new(RUNS)),
            cpu_seconds: Family::default(),
            memory_peak: Family::new_with_constructor(|| Histogram::new(MEMORY_PEAKS)),
            known: Mutex::default(),
        };
        to.register("jobs_accepted", "Accepted jobs, by definition", table.accepted.clone());
        to.register("jobs_ended", "Ended jobs, by definition and final state", table.ended.clone());
        to.register(
            "jobs_queued",
            "Jobs that wait for a worker or a limit, by definition",
            table.queued.clone(),
        );
        to.register("jobs_running", "Jobs whose container runs, by definition", table.running.clone());
        to.register(
            "attempt_run_seconds",
            "Time that the containers of attempts ran, by definition",
            table.ran.clone(),
        );
        to.register(
            "attempt_cpu_seconds",
            "CPU time of attempts, by definition, where their workers measured it",
            table.cpu_seconds.clone(),
        );
        to.register(
            "attempt_memory_peak_bytes",
            "The most memory of attempts, by definition, where their workers measured it",
            table.memory_peak.clone(),
        );
        table
    }

    /// The metrics of this definition, or of all further ones.
    pub(super) fn of(&self, name: &str) -> Arc<DefinitionMetrics> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = known.get(name) {
            return metrics.clone();
        }
        let name = if known.len() >= DEFINITIONS_MAX { OTHER } else { name };
        if let Some(metrics) = known.get(name) {
            return metrics.clone();
        }
        let metrics = Arc::new(self.make(name));
        known.insert(name.into(), metrics.clone());
        metrics
    }

    /// Sets the numbers of queued jobs: of these definitions, and 0 of all others.
    pub(super) fn set_queued(&self, queued: &BTreeMap<&str, u64>) {
        for metrics in self.known.lock().unwrap_or_else(PoisonError::into_inner).values() {
            metrics.queued.set(0);
        }
        for (name, count) in queued {
            // Several definitions may share a gauge.
            self.of(name).queued.inc_by(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    fn make(&self, name: &str) -> DefinitionMetrics {
        let labels: Labels<1> = [("definition", Cow::Owned(name.to_owned()))];
        let ended = |state: State| [labels[0].clone(), ("state", state.name().into())];
        DefinitionMetrics {
            accepted: self.accepted.get_or_create_owned(&labels),
            queued: self.queued.get_or_create_owned(&labels),
            running: self.running.get_or_create_owned(&labels),
            ran: self.ran.get_or_create_owned(&labels),
            cpu_seconds: self.cpu_seconds.get_or_create_owned(&labels),
            memory_peak: self.memory_peak.get_or_create_owned(&labels),
            ended: State::ENDED.map(|state| self.ended.get_or_create_owned(&ended(state))),
        }
    }
}

/// From a tenth of a second to a day.
const RUNS: [f64; 11] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0];

/// From 16 MiB to 64 GiB, each four times the one before.
const MEMORY_PEAKS: [f64; 7] = [
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
    17_179_869_184.0,
    68_719_476_736.0,
];

/// A counter of seconds with their fractions.
type SecondsCounter = Counter<f64, std::sync::atomic::AtomicU64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_beyond_the_first_thousand_are_counted_together() {
        let mut registry = Registry::default();
        let table = DefinitionTable::register(&mut registry);
        for number in 0..DEFINITIONS_MAX + 10 {
            table.of(&format!("job-{number}")).accepted.inc();
        }
        table.of("job-3").accepted.inc();
        assert_eq!(table.of("job-3").accepted.get(), 2);
        assert_eq!(table.of("another").accepted.get(), 10, "they share one counter");
        assert_eq!(table.known.lock().unwrap().len(), DEFINITIONS_MAX + 1);
    }

    #[test]
    fn queued_jobs_are_set_anew_and_those_of_further_definitions_added_up() {
        let table = DefinitionTable::register(&mut Registry::default());
        let names: Vec<String> = (0..DEFINITIONS_MAX + 10).map(|number| format!("job-{number:04}")).collect();
        table.set_queued(&names.iter().map(|name| (name.as_str(), 3)).collect());
        let queued = |name: &str| table.of(name).queued.get();
        assert_eq!((queued("job-0999"), queued("job-1009")), (3, 30));
        table.set_queued(&BTreeMap::from([("job-0001", 4), ("job-1001", 5)]));
        assert_eq!((queued("job-0999"), queued("job-0001"), queued("job-1009")), (0, 4, 5));
    }

    #[test]
    fn only_final_states_count_as_ends() {
        let table = DefinitionTable::register(&mut Registry::default());
        let metrics = table.of("resize");
        for state in State::ALL {
            assert_eq!(metrics.ended(state).is_some(), state.has_ended(), "{state:?}");
        }
    }
}
