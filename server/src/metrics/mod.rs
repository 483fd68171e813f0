//! Metrics for Prometheus. Counters and histograms are kept as changes commit; gauges are set from the published snapshot when somebody
//! scrapes. A scrape walks workers, lanes and definitions, never jobs. `http::api::metrics` serves them.

mod definitions;
mod gauges;
mod labels;
mod text_format;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use protocol::report::Outcome;
use protocol::{Timestamp, Usage};
use scheduler::definition::Definition;
use scheduler::job::State;
use scheduler::schedules::{FireRow, FireVerdict};
use scheduler::snapshot::Snapshot;

use crate::notifications::target_key::TargetKind;
use definitions::DefinitionTable;
use gauges::Gauges;
pub use gauges::ScrapeFacts;
use labels::{Labels, WORKER_STATES};

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    definitions: DefinitionTable,
    attempts_ended: Family<Labels<1>, Counter>,
    start_delay: Histogram,
    fires: Family<Labels<1>, Counter>,
    fire_lateness: Histogram,
    worker_changes: Family<Labels<1>, Counter>,
    commit_time: Histogram,
    group_changes: Histogram,
    requests: Family<Labels<3>, Counter>,
    request_time: Family<Labels<1>, Histogram, fn() -> Histogram>,
    notifications: Family<Labels<2>, Counter>,
    lock_outs: Counter,
    #[cfg(feature = "otel")]
    traces: Family<Labels<1>, Counter>,
    gauges: Gauges,
    /// Due time of the oldest queued job, in milliseconds; 0 if none waits.
    oldest_due: AtomicI64,
    /// Jobs in the state `running`.
    running: AtomicUsize,
    /// Jobs in quarantine.
    quarantined: AtomicUsize,
    /// One scrape at a time: it sets the gauges first.
    scrape: Mutex<()>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("longshore");
        let to = &mut registry;
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        to.register("build", "The version of the server", Info::new(version));
        let metrics = Self {
            definitions: DefinitionTable::register(to),
            attempts_ended: Family::default(),
            start_delay: Histogram::new(WAITS),
            fires: Family::default(),
            fire_lateness: Histogram::new(WAITS),
            worker_changes: Family::default(),
            commit_time: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            group_changes: Histogram::new(exponential_buckets(1.0, 4.0, 9)),
            requests: Family::default(),
            request_time: Family::new_with_constructor(|| Histogram::new(REQUEST_TIMES)),
            notifications: Family::default(),
            lock_outs: Counter::default(),
            #[cfg(feature = "otel")]
            traces: Family::default(),
            gauges: Gauges::register(to),
            oldest_due: AtomicI64::new(0),
            running: AtomicUsize::new(0),
            quarantined: AtomicUsize::new(0),
            scrape: Mutex::new(()),
            registry: Registry::default(),
        };
        let Self { attempts_ended, start_delay, fires, fire_lateness, .. } = &metrics;
        to.register("attempts_ended", "Attempts that ended, by outcome", attempts_ended.clone());
        to.register(
            "job_start_delay_seconds",
            "From when a job was due until its container started",
            start_delay.clone(),
        );
        to.register(
            "schedule_verdicts",
            "Verdicts on slots of schedules; slots that are decided together count once",
            fires.clone(),
        );
        to.register(
            "schedule_lateness_seconds",
            "From when a slot of a schedule was due, jitter included, until its job was made",
            fire_lateness.clone(),
        );
        let Self { worker_changes, commit_time, group_changes, requests, request_time, .. } = &metrics;
        to.register("worker_changes", "Changes of workers to a state", worker_changes.clone());
        to.register("commit_seconds", "Time of a commit, from hand-over to durability", commit_time.clone());
        to.register("commit_changes", "Changes of a commit", group_changes.clone());
        to.register(
            "http_requests",
            "Answered requests, by route, method and class of status",
            requests.clone(),
        );
        to.register(
            "http_request_seconds",
            "Time until a request had its headers answered, by route; requests with ?wait wait",
            request_time.clone(),
        );
        to.register(
            "notification_tries",
            "Notifications that were sent, by kind of target and result",
            metrics.notifications.clone(),
        );
        to.register(
            "address_lock_outs",
            "Addresses that were locked out after too many wrong tokens; one that goes on guessing counts each time",
            metrics.lock_outs.clone(),
        );
        #[cfg(feature = "otel")]
        to.register("job_traces", "Traces of ended jobs, by result", metrics.traces.clone());
        metrics.create_known_labels();
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Shows what has not happened yet as 0: an alert needs to see the first time.
    fn create_known_labels(&self) {
        for outcome in Outcome::ALL {
            drop(self.attempts_ended.get_or_create(&[("outcome", outcome.name().into())]));
        }
        for verdict in ["fired", "caught_up", "backfilled", "skipped", "missed"] {
            drop(self.fires.get_or_create(&[("verdict", verdict.into())]));
        }
        for kind in TargetKind::ALL {
            for result in ["delivered", "failed"] {
                let labels = [("kind", kind.name().into()), ("result", result.into())];
                drop(self.notifications.get_or_create(&labels));
            }
        }
        #[cfg(feature = "otel")]
        for result in ["exported", "dropped"] {
            self.traces_counted(result, 0);
        }
        for state in WORKER_STATES {
            drop(self.worker_changes.get_or_create(&[("state", state.into())]));
        }
    }

    /// Counts a try to deliver a notification.
    pub fn notification_sent(&self, kind: &'static str, is_delivered: bool) {
        let result = if is_delivered { "delivered" } else { "failed" };
        self.notifications.get_or_create(&[("kind", kind.into()), ("result", result.into())]).inc();
    }

    /// Counts a lock-out of an address.
    pub fn address_locked_out(&self) {
        self.lock_outs.inc();
    }

    /// Counts traces of ended jobs: `exported`, or `dropped`.
    #[cfg(feature = "otel")]
    pub fn traces_counted(&self, result: &'static str, jobs: usize) {
        self.traces.get_or_create(&[("result", result.into())]).inc_by(jobs as u64);
    }

    /// Traces of ended jobs with this result so far.
    #[cfg(feature = "otel")]
    #[must_use]
    pub fn traces(&self, result: &'static str) -> u64 {
        self.traces.get_or_create(&[("result", result.into())]).get()
    }

    /// Counts accepted jobs.
    pub fn job_accepted(&self, definition: &str) {
        self.definitions.of(definition).accepted.inc();
    }

    /// Counts the end of a job.
    pub fn job_ended(&self, definition: &str, state: State) {
        if let Some(counter) = self.definitions.of(definition).ended(state) {
            counter.inc();
        }
    }

    /// Counts the end of an attempt, and the time that its container ran.
    pub fn attempt_ended(&self, definition: &str, outcome: Outcome, ran: Option<Duration>) {
        self.attempts_ended.get_or_create(&[("outcome", outcome.name().into())]).inc();
        if let Some(ran) = ran {
            self.definitions.of(definition).ran.observe(ran.as_secs_f64());
        }
    }

    /// Adds what an attempt has used. Unknown figures add nothing.
    pub fn attempt_used(&self, definition: &str, usage: &Usage) {
        if usage.is_unknown() {
            return;
        }
        let definition = self.definitions.of(definition);
        if let Some(cpu_ms) = usage.cpu_ms {
            definition.cpu_seconds.inc_by(Duration::from_millis(cpu_ms).as_secs_f64());
        }
        if let Some(peak) = usage.memory_peak_bytes {
            // The loss of precision is below a millionth.
            definition.memory_peak.observe(peak as f64);
        }
    }

    /// Notes how long a job waited from its due time to the start of its container.
    pub fn job_started(&self, delay: Duration) {
        self.start_delay.observe(delay.as_secs_f64());
    }

    /// Notes how many jobs are in the state `running`.
    pub fn set_running(&self, jobs: usize) {
        self.running.store(jobs, std::sync::atomic::Ordering::Relaxed);
    }

    /// How many jobs are in the state `running`, without those that the feed of events has lost.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Notes that more jobs of a definition are in the state `running`, or fewer if the change is negative.
    pub fn running_changed(&self, definition: &str, change: i64) {
        self.definitions.of(definition).running.inc_by(change);
    }

    /// Notes how many jobs are in quarantine.
    pub fn set_quarantined(&self, jobs: usize) {
        self.quarantined.store(jobs, std::sync::atomic::Ordering::Relaxed);
    }

    /// Notes when the oldest queued job was due.
    pub fn set_oldest_due(&self, due_at: Option<Timestamp>) {
        let millis = due_at.map_or(0, |due_at| due_at.0);
        self.oldest_due.store(millis, std::sync::atomic::Ordering::Relaxed);
    }

    /// When the oldest queued job was due; none if none waits.
    #[must_use]
    pub fn oldest_due(&self) -> Option<Timestamp> {
        let millis = self.oldest_due.load(std::sync::atomic::Ordering::Relaxed);
        (millis > 0).then_some(Timestamp(millis))
    }

    /// Counts a verdict on slots of a schedule: on one, or on several at once. The definition knows their jitter, which is no lateness.
    pub fn slots_decided(&self, row: &FireRow, definition: Option<&Definition>) {
        // A row that marks a moment, or slots that nobody could count, is no reason for an alert.
        if row.count.count == 0 {
            return;
        }
        self.fires.get_or_create(&[("verdict", row.verdict.name().into())]).inc();
        // A backfill is as late as somebody asked for it.
        if matches!(row.verdict, FireVerdict::Fired(_) | FireVerdict::CaughtUp(_)) {
            self.fire_lateness.observe(row.lateness(definition).as_secs_f64());
        }
    }

    /// Counts a change of a worker to this state.
    pub fn worker_changed(&self, state: &'static str) {
        self.worker_changes.get_or_create(&[("state", state.into())]).inc();
    }

    /// Notes the time of a commit.
    pub fn committed(&self, took: Duration) {
        self.commit_time.observe(took.as_secs_f64());
    }

    /// Notes the size of a commit.
    pub fn group(&self, changes: usize) {
        self.group_changes.observe(changes as f64);
    }

    /// Counts an answered request. `route` is the pattern of its path, which bounds the labels.
    pub fn request(&self, route: &str, method: &str, status: u16, took: Duration) {
        let method = METHODS.iter().find(|known| **known == method).copied().unwrap_or("other");
        let class = match status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        let route: Cow<'static, str> = route.to_owned().into();
        let labels = [("route", route.clone()), ("method", method.into()), ("status", class.into())];
        self.requests.get_or_create(&labels).inc();
        self.request_time.get_or_create(&[("route", route)]).observe(took.as_secs_f64());
    }

    /// All metrics in this format.
    #[must_use]
    pub fn scrape(&self, facts: &ScrapeFacts<'_>, format: MetricsFormat) -> String {
        let _one_at_a_time = self.scrape.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let quarantined = self.quarantined.load(std::sync::atomic::Ordering::Relaxed);
        self.gauges.set(facts, self.oldest_due(), quarantined);
        self.definitions.set_queued(&queued(facts.snapshot));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        match format {
            MetricsFormat::OpenMetrics => text,
            MetricsFormat::Text => text_format::from_open_metrics(&text),
        }
    }
}

/// Jobs that wait for a worker or a limit, by definition.
fn queued(snapshot: &Snapshot) -> BTreeMap<&str, u64> {
    let mut queued = BTreeMap::new();
    for waiting in &snapshot.waiting {
        if let Some(definition) = snapshot.definitions.get(&waiting.revision) {
            *queued.entry(definition.name.as_str()).or_default() += waiting.count;
        }
    }
    queued
}

/// The format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format 0.0.4 of Prometheus, which every reader knows.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// From a tenth of a second to a day.
const WAITS: [f64; 12] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0];

/// From a millisecond to a minute.
const REQUEST_TIMES: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0];

const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PATCH", "DELETE"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use protocol::JobId;
    use scheduler::schedule::catch_up::SlotCount;

    use super::*;
    use crate::config::jobs_file::{self, Environment};

    #[test]
    fn jitter_is_no_lateness() {
        let text = "jobs: { a: { image: 'a:1', schedule: { id: s, cron: '0 * * * *', jitter: 10m } } }";
        let file = jobs_file::parse(text, Path::new("jobs.yaml"), &Environment::default()).unwrap();
        let definition = &file.definitions[0].definition;
        let schedule = &definition.timetable.schedules[0];
        let slots = (1..50).map(|hour| Timestamp(hour * 3_600_000));
        let slot = slots.max_by_key(|slot| schedule.due_at(*slot).since(*slot)).unwrap();
        assert!(schedule.due_at(slot).since(slot) > Duration::from_secs(60), "it is far beyond its jitter");
        let row = FireRow {
            definition: "a".into(),
            schedule: schedule.id.clone(),
            from: slot,
            to: slot,
            count: SlotCount { count: 1, exact: true },
            verdict: FireVerdict::Fired(JobId(1)),
            at: schedule.due_at(slot) + Duration::from_secs(2),
        };
        let metrics = Metrics::default();
        metrics.slots_decided(&row, Some(definition));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &metrics.registry).unwrap();
        assert!(text.contains("longshore_schedule_lateness_seconds_sum 2.0"), "{text}");
    }
}
