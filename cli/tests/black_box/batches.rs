//! `longshore run --count`, `batches` and `batch`, against a stub server and against a real server with a real worker.

use std::process::Stdio;

use testkit::{Cluster, wait_until};

use crate::stub::{JSON, Stub, job, run};

/// The JSON of a batch of ten.
fn batch(state: &str, counts: &str, more: &str) -> String {
    let zero = ["scheduled", "queued", "assigned", "running", "quarantined", "succeeded", "failed"]
        .into_iter()
        .chain(["cancelled", "expired", "lost"])
        .filter(|name| !counts.contains(name))
        .map(|name| format!("\"{name}\":0"))
        .collect::<Vec<_>>()
        .join(",");
    format!(
        r#"{{"id":12,"name":"nightly","state":"{state}","created_at":"2026-03-01T09:30:00.000Z","count":10,
            "counts":{{{counts},{zero}}},"progress":0.5{more}}}"#
    )
}

const ENDED: &str = r#","ended_at":"2026-03-01T09:31:00.000Z""#;

#[test]
fn run_count_asks_for_a_batch_and_prints_the_next_command() {
    let stub = Stub::new();
    let made = r#"{"batch":12,"count":10,"first":12,"last":21,"created_at":"2026-03-01T09:30:00.000Z"}"#;
    stub.on("POST /api/jobs/resize", "201 Created", JSON, made);
    let flags = ["run", "resize", "--count", "10", "--batch-name", "nightly", "--max-failures", "3"];
    let said = run(&mut stub.longshore(&flags));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, "batch 12 has 10 jobs, 12 to 21; follow it with: longshore batch 12 --wait\n");
    let body: serde_json::Value = serde_json::from_str(&stub.requests()[0].body).unwrap();
    assert_eq!(body, serde_json::json!({"count": 10, "batch_name": "nightly", "max_failures": 3}));
    let quiet = run(&mut stub.longshore(&["run", "resize", "--count", "10", "-q"]));
    assert_eq!(quiet.out, "12\n");
    for wrong in [vec!["--batch-name", "x"], vec!["--count", "0"], vec!["--count", "2", "--follow"]] {
        let said = run(stub.longshore(&["run", "resize"]).args(&wrong));
        assert_eq!(said.code, 2, "{wrong:?} {said:?}");
    }
}

#[test]
fn programs_learn_the_id_of_a_batch_that_was_not_waited_for_to_its_end() {
    let stub = Stub::new();
    let made = r#"{"batch":12,"count":10,"first":12,"last":21,"created_at":"2026-03-01T09:30:00.000Z"}"#;
    let running = batch("running", r#""running":10"#, "");
    stub.on("POST /api/jobs/resize", "201 Created", JSON, made)
        .on("GET /api/batches/12?wait=1s", "200 OK", JSON, &running)
        .on("GET /api/batches/12", "200 OK", JSON, &running);
    let said = run(&mut stub.longshore(&["run", "resize", "--count", "10", "--wait=50ms", "-o", "name"]));
    assert_eq!((said.code, said.out.as_str()), (124, "12\n"), "{said:?}");
    assert!(said.err.contains("error: batch 12 has not ended after 50ms"), "{said:?}");
}

#[test]
fn waiting_for_a_batch_prints_a_line_for_each_tenth_and_exits_by_its_state() {
    let stub = Stub::new();
    let line = "GET /api/batches/12?wait=1s";
    stub.on(line, "200 OK", JSON, &batch("running", r#""queued":10"#, ""))
        .on(line, "200 OK", JSON, &batch("running", r#""queued":10"#, ""))
        .on(line, "200 OK", JSON, &batch("running", r#""running":2,"succeeded":7,"failed":1"#, ""))
        .on(line, "200 OK", JSON, &{
            let failure =
                job(13, r#""state":"failed","outcome":"failed","exit_code":3,"reason":"exit code 3""#);
            batch("failed", r#""succeeded":9,"failed":1"#, &format!("{ENDED},\"failures\":[{failure}]"))
        });
    let said = run(&mut stub.longshore(&["batch", "12", "--wait"]));
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(
        said.err,
        "longshore: batch 12: 0 of 10 ended\nlongshore: batch 12: 8 of 10 ended, 1 failed\n\
         longshore: batch 12: 10 of 10 ended, 1 failed\n"
    );
    assert!(said.out.contains("members      9 succeeded, 1 failed\n"), "{}", said.out);
    assert!(said.out.ends_with("job 13 failed, exit 3\n"), "{}", said.out);
}

#[test]
fn batches_are_listed_and_operations_on_them_are_confirmed() {
    let stub = Stub::new();
    let of = r#","definition":"extract","definitions_differ":true"#;
    let list = format!("[{}]", batch("failed", r#""succeeded":9,"failed":1"#, &format!("{ENDED}{of}")));
    stub.on("GET /api/batches?limit=50&name=nightly&state=failed", "200 OK", JSON, &list);
    let said = run(&mut stub.longshore(&["batches", "--name", "nightly", "--state", "failed"]));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.out.lines().nth(1).is_some_and(|row| row.contains("nightly  extract and others  failed  10/10")),
        "{}",
        said.out
    );

    let counted = r#"{"dry_run":true,"retry_of":12,"matched":1,"refused":0}"#;
    let made = r#"{"batch":30,"count":1,"first":30,"last":30,"retry_of":12,"dry_run":false,"matched":2,"refused":1,
        "refusals":[{"job":13,"code":"unknown_job","detail":"there is no definition \"x\""}]}"#;
    stub.on("POST /api/batches/12/retry?dry_run=1", "200 OK", JSON, counted)
        .on(
            "POST /api/batches/12/retry",
            "201 Created",
            JSON,
            &made.replace("\"refused\":1", "\"refused\":0"),
        )
        .on("POST /api/batches/12/retry?concurrency=5&max_failures=9", "201 Created", JSON, made)
        .on(
            "POST /api/batches/13/retry?dry_run=1",
            "200 OK",
            JSON,
            &counted.replace("\"matched\":1", "\"matched\":0"),
        );
    let mut unasked = stub.longshore(&["batch", "12", "retry"]);
    let said = run(unasked.stdin(Stdio::null()));
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains(
            "the batch has 1 member that can be retried; to retry them without a question, add --yes"
        ),
        "{said:?}"
    );
    let said = run(&mut stub.longshore(&["batch", "12", "retry", "--dry-run"]));
    let count = "batch 12 has 1 member that can be retried: that is the size of the new batch\n";
    assert_eq!((said.code, said.out.as_str()), (0, count), "{said:?}");
    let said = run(&mut stub.longshore(&["batch", "12", "retry", "--yes", "--key", "k"]));
    let follow = "batch 30 has 1 job, 30 to 30; follow it with: longshore batch 30 --wait\n";
    assert_eq!((said.code, said.out.as_str()), (0, follow), "{said:?}");
    assert!(stub.requests().iter().any(|it| it.head.contains(&"idempotency-key: k".to_owned())));
    let limits = ["batch", "12", "retry", "-y", "--concurrency", "5", "--max-failures", "9", "-o", "name"];
    let said = run(&mut stub.longshore(&limits));
    assert_eq!((said.code, said.out.as_str()), (5, "30\n"), "{said:?}");
    assert_eq!(said.err, "longshore: job 13: there is no definition \"x\"\nlongshore: 1 refused of 2 jobs\n");
    let said = run(&mut stub.longshore(&["batch", "13", "retry"]));
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "no member of batch 13 is left to be retried\n"),
        "{said:?}"
    );
    for flag in
        [&["--key", "k"][..], &["--dry-run"], &["-f"], &["--concurrency", "2"], &["--max-failures", "2"]]
    {
        let said = run(stub.longshore(&["batch", "12", "cancel", "-y"]).args(flag));
        assert!(said.code == 2 && said.err.contains("is for retry, not for cancel"), "{flag:?}: {said:?}");
    }
}

const JOBS: &str = r#"
jobs:
  members:
    runtime: process
    command: ["sh", "-c", "echo $LONGSHORE_BATCH $LONGSHORE_INDEX/$LONGSHORE_BATCH_SIZE; test $LONGSHORE_INDEX -ne 1"]
  failing: {runtime: process, command: ["sh", "-c", "exit 3"]}
  sweep:
    runtime: process
    params: { size: { type: integer, required: true }, key: { secret: true, default: hunter2 } }
    command: [sh, -c, 'test $$1 -ne 2 || exit 3; echo "{\"square\": $$(($$1 * $$1))}" > $$LONGSHORE_RESULT', sh, "${params.size}"]
  held:
    runtime: process
    command:
      - "sh"
      - "-c"
      - "printf begun; until test -e $1; do sleep 0.02; done; echo ' and done'; test $LONGSHORE_INDEX -lt 20 || echo late >&2"
      - "sh"
"#;

/// Runs a verb that asks the server of the cluster.
fn cli(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    cluster.run_cli(&[arguments, &["--server", &cluster.address()]].concat())
}

#[tokio::test]
async fn members_are_told_their_position_also_when_they_are_retried() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "2"]);
    cluster.api().wait_for_ready_worker("w1").await;
    let (code, said) = cli(&cluster, &["run", "members", "--count", "3", "--wait"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("2 succeeded, 1 failed"), "{said}");
    for (job, position) in [(1, "1 0/3\n"), (2, "1 1/3\n"), (3, "1 2/3\n")] {
        let (_, output) = cli(&cluster, &["logs", &job.to_string()]);
        assert!(output.contains(position), "{output}");
    }
    let (code, said) = cli(&cluster, &["batch", "1", "retry", "--yes", "--wait"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("batch 4 has 1 job") && said.contains("1 failed"), "{said}");
    let (_, output) = cli(&cluster, &["logs", "4"]);
    assert!(output.contains("1 1/3\n"), "{output}");
    // The retry has failed too, so it is the one to retry, with the position of the member.
    let (code, said) = cli(&cluster, &["batch", "1", "retry", "--yes", "--follow"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("5[0]") && said.contains("| 1 1/3\n"), "{said}");
    assert_eq!(cluster.api().get("/api/jobs/5").await["retry_of"], 4);
    let (code, said) = cli(&cluster, &["batch", "4", "retry", "--yes", "--wait"]);
    assert_eq!(code, 1, "{said}");
    let (_, output) = cli(&cluster, &["logs", "6"]);
    assert!(output.contains("1 1/3\n"), "{output}");
    let (_, said) = cli(&cluster, &["batch", "4"]);
    assert!(said.contains("retry of") && said.contains("batch 1") && said.contains("retried as"), "{said}");
}

#[tokio::test]
async fn a_batch_with_too_many_failures_is_cancelled_and_its_end_is_an_event() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "1"]);
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    let flags = ["run", "failing", "--count", "2000", "--max-failures", "3", "--wait"];
    let (code, said) = cli(&cluster, &flags);
    assert_eq!(code, 1, "{said}");
    let batch = api.get("/api/batches/1").await;
    assert_eq!(batch["state"], "failed", "{batch}");
    assert_eq!(
        (&batch["definition"], &batch["definitions_differ"]),
        (&"failing".into(), &().into()),
        "{batch}"
    );
    let count = |state: &str| batch["counts"][state].as_u64().unwrap();
    // One slot and its backlog may have begun more than those that had failed.
    assert!((3..20).contains(&count("failed")), "{batch}");
    assert_eq!(count("failed") + count("cancelled"), 2_000, "{batch}");
    let jobs = api.get("/api/jobs?batch=1&state=cancelled&limit=1").await;
    assert_eq!(jobs[0]["reason"], "batch max_failures reached");
    assert_eq!(batch["max_failures_reached"], true);
    assert!(said.contains("failed (stopped)"), "{said}");
    assert!(said.contains("max_failures was reached: members that had not started were cancelled"), "{said}");
    let (_, listed) = cli(&cluster, &["batches"]);
    assert!(listed.contains("failing     failed (stopped)"), "{listed}");
    let events = api.get_bytes("/api/events?batch=1&kind=batch.*&tail=10&follow=0").await;
    let events = String::from_utf8(events).unwrap();
    assert!(events.contains("\"batch.accepted\"") && events.contains("\"batch.ended\""), "{events}");
    // Those that failed, and all that were cancelled because of it, on a worker or not.
    assert_eq!(cli(&cluster, &["batch", "1", "retry", "-y", "-o", "name"]), (0, "2001\n".to_owned()));
    let again = api.get("/api/batches/2001").await;
    assert_eq!(
        (&again["count"], &again["max_failures"], &again["retry_of"]),
        (&2_000.into(), &3.into(), &1.into())
    );
}

#[tokio::test]
async fn the_results_of_all_members_are_printed_by_position() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "2"]);
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    let each: Vec<serde_json::Value> =
        (0..40).map(|size| serde_json::json!({"size": size, "key": "hunter3"})).collect();
    let body = serde_json::json!({"each": each, "concurrency": 2});
    assert_eq!(api.post("/api/jobs/sweep", Some(&body)).await["batch"], 1);
    assert_eq!(cli(&cluster, &["batch", "1", "--wait"]).0, 1);

    let (code, said) = cli(&cluster, &["batch", "1", "results"]);
    assert_eq!(code, 0, "{said}");
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["INDEX", "JOB", "STATE", "PARAMS", "RESULT", "WHY"]);
    assert_eq!(rows.len(), 41, "{said}");
    assert_eq!(rows[4], ["3", "4", "succeeded", "key=***", "size=3", "{\"square\":9}"]);
    assert_eq!(rows[3], ["2", "3", "failed", "key=***", "size=2", "exit", "code", "3"]);

    let (code, said) = cli(&cluster, &["batch", "1", "results", "-o", "ndjson"]);
    let members: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, members.len()), (0, 40));
    assert_eq!((&members[39]["index"], &members[39]["result"]["square"]), (&39.into(), &1_521.into()));
    assert_eq!((&members[2]["state"], &members[2]["exit_code"]), (&"failed".into(), &3.into()));
    let (_, array) = cli(&cluster, &["batch", "1", "results", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&array).unwrap(), members);
    let (code, csv) = cli(&cluster, &["batch", "1", "results", "-o", "csv"]);
    assert!(code == 0 && csv.starts_with("id,name,") && csv.lines().count() == 41, "{csv}");
    assert!(csv.contains(",\"{\"\"square\"\":1521}\",,\r\n"), "{csv}");
    assert!(!csv.contains("hunter") && !array.contains("hunter"));

    // A retry has the position of the member that it repeats.
    assert_eq!(cli(&cluster, &["batch", "1", "retry", "-y", "--wait"]).0, 1);
    let (_, again) = cli(&cluster, &["batch", "41", "results"]);
    let row = again.lines().nth(1).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row[..3], ["2", "41", "failed"], "{again}");

    assert_eq!(cli(&cluster, &["batch", "99", "results"]).0, 4);
    let (code, said) = cli(&cluster, &["batch", "1", "results", "--wait"]);
    assert!(code == 2 && said.contains("--wait is not for results"), "{said}");
    let page = String::from_utf8(api.get_bytes("/batches/1").await).unwrap();
    assert!(page.contains("/jobs.csv?batch=1&amp;results=1"), "{page}");
    let linked = String::from_utf8(api.get_bytes("/jobs.csv?batch=1&results=1&order=oldest").await).unwrap();
    assert_eq!(linked, csv);
}

/// The output of running members is printed at once, that of many members in full, and the exit code says how the batch ended.
#[tokio::test]
async fn the_output_of_all_members_is_followed_until_the_batch_has_ended() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "20"]);
    api.wait_for_ready_worker("w1").await;
    let files = tempfile::tempdir().unwrap();
    let (go, printed) = (files.path().join("go"), files.path().join("printed"));
    let body = serde_json::json!({"count": 30, "args": [go]});
    assert_eq!(api.post("/api/jobs/held", Some(&body)).await["batch"], 1);
    let mut follower = std::process::Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(["batch", "1", "--follow", "-o", "ndjson", "--server", &cluster.address()])
        .stdout(std::fs::File::create(&printed).unwrap())
        .spawn()
        .unwrap();
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&printed).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    testkit::wait_for("sixteen members are followed", async || (lines().len() >= 16).then_some(())).await;
    std::fs::write(&go, "").unwrap();
    let ended = testkit::wait_for("the batch has ended", async || follower.try_wait().unwrap()).await;
    assert_eq!(ended.code(), Some(0));
    let text_of = |index: u64, stream: &str| -> String {
        let of = |line: &&serde_json::Value| line["index"] == index && line["stream"] == stream;
        lines().iter().filter(of).map(|line| line["text"].as_str().unwrap().to_owned()).collect()
    };
    for index in 0..30 {
        assert_eq!(text_of(index, "stdout"), "begun and done\n", "{index}");
        assert_eq!(text_of(index, "stderr"), if index < 20 { "" } else { "late\n" }, "{index}");
    }

    let (code, said) = cli(&cluster, &["run", "members", "--count", "11", "--quiet"]);
    assert_eq!((code, said.as_str()), (0, "31\n"));
    let (code, said) = cli(&cluster, &["batch", "31", "--follow"]);
    assert_eq!(code, 1, "{said}");
    for index in 0..11 {
        let line = format!("{:<6} | 31 {index}/11\n", format!("{}[{index}]", 31 + index));
        assert_eq!(said.matches(&line).count(), 1, "{line} in {said}");
    }
    assert!(said.contains("32[1]  | longshore: job 32 failed"), "{said}");
    assert!(said.contains("longshore: batch 31 failed: 10 succeeded, 1 failed\n"), "{said}");
    let (again, _) = cli(&cluster, &["batch", "31", "--follow"]);
    let (unknown, said) = cli(&cluster, &["batch", "32", "-f"]);
    assert_eq!((again, unknown), (1, 4), "{said}");
    let (wrong, _) = cli(&cluster, &["batch", "31", "--follow", "--wait"]);
    assert_eq!(wrong, 2);
}

/// Members that end by themselves while the rest is cancelled are no refusals: nothing of the batch goes on, as the caller wanted.
#[tokio::test]
async fn members_that_end_meanwhile_do_not_fail_the_cancel_of_their_batch() {
    let jobs = "jobs: { brief: { runtime: fake, environment: { FAKE_SLEEP: 30ms } } }";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let _server = cluster.start_server(&[]).await;
    let words = ["--no-docker", "--allow-fake", "--slots", "40", "--backlog", "40"];
    let _worker = cluster.start_worker("w1", &words);
    cluster.api().wait_for_ready_worker("w1").await;
    assert_eq!(cli(&cluster, &["run", "brief", "--count", "3000"]).0, 0);
    wait_until("some members have ended", async || {
        cluster.api().get("/api/batches/1").await["counts"]["succeeded"].as_u64() > Some(0)
    })
    .await;
    let (code, said) = cli(&cluster, &["batch", "1", "cancel", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("cancelled") && !said.contains("refused"), "{said}");
    let batch = cluster.api().get("/api/batches/1").await;
    assert!(batch["counts"]["cancelled"].as_u64() > Some(0), "the cancel came in the middle: {batch}");
}
