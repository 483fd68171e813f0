//! One job of the file: its definition, and what only people look at.

use std::time::Duration;

use protocol::Revision;
use protocol::order::Intervals;
use protocol::report::Outcome;
use scheduler::definition::{Backoff, Definition, LossPolicy, RetryPolicy};

use super::container;
use super::fault::{Code, Place};
use super::grammar;
use super::keys;
use super::quantity::Shown;
use super::reader::Reader;
use super::scope::{self, Scope};
use super::tree::{Map, Node, Value};

/// A job as it was read; its revision is not known yet.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) definition: Definition,
    pub(super) description: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) tags: Vec<String>,
}

/// Reads the job `name`; what it does not say is taken from `defaults`.
pub(super) fn read(
    name: &str,
    name_at: Place,
    own: &Map,
    defaults: Option<&Map>,
    extra: &[&str],
    reader: &mut Reader<'_>,
) -> Job {
    scope::check_keys(own, keys::JOB, extra, reader);
    read_checked(name, name_at, Scope::new(own, defaults), true, reader)
}

/// Reads `defaults` themselves, for what is wrong with them: they are a job that need not be whole.
pub(super) fn read_defaults(defaults: &Map, reader: &mut Reader<'_>) -> Job {
    scope::check_keys(defaults, keys::JOB, &["x-*"], reader);
    read_checked("defaults", Place::FILE, Scope::new(defaults, None), false, reader)
}

fn read_checked(name: &str, name_at: Place, scope: Scope<'_>, is_job: bool, reader: &mut Reader<'_>) -> Job {
    let mut container = container::read(scope, name_at, is_job, reader);
    let self_fence = scope.find("self_fence").and_then(|node| reader.bool(node)).unwrap_or(false);
    let loss = loss_policy(scope, container.stop_grace, self_fence, reader);
    let fence_margin = reader.environment.intervals().lease / FENCES_PER_LEASE;
    container.self_fence = self_fence.then(|| loss.after.saturating_sub(fence_margin));
    container.ask_before_start = self_fence || loss.on_lost == scheduler::definition::OnLost::Wait;
    let retry = retry_policy(scope, reader);
    if is_job {
        memory_can_be_raised(scope, &retry, reader);
    }
    let priority = scope.find("priority").and_then(|node| reader.integer(node, keys::PRIORITIES));
    Job {
        definition: Definition {
            name: name.to_owned(),
            revision: Revision::default(),
            enabled: scope.find("enabled").and_then(|node| reader.bool(node)).unwrap_or(true),
            priority: priority.and_then(|priority| i8::try_from(priority).ok()).unwrap_or(0),
            timeout: timeout(scope, reader),
            retry,
            loss,
            container,
        },
        description: short_text(scope, "description", DESCRIPTION_BYTES_MAX, reader),
        owner: short_text(scope, "owner", OWNER_BYTES_MAX, reader),
        tags: tags(scope, reader),
    }
}

fn timeout(scope: Scope<'_>, reader: &mut Reader<'_>) -> Option<Duration> {
    let Some(node) = scope.find("timeout") else { return Some(TIMEOUT) };
    if matches!(&node.value, Value::Scalar(scalar) if scalar.text == "none") {
        return None;
    }
    reader.duration(node, keys::DURATION_MIN, keys::DURATION_MAX)
}

fn retry_policy(scope: Scope<'_>, reader: &mut Reader<'_>) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    let part = scope.part_or_first("retry", keys::RETRY, reader);
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
        if chosen.is_empty() {
            reader.fault(node.at, Code::InvalidValue, "name at least one outcome, or set max to 0");
        }
    }
    if let Some(node) = part.find("exit_codes") {
        let codes = reader.integers(node, keys::EXIT_CODES);
        policy.exit_codes = codes.into_iter().filter_map(|code| i32::try_from(code).ok()).collect();
        policy.exit_codes.sort_unstable();
        policy.exit_codes.dedup();
        // Who names exit codes, and nothing else, means nothing else.
        if part.find("when").is_none() {
            policy.when = vec![Outcome::Failed];
        }
    }
    policy.on = part.find("on").and_then(|node| reader.choice(node, &keys::RETRY_ON)).unwrap_or_default();
    policy.backoff = backoff(part, reader);
    policy.memory_factor_milli =
        part.find("memory_factor").and_then(|node| reader.thousandths(node, 1_000, FACTOR_MILLI_MAX));
    policy
}

/// A job that says itself by how much its memory is raised must have a limit to raise, and try again after it. From the defaults that
/// holds for those that have; a factor of one raises nothing, and takes back that of the defaults.
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
    reader.fault(factor.at, Code::InvalidValue, problem);
}

fn value_in<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    let Value::Map(map) = &node.value else { return None };
    map.pairs.iter().find(|pair| pair.key == key).map(|pair| &pair.value)
}

fn backoff(scope: Scope<'_>, reader: &mut Reader<'_>) -> Backoff {
    let part = scope.part("backoff", keys::BACKOFF, reader);
    let standard = Backoff::default();
    let mut duration = |name: &str| {
        let node = part.find(name)?;
        Some((node.at, reader.duration(node, keys::DURATION_MIN, keys::DURATION_MAX)?))
    };
    let (initial, max) = (duration("initial"), duration("max"));
    let first = initial.map_or(standard.initial, |(_, initial)| initial);
    // Who only raises the first wait means the highest one to be no lower.
    let highest = max.map_or(standard.max.max(first), |(_, max)| max);
    if let Some((at, max)) = max.filter(|(_, max)| *max < first) {
        let text = format!("the highest wait {} is shorter than the first one, {}", Shown(max), Shown(first));
        reader.fault(part.own_place(&["max", "initial"], at), Code::OutOfRange, text);
    }
    let factor = part.find("factor").and_then(|node| reader.thousandths(node, 1_000, FACTOR_MILLI_MAX));
    Backoff { initial: first, max: highest, factor_milli: factor.unwrap_or(standard.factor_milli) }
}

fn loss_policy(
    scope: Scope<'_>,
    stop_grace: Duration,
    self_fence: bool,
    reader: &mut Reader<'_>,
) -> LossPolicy {
    let standard = LossPolicy::default();
    let Intervals { heartbeat, lease, .. } = reader.environment.intervals();
    // A worker that is to stop it cannot do so before the answer to a heartbeat is overdue.
    let overdue = if self_fence { heartbeat + lease / ANSWERS_PER_LEASE } else { Duration::ZERO };
    let stop_margin = (lease / STOPS_PER_LEASE).max(overdue);
    let shortest = lease.max(stop_grace + stop_margin);
    let after = scope.find("lost_after").and_then(|node| {
        let after = reader.duration(node, keys::DURATION_MIN, keys::DURATION_MAX)?;
        if after < shortest {
            let text = format!(
                "lost_after {} is too short: at least {} and the stop grace period plus {}, here {}",
                Shown(after),
                Shown(lease),
                Shown(stop_margin),
                Shown(shortest),
            );
            let at = scope.own_place(&["lost_after", "stop_grace_period", "self_fence"], node.at);
            reader.fault(at, Code::LostAfterTooShort, text);
        }
        Some(after)
    });
    let limit = scope.find("lost_limit").and_then(|node| reader.integer(node, keys::LOSSES));
    LossPolicy {
        limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(standard.limit),
        // A long stop grace raises the default with it.
        after: after.unwrap_or(standard.after.max(shortest)),
        on_lost: scope
            .find("on_lost")
            .and_then(|node| reader.choice(node, &keys::ON_LOST))
            .unwrap_or_default(),
        delay: scope
            .find("unexpected_retry_delay")
            .and_then(|node| reader.duration(node, keys::DURATION_MIN, keys::DURATION_MAX)),
        ping: scope
            .find("ping_interval")
            .and_then(|node| reader.duration(node, keys::PING_MIN, keys::DURATION_MAX)),
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
        reader.fault(node.at, Code::TooLong, format!("{} tags are too many (max {TAGS_MAX})", tags.len()));
    }
    for (at, tag) in &tags {
        reader.accept(*at, grammar::at_most(tag, TAG_BYTES_MAX));
    }
    tags.into_iter().map(|(_, tag)| tag).collect()
}

const TIMEOUT: Duration = Duration::from_secs(3600);
const FACTOR_MILLI_MAX: u32 = 100_000;
/// From the order to stop until the container is certainly gone, beside its grace: half a lease, 15 s.
const STOPS_PER_LEASE: u32 = 2;
/// From when a heartbeat should have been answered until its container is gone, beside its grace, and a fence before a successor.
const ANSWERS_PER_LEASE: u32 = 3;
/// A fenced container is gone this long before a successor may start: a sixth of a lease, 5 s.
const FENCES_PER_LEASE: u32 = 6;
const DESCRIPTION_BYTES_MAX: usize = 4096;
const OWNER_BYTES_MAX: usize = 128;
const TAGS_MAX: usize = 32;
const TAG_BYTES_MAX: usize = 64;
