//! Parameters out of the result of a job, for the job of a hook (`scheduler::results`).
//!
//! Members of the result are compared with the parameters that the hook's definition declares. Nothing here is an error: a value that does
//! not fit is left out with a reason, and its parameter is as if nobody had given it.

use protocol::container::Overrides;
use protocol::wire::{BODY_BYTES_MAX, body_fits_with};
use scheduler::params::SubmissionRules;
use scheduler::results::ResultParams;
use serde_json::{Map, Value};

use super::Checker;

/// Reads the parameters. It follows from its arguments alone, because decisions depend on it.
pub(crate) fn params_of_result(rules: &SubmissionRules, result: &str) -> ResultParams {
    // A result that is no object names no parameters.
    let Ok(members) = serde_json::from_str::<Map<String, Value>>(result) else {
        return ResultParams::default();
    };
    let named = |name: &str| members.get(name).filter(|value| !value.is_null());
    if !rules.params.declared.iter().any(|param| named(&param.name).is_some()) {
        return ResultParams::default();
    }
    // This runs within a step of the scheduler.
    let checker = Checker::for_some(&rules.params, |name| named(name).is_some());
    let (mut given, mut left_out) = (Vec::new(), Vec::new());
    for param in &rules.params.declared {
        let Some(value) = named(&param.name) else { continue };
        match checker.check(param, value) {
            Ok(_) => given.push((param.name.clone(), value.clone())),
            Err(fault) => left_out.push(format!("parameter {}: {}", param.name, fault.detail)),
        }
    }
    if given.is_empty() {
        return ResultParams { params: None, left_out };
    }
    // Without a required parameter the hook is left out, as it would be without a result.
    let params = checker.resolve(&given).ok().filter(|params| {
        let sent = params.applied_to(&Overrides::default());
        let fits = body_fits_with(&sent, FACTS, BODY_BYTES_MAX - PARAMS_BYTES_MAX).is_ok();
        if !fits {
            left_out.push("its parameters: they are too long together".to_owned());
        }
        fits
    });
    ResultParams { params, left_out }
}

/// Variables that the job gets beside its parameters, at most: the facts about its parent, and its trace.
const FACTS: usize = 32;
/// Bytes of all words and variables from parameters. A job may have 16 hooks that all take the same value, and a command may name it often, so
/// less than a submission may have; with the facts they fit into a message to the worker.
const PARAMS_BYTES_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use scheduler::params::{Absence, Bounds, Param, ParamKind, ParamValue, Params, Word};
    use serde_json::json;

    use super::*;

    fn rules() -> SubmissionRules {
        let param = |name: &str, kind, absence| Param {
            name: name.to_owned(),
            kind,
            absence,
            secret: name == "token",
            description: None,
        };
        let text = |pattern: Option<&str>| ParamKind::Text {
            pattern: pattern.map(str::to_owned),
            length: Bounds::default(),
        };
        let rows = ParamKind::Integer(Bounds { min: Some(0), max: None });
        let params = Params {
            declared: vec![
                param("rows", rows, Absence::Default(ParamValue::Integer(0))),
                param("file", text(Some("[a-z]+")), Absence::Allowed),
                param("token", text(Some("[a-z]+")), Absence::Allowed),
                param("long", text(None), Absence::Allowed),
            ],
            command: vec![Word::Param("rows".to_owned()); 2]
                .into_iter()
                .chain(vec![Word::Param("long".to_owned()); 20])
                .collect(),
            environment: Vec::new(),
        };
        SubmissionRules { params, ..SubmissionRules::default() }
    }

    fn read(result: &Value) -> ResultParams {
        params_of_result(&rules(), &result.to_string())
    }

    #[test]
    fn members_with_the_names_of_parameters_become_their_values() {
        let taken = read(&json!({"rows": 3, "file": "abc", "other": [1], "token": null}));
        assert_eq!(taken.left_out, [""; 0]);
        let params = taken.params.unwrap();
        assert_eq!(params.args, ["3", "3"]);
        assert_eq!(params.given.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["rows", "file"]);
    }

    #[test]
    fn a_value_that_does_not_fit_is_left_out_and_no_secret_is_shown() {
        let taken = read(&json!({"rows": "many", "file": "abc", "token": "SWORDFISH"}));
        assert_eq!(
            taken.left_out,
            [
                "parameter rows: \"many\" is not a whole number",
                "parameter token: the value does not match the pattern"
            ]
        );
        assert_eq!(taken.params.unwrap().args, ["0", "0"], "the default holds");
        let none = read(&json!({"rows": -1}));
        assert_eq!((none.params, none.left_out.len()), (None, 1));
    }

    #[test]
    fn parameters_that_are_too_long_together_are_left_out() {
        assert!(read(&json!({"rows": 1, "long": "x".repeat(6_000)})).params.is_some());
        let taken = read(&json!({"rows": 1, "long": "x".repeat(7_000)}));
        assert_eq!(taken.params, None, "twenty words and a variable of 7,000 bytes are too much");
        assert_eq!(taken.left_out, ["its parameters: they are too long together"]);
    }

    #[test]
    fn other_results_give_nothing() {
        for result in ["[1]", "\"rows\"", "{}", "{\"other\": 1}", "{\"rows\": null}", "no JSON"] {
            assert_eq!(params_of_result(&rules(), result), ResultParams::default(), "{result}");
        }
    }
}
