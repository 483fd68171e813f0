//! `/api-docs`: the description of the API for people, without a script. Everything on it comes from the document.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde_json::Value;

use super::page::{Frame, render};
use crate::http::middleware::problem::Problem;
use crate::http::openapi;
use crate::http::state::AppState;

/// The operations of a tag.
struct Group<'d> {
    name: &'d str,
    text: &'d str,
    operations: Vec<OperationView<'d>>,
}

struct OperationView<'d> {
    id: &'d str,
    method: String,
    path: &'d str,
    summary: &'d str,
    description: &'d str,
    call: &'d str,
    parameters: Vec<Field<'d>>,
    body: Vec<Form<'d>>,
    answers: Vec<AnswerView<'d>>,
    problems: Vec<ProblemView<'d>>,
}

/// A parameter of an operation, or a field of a type.
struct Field<'d> {
    name: &'d str,
    kind: String,
    /// The type that is described on the page.
    link: Option<&'d str>,
    /// The part of the request, for a parameter.
    place: &'d str,
    required: bool,
    text: &'d str,
}

/// A body in one form.
struct Form<'d> {
    media_type: &'d str,
    kind: String,
    link: Option<&'d str>,
    example: String,
}

struct AnswerView<'d> {
    status: &'d str,
    text: &'d str,
    forms: Vec<Form<'d>>,
}

/// The codes of problems with one status.
struct ProblemView<'d> {
    status: &'d str,
    codes: Vec<&'d str>,
}

struct TypeView<'d> {
    name: &'d str,
    text: &'d str,
    /// Types whose fields it has as well.
    bases: Vec<&'d str>,
    fields: Vec<Field<'d>>,
}

#[derive(Template)]
#[template(path = "api_docs.html")]
struct ApiPage<'d> {
    frame: Frame,
    groups: Vec<Group<'d>>,
    common: Vec<ProblemView<'d>>,
    types: Vec<TypeView<'d>>,
}

/// `GET /api-docs`
pub(crate) async fn show(State(state): State<Arc<AppState>>) -> Result<Response, Problem> {
    let document = &openapi::description(&state).document;
    let tags = document["tags"].as_array().into_iter().flatten();
    let groups = tags.map(|tag| {
        let name = text(&tag["name"]);
        Group { name, text: text(&tag["description"]), operations: operations(document, name) }
    });
    let common = entries(&document["components"]["responses"]);
    let types = entries(&document["components"]["schemas"]);
    render(&ApiPage {
        frame: Frame::new(&state, "api-docs", "HTTP API"),
        groups: groups.collect(),
        common: common.map(|(status, response)| problem(status, response)).collect(),
        types: types.map(|(name, schema)| described_type(name, schema)).collect(),
    })
}

fn operations<'d>(document: &'d Value, tag: &str) -> Vec<OperationView<'d>> {
    let all = entries(&document["paths"]).flat_map(|(path, methods)| {
        entries(methods).map(move |(method, operation)| (path, method, operation))
    });
    let tagged = all.filter(|(_, _, operation)| operation["tags"][0] == tag);
    tagged.map(|(path, method, operation)| view(path, method, operation)).collect()
}

fn view<'d>(path: &'d str, method: &str, operation: &'d Value) -> OperationView<'d> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let (mut answers, mut problems) = (Vec::new(), Vec::new());
    for (status, response) in entries(&operation["responses"]) {
        if response["content"]["application/problem+json"].is_object() {
            problems.push(problem(status, response));
        } else if response["$ref"].is_null() {
            answers.push(AnswerView {
                status,
                text: text(&response["description"]),
                forms: forms(&response["content"]),
            });
        }
    }
    OperationView {
        id: text(&operation["operationId"]),
        method: method.to_uppercase(),
        path,
        summary: text(&operation["summary"]),
        description: text(&operation["description"]),
        call: text(&operation["x-codeSamples"][0]["source"]),
        parameters: parameters.map(|it| field(text(&it["name"]), &it["schema"], it)).collect(),
        body: forms(&operation["requestBody"]["content"]),
        answers,
        problems,
    }
}

fn problem<'d>(status: &'d str, response: &'d Value) -> ProblemView<'d> {
    let codes =
        &response["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]["code"]["enum"];
    ProblemView { status, codes: codes.as_array().into_iter().flatten().map(text).collect() }
}

fn forms(content: &Value) -> Vec<Form<'_>> {
    let form = |(media_type, form): (_, &'_ Value)| {
        let example = match &form["example"] {
            Value::Null => &form["examples"]["form 1"]["value"],
            example => example,
        };
        let example = example.as_str().map_or_else(|| format!("{example:#}"), str::to_owned);
        (media_type, example)
    };
    entries(content)
        .map(|(name, value)| {
            let (media_type, example) = form((name, value));
            Form { media_type, kind: kind(&value["schema"]), link: link(&value["schema"]), example }
        })
        .collect()
}

fn described_type<'d>(name: &'d str, schema: &'d Value) -> TypeView<'d> {
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let bases = parts.clone().filter_map(link).collect();
    let fields = std::iter::once(schema).chain(parts).flat_map(|part| {
        let required = part["required"].as_array();
        entries(&part["properties"]).map(move |(name, property)| {
            let is_required = required.is_some_and(|all| all.iter().any(|it| it == name));
            Field { required: is_required, ..field(name, property, property) }
        })
    });
    TypeView { name, text: text(&schema["description"]), bases, fields: fields.collect() }
}

fn field<'d>(name: &'d str, schema: &'d Value, facts: &'d Value) -> Field<'d> {
    Field {
        name,
        kind: kind(schema),
        link: link(schema),
        place: text(&facts["in"]),
        required: facts["required"] == true,
        text: text(&facts["description"]),
    }
}

/// The type of a value in words.
fn kind(schema: &Value) -> String {
    if let Some(name) = own_link(schema) {
        return name.to_owned();
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(text).collect::<Vec<_>>().join(", ");
    }
    for choices in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[choices].as_array() {
            return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    let words: Vec<String> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(|kind| text(kind).to_owned()).collect(),
        Value::String(kind) => vec![kind.clone()],
        _ if schema.is_null() => return "events".to_owned(),
        _ => return "any JSON".to_owned(),
    };
    match (words.join(" or "), text(&schema["format"])) {
        (word, _) if word == "array" => format!("list of {}", kind(&schema["items"])),
        (word, _) if word == "object" && schema["additionalProperties"].is_object() => {
            format!("{} by name", kind(&schema["additionalProperties"]))
        }
        (_, "date-time") => "instant".to_owned(),
        (word, _) => word,
    }
}

/// The described type that a schema names.
fn own_link(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

/// The first described type within a schema.
fn link(schema: &Value) -> Option<&str> {
    let inner = schema["anyOf"].as_array().and_then(|choices| choices.first());
    own_link(schema).or_else(|| own_link(&schema["items"])).or_else(|| own_link(inner?))
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
