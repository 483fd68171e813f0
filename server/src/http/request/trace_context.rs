//! Trace context of a submission: `traceparent` and `tracestate` as W3C Trace Context defines them, and the caller's `X-Request-Id`.
//!
//! A job keeps them as variables of its environment, so that its program continues the caller's trace. A variable of the same name that
//! the submission sets itself takes precedence. A malformed `traceparent` is ignored, as the standard demands: tracing never fails a request.

use axum::http::HeaderMap;
use scheduler::new_jobs::NewJob;

use crate::http::request::job_request;
use crate::http::request::request_id::{REQUEST_ID, is_request_id};

/// The variables that the jobs of a request get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceContext {
    variables: Vec<(String, String)>,
}

impl TraceContext {
    /// Reads the headers of a request.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let mut variables = Vec::new();
        if let Some(parent) = only(headers, "traceparent").filter(|parent| is_trace_parent(parent)) {
            variables.push((TRACE_VARIABLE.to_owned(), parent.to_owned()));
            if let Some(state) = trace_state(headers) {
                variables.push((STATE_VARIABLE.to_owned(), state));
            }
        }
        if let Some(id) = headers.get(&REQUEST_ID).filter(|id| is_request_id(id)) {
            variables.extend(id.to_str().ok().map(|id| (REQUEST_VARIABLE.to_owned(), id.to_owned())));
        }
        Self { variables }
    }

    /// Adds the variables to a job, unless it has too many variables, or too long ones, together with these.
    pub(crate) fn add_to(&self, job: &mut NewJob) {
        if self.variables.is_empty() {
            return;
        }
        let details = job.details.get_or_insert_default();
        let environment = &mut details.overrides.environment;
        let own = environment.len();
        for (name, value) in &self.variables {
            if !environment.iter().any(|(known, _)| known == name) {
                environment.push((name.clone(), value.clone()));
            }
        }
        let fits = job_request::check_totals(details)
            .and_then(|()| job_request::check_size(&details.effective_overrides()));
        if fits.is_err() {
            details.overrides.environment.truncate(own);
        }
    }

    /// Replaces the variables of an earlier request: a retry belongs to the trace of its own request.
    pub(crate) fn replace_in(&self, job: &mut NewJob) {
        if self.variables.is_empty() {
            return;
        }
        if let Some(details) = &mut job.details {
            let is_replaced =
                |name: &str| self.variables.iter().any(|(own, _)| own == name) || name == STATE_VARIABLE;
            details.overrides.environment.retain(|(name, _)| !is_replaced(name));
        }
        self.add_to(job);
    }
}

/// The trace that a job with this environment belongs to.
pub(crate) fn trace_of(environment: &[(String, String)]) -> Option<&str> {
    value(environment, TRACE_VARIABLE).filter(|parent| is_trace_parent(parent))
}

/// The `tracestate` of that trace.
#[cfg(feature = "otel")]
pub(crate) fn trace_state_of(environment: &[(String, String)]) -> Option<&str> {
    value(environment, STATE_VARIABLE)
}

/// The request id that the submission of a job with this environment gave.
pub(crate) fn request_of(environment: &[(String, String)]) -> Option<&str> {
    value(environment, REQUEST_VARIABLE)
}

fn value<'e>(environment: &'e [(String, String)], name: &str) -> Option<&'e str> {
    environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The value of a header that is there once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value.trim())
}

/// `version-trace-parent-flags` in lower-case hexadecimal. A later version may append more.
fn is_trace_parent(text: &str) -> bool {
    let mut parts = text.splitn(5, '-');
    let mut hex = |length: usize| {
        parts.next().filter(|part| part.len() == length && part.bytes().all(is_lower_hex)).unwrap_or_default()
    };
    let (version, trace, span, flags) = (hex(2), hex(32), hex(16), hex(2));
    let is_set = |id: &str| id.bytes().any(|digit| digit != b'0');
    let may_have_more = version != "00" && text.len() <= TRACE_PARENT_BYTES_MAX;
    !version.is_empty()
        && version != "ff"
        && is_set(trace)
        && is_set(span)
        && !flags.is_empty()
        && (parts.next().is_none() || may_have_more)
}

const fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The state of all headers of that name, in their order; none if it is too long or not plain text.
fn trace_state(headers: &HeaderMap) -> Option<String> {
    let lines: Option<Vec<&str>> =
        headers.get_all("tracestate").iter().map(|value| value.to_str().ok()).collect();
    let state = lines?.iter().map(|line| line.trim()).collect::<Vec<_>>().join(",");
    (1..=TRACE_STATE_BYTES_MAX).contains(&state.len()).then_some(state)
}

/// The variable with the parent of what a program traces.
pub(crate) const TRACE_VARIABLE: &str = "TRACEPARENT";
const STATE_VARIABLE: &str = "TRACESTATE";
const REQUEST_VARIABLE: &str = "LONGSHORE_REQUEST_ID";
/// Version 00 has 55 bytes; a later version may append fields.
const TRACE_PARENT_BYTES_MAX: usize = 256;
/// The length that every party has to forward, by the standard.
const TRACE_STATE_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(pairs: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        TraceContext::read(&headers).variables
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn trace_and_request_id_become_variables() {
        let read = read(&[
            ("traceparent", PARENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
            ("x-request-id", "r-7"),
        ]);
        let expected =
            [pair("TRACEPARENT", PARENT), pair("TRACESTATE", "a=1,b=2"), pair("LONGSHORE_REQUEST_ID", "r-7")];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_malformed_trace_parent_is_ignored_with_its_state() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(read(&[("traceparent", wrong), ("tracestate", "a=1")]), [], "{wrong}");
        }
        assert_eq!(read(&[("traceparent", PARENT), ("traceparent", PARENT)]), [], "it may be there once");
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert_eq!(read(&[("traceparent", later)]), [pair("TRACEPARENT", later)]);
    }

    #[test]
    fn a_variable_of_the_submission_takes_precedence_and_a_retry_gets_the_new_trace() {
        let context = TraceContext { variables: vec![pair("TRACEPARENT", PARENT)] };
        let mut job = NewJob::default();
        job.details.get_or_insert_default().overrides.environment =
            vec![pair("TRACEPARENT", "own"), pair("TRACESTATE", "a=1"), pair("A", "1")];
        let environment = |job: &NewJob| job.details.as_ref().unwrap().overrides.environment.clone();
        context.add_to(&mut job);
        assert_eq!(environment(&job)[0], pair("TRACEPARENT", "own"));
        context.replace_in(&mut job);
        assert_eq!(environment(&job), [pair("A", "1"), pair("TRACEPARENT", PARENT)]);
    }
}
