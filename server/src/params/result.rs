//! Parameters out of the results of jobs (`scheduler::results`): for the job of a hook, and for a job that comes after others.
//!
//! Members of a result are compared with the parameters that the definition of the job declares. Nothing here is an error: a value that does
//! not fit is left out with a reason, and its parameter is as if nobody had given it.

use std::collections::BTreeMap;

use protocol::container::Overrides;
use protocol::wire::{OVERRIDES_BYTES_MAX, overrides_fit_with};
use scheduler::details::JobDetails;
use scheduler::params::{JobParam, JobParams, SubmissionRules};
use scheduler::results::{RESULT_VARIABLE_BYTES_MAX, ResultParams};
use serde_json::{Map, Value};

use super::{Checker, to_json};

/// Reads the parameters of a hook's job. They follow from the arguments alone, because decisions depend on them.
pub(crate) fn params_of_result(rules: &SubmissionRules, result: &str) -> ResultParams {
    take(rules, &[], &[result], |params| {
        let sent = params.applied_to(&Overrides::default());
        overrides_fit_with(&sent, FACTS, OVERRIDES_BYTES_MAX - PARAMS_BYTES_MAX).is_ok()
    })
}

/// Reads the parameters of a job that came after others: those that its submission gave, and of the rest those that the results have. If
/// several results have one, that of the last result counts. Absent if the results give nothing.
pub(crate) fn params_of_predecessors(
    rules: &SubmissionRules,
    details: &JobDetails,
    results: &[String],
) -> ResultParams {
    take(rules, &details.params.given, results, |params| {
        let sent = params.applied_to(&details.overrides);
        overrides_fit_with(&sent, FACTS, FACTS_BYTES + RESULT_VARIABLE_BYTES_MAX).is_ok()
    })
}

/// The parameters that were given and those of the results, if they fit together.
fn take(
    rules: &SubmissionRules,
    given: &[JobParam],
    results: &[impl AsRef<str>],
    fits: impl Fn(&JobParams) -> bool,
) -> ResultParams {
    let is_open = |name: &str| given.iter().all(|param| param.name != name);
    let mut found: BTreeMap<&str, Value> = BTreeMap::new();
    // A result that is no object names no parameters.
    for mut members in
        results.iter().filter_map(|it| serde_json::from_str::<Map<String, Value>>(it.as_ref()).ok())
    {
        for param in rules.params.declared.iter().filter(|param| is_open(&param.name)) {
            let value = members.remove(&param.name).filter(|value| !value.is_null());
            found.extend(value.map(|value| (param.name.as_str(), value)));
        }
    }
    if found.is_empty() {
        return ResultParams::default();
    }
    // Patterns of these only, since this runs within a step of the scheduler: what was given was checked with the submission.
    let checker = Checker::for_some(&rules.params, |name| found.contains_key(name));
    let (mut taken, mut left_out) = (Vec::new(), Vec::new());
    for param in &rules.params.declared {
        let Some(value) = found.remove(param.name.as_str()) else { continue };
        match checker.check(param, &value) {
            Ok(_) => taken.push((param.name.clone(), value)),
            Err(fault) => left_out.push(format!("parameter {}: {}", param.name, fault.detail)),
        }
    }
    if taken.is_empty() {
        return ResultParams { params: None, left_out };
    }
    taken.extend(given.iter().map(|param| (param.name.clone(), to_json(&param.value))));
    // Without a required parameter a hook is left out, as it would be without a result.
    let params = checker.resolve(&taken).ok().filter(|params| {
        let fits = fits(params);
        if !fits {
            left_out.push("its parameters: they are too long together".to_owned());
        }
        fits
    });
    ResultParams { params, left_out }
}

/// Variables that the job gets beside its parameters, at most: the facts about its parent or its predecessors, its position, and its trace.
const FACTS: usize = 32;
/// Bytes of these variables, without the one that has results.
const FACTS_BYTES: usize = 4 << 10;
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

    fn after(given: Vec<JobParam>, results: &[Value]) -> ResultParams {
        let results: Vec<String> = results.iter().map(Value::to_string).collect();
        let params = JobParams { given, ..JobParams::default() };
        params_of_predecessors(&rules(), &JobDetails { params, ..JobDetails::default() }, &results)
    }

    #[test]
    fn a_submission_counts_more_than_results_and_the_last_result_more_than_earlier_ones() {
        let file = JobParam { name: "file".into(), value: ParamValue::Text("own".into()), secret: false };
        let results = [json!({"rows": 1, "long": "a"}), json!([1]), json!({"rows": 2, "file": "theirs"})];
        let params = after(vec![file.clone()], &results).params.unwrap();
        let given = |name: &str| params.given.iter().find(|param| param.name == name).map(|it| &it.value);
        assert_eq!(given("rows"), Some(&ParamValue::Integer(2)));
        assert_eq!(given("long"), Some(&ParamValue::Text("a".into())));
        assert_eq!(given("file"), Some(&file.value));
        assert_eq!(after(vec![file], &[json!({"file": "theirs"})]), ResultParams::default());
    }

    #[test]
    fn a_job_after_others_keeps_its_own_where_the_results_do_not_fit() {
        let input = Some("x".repeat(OVERRIDES_BYTES_MAX - RESULT_VARIABLE_BYTES_MAX - FACTS_BYTES - 100));
        let overrides = Overrides { input, ..Overrides::default() };
        let details = JobDetails { overrides, ..JobDetails::default() };
        let taken = |result: Value| params_of_predecessors(&rules(), &details, &[result.to_string()]);
        assert!(taken(json!({"rows": 7})).params.is_some());
        let long = taken(json!({"long": "x".repeat(100)}));
        assert_eq!(long.left_out, ["its parameters: they are too long together"]);
    }

    #[test]
    fn other_results_give_nothing() {
        for result in ["[1]", "\"rows\"", "{}", "{\"other\": 1}", "{\"rows\": null}", "no JSON"] {
            assert_eq!(params_of_result(&rules(), result), ResultParams::default(), "{result}");
        }
    }
}
