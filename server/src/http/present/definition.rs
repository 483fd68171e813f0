//! Fills the JSON of definitions. Values of variables are never shown, because any of them may be a secret.

use std::collections::{BTreeMap, BTreeSet};

use protocol::container::{PullPolicy, Ulimit, Volume};
use scheduler::definition::{Definition, Expect, OnLost, RetryOn, RetryPolicy};
use scheduler::expectations::ExpectationRow;
use scheduler::hooks::{HookEvent, Hooks};
use scheduler::limits::rules::{Concurrency, OnDuplicate, OnFull, RateLimit, UniqueRule};
use scheduler::params::{Absence, Param, ParamKind, Word};
use scheduler::placement::rules::{Preference, RunOn};
use scheduler::snapshot::Snapshot;
use scheduler::step::PendingReason;

use crate::catalogue::Entry;
use crate::http::present::shapes::{self, Time};
use crate::http::present::{notification, presenter};
use crate::params;
use crate::retention_rule::RetentionRule;
use crate::ws::MissingByRevision;

/// Numbers of waiting jobs by definition name and reason.
pub(crate) type Waiting<'s> = BTreeMap<&'s str, BTreeMap<PendingReason, u64>>;

/// Jobs of older revisions count for the definition of the same name.
pub(crate) fn count_waiting(snapshot: &Snapshot) -> Waiting<'_> {
    let mut all = Waiting::new();
    for waiting in &snapshot.waiting {
        let Some(definition) = snapshot.definitions.get(&waiting.revision) else { continue };
        let counts = all.entry(definition.name.as_str()).or_default();
        *counts.entry(waiting.reason).or_default() += waiting.count;
    }
    all
}

/// The JSON of a definition, without its schedules and the state of its limits.
pub(crate) fn definition(
    entry: &Entry,
    waiting: &Waiting<'_>,
    snapshot: &Snapshot,
    missing: &MissingByRevision,
) -> shapes::Definition {
    let definition = &entry.definition;
    let (container, loss) = (&definition.container, &definition.loss);
    let options = &container.options;
    shapes::Definition {
        name: definition.name.clone(),
        revision: definition.revision.to_string(),
        file: entry.file.as_deref().map(str::to_owned),
        enabled: definition.enabled,
        pauses: pauses(snapshot, definition),
        description: entry.description.clone(),
        owner: entry.owner.clone(),
        tags: entry.tags.clone(),
        notify: entry.notify.iter().map(notification::target).collect(),
        retention: (!entry.retention.is_empty()).then(|| retention(&entry.retention)),
        runtime: definition.runtime().name().into(),
        image: container.image.clone(),
        entrypoint: container.entrypoint.clone(),
        command: command(definition),
        environment: variables(definition),
        secrets: secrets(definition),
        missing_secret: missing.get(&definition.revision).map(|missing| missing.reason.clone()),
        params: entry.params().into_iter().map(param).collect(),
        allow: definition
            .submission
            .allow
            .as_ref()
            .map(|fields| fields.iter().map(|field| field.name().into()).collect()),
        working_dir: container.working_dir.clone(),
        user: container.user.clone(),
        volumes: container.volumes.iter().map(volume).collect(),
        network: container.network.clone(),
        hostname: options.hostname.clone(),
        extra_hosts: options.extra_hosts.iter().map(|(name, address)| format!("{name}:{address}")).collect(),
        dns: options.dns.clone(),
        dns_search: options.dns_search.clone(),
        ulimits: options.ulimits.iter().map(ulimit).collect(),
        group_add: options.group_add.clone(),
        tmpfs: container.tmpfs.clone(),
        shm_bytes: container.shm_bytes,
        read_only: container.read_only,
        cap_add: container.cap_add.clone(),
        cap_drop: container.cap_drop.clone(),
        init: container.init,
        platform: container.platform.clone(),
        labels: container.labels.iter().cloned().collect(),
        pull_policy: pull_policy(container.pull_policy).into(),
        pull_timeout_ms: shapes::millis(container.pull_timeout),
        cpus_milli: container.resources.cpus_milli,
        memory_bytes: container.resources.memory_bytes,
        pids: container.resources.pids,
        priority: definition.priority,
        timeout_ms: definition.timeout.map(shapes::millis),
        stop_signal: container.stop_signal.clone(),
        stop_grace_ms: shapes::millis(container.stop_grace),
        retry: retry(&definition.retry),
        success_exit_codes: definition.success_exit_codes.clone(),
        lost_limit: loss.limit,
        lost_after_ms: shapes::millis(loss.after),
        on_lost: on_lost(loss.on_lost).into(),
        on_lost_timeout_ms: definition.waits.silent_worker.map(shapes::millis),
        queue_timeout_ms: definition.waits.queue.map(shapes::millis),
        quarantine_timeout_ms: definition.waits.quarantine.map(shapes::millis),
        self_fence_ms: container.self_fence.map(shapes::millis),
        ping_interval_ms: loss.heartbeat.map(shapes::millis),
        unexpected_retry_delay_ms: loss.delay.map(shapes::millis),
        expect: expectation_of(definition, snapshot),
        hooks: hooks(&definition.hooks),
        log_max_bytes: container.log_bytes_max,
        log_mask: container.log_mask.clone(),
        input_bytes: container.input.as_ref().map(String::len),
        concurrency: definition.limits.concurrency.as_ref().map(concurrency),
        rate_limit: definition.limits.rate.as_ref().map(rate_limit),
        max_queued: definition.limits.queued_max,
        unique: definition.limits.unique.as_ref().map(unique),
        requires: definition.placement.requires.iter().map(ToString::to_string).collect(),
        prefers: definition.placement.prefers.iter().map(preference).collect(),
        workers: definition.placement.workers.iter().map(ToString::to_string).collect(),
        strategy: definition.placement.strategy.name().into(),
        run_on: match definition.placement.run_on {
            RunOn::One => None,
            RunOn::All => Some(shapes::Workers::default()),
            RunOn::Count(count) => Some(shapes::Workers::Count(count)),
        },
        waiting: waiting.get(definition.name.as_str()).map(counted).unwrap_or_default(),
        limits: Vec::new(),
        schedules: Vec::new(),
        overlap: definition.timetable.overlap.name().into(),
        catch_up: definition.timetable.catch_up.mode.name().into(),
        catch_up_window_ms: shapes::millis(definition.timetable.catch_up.window),
        catch_up_limit: definition.timetable.catch_up.limit,
        next_fire_at: None,
        last_ended: None,
    }
}

fn retention(rule: &RetentionRule) -> shapes::RetentionRule {
    shapes::RetentionRule {
        keep: rule.keep,
        max_age_ms: rule.max_age.map(shapes::millis),
        failed_max_age_ms: rule.failed_max_age.map(shapes::millis),
        output_max_age_ms: rule.output_max_age.map(shapes::millis),
    }
}

fn hooks(hooks: &Hooks) -> BTreeMap<shapes::Text, Vec<String>> {
    let named = |event: HookEvent| {
        let names: Vec<String> = hooks.of(event).iter().map(ToString::to_string).collect();
        (!names.is_empty()).then(|| (event.name().into(), names))
    };
    HookEvent::ALL.into_iter().filter_map(named).collect()
}

fn preference(preference: &Preference) -> shapes::Preference {
    shapes::Preference { condition: preference.rule.to_string(), weight: preference.weight }
}

/// The words of the command; parameters as they are written in jobs.yaml.
fn command(definition: &Definition) -> Vec<String> {
    let word = |word: &Word| match word {
        Word::Text(text) => text.clone(),
        Word::Param(name) => format!("${{params.{name}}}"),
    };
    let rest = definition.submission.params.command.iter().map(word);
    definition.container.command.iter().cloned().chain(rest).collect()
}

fn variables(definition: &Definition) -> Vec<String> {
    let from_params = definition.submission.params.environment.iter();
    let from_params = from_params.chain(&definition.secrets.variables);
    let mut names: Vec<_> =
        definition.container.environment.iter().chain(from_params).map(|(name, _)| name.clone()).collect();
    names.sort();
    names
}

/// The names of its secrets, as files and as variables.
fn secrets(definition: &Definition) -> Vec<String> {
    let variables = definition.secrets.variables.iter().map(|(_, name)| name);
    let names: BTreeSet<_> = definition.secrets.files.iter().chain(variables).cloned().collect();
    names.into_iter().collect()
}

fn param(param: &Param) -> shapes::Param {
    let default = match &param.absence {
        Absence::Default(_) if param.secret => Some(params::SECRET.into()),
        Absence::Default(value) => Some(params::to_json(value)),
        Absence::Allowed | Absence::Refused => None,
    };
    let words = match &param.kind {
        ParamKind::Enum(words) => words.clone(),
        ParamKind::List { items, .. } => items.clone(),
        _ => Vec::new(),
    };
    shapes::Param {
        name: param.name.clone(),
        kind: param.kind.name().into(),
        required: param.absence == Absence::Refused,
        default,
        allowed: params::allowed(&param.kind),
        words,
        description: param.description.clone(),
        secret: param.secret,
    }
}

fn expectation_of(definition: &Definition, snapshot: &Snapshot) -> Option<shapes::Expectation> {
    if definition.expect == Expect::default() {
        return None;
    }
    let missed = snapshot.missed.binary_search_by(|row| (*row.definition).cmp(definition.name.as_str()));
    Some(expectation(definition.expect, missed.ok().map(|index| &snapshot.missed[index])))
}

/// The JSON of an expectation; `missed` is its state if it is not met.
pub(crate) fn expectation(expect: Expect, missed: Option<&ExpectationRow>) -> shapes::Expectation {
    let stale_since = missed.and_then(|row| row.stale_since).map(Time);
    let slow = missed.and_then(|row| row.slow);
    let condition = match (stale_since, slow) {
        (None, None) => "met",
        (Some(_), None) => "stale",
        (None, Some(_)) => "slow",
        (Some(_), Some(_)) => "stale, slow",
    };
    shapes::Expectation {
        success_within_ms: expect.success_within.map(shapes::millis),
        max_duration_ms: expect.max_duration.map(shapes::millis),
        condition: condition.into(),
        stale_since,
        slow_since: slow.map(|slow| Time(slow.since)),
        slow_job: slow.map(|slow| slow.job.0),
    }
}

fn concurrency(rule: &Concurrency) -> shapes::Concurrency {
    let on_full = OnFull::ALL.into_iter().find(|(_, known)| *known == rule.on_full);
    shapes::Concurrency {
        limit: rule.limit,
        key: rule.key.as_ref().map(ToString::to_string),
        group: rule.group.clone(),
        on_full: on_full.map_or("", |(name, _)| name).into(),
    }
}

fn unique(rule: &UniqueRule) -> shapes::Unique {
    let on_duplicate = OnDuplicate::ALL.into_iter().find(|(_, known)| *known == rule.on_duplicate);
    shapes::Unique {
        key: rule.key.as_ref().map(ToString::to_string),
        on_duplicate: on_duplicate.map_or("", |(name, _)| name).into(),
        clear: rule.clear.names().iter().map(|name| (*name).into()).collect(),
    }
}

fn rate_limit(rule: &RateLimit) -> shapes::RateLimit {
    shapes::RateLimit {
        limit: rule.limit,
        per_ms: shapes::millis(rule.per),
        burst: rule.burst,
        key: rule.key.as_ref().map(ToString::to_string),
    }
}

fn volume(volume: &Volume) -> String {
    let suffix = if volume.read_only { ":ro" } else { "" };
    format!("{}:{}{suffix}", volume.source, volume.target)
}

fn ulimit(ulimit: &Ulimit) -> (String, shapes::Ulimit) {
    (ulimit.name.clone(), shapes::Ulimit { soft: ulimit.soft, hard: ulimit.hard })
}

const fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "always",
        PullPolicy::Missing => "missing",
        PullPolicy::Never => "never",
    }
}

const fn on_lost(on_lost: OnLost) -> &'static str {
    match on_lost {
        OnLost::Retry => "retry",
        OnLost::Fail => "fail",
        OnLost::Wait => "wait",
    }
}

fn retry(policy: &RetryPolicy) -> shapes::Retry {
    shapes::Retry {
        max: policy.max,
        when: policy.when.iter().map(|outcome| outcome.name().into()).collect(),
        exit_codes: policy.exit_codes.clone(),
        on: match policy.on {
            RetryOn::Any => "any",
            RetryOn::Same => "same",
            RetryOn::Other => "other",
        }
        .into(),
        backoff_kind: policy.backoff.delays.name().into(),
        backoff_initial_ms: shapes::millis(policy.backoff.delays.first()),
        backoff_max_ms: shapes::millis(policy.backoff.delays.highest()),
        backoff_factor_milli: policy.backoff.delays.factor_milli(),
        backoff_delays_ms: policy.backoff.delays.list().iter().copied().map(shapes::millis).collect(),
        backoff_jitter_milli: policy.backoff.jitter_milli,
        memory_factor_milli: policy.memory_factor_milli,
    }
}

fn counted(counts: &BTreeMap<PendingReason, u64>) -> Vec<shapes::Waiting> {
    let counts = counts.iter();
    counts
        .map(|(reason, count)| shapes::Waiting { reason: presenter::pending(*reason), count: *count })
        .collect()
}

/// The pauses that hold back the jobs of a definition.
fn pauses(snapshot: &Snapshot, definition: &Definition) -> Vec<shapes::Pause> {
    snapshot.pauses.of_jobs(definition).map(|(target, pause)| shapes::Pause::of(&target, pause)).collect()
}
