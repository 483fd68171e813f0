//! The keys about time: `schedule`, `overlap`, `catch_up` and their limits.

mod catch_up;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::Timestamp;
use protocol::container::Overrides;
use scheduler::params::Params;
use scheduler::schedule::{
    CronError, Crowding, DERIVED_PREFIX, JITTER_MAX, Oddity, Overlap, Rule, RuleError, Schedule, Timetable,
    Zone,
};

use super::fault::{FaultCode, Position};
use super::grammar;
use super::keys;
use super::pairs;
use super::params;
use super::quantity::DurationText;
use super::reader::Reader;
use super::scope::{self, Scope};
use super::tree::{Map, Node, Value};
use crate::clock;
use crate::params::Checker;

/// How many schedules one definition may have.
const SCHEDULES_MAX: usize = 64;

/// Context for reading the schedules of one definition.
struct Context<'c> {
    /// The name of the definition.
    name: &'c str,
    now: Timestamp,
    /// Checks values for the parameters of the definition.
    checker: &'c Checker<'c>,
}

pub(super) fn read(
    name: &str,
    scope: Scope<'_>,
    timeout: Option<Duration>,
    params: &Params,
    reader: &mut Reader<'_>,
) -> Timetable {
    let overlap = scope.find("overlap").and_then(|node| reader.choice(node, &keys::time::OVERLAPS));
    let overlap = overlap.unwrap_or_default();
    let checker = Checker::new(params);
    let context = Context { name, now: clock::now().utc, checker: &checker };
    let rules = scope.find("schedule").map(|node| schedules(node, &context, reader)).unwrap_or_default();
    let (origins, schedules): (Vec<Origin>, Vec<Schedule>) = rules.into_iter().unzip();
    let timetable = Timetable { schedules, overlap, catch_up: catch_up::read(scope, reader) };
    catch_up::warn_of_overlap(&timetable, scope, reader);
    let timeout = Timeout { limit: timeout, node: scope.find("timeout") };
    warn_of_skipped_slots(&timetable, &origins, timeout, context.now, reader);
    timetable
}

/// The origin of a schedule in the file.
#[derive(Clone, Copy, Default)]
struct Origin {
    /// The position of the rule.
    rule_at: Position,
    /// True if its slots depend on a variable, so that no message may show them.
    has_variable: bool,
}

/// The timeout of the definition, and where it is written.
#[derive(Clone, Copy)]
struct Timeout<'n> {
    limit: Option<Duration>,
    node: Option<&'n Node>,
}

fn schedules(node: &Node, context: &Context<'_>, reader: &mut Reader<'_>) -> Vec<(Origin, Schedule)> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        Value::Map(_) | Value::Scalar(_) => std::slice::from_ref(node),
    };
    if items.len() > SCHEDULES_MAX {
        let text = format!("{} schedules are too many (max {SCHEDULES_MAX})", items.len());
        reader.fault(node.at, FaultCode::TooLong, text);
    }
    let mut positions: BTreeMap<String, Position> = BTreeMap::new();
    let mut schedules = Vec::new();
    for item in items {
        let Some((origin, schedule)) = schedule(item, context, reader) else { continue };
        if let Some(first) = positions.insert(schedule.id.as_str().to_owned(), item.at) {
            let text = if schedule.id.as_str().starts_with(DERIVED_PREFIX) {
                format!("the same rule stands in line {}; give each an id, or remove one", first.line)
            } else {
                let at = match &item.value {
                    Value::Map(map) => map.find("id").map(|pair| pair.value.at),
                    Value::List(_) | Value::Scalar(_) => None,
                };
                let id = reader.shown(at.unwrap_or(item.at), schedule.id.as_str());
                format!("the schedule {id} was first defined at line {}", first.line)
            };
            reader.fault(item.at, FaultCode::DuplicateKey, text);
        }
        schedules.push((origin, schedule));
    }
    schedules
}

fn schedule(node: &Node, context: &Context<'_>, reader: &mut Reader<'_>) -> Option<(Origin, Schedule)> {
    let map = match &node.value {
        Value::Map(map) => map,
        Value::Scalar(_) => {
            let rule = cron(node, reader);
            let params = params::of_schedule(None, node.at, context.checker, reader);
            let schedule = Schedule { params, ..Schedule::new(context.name, None, rule?, Zone::utc()) };
            let origin = Origin { rule_at: node.at, has_variable: reader.has_variable(node.at) };
            warn_if_odd(&schedule, origin, context, reader);
            return Some((origin, schedule));
        }
        Value::List(_) => {
            reader.wrong_type(node, "a cron rule, or a map with cron, every or at");
            return None;
        }
    };
    scope::check_keys(map, keys::time::SCHEDULE, &[], reader);
    let scope = Scope::new(map, None);
    let zone = match scope.find("timezone") {
        Some(node) => zone(node, reader),
        None => Some(Zone::utc()),
    };
    // Every local time exists in UTC, so it adds no faults if the time zone is wrong.
    let zone_of_times = zone.clone().unwrap_or_else(Zone::utc);
    let rule = rule(node.at, map, &zone_of_times, reader);
    let id = scope.find("id").and_then(|node| id(node, reader));
    let start_at = scope.find("start_at").and_then(|node| instant(node, &zone_of_times, reader));
    let end_at = scope.find("end_at").and_then(|node| instant(node, &zone_of_times, reader));
    let not_immediately =
        scope.find("not_immediately").and_then(|node| reader.bool(node)).unwrap_or_default();
    let jitter = scope.find("jitter").and_then(|node| {
        let jitter = reader.duration(node, Duration::from_millis(1), JITTER_MAX)?;
        Some((node.at, jitter))
    });
    let variables = pairs::environment(scope, reader);
    for (_, (at, _)) in &variables.from_params {
        let text = "a schedule gives parameters their values with `params`; it cannot use them";
        reader.fault(*at, FaultCode::InvalidSubstitution, text);
    }
    for (_, (at, _)) in &variables.from_secrets {
        let text = "a schedule cannot use secrets: give them to the job, in its own `environment`";
        reader.fault(*at, FaultCode::InvalidSubstitution, text);
    }
    let environment = variables.fixed;
    let args = scope.find("args").and_then(|node| reader.words(node)).unwrap_or_default();
    let overrides = Overrides { environment, args, ..Overrides::default() };
    let params = params::of_schedule(scope.find("params"), node.at, context.checker, reader);
    // The remaining checks compare the values, and need a rule and its time zone.
    let (zone, (rule_at, rule)) = zone.zip(rule)?;
    let has_variable = reader.has_variable(rule_at)
        || ["timezone", "start_at", "end_at"].iter().any(|key| scope.has_variable(key));
    let origin = Origin { rule_at, has_variable };
    let schedule = Schedule {
        start_at,
        end_at,
        not_immediately,
        jitter: jitter.map_or(Duration::ZERO, |(_, jitter)| jitter),
        params,
        overrides: (!overrides.is_empty()).then(|| Arc::new(overrides)),
        ..Schedule::new(context.name, id.as_deref(), rule, zone)
    };
    if let (Some(start), Some(end)) = (start_at, end_at)
        && end < start
    {
        let at = scope.own_position(&["end_at"], node.at);
        reader.fault(at, FaultCode::OutOfRange, "end_at is earlier than start_at");
    } else if schedule.is_empty() {
        let rule = reader.as_written(rule_at, &schedule.rule.to_string());
        let text = format!("{rule} never fires: it has no slot between start_at and end_at");
        reader.fault(rule_at, FaultCode::ScheduleNeverFires, text);
    } else {
        warn_if_odd(&schedule, origin, context, reader);
    }
    if let Some((at, _)) = jitter.filter(|_| schedule.jitter_is_too_long(context.now)) {
        let text = "the jitter is not shorter than the time between two slots: the second could come first";
        reader.fault(at, FaultCode::OutOfRange, text);
    }
    Some((origin, schedule))
}

/// The one of `cron`, `every` and `at` that is there.
fn rule(at: Position, map: &Map, zone: &Zone, reader: &mut Reader<'_>) -> Option<(Position, Rule)> {
    let given: Vec<_> =
        map.pairs.iter().filter(|pair| ["cron", "every", "at"].contains(&pair.key.as_str())).collect();
    let [pair] = given[..] else {
        let (at, code, text) = match given.get(1) {
            Some(second) => (
                second.key_at,
                FaultCode::InvalidValue,
                "give one of cron, every and at; several rules are a list",
            ),
            None => (at, FaultCode::MissingField, "a schedule needs one of cron, every and at"),
        };
        reader.fault(at, code, text);
        return None;
    };
    let node = &pair.value;
    let rule = match pair.key.as_str() {
        "cron" => cron(node, reader)?,
        "every" => {
            let text = reader.loose_text(node)?;
            match Rule::every(&text) {
                Ok(rule) => rule,
                Err(error) => {
                    let text = format!("{} is not an interval: {error}", reader.shown(node.at, &text));
                    reader.fault(node.at, FaultCode::InvalidDuration, text);
                    return None;
                }
            }
        }
        _ => {
            let text = reader.text(node)?;
            match Rule::at(&text, zone) {
                Ok(rule) => rule,
                Err(error) => {
                    let text = format!("{}: {error}", reader.shown(node.at, &text));
                    reader.fault(node.at, FaultCode::InvalidTime, text);
                    return None;
                }
            }
        }
    };
    Some((node.at, rule))
}

fn cron(node: &Node, reader: &mut Reader<'_>) -> Option<Rule> {
    let text = reader.text(node)?;
    match reader.rules.cron(&text) {
        Ok(rule) => Some(rule),
        Err(RuleError::Cron(CronError::NeverFires)) => {
            let text = format!("{} never fires: there is no such date", reader.shown(node.at, &text));
            reader.fault(node.at, FaultCode::CronNeverFires, text);
            None
        }
        Err(error) => {
            let shown = reader.shown(node.at, &text);
            // The detail repeats the field, which may come from a variable.
            let text = match &error {
                RuleError::Cron(CronError::Invalid { field, .. }) if reader.has_variable(node.at) => {
                    format!("{shown} is no cron rule: its {} cannot be read", field.unwrap_or("value"))
                }
                _ => format!("{shown}: {error}"),
            };
            reader.fault(node.at, FaultCode::InvalidCron, text);
            None
        }
    }
}

fn zone(node: &Node, reader: &mut Reader<'_>) -> Option<Zone> {
    let text = reader.text(node)?;
    let zone = reader.rules.zone(&text);
    if zone.is_none() {
        let all = Zone::all();
        let hint = match grammar::nearest(&text, all.iter().map(String::as_str)) {
            Some(near) if !reader.has_variable(node.at) => format!("did you mean {near}?"),
            _ => "write a name of the IANA database, such as Europe/Berlin".to_owned(),
        };
        let text = format!("{} is no time zone: {hint}", reader.shown(node.at, &text));
        reader.fault(node.at, FaultCode::UnknownTimezone, text);
    }
    zone
}

fn id(node: &Node, reader: &mut Reader<'_>) -> Option<String> {
    let id = reader.checked_text(node, grammar::schedule_id)?;
    if id.starts_with(DERIVED_PREFIX) {
        let text = format!("ids that begin with {DERIVED_PREFIX} are given to schedules without one");
        reader.fault(node.at, FaultCode::ReservedName, text);
    }
    Some(id)
}

/// An instant, or a date and time in the zone of the schedule.
fn instant(node: &Node, zone: &Zone, reader: &mut Reader<'_>) -> Option<Timestamp> {
    let text = reader.text(node)?;
    if let Ok(Rule::Once { at }) = Rule::at(&text, zone) {
        return Some(at);
    }
    let text = format!(
        "{} is no instant: write 2026-12-24T18:00:00Z, or 2026-12-24 18:00 in the schedule's timezone",
        reader.shown(node.at, &text)
    );
    reader.fault(node.at, FaultCode::InvalidTime, text);
    None
}

/// Warns of a rule that is legal and often a mistake.
fn warn_if_odd(schedule: &Schedule, origin: Origin, context: &Context<'_>, reader: &mut Reader<'_>) {
    if let Some(oddity) = schedule.oddity(context.now) {
        let text = match (oddity, next_fires(schedule, context.now)) {
            (Oddity::StepBeyondField { .. }, _) if origin.has_variable => {
                "a step that is longer than its field is the same as 0".to_owned()
            }
            (oddity, next) if next.is_empty() || origin.has_variable => oddity.to_string(),
            (oddity, next) => format!("{oddity}; next fires: {}", next.join(", ")),
        };
        reader.collector.warning(origin.rule_at, FaultCode::OddSchedule, text);
    }
}

/// Warns of slots that come faster than a job may take, where they are skipped meanwhile.
///
/// Without a timeout any rule that repeats could be skipped for ever, and a warning on each nightly rule would help nobody: `timeout: none`
/// is a decision for long jobs. So the warning begins where the default timeout, which the key switches off, would have begun it.
fn warn_of_skipped_slots(
    timetable: &Timetable,
    origins: &[Origin],
    timeout: Timeout<'_>,
    now: Timestamp,
    reader: &mut Reader<'_>,
) {
    if timetable.overlap != Overlap::Skip {
        return;
    }
    let length = match timeout.limit {
        Some(limit) => {
            let limit = DurationText(limit).to_string();
            let limit = timeout.node.map_or(limit.clone(), |node| reader.as_written(node.at, &limit));
            format!("a job may run for {limit} (timeout)")
        }
        None => "a job may run for ever (timeout: none)".to_owned(),
    };
    let mut shortest = |schedule: &Schedule| reader.rules.shortest_distance(schedule, now);
    let crowding = timetable.crowding(timeout.limit.unwrap_or(keys::TIMEOUT), now, &mut shortest);
    for crowded in crowding {
        let origin_of = |schedule: usize| origins.get(schedule).copied().unwrap_or_default();
        let rule_of = |schedule: usize| timetable.schedules.get(schedule).map(|schedule| &schedule.rule);
        let (origin, distance) = match crowded {
            Crowding::WithinSchedule { schedule, distance } => {
                let origin = origin_of(schedule);
                let distance = match rule_of(schedule) {
                    _ if origin.has_variable => "its slots are close together".to_owned(),
                    Some(Rule::Every(_)) => format!("it fires every {}", DurationText(distance)),
                    _ => format!("two of its slots are only {} apart", DurationText(distance)),
                };
                (origin, distance)
            }
            Crowding::BetweenSchedules { schedule, other, distance } => {
                let (origin, other_origin) = (origin_of(schedule), origin_of(other));
                let other = rule_of(other).map(ToString::to_string).unwrap_or_default();
                let other = reader.shown(other_origin.rule_at, &other);
                let distance = match distance {
                    _ if origin.has_variable || other_origin.has_variable => {
                        format!("it fires soon before or after {other}")
                    }
                    Duration::ZERO => format!("it fires at the same time as {other}"),
                    distance => format!("it fires {} from {other}", DurationText(distance)),
                };
                (origin, distance)
            }
        };
        let text = format!("{distance}, and {length}: slots meanwhile are skipped (overlap: skip)");
        reader.collector.warning(origin.rule_at, FaultCode::FiresTooOften, text);
    }
}

/// The next three slots, by the clock of the schedule's zone.
fn next_fires(schedule: &Schedule, now: Timestamp) -> Vec<String> {
    let mut last = now;
    let next = || {
        last = schedule.next_slot_after(last)?;
        schedule.zone.text(last)
    };
    std::iter::from_fn(next).take(3).collect()
}
