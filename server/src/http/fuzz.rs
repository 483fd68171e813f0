//! Entry points for `fuzz/`: the parsers of request bodies without a server. Each panics if an invariant does not hold.

use std::path::Path;
use std::sync::LazyLock;

use scheduler::new_jobs::NewJob;

use crate::auth::actor::Actor;
use crate::catalogue::Definitions;
use crate::config::jobs_file;
use crate::http::api::batches::submit_many::{self as batch, DefinitionNames};
use crate::http::middleware::problem::Problem;
use crate::http::request::content_type::Form;
use crate::http::request::job_request;
use crate::http::request::trace_context::TraceContext;

/// The body of `POST /api/jobs/{name}`.
pub fn one(text: &[u8]) {
    match job_request::read_one(text) {
        Ok(request) => {
            let is_blank = text.iter().all(u8::is_ascii_whitespace);
            let other: Result<serde_json::Value, _> = serde_json::from_slice(text);
            assert!(is_blank || other.is_ok_and(|value| value.is_object()), "another reader sees no object");
            fits(&request.job);
        }
        Err(problem) => is_shown(&problem),
    }
}

/// The body of `POST /api/jobs`, a JSON value per line. As an array it must mean the same.
pub fn lines(text: &[u8]) {
    match read_many(text, Form::Lines) {
        Ok(jobs) => {
            jobs.iter().for_each(fits);
            let entries =
                text.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
            let array = [b"[", &*entries.collect::<Vec<_>>().join(&b','), b"]"].concat();
            let retry = read_many(&array, Form::Json).map_err(|problem| problem.code());
            assert_eq!(format!("{retry:?}"), format!("Ok({jobs:?})"));
        }
        Err(problem) => is_shown(&problem),
    }
}

/// The body of `POST /api/jobs`, an array.
pub fn array(text: &[u8]) {
    match read_many(text, Form::Json) {
        Ok(jobs) => jobs.iter().for_each(fits),
        Err(problem) => is_shown(&problem),
    }
}

fn read_many(text: &[u8], form: Form) -> Result<Vec<NewJob>, Problem> {
    let (actor, trace, mut names) = (Actor::anonymous(), TraceContext::default(), DefinitionNames::default());
    batch::read_many(text, form, &DEFINITIONS, &actor, &trace, &mut names)
}

/// Every accepted job fits into a message to a worker.
fn fits(job: &NewJob) {
    let overrides = job.details.as_ref().map(|details| &details.overrides);
    assert!(overrides.is_none_or(|overrides| protocol::wire::overrides_fit(overrides).is_ok()));
}

/// Every refusal is a client error with a short text.
fn is_shown(problem: &Problem) {
    assert!(problem.code().status().is_client_error(), "{problem:?}");
    let shown = format!("{problem:?}");
    assert!(shown.len() < SHOWN_BYTES_MAX, "{} bytes are said about a body", shown.len());
}

static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(|| {
    let file = "[{name: a, image: busybox}, {name: b, image: busybox, enabled: false}]";
    let loaded = jobs_file::parse(file, Path::new("jobs.yaml"), &std::iter::empty().collect());
    Definitions::new(loaded.expect("two definitions").definitions)
});

/// Fifty faults, each with a shortened input and a hint.
const SHOWN_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_answered() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/http_bodies");
        for seed in std::fs::read_dir(seeds).unwrap() {
            let seed = std::fs::read(seed.unwrap().path()).unwrap();
            for door in [one, lines, array] {
                door(&seed[1..]);
            }
        }
    }
}
