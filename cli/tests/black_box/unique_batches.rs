//! Unique keys of batches, with real processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::process::{Command, Stdio};

use serde_json::json;
use testkit::wait_until;

use crate::running::Running;
use crate::stub::{JSON, Stub, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longshore");

/// The blocks of the recipe of docs/batches-and-pipelines.md: definitions, and a script.
fn recipe() -> (String, String) {
    let page = include_str!("../../../docs/batches-and-pipelines.md");
    let (_, recipe) = page.split_once("**A newer push replaces the older pipeline.**").unwrap();
    let block = |kind: &str| {
        let (_, block) = recipe.split_once(&format!("```{kind}\n")).unwrap();
        block.split_once("```").unwrap().0.to_owned()
    };
    (block("yaml"), block("sh"))
}

/// The recipe of the docs, with plain processes instead of containers: the build of the first push waits for a file.
#[tokio::test(flavor = "multi_thread")]
async fn the_recipe_of_the_docs_replaces_the_older_pipeline() {
    let (definitions, script) = recipe();
    let (build, test) =
        ("{ image: busybox, command: [echo, build] }", "{ image: busybox, command: [echo, test] }");
    assert!(definitions.contains(build) && definitions.contains(test), "{definitions}");
    let running = Running::start("version: 1\njobs: { other: { runtime: fake } }\n").await;
    let home = running.cluster.path("");
    let waits = format!("cd {}; echo run >> builds; while [ ! -e go ]; do sleep 0.02; done", home.display());
    let definitions = definitions
        .replace(build, &format!("{{ runtime: process, command: [sh, -c, '{waits}'] }}"))
        .replace(test, "{ runtime: process, command: ['true'] }");
    std::fs::write(running.cluster.path("jobs.yaml"), format!("version: 1\n{definitions}")).unwrap();
    assert_eq!(running.run_cli(&["reload"]).code, 0);

    let script = script.replace("longshore ", &format!("{PROGRAM} "));
    let push = |commit: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", &script]).current_dir(&home).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("COMMIT", commit).env("BRANCH", "main");
        command.env("LONGSHORE_SERVER", format!("http://{}", running.cluster.address()));
        command
    };
    let first = push("1a2b").spawn().unwrap();
    wait_until("the first build runs", async || running.cluster.path("builds").exists()).await;
    running.api.wait_for_job(1, |job| job["state"] == "running").await;
    let second = push("3c4d").spawn().unwrap();
    let ended = running.api.wait_for_job(1, |job| !job["ended_at"].is_null()).await;
    assert_eq!(
        (&ended["state"], &ended["reason"]),
        (&json!("cancelled"), &json!("cancelled by batch 3, which replaces it"))
    );
    let first = first.wait_with_output().unwrap();
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    std::fs::write(running.cluster.path("go"), "").unwrap();
    let second = second.wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(0), "{second:?}");
    let note = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(note.contains("batch 1 is being cancelled, because batch 3 replaces it"), "{note}");
    let listed = running.run_cli(&["batches", "--unique-key", "ci/main", "-q"]);
    assert_eq!(listed.out, "3\n1\n");
    let shown = running.run_cli(&["batch", "1"]).out;
    assert!(
        shown.contains("unique key") && shown.contains("ci/main") && shown.contains("replaced by"),
        "{shown}"
    );
}

#[test]
fn a_batch_that_has_the_key_is_named_and_a_refusal_is_a_conflict() {
    let stub = Stub::new();
    let existing = r#"{"batch":7,"count":2,"first":7,"last":8,"existing":true}"#;
    stub.on("POST /api/jobs/step", "200 OK", JSON, existing);
    let words = ["run", "step", "--count", "2", "--batch-unique-key", "main", "--on-duplicate"];
    let told = run(&mut stub.longshore(&[&words[..], &["return"]].concat()));
    let note = "longshore: batch 7 has the unique key; no second batch was created\n";
    assert_eq!((told.code, told.err.as_str()), (0, note), "{told:?}");
    let body = stub.requests()[0].body.clone();
    let sent = r#"{"batch_unique_key":"main","count":2,"on_duplicate":"return"}"#;
    assert_eq!(body, sent);
    let problem = r#"{"type":"/problems/duplicate_batch","title":"a batch that has not ended has the unique key","status":409,
        "code":"duplicate_batch","detail":"batch 7 has the unique key of this one","batch":7}"#;
    let stub = Stub::new();
    stub.on("POST /api/jobs/step", "409 Conflict", "application/problem+json", problem);
    let told = run(&mut stub.longshore(&[&words[..], &["reject"]].concat()));
    assert!(told.code == 5 && told.err.contains("batch 7 has the unique key"), "{told:?}");
    let told = run(&mut stub.longshore(&["run", "step", "--count", "2", "--on-duplicate", "reject"]));
    assert!(told.code == 2 && told.err.contains("--batch-unique-key"), "{told:?}");
}
