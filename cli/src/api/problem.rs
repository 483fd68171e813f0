//! Problem documents of the server as failures, in the words of this program.

use clap::CommandFactory as _;
use std::time::Duration;

use client::ws::sentence_of_answer;
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::program::Program;
use crate::screen;

/// Converts a response other than 2xx into a failure.
pub(super) async fn failure_from(response: Response) -> Failure {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).map(<[u8]>::to_owned);
    let body = response.bytes().await.unwrap_or_default();
    if kind.as_ref().is_some_and(|kind| kind.starts_with(b"application/problem+json")) {
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_persistent = lasts(status, text_of(&problem, "code"), retry_after.is_some());
        let failure = failure_of(status, problem).retry_after(retry_after);
        return if is_persistent { failure.persistent() } else { failure };
    }
    let sentence = sentence_of_answer(kind.as_deref(), &body);
    let text = match &sentence {
        Some(sentence) => format!("the server answered {status}: {sentence}"),
        None => format!("the server answered {status}"),
    };
    match status {
        // A Longshore server explains each 400: this is another server, or a port that speaks TLS.
        StatusCode::BAD_REQUEST => {
            Failure::new(Exit::Unavailable, text).hint("check --server or LONGSHORE_SERVER").persistent()
        }
        _ => with_hint(Exit::from_status(status.as_u16()), text, "", "").retry_after(retry_after),
    }
}

/// The refusal is an answer to this request, and not a state of the server that passes: the caller asked to be refused, or a person must act.
fn lasts(status: StatusCode, code: &str, has_retry_after: bool) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            !has_retry_after || matches!(code, "limit_full" | "too_many_failures")
        }
        StatusCode::SERVICE_UNAVAILABLE => code == "no_worker",
        _ => status == StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// Converts a problem document into a failure; `Null` if the response had none.
pub(crate) fn failure_of(status: StatusCode, problem: Value) -> Failure {
    let exit = Exit::from_status(status.as_u16());
    let (code, mut hint) = (text_of(&problem, "code"), translate_hint(text_of(&problem, "hint")));
    let told =
        [text_of(&problem, "detail"), text_of(&problem, "title")].into_iter().find(|text| !text.is_empty());
    let text = match told {
        // The problem repeats its first fault, which has a line of its own.
        Some(told) if problem["errors"][0]["detail"] == told => {
            hint = String::new();
            let count = problem["errors"].as_array().map_or(0, Vec::len);
            format!("the request has {}{}", screen::counted(count as u64, "fault"), in_brackets(code))
        }
        Some(told) => format!("{}{}", with_field(&problem, told), in_brackets(code)),
        None => format!("the server answered {status}"),
    };
    let failure = with_hint(exit, text, code, &hint);
    if problem.is_null() { failure } else { failure.problem(faults(&problem), problem) }
}

fn with_hint(exit: Exit, text: String, code: &str, hint: &str) -> Failure {
    Failure::new(exit, text).hint(match (code, hint, exit) {
        // The server's hint is about HTTP headers; this program takes the token from a file.
        ("forbidden", "", Exit::Auth) => "use a token with a stronger role",
        (code, _, Exit::Auth) if code != "forbidden" && is_about_token(code) => {
            "give the API's token with --token-file or LONGSHORE_API_TOKEN_FILE"
        }
        (_, "", Exit::Unavailable) => "try again later",
        (_, hint, _) => hint,
    })
}

fn is_about_token(code: &str) -> bool {
    matches!(code, "invalid_token" | "forbidden" | "")
}

/// Converts the refusal of a worker's token into a failure. No flag of this program takes that token from a file.
pub(super) async fn failure_of_worker_token(response: Response) -> Failure {
    let failure = failure_from(response).await;
    let code = failure.document().map_or("", |problem| text_of(problem, "code"));
    if failure.exit == Exit::Auth && is_about_token(code) {
        return failure.hint(
            "give a token with the role worker: 'longshore token create NAME --role worker' makes one",
        );
    }
    failure
}

/// The `errors` of a problem document, a line each: `jobs.yaml:4:5: out_of_range: …`.
fn faults(problem: &Value) -> Vec<String> {
    let fault = |fault: &Value| {
        let parts = ["field", "code", "detail"].map(|key| text_of(fault, key));
        let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        match text_of(fault, "hint") {
            "" => text,
            hint => format!("{text}; {hint}"),
        }
    };
    problem.get("errors").and_then(Value::as_array).into_iter().flatten().map(fault).collect()
}

/// Prefixes the text with the wrong part of the request, unless the text names it.
fn with_field(problem: &Value, told: &str) -> String {
    let field = match text_of(problem, "field") {
        "Idempotency-Key" => "--key".to_owned(),
        // The text that `grep` searches.
        "?q" => "PATTERN".to_owned(),
        field => field.strip_prefix('?').map_or(field.to_owned(), name_parameter),
    };
    if told.contains(&field) { told.to_owned() } else { format!("{field}: {told}") }
}

/// A query parameter has the name of a flag, unless the verb has no such flag.
fn name_parameter(parameter: &str) -> String {
    let flag = parameter.replace('_', "-");
    let mut verb = Program::command();
    for word in std::env::args_os().skip(1) {
        if let Some(named) = verb.find_subcommand(word) {
            verb = named.clone();
        }
    }
    if verb.get_arguments().any(|argument| argument.get_long() == Some(&flag)) {
        format!("--{flag}")
    } else {
        parameter.to_owned()
    }
}

/// Replaces HTTP requests in the server's hint by the commands of this program. A request without a command stays as it is.
fn translate_hint(hint: &str) -> String {
    let mut parts = hint.split("GET /api/");
    let mut translated = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_whitespace() || ";,:)".contains(c)).unwrap_or(part.len());
        let (path, rest) = part.split_at(end);
        match command_for(path) {
            Some(command) => translated.push_str(&format!("'longshore {command}'")),
            None => translated.push_str(&format!("GET /api/{path}")),
        }
        translated.push_str(rest);
    }
    // Parameters of a query that stand alone are flags of the same command.
    let translated = translated
        .replace("?revision=original", "--revision original")
        .replace("without members=failed", "without --members failed")
        .replace("leave require_worker out", "leave --require-worker out");
    translated.replace("an Idempotency-Key", "--key").replace("another Idempotency-Key", "another --key")
}

/// The command that shows the same as this path of the API.
fn command_for(path: &str) -> Option<String> {
    let command = match path {
        "jobs" => "ls",
        "workers?all=1" => "workers --all",
        "definitions" => "definitions",
        "batches" => "batches",
        "schedules" => "schedules",
        "tokens" => "token ls",
        path => {
            let is_id = |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
            let of = |before, after| path.strip_prefix(before)?.strip_suffix(after).filter(is_id);
            return of("jobs/", "/pipeline")
                .map(|id| format!("pipeline {id}"))
                .or_else(|| of("jobs/", "/explain").map(|id| format!("explain {id}")))
                .or_else(|| of("jobs?member_of=", "").map(|id| format!("ls --member-of {id}")));
        }
    };
    Some(command.to_owned())
}

fn in_brackets(code: &str) -> String {
    if code.is_empty() { String::new() } else { format!(" [{code}]") }
}

/// A string member of an object; empty if it is missing.
fn text_of<'v>(object: &'v Value, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_faults_is_told_once() {
        let problem = serde_json::json!({"code": "out_of_range", "detail": "200 is too large", "field": "priority", "hint": "go lower",
            "errors": [{"code": "out_of_range", "field": "priority", "detail": "200 is too large", "hint": "go lower"},
                {"code": "invalid_type", "field": "after", "detail": "it is no list"}]});
        let failure = failure_of(StatusCode::UNPROCESSABLE_ENTITY, problem);
        let faults =
            ["priority: out_of_range: 200 is too large; go lower", "after: invalid_type: it is no list"];
        assert_eq!(failure.faults(), faults);
        assert_eq!(failure.to_string(), "the request has 2 faults [out_of_range]");
    }

    #[test]
    fn a_refusal_that_waiting_does_not_change_lasts() {
        let lasts = |status, code, has_retry_after| {
            lasts(StatusCode::from_u16(status).unwrap(), code, has_retry_after)
        };
        for (status, code) in [(429, "queue_full"), (429, "too_many_queued"), (503, "draining"), (502, "")] {
            assert!(!lasts(status, code, true), "{code}");
        }
        for (status, code) in [(429, "limit_full"), (429, "too_many_failures"), (503, "no_worker")] {
            assert!(lasts(status, code, true), "{code}");
        }
        assert!(lasts(429, "queue_full", false), "a batch that is larger than the queue");
        assert!(!lasts(503, "not_ready", false) && lasts(507, "storage_low", true));
    }

    #[test]
    fn requests_in_hints_become_commands_as_whole_paths_only() {
        for (theirs, ours) in [
            ("GET /api/jobs lists the jobs", "'longshore ls' lists the jobs"),
            ("GET /api/jobs/12/pipeline shows its jobs", "'longshore pipeline 12' shows its jobs"),
            (
                "GET /api/jobs?member_of=12 lists them; without",
                "'longshore ls --member-of 12' lists them; without",
            ),
            (
                "a number; GET /api/batches lists the batches",
                "a number; 'longshore batches' lists the batches",
            ),
            ("give one from GET /api/workers?all=1, or", "give one from 'longshore workers --all', or"),
            ("GET /api/tokens or GET /api/schedules", "'longshore token ls' or 'longshore schedules'"),
            ("GET /api/jobs/{id}/pipeline shows it", "GET /api/jobs/{id}/pipeline shows it"),
            ("GET /api/jobs/12/output shows it", "GET /api/jobs/12/output shows it"),
            (
                "?revision=original runs it as it was when the job was made",
                "--revision original runs it as it was when the job was made",
            ),
            ("without members=failed all are repeated", "without --members failed all are repeated"),
            ("try again; an Idempotency-Key makes that safe", "try again; --key makes that safe"),
        ] {
            assert_eq!(translate_hint(theirs), ours);
        }
    }
}
