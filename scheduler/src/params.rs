//! Parameters: named, typed values that a submission gives to a job, and the rules that a definition sets for submissions.
//!
//! No decision depends on them. The server checks values against these rules and fills in the words and
//! variables; the scheduler only passes the result through to the store.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::container::Overrides;
use serde::{Deserialize, Serialize};

/// Rules for the submissions of a definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubmissionRules {
    /// Its parameters.
    pub params: Params,
    /// The fields that a submission may carry; any if absent.
    pub allow: Option<Vec<Field>>,
    /// The values of the parameters for a job that nobody submits, such as that of a hook.
    pub defaults: ParamDefaults,
}

impl SubmissionRules {
    /// Submissions may carry any field, and there are no parameters.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.allow.is_none() && self.params.declared.is_empty()
    }
}

/// The parameters of a job that nobody gives values to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ParamDefaults {
    /// The definition has none.
    #[default]
    None,
    /// Each has a default, or may be absent; this follows from them.
    All(Arc<JobParams>),
    /// One of them must be given, so a hook cannot make such a job.
    Missing,
}

/// A field of a submission that `allow` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// Jobs that it comes after.
    After,
    /// Words after the command.
    Args,
    /// Variables over those of the definition.
    Environment,
    /// The input file.
    Input,
    /// Labels for people and filters.
    Labels,
    /// Values of parameters.
    Params,
    /// Priority of the job.
    Priority,
    /// Conditions on the labels of its worker.
    Requires,
    /// The start: `run_at` and `delay`.
    RunAt,
    /// Timeout of an attempt.
    Timeout,
    /// The unique key, instead of the definition's.
    UniqueKey,
    /// The workers that may run it.
    Workers,
}

impl Field {
    /// All fields, in the order of their names.
    pub const ALL: [Self; 12] = [
        Self::After,
        Self::Args,
        Self::Environment,
        Self::Input,
        Self::Labels,
        Self::Params,
        Self::Priority,
        Self::Requires,
        Self::RunAt,
        Self::Timeout,
        Self::UniqueKey,
        Self::Workers,
    ];

    /// Name in `allow` and in the body of a submission.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::After => "after",
            Self::Args => "args",
            Self::Environment => "environment",
            Self::Input => "input",
            Self::Labels => "labels",
            Self::Params => "params",
            Self::Priority => "priority",
            Self::Requires => "requires",
            Self::RunAt => "run_at",
            Self::Timeout => "timeout",
            Self::UniqueKey => "unique_key",
            Self::Workers => "workers",
        }
    }
}

/// The parameters of a definition, and the places that use them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// The parameters, sorted by name; their names are unique.
    pub declared: Vec<Param>,
    /// The words of the command from the first one that is a parameter. Those before it are in the container's spec.
    pub command: Vec<Word>,
    /// Variables whose value is a parameter: the variable's name and the parameter's.
    pub environment: Vec<(String, String)>,
}

impl Params {
    /// The parameter with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Param> {
        self.declared.iter().find(|param| param.name == name)
    }
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The word itself.
    Text(String),
    /// The value of this parameter: no word if it is absent, one word per item of a list.
    Param(String),
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Lower-case letters, digits and `_`.
    pub name: String,
    /// Its type, with the limits of that type.
    pub kind: ParamKind,
    /// The consequence of a submission without it.
    pub absence: Absence,
    /// Its value is not shown.
    pub secret: bool,
    /// For people.
    pub description: Option<String>,
}

/// The consequence of leaving a parameter out.
#[derive(Clone, Debug, PartialEq)]
pub enum Absence {
    /// The submission is refused.
    Refused,
    /// The job gets no such parameter.
    Allowed,
    /// The job gets this value.
    Default(ParamValue),
}

/// Type and limits of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamKind {
    /// Text in one line.
    Text {
        /// A regular expression that the whole value matches.
        pattern: Option<String>,
        /// Limits of the number of characters.
        length: Bounds<u64>,
    },
    /// A whole number.
    Integer(Bounds<i64>),
    /// A number with decimals.
    Number(Bounds<f64>),
    /// True or false.
    Boolean,
    /// A duration.
    Duration(Bounds<Duration>),
    /// One of these words.
    Enum(Vec<String>),
    /// A list of texts without commas.
    List {
        /// A regular expression that each whole item matches.
        pattern: Option<String>,
        /// The allowed items; any if empty.
        items: Vec<String>,
        /// Limits of the number of items.
        length: Bounds<u64>,
    },
}

impl ParamKind {
    /// Name in `type`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Text { .. } => "string",
            Self::Integer(_) => "integer",
            Self::Number(_) => "number",
            Self::Boolean => "boolean",
            Self::Duration(_) => "duration",
            Self::Enum(_) => "enum",
            Self::List { .. } => "list",
        }
    }
}

/// Limits, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The lowest value.
    pub min: Option<T>,
    /// The highest value.
    pub max: Option<T>,
}

impl<T: PartialOrd + Copy> Bounds<T> {
    /// The value lies within the limits.
    pub fn contains(&self, value: T) -> bool {
        self.min.is_none_or(|min| min <= value) && self.max.is_none_or(|max| value <= max)
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamValue {
    /// Text, a word of an enum, or a duration as it was written.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number with decimals, as text.
    Number(String),
    /// True or false.
    Boolean(bool),
    /// A list.
    List(Vec<String>),
}

/// A parameter that a submission gave to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobParam {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: ParamValue,
    /// The value is not shown.
    pub secret: bool,
}

/// The parameters of a job and what follows from them and its definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobParams {
    /// The values that the submission gave; defaults are not among them.
    pub given: Vec<JobParam>,
    /// Variables from parameters, below those of the submission.
    pub environment: Vec<(String, String)>,
    /// The variables `PARAM_*`, above those of the submission.
    pub variables: Vec<(String, String)>,
    /// Words after the container's command, before those of the submission.
    pub args: Vec<String>,
}

impl JobParams {
    /// The job has no parameters, and nothing follows from those of its definition.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.given.is_empty()
            && self.environment.is_empty()
            && self.variables.is_empty()
            && self.args.is_empty()
    }

    /// The overrides that a worker gets: the submission's, with everything that follows from the parameters.
    #[must_use]
    pub fn applied_to(&self, body: &Overrides) -> Overrides {
        let mut environment: Vec<(String, String)> = Vec::new();
        for (name, value) in self.environment.iter().chain(&body.environment).chain(&self.variables) {
            match environment.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.clone_from(value),
                None => environment.push((name.clone(), value.clone())),
            }
        }
        let args = self.args.iter().chain(&body.args).cloned().collect();
        Overrides { environment, args, input: body.input.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn variables_of_parameters_win_and_other_variables_give_way() {
        let params = JobParams {
            environment: alloc::vec![pair("SIZE", "1"), pair("MODE", "fast")],
            variables: alloc::vec![pair("PARAM_SIZE", "1")],
            args: alloc::vec!["a".into()],
            ..JobParams::default()
        };
        let body = Overrides {
            environment: alloc::vec![pair("SIZE", "2"), pair("PARAM_SIZE", "3")],
            args: alloc::vec!["b".into()],
            input: Some("{}".into()),
        };
        let sent = params.applied_to(&body);
        assert_eq!(sent.environment, [pair("SIZE", "2"), pair("MODE", "fast"), pair("PARAM_SIZE", "1")]);
        assert_eq!(sent.args, ["a", "b"]);
        assert_eq!(sent.input, body.input);
    }

    #[test]
    fn bounds_include_both_ends() {
        let bounds = Bounds { min: Some(1), max: Some(3) };
        assert!(bounds.contains(1) && bounds.contains(3) && !bounds.contains(0) && !bounds.contains(4));
        assert!(Bounds::<f64>::default().contains(-1e300));
    }
}
