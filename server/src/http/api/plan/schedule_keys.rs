//! The keys of schedules in a plan. The rule is the value of `schedules.ID`; everything else of a schedule has a key below it.

use std::collections::{BTreeMap, BTreeSet};

use scheduler::params::JobParam;
use scheduler::schedule::Schedule;
use serde_json::{Map, Value};

use super::flatten;
use crate::http::present::shapes::{Time, millis};
use crate::params;

/// Adds each key of a schedule with its value. The variables of its jobs have their names only, and secret parameters no value.
pub(super) fn add_shown(schedule: &Schedule, keys: &mut BTreeMap<String, Value>) {
    let path = format!("schedules.{}", schedule.id);
    let rule = format!("{} ({})", schedule.rule, schedule.zone.name());
    let mut below = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            below.insert(name.to_owned(), value);
        }
    };
    let instant = |at| Value::from(Time(at).to_string());
    add("start_at", schedule.start_at.map(instant));
    add("end_at", schedule.end_at.map(instant));
    add("not_immediately", schedule.not_immediately.then_some(Value::Bool(true)));
    add("jitter_ms", (!schedule.jitter.is_zero()).then(|| millis(schedule.jitter).into()));
    if let Some(overrides) = &schedule.overrides {
        let names = overrides.environment.iter().map(|(name, _)| Value::from(name.as_str()));
        add("environment", Some(names.collect::<Value>()).filter(|_| !overrides.environment.is_empty()));
        add("args", (!overrides.args.is_empty()).then(|| overrides.args.clone().into()));
    }
    let given = given(schedule).map(|param| {
        let value = if param.secret { params::SECRET.into() } else { params::to_json(&param.value) };
        (param.name.clone(), value)
    });
    add("params", Some(Value::Object(given.collect())));
    flatten(&path, below, keys);
    keys.insert(path, rule.into());
}

/// Adds the keys of a schedule whose values differ and are not shown.
pub(super) fn add_hidden(old: &Schedule, new: &Schedule, keys: &mut BTreeSet<String>) {
    let variables = |of: &Schedule| -> BTreeMap<String, String> {
        of.overrides.iter().flat_map(|it| it.environment.iter().cloned()).collect()
    };
    let secrets = |of: &Schedule| -> BTreeMap<String, String> {
        let secret = given(of).filter(|param| param.secret);
        secret.map(|param| (param.name.clone(), params::to_json(&param.value).to_string())).collect()
    };
    for (kind, before, after) in
        [("environment", variables(old), variables(new)), ("params", secrets(old), secrets(new))]
    {
        let changed = after.iter().filter(|(name, value)| before.get(*name).is_some_and(|old| old != *value));
        keys.extend(changed.map(|(name, _)| format!("schedules.{}.{kind}.{name}", new.id)));
    }
}

fn given(schedule: &Schedule) -> impl Iterator<Item = &JobParam> {
    schedule.params.iter().flat_map(|params| &params.given)
}
