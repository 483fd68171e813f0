//! The formats of earlier versions: `frozen/VERSION` has a backup, the answers of the API at that time, and its description.
//!
//! This version restores each backup, migrates its store, and gives the same answers. `cargo xtask freeze VERSION` writes such a directory
//! with this version; a directory of a release never changes.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use testkit::{Cluster, wait_until};

const JOBS: &str = r#"version: 1
jobs:
  hello:
    runtime: process
    params: { name: { type: string, default: world } }
    tags: [press]
    command: [sh, -c, 'echo "hello $PARAM_NAME"; echo careful >&2']
  fails: { runtime: process, command: [sh, -c, 'echo no; exit 3'], retry: { max: 1, backoff: { initial: 1s } } }
  waits: { runtime: process, concurrency: 1, priority: 7, command: ["true"] }
  nightly: { runtime: process, schedule: "0 3 * * *", command: ["true"] }
"#;

/// Every answer of the API that is kept. Output is text, all else JSON.
const PATHS: [&str; 11] = [
    "/api/jobs?limit=100",
    "/api/jobs/1",
    "/api/jobs/1/logs",
    "/api/jobs/2",
    "/api/jobs/2/logs?attempt=1",
    "/api/jobs/3",
    "/api/batches",
    "/api/batches/3",
    "/api/definitions/hello",
    "/api/definitions/nightly",
    "/openapi.json",
];

/// Fields that tell about the present, not about what was stored.
const OF_THE_PRESENT: [&str; 6] = ["pending_reason", "next", "next_fires", "timeline", "version", "info"];

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../frozen")
}

async fn answers(cluster: &Cluster) -> Map<String, Value> {
    let mut answers = Map::new();
    for path in PATHS {
        let bytes = cluster.api().get_bytes(path).await;
        let text = String::from_utf8(bytes).unwrap();
        let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
        answers.insert(path.into(), if path == "/openapi.json" { outline(&answer) } else { answer });
    }
    answers
}

/// The places at which an answer lacks what it had, or has something else there. More than it had is no difference.
fn differences(place: &str, was: &Value, is: &Value) -> Vec<String> {
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => was
            .iter()
            .filter(|(key, _)| !OF_THE_PRESENT.contains(&key.as_str()))
            .flat_map(|(key, was)| {
                differences(&format!("{place}.{key}"), was, is.get(key).unwrap_or(&Value::Null))
            })
            .collect(),
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => was
            .iter()
            .zip(is)
            .enumerate()
            .flat_map(|(number, (was, is))| differences(&format!("{place}[{number}]"), was, is))
            .collect(),
        _ if was == is => Vec::new(),
        _ => vec![format!("{place}: was {was}, is {is}")],
    }
}

/// The operations and fields of a description of the API, without their texts.
fn outline(api: &Value) -> Value {
    let keys = |value: &Value, below: &dyn Fn(&Value) -> Value| -> Value {
        let fields = value.as_object().into_iter().flatten();
        fields.map(|(key, value)| (key.clone(), below(value))).collect::<Map<_, _>>().into()
    };
    let name_only = |_: &Value| json!({});
    json!({
        "paths": keys(&api["paths"], &|methods| keys(methods, &name_only)),
        "components": { "schemas": keys(&api["components"]["schemas"], &|schema| {
            json!({ "properties": keys(&schema["properties"], &name_only) })
        }) },
    })
}

/// Operations and fields of answers that a description of the API had and another one has not.
fn missing_in_api(was: &Value, is: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (path, methods) in object(&was["paths"]) {
        for (method, _) in object(&methods) {
            if is["paths"][&path][&method].is_null() {
                missing.push(format!("{method} {path}"));
            }
        }
    }
    for (name, schema) in object(&was["components"]["schemas"]) {
        for (property, _) in object(&schema["properties"]) {
            if is["components"]["schemas"][&name]["properties"][&property].is_null() {
                missing.push(format!("{name}.{property}"));
            }
        }
    }
    missing
}

#[tokio::test]
async fn a_backup_of_every_frozen_version_is_restored_and_answers_as_it_did() {
    for entry in std::fs::read_dir(frozen()).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        let version = entry.file_name().into_string().unwrap();
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "");
        std::fs::copy(entry.path().join("jobs.yaml"), cluster.path("jobs.yaml")).unwrap();
        std::fs::create_dir(cluster.path("backup")).unwrap();
        let unpack =
            ["-xzf", &text(&entry.path().join("backup.tar.gz")), "-C", &text(&cluster.path("backup"))];
        assert!(Command::new("tar").args(unpack).status().unwrap().success());
        let [backup, data] = ["backup", "data"].map(|name| text(&cluster.path(name)));
        let (code, said) = cluster.run_cli(&["restore", "--from", &backup, "--data", &data]);
        assert_eq!(code, 0, "{version}: {said}");
        let _server = cluster.start_server(&[]).await;
        let kept = std::fs::read_to_string(entry.path().join("answers.json")).unwrap();
        let kept: Map<String, Value> = serde_json::from_str(&kept).unwrap();
        for (path, was) in &kept {
            let bytes = cluster.api().get_bytes(path).await;
            let is = String::from_utf8(bytes).unwrap();
            let is = serde_json::from_str(&is).unwrap_or(Value::String(is));
            let found = match path.as_str() {
                "/openapi.json" => missing_in_api(was, &is),
                path => differences(path, was, &is),
            };
            assert!(found.is_empty(), "{version}: {}", found.join("\n"));
        }
        // Times of receipt are unknown for output of the first versions; the text is the same.
        let timed = cluster.api().get_bytes("/api/jobs/1/logs?timestamps=1").await;
        let timed = String::from_utf8(timed).unwrap();
        let plain = timed.split_inclusive('\n').map(|line| line.split_once(' ').unwrap().1);
        assert_eq!(kept["/api/jobs/1/logs"], plain.collect::<String>(), "{version}: {timed}");
        // Work that waited at that time is done now. The name of the old worker is its own for a while.
        let _worker = cluster.start_worker("w2", &["--no-docker", "--allow-process"]);
        cluster.api().wait_for_job(6, |job| job["state"] == "succeeded").await;
    }
}

#[test]
fn a_lost_field_and_another_value_are_differences_and_a_new_field_is_none() {
    let was = json!({ "id": 1, "attempts": [{ "exit_code": 3 }], "pending_reason": "no worker" });
    let is = json!({ "id": 1, "attempts": [{ "exit_code": 3, "new": true }], "pending_reason": null });
    assert_eq!(differences("job", &was, &is), Vec::<String>::new());
    let is = json!({ "id": 1, "attempts": [{ "exit": 3 }] });
    assert_eq!(differences("job", &was, &is), ["job.attempts[0].exit_code: was 3, is null"]);
    let api = json!({
        "paths": { "/api/jobs": { "get": {}, "post": {} } },
        "components": { "schemas": { "Job": { "properties": { "id": {} } } } },
    });
    assert_eq!(missing_in_api(&api, &api), Vec::<String>::new());
    let less = json!({ "paths": { "/api/jobs": { "get": {} } }, "components": { "schemas": { "Job": {} } } });
    assert_eq!(missing_in_api(&api, &less), ["post /api/jobs", "Job.id"]);
}

/// Writes the directory of a version, if `cargo xtask freeze` asks for it.
#[tokio::test]
async fn a_version_is_frozen_if_that_is_asked_for() {
    let Ok(version) = std::env::var("LONGSHORE_FREEZE") else { return };
    let to = frozen().join(version);
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let mut server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("w1", &["--no-docker", "--allow-process"]);
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    let job = json!({ "params": { "name": "reader" }, "labels": { "customer": "acme" }, "priority": 3 });
    api.post("/api/jobs/hello", Some(&job)).await;
    api.wait_for_job(1, |job| job["state"] == "succeeded").await;
    api.post("/api/jobs/fails", None).await;
    api.wait_for_job(2, |job| job["state"] == "failed").await;
    let batch: Vec<Value> =
        ["a", "b", "c"].map(|name| json!({ "name": "hello", "params": { "name": name } })).into();
    api.post("/api/jobs", Some(&batch.into())).await;
    api.wait_for_job(5, |job| job["state"] == "succeeded").await;
    wait_until("all output is there", async || {
        let output = api.get_bytes("/api/jobs/5/logs").await;
        String::from_utf8(output).unwrap().contains("hello c")
    })
    .await;
    worker.terminate().await;
    api.post("/api/jobs/waits", Some(&json!({ "args": ["later"] }))).await;

    std::fs::create_dir_all(&to).unwrap();
    std::fs::write(to.join("jobs.yaml"), JOBS).unwrap();
    let mut kept = serde_json::to_string_pretty(&Value::Object(answers(&cluster).await)).unwrap();
    kept.push('\n');
    std::fs::write(to.join("answers.json"), kept).unwrap();
    server.terminate().await;
    let [backup, data] = ["backup", "data"].map(|name| text(&cluster.path(name)));
    let (code, said) = cluster.run_cli(&["backup", "--data", &data, "--to", &backup]);
    assert_eq!(code, 0, "{said}");
    let pack = ["--owner=0", "--group=0", "-czf", &text(&to.join("backup.tar.gz")), "-C", &backup, "."];
    assert!(Command::new("tar").args(pack).status().unwrap().success());
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
