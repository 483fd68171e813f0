//! One job of the file: its definition and its descriptive keys.

use std::time::Duration;

use protocol::Revision;
use protocol::order::Intervals;
use protocol::report::Outcome;
use scheduler::definition::{Definition, Expect, LossPolicy, OnLost, RetryPolicy, WaitLimits};

use super::backoff;
use super::container;
use super::fault::{FaultCode, Position};
use super::grammar;
use super::hooks;
use super::keys;
use super::limits;
use super::notify;
use super::params;
use super::placement;
use super::quantity::DurationText;
use super::reader::Reader;
use super::retention;
use super::run_on;
use super::schedule;
use super::scope::{self, Scope};
use super::secrets;
use super::tree::{Map, Node, Value};
use crate::notifications::target::Targets;
use crate::retention_rule::RetentionRule;

/// A job as read; its revision is not computed yet.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) definition: Definition,
    pub(super) params_in_order: Vec<String>,
    pub(super) description: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) notify: Targets,
    pub(super) retention: RetentionRule,
}

/// Reads the job `name`; missing keys are taken from `defaults`.
pub(super) fn read(
    name: &str,
    name_at: Position,
    own: &Map,
    defaults: Option<&Map>,
    extra: &[&str],
    reader: &mut Reader<'_>,
) -> Job {
    scope::check_keys(own, keys::JOB, extra, reader);
    read_checked(name, name_at, Scope::new(own, defaults), true, reader)
}

/// Reads `defaults` by themselves for their faults: they are a job of which keys may be missing.
pub(super) fn read_defaults(defaults: &Map, reader: &mut Reader<'_>) -> Job {
    scope::check_keys(defaults, keys::JOB, &["x-*"], reader);
    read_checked("defaults", Position::FILE, Scope::new(defaults, None), false, reader)
}

fn read_checked(
    name: &str,
    name_at: Position,
    scope: Scope<'_>,
    is_job: bool,
    reader: &mut Reader<'_>,
) -> Job {
    let (mut container, uses) = container::read(scope, name_at, is_job, reader);
    let secrets = secrets::read(scope, container.runtime, &uses, is_job, reader);
    let submission = params::read(scope, uses, is_job, reader);
    let self_fence = scope.find("self_fence").and_then(|node| reader.bool(node)).unwrap_or(false);
    let loss = loss_policy(scope, container.stop_grace, self_fence, reader);
    let fence_margin = reader.environment.intervals().lease / FENCE_MARGIN_DIVISOR;
    container.self_fence = self_fence.then(|| loss.after.saturating_sub(fence_margin));
    container.ask_before_start = self_fence || loss.on_lost == OnLost::Wait;
    let waits = wait_limits(scope, loss.on_lost, reader);
    let retry = retry_policy(scope, reader);
    if is_job {
        memory_can_be_raised(scope, &retry, reader);
        warn_of_no_retry(scope, reader);
    }
    let success_exit_codes = success_exit_codes(scope, &retry, reader);
    let timeout = timeout(scope, reader);
    let expect = expect(scope, timeout, reader);
    let timetable = schedule::read(name, scope, timeout, &submission.params, reader);
    let limits = limits::read(name, scope, is_job, &submission.params, reader);
    let placement = placement::read(scope, reader);
    run_on::check(scope, &placement, &limits, is_job, reader);
    let hooks = hooks::read(name, scope, is_job, reader);
    let priority = scope.find("priority").and_then(|node| reader.integer(node, keys::PRIORITIES));
    Job {
        definition: Definition {
            name: name.to_owned(),
            revision: Revision::default(),
            enabled: scope.find("enabled").and_then(|node| reader.bool(node)).unwrap_or(true),
            priority: priority.and_then(|priority| i8::try_from(priority).ok()).unwrap_or(0),
            timeout,
            retry,
            success_exit_codes,
            loss,
            waits,
            expect,
            placement,
            timetable,
            hooks,
            submission,
            limits,
            secrets,
            container,
        },
        params_in_order: params::names_in_order(scope),
        description: short_text(scope, "description", DESCRIPTION_BYTES_MAX, reader),
        owner: short_text(scope, "owner", OWNER_BYTES_MAX, reader),
        tags: tags(scope, reader),
        notify: notify::read(scope, reader),
        retention: retention::read(scope, reader),
    }
}

fn timeout(scope: Scope<'_>, reader: &mut Reader<'_>) -> Option<Duration> {
    let Some(node) = scope.find("timeout") else { return Some(keys::TIMEOUT) };
    duration_or_none(node, reader)
}

fn duration_or_none(node: &Node, reader: &mut Reader<'_>) -> Option<Duration> {
    reader.duration_or_none(node, keys::DURATION_MIN, keys::DURATION_MAX)
}

fn expect(scope: Scope<'_>, timeout: Option<Duration>, reader: &mut Reader<'_>) -> Expect {
    let part = scope.part("expect", keys::EXPECT, reader);
    let mut limit = |key: &str| {
        let node = part.find(key)?;
        reader.duration(node, keys::DURATION_MIN, keys::EXPECT_MAX)
    };
    let expect = Expect { success_within: limit("success_within"), max_duration: limit("max_duration") };
    if let (Some(node), Some(most), Some(timeout)) = (part.find("max_duration"), expect.max_duration, timeout)
        && most >= timeout
    {
        let text = "no run lasts longer than the job's timeout, which ends it before; write less here";
        reader.collector.warning(node.at, FaultCode::HasNoEffect, text);
    }
    expect
}

fn wait_limits(scope: Scope<'_>, on_lost: OnLost, reader: &mut Reader<'_>) -> WaitLimits {
    let mut limit = |key: &str| scope.find(key).and_then(|node| duration_or_none(node, reader));
    let (queue, quarantine) = (limit("queue_timeout"), limit("quarantine_timeout"));
    // With another `on_lost` no job waits for its worker.
    let silent_worker = limit("on_lost_timeout").filter(|_| on_lost == OnLost::Wait);
    WaitLimits { queue, quarantine, silent_worker }
}

fn retry_policy(scope: Scope<'_>, reader: &mut Reader<'_>) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    let part = scope.part_or_shorthand("retry", keys::RETRY, reader);
    if let Some(max) = part.find("max").and_then(|node| reader.integer(node, keys::RETRIES)) {
        policy.max = u32::try_from(max).unwrap_or(0);
    }
    if let Some(node) = part.find("when") {
        let chosen = reader.texts(node);
        let chosen: Vec<_> = chosen
            .iter()
            .filter_map(|(at, text)| reader.choose(*at, text, &keys::retry_outcomes()))
            .collect();
        policy.when.retain(|outcome| chosen.contains(outcome));
        if node.is_empty_list() {
            reader.fault(node.at, FaultCode::InvalidValue, "name at least one outcome, or set max to 0");
        }
    }
    if let Some(node) = part.find("exit_codes") {
        let codes = reader.integers(node, keys::EXIT_CODES);
        policy.exit_codes = codes.into_iter().filter_map(|code| i32::try_from(code).ok()).collect();
        policy.exit_codes.sort_unstable();
        policy.exit_codes.dedup();
        // Exit codes without `when` mean: only these exit codes.
        if part.find("when").is_none() {
            policy.when = vec![Outcome::Failed];
        }
    }
    policy.on = part.find("on").and_then(|node| reader.choice(node, &keys::RETRY_ON)).unwrap_or_default();
    policy.backoff = backoff::read(part, reader);
    policy.memory_factor_milli =
        part.find("memory_factor").and_then(|node| reader.thousandths(node, 1_000, keys::FACTOR_MILLI_MAX));
    policy
}

/// Warns of a job whose own rules for retries say how and not how often: without `max` there is none.
fn warn_of_no_retry(scope: Scope<'_>, reader: &mut Reader<'_>) {
    let Some(retry) = scope.own_value("retry") else { return };
    let is_counted = scope
        .find_both("retry")
        .any(|part| !matches!(part.value, Value::Map(_)) || value_in(part, "max").is_some());
    if !is_counted && !retry.is_empty() {
        let text = "a failed job is not tried again without `max`, the number of further attempts";
        reader.collector.warning(retry.at, FaultCode::HasNoEffect, text);
    }
}

/// Sorted, without 0, which is a success in any case.
fn success_exit_codes(scope: Scope<'_>, retry: &RetryPolicy, reader: &mut Reader<'_>) -> Vec<i32> {
    let Some(node) = scope.find("success_exit_codes") else { return Vec::new() };
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut codes = Vec::new();
    for item in items {
        let code = reader.integer(item, keys::SUCCESS_EXIT_CODES).and_then(|code| i32::try_from(code).ok());
        let Some(code) = code.filter(|code| *code != 0) else { continue };
        let shown = reader.as_written(item.at, &code.to_string());
        if ENGINE_CODES.contains(&code) {
            let text = format!(
                "{shown} cannot be a success: containers that could not be started, and those whose engine died or killed them, \
                 end with 125, 126, 127, 137, 143 or 255"
            );
            reader.fault(item.at, FaultCode::InvalidValue, text);
        } else if retry.exit_codes.contains(&code) {
            let text =
                format!("{shown} is among retry.exit_codes, too: it is either a success or tried again");
            let at = scope
                .own_value("success_exit_codes")
                .map_or_else(|| scope.own_position(&["retry"], item.at), |_| item.at);
            reader.fault(at, FaultCode::InvalidValue, text);
        }
        codes.push(code);
    }
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// A job that sets a memory factor itself needs a memory limit and a retry. From the defaults the factor applies to the jobs that have
/// both; a factor of one raises nothing and cancels that of the defaults.
fn memory_can_be_raised(scope: Scope<'_>, policy: &RetryPolicy, reader: &mut Reader<'_>) {
    let factor = scope.own_value("retry").and_then(|retry| value_in(retry, "memory_factor"));
    let Some(factor) = factor.filter(|_| policy.memory_factor_milli.is_some_and(|factor| factor > 1_000))
    else {
        return;
    };
    let says = |part, key| scope.find_both(part).any(|part| value_in(part, key).is_some());
    let problem = if !says("resources", "memory") {
        "memory_factor raises resources.memory, which this job does not have; say it, or remove the factor"
    } else if policy.max == 0 && !says("retry", "max") {
        "memory_factor is for further attempts, and this job has none; say `max`, or remove the factor"
    } else if !policy.when.contains(&Outcome::OomKilled) {
        "memory_factor is for attempts that were oom_killed, after which this job is not tried again; \
         add oom_killed to `when`, or remove the factor"
    } else {
        return;
    };
    reader.fault(factor.at, FaultCode::InvalidValue, problem);
}

fn value_in<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    let Value::Map(map) = &node.value else { return None };
    map.pairs.iter().find(|pair| pair.key == key).map(|pair| &pair.value)
}

fn loss_policy(
    scope: Scope<'_>,
    stop_grace: Duration,
    self_fence: bool,
    reader: &mut Reader<'_>,
) -> LossPolicy {
    let standard = LossPolicy::default();
    let Intervals { heartbeat, lease, .. } = reader.environment.intervals();
    // A worker learns that it must stop only when the answer to a heartbeat is overdue.
    let overdue = if self_fence { heartbeat + lease / MISSED_ANSWER_DIVISOR } else { Duration::ZERO };
    let stop_margin = (lease / STOP_MARGIN_DIVISOR).max(overdue);
    let shortest = lease.max(stop_grace + stop_margin);
    let after = scope.find("lost_after").and_then(|node| {
        let after = reader.duration(node, keys::DURATION_MIN, keys::DURATION_MAX)?;
        if after < shortest {
            // The sum would show the value of a variable in the stop grace period.
            let grace_has_variable = scope.find("stop_grace_period").is_some_and(Node::has_variable);
            let sum = match grace_has_variable {
                true => String::new(),
                false => format!(", here {}", DurationText(shortest)),
            };
            let assumed = match reader.environment.is_lease_assumed() {
                true => "; that is for the default lease, and the server may have another one: give it with --lease",
                false => "",
            };
            let text = format!(
                "lost_after {} is too short: at least {} and the stop grace period plus {}{sum}{assumed}",
                reader.as_written(node.at, &DurationText(after).to_string()),
                DurationText(lease),
                DurationText(stop_margin),
            );
            let at = scope.own_position(&["lost_after", "stop_grace_period", "self_fence"], node.at);
            reader.fault(at, FaultCode::LostAfterTooShort, text);
        }
        Some(after)
    });
    let limit = scope.find("lost_limit").and_then(|node| reader.integer(node, keys::LOSSES));
    LossPolicy {
        limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(standard.limit),
        // A long stop grace raises the default of `lost_after`.
        after: after.unwrap_or(standard.after.max(shortest)),
        on_lost: scope
            .find("on_lost")
            .and_then(|node| reader.choice(node, &keys::ON_LOST))
            .unwrap_or_default(),
        delay: scope
            .find("unexpected_retry_delay")
            .and_then(|node| reader.duration(node, keys::DURATION_MIN, keys::DURATION_MAX)),
        heartbeat: scope
            .find("ping_interval")
            .and_then(|node| reader.duration(node, keys::HEARTBEAT_MIN, keys::DURATION_MAX)),
    }
}

fn short_text(scope: Scope<'_>, name: &str, bytes_max: usize, reader: &mut Reader<'_>) -> Option<String> {
    let node = scope.find(name)?;
    let text = reader.text(node)?;
    reader.accept(node.at, grammar::at_most(&text, bytes_max))?;
    Some(text)
}

fn tags(scope: Scope<'_>, reader: &mut Reader<'_>) -> Vec<String> {
    let Some(node) = scope.find("tags") else { return Vec::new() };
    let tags = reader.texts(node);
    if tags.len() > TAGS_MAX {
        reader.fault(
            node.at,
            FaultCode::TooLong,
            format!("{} tags are too many (max {TAGS_MAX})", tags.len()),
        );
    }
    for (at, tag) in &tags {
        reader.accept(*at, grammar::at_most(tag, TAG_BYTES_MAX));
    }
    tags.into_iter().map(|(_, tag)| tag).collect()
}

/// Exit codes that Docker and its init use for a container that could not be started (125 to 127), and those of a container whose engine died
/// or killed it (137, 143, 255). The worker looks for evidence of either; as a success a code without evidence would hide such a failure.
const ENGINE_CODES: [i32; 6] = [125, 126, 127, 137, 143, 255];
/// Half a lease (15 s): time from the stop order until the container is gone, beside its stop grace.
const STOP_MARGIN_DIVISOR: u32 = 2;
/// Time from the missed heartbeat answer until the container is gone, beside its stop grace, and the margin before a successor.
const MISSED_ANSWER_DIVISOR: u32 = 3;
/// A self-fenced container is gone a sixth of a lease (5 s) before a successor may start.
const FENCE_MARGIN_DIVISOR: u32 = 6;
const DESCRIPTION_BYTES_MAX: usize = 4096;
const OWNER_BYTES_MAX: usize = 128;
const TAGS_MAX: usize = 32;
const TAG_BYTES_MAX: usize = 64;
