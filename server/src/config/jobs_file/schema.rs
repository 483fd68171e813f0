//! The JSON Schema of a jobs file, for editors. It is made from the table of keys, so it offers exactly the keys that the reader takes.
//!
//! It is looser than the reader where a schema cannot express a rule: grammars of values, dependencies between keys, and `${VAR}`, which
//! may stand for anything.

use protocol::container::ULIMITS;
use serde_json::{Map, Value, json};

use super::keys::{self, Key, Range, Shape};

/// The schema, as a JSON document (draft 2020-12).
#[must_use]
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Longshore jobs file",
        "oneOf": [{ "$ref": "#/$defs/file" }, { "type": "array", "items": { "$ref": "#/$defs/named_job" } }],
        "$defs": {
            "file": {
                "type": "object",
                "required": ["jobs"],
                "properties": {
                    "version": { "const": 1 },
                    "defaults": { "oneOf": [{ "$ref": "#/$defs/job" }, { "type": "null" }] },
                    "jobs": {
                        "type": ["object", "null"],
                        "patternProperties": { "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$": { "$ref": "#/$defs/job" } },
                        "additionalProperties": false,
                    },
                },
                "patternProperties": { "^x-": true },
                "additionalProperties": false,
            },
            "job": job(None),
            "named_job": job(Some(("name", json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$" })))),
            "variable": { "type": "string", "pattern": "\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}" },
        },
    })
}

fn job(name: Option<(&str, Value)>) -> Value {
    let mut schema = part(keys::JOB);
    schema["patternProperties"] = json!({ "^x-": true });
    if let Some((name, value)) = name {
        schema["properties"][name] = value;
        schema["required"] = json!([name]);
    }
    schema
}

fn part(keys: &[Key]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut value = shape(&key.shape);
        value["description"] = json!(key.about);
        for (alias, _) in keys::ALIASES.iter().filter(|(_, meant)| *meant == key.name) {
            let mut value = value.clone();
            value["description"] = json!(format!("The same as {}.", key.name));
            properties.insert((*alias).to_owned(), value);
        }
        properties.insert(key.name.to_owned(), value);
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn shape(shape: &Shape) -> Value {
    let text = || json!({ "type": "string" });
    let one_or_list = |one: Value| json!({ "anyOf": [one.clone(), { "type": "array", "items": one }] });
    match shape {
        Shape::Text => text(),
        Shape::LooseText | Shape::Size => json!({ "type": ["string", "number"] }),
        Shape::Words | Shape::Texts => one_or_list(text()),
        Shape::Pairs => pairs(json!({ "type": ["string", "number"] })),
        Shape::Variables => pairs(json!({
            "anyOf": [
                { "type": ["string", "number"] },
                {
                    "type": "object",
                    "properties": { "secret": { "type": "string" } },
                    "required": ["secret"],
                    "additionalProperties": false,
                },
            ],
        })),
        Shape::Bool => or_variable(json!({ "type": "boolean" })),
        Shape::Integer(range) => integer(*range),
        Shape::Integers(range) => one_or_list(integer(*range)),
        Shape::Number => or_variable(json!({ "type": "number", "minimum": 0 })),
        Shape::Duration => duration(),
        Shape::Durations => one_or_list(duration()),
        Shape::Jitter => or_variable(json!({
            "anyOf": [{ "enum": ["full", "none"] }, { "type": "number", "minimum": 0, "maximum": 1 }],
        })),
        Shape::DurationOrNone => or_variable(json!({ "type": "string", "pattern": "^(none|[0-9].*[a-z])$" })),
        Shape::Choice(names) => choice(names()),
        Shape::Choices(names) => one_or_list(choice(names())),
        Shape::Volumes => json!({ "type": "array", "items": { "anyOf": [text(), part(keys::VOLUME)] } }),
        Shape::Hosts => json!({
            "anyOf": [
                { "type": "object", "additionalProperties": one_or_list(text()) },
                { "type": "array", "items": { "type": "string", "pattern": "[:=]" } },
            ],
        }),
        Shape::Ulimits => json!({
            "type": "object",
            "patternProperties": {
                (format!("^({})$", ULIMITS.join("|"))): { "anyOf": [integer(keys::ULIMIT), part(keys::ULIMIT_BOUNDS)] },
            },
            "additionalProperties": false,
        }),
        Shape::Schedules => one_or_list(json!({ "anyOf": [text(), part(keys::time::SCHEDULE)] })),
        Shape::Conditions => json!({
            "anyOf": [
                text(),
                { "type": "array", "items": text() },
                {
                    "type": "object",
                    "additionalProperties": one_or_list(json!({ "type": ["string", "number"] })),
                },
            ],
        }),
        Shape::Weights(range) => json!({ "type": "object", "additionalProperties": integer(*range) }),
        Shape::LooseTexts => one_or_list(json!({ "type": ["string", "number"] })),
        Shape::Part(keys) => part(keys),
        Shape::PartList(keys) => one_or_list(part(keys)),
        Shape::Parts(keys) => json!({
            "type": "object",
            "patternProperties": { "^[a-z][a-z0-9_]{0,62}$": part(keys) },
            "additionalProperties": false,
        }),
        Shape::Any => one_or_list(json!({ "type": ["string", "number", "boolean"] })),
        Shape::Values => json!({
            "type": "object",
            "additionalProperties": one_or_list(json!({ "type": ["string", "number", "boolean"] })),
        }),
        Shape::Json => json!({}),
        Shape::RunOn => or_variable(json!({
            "anyOf": [
                { "enum": ["one", "all"] },
                { "type": "integer", "minimum": 1, "maximum": scheduler::placement::rules::RunOn::COUNT_MAX },
            ],
        })),
        Shape::PartOrInteger(keys, range) => json!({ "anyOf": [integer(*range), part(keys)] }),
    }
}

fn pairs(value: Value) -> Value {
    json!({
        "anyOf": [
            { "type": "object", "additionalProperties": value },
            { "type": "array", "items": { "type": "string", "pattern": "=" } },
        ],
    })
}

fn duration() -> Value {
    or_variable(json!({ "type": "string", "pattern": "^[0-9].*[a-z]$" }))
}

fn integer(range: Range) -> Value {
    or_variable(json!({ "type": "integer", "minimum": range.from, "maximum": range.to }))
}

fn choice(names: Vec<&str>) -> Value {
    or_variable(json!({ "enum": names }))
}

fn or_variable(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "$ref": "#/$defs/variable" }] })
}
