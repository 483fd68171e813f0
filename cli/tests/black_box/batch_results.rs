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
fn members_whose_state_changes_between_two_reads_come_once_and_in_order() {
    let stub = Stub::new();
    let list = |ids: &[u64]| {
        let jobs: Vec<String> = ids.iter().map(|id| job(*id, r#""state":"failed""#)).collect();
        format!("[{}]", jobs.join(","))
    };
    let page = |ids: &[u64], cursor: &str| {
        let (body, query) = (list(ids), "batch=1&state=failed&limit=500");
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
    // Two pages end at 6 and 4.
    let ends = "GET /api/jobs?batch=1&state=failed&limit=500";
    stub.on_raw(ends, page(&[8, 6], "c6").as_bytes())
        .on_raw(&format!("{ends}&cursor=c6"), page(&[5, 4], "c4").as_bytes())
        .on(&format!("{ends}&cursor=c4"), "200 OK", JSON, &list(&[2]));
    // Meanwhile 7 and 9 have failed, 6 and 4 are repeated, and pages end elsewhere.
    let results = "GET /api/jobs?batch=1&state=failed&results=1&limit=500";
    stub.on(&format!("{results}&cursor=c4"), "200 OK", JSON, &list(&[2]))
        .on(&format!("{results}&cursor=c6"), "200 OK", JSON, &list(&[5, 2]))
        .on_raw(results, page(&[9, 8], "c8").as_bytes())
        .on(&format!("{results}&cursor=c8"), "200 OK", JSON, &list(&[7, 5, 2]));
    let said = run(&mut stub.longshore(&["batch", "1", "results", "--state", "failed", "-o", "json"]));
    let members: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    let ids: Vec<_> = members.iter().map(|member| member["id"].as_u64().unwrap()).collect();
    assert_eq!((said.code, ids), (0, vec![2, 5, 7, 8, 9]), "{said:?}");
    // Numbers alone need no results.
    let said = run(&mut stub.longshore(&["batch", "1", "results", "--state", "failed", "-o", "name"]));
    assert_eq!((said.code, said.out.as_str()), (0, "2\n4\n5\n6\n8\n"), "{said:?}");
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
