//! Reads `concurrency`, `rate_limit` and `max_queued`, and with them `unique`.

use std::time::Duration;

use scheduler::limits::rules::{Concurrency, LimitRules, OnFull, RateLimit};
use scheduler::params::Params;

use super::fault::{FaultCode, Position};
use super::grammar;
use super::key_source;
use super::keys;
use super::keys::limits::{CONCURRENCY, PERMITS, QUEUED, RATE_LIMIT, STARTS};
use super::reader::Reader;
use super::scope::Scope;
use super::sources::SourceKind;
use super::tree::Node;
use super::unique;

/// The limit of a group, and where it was said first.
pub(super) struct GroupLimit {
    limit: u32,
    /// The limit as it may be shown.
    shown: String,
    /// The job that said it.
    job: String,
}

pub(super) fn read(
    name: &str,
    scope: Scope<'_>,
    is_job: bool,
    params: &Params,
    reader: &mut Reader<'_>,
) -> LimitRules {
    LimitRules {
        concurrency: concurrency(name, scope, is_job, params, reader),
        rate: rate(scope, is_job, params, reader),
        queued_max: scope
            .find("max_queued")
            .and_then(|node| reader.integer(node, QUEUED))
            .and_then(|max| u32::try_from(max).ok()),
        unique: unique::read(scope, params, is_job, reader),
    }
}

fn concurrency(
    name: &str,
    scope: Scope<'_>,
    is_job: bool,
    params: &Params,
    reader: &mut Reader<'_>,
) -> Option<Concurrency> {
    let part = scope.part_or_shorthand("concurrency", CONCURRENCY, reader);
    let node = scope.find("concurrency")?;
    let limit = count(part, "limit", PERMITS, reader);
    let on_full = part.find("on_full").and_then(|node| reader.choice(node, &OnFull::ALL));
    let key = part.find("key").and_then(|node| key_source::read(node, params, is_job, reader));
    let group =
        part.find("group").and_then(|node| Some((reader.checked_text(node, grammar::job_name)?, node.at)));
    if limit.is_none() && is_job && part.find("limit").is_none() {
        let text = "concurrency needs \"limit\", the number of jobs that may run at once";
        reader.fault(node.at, FaultCode::MissingField, text);
    }
    let limit = limit?;
    if is_job && let Some((group, group_at)) = &group {
        check_group(name, (group, *group_at), limit, part.find("limit").unwrap_or(node), reader);
    }
    let group = group.map(|(group, _)| group);
    Some(Concurrency { limit, key, group, on_full: on_full.unwrap_or_default() })
}

/// All definitions of a group must say the same limit: nothing else tells which one counts.
fn check_group(
    name: &str,
    (group, group_at): (&str, Position),
    limit: u32,
    node: &Node,
    reader: &mut Reader<'_>,
) {
    let Some(first) = reader.group_limits.get(group) else {
        let shown = reader.as_written(node.at, &limit.to_string());
        let first = GroupLimit { limit, shown, job: name.to_owned() };
        reader.group_limits.insert(group.to_owned(), first);
        return;
    };
    if first.limit != limit {
        let advice = match reader.collector.kind() {
            SourceKind::File => ", best in \"defaults\"",
            // Each file has defaults of its own.
            SourceKind::Directory => "",
        };
        let text = format!(
            "the group {} has the limit {} in the job {}: all jobs of a group must say the same{advice}",
            reader.shown(group_at, group),
            first.shown,
            reader.shown_job(&first.job)
        );
        reader.fault(node.at, FaultCode::InvalidValue, text);
    }
}

fn rate(scope: Scope<'_>, is_job: bool, params: &Params, reader: &mut Reader<'_>) -> Option<RateLimit> {
    let part = scope.part("rate_limit", RATE_LIMIT, reader);
    let node = scope.find("rate_limit")?;
    let limit = count(part, "limit", STARTS, reader);
    let burst = count(part, "burst", STARTS, reader);
    let key = part.find("key").and_then(|node| key_source::read(node, params, is_job, reader));
    let per = match part.find("per") {
        Some(node) => reader.duration(node, PER_MIN, keys::DURATION_MAX)?,
        None => PER,
    };
    if limit.is_none() && is_job && part.find("limit").is_none() {
        let text = "rate_limit needs \"limit\", the number of jobs that may start within \"per\"";
        reader.fault(node.at, FaultCode::MissingField, text);
    }
    Some(RateLimit { limit: limit?, per, burst: burst.unwrap_or(1), key })
}

fn count(part: Scope<'_>, name: &str, range: keys::Range, reader: &mut Reader<'_>) -> Option<u32> {
    let node = part.find(name)?;
    reader.integer(node, range).and_then(|count| u32::try_from(count).ok())
}

const PER: Duration = Duration::from_secs(1);
const PER_MIN: Duration = Duration::from_millis(1);
