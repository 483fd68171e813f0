//! Gauges: set from facts of the moment when somebody scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use protocol::{RuntimeKind, Timestamp};
use scheduler::definition::Expect;
use scheduler::snapshot::Snapshot;
use scheduler::step::PendingReason;

use super::definitions::{DEFINITIONS_MAX, OTHER};
use super::labels::{Labels, WORKER_STATES};

/// The facts of the moment.
#[derive(Debug)]
pub struct ScrapeFacts<'s> {
    /// Workers and waiting jobs.
    pub snapshot: &'s Snapshot,
    /// The wall clock.
    pub now: Timestamp,
    /// Readers of events.
    pub event_readers: usize,
    /// Events that are kept.
    pub events_kept: usize,
    /// Bytes of the database and of its write-ahead log.
    pub database_bytes: (u64, u64),
    /// Segments of output, and their bytes.
    pub log_segments: (usize, u64),
    /// The disk is too full for new jobs.
    pub storage_is_low: bool,
    /// The last reload was refused because of faults of the file.
    pub jobs_file_is_refused: bool,
    /// The end of the TLS certificate in use; none without TLS.
    pub certificate_expires: Option<Timestamp>,
    /// The end of the token in use that expires next; none if none expires.
    pub token_expires: Option<Timestamp>,
    /// The time and the bytes of the last backup; none if none was made.
    pub last_backup: Option<(Timestamp, u64)>,
    /// The time of the last failed backup; none if a complete one followed.
    pub failed_backup: Option<Timestamp>,
    /// Failures that nobody has dealt with, of each definition that has some; none if they could not be read.
    pub unresolved: Option<BTreeMap<String, u64>>,
}

/// All gauges.
#[derive(Debug)]
pub(super) struct Gauges {
    live_jobs: Gauge,
    waiting: Family<Labels<1>, Gauge>,
    quarantined: Gauge,
    pauses: Gauge,
    oldest_wait: Gauge<f64, AtomicU64>,
    workers: Family<Labels<1>, Gauge>,
    workers_set_aside: Gauge,
    workers_lacking_runtime: Family<Labels<1>, Gauge>,
    unmanaged: Gauge,
    slots: Family<Labels<1>, Gauge>,
    event_readers: Gauge,
    events_kept: Gauge,
    database_bytes: Gauge,
    wal_bytes: Gauge,
    log_segments: Gauge,
    log_bytes: Gauge,
    storage_low: Gauge,
    jobs_file_refused: Gauge,
    schedules_silent: Gauge,
    certificate_expires: Gauge,
    token_expires: Gauge,
    last_backup: Gauge,
    last_backup_bytes: Gauge,
    failed_backup: Gauge,
    expectations_missed: Family<Labels<2>, Gauge>,
    unresolved: Family<Labels<1>, Gauge>,
}

impl Gauges {
    /// Registers all gauges.
    pub(super) fn register(to: &mut Registry) -> Self {
        let all = Self {
            live_jobs: Gauge::default(),
            waiting: Family::default(),
            quarantined: Gauge::default(),
            pauses: Gauge::default(),
            oldest_wait: Gauge::default(),
            workers: Family::default(),
            workers_set_aside: Gauge::default(),
            workers_lacking_runtime: Family::default(),
            unmanaged: Gauge::default(),
            slots: Family::default(),
            event_readers: Gauge::default(),
            events_kept: Gauge::default(),
            database_bytes: Gauge::default(),
            wal_bytes: Gauge::default(),
            log_segments: Gauge::default(),
            log_bytes: Gauge::default(),
            storage_low: Gauge::default(),
            jobs_file_refused: Gauge::default(),
            schedules_silent: Gauge::default(),
            certificate_expires: Gauge::default(),
            token_expires: Gauge::default(),
            last_backup: Gauge::default(),
            last_backup_bytes: Gauge::default(),
            failed_backup: Gauge::default(),
            expectations_missed: Family::default(),
            unresolved: Family::default(),
        };
        to.register("jobs_live", "Jobs that have not ended", all.live_jobs.clone());
        to.register("jobs_waiting", "Queued jobs, by the reason why they wait", all.waiting.clone());
        let held = "Jobs in quarantine: each waits for an operator";
        to.register("jobs_quarantined", held, all.quarantined.clone());
        let pauses = "Pauses in force: of the server, of schedules, groups, definitions and batches";
        to.register("pauses", pauses, all.pauses.clone());
        let oldest = "Seconds since the oldest queued job was due; 0 if none waits";
        to.register("oldest_wait_seconds", oldest, all.oldest_wait.clone());
        to.register("workers", "Workers with a connection or attempts, by state", all.workers.clone());
        let set_aside = "Workers that are set aside for a waiting job";
        to.register("workers_set_aside", set_aside, all.workers_set_aside.clone());
        let lacking = "Connected workers that cannot use a runtime that they offer, by runtime";
        to.register("workers_lacking_runtime", lacking, all.workers_lacking_runtime.clone());
        let unmanaged = "Attempts on workers that this database never created, as after a restore";
        to.register("attempts_unmanaged", unmanaged, all.unmanaged.clone());
        let slots = "Slots of connected workers, those in use, and attempts that wait in front of them";
        to.register("slots", slots, all.slots.clone());
        to.register("event_readers", "Readers of /api/events", all.event_readers.clone());
        to.register("events_kept", "Events that a reader can resume from", all.events_kept.clone());
        to.register("database_bytes", "Bytes of the database file", all.database_bytes.clone());
        to.register("wal_bytes", "Bytes of the write-ahead log", all.wal_bytes.clone());
        to.register("log_segments", "Files with output of jobs", all.log_segments.clone());
        to.register("log_bytes", "Bytes of output of jobs", all.log_bytes.clone());
        to.register("storage_low", "1 while the disk is too full for new jobs", all.storage_low.clone());
        let refused = "1 while jobs.yaml has faults and older definitions are in force";
        to.register("jobs_file_refused", refused, all.jobs_file_refused.clone());
        let silent = "1 while slots in the future are decided, because the wall clock was set back";
        to.register("schedules_silent", silent, all.schedules_silent.clone());
        let expires = "Unix time at which the TLS certificate in use expires; 0 without TLS";
        to.register("tls_certificate_expires_timestamp_seconds", expires, all.certificate_expires.clone());
        let expires = "Unix time at which the next token in use expires; 0 if none does";
        to.register("token_expires_timestamp_seconds", expires, all.token_expires.clone());
        let last = "Unix time of the last complete backup, when its copy of the database was begun; 0 if none was made";
        to.register("last_backup_timestamp_seconds", last, all.last_backup.clone());
        let bytes = "Bytes of the last complete backup";
        to.register("last_backup_bytes", bytes, all.last_backup_bytes.clone());
        let failed = "Unix time of the last failed backup; 0 if none failed, or a complete one followed";
        to.register("last_backup_failed_timestamp_seconds", failed, all.failed_backup.clone());
        let missed = "1 while a definition is stale or slow, by definition; 0 while it is as expected";
        to.register("expectation_missed", missed, all.expectations_missed.clone());
        let unresolved =
            "Failed, expired and lost jobs that were not retried and not acknowledged, by definition";
        to.register("jobs_unresolved", unresolved, all.unresolved.clone());
        all
    }

    /// Sets all gauges.
    pub(super) fn set(&self, facts: &ScrapeFacts<'_>, oldest_due: Option<Timestamp>, quarantined: usize) {
        let snapshot = facts.snapshot;
        self.live_jobs.set(number(snapshot.live_jobs));
        self.quarantined.set(number(quarantined));
        self.pauses.set(number(snapshot.pauses.iter().count()));
        // The reasons that need an operator are shown as 0, too.
        let mut reasons: BTreeMap<&'static str, u64> = NEED_OPERATOR.map(|reason| (reason.name(), 0)).into();
        for waiting in &snapshot.waiting {
            *reasons.entry(waiting.reason.name()).or_default() += waiting.count;
        }
        let has_waiting = reasons.values().any(|count| *count > 0);
        set_family(&self.waiting, "reason", reasons);
        let oldest = oldest_due.filter(|_| has_waiting).map_or(0.0, |due| facts.now.since(due).as_secs_f64());
        self.oldest_wait.set(oldest);
        self.set_workers(snapshot);
        self.set_expectations(snapshot);
        self.set_unresolved(facts.unresolved.as_ref());
        self.event_readers.set(number(facts.event_readers));
        self.events_kept.set(number(facts.events_kept));
        self.database_bytes.set(number(facts.database_bytes.0));
        self.wal_bytes.set(number(facts.database_bytes.1));
        self.log_segments.set(number(facts.log_segments.0));
        self.log_bytes.set(number(facts.log_segments.1));
        self.storage_low.set(facts.storage_is_low.into());
        self.jobs_file_refused.set(facts.jobs_file_is_refused.into());
        self.schedules_silent.set(snapshot.slots_decided_until(facts.now).is_some().into());
        let seconds = |at: Option<Timestamp>| at.map_or(0, |at| at.0.div_euclid(1_000));
        self.certificate_expires.set(seconds(facts.certificate_expires));
        self.token_expires.set(seconds(facts.token_expires));
        self.last_backup.set(seconds(facts.last_backup.map(|(at, _)| at)));
        self.failed_backup.set(seconds(facts.failed_backup));
        self.last_backup_bytes.set(number(facts.last_backup.map_or(0, |(_, bytes)| bytes)));
    }

    fn set_workers(&self, snapshot: &Snapshot) {
        // States without a worker are shown as 0, because alerts compare with it.
        let mut workers: BTreeMap<&'static str, u64> = WORKER_STATES.map(|state| (state, 0)).into();
        let mut slots: BTreeMap<&'static str, u64> = ["total", "busy", "queued"].map(|kind| (kind, 0)).into();
        let mut lacking: BTreeMap<&'static str, u64> =
            [RuntimeKind::Docker, RuntimeKind::Process].map(|runtime| (runtime.name(), 0)).into();
        let (mut set_aside, mut unmanaged) = (0, 0);
        for worker in snapshot.workers.iter() {
            set_aside += i64::from(worker.set_aside_for.is_some());
            unmanaged += worker.unmanaged.len();
            let runtimes = worker.runtimes.iter().filter(|_| worker.session.is_some());
            for (runtime, _) in runtimes.filter(|(_, availability)| !availability.is_available()) {
                *lacking.entry(runtime.name()).or_default() += 1;
            }
            *workers.entry(worker.state.name()).or_default() += 1;
            let total = if worker.session.is_some() { worker.slots } else { 0 };
            for (kind, count) in [("total", total), ("busy", worker.busy), ("queued", worker.queued)] {
                *slots.entry(kind).or_default() += u64::from(count);
            }
        }
        set_family(&self.workers, "state", workers);
        set_family(&self.slots, "kind", slots);
        set_family(&self.workers_lacking_runtime, "runtime", lacking);
        self.workers_set_aside.set(set_aside);
        self.unmanaged.set(number(unmanaged));
    }

    fn set_unresolved(&self, unresolved: Option<&BTreeMap<String, u64>>) {
        self.unresolved.clear();
        for (name, count) in unresolved.map(by_label).unwrap_or_default() {
            self.unresolved.get_or_create(&[("definition", name.to_owned().into())]).set(number(count));
        }
    }

    fn set_expectations(&self, snapshot: &Snapshot) {
        self.expectations_missed.clear();
        for ((definition, condition), count) in expectations_missed(snapshot) {
            let labels = [("definition", definition.to_owned().into()), ("condition", condition.into())];
            self.expectations_missed.get_or_create(&labels).set(count);
        }
    }
}

/// Numbers of some definitions, by the label of the definition: those beyond the first thousand names are added up. Alerts find the metric
/// also if there are none.
fn by_label(numbers: &BTreeMap<String, u64>) -> BTreeMap<&str, u64> {
    let mut labelled = BTreeMap::from([(OTHER, 0)]);
    for (position, (name, number)) in numbers.iter().enumerate() {
        let label = if position < DEFINITIONS_MAX { name } else { OTHER };
        *labelled.entry(label).or_default() += number;
    }
    labelled
}

/// The expectations that are missed, by the label of the definition and the condition. Those that are met are shown as 0.
fn expectations_missed(snapshot: &Snapshot) -> BTreeMap<(&str, &'static str), i64> {
    let expecting = snapshot.definitions.values().filter(|definition| definition.expect != Expect::default());
    let names: BTreeSet<&str> = expecting
        .map(|definition| definition.name.as_str())
        .chain(snapshot.missed.iter().map(|row| &*row.definition))
        .collect();
    let own: BTreeSet<&str> = names.into_iter().take(DEFINITIONS_MAX).collect();
    let mut missed: BTreeMap<(&str, &'static str), i64> =
        own.iter().chain(&[OTHER]).flat_map(|name| [((*name, "stale"), 0), ((*name, "slow"), 0)]).collect();
    for row in &snapshot.missed {
        let name = if own.contains(&*row.definition) { &*row.definition } else { OTHER };
        for (condition, is_missed) in [("stale", row.stale_since.is_some()), ("slow", row.slow.is_some())] {
            *missed.entry((name, condition)).or_default() += i64::from(is_missed);
        }
    }
    missed
}

fn set_family(family: &Family<Labels<1>, Gauge>, label: &'static str, values: BTreeMap<&'static str, u64>) {
    family.clear();
    for (value, count) in values {
        family.get_or_create(&[(label, value.into())]).set(number(count));
    }
}

fn number(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

const NEED_OPERATOR: [PendingReason; 3] =
    [PendingReason::NoWorker, PendingReason::Cordoned, PendingReason::RuntimeUnavailable];

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use protocol::Revision;
    use scheduler::definition::Definition;
    use scheduler::expectations::ExpectationRow;

    use super::*;
    use crate::config::jobs_file::{self, Environment};

    /// Definitions that expect a success each minute.
    fn definitions(count: u128) -> Arc<BTreeMap<Revision, Arc<Definition>>> {
        let text = "jobs: { a: { image: 'a:1' } }";
        let file = jobs_file::parse(text, Path::new("jobs.yaml"), &Environment::default()).unwrap();
        let expect = Expect { success_within: Some(Duration::from_secs(60)), ..Expect::default() };
        let make = |number| {
            let (name, revision) = (format!("job-{number:04}"), Revision(number));
            let like = Definition::clone(&file.definitions[0].definition);
            (revision, Arc::new(Definition { name, revision, expect, ..like }))
        };
        Arc::new((0..count).map(make).collect())
    }

    fn stale(name: &str) -> ExpectationRow {
        let since = Some(Timestamp(7));
        ExpectationRow { definition: name.into(), awaited_since: since, stale_since: since, slow: None }
    }

    #[test]
    fn a_missed_expectation_is_shown_by_name_and_a_met_one_as_0() {
        let snapshot =
            Snapshot { definitions: definitions(3), missed: vec![stale("job-0002")], ..Snapshot::default() };
        let shown = expectations_missed(&snapshot);
        assert_eq!(shown[&("job-0001", "stale")], 0);
        assert_eq!((shown[&("job-0002", "stale")], shown[&("job-0002", "slow")]), (1, 0));
        assert_eq!(expectations_missed(&Snapshot::default())[&(OTHER, "stale")], 0, "alerts find the metric");
    }

    #[test]
    fn failures_beyond_the_first_thousand_names_are_counted_together() {
        let numbers = (0..1_010).map(|number| (format!("job-{number:04}"), 2)).collect();
        let shown = by_label(&numbers);
        assert_eq!((shown.len(), shown["job-0999"], shown[OTHER]), (1_001, 2, 20));
        assert_eq!(by_label(&BTreeMap::new()), BTreeMap::from([(OTHER, 0)]), "alerts find the metric");
    }

    #[test]
    fn expectations_beyond_the_first_thousand_names_are_counted_together() {
        let missed = (0..1_010).map(|number| stale(&format!("job-{number:04}"))).collect();
        let snapshot = Snapshot { definitions: definitions(1_010), missed, ..Snapshot::default() };
        let shown = expectations_missed(&snapshot);
        assert_eq!((shown.len(), shown[&(OTHER, "stale")]), (2 * 1_001, 10));
    }
}
