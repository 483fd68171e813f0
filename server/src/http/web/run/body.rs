//! The fields of a run form as the body of a submission.

use serde_json::{Map, Number, Value, json};

use super::field::{Control, FormField, PARAM};
use super::form::RunForm;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::web::actions::Fields;

impl RunForm {
    /// The body of the submission: fields that are empty, or as they were filled in, are left out.
    ///
    /// # Errors
    /// The input is not JSON.
    pub(crate) fn body(&self, typed: &Fields) -> Result<Value, Problem> {
        let mut body = Map::new();
        let mut params = Map::new();
        let kept: Vec<&str> = self.unchanged(typed).collect();
        let sent =
            typed.iter().filter(|(field, value)| !value.trim().is_empty() && !kept.contains(&&**field));
        for (field, value) in sent {
            if let Some(name) = field.strip_prefix(PARAM) {
                let known = self.params.iter().find(|it| it.name == *field);
                match known.map(|field| &field.control) {
                    Some(Control::Lines(_)) => drop(params.insert(name.to_owned(), json!(filled(value)))),
                    Some(Control::Items(_)) => match params.get_mut(name) {
                        Some(Value::Array(items)) => items.push(json!(value)),
                        _ => drop(params.insert(name.to_owned(), json!([value]))),
                    },
                    Some(Control::Number { .. }) => {
                        drop(params.insert(name.to_owned(), number(value.trim())))
                    }
                    _ => drop(params.insert(name.to_owned(), json!(value))),
                }
                continue;
            }
            let sent = match field.as_str() {
                "args" => json!(filled(value)),
                "workers" | "requires" => json!(trimmed(value)),
                "environment" | "labels" => pairs(value),
                "timeout" | "delay" => json!(value.trim()),
                "priority" => number(value.trim()),
                "input" => serde_json::from_str(value).map_err(|error| {
                    Problem::new(ProblemCode::InvalidJson, format!("it is not JSON: {error}")).field("input")
                })?,
                _ => continue,
            };
            body.insert(field.clone(), sent);
        }
        if !params.is_empty() {
            body.insert("params".to_owned(), Value::Object(params));
        }
        Ok(Value::Object(body))
    }

    /// The fields of the earlier job that its retry does not keep, separated by commas: those that this form was filled with and that have
    /// been emptied, and the labels, which are typed as a whole.
    pub(crate) fn cleared(&self, typed: &Fields) -> String {
        let is_cleared = |name: &str| {
            let mut values = typed_values(typed, name).peekable();
            values.peek().is_some() && (name == "labels" || values.all(|value| value.trim().is_empty()))
        };
        let kept: Vec<&str> = self.unchanged(typed).collect();
        let changed = self.filled().filter(|field| !kept.contains(&&*field.name));
        let cleared = changed.map(|field| field.name.as_str()).filter(|name| is_cleared(name));
        cleared.collect::<Vec<_>>().join(",")
    }

    fn filled(&self) -> impl Iterator<Item = &FormField> {
        self.params.iter().chain(&self.others).filter(|field| !field.value.is_empty())
    }

    /// The fields that nobody has changed. A browser ends lines in its own way.
    fn unchanged(&self, typed: &Fields) -> impl Iterator<Item = &str> {
        let lines = |value: &str| value.lines().map(str::to_owned).collect::<Vec<_>>();
        let is_unchanged = move |field: &&FormField| {
            let values: Vec<String> = typed_values(typed, &field.name).flat_map(lines).collect();
            values == lines(&field.value)
        };
        self.filled().filter(is_unchanged).map(|field| field.name.as_str())
    }
}

fn typed_values<'t>(typed: &'t Fields, name: &str) -> impl Iterator<Item = &'t str> {
    typed.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
}

/// A number; a text that is none is refused with the words of the API.
fn number(text: &str) -> Value {
    text.parse::<Number>().map_or_else(|_| json!(text), Value::Number)
}

fn filled(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty()).collect()
}

fn trimmed(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// `NAME=value` of each line, as an object.
fn pairs(text: &str) -> Value {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let pairs = lines.map(|line| line.split_once('=').unwrap_or((line, "")));
    Value::Object(pairs.map(|(name, value)| (name.trim().to_owned(), json!(value))).collect())
}

#[cfg(test)]
mod tests {
    use scheduler::params::{Absence, Bounds, Param, ParamKind};

    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn form(params: &[Param]) -> RunForm {
        let mut form = RunForm::with_fields("/definitions/a/run".to_owned(), None);
        form.params = params.iter().map(FormField::of_param).collect();
        form
    }

    fn param(name: &str, kind: ParamKind) -> Param {
        Param { name: name.to_owned(), kind, absence: Absence::Refused, secret: false, description: None }
    }

    #[test]
    fn an_empty_form_changes_nothing() {
        let empty =
            [("args", ""), ("environment", "\n"), ("priority", " "), ("params.size", ""), ("input", "")];
        assert_eq!(form(&[]).body(&fields(&empty)).unwrap(), json!({}));
    }

    #[test]
    fn a_filled_field_that_was_emptied_is_cleared() {
        let mut form = form(&[param("size", ParamKind::Boolean), param("color", ParamKind::Boolean)]);
        for field in form.params.iter_mut().chain(&mut form.others).filter(|field| field.name != "input") {
            field.value = "x".to_owned();
        }
        let typed = fields(&[
            ("params.size", ""),
            ("params.color", ""),
            ("params.color", "true"),
            ("args", "\r\n"),
            ("labels", "team=web"),
            ("priority", "7"),
            ("input", ""),
        ]);
        assert_eq!(form.cleared(&typed), "params.size,args,labels");
        assert_eq!(form.cleared(&fields(&[])), "");
    }

    #[test]
    fn a_field_that_nobody_changed_is_not_sent() {
        let mut form = form(&[param("size", ParamKind::Boolean)]);
        for field in form.params.iter_mut().chain(&mut form.others) {
            field.value = "first\n\nthird=3".to_owned();
        }
        let as_filled = "first\r\n\r\nthird=3\r\n";
        let typed = fields(&[
            ("params.size", as_filled),
            ("args", as_filled),
            ("labels", as_filled),
            ("priority", "7"),
        ]);
        assert_eq!(form.body(&typed).unwrap(), json!({"priority": 7}));
        assert_eq!(form.cleared(&typed), "");
    }

    #[test]
    fn a_form_becomes_the_body_of_a_submission() {
        let typed = fields(&[
            ("args", "--size\nlarge"),
            ("environment", "A=1=2\r\nB="),
            ("labels", "team=web"),
            ("input", "{\"a\": [1]}"),
            ("priority", "7"),
            ("timeout", "10m"),
        ]);
        let expected = json!({"args": ["--size", "large"], "environment": {"A": "1=2", "B": ""}, "priority": 7, "timeout": "10m",
            "labels": {"team": "web"}, "input": {"a": [1]}});
        assert_eq!(form(&[]).body(&typed).unwrap(), expected);
        let wrong = form(&[]).body(&fields(&[("input", "{")])).unwrap_err();
        assert_eq!(wrong.wrong_field(), Some("input"));
    }

    #[test]
    fn parameters_are_sent_as_their_types_ask() {
        let list = |items: &[&str]| ParamKind::List {
            pattern: None,
            items: items.iter().map(|item| (*item).to_owned()).collect(),
            length: Bounds::default(),
        };
        let form = form(&[
            param("size", ParamKind::Integer(Bounds { min: Some(1), max: None })),
            param("files", list(&[])),
            param("sites", list(&["oslo", "lisbon"])),
            param("draft", ParamKind::Boolean),
        ]);
        let typed = fields(&[
            ("params.size", " 12 "),
            ("params.files", "a b\r\nc\r\n"),
            ("params.sites", "oslo"),
            ("params.sites", "lisbon"),
            ("params.draft", "true"),
            ("params.gone", "x"),
        ]);
        let expected = json!({"params": {"size": 12, "files": ["a b", "c"], "sites": ["oslo", "lisbon"], "draft": "true", "gone": "x"}});
        assert_eq!(form.body(&typed).unwrap(), expected);
    }
}
