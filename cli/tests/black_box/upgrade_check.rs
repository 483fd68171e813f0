//! `longshore upgrade-check` with real data directories, units and servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeMap;
use std::path::Path;

use testkit::Database;

use crate::running::Running;
use crate::stub::{CliOutput, JSON, Stub, longshore, run};

const JOBS: &str = "version: 1\njobs: { rests: { runtime: process, command: [sleep, '600'] } }\n";

/// Each file of a directory with its length and the time of its last change.
fn files(directory: &Path) -> BTreeMap<std::path::PathBuf, (u64, std::time::SystemTime)> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let facts = |entry: std::fs::DirEntry| {
        let found = entry.metadata().unwrap();
        (entry.path(), (found.len(), found.modified().unwrap()))
    };
    entries.map(facts).collect()
}

/// The verdict about each subject.
fn verdicts(said: &CliOutput) -> BTreeMap<String, String> {
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let findings = json["findings"].as_array().unwrap().iter();
    let text = |finding: &serde_json::Value, key: &str| finding[key].as_str().unwrap().to_owned();
    findings.map(|finding| (text(finding, "what"), text(finding, "verdict"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_this_build_needs_nothing_while_its_server_runs_and_after() {
    let mut running = Running::start(JOBS).await;
    let (data, jobs) = (running.cluster.path("data"), running.cluster.path("jobs.yaml"));
    let [data, jobs] = [&data, &jobs].map(|path| path.to_str().unwrap().to_owned());
    let check = ["upgrade-check", "--data", &data, "--jobs", &jobs, "-o", "json"];
    let said = running.run_cli(&check);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert!(running.api.get("/version").await["wire_format"].as_u64().is_some_and(|format| format > 0));
    let found = verdicts(&said);
    for what in ["store", "room", "jobs", "server", "workers", "lock"] {
        assert_eq!(found.get(what).map(String::as_str), Some("ok"), "{what}: {said:?}");
    }
    assert!(
        said.out.contains("nothing to migrate") && said.out.contains("1 connected, with wire format"),
        "{said:?}"
    );

    running.server.terminate().await;
    let before = files(Path::new(&data));
    let alone = run(longshore(&check[..5]).env_remove("LONGSHORE_SERVER"));
    assert_eq!((alone.code, alone.err.as_str()), (0, ""), "{alone:?}");
    assert_eq!(files(Path::new(&data)), before, "it changed the data directory");
    let away = running.run_cli(&check);
    assert_eq!((away.code, verdicts(&away)["server"].as_str()), (1, "fail"), "{away:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_store_is_refused() {
    let mut running = Running::start(JOBS).await;
    running.server.terminate().await;
    let data = running.cluster.path("data");
    Database::execute(&data, "PRAGMA user_version = 9999");
    let said = run(longshore(&["upgrade-check", "--data"]).arg(&data).env_remove("LONGSHORE_SERVER"));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("fail  store") && said.out.contains("written by a newer Longshore"),
        "{said:?}"
    );
}

#[test]
fn a_unit_brings_settings_and_jobs_file_and_its_unknown_flags_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (settings, jobs, unit) = (path("server.yaml"), path("jobs.yaml"), path("longshore-server.service"));
    std::fs::write(&jobs, JOBS).unwrap();
    std::fs::write(&settings, format!("jobs: {}\nlease: 20s\n", jobs.display())).unwrap();
    let write_unit = |flags: &str| {
        let start = format!(
            "ExecStart=/usr/bin/longshore server --config {} --data {} {flags}\n",
            settings.display(),
            path("data").display()
        );
        std::fs::write(&unit, format!("[Service]\n{start}")).unwrap();
    };
    let check = || {
        run(longshore(&["upgrade-check", "-o", "json", "--unit"]).arg(&unit).env_remove("LONGSHORE_SERVER"))
    };
    std::fs::create_dir(path("data")).unwrap();
    write_unit("");
    let said = check();
    let found = verdicts(&said);
    assert_eq!(
        (found["unit"].as_str(), found["jobs"].as_str(), found["store"].as_str()),
        ("ok", "ok", "warn")
    );
    assert_eq!(said.code, 0, "a warning alone: {said:?}");
    let strict =
        run(longshore(&["upgrade-check", "--strict", "--unit"]).arg(&unit).env_remove("LONGSHORE_SERVER"));
    assert_eq!(strict.code, 1, "{strict:?}");

    write_unit("--gone 7");
    let said = check();
    assert_eq!((said.code, verdicts(&said)["unit"].as_str()), (1, "fail"), "{said:?}");
    assert!(said.out.contains("unexpected argument '--gone'"), "{said:?}");

    write_unit("");
    std::fs::write(&settings, "no_such_setting: 1\n").unwrap();
    let said = check();
    let fault = "server.yaml:1:1: unknown_field: there is no setting \\\"no_such_setting\\\"";
    assert!(said.code == 1 && said.out.contains(fault) && said.err.is_empty(), "{said:?}");

    std::fs::write(&settings, format!("jobs: {}\n", jobs.display())).unwrap();
    std::fs::write(&jobs, "jobs: { a: { imgae: x } }\n").unwrap();
    let said = check();
    assert_eq!((said.code, verdicts(&said)["jobs"].as_str()), (1, "fail"), "{said:?}");
}

#[test]
fn a_newer_server_is_refused_and_workers_of_another_format_are_a_warning() {
    let stub = Stub::new();
    let version =
        r#"{"name":"longshore","version":"99.0.0","protocol_lowest":1,"protocol_highest":1,"wire_format":2}"#;
    let worker = r#"[{"id":1,"name":"anna","state":"ready","connected":true,"slots":1,"busy":0,"since":"2026-03-01T09:30:00.000Z","version":"99.0.0"}]"#;
    stub.on("GET /version", "200 OK", JSON, version).on("GET /api/workers", "200 OK", JSON, worker);
    let said = run(&mut stub.longshore(&["upgrade-check", "-o", "json"]));
    let found = verdicts(&said);
    assert_eq!(
        (said.code, found["server"].as_str(), found["workers"].as_str()),
        (1, "fail", "warn"),
        "{said:?}"
    );
    assert!(said.out.contains("with wire format 2") && said.out.contains("anna"), "{said:?}");
}

#[test]
fn nothing_to_check_is_wrong_usage() {
    let said = run(longshore(&["upgrade-check"]).env_remove("LONGSHORE_SERVER"));
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(said.err.contains("use --data, --jobs, --unit or --server"), "{said:?}");
}
