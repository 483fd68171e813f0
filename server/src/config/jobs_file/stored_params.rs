//! The stored form of a definition's parameters. It is not the serde form of their types: defaults and limits are JSON values of the
//! parameter's own type, and a number has its shortest decimal form. Defaults are checked when they are read; patterns were when jobs.yaml
//! was loaded.

use std::time::Duration;

use scheduler::params::{Absence, Bounds, Field, Param, ParamKind, Params, SubmissionRules, Word};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::params::{from_json, to_json};

// The fields are in alphabetical order, as those of a stored entry.

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredParams {
    /// Words, and names of parameters as objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    command: Vec<StoredWord>,
    declared: Vec<StoredParam>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    environment: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredWord {
    Text(String),
    Param { param: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredParam {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, rename = "enum", skip_serializing_if = "Vec::is_empty")]
    allowed: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<Value>,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pattern: Option<String>,
    required: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    secret: bool,
    #[serde(rename = "type")]
    kind: String,
}

/// The rules; none if the name of a type is unknown, or a limit or default does not fit its type.
pub(super) fn rules(allow: Option<Vec<Field>>, params: Option<StoredParams>) -> Option<SubmissionRules> {
    let params = match params {
        None => Params::default(),
        Some(stored) => stored.into_params()?,
    };
    let defaults = crate::params::defaults(&params);
    Some(SubmissionRules { params, allow, defaults })
}

impl StoredParams {
    pub(super) fn of(params: &Params) -> Option<Self> {
        if *params == Params::default() {
            return None;
        }
        let word = |word: &Word| match word {
            Word::Text(text) => StoredWord::Text(text.clone()),
            Word::Param(name) => StoredWord::Param { param: name.clone() },
        };
        Some(Self {
            command: params.command.iter().map(word).collect(),
            declared: params.declared.iter().map(StoredParam::of).collect(),
            environment: params.environment.clone(),
        })
    }

    fn into_params(self) -> Option<Params> {
        let word = |word| match word {
            StoredWord::Text(text) => Word::Text(text),
            StoredWord::Param { param } => Word::Param(param),
        };
        Some(Params {
            declared: self.declared.into_iter().map(StoredParam::into_param).collect::<Option<_>>()?,
            command: self.command.into_iter().map(word).collect(),
            environment: self.environment,
        })
    }
}

impl StoredParam {
    fn of(param: &Param) -> Self {
        let mut stored = Self {
            default: None,
            description: param.description.clone(),
            allowed: Vec::new(),
            max: None,
            min: None,
            name: param.name.clone(),
            pattern: None,
            required: param.absence == Absence::Refused,
            secret: param.secret,
            kind: param.kind.name().to_owned(),
        };
        if let Absence::Default(value) = &param.absence {
            stored.default = Some(to_json(value));
        }
        match &param.kind {
            ParamKind::Text { pattern, length } => {
                stored.pattern.clone_from(pattern);
                stored.set_bounds(length, |it| it.into());
            }
            ParamKind::Integer(bounds) => stored.set_bounds(bounds, |it| it.into()),
            ParamKind::Number(bounds) => stored.set_bounds(bounds, |it| it.into()),
            ParamKind::Boolean => {}
            ParamKind::Duration(bounds) => {
                stored.set_bounds(bounds, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX).into());
            }
            ParamKind::Enum(words) => stored.allowed.clone_from(words),
            ParamKind::List { pattern, items, length } => {
                stored.pattern.clone_from(pattern);
                stored.allowed.clone_from(items);
                stored.set_bounds(length, |it| it.into());
            }
        }
        stored
    }

    fn set_bounds<T: Copy>(&mut self, bounds: &Bounds<T>, write: impl Fn(T) -> Value) {
        self.min = bounds.min.map(&write);
        self.max = bounds.max.map(&write);
    }

    fn into_param(self) -> Option<Param> {
        let length = self.read_bounds(Value::as_u64);
        let kind = match self.kind.as_str() {
            "string" => ParamKind::Text { pattern: self.pattern, length: length? },
            "integer" => ParamKind::Integer(self.read_bounds(Value::as_i64)?),
            "number" => ParamKind::Number(self.read_bounds(Value::as_f64)?),
            "boolean" => ParamKind::Boolean,
            "duration" => {
                ParamKind::Duration(self.read_bounds(|value| value.as_u64().map(Duration::from_millis))?)
            }
            "enum" => ParamKind::Enum(self.allowed),
            "list" => ParamKind::List { pattern: self.pattern, items: self.allowed, length: length? },
            _ => return None,
        };
        let absence = match self.default {
            Some(value) => Absence::Default(from_json(&kind, None, &value).ok()?),
            None if self.required => Absence::Refused,
            None => Absence::Allowed,
        };
        Some(Param { name: self.name, kind, absence, secret: self.secret, description: self.description })
    }

    /// The limits; none if they are of another type.
    fn read_bounds<T>(&self, read: impl Fn(&Value) -> Option<T>) -> Option<Bounds<T>> {
        let bound = |value: &Option<Value>| match value {
            None => Some(None),
            Some(value) => read(value).map(Some),
        };
        Some(Bounds { min: bound(&self.min)?, max: bound(&self.max)? })
    }
}

#[cfg(test)]
mod tests {
    use scheduler::params::ParamValue;

    use super::*;

    #[test]
    fn parameters_of_every_type_are_read_back_as_they_were() {
        let param = |name: &str, kind, absence| Param {
            name: name.to_owned(),
            kind,
            absence,
            secret: name == "text",
            description: Some("d".to_owned()),
        };
        let length = Bounds { min: Some(1), max: Some(5) };
        let text = |text: &str| ParamValue::Text(text.to_owned());
        let duration = Bounds { min: Some(Duration::from_millis(1_500)), max: None };
        let list = ParamKind::List { pattern: Some("a+".to_owned()), items: vec!["a".to_owned()], length };
        let params = Params {
            declared: vec![
                param("text", ParamKind::Text { pattern: Some("x".to_owned()), length }, Absence::Refused),
                param(
                    "integer",
                    ParamKind::Integer(Bounds { min: Some(-5), max: None }),
                    Absence::Default(ParamValue::Integer(7)),
                ),
                param(
                    "number",
                    ParamKind::Number(Bounds { min: Some(0.5), max: Some(2.0) }),
                    Absence::Default(ParamValue::Number("1.25".to_owned())),
                ),
                param("boolean", ParamKind::Boolean, Absence::Default(ParamValue::Boolean(true))),
                param("duration", ParamKind::Duration(duration), Absence::Default(text("90s"))),
                param("enum", ParamKind::Enum(vec!["a".to_owned()]), Absence::Allowed),
                param("list", list, Absence::Default(ParamValue::List(vec!["a".to_owned()]))),
            ],
            command: vec![Word::Param("text".to_owned()), Word::Text("${params.text}".to_owned())],
            environment: vec![("A".to_owned(), "integer".to_owned())],
        };
        let written = serde_json::to_string(&StoredParams::of(&params).unwrap()).unwrap();
        let read: StoredParams = serde_json::from_str(&written).unwrap();
        assert_eq!(read.into_params(), Some(params));
        assert!(StoredParams::of(&Params::default()).is_none());
    }
}
