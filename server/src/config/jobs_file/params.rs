//! The keys `params` and `allow`, the references `${params.NAME}`, and the values that schedules give.

use std::sync::Arc;

use scheduler::params::{Absence, Bounds, Field, JobParams, Param, ParamKind, Params, SubmissionRules, Word};
use serde_json::Value as Json;

use super::container::ParamUses;
use super::fault::{FaultCode, Position, quoted};
use super::grammar::{self, ValueFault};
use super::keys;
use super::quantity;
use super::reader::Reader;
use super::scope::{self, Scope};
use super::tree::{Map, Node, ScalarMeaning, Value};
use crate::params::{Checker, ParamFault, Pattern, refusal_of_pattern, variable_of};

/// Reads `params` and `allow`, and checks the places that name parameters.
pub(super) fn read(
    scope: Scope<'_>,
    uses: ParamUses,
    is_job: bool,
    reader: &mut Reader<'_>,
) -> SubmissionRules {
    let mut declared: Vec<Param> = Vec::new();
    reader.params_with_variables.clear();
    for node in scope.find_both("params") {
        let Value::Map(map) = &node.value else {
            reader.wrong_type(node, "a map of parameters by name");
            continue;
        };
        for pair in &map.pairs {
            let Some(param) = param(&pair.key, pair.key_at, &pair.value, reader) else { continue };
            // A parameter of the job replaces the one of the defaults.
            declared.retain(|known| known.name != param.name);
            declared.push(param);
        }
    }
    // The order has no meaning: it must not change the revision.
    declared.sort_by(|one, other| one.name.cmp(&other.name));
    if declared.len() > PARAMS_MAX {
        let at = scope.own_position(&["params"], Position::FILE);
        let text = format!("{} parameters are too many (max {PARAMS_MAX})", declared.len());
        reader.fault(at, FaultCode::TooLong, text);
    }
    let params = Params {
        declared,
        environment: uses
            .environment
            .iter()
            .map(|(name, (_, param))| (name.clone(), param.clone()))
            .collect(),
        command: uses.command.iter().map(|(_, word)| word.clone()).collect(),
    };
    // The defaults may use parameters that each job declares itself.
    if is_job {
        check_uses(&params, &uses, reader);
    }
    let defaults = crate::params::defaults(&params);
    SubmissionRules { params, allow: scope.find("allow").map(|node| allow(node, reader)), defaults }
}

/// The names of the parameters in the order of the file: first those of the defaults that the job does not replace, then its own. The order
/// is for people: it is no part of the definition, and does not change its revision.
pub(super) fn names_in_order(scope: Scope<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for node in scope.find_both("params") {
        let Value::Map(map) = &node.value else { continue };
        for pair in &map.pairs {
            names.retain(|name| *name != pair.key);
            names.push(pair.key.clone());
        }
    }
    names
}

fn allow(node: &Node, reader: &mut Reader<'_>) -> Vec<Field> {
    let fields = reader.texts(node);
    fields
        .iter()
        .filter_map(|(at, text)| {
            let text = if text == "delay" { Field::RunAt.name() } else { text };
            reader.choose(*at, text, &keys::params::FIELDS)
        })
        .collect()
}

fn check_uses(params: &Params, uses: &ParamUses, reader: &mut Reader<'_>) {
    for (at, word) in &uses.command {
        let Word::Param(name) = word else { continue };
        if known(params, *at, name, reader).is_some_and(|param| param.secret) {
            let text = format!(
                "the secret parameter {} cannot be a word of a command, which everybody on the machine can read; \
                 use a variable",
                quoted(name)
            );
            reader.fault(*at, FaultCode::InvalidParam, text);
        }
    }
    for (_, (at, name)) in &uses.environment {
        known(params, *at, name, reader);
    }
}

fn known<'p>(params: &'p Params, at: Position, name: &str, reader: &mut Reader<'_>) -> Option<&'p Param> {
    let found = params.find(name);
    if found.is_none() {
        let names = || params.declared.iter().map(|param| param.name.as_str());
        let hint = match grammar::nearest(name, names()) {
            Some(near) => format!("did you mean {}?", quoted(near)),
            None if params.declared.is_empty() => "declare it under `params`".to_owned(),
            None => format!("the job has {}", names().collect::<Vec<_>>().join(", ")),
        };
        reader.fault(at, FaultCode::UnknownParam, format!("there is no parameter {}: {hint}", quoted(name)));
    }
    found
}

fn param(name: &str, name_at: Position, node: &Node, reader: &mut Reader<'_>) -> Option<Param> {
    reader.accept(name_at, check_name(name));
    let empty = Map::default();
    let map = match &node.value {
        Value::Map(map) => map,
        Value::Scalar(_) if node.is_null() => &empty,
        _ => {
            reader.wrong_type(node, "a map with type, default, required …");
            return None;
        }
    };
    scope::check_keys(map, keys::params::PARAM, &[], reader);
    let scope = Scope::new(map, None);
    let kind = kind(scope, reader)?;
    let type_has_variable = ["enum", "min", "max"].iter().any(|key| scope.has_variable(key));
    match type_has_variable {
        true => reader.params_with_variables.insert(name.to_owned()),
        // A parameter of the job replaces the one of the defaults.
        false => reader.params_with_variables.remove(name),
    };
    let secret = scope.find("secret").and_then(|node| reader.bool(node)).unwrap_or(false);
    let required = scope.find("required").map(|node| (node.at, reader.bool(node)));
    let description = scope.find("description").and_then(|node| {
        let text = reader.text(node)?;
        reader.accept(node.at, grammar::at_most(&text, DESCRIPTION_BYTES_MAX))?;
        Some(text)
    });
    let mut param = Param { name: name.to_owned(), kind, absence: Absence::Refused, secret, description };
    if let Some(node) = scope.find("default") {
        if let Some((at, Some(true))) = required {
            reader.fault(at, FaultCode::InvalidParam, "a parameter with a default is never required");
        }
        let Some(value) = json(node, reader) else {
            param.absence = Absence::Allowed;
            return node.has_any_at(&reader.left_out).then_some(param);
        };
        let params = Params { declared: vec![param], ..Params::default() };
        let checked = Checker::new(&params).check(params.declared.first()?, &value);
        param = params.declared.into_iter().next()?;
        match checked {
            Ok(value) => param.absence = Absence::Default(value),
            Err(fault) => {
                param.absence = Absence::Allowed;
                let text = format!("the default does not fit: {}", fault_text(&fault, Some(node), reader));
                reader.collector.fault_without_value(node.at, FaultCode::InvalidParam, text);
            }
        }
    } else if matches!(required, Some((_, Some(false)))) {
        param.absence = Absence::Allowed;
    }
    Some(param)
}

/// The text of a fault of a value, without what variables supply to the value or to the type of its parameter.
fn fault_text(fault: &ParamFault, value: Option<&Node>, reader: &Reader<'_>) -> String {
    let detail = match value.is_some_and(Node::has_variable) {
        true => "the value of its variable is not allowed",
        false => &fault.detail,
    };
    match reader.params_with_variables.contains(&fault.name) {
        true => detail.to_owned(),
        false => format!("{detail}; {}", fault.hint),
    }
}

fn check_name(name: &str) -> Result<(), ValueFault> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if first && rest && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let form = format!(
        "is not a name for a parameter: [a-z][a-z0-9_]{{0,62}}; a job reads it as {}",
        variable_of("name")
    );
    Err(ValueFault::input(FaultCode::InvalidName, name, form))
}

fn kind(scope: Scope<'_>, reader: &mut Reader<'_>) -> Option<ParamKind> {
    let items: Option<Vec<String>> = scope.find("enum").map(|node| {
        let items = reader.texts(node);
        if node.has_any_at(&reader.left_out) {
            return Vec::new();
        }
        if items.is_empty() || items.len() > ITEMS_MAX {
            reader.fault(node.at, FaultCode::InvalidParam, format!("name 1 to {ITEMS_MAX} values"));
        }
        for (at, item) in &items {
            reader.accept(*at, grammar::env_value(item));
        }
        items.into_iter().map(|(_, item)| item).collect()
    });
    let pattern = scope.find("pattern").and_then(|node| pattern(node, reader));
    let name = match scope.find("type") {
        Some(node) => reader.choice(node, &keys::params::TYPES.map(|name| (name, name)))?,
        None if items.is_some() => "enum",
        None => "string",
    };
    let misfits: &[&str] = match name {
        "string" => &["enum"],
        "integer" | "number" | "duration" => &["enum", "pattern"],
        "boolean" => &["enum", "pattern", "min", "max"],
        "enum" => &["pattern", "min", "max"],
        _ => &[],
    };
    for key in misfits {
        if let Some(node) = scope.find(key) {
            let text = format!("\"{key}\" means nothing for the type {name}");
            reader.fault(node.at, FaultCode::InvalidParam, text);
        }
    }
    Some(match name {
        "string" => ParamKind::Text { pattern, length: bounds(scope, reader, length) },
        "integer" => {
            ParamKind::Integer(bounds(scope, reader, |text| text.parse().map_err(|_| "a whole number")))
        }
        "number" => ParamKind::Number(bounds(scope, reader, |text| {
            text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or("a number")
        })),
        "boolean" => ParamKind::Boolean,
        "duration" => ParamKind::Duration(bounds(scope, reader, |text| {
            quantity::any_duration(text).ok_or("a duration such as 90s")
        })),
        "enum" if scope.has_left_out("enum", reader) => {
            ParamKind::Text { pattern: None, length: bounds(scope, reader, length) }
        }
        "enum" => {
            if items.is_none() {
                let at = scope.own_position(&["type"], Position::FILE);
                reader.fault(
                    at,
                    FaultCode::InvalidParam,
                    "the type enum needs \"enum\", the list of its values",
                );
            }
            ParamKind::Enum(items.unwrap_or_default())
        }
        _ => ParamKind::List {
            pattern,
            items: items.unwrap_or_default(),
            length: bounds(scope, reader, length),
        },
    })
}

fn length(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "a whole number from 0")
}

/// Reads `min` and `max`.
fn bounds<T: PartialOrd + Copy>(
    scope: Scope<'_>,
    reader: &mut Reader<'_>,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Bounds<T> {
    let mut bound = |key: &str| {
        let node = scope.find(key)?;
        let text = reader.loose_text(node)?;
        parse(&text)
            .map_err(|form| {
                let text = format!("{} is not {form}", reader.shown(node.at, &text));
                reader.fault(node.at, FaultCode::InvalidParam, text);
            })
            .ok()
    };
    let bounds = Bounds { min: bound("min"), max: bound("max") };
    if let (Some(min), Some(max)) = (bounds.min, bounds.max)
        && min > max
    {
        let at = scope.own_position(&["max"], Position::FILE);
        reader.fault(at, FaultCode::InvalidParam, "max is less than min");
    }
    bounds
}

fn pattern(node: &Node, reader: &mut Reader<'_>) -> Option<String> {
    // A dollar is common in patterns, so variables of the server are not replaced here.
    let Value::Scalar(scalar) = &node.value else {
        reader.wrong_type(node, "a regular expression");
        return None;
    };
    reader.accept(node.at, grammar::at_most(&scalar.text, PATTERN_BYTES_MAX))?;
    if let Err(error) = Pattern::new(&scalar.text) {
        let reason = refusal_of_pattern(&error);
        let text = format!("{} is not a regular expression: {reason}", quoted(&scalar.text));
        reader.fault(node.at, FaultCode::InvalidParam, text);
        return None;
    }
    Some(scalar.text.clone())
}

/// The value of a parameter in JSON. Variables of the server's environment are replaced in texts.
fn json(node: &Node, reader: &mut Reader<'_>) -> Option<Json> {
    match &node.value {
        Value::List(items) => {
            items.iter().map(|item| json(item, reader)).collect::<Option<_>>().map(Json::Array)
        }
        Value::Map(_) => {
            reader.wrong_type(node, "a value or a list");
            None
        }
        Value::Scalar(scalar) => match scalar.meaning() {
            ScalarMeaning::Bool(value) => Some(Json::Bool(value)),
            // A number as it is written: the type of the parameter says what it is.
            ScalarMeaning::Number => {
                let number = scalar.text.parse::<serde_json::Number>().map(Json::Number);
                Some(number.unwrap_or_else(|_| Json::String(scalar.text.clone())))
            }
            ScalarMeaning::Text | ScalarMeaning::Ambiguous => reader.text(node).map(Json::String),
            ScalarMeaning::Null => {
                reader.fault(node.at, FaultCode::ExpectedString, "a value is missing; \"\" is an empty one");
                None
            }
        },
    }
}

/// The parameters of a schedule's jobs; none if the definition has none.
pub(super) fn of_schedule(
    node: Option<&Node>,
    schedule_at: Position,
    checker: &Checker<'_>,
    reader: &mut Reader<'_>,
) -> Option<Arc<JobParams>> {
    let mut given = Vec::new();
    let mut values: Vec<(&String, &Node)> = Vec::new();
    if let Some(node) = node {
        let Value::Map(map) = &node.value else {
            reader.wrong_type(node, "a map of parameters and their values");
            return None;
        };
        for pair in &map.pairs {
            values.push((&pair.key, &pair.value));
            if let Some(value) = json(&pair.value, reader) {
                given.push((pair.key.clone(), value));
            }
        }
    }
    match checker.resolve(&given) {
        Ok(resolved) => (!resolved.is_empty()).then(|| Arc::new(resolved)),
        Err(faults) => {
            for fault in faults {
                let value = values.iter().find(|(name, _)| **name == fault.name).map(|(_, value)| *value);
                if value.is_some_and(|value| value.has_any_at(&reader.left_out)) {
                    continue;
                }
                let text = fault_text(&fault, value, reader);
                let at = value.map_or(schedule_at, |value| value.at);
                reader.collector.fault_without_value(at, FaultCode::InvalidParam, text);
            }
            None
        }
    }
}

const PARAMS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 63;
const ITEMS_MAX: usize = 256;
const PATTERN_BYTES_MAX: usize = 1024;
const DESCRIPTION_BYTES_MAX: usize = 1024;
