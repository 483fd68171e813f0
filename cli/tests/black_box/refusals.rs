//! Error responses of a stub server: text for people, JSON for programs, and exit code.

use crate::stub::{CliOutput, Stub, longshore, run};

const PROBLEM: &str = "application/problem+json";

#[test]
fn error_has_one_line_a_hint_and_an_exit_code() {
    let problem = |status: u16, code: &str, hint: &str| {
        format!(r#"{{"status":{status},"title":"t","code":"{code}","detail":"it is so","hint":"{hint}"}}"#)
    };
    for (status, code, exit) in [
        ("404 Not Found", "unknown_job", 4),
        ("401 Unauthorized", "invalid_token", 3),
        ("403 Forbidden", "forbidden", 3),
        ("409 Conflict", "already_finished", 5),
        ("422 Unprocessable Content", "invalid_param", 2),
        ("503 Service Unavailable", "busy", 6),
        ("500 Internal Server Error", "internal", 1),
    ] {
        let stub = Stub::new();
        stub.on("POST /api/jobs/7/retry", status, PROBLEM, &problem(400, code, "do that"));
        let said = run(&mut stub.longshore(&["retry", "7"]));
        let hint = match code {
            "invalid_token" => "give the API's token with --token-file or LONGSHORE_API_TOKEN_FILE",
            _ => "do that",
        };
        let err = format!("error: it is so [{code}]; {hint}\n");
        assert_eq!(said, CliOutput { code: exit, out: String::new(), err });
    }
}

const FAULTS: &str = r#"{"status":422,"code":"invalid_jobs_file","detail":"the file has 2 faults","hint":"repair the file","errors":[
    {"field":"jobs.yaml:2:8","code":"unknown_field","detail":"there is no key \"imgae\"","hint":"did you mean \"image\"?"},
    {"field":"jobs.yaml:3:5","code":"out_of_range","detail":"9999 is not between -100 and 100"}]}"#;

#[test]
fn all_faults_of_a_problem_are_printed() {
    let stub = Stub::new();
    stub.on("POST /api/definitions/reload", "422 Unprocessable Content", PROBLEM, FAULTS);
    let told = run(&mut stub.longshore(&["reload"]));
    let expected = "jobs.yaml:2:8: unknown_field: there is no key \"imgae\"; did you mean \"image\"?\n\
        jobs.yaml:3:5: out_of_range: 9999 is not between -100 and 100\n\
        error: the file has 2 faults [invalid_jobs_file]; repair the file\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (2, "", expected));
    let json = run(&mut stub.longshore(&["reload", "-o", "json"]));
    let whole: serde_json::Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!((json.code, json.out.as_str()), (2, ""));
    assert_eq!(whole, serde_json::from_str::<serde_json::Value>(FAULTS).unwrap());
}

#[test]
fn wrong_field_is_named_once() {
    let problem =
        |detail: &str| format!(r#"{{"code":"out_of_range","detail":"{detail}","field":"labels.customer"}}"#);
    for (detail, expected) in [
        ("it is too long", "labels.customer: it is too long"),
        ("labels.customer is too long", "labels.customer is too long"),
    ] {
        let stub = Stub::new();
        stub.on("POST /api/jobs/resize", "422 Unprocessable Content", PROBLEM, &problem(detail));
        let told = run(&mut stub.longshore(&["run", "resize"]));
        assert_eq!(told.err, format!("error: {expected} [out_of_range]\n"));
    }
}

#[test]
fn hints_name_commands_instead_of_urls() {
    for (status, problem, expected) in [
        (
            "404 Not Found",
            r#"{"code":"job_not_found","detail":"there is no job 7","hint":"GET /api/jobs lists the jobs"}"#,
            "there is no job 7 [job_not_found]; 'longshore ls' lists the jobs",
        ),
        (
            "400 Bad Request",
            r#"{"code":"invalid_query","detail":"no such worker","field":"?worker","hint":"give a name from GET /api/workers?all=1"}"#,
            "no such worker [invalid_query]; give a name from 'longshore workers --all'",
        ),
        (
            "409 Conflict",
            r#"{"code":"idempotency_mismatch","detail":"this key made job 3","field":"Idempotency-Key","hint":"use a new key"}"#,
            "--key: this key made job 3 [idempotency_mismatch]; use a new key",
        ),
    ] {
        let stub = Stub::new();
        stub.on("GET /api/jobs/7", status, PROBLEM, problem);
        assert_eq!(run(&mut stub.longshore(&["show", "7"])).err, format!("error: {expected}\n"));
    }
}

#[test]
fn forbidden_host_has_no_hint_about_tokens() {
    let stub = Stub::new();
    let problem = r#"{"code":"host_not_allowed","detail":"no \"anna\"","hint":"start the server with --allow-host NAME"}"#;
    stub.on("GET /api/workers", "421 Misdirected Request", PROBLEM, problem);
    let told = run(&mut stub.longshore(&["workers"]));
    let expected = "error: no \"anna\" [host_not_allowed]; start the server with --allow-host NAME\n";
    assert_eq!((told.code, told.err.as_str()), (3, expected));
}

#[test]
fn query_parameters_have_the_names_of_the_verb() {
    let problem = |field: &str| format!(r#"{{"code":"invalid_query","detail":"no","field":"?{field}"}}"#);
    for (arguments, line, field, expected) in [
        (["ls", "--worker", "x"], "GET /api/jobs?worker=x&limit=20", "worker", "--worker: no"),
        (["grep", "x", "--fixed"], "GET /api/logs/search?q=x&limit=500", "q", "PATTERN: no"),
        (["grep", "x", "--fixed"], "GET /api/logs/search?q=x&limit=500", "cursor", "cursor: no"),
    ] {
        let stub = Stub::new();
        stub.on(line, "400 Bad Request", PROBLEM, &problem(field));
        let told = run(&mut stub.longshore(&arguments));
        assert_eq!(told.err, format!("error: {expected} [invalid_query]\n"), "{:?}", stub.requests());
    }
}

#[test]
fn the_sentence_of_another_server_is_shown_and_is_no_wrong_usage() {
    let hint = "check --server or LONGSHORE_SERVER";
    for (kind, body, expected) in [
        ("text/plain", "use\x1b[2J\r\nhttps", "the server answered 400 Bad Request: use[2J https"),
        ("text/html", "<p>no", "the server answered 400 Bad Request"),
    ] {
        let stub = Stub::new();
        stub.on("GET /api/workers", "400 Bad Request", kind, body);
        let told = run(&mut stub.longshore(&["workers"]));
        assert_eq!((told.code, told.err), (6, format!("error: {expected}; {hint}\n")));
    }
    let stub = Stub::new();
    stub.on("POST /api/jobs/7/retry", "413 Payload Too Large", "text/plain", "too much");
    let told = run(&mut stub.longshore(&["retry", "7"]));
    assert_eq!(
        (told.code, told.err.as_str()),
        (2, "error: the server answered 413 Payload Too Large: too much\n")
    );
}

#[test]
fn a_follower_of_events_that_never_reached_the_server_fails_at_once() {
    let told = run(&mut longshore(&["events", "-f", "--tail=1"]));
    assert!(told.code == 6 && told.err.starts_with("error: no answer from "), "{told:?}");
    assert!(told.err.contains("check that it runs"), "{told:?}");
}
