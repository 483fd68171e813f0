//! Checks the parameters of a submission against its definition, and fills in the words and variables that follow from them.
//!
//! The rules themselves are part of the definition (`scheduler::params`). Nothing here reads a file or a request: `jobs_file` uses it for
//! schedules, the HTTP API for submissions. Values never reach a shell: a value is a whole word, or the whole value of a variable.

mod pattern;
mod result;
mod value;

use std::collections::HashMap;
use std::sync::Arc;

use scheduler::params::{
    Absence, JobParam, JobParams, Param, ParamDefaults, ParamKind, ParamValue, Params, Word,
};
use serde_json::Value;

pub(crate) use pattern::{Pattern, refusal_of_pattern};
pub(crate) use result::{params_of_predecessors, params_of_result};
pub(crate) use value::{allowed, from_json, to_json, to_text};

use crate::excerpt::excerpt;
use crate::near::nearest;

/// Unknown names that one answer tells.
const UNKNOWN_MAX: usize = 50;

/// A parameter that is missing, unknown or not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamFault {
    /// Name of the parameter, shortened.
    pub(crate) name: String,
    /// The fault, without the value of a secret parameter.
    pub(crate) detail: String,
    /// The allowed values, or the name that was probably meant.
    pub(crate) hint: String,
}

/// The parameters of one definition, with their patterns compiled.
#[derive(Debug)]
pub(crate) struct Checker<'d> {
    params: &'d Params,
    patterns: HashMap<&'d str, Pattern>,
}

impl<'d> Checker<'d> {
    /// Compiles the patterns. One that does not compile is left out: the jobs file was checked.
    pub(crate) fn new(params: &'d Params) -> Self {
        Self::for_some(params, |_| true)
    }

    /// Compiles the patterns of those parameters only that will be checked. That takes most of the time of a check.
    pub(crate) fn for_some(params: &'d Params, is_given: impl Fn(&str) -> bool) -> Self {
        let pattern = |param: &'d Param| match &param.kind {
            ParamKind::Text { pattern, .. } | ParamKind::List { pattern, .. } => {
                Some((param.name.as_str(), Pattern::of_checked(pattern.as_deref()?).ok()?))
            }
            _ => None,
        };
        let given = params.declared.iter().filter(|param| is_given(&param.name));
        Self { params, patterns: given.filter_map(pattern).collect() }
    }

    /// Checks the values of a submission.
    ///
    /// # Errors
    /// The faults: the first unknown names, then the parameters in the order of the definition.
    pub(crate) fn resolve(&self, given: &[(String, Value)]) -> Result<JobParams, Vec<ParamFault>> {
        let mut faults: Vec<_> = given
            .iter()
            .filter(|(name, _)| self.params.find(name).is_none())
            .take(UNKNOWN_MAX)
            .map(|(name, _)| self.unknown(name))
            .collect();
        let mut resolved = JobParams::default();
        let mut values: Vec<(&Param, ParamValue)> = Vec::with_capacity(self.params.declared.len());
        for param in &self.params.declared {
            let value = given.iter().find(|(name, _)| *name == param.name).map(|(_, value)| value);
            match (value, &param.absence) {
                (Some(value), _) => match self.check(param, value) {
                    Ok(value) => {
                        let given =
                            JobParam { name: param.name.clone(), value: value.clone(), secret: param.secret };
                        resolved.given.push(given);
                        values.push((param, value));
                    }
                    Err(fault) => faults.push(fault),
                },
                (None, Absence::Default(value)) => values.push((param, value.clone())),
                (None, Absence::Allowed) => {}
                (None, Absence::Refused) => faults.push(ParamFault {
                    name: param.name.clone(),
                    detail: format!("the parameter \"{}\" is missing", param.name),
                    hint: format!("give it {}", allowed(&param.kind)),
                }),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        self.fill_in(&mut resolved, &values);
        Ok(resolved)
    }

    /// Checks one value, for `default` in the jobs file and for submissions.
    ///
    /// # Errors
    /// The value is not allowed.
    pub(crate) fn check(&self, param: &Param, value: &Value) -> Result<ParamValue, ParamFault> {
        from_json(&param.kind, self.patterns.get(param.name.as_str()), value).map_err(|reason| {
            let shown = if param.secret { "the value".to_owned() } else { shown(value) };
            ParamFault {
                name: param.name.clone(),
                detail: format!("{shown} {reason}"),
                hint: format!("\"{}\" is {}", param.name, allowed(&param.kind)),
            }
        })
    }

    fn unknown(&self, name: &str) -> ParamFault {
        let known = || self.params.declared.iter().map(|param| param.name.as_str());
        let hint = match nearest(name, known()).first() {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if self.params.declared.is_empty() => "the definition has no parameters".to_owned(),
            None => format!("its parameters are {}", known().collect::<Vec<_>>().join(", ")),
        };
        let name = excerpt(name);
        let detail = format!("the definition has no parameter \"{name}\"");
        ParamFault { name, detail, hint }
    }

    fn fill_in(&self, resolved: &mut JobParams, values: &[(&Param, ParamValue)]) {
        let value_of =
            |name: &str| values.iter().find(|(param, _)| param.name == name).map(|(_, value)| value);
        for word in &self.params.command {
            match word {
                Word::Text(text) => resolved.args.push(text.clone()),
                Word::Param(name) => match value_of(name) {
                    Some(ParamValue::List(items)) => resolved.args.extend(items.iter().cloned()),
                    Some(value) => resolved.args.push(to_text(value)),
                    None => {}
                },
            }
        }
        let variables = self.params.environment.iter();
        resolved.environment = variables
            .filter_map(|(variable, param)| Some((variable.clone(), to_text(value_of(param)?))))
            .collect();
        resolved.variables =
            values.iter().map(|(param, value)| (variable_of(&param.name), to_text(value))).collect();
    }
}

/// The values of the parameters for a job that nobody gives values to.
pub(crate) fn defaults(params: &Params) -> ParamDefaults {
    match Checker::new(params).resolve(&[]) {
        Ok(resolved) if resolved.is_empty() => ParamDefaults::None,
        Ok(resolved) => ParamDefaults::All(Arc::new(resolved)),
        Err(_) => ParamDefaults::Missing,
    }
}

/// The variable that holds a parameter: `PARAM_SIZE` for `size`.
pub(crate) fn variable_of(name: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", name.to_ascii_uppercase())
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", excerpt(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => excerpt(&value.to_string()),
    }
}

const VARIABLE_PREFIX: &str = "PARAM_";

/// Shown instead of the value of a secret parameter.
pub(crate) const SECRET: &str = "***";

#[cfg(test)]
mod tests {
    use scheduler::params::Bounds;
    use serde_json::json;

    use super::*;

    fn param(name: &str, kind: ParamKind, absence: Absence) -> Param {
        Param { name: name.to_owned(), kind, absence, secret: name == "token", description: None }
    }

    fn params() -> Params {
        let text = || ParamKind::Text { pattern: Some("[a-z]+".to_owned()), length: Bounds::default() };
        let files = ParamKind::List { pattern: None, items: Vec::new(), length: Bounds::default() };
        let size = ParamKind::Integer(Bounds { min: Some(1), max: Some(4_000) });
        Params {
            declared: vec![
                param("size", size, Absence::Default(ParamValue::Integer(640))),
                param("name", text(), Absence::Refused),
                param("files", files, Absence::Allowed),
                param("token", text(), Absence::Allowed),
            ],
            command: vec![
                Word::Param("size".to_owned()),
                Word::Text("--".to_owned()),
                Word::Param("files".to_owned()),
            ],
            environment: vec![("TOKEN".to_owned(), "token".to_owned())],
        }
    }

    fn resolve(given: Value) -> Result<JobParams, Vec<ParamFault>> {
        let given: Vec<_> = given.as_object().unwrap().clone().into_iter().collect();
        Checker::new(&params()).resolve(&given)
    }

    #[test]
    fn values_become_words_and_variables() {
        let resolved = resolve(json!({"name": "x", "files": ["a b", "$(c)"]})).unwrap();
        assert_eq!(resolved.args, ["640", "--", "a b", "$(c)"]);
        assert_eq!(resolved.environment, []);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            resolved.variables,
            [pair("PARAM_SIZE", "640"), pair("PARAM_NAME", "x"), pair("PARAM_FILES", "a b,$(c)")]
        );
        assert_eq!(resolved.given.len(), 2, "a default is not stored");
        let resolved = resolve(json!({"name": "x", "size": "12", "token": "abc"})).unwrap();
        assert_eq!(resolved.args, ["12", "--"]);
        assert_eq!(resolved.environment, [pair("TOKEN", "abc")]);
        assert!(resolved.given.iter().any(|param| param.name == "token" && param.secret));
    }

    #[test]
    fn every_fault_is_listed_and_no_secret_shown() {
        let faults = resolve(json!({"sise": 1, "size": 0, "token": "SWORDFISH"})).unwrap_err();
        let names: Vec<_> = faults.iter().map(|fault| fault.name.as_str()).collect();
        assert_eq!(names, ["sise", "size", "name", "token"]);
        let text = format!("{faults:?}");
        assert!(text.contains("did you mean \\\"size\\\"?") && text.contains("1 to 4000"), "{text}");
        assert!(!text.contains("SWORDFISH"), "{text}");
    }
}
