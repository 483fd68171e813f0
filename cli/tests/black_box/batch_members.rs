//! Members of batches by their index: `1[3]`.

use serde_json::Value;

use crate::running::Running;
use crate::stub::{Stub, run};

const JOBS: &str = "version: 1
jobs:
  wait: { runtime: process, command: ['true'], requires: { gpu: a } }
  odd:
    runtime: process
    command: [sh, -c, 'echo member $LONGSHORE_INDEX of $LONGSHORE_BATCH; exit $((LONGSHORE_INDEX % 2))']
";

/// The ids of a list, as the program prints them.
fn ids(text: &str) -> Vec<u64> {
    text.lines().map(|line| line.parse().expect("an id")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_named_by_its_index_wherever_a_job_is_named() {
    let running = Running::start(JOBS).await;
    assert_eq!(running.run_cli(&["run", "odd", "--count", "6", "--wait", "-q"]).code, 1);
    assert_eq!(running.run_cli(&["logs", "1[3]"]).out, "member 3 of 1\n");
    let shown = running.run_cli(&["show", "1[3]"]).out;
    assert!(shown.starts_with("job          4\n") && shown.contains("\nindex        3\n"), "{shown}");
    assert_eq!(running.run_cli(&["wait", "1[0,2]", "1[4-5]"]).out.lines().count(), 4);
    assert_eq!(running.run_cli(&["grep", "member", "--job", "1[5]"]).out.lines().count(), 1);
    assert!(running.run_cli(&["pipeline", "1[1]"]).out.starts_with("2 odd failed"));
    let explained: Value =
        serde_json::from_str(&running.run_cli(&["explain", "1[1]", "-o", "json"]).out).unwrap();
    assert_eq!(explained["id"], 2);
    let retried = running.run_cli(&["retry", "1[5,1-3]", "-o", "name"]);
    assert_eq!((retried.code, ids(&retried.out).len()), (0, 4), "{retried:?}");
    let of =
        ids(&retried.out).into_iter().map(|id| running.run_cli(&["show", &id.to_string(), "-o", "json"]).out);
    let of = of.map(|json| serde_json::from_str::<Value>(&json).unwrap()["retry_of"].as_u64().unwrap());
    assert_eq!(of.collect::<Vec<_>>(), [2, 3, 4, 6], "in the order of their indexes");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_retried_batch_have_the_index_of_those_that_they_repeat() {
    let running = Running::start(JOBS).await;
    assert_eq!(running.run_cli(&["run", "odd", "--count", "6", "--wait", "-q"]).code, 1);
    assert_eq!(running.run_cli(&["batch", "1", "retry", "-y", "--wait", "-q"]).code, 1);
    assert_eq!(running.run_cli(&["logs", "7[5]"]).out, "member 5 of 1\n");
    let list = running.run_cli(&["ls", "--batch", "7"]).out;
    let columns = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = list.lines().map(columns).collect();
    assert_eq!(rows, [["ID", "INDEX"], ["9", "5"], ["8", "3"], ["7", "1"]]);
    assert!(!running.run_cli(&["ls"]).out.contains("INDEX"), "among all jobs it means little");
    let some = running.run_cli(&["ls", "--batch", "1", "--index", "0-1,5", "-q"]);
    assert_eq!(ids(&some.out), [6, 2, 1]);
    let listed = running.api.get("/api/jobs?batch=7&index=3").await;
    assert_eq!((listed[0]["id"].as_u64(), listed[0]["index"].as_u64()), (Some(8), Some(3)));
    let batch = running.api.get("/api/batches/7").await;
    assert_eq!(batch["failures"][0]["index"], 1);
    let shown = running.run_cli(&["batch", "7"]).out;
    assert!(shown.contains("job 7 [1] failed, exit 1"), "{shown}");
    let page = running.api.get_bytes("/batches/7").await;
    assert!(String::from_utf8_lossy(&page).contains("[1]</span>"));
    for (job, code, text) in [
        (
            "7[0]",
            4,
            "batch 7 has 3 members, and none with the index 0 [job_not_found]; it is a retry of batch 1",
        ),
        (
            "1[6]",
            4,
            "batch 1 has 6 members, and none with the index 6 [job_not_found]; its indexes are 0 to 5",
        ),
        ("1[2-9]", 4, "batch 1 has 6 members, and none with the index 6"),
        ("2[0]", 4, "there is no batch 2"),
        ("7[0-0]", 4, "none with the index 0"),
        ("7[2-2,5]", 4, "none with the index 2"),
        ("7[6-9]", 4, "no member of batch 7 with the index 6-9 is kept"),
        ("1[x]", 2, "positions in a batch are written 3, 3-9 or 3,7"),
    ] {
        let refused = running.run_cli(&["retry", job]);
        assert!(refused.code == code && refused.err.contains(text), "{job}: {refused:?}");
    }
    let several = running.run_cli(&["show", "1[2,3]"]);
    assert!(several.code == 2 && several.err.contains("one job is needed here"), "{several:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_attempts_of_all_members_are_one_table() {
    let running = Running::start(JOBS).await;
    assert_eq!(running.run_cli(&["run", "odd", "--count", "6", "--wait", "-q"]).code, 1);
    // Of the members 1, 3 and 5, which fail again: 3 is retried by the batch twice, and 5 at last by itself.
    assert_eq!(running.run_cli(&["batch", "1", "retry", "-y", "--wait", "-q"]).code, 1);
    assert_eq!(running.run_cli(&["retry", "7[5]", "--wait", "-q"]).code, 1);
    assert_eq!(running.run_cli(&["retry", "7[3]", "--wait", "-q"]).code, 1);
    let row = |it: &Value| (it["index"].as_u64().unwrap(), it["id"].as_u64().unwrap());
    let latest = |flags: &[&str]| -> Vec<(u64, u64)> {
        let said = running.run_cli(&[&["batch", "1", "results", "--latest", "-o", "json"], flags].concat());
        let rows: Vec<Value> = serde_json::from_str(&said.out).unwrap();
        rows.iter().map(row).collect()
    };
    assert_eq!(latest(&[]), [(0, 1), (1, 7), (2, 3), (3, 11), (4, 5), (5, 10)]);
    assert_eq!(latest(&["--state", "failed"]), [(1, 7), (3, 11), (5, 10)]);
    assert_eq!(latest(&["--outcome", "timed_out"]), []);
    let csv = running.run_cli(&["batch", "1", "results", "--latest", "-o", "csv"]).out;
    let ids: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(ids, ["1", "7", "3", "11", "5", "10"], "by position");
    let page = running.api.get("/api/jobs?batch=1&latest=1&limit=2").await;
    let rows: Vec<_> = page.as_array().unwrap().iter().map(row).collect();
    assert_eq!(rows, [(5, 10), (4, 5)], "the last position first");
    let some = running.api.get("/api/jobs?batch=7&latest=1&index=3-5&order=oldest").await;
    let rows: Vec<_> = some.as_array().unwrap().iter().map(row).collect();
    assert_eq!(rows, [(3, 11), (5, 10)], "of the retry");
    for operation in ["cancel", "retry"] {
        let refused = running.run_cli(&["batch", "1", operation, "-y", "--latest"]);
        assert!(refused.code == 2 && refused.err.contains("--latest is for results"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn some_members_are_cancelled_by_their_index() {
    let running = Running::start(JOBS).await;
    assert_eq!(running.run_cli(&["run", "wait", "--count", "6", "-q"]).out, "1\n");
    assert_eq!(running.run_cli(&["cancel", "1[1-2,5]"]).code, 0);
    let cancelled = running.run_cli(&["ls", "--batch", "1", "--state", "cancelled", "-q"]);
    assert_eq!(ids(&cancelled.out), [6, 3, 2]);
    // As a filter of many: the rest of the batch is left alone.
    let response = running.api.post("/api/jobs/cancel?batch=1&index=0", None).await;
    assert_eq!(response["done"], 1);
    let cancelled = running.run_cli(&["ls", "--batch", "1", "--state", "cancelled", "-q"]);
    assert_eq!(ids(&cancelled.out), [6, 3, 2, 1]);
}

#[test]
fn an_id_needs_no_request_of_its_own() {
    let stub = Stub::new();
    let refused = run(&mut stub.longshore(&["show", "1[3"]));
    assert!(refused.code == 2 && refused.err.contains("'1064[3-9]'"), "{refused:?}");
}
