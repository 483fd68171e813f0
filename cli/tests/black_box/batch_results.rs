//! `longshore batch`: failures by outcome, and results of many members, of some of them, and in their order.

use serde_json::{Value, json};

use crate::running::Running;
use crate::stub::{JSON, Stub, job, run};

const JOBS: &str = "version: 1
jobs:
  wait: { runtime: process, command: ['true'], requires: { gpu: a } }
  mixed:
    runtime: process
    command: [sh, -c, 'test $LONGSHORE_INDEX != 1 || sleep 60; exit $LONGSHORE_INDEX']
    timeout: 5s
";

#[tokio::test(flavor = "multi_thread")]
async fn results_of_many_members_come_in_their_order() {
    let running = Running::start(JOBS).await;
    // More than two pages, of which no member runs.
    assert_eq!(running.run_cli(&["run", "wait", "--count", "1100", "-q"]).out, "1\n");
    assert_eq!(running.run_cli(&["batch", "1", "cancel", "-y"]).code, 0);
    let expected: Vec<u64> = (1..=1_100).collect();
    let names = running.run_cli(&["batch", "1", "results", "-o", "name"]);
    let ids: Vec<u64> = names.out.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(ids, expected);
    let array = running.run_cli(&["batch", "1", "results", "-o", "json"]).out;
    let members: Vec<Value> = serde_json::from_str(&array).unwrap();
    assert_eq!(members.iter().map(|it| it["index"].as_u64().unwrap() + 1).collect::<Vec<_>>(), expected);
    assert_eq!(array, format!("{}\n", serde_json::to_string_pretty(&members).unwrap()), "as one array");
    let table = running.run_cli(&["batch", "1", "results", "--state", "cancelled"]).out;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 1_101, "one heading");
    let row = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(row(lines[0]), ["INDEX", "JOB", "STATE"]);
    assert_eq!(row(lines[1_100]), ["1099", "1100", "cancelled"]);
    let none = running.run_cli(&["batch", "1", "results", "--state", "succeeded", "-o", "json"]);
    assert_eq!((none.code, none.out.as_str()), (0, "[]\n"));
}

#[test]
fn a_page_of_results_is_printed_before_the_next_one_is_read() {
    let stub = Stub::new();
    let list = |ids: &[u64]| {
        let jobs: Vec<String> = ids.iter().map(|id| job(*id, r#""state":"failed""#)).collect();
        format!("[{}]", jobs.join(","))
    };
    let query = "batch=1&order=oldest&state=failed&results=1&limit=500";
    let page = |ids: &[u64], cursor: &str| {
        let body = list(ids);
        let link = format!("link: </api/jobs?{query}&cursor={cursor}>; rel=\"next\"");
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\n{link}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let batch = json!({
        "id": 1, "state": "failed", "created_at": "2026-03-01T09:30:00.000Z", "count": 9, "progress": 1.0,
        "counts": { "scheduled": 0, "queued": 0, "assigned": 0, "running": 0, "quarantined": 0, "succeeded": 4,
            "failed": 5, "cancelled": 0, "expired": 0, "lost": 0 },
    });
    stub.on("GET /api/batches/1", "200 OK", JSON, &batch.to_string());
    let results = format!("GET /api/jobs?{query}");
    // A page of which no job fits is no end of the list.
    stub.on_raw(&results, page(&[2, 4], "c4").as_bytes())
        .on_raw(&format!("{results}&cursor=c4"), page(&[], "c6").as_bytes())
        .on(&format!("{results}&cursor=c6"), "200 OK", JSON, &list(&[7]));
    let words = ["batch", "1", "results", "--state", "failed"];
    let said = run(&mut stub.longshore(&[&words[..], &["-o", "json"]].concat()));
    let members: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    let ids: Vec<_> = members.iter().map(|member| member["id"].as_u64().unwrap()).collect();
    assert_eq!((said.code, ids), (0, vec![2, 4, 7]), "{said:?}");
    // The next page is refused.
    let stub = Stub::new();
    stub.on("GET /api/batches/1", "200 OK", JSON, &batch.to_string());
    stub.on_raw(&results, page(&[2, 4], "c4").as_bytes());
    let said = run(&mut stub.longshore(&words));
    let lines = said.out.lines().count();
    assert!(said.code != 0 && lines == 3, "the heading and the first page: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_counted_and_selected_by_outcome() {
    let running = Running::start(JOBS).await;
    let said = running.run_cli(&["run", "mixed", "--count", "3", "--wait"]);
    assert_eq!(said.code, 1, "{said:?}");
    let batch = running.api.get("/api/batches/1").await;
    assert_eq!(batch["outcomes"], json!({ "failed": 1, "timed_out": 1 }), "{batch}");
    let shown = running.run_cli(&["batch", "1"]).out;
    assert!(shown.contains("outcomes     1 failed, 1 timed_out"), "{shown}");
    let page = String::from_utf8(running.api.get_bytes("/batches/1").await).unwrap();
    assert!(page.contains("outcome=timed_out"), "{page}");
    let results = |flags: &[&str]| {
        let said = running.run_cli(&[&["batch", "1", "results", "-o", "name"], flags].concat());
        assert_eq!(said.code, 0, "{said:?}");
        said.out
    };
    assert_eq!(results(&["--state", "failed"]), "2\n3\n");
    assert_eq!(results(&["--outcome", "timed_out"]), "2\n");
    assert_eq!(results(&["--state", "succeeded", "--state", "cancelled"]), "1\n");
    let csv = running.run_cli(&["batch", "1", "results", "--outcome", "timed_out", "-o", "csv"]);
    assert_eq!((csv.code, csv.out.lines().count()), (0, 2), "{csv:?}");
    assert_eq!(running.run_cli(&["batch", "1", "results", "--state", "odd"]).code, 2);
    for operation in ["cancel", "retry"] {
        let refused = running.run_cli(&["batch", "1", operation, "-y", "--state", "failed"]);
        assert!(refused.code == 2 && refused.err.contains("--state is for results"), "{refused:?}");
    }
}
