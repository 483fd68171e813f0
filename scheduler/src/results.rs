//! The result of a job, passed on to the jobs of its hooks: as a variable, and as values of parameters that the hook's definition declares.
//! A job that comes after others (`dependencies`) takes such values as well. The store, which has those results, adds them to the job.
//!
//! A result is JSON, and the rules of parameters have regular expressions. The scheduler knows neither: the server passes it a function for
//! both. The variable needs no more than that line breaks stand between the values of JSON only, never within a text.

use alloc::string::String;
use alloc::vec::Vec;

use crate::params::{Field, JobParams, SubmissionRules};

/// Bytes of a result in a variable: as many as a variable of a submission may have. Docker reads variables from lines of at most 64 KiB.
pub const RESULT_VARIABLE_BYTES_MAX: usize = 32 << 10;

/// Takes parameters out of a result, by the rules of the definition that gets them. A decision depends on the answer, so it must follow from
/// the arguments alone, and it must not panic whatever the result is.
pub type ParamsOfResult = fn(&SubmissionRules, &str) -> ResultParams;

/// The parameters that a result gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultParams {
    /// All parameters of the job; none if the result names none that the definition declares.
    pub params: Option<JobParams>,
    /// A sentence for each value that is left out, without the values of secret parameters.
    pub left_out: Vec<String>,
}

/// Takes nothing, for tests and models without parameters.
#[must_use]
pub fn ignore_result(_: &SubmissionRules, _: &str) -> ResultParams {
    ResultParams::default()
}

/// A result gives parameters to jobs of a definition with these rules.
pub(crate) fn takes_params(rules: &SubmissionRules) -> bool {
    let is_allowed = rules.allow.as_ref().is_none_or(|allowed| allowed.contains(&Field::Params));
    is_allowed && !rules.params.declared.is_empty()
}

/// The result in one line; none if that is too long for a variable.
pub(crate) fn in_one_line(result: &str) -> Option<String> {
    (result.len() <= RESULT_VARIABLE_BYTES_MAX).then(|| result.replace(['\n', '\r', '\t', '\0'], " "))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::params::{Absence, Param, ParamKind, Params};

    #[test]
    fn a_result_becomes_one_line_or_is_left_out() {
        assert_eq!(in_one_line("{\n\t\"a\": \"x\\ny\"\r\n}").unwrap(), "{  \"a\": \"x\\ny\"  }");
        assert!(in_one_line(&"1".repeat(RESULT_VARIABLE_BYTES_MAX)).is_some());
        assert_eq!(in_one_line(&"1".repeat(RESULT_VARIABLE_BYTES_MAX + 1)), None);
    }

    #[test]
    fn a_definition_that_allows_no_params_takes_none_from_results() {
        let param = Param {
            name: "rows".into(),
            kind: ParamKind::Boolean,
            absence: Absence::Allowed,
            secret: false,
            description: None,
        };
        let params = Params { declared: vec![param], ..Params::default() };
        let rules = |allow| SubmissionRules { params: params.clone(), allow, ..SubmissionRules::default() };
        assert!(takes_params(&rules(None)) && takes_params(&rules(Some(vec![Field::Params]))));
        assert!(!takes_params(&rules(Some(vec![Field::Input]))));
        assert!(!takes_params(&SubmissionRules::default()), "nothing is declared");
    }
}
