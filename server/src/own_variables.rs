//! The variables by which a program knows its job, beside those that its worker sets (`LONGSHORE_JOB`, `LONGSHORE_ATTEMPT`).
//!
//! They travel with the environment of the attempt, so workers of every version pass them on.

use protocol::container::Overrides;
use protocol::wire::overrides_fit_with;
use scheduler::step::Grant;

/// Adds the variables of an attempt on this worker.
pub(crate) fn with_own_variables(body: Option<Overrides>, grant: &Grant, worker: &str) -> Option<Overrides> {
    let values = [&*grant.name, &*grant.number.to_string(), worker].map(str::to_owned);
    let variables = NAMES.map(str::to_owned).into_iter().zip(values);
    let mut body = body.unwrap_or_default();
    body.environment.retain(|(name, _)| !NAMES.contains(&name.as_str()));
    // A job that an earlier version has accepted may fill the whole frame. It runs without them.
    if overrides_fit_with(&body, OWN_VARIABLES, OWN_BYTES).is_ok() {
        body.environment.extend(variables);
    }
    (!body.is_empty()).then_some(body)
}

const NAMES: [&str; OWN_VARIABLES] = ["LONGSHORE_DEFINITION", "LONGSHORE_TRY", "LONGSHORE_WORKER"];

/// Room for them that each job leaves.
pub(crate) const OWN_VARIABLES: usize = 3;
/// Names of definitions and workers have up to 63 bytes.
pub(crate) const OWN_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use protocol::wire::{OVERRIDES_BYTES_MAX, overrides_fit};
    use protocol::{AttemptNo, Revision, Timestamp, Token};

    use super::*;

    fn grant(name: String) -> Grant {
        Grant {
            token: Token::default(),
            priority: 0,
            due_at: Timestamp(0),
            revision: Revision(0),
            name,
            number: AttemptNo(u32::MAX),
            has_overrides: false,
            time_left: None,
            memory_bytes: None,
            member: None,
            gpus: Vec::new(),
        }
    }

    #[test]
    fn an_attempt_is_told_its_definition_its_try_and_its_worker() {
        let given = |body| with_own_variables(body, &grant("nightly".into()), "dock-3").unwrap().environment;
        let own = [
            ("LONGSHORE_DEFINITION", "nightly"),
            ("LONGSHORE_TRY", "4294967295"),
            ("LONGSHORE_WORKER", "dock-3"),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(given(None), own);
        let variable = |name: &str| (name.to_owned(), "x".to_owned());
        let environment = vec![variable("LONGSHORE_TRY"), variable("A")];
        let body = Overrides { environment, ..Overrides::default() };
        assert_eq!(given(Some(body)), [&[variable("A")], &own[..]].concat(), "nobody else sets them");
    }

    #[test]
    fn the_room_that_jobs_leave_is_enough_and_without_it_they_are_left_out() {
        let input = |bytes| Overrides { input: Some("1".repeat(bytes)), ..Overrides::default() };
        let (name, worker) = ("n".repeat(63), "w".repeat(63));
        let full =
            with_own_variables(Some(input(OVERRIDES_BYTES_MAX - OWN_BYTES)), &grant(name), &worker).unwrap();
        assert_eq!(full.environment.len(), OWN_VARIABLES);
        assert_eq!(overrides_fit(&full), Ok(()));
        let fuller = input(OVERRIDES_BYTES_MAX - OWN_BYTES + 1);
        assert_eq!(with_own_variables(Some(fuller.clone()), &grant("n".into()), "w"), Some(fuller));
    }
}
