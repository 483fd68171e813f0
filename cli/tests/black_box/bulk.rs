//! `cancel`, `retry` and `release` of all jobs that filters select: counted, confirmed, done in as many requests as it takes.

use std::process::Stdio;

use crate::stub::{JSON, Stub, job, run};

const PROBLEM: &str = "application/problem+json";

/// An answer of the server, with the cursor of the next request.
fn done(matched: u64, done: u64, more: &str) -> String {
    format!(
        r#"{{"dry_run":false,"matched":{matched},"done":{done},"stopping":0,"refused":0,"refusals":[]{more}}}"#
    )
}

#[test]
fn filters_need_a_confirmation_where_nobody_can_be_asked() {
    let stub = Stub::new();
    stub.on(
        "POST /api/jobs/cancel?state=queued&name=x&dry_run=1",
        "200 OK",
        JSON,
        &done(600, 0, r#","next":"c""#),
    )
    .on("POST /api/jobs/cancel?state=queued&name=x&dry_run=1&cursor=c", "200 OK", JSON, &done(1, 0, ""));
    let mut command = stub.longshore(&["cancel", "--name", "x", "--state", "queued"]);
    let said = run(command.stdin(Stdio::null()));
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(said.out, "");
    assert!(
        said.err.contains("the filters select 601 jobs; to cancel them without a question, add --yes"),
        "{said:?}"
    );
    assert!(
        stub.requests().iter().all(|request| request.line.contains("dry_run=1")),
        "{:?}",
        stub.requests()
    );
}

/// A job that matches a moment later was not counted, so nobody has agreed to cancel it.
#[test]
fn filters_that_select_nothing_change_nothing() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/cancel?name=x&dry_run=1", "200 OK", JSON, &done(0, 0, ""));
    let said = run(&mut stub.longshore(&["cancel", "--name", "x"]));
    assert_eq!((said.code, said.out.as_str()), (0, "0 cancelled of 0 jobs\n"), "{said:?}");
    assert_eq!(stub.requests().len(), 1, "{:?}", stub.requests());
}

#[test]
fn yes_goes_on_until_all_jobs_are_done_under_one_key() {
    let stub = Stub::new();
    let refusal = r#"{"matched":1,"done":0,"stopping":0,"refused":1,
        "refusals":[{"job":9,"code":"already_finished","detail":"job 9 has succeeded"}]}"#;
    for query in ["cancel?name=x", "retry?name=x&revision=current", "release?name=x"] {
        stub.on(&format!("POST /api/jobs/{query}"), "200 OK", JSON, &done(600, 600, r#","next":"c""#)).on(
            &format!("POST /api/jobs/{query}&cursor=c"),
            "200 OK",
            JSON,
            refusal,
        );
    }
    for (verb, word) in [("cancel", "cancelled"), ("retry", "retried"), ("release", "released")] {
        let before = stub.requests().len();
        let said = run(&mut stub.longshore(&[verb, "--name", "x", "--yes"]));
        assert_eq!(said.out, format!("600 {word}, 1 refused of 601 jobs\n"));
        assert_eq!((said.code, said.err.lines().next()), (5, Some("longshore: job 9: job 9 has succeeded")));
        let requests = stub.requests().split_off(before);
        let key = |index: usize| {
            requests[index].head.iter().find(|line| line.starts_with("idempotency-key: ")).cloned().unwrap()
        };
        assert_eq!((requests.len(), key(0)), (2, key(1)), "{requests:?}");
    }
}

#[test]
fn error_in_a_later_request_prints_the_total_so_far_and_the_key_to_continue_with() {
    let stub = Stub::new();
    let problem = r#"{"code":"storage_low","detail":"the disk is nearly full"}"#;
    let more = r#","jobs":[7,8],"next":"c""#;
    let path = "/api/jobs/retry?name=x&revision=current";
    stub.on(&format!("POST {path}"), "200 OK", JSON, &done(200, 200, more)).on(
        &format!("POST {path}&cursor=c"),
        "507 Insufficient Storage",
        PROBLEM,
        problem,
    );
    let args = ["retry", "--name", "x", "--yes"];
    let said = run(&mut stub.longshore(&args));
    assert_eq!((said.code, said.out.as_str()), (6, "200 retried of 200 jobs\n"), "{said:?}");
    let key = said.err.split_once("repeat the command with --key ").and_then(|(_, it)| it.split_once(':'));
    let key = key.expect("a key").0;
    assert!(said.err.contains("error: the disk is nearly full [storage_low]"), "{said:?}");
    let header = format!("idempotency-key: {key}");
    let before = stub.requests();
    assert!(before[before.len() - 1].head.contains(&header), "{before:?}");
    let names = run(stub.longshore(&args).args(["--key", key, "-o", "name"]));
    assert_eq!((names.code, names.out.as_str()), (6, "7\n8\n"), "{names:?}");
    assert!(stub.requests().split_off(before.len()).iter().all(|it| it.head.contains(&header)));
}

#[test]
fn error_in_the_first_request_prints_no_total() {
    let stub = Stub::new();
    let problem = r#"{"code":"invalid_query","detail":"this is no state"}"#;
    stub.on("POST /api/jobs/cancel?name=x", "400 Bad Request", PROBLEM, problem);
    let said = run(&mut stub.longshore(&["cancel", "--name", "x", "--yes"]));
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
    assert_eq!(said.err, "error: this is no state [invalid_query]\n");
}

#[test]
fn ids_and_filters_exclude_each_other_and_one_of_them_is_needed() {
    let stub = Stub::new();
    for verb in ["cancel", "retry", "release"] {
        let both = run(&mut stub.longshore(&[verb, "1", "--name", "x"]));
        assert!(both.code == 2 && both.err.contains("ids and filters exclude each other"), "{both:?}");
        let none = run(&mut stub.longshore(&[verb]));
        assert!(none.code == 2 && none.err.contains("which jobs?"), "{none:?}");
    }
    for change in
        [&["-e", "SIZE=640"][..], &["--clear", "input"], &["--delay", "10m"], &["--set-label", "a=b"]]
    {
        let changed = run(stub.longshore(&["retry", "--name", "x", "--yes"]).args(change));
        assert!(
            changed.code == 2 && changed.err.contains("are for jobs that are given by id"),
            "{changed:?}"
        );
    }
    let label = run(&mut stub.longshore(&["retry", "1", "--label", "a=b"]));
    assert!(label.code == 2 && label.err.contains("use --set-label"), "{label:?}");
    for key in [&["--key", "k"], &["--unique-key", "k"]] {
        let several = run(stub.longshore(&["retry", "1", "2"]).args(key));
        let text = format!("{} can be used with one id only", key[0]);
        assert!(several.code == 2 && several.err.contains(&text), "{several:?}");
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn retry_takes_the_fields_that_run_takes_and_leaves_out_others() {
    let stub = Stub::new();
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("input.json");
    std::fs::write(&input, r#"{"a":1}"#).unwrap();
    let path = "POST /api/jobs/1/retry?clear=args%2Cparams.size";
    stub.on(path, "201 Created", JSON, &job(2, r#""state":"queued""#));
    let mut retry = stub.longshore(&["retry", "1", "--clear", "args", "--clear", "params.size"]);
    retry.args(["-p", "mode=fast", "--priority", "-5", "--timeout", "none", "--delay", "10m"]);
    retry.args(["--unique-key", "k", "--after", "7:ended", "--set-label", "team=web", "--input"]).arg(&input);
    let said = run(&mut retry);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let body: serde_json::Value = serde_json::from_str(&stub.requests()[0].body).unwrap();
    let expected = serde_json::json!({
        "params": {"mode": "fast"}, "priority": -5, "timeout": "none", "delay": "10m", "unique_key": "k",
        "after": [{"job": 7, "outcome": "ended"}], "labels": {"team": "web"}, "input": {"a": 1},
    });
    assert_eq!(body, expected);
}

#[test]
fn a_retry_of_several_jobs_lays_its_changes_over_each() {
    let stub = Stub::new();
    for id in [1, 2] {
        let path = format!("POST /api/jobs/{id}/retry?clear=input");
        stub.on(&path, "201 Created", JSON, &job(id + 10, r#""state":"queued""#));
    }
    let said = run(&mut stub.longshore(&["retry", "1", "2", "--clear", "input", "--priority", "3"]));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert!(
        stub.requests().iter().all(|request| request.body == r#"{"priority":3}"#),
        "{:?}",
        stub.requests()
    );
    assert_eq!(stub.requests().len(), 2);
}

#[test]
fn retry_sends_its_changes() {
    let stub = Stub::new();
    stub.on("POST /api/jobs/1/retry", "201 Created", JSON, &job(2, r#""state":"queued""#));
    let said = run(&mut stub.longshore(&["retry", "1", "-e", "SIZE=640", "--", "--verbose"]));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let body: serde_json::Value = serde_json::from_str(&stub.requests()[0].body).unwrap();
    assert_eq!(body, serde_json::json!({"environment": {"SIZE": "640"}, "args": ["--verbose"]}));
}
