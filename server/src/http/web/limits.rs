//! The limits of a definition as rows of its page: value, permits in use and by which jobs, jobs that wait.

use scheduler::limits::LIMITS_OF_DEFINITION;

use super::format::{self, Moment};
use crate::catalogue::Definitions;
use crate::http::present::shapes::{Definition, Limit};
use crate::http::request::query::encode;

/// A limit as a row.
#[derive(Debug, Default)]
pub(crate) struct LimitRow {
    /// Its kind in words, with the group.
    pub(crate) name: String,
    /// The value of its key.
    pub(crate) key: Option<String>,
    /// Its value in words.
    pub(crate) value: String,
    /// Permits in use; none for a rate.
    pub(crate) in_use: Option<u64>,
    /// No permit is left.
    pub(crate) is_full: bool,
    /// When a rate allows the next start, if not now.
    pub(crate) next_start: Option<Moment>,
    /// Jobs that wait for it, in words.
    pub(crate) waiting: String,
    /// Query of the list of jobs that wait; empty if no filter selects them.
    pub(crate) waiting_query: String,
    /// The oldest jobs that hold a permit.
    pub(crate) holders: Vec<u64>,
    /// Further holders.
    pub(crate) more_holders: u64,
}

/// Definitions that share a group and are named in one link.
const NAMES_MAX: usize = 20;

/// The rows of a definition: the limits that jobs need now, and those that no job needs.
pub(crate) fn rows(definition: &Definition, all: &Definitions, queued: u64) -> Vec<LimitRow> {
    let mut rows: Vec<LimitRow> = definition.limits.iter().map(|limit| row(definition, all, limit)).collect();
    let has = |kinds: &[&str]| definition.limits.iter().any(|limit| kinds.contains(&&*limit.kind));
    if let Some(rule) = definition.concurrency.as_ref().filter(|_| !has(&["definition", "group"])) {
        let key = rule.key.as_ref().map(|key| format!(" for each {key}")).unwrap_or_default();
        let value = format!("{} at once{key}", rule.limit);
        rows.insert(
            0,
            LimitRow { name: name_of(rule.group.as_deref()), value, in_use: Some(0), ..LimitRow::default() },
        );
    }
    if definition.rate_limit.is_some() && !has(&["rate"]) {
        rows.push(LimitRow { name: "starts".to_owned(), value: rate(definition), ..LimitRow::default() });
    }
    if let Some(max) = definition.max_queued {
        rows.push(LimitRow {
            name: "waiting jobs".to_owned(),
            value: format!("{max} at once"),
            in_use: Some(queued),
            is_full: queued >= u64::from(max),
            ..LimitRow::default()
        });
    }
    rows
}

/// Some kind of limit has as many keys as an answer takes.
pub(crate) fn may_have_more(definition: &Definition) -> bool {
    let of_kind = |kind: &str| definition.limits.iter().filter(|limit| limit.kind == kind).count();
    ["definition", "group", "rate"].into_iter().any(|kind| of_kind(kind) >= LIMITS_OF_DEFINITION)
}

fn name_of(group: Option<&str>) -> String {
    group.map_or_else(|| "jobs".to_owned(), |group| format!("jobs of the group {group}"))
}

fn row(definition: &Definition, all: &Definitions, limit: &Limit) -> LimitRow {
    let shared = LimitRow { key: limit.key.clone(), ..LimitRow::default() };
    if limit.kind == "rate" {
        // The scheduler counts all jobs of a rate that have not ended, those that run included.
        let plural = if limit.waiting == 1 { "" } else { "s" };
        return LimitRow {
            name: "starts".to_owned(),
            value: rate(definition),
            next_start: limit.next_start.map(format::moment),
            waiting: format!("{} job{plural} not ended", limit.waiting),
            waiting_query: query(definition, all, limit, "queued,scheduled,quarantined,assigned,running"),
            ..shared
        };
    }
    LimitRow {
        name: name_of((limit.kind == "group").then_some(limit.name.as_str())),
        value: limit.limit.map_or_else(|| "not in force".to_owned(), |limit| format!("{limit} at once")),
        in_use: Some(limit.in_use),
        is_full: limit.limit.is_some_and(|max| limit.in_use >= u64::from(max)),
        waiting: limit.waiting.to_string(),
        waiting_query: match limit.waiting {
            0 => String::new(),
            _ => query(definition, all, limit, "queued,scheduled,quarantined"),
        },
        holders: limit.holders.clone(),
        more_holders: limit.in_use.saturating_sub(limit.holders.len() as u64),
        ..shared
    }
}

/// The filter that selects the jobs of a limit in these states; empty if there is none, as for a key that is a parameter.
fn query(definition: &Definition, all: &Definitions, limit: &Limit, states: &str) -> String {
    let source = match &*limit.kind {
        "rate" => definition.rate_limit.as_ref().and_then(|rule| rule.key.as_deref()),
        _ => definition.concurrency.as_ref().and_then(|rule| rule.key.as_deref()),
    };
    let label = match (limit.key.as_deref(), source.and_then(|source| source.strip_prefix("labels."))) {
        (None, _) => None,
        (Some(value), Some(name)) if !value.is_empty() => Some(format!("{name}={value}")),
        (Some(_), _) => return String::new(),
    };
    let name = match &*limit.kind {
        "group" => {
            let of_group = all.iter().filter(|entry| {
                let rule = entry.definition.limits.concurrency.as_ref();
                rule.and_then(|rule| rule.group.as_deref()) == Some(limit.name.as_str())
            });
            let names: Vec<&str> =
                of_group.map(|entry| entry.definition.name.as_str()).take(NAMES_MAX + 1).collect();
            if names.len() > NAMES_MAX {
                return String::new();
            }
            names.join(",")
        }
        _ => definition.name.clone(),
    };
    let label = label.as_deref().map(|label| ("label", label));
    encode([("state", states), ("name", name.as_str())].into_iter().chain(label))
}

fn rate(definition: &Definition) -> String {
    definition.rate_limit.as_ref().map_or_else(
        || "not in force".to_owned(),
        |rule| {
            let burst = if rule.burst > 1 {
                format!(", {} at once after a quiet time", rule.burst)
            } else {
                String::new()
            };
            format!("{} within {}{burst}", rule.limit, format::span_ms(rule.per_ms))
        },
    )
}
