//! Writes the description: the table of `operations`, and the types that describe themselves, as OpenAPI 3.1.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use utoipa::{PartialSchema, ToSchema};

use super::operation::{Content, Operation, Parameter, ParameterLocation};
use super::operations::{TAGS, all};
use crate::auth::role::Permission;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::deprecation::{self, Deprecated};
use crate::http::present::shapes;
use crate::http::request::query::encode;

/// The whole description, for a server with this prefix of paths.
pub(super) fn write(base: &str) -> Value {
    write_with(base, deprecation::TABLE)
}

/// The whole description with these deprecations.
fn write_with(base: &str, deprecated: &[Deprecated]) -> Value {
    let operations = all();
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in &operations {
        let forms = operation.body.iter().chain(operation.answers.iter().flat_map(|answer| &answer.content));
        for (name, schema) in forms.flat_map(|content| &content.named) {
            schemas.entry(name.clone()).or_insert_with(|| json!(schema));
        }
        let methods = paths.entry(operation.path).or_default();
        methods.insert(operation.method.as_str().to_lowercase(), self::operation(operation, deprecated));
    }
    for (name, schema) in [
        (shapes::Problem::name(), shapes::Problem::schema()),
        (shapes::Fault::name(), shapes::Fault::schema()),
        (shapes::CommittedEvent::name(), shapes::CommittedEvent::schema()),
    ] {
        schemas.insert(name.into_owned(), json!(schema));
    }
    let mut of_events = Vec::new();
    shapes::CommittedEvent::schemas(&mut of_events);
    for (name, schema) in of_events {
        schemas.entry(name).or_insert_with(|| json!(schema));
    }
    schemas.values_mut().for_each(without_nulls);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Longshore",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A job server with remote workers",
            "description": "docs/http-api.md describes the API for people.",
            "license": { "name": "MIT OR Apache-2.0" }
        },
        "servers": [{ "url": if base.is_empty() { "/" } else { base } }],
        "tags": TAGS.map(|(name, description)| json!({ "name": name, "description": description })),
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": common_responses(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } }
        }
    })
}

fn operation(operation: &Operation, deprecated: &[Deprecated]) -> Value {
    let is_deprecated =
        |name| deprecation::is_deprecated(deprecated, operation.method.as_str(), operation.path, name);
    let role = Permission::needed(&operation.method, operation.path).weakest_role();
    let permission = Permission::needed(&operation.method, operation.path);
    let needed = match permission {
        Permission::Open => "Needs no token.".to_owned(),
        _ => format!("With tokens, it needs the role `{role}`."),
    };
    let mut written = json!({
        "tags": [operation.tag],
        "operationId": operation.id,
        "summary": operation.summary,
        "description": needed,
        "responses": responses(operation),
        "x-codeSamples": [{ "lang": "Shell", "source": curl(operation) }]
    });
    if !operation.parameters.is_empty() {
        let described = operation.parameters.iter().map(|it| {
            let mut described = parameter(it);
            if is_deprecated(Some(it.name)) {
                described["deprecated"] = true.into();
            }
            described
        });
        written["parameters"] = described.collect();
    }
    if is_deprecated(None) {
        written["deprecated"] = true.into();
    }
    if !operation.body.is_empty() {
        written["requestBody"] =
            json!({ "required": operation.body_is_required, "content": content(&operation.body) });
    }
    written
}

fn parameter(parameter: &Parameter) -> Value {
    let (location, required) = match parameter.location {
        ParameterLocation::Path => ("path", true),
        ParameterLocation::Query => ("query", false),
        ParameterLocation::QueryRequired => ("query", true),
        ParameterLocation::Header => ("header", false),
    };
    json!({
        "name": parameter.name,
        "in": location,
        "required": required,
        "description": parameter.text,
        "schema": parameter.kind.schema(),
        "example": parameter.kind.example()
    })
}

/// The forms of a body. Several types in one form are alternatives.
fn content(forms: &[Content]) -> Value {
    let mut by_type: BTreeMap<&str, Vec<&Content>> = BTreeMap::new();
    for form in forms {
        by_type.entry(form.media_type).or_default().push(form);
    }
    let written = by_type.into_iter().map(|(media_type, forms)| {
        let value = match forms.as_slice() {
            // A schema would be of the text between two events, which has none.
            [form] if form.media_type == "text/event-stream" => json!({ "example": form.example }),
            [form] => json!({ "schema": form.schema, "example": form.example }),
            several => {
                let schemas: Vec<_> = several.iter().map(|form| &form.schema).collect();
                let examples = several.iter().enumerate();
                let examples = examples
                    .map(|(index, form)| (format!("form {}", index + 1), json!({ "value": form.example })));
                json!({ "schema": { "anyOf": schemas }, "examples": Map::from_iter(examples) })
            }
        };
        (media_type.to_owned(), value)
    });
    Value::Object(written.collect())
}

fn responses(operation: &Operation) -> Value {
    let mut written = Map::new();
    for answer in &operation.answers {
        let mut response = json!({ "description": answer.text });
        if !answer.content.is_empty() {
            response["content"] = content(&answer.content);
        }
        for (name, text) in answer.headers {
            response["headers"][*name] = json!({ "description": text, "schema": { "type": "string" } });
        }
        written.insert(answer.status.to_string(), response);
    }
    let common = by_status(&COMMON);
    let every: Vec<ProblemCode> = COMMON.iter().chain(&operation.problems).copied().collect();
    for (status, codes) in by_status(&every) {
        let response = match common.get(&status) {
            Some(known) if *known == codes => json!({ "$ref": format!("#/components/responses/{status}") }),
            _ => problem(status, &codes),
        };
        written.insert(status.to_string(), response);
    }
    Value::Object(written)
}

fn common_responses() -> Value {
    let responses = by_status(&COMMON);
    Value::Object(
        responses.iter().map(|(status, codes)| (status.to_string(), problem(*status, codes))).collect(),
    )
}

/// A response that is a problem document with one of these codes.
fn problem(status: u16, codes: &BTreeSet<&'static str>) -> Value {
    let codes: Vec<ProblemCode> = codes.iter().filter_map(|name| ProblemCode::find(name)).collect();
    let lines: Vec<String> =
        codes.iter().map(|code| format!("- `{}`: {}", code.name(), code.title())).collect();
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let example = codes.first().map(|code| {
        json!({
            "type": format!("/problems/{}", code.name()), "title": code.title(), "status": status, "code": code.name(),
            "request_id": "7aa6e6d9-14"
        })
    });
    json!({
        "description": lines.join("\n"),
        "content": { "application/problem+json": {
            "schema": {
                "allOf": [{ "$ref": "#/components/schemas/Problem" }, { "type": "object", "properties": {
                    "code": { "type": "string", "enum": names }, "status": { "type": "integer", "enum": [status] }
                } }]
            },
            "example": example
        } }
    })
}

fn by_status(codes: &[ProblemCode]) -> BTreeMap<u16, BTreeSet<&'static str>> {
    let mut statuses: BTreeMap<u16, BTreeSet<&'static str>> = BTreeMap::new();
    for code in codes {
        statuses.entry(code.status().as_u16()).or_default().insert(code.name());
    }
    statuses
}

/// Takes `null` from the values of fields that may be absent: absent values are left out of answers. So are the fields of an object that is
/// part of another one.
fn without_nulls(schema: &mut Value) {
    for part in schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
        without_nulls(part);
        if let Some(choices) = part.get_mut("oneOf").and_then(Value::as_array_mut) {
            let nothing = choices.iter_mut().find(|choice| choice["type"] == "null");
            if let Some(nothing) = nothing {
                *nothing = json!({ "type": "object" });
                let choices = part["oneOf"].take();
                *part = json!({ "anyOf": choices });
            }
        }
    }
    let required = schema["required"].clone();
    let is_required = |name: &str| required.as_array().is_some_and(|all| all.iter().any(|it| it == name));
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (_, property) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
        if let Some(kinds) = property.get_mut("type").and_then(Value::as_array_mut) {
            kinds.retain(|kind| kind != "null");
            if let [kind] = kinds.as_slice() {
                property["type"] = kind.clone();
            }
        }
        let Some(choices) = property.get_mut("oneOf").and_then(Value::as_array_mut) else { continue };
        choices.retain(|choice| choice["type"] != "null");
        if let [choice] = choices.as_slice() {
            let choice = choice.clone();
            let Some(fields) = property.as_object_mut() else { continue };
            fields.remove("oneOf");
            fields.extend(choice.as_object().cloned().unwrap_or_default());
        }
    }
}

/// A call that can be pasted.
fn curl(operation: &Operation) -> String {
    let mut path = operation.path.to_owned();
    for parameter in operation.parameters.iter().filter(|it| it.location == ParameterLocation::Path) {
        path = path.replace(&format!("{{{}}}", parameter.name), &parameter.kind.example());
    }
    let required = operation.parameters.iter().filter(|it| it.location == ParameterLocation::QueryRequired);
    let pairs: Vec<_> = required.map(|it| (it.name, it.kind.example())).collect();
    if !pairs.is_empty() {
        path = format!("{path}?{}", encode(pairs.iter().map(|(name, value)| (*name, value.as_str()))));
    }
    let method = match operation.method.as_str() {
        "GET" => String::new(),
        method => format!("-X {method} "),
    };
    let Some(body) = operation.body.first() else {
        return format!("curl {method}\"$U{path}\"");
    };
    let data = match &body.example {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    };
    format!("curl {method}\"$U{path}\" -H 'content-type: {}' -d '{data}'", body.media_type)
}

/// The problems of every operation.
const COMMON: [ProblemCode; 21] = [
    ProblemCode::InvalidPath,
    ProblemCode::InvalidQuery,
    ProblemCode::InvalidRequest,
    ProblemCode::TokenInUrl,
    ProblemCode::InvalidToken,
    ProblemCode::TokenExpired,
    ProblemCode::TokenRevoked,
    ProblemCode::CrossSite,
    ProblemCode::Forbidden,
    ProblemCode::NotFound,
    ProblemCode::MethodNotAllowed,
    ProblemCode::NotAcceptable,
    ProblemCode::UriTooLong,
    ProblemCode::HostNotAllowed,
    ProblemCode::TooManyFailures,
    ProblemCode::HeadersTooLarge,
    ProblemCode::Internal,
    ProblemCode::Busy,
    ProblemCode::StoreUnavailable,
    ProblemCode::InvalidId,
    ProblemCode::RequestTimeout,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deprecations_are_described() {
        let entry = |path, parameter| Deprecated {
            method: "GET",
            path,
            parameter,
            since: 0,
            sunset: None,
            page: "https://longshore.example/new",
        };
        let document = write_with("", &[entry("/api/jobs/{job}", None), entry("/api/jobs", Some("limit"))]);
        assert_eq!(document["paths"]["/api/jobs/{job}"]["get"]["deprecated"], true);
        assert!(document["paths"]["/api/jobs/{job}"]["patch"]["deprecated"].is_null());
        let list = &document["paths"]["/api/jobs"]["get"];
        assert!(list["deprecated"].is_null());
        let parameters = list["parameters"].as_array().unwrap().iter();
        let deprecated: Vec<_> =
            parameters.filter(|it| it["deprecated"] == true).map(|it| &it["name"]).collect();
        assert_eq!(deprecated, ["limit"]);
    }
}
