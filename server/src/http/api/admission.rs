//! The policy of the server, asked before a job is made. `policy` has the rules.

use std::sync::Arc;

use scheduler::definition::Definition;
use scheduler::job::AttemptTimeout;

use crate::auth::role::Role;
use crate::catalogue::{Definitions, Entry};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::definition::find;

/// The definition with this name, for a job that somebody with this role makes of it. `timeout` is the job's own.
///
/// # Errors
/// As [`find`] and [`check_policy`].
pub(crate) fn find_to_run<'d>(
    definitions: &'d Definitions,
    name: &str,
    timeout: Option<AttemptTimeout>,
    role: Role,
) -> Result<&'d Arc<Entry>, Problem> {
    let entry = find(definitions, name)?;
    check_policy(definitions, &entry.definition, timeout, role)?;
    Ok(entry)
}

/// Refuses a job that the policy of the server forbids.
///
/// # Errors
/// `forbidden_by_policy`, with each rule that it breaks.
pub(crate) fn check_policy(
    definitions: &Definitions,
    definition: &Definition,
    timeout: Option<AttemptTimeout>,
    role: Role,
) -> Result<(), Problem> {
    let violations = definitions.policy().check_submission(definition, timeout, role);
    let faults = violations.iter().map(|violation| {
        let field = violation.key.to_owned();
        let hint = Some("an administrator of the server decides about its policy".to_owned());
        let code = ProblemCode::ForbiddenByPolicy;
        (code, shapes::Fault { code: code.name().into(), field, detail: violation.to_string(), hint })
    });
    let faults: Vec<_> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(Problem::faults(faults)) }
}
