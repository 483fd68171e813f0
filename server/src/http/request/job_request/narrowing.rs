//! The fields `workers` and `requires`: the workers that a job asks for, in the grammar of jobs.yaml.

use protocol::WorkerId;
use scheduler::placement::rules::{Condition, LabelRule, WorkerSelector};
use serde_json::Value;

use super::collector::FaultCollector;
use crate::config::jobs_file::placement::{ENTRIES_MAX, WORKER_NAME_BYTES_MAX, check_label_name, label_rule};
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;

impl FaultCollector {
    /// Reads names and ids of workers: a list, or one.
    pub(super) fn workers(&self, value: Value) -> Vec<WorkerSelector> {
        let items = list(value);
        self.check_count("workers", items.len());
        let selectors = items.into_iter().enumerate().filter_map(|(index, item)| {
            let field = || format!("workers[{index}]");
            let Some(text) = loose_text(&item) else {
                let detail = "the name or the id of a worker is a string or a whole number";
                self.fault(ProblemCode::InvalidType, field(), detail, None);
                return None;
            };
            // A number is an id, as in jobs.yaml and in every command.
            if let Ok(id) = text.parse() {
                return Some(WorkerSelector::Id(WorkerId(id)));
            }
            let fits =
                (1..=WORKER_NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
            if !fits {
                let detail = format!("\"{}\" cannot be the name of a worker", excerpt(&text));
                let hint = format!("a name is 1 to {WORKER_NAME_BYTES_MAX} bytes in one line");
                self.fault(ProblemCode::UnknownWorkerName, field(), detail, Some(hint));
            }
            fits.then_some(WorkerSelector::Name(text))
        });
        selectors.collect()
    }

    /// Reads conditions: an object of labels with one or several values, a list of conditions, or one.
    pub(super) fn requires(&self, value: Value) -> Vec<LabelRule> {
        let Value::Object(labels) = value else {
            let items = list(value);
            self.check_count("requires", items.len());
            let rules = items.into_iter().enumerate().filter_map(|(index, item)| {
                let field = format!("requires[{index}]");
                let Some(text) = loose_text(&item) else {
                    self.fault(
                        ProblemCode::InvalidType,
                        field,
                        "a condition is a string",
                        Some(FORMS.into()),
                    );
                    return None;
                };
                self.rule(field, label_rule(&text))
            });
            return rules.collect();
        };
        self.check_count("requires", labels.len());
        let rules = labels.into_iter().filter_map(|(label, value)| {
            let field = format!("requires.{}", excerpt(&label));
            self.rule(field.clone(), check_label_name(&label))?;
            let values: Option<Vec<String>> = list(value).iter().map(loose_text).collect();
            let Some(values) = values.filter(|values| !values.is_empty()) else {
                let detail = "the value of a label is a string, a number, true or false, or a list of such";
                self.fault(ProblemCode::InvalidType, field, detail, None);
                return None;
            };
            if values.iter().any(|value| value.contains([',', '(', ')'])) {
                let detail = "the value of a label has no comma and no parenthesis";
                self.fault(ProblemCode::InvalidLabel, field, detail, Some(FORMS.into()));
                return None;
            }
            Some(LabelRule { label, condition: Condition::In(values) })
        });
        rules.collect()
    }

    fn rule<T>(&self, field: String, rule: Result<T, impl ToString>) -> Option<T> {
        rule.map_err(|fault| {
            self.fault(ProblemCode::InvalidLabel, field, fault.to_string(), Some(FORMS.into()))
        })
        .ok()
    }

    fn check_count(&self, field: &str, count: usize) {
        if count > ENTRIES_MAX {
            let detail = format!("{count} entries are too many (max {ENTRIES_MAX})");
            self.fault(ProblemCode::TooLong, field.into(), detail, None);
        }
    }
}

const FORMS: &str =
    "write {\"rack\": 7}, or a list such as [\"gpu\", \"!spot\", \"zone in (a, b)\", \"cores >= 8\"]";

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        one => vec![one],
    }
}

/// A text, or a number or a truth value as it is written.
fn loose_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
