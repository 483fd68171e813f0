//! One operation of the description, and the words in which `operations` writes it.

use axum::http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};

use crate::http::middleware::code::ProblemCode;

/// A method on a path.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// The path with its parameters in braces.
    pub(crate) path: &'static str,
    /// The group of operations that it is shown in.
    pub(crate) tag: &'static str,
    /// The name of the function in a generated client.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    /// The forms of the body, the usual one first; empty if it takes none.
    pub(crate) body: Vec<Content>,
    pub(crate) body_is_required: bool,
    pub(crate) answers: Vec<Answer>,
    /// The problems of its own, beside those of every operation.
    pub(crate) problems: Vec<ProblemCode>,
}

/// A parameter of the path, the query or the header.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) location: ParameterLocation,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) text: &'static str,
}

/// The part of a request that a parameter is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterLocation {
    Path,
    Query,
    QueryRequired,
    Header,
}

/// The values of a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Any text; the example is shown.
    Text(&'static str),
    /// A whole number from the first to the second, with an example.
    Number(u64, u64, u64),
    /// A whole number from the first to the second, with an example, or this word.
    NumberOr(u64, u64, u64, &'static str),
    /// A whole number that may be negative.
    Integer,
    /// `1` or `0`.
    Switch,
    /// A duration such as `30s`.
    Duration(&'static str),
    /// An instant with its zone.
    Instant,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A successful answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: &'static str,
    /// The forms of its body; empty if it has none.
    pub(crate) content: Vec<Content>,
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

/// A body in one form.
pub(crate) struct Content {
    pub(crate) media_type: &'static str,
    pub(crate) schema: RefOr<Schema>,
    /// The schema's own name and those that it refers to.
    pub(crate) named: Vec<(String, RefOr<Schema>)>,
    pub(crate) example: Value,
    /// Reads the example as the type that the handler writes or reads.
    #[cfg(test)]
    pub(crate) check: fn(Value) -> Result<(), String>,
}

impl Operation {
    fn new(
        method: Method,
        path: &'static str,
        tag: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        let parameters = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        Self {
            method,
            path,
            tag,
            id,
            summary,
            parameters: parameters.map(Parameter::of_path).collect(),
            body: Vec::new(),
            body_is_required: false,
            answers: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(super) fn get(
        path: &'static str,
        tag: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(Method::GET, path, tag, id, summary)
    }

    pub(super) fn post(
        path: &'static str,
        tag: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(Method::POST, path, tag, id, summary)
    }

    pub(super) fn put(
        path: &'static str,
        tag: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(Method::PUT, path, tag, id, summary)
    }

    pub(super) fn delete(
        path: &'static str,
        tag: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(Method::DELETE, path, tag, id, summary)
    }

    pub(super) fn patch(
        path: &'static str,
        tag: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(Method::PATCH, path, tag, id, summary)
    }

    /// Says what the parameter of the path is, if its name does not tell it.
    pub(super) fn path(mut self, kind: Kind, text: &'static str) -> Self {
        if let Some(parameter) = self.parameters.iter_mut().find(|it| it.location == ParameterLocation::Path)
        {
            (parameter.kind, parameter.text) = (kind, text);
        }
        self
    }

    pub(super) fn takes(mut self, parameters: &[Parameter]) -> Self {
        self.parameters.extend(parameters);
        self
    }

    pub(super) fn may_have_body(mut self, content: Content) -> Self {
        self.body.push(content);
        self
    }

    pub(super) fn has_body(mut self, content: Content) -> Self {
        self.body.push(content);
        self.body_is_required = true;
        self
    }

    pub(super) fn answers(mut self, status: u16, text: &'static str, content: Vec<Content>) -> Self {
        self.answers.push(Answer { status, text, content, headers: &[] });
        self
    }

    /// Names headers of the last answer.
    pub(super) fn with_headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers = headers;
        }
        self
    }

    pub(super) fn problems(mut self, codes: &[&[ProblemCode]]) -> Self {
        self.problems.extend(codes.iter().copied().flatten());
        self
    }
}

impl Parameter {
    fn of_path(name: &'static str) -> Self {
        let (kind, text) = match name {
            "id" => (ID, "The number of the job, batch or worker."),
            "code" => (Kind::Text("unknown_job"), "The code of a problem."),
            _ => (Kind::Text("resize"), "The name of the definition."),
        };
        Self { location: ParameterLocation::Path, name, kind, text }
    }
}

pub(super) const fn query(name: &'static str, kind: Kind, text: &'static str) -> Parameter {
    Parameter { location: ParameterLocation::Query, name, kind, text }
}

pub(super) const fn header(name: &'static str, kind: Kind, text: &'static str) -> Parameter {
    Parameter { location: ParameterLocation::Header, name, kind, text }
}

/// The number of a job, a batch or a worker.
pub(super) const ID: Kind = Kind::Number(1, i64::MAX.unsigned_abs(), 1);

impl Kind {
    /// The JSON schema of the values.
    pub(crate) fn schema(self) -> Value {
        match self {
            Self::Text(_) => json!({ "type": "string" }),
            Self::Number(lowest, highest, _) if highest == i64::MAX.unsigned_abs() => {
                json!({ "type": "integer", "format": "int64", "minimum": lowest })
            }
            Self::Number(lowest, highest, _) => {
                json!({ "type": "integer", "minimum": lowest, "maximum": highest })
            }
            Self::NumberOr(lowest, highest, _, word) => json!({
                "oneOf": [
                    { "type": "integer", "minimum": lowest, "maximum": highest },
                    { "type": "string", "enum": [word] },
                ]
            }),
            Self::Integer => json!({ "type": "integer", "format": "int32" }),
            Self::Switch => json!({ "type": "string", "enum": ["0", "1"] }),
            Self::Duration(_) => json!({ "type": "string", "format": "longshore-duration" }),
            Self::Instant => json!({ "type": "string", "format": "date-time" }),
            Self::Word(words) => json!({ "type": "string", "enum": words }),
        }
    }

    /// A value as it is written in an address or a header.
    pub(crate) fn example(self) -> String {
        match self {
            Self::Text(example) | Self::Duration(example) => example.to_owned(),
            Self::Number(_, _, example) | Self::NumberOr(_, _, example, _) => example.to_string(),
            Self::Integer => "0".to_owned(),
            Self::Switch => "1".to_owned(),
            Self::Instant => "2026-11-20T00:00:00Z".to_owned(),
            Self::Word(words) => (*words.first().unwrap_or(&"")).to_owned(),
        }
    }
}

/// JSON of a type, with an example.
pub(super) fn object<T: ToSchema + DeserializeOwned>(example: Value) -> Content {
    Content {
        media_type: "application/json",
        schema: reference::<T>(),
        named: named::<T>(),
        example,
        #[cfg(test)]
        check: check::<T>,
    }
}

/// A list of JSON of a type, with an example of an entry.
pub(super) fn list<T: ToSchema + DeserializeOwned>(example: Value) -> Content {
    Content {
        media_type: "application/json",
        schema: ArrayBuilder::new().items(reference::<T>()).into(),
        named: named::<T>(),
        example: json!([example]),
        #[cfg(test)]
        check: check::<Vec<T>>,
    }
}

/// A text of this type, with an example.
pub(super) fn text(media_type: &'static str, example: &str) -> Content {
    Content {
        media_type,
        schema: ObjectBuilder::new().schema_type(Type::String).into(),
        named: Vec::new(),
        example: example.into(),
        #[cfg(test)]
        check: check::<String>,
    }
}

/// JSON that is described elsewhere.
pub(super) fn any_object(example: Value) -> Content {
    Content {
        media_type: "application/json",
        schema: ObjectBuilder::new().into(),
        named: Vec::new(),
        example,
        #[cfg(test)]
        check: check::<serde_json::Map<String, Value>>,
    }
}

impl Content {
    /// The same body in another form.
    pub(super) fn or_text(self, media_type: &'static str, example: &str) -> Vec<Self> {
        vec![self, text(media_type, example)]
    }
}

fn reference<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

fn named<T: ToSchema>() -> Vec<(String, RefOr<Schema>)> {
    let mut named = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut named);
    named
}

#[cfg(test)]
fn check<T: DeserializeOwned>(example: Value) -> Result<(), String> {
    serde_json::from_value::<T>(example).map(drop).map_err(|error| error.to_string())
}
