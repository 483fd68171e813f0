//! Reports of ends, and results: `size:large` stands for JSON with one member.

use std::time::Duration;

use super::World;
use super::protocol::Token;
use super::protocol::report::{Failed, Outcome, Report, Succeeded, Timing};
use super::scheduler::params::{Absence, JobParams, Param, ParamKind, Params, SubmissionRules};
use super::scheduler::results::ResultParams;

impl World {
    pub fn success(&mut self, name: &str, token: Token, result: Option<&str>) {
        let timing = Timing { ended_ago: Duration::ZERO, ran: Some(Duration::from_secs(1)) };
        let (output, note, usage) = Default::default();
        let result = result.map(str::to_owned);
        let list = self.numbered(name, Succeeded { token, timing, output, result, note, usage });
        self.report(name, Report::Success(list));
    }

    pub fn failure(
        &mut self,
        name: &str,
        token: Token,
        outcome: Outcome,
        exit_code: Option<i32>,
        ended_ago: Duration,
    ) {
        let timing = Timing { ended_ago, ran: exit_code.map(|_| Duration::from_secs(1)) };
        let (message, output, usage) = Default::default();
        let failed = Failed { token, outcome, exit_code, message, timing, output, usage };
        let list = self.numbered(name, failed);
        self.report(name, Report::Failure(list));
    }
}

/// Rules of a definition with the parameter `size`.
pub fn takes_size() -> SubmissionRules {
    let size = Param {
        name: "size".into(),
        kind: ParamKind::Enum(vec!["large".into(), "small".into()]),
        absence: Absence::Allowed,
        secret: false,
        description: None,
    };
    let params = Params { declared: vec![size], ..Params::default() };
    SubmissionRules { params, ..SubmissionRules::default() }
}

/// Stands for the server's reading of results: sizes are `large` and `small`.
pub fn params_of_result(rules: &SubmissionRules, result: &str) -> ResultParams {
    let Some((name, value)) = result.split_once(':') else { return ResultParams::default() };
    if rules.params.find(name).is_none() {
        return ResultParams::default();
    }
    if !["large", "small"].contains(&value) {
        return ResultParams { params: None, left_out: vec![format!("{name}: {value}")] };
    }
    let variables = vec![(format!("PARAM_{}", name.to_uppercase()), value.to_owned())];
    ResultParams { params: Some(JobParams { variables, ..JobParams::default() }), left_out: Vec::new() }
}
