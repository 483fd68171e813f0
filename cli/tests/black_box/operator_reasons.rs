//! Reasons of cordons, drains and pauses, with real processes: who, when and why outlives a restart of the server.

use serde_json::{Value, json};
use testkit::{Cluster, wait_until};

use crate::running::Running;

const JOBS: &str = "version: 1
jobs:
  plain: { runtime: process, command: ['true'] }
  backup: { runtime: process, command: ['true'], concurrency: { limit: 1, group: db } }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_and_a_pause_keep_their_reasons_over_a_restart() {
    let mut running = Running::start(JOBS).await;
    let cordon = running.run_cli(&["cordon", "only", "--reason", "disk swap"]);
    assert_eq!(cordon.code, 0, "{cordon:?}");
    let job = running.api.post("/api/jobs/plain", None).await["id"].to_string();
    let events = running.run_cli(&["events", "--kind", "worker.changed"]);
    assert!(events.out.contains("only: ready, cordoned: disk swap"), "{events:?}");
    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;

    let table = running.run_cli(&["workers"]);
    assert!(
        table.out.contains("ready (cordoned)") && table.err.contains("only is cordoned since 20"),
        "{table:?}"
    );
    assert!(table.err.contains(": disk swap"), "{table:?}");
    let shown = running.run_cli(&["workers", "only"]);
    assert!(shown.out.contains("cordon") && shown.out.contains(": disk swap"), "{shown:?}");
    let why = running.run_cli(&["explain", &job]);
    assert!(why.out.contains("are cordoned or draining: only, cordoned: disk swap"), "{why:?}");
    assert!(why.out.contains("it is cordoned (since 20"), "{why:?}");

    let uncordoned = running.run_cli(&["uncordon", "only", "-o", "json"]);
    let worker: Value = serde_json::from_str(&uncordoned.out).unwrap();
    assert_eq!((&worker["cordoned"], &worker["cordon"]), (&json!(false), &Value::Null), "{worker}");

    let paused = running.run_cli(&["pause", "plain", "--reason", "the database moves"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    let again = running.run_cli(&["pause", "plain", "--reason", "the database moves"]);
    assert_eq!(again.out, "plain was paused already\n", "{again:?}");
    let job = running.api.post("/api/jobs/plain", None).await["id"].to_string();
    let why = running.run_cli(&["explain", &job]);
    assert!(why.out.contains("the definition plain is paused since 20"), "{why:?}");
    assert!(why.out.contains(": the database moves"), "{why:?}");
    let refused = running.run_cli(&["drain", "only", "--reason", "two\nlines"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("the reason has the character U+000A"), "{refused:?}");
    let empty = running.run_cli(&["cordon", "only", "--reason", ""]);
    assert_eq!(empty.code, 2, "{empty:?}");
    assert!(empty.err.contains("the reason is empty") && empty.err.contains("leave it out"), "{empty:?}");
    assert_eq!(running.api.get("/api/workers").await[0]["cordoned"], false, "it changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_has_the_name_of_the_token_and_is_in_the_audit_log() {
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &[]).await;
    let anna = cluster.make_token(&admin, "anna", &["--role", "operator"]);
    let (code, text) = cluster.run_as(&anna, &["pause", "--group", "db", "--reason", "the database moves"]);
    assert_eq!(code, 0, "{text}");
    let (_, definition) = cluster.run_as(&admin, &["definitions", "backup", "-o", "json"]);
    assert!(definition.contains(r#""by": "anna""#), "{definition}");
    assert!(definition.contains(r#""reason": "the database moves""#), "{definition}");
    wait_until("the audit log has the reason", async || {
        let (_, audit) = cluster.run_as(&admin, &["audit", "--about", "group db", "-o", "json"]);
        audit.contains("reason: the database moves")
    })
    .await;
}
