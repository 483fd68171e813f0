//! `longshore batch ID cancel` and `longshore cancel --batch`, against a stub server.

use crate::job_verbs::interrupt;
use crate::stub::{CliOutput, JSON, Stub, longshore, run};

const PROBLEM: &str = "application/problem+json";

/// The server ends what is left by itself, so one request is enough.
#[test]
fn one_request_cancels_a_batch_and_the_text_counts_all_that_end() {
    let stub = Stub::new();
    let answer = r#"{"dry_run":false,"matched":97395,"done":500,"stopping":96895,"refused":0}"#;
    stub.on("POST /api/batches/12/cancel", "200 OK", JSON, answer);
    let told = run(&mut stub.longshore(&["batch", "12", "cancel", "-y"]));
    let out = "batch 12: 97395 jobs are being cancelled\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, out, ""));
    assert_eq!(stub.requests().len(), 1);
}

#[test]
fn ctrl_c_in_the_cancel_of_a_batch_counts_nothing_that_is_unknown() {
    for words in [&["batch", "5", "cancel", "-y"][..], &["cancel", "--batch", "5"]] {
        let (code, told) = interrupt(longshore(words), None);
        assert_eq!((code, told[0].as_str()), (Some(130), ""), "{told:?}");
        let note = "longshore: interrupted: the server may carry out the request that it has not answered; 'longshore batch 5' shows the states\n";
        assert_eq!(told[1], note);
    }
    let (code, told) = interrupt(longshore(&["cancel", "--name", "x", "-y"]), None);
    assert_eq!((code, told[0].as_str()), (Some(130), ""), "{told:?}");
}

/// Cancels batch 5, which the server answers with `first` and then, for its cursor `c`, with a status, a content type and a body.
fn cancel_batch_of_two_pages(
    stub: &Stub,
    first: &str,
    (status, kind, body): (&str, &str, &str),
) -> CliOutput {
    stub.on("POST /api/batches/5/cancel", "200 OK", JSON, first);
    stub.on("POST /api/batches/5/cancel?cursor=c", status, kind, body);
    run(&mut stub.longshore(&["cancel", "--batch", "5"]))
}

#[test]
fn cancel_batch_cancels_all_jobs_that_have_not_ended() {
    let stub = Stub::new();
    let first = r#"{"dry_run":false,"matched":2,"done":1,"stopping":1,"refused":0,"next":"c"}"#;
    let last = r#"{"dry_run":false,"matched":1,"done":0,"stopping":0,"refused":1,
        "refusals":[{"job":5,"code":"already_finished","detail":"job 5 has succeeded"}]}"#;
    let told = cancel_batch_of_two_pages(&stub, first, ("200 OK", JSON, last));
    let out = "batch 5: 2 jobs are being cancelled\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, out, ""));
    assert_eq!(stub.requests().len(), 2);
    assert_eq!(run(&mut stub.longshore(&["cancel", "7", "--batch", "5"])).code, 2);
    let keyed = run(&mut stub.longshore(&["batch", "5", "cancel", "--key", "k"]));
    assert!(keyed.code == 2 && keyed.err.contains("--key is for retry"), "{keyed:?}");
}

#[test]
fn cancel_batch_prints_the_jobs_so_far_before_an_error() {
    let stub = Stub::new();
    let first = r#"{"matched":2,"done":2,"stopping":0,"refused":0,"next":"c"}"#;
    let error = r#"{"detail":"the disk has not answered for seconds","code":"busy"}"#;
    let told = cancel_batch_of_two_pages(&stub, first, ("503 Service Unavailable", PROBLEM, error));
    assert_eq!((told.code, told.out.as_str()), (6, "batch 5, so far: 2 jobs are cancelled\n"));
    assert!(told.err.starts_with("error: the disk has not answered for seconds [busy]"), "{told:?}");
}

#[test]
fn cancel_batch_prints_refusals_for_other_reasons() {
    let stub = Stub::new();
    let answer = r#"{"dry_run":false,"matched":2,"done":1,"stopping":0,"refused":1,
        "refusals":[{"job":6,"code":"busy","detail":"the server has more requests waiting than it takes"}]}"#;
    stub.on("POST /api/batches/5/cancel", "200 OK", JSON, answer);
    let told = run(&mut stub.longshore(&["cancel", "--batch", "5"]));
    let err = "error: job 6: the server has more requests waiting than it takes [busy]\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (5, "batch 5: 1 job is cancelled\n", err));
}

#[test]
fn cancel_batch_counts_refusals_that_the_server_does_not_show() {
    let stub = Stub::new();
    let over =
        |job| format!(r#"{{"job":{job},"code":"already_finished","detail":"job {job} has succeeded"}}"#);
    let shown = (6..26).map(over).collect::<Vec<_>>().join(",");
    let answer = format!(
        r#"{{"dry_run":false,"matched":26,"done":1,"stopping":0,"refused":25,"refusals":[{shown}]}}"#
    );
    stub.on("POST /api/batches/5/cancel", "200 OK", JSON, &answer);
    let told = run(&mut stub.longshore(&["cancel", "--batch", "5"]));
    assert_eq!((told.code, told.out.as_str()), (5, "batch 5: 1 job is cancelled\n"));
    assert_eq!(told.err, "error: 5 more refused; 'longshore ls --batch 5' shows their states\n");
    let names = run(&mut stub.longshore(&["cancel", "--batch", "5", "-o", "name"]));
    assert_eq!((names.code, names.out.as_str()), (5, "5\n"));
    assert!(names.err.ends_with("longshore: batch 5: 1 job is cancelled\n"), "{names:?}");
    let json = run(&mut stub.longshore(&["cancel", "--batch", "5", "-o", "json"]));
    assert!(json.out.contains("\"refused\": 5,"), "{json:?}");
}

#[test]
fn cancel_batch_distinguishes_an_ended_batch_from_an_unknown_one() {
    let stub = Stub::new();
    let nothing = r#"{"dry_run":false,"matched":0,"done":0,"stopping":0,"refused":0}"#;
    let unknown = r#"{"detail":"there is no batch 6","code":"batch_not_found"}"#;
    stub.on("POST /api/batches/5/cancel", "200 OK", JSON, nothing).on(
        "POST /api/batches/6/cancel",
        "404 Not Found",
        PROBLEM,
        unknown,
    );
    let over = run(&mut stub.longshore(&["cancel", "--batch", "5"]));
    assert_eq!((over.code, over.out.as_str()), (0, "batch 5: all jobs have ended\n"), "{over:?}");
    let none = run(&mut stub.longshore(&["cancel", "--batch", "6"]));
    assert_eq!((none.code, none.out.as_str()), (4, ""), "{none:?}");
    assert!(none.err.starts_with("error: there is no batch 6; "), "{none:?}");
}

#[test]
fn a_retry_that_makes_nothing_says_how_many_members_were_cancelled_or_have_not_ended() {
    let stub = Stub::new();
    let none = r#"{"dry_run":true,"retry_of":13,"matched":0,"refused":0,"cancelled":2377,"unended":1}"#;
    let all = r#"{"dry_run":true,"retry_of":13,"matched":2377,"refused":0,"unended":1}"#;
    stub.on("POST /api/batches/13/retry?dry_run=1", "200 OK", JSON, none);
    stub.on("POST /api/batches/13/retry?cancelled=1&dry_run=1", "200 OK", JSON, all);
    let told = run(&mut stub.longshore(&["batch", "13", "retry"]));
    let out = "batch 13: 0 members can be retried; 2377 were cancelled: add --cancelled; 1 has not ended\n";
    assert_eq!((told.code, told.out.as_str()), (0, out), "{told:?}");
    let told = run(&mut stub.longshore(&["batch", "13", "retry", "--cancelled", "--dry-run"]));
    let out =
        "batch 13 has 2377 members that can be retried: that is the size of the new batch; 1 has not ended\n";
    assert_eq!((told.code, told.out.as_str()), (0, out), "{told:?}");
    let refused = run(&mut stub.longshore(&["batch", "13", "cancel", "--cancelled"]));
    assert!(refused.code == 2 && refused.err.contains("--cancelled is for retry"), "{refused:?}");
}
