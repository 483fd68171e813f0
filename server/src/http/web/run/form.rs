//! The form that runs a definition: a field for each declared parameter, and one for each other part of a submission that it allows.
//!
//! An empty field is not sent, so that defaults apply. A field that was filled with the value of an earlier job and has been emptied
//! leaves that value out. Values of secrets are never filled in, and stay.

use std::collections::BTreeMap;

use scheduler::definition::Definition;
use scheduler::job::AttemptTimeout;
use scheduler::params::{Field, ParamValue};
use serde_json::Value;

use super::field::{Control, FormField, PARAM, in_lines};
use crate::catalogue::Entry;
use crate::config::jobs_file::quantity::DurationText;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::presenter::{asked_labels, asked_workers};
use crate::http::present::shapes::Fault;
use crate::http::web::actions::{Fields, key_of, new_key};
use crate::params;
use crate::store::JobRecord;

/// The form, as a template writes it.
#[derive(Debug)]
pub(crate) struct RunForm {
    /// The address that takes it, below the base path.
    pub(crate) action: String,
    /// A field for each parameter.
    pub(crate) params: Vec<FormField>,
    /// Fields for arguments, variables, input, labels, priority and times.
    pub(crate) others: Vec<FormField>,
    /// Faults that belong to no field.
    pub(crate) faults: Vec<String>,
    /// The idempotency key of the job, so that a second click makes no second job.
    pub(crate) key: String,
}

impl RunForm {
    /// The empty form of a definition.
    pub(crate) fn of_definition(entry: &Entry) -> Self {
        let name = &entry.definition.name;
        let mut form = Self::with_fields(format!("/definitions/{name}/run"), Some(entry));
        form.show_defaults(&entry.definition);
        form
    }

    /// The form that runs an ended job again, filled with what it had. `entry` is its definition as it is now, if it is still there.
    pub(crate) fn of_job(record: &JobRecord, entry: Option<&Entry>) -> Self {
        let row = &record.row;
        let mut form = Self::with_fields(format!("/jobs/{}/again", row.job), entry);
        if let Some(entry) = entry {
            form.show_defaults(&entry.definition);
        }
        for param in &record.params {
            let name = format!("{PARAM}{}", param.name);
            let Some(field) = form.params.iter_mut().find(|field| field.name == name) else { continue };
            if param.secret || matches!(field.control, Control::Secret) {
                // An empty field keeps what the job had.
                (field.is_required, field.placeholder) = (false, KEPT.to_owned());
            } else if can_be_typed(&field.control, &param.value) {
                field.value = in_lines(&param.value);
                // An empty value that the job had is kept.
                field.is_required &= !field.value.is_empty();
            } else {
                (field.is_required, field.placeholder) = (false, KEPT.to_owned());
            }
        }
        let labels: Vec<String> = row.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let args = &record.overrides.args;
        match args.iter().all(|arg| is_line(arg)) {
            true => form.fill("args", args.join("\n")),
            false => {
                form.set_placeholder(
                    "args",
                    format!("{} kept, as some have line breaks or are empty", args.len()),
                );
            }
        }
        form.fill("labels", labels.join("\n"));
        form.fill("priority", row.priority.to_string());
        form.fill("workers", asked_workers(row.narrowing.as_deref()).join("\n"));
        form.fill("requires", asked_labels(row.narrowing.as_deref()).join("\n"));
        form.fill("timeout", row.timeout.map(timeout_text).unwrap_or_default());
        if !record.overrides.environment.is_empty() {
            let names: Vec<&str> =
                record.overrides.environment.iter().map(|(name, _)| name.as_str()).collect();
            let names = names.join(", ");
            form.set_hint("environment", format!("{ENVIRONMENT} Values of {names} are kept and not shown."));
        }
        match &record.overrides.input {
            Some(input) if input.len() <= INPUT_SHOWN_MAX => form.fill("input", pretty(input)),
            Some(input) => form.set_placeholder("input", format!("{} bytes of input are kept", input.len())),
            None => {}
        }
        form
    }

    pub(super) fn with_fields(action: String, entry: Option<&Entry>) -> Self {
        let allow = entry.and_then(|entry| entry.definition.submission.allow.as_ref());
        let is_allowed = |field: Field| allow.is_none_or(|allow| allow.contains(&field));
        let declared = entry.filter(|_| is_allowed(Field::Params)).map(Entry::params).unwrap_or_default();
        let field = |(of, name, label, hint, control): (Field, &str, &str, &str, Control)| {
            let (name, label, hint) = (name.to_owned(), label.to_owned(), hint.to_owned());
            is_allowed(of).then(|| FormField { name, label, control, hint, ..FormField::default() })
        };
        let numbers = Control::Number { min: "-100".to_owned(), max: "100".to_owned(), step: "1".to_owned() };
        let others = [
            (Field::Args, "args", "Arguments", "One a line.", Control::Lines(3)),
            (Field::Environment, "environment", "Variables", ENVIRONMENT, Control::Lines(3)),
            (Field::Input, "input", "Input", "JSON, which the job reads from a file.", Control::Lines(3)),
            (Field::Labels, "labels", "Labels", "NAME=value, one a line.", Control::Lines(2)),
            (Field::Priority, "priority", "Priority", "−100 to 100; higher goes first.", numbers),
            (Field::Timeout, "timeout", "Timeout", "Such as 10m; none: without a timeout.", Control::Line),
            (Field::Workers, "workers", "Workers", WORKERS, Control::Lines(2)),
            (Field::Requires, "requires", "Labels of the worker", REQUIRES, Control::Lines(2)),
            (Field::RunAt, "delay", "Delay", "Such as 5m: it starts no sooner.", Control::Line),
        ];
        Self {
            action,
            params: declared.into_iter().map(FormField::of_param).collect(),
            others: others.into_iter().filter_map(field).collect(),
            faults: Vec::new(),
            key: new_key(),
        }
    }

    /// Shows the values that apply while fields beside the parameters are empty.
    fn show_defaults(&mut self, definition: &Definition) {
        self.set_placeholder("priority", definition.priority.to_string());
        if let Some(timeout) = definition.timeout {
            self.set_placeholder("timeout", DurationText(timeout).to_string());
        }
    }

    fn field(&mut self, name: &str) -> Option<&mut FormField> {
        self.params.iter_mut().chain(&mut self.others).find(|field| field.name == name)
    }

    fn fill(&mut self, name: &str, value: String) {
        if let Some(field) = self.field(name) {
            field.value = value;
        }
    }

    fn set_placeholder(&mut self, name: &str, text: String) {
        if let Some(field) = self.field(name) {
            field.placeholder = text;
        }
    }

    fn set_hint(&mut self, name: &str, text: String) {
        if let Some(field) = self.field(name) {
            field.hint = text;
        }
    }

    /// Fills in what was typed, and puts each fault beside its field. Secrets are typed again.
    pub(crate) fn refuse(&mut self, typed: &Fields, problem: &Problem) {
        match problem.code() {
            // The key has made a job, so the form gets another one.
            ProblemCode::IdempotencyMismatch => self.faults.push(SENT_BEFORE.to_owned()),
            ProblemCode::InvalidIdempotencyKey => {}
            // The job may have been made, and only the answer been lost.
            _ => self.key = key_of(typed).unwrap_or(&self.key).to_owned(),
        }
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in typed {
            values.entry(name).or_default().push(value);
        }
        for field in self.params.iter_mut().chain(&mut self.others) {
            let value = values.get(field.name.as_str()).map(|values| values.join("\n")).unwrap_or_default();
            match field.control {
                Control::Secret if value.is_empty() => {}
                Control::Secret => field.fault = "Type it again: secrets are not sent back.".to_owned(),
                _ => field.value = value,
            }
        }
        let is_told = |fault: &Fault| *fault.code == *ProblemCode::IdempotencyMismatch.name();
        for fault in problem.all_faults().into_iter().filter(|fault| !is_told(fault)) {
            let text = match fault.hint {
                Some(hint) => format!("{}; {hint}", fault.detail),
                None => fault.detail,
            };
            match self.field(owner(&fault.field)) {
                Some(field) => field.fault = text,
                None if fault.field.is_empty() => self.faults.push(text),
                None => self.faults.push(format!("{}: {text}", fault.field)),
            }
        }
    }
}

/// True if the form is shown again with this problem, because other values may be accepted, or the same ones later.
pub(crate) fn can_be_mended(problem: &Problem) -> bool {
    matches!(problem.code().status().as_u16(), 400 | 409 | 422 | 429 | 503)
}

/// The field of the form for a field of the submission: `environment` for `environment.PATH`.
fn owner(field: &str) -> &str {
    match field {
        "run_at" => "delay",
        _ if field.starts_with(PARAM) => field,
        _ => field.split(['.', '[']).next().unwrap_or_default(),
    }
}

/// The control can show the value, and a person type it.
fn can_be_typed(control: &Control, value: &ParamValue) -> bool {
    match (control, value) {
        (_, ParamValue::List(items)) => items.iter().all(|item| is_line(item)),
        (Control::Lines(_), _) => true,
        (_, value) => !params::to_text(value).contains(['\n', '\r']),
    }
}

/// A line of a text area stands for this text.
fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(['\n', '\r'])
}

fn timeout_text(timeout: AttemptTimeout) -> String {
    match timeout {
        AttemptTimeout::After(after) => DurationText(after).to_string(),
        AttemptTimeout::Unlimited => "none".to_owned(),
    }
}

fn pretty(input: &str) -> String {
    let parsed = serde_json::from_str::<Value>(input).ok();
    parsed.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| input.to_owned())
}

const ENVIRONMENT: &str = "NAME=value, one a line.";
const WORKERS: &str = "Names or ids, one a line: only these may run it, of those that the definition allows.";
const REQUIRES: &str = "Conditions such as rack=7, gpu or cores >= 8, one a line.";
const SENT_BEFORE: &str = "This form was sent before, with other values, and has made a job. Press the button again to make another one.";
const KEPT: &str = "kept as it was";

/// A longer input is not written into the page, which stays below 100 kB.
const INPUT_SHOWN_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn a_refused_form_keeps_its_key_unless_the_key_has_made_a_job() {
        let mut refused = form(&[]);
        let first = refused.key.clone();
        assert_ne!(first, form(&[]).key, "each rendering has its own");
        let typed = fields(&[("idempotency_key", "typed")]);
        refused.refuse(&typed, &Problem::new(ProblemCode::Busy, "later"));
        assert_eq!((refused.key.as_str(), refused.faults.as_slice()), ("typed", &["later".to_owned()][..]));
        let mut sent = form(&[]);
        sent.refuse(&typed, &Problem::new(ProblemCode::IdempotencyMismatch, "another request"));
        assert_ne!(sent.key, "typed");
        assert_eq!(sent.faults, [SENT_BEFORE]);
    }

    #[test]
    fn a_refusal_stands_beside_its_field_and_shows_no_secret() {
        let secret = Param { secret: true, ..param("token", ParamKind::Boolean) };
        let mut form = form(&[secret, param("size", ParamKind::Duration(Bounds::<Duration>::default()))]);
        let typed = fields(&[("params.token", "swordfish"), ("params.size", "x"), ("labels", "a b=1")]);
        form.refuse(
            &typed,
            &Problem::new(ProblemCode::InvalidLabel, "no").field("labels.a b").hint("mend it"),
        );
        form.refuse(&typed, &Problem::new(ProblemCode::InvalidParam, "bad").field("params.size"));
        form.refuse(&typed, &Problem::new(ProblemCode::InvalidParam, "unknown").field("params.old"));
        let of = |name: &str| form.params.iter().chain(&form.others).find(|it| it.name == name).unwrap();
        assert_eq!((of("params.size").value.as_str(), of("params.size").fault.as_str()), ("x", "bad"));
        assert_eq!((of("labels").value.as_str(), of("labels").fault.as_str()), ("a b=1", "no; mend it"));
        assert!(of("params.token").value.is_empty() && of("params.token").fault.contains("again"));
        assert_eq!(form.faults, ["params.old: unknown"]);
    }
}
