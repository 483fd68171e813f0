//! Plans of several jobs files over HTTP, and a server that reads a directory of them.

use std::fs;

use serde_json::{Value, json};

use crate::support::Server;

const TEAM_A: &str = "defaults: {image: a}\njobs:\n  resize: {timeout: 1m, hooks: {on_failure: alarm}}\n";
const TEAM_B: &str = "- {name: alarm, image: b}\n";

/// A server that reads a directory with two files.
async fn started() -> Server {
    let server = Server::start().await;
    fs::create_dir(&server.jobs_file).expect("the place is free");
    for (name, text) in [("team-a.yaml", TEAM_A), ("team-b.yml", TEAM_B)] {
        fs::write(server.jobs_file.join(name), text).expect("the place is writable");
    }
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    server
}

fn files(files: &[(&str, &str)]) -> String {
    let files: Vec<Value> = files.iter().map(|(name, text)| json!({"name": name, "text": text})).collect();
    json!({ "files": files }).to_string()
}

#[tokio::test]
async fn a_definition_tells_its_file_which_is_no_part_of_its_revision() {
    let server = started().await;
    let definition = server.get("/api/definitions/alarm").await.json();
    assert_eq!(definition["file"], "team-b.yml");
    let revision = |answer: Value| answer["revision"].clone();
    let before = revision(server.ask("POST", "/api/definitions/reload", &[], "").await.json());
    fs::rename(server.jobs_file.join("team-b.yml"), server.jobs_file.join("alarms.yaml")).expect("renamed");
    let reloaded = server.ask("POST", "/api/definitions/reload", &[], "").await.json();
    assert_eq!((&reloaded["revision"], &reloaded["changed"]), (&before, &json!([])), "{reloaded}");
    let moved = server.get("/api/definitions/alarm").await.json();
    assert_eq!((&moved["file"], &moved["revision"]), (&json!("alarms.yaml"), &definition["revision"]));
    let page = server.ask("GET", "/definitions/alarm", &[("accept", "text/html")], "").await;
    assert!(page.body.contains("alarms.yaml"), "{page:?}");
}

#[tokio::test]
async fn several_files_are_planned_as_one_set_and_their_names_do_not_matter() {
    let server = started().await;
    let same = files(&[("x.yaml", TEAM_B), ("team-a.yaml", TEAM_A)]);
    let plan = server.post("/api/definitions/plan", &same).await.json();
    assert_eq!((&plan["unchanged"], &plan["changed"]), (&json!(2), &json!([])), "{plan}");
    assert_eq!(plan["current_revision"], plan["revision"]);
    let other =
        files(&[("team-a.yaml", &TEAM_A.replace("1m", "2m")), ("b.yaml", TEAM_B), ("c.yaml", "# none")]);
    let plan = server.post("/api/definitions/plan", &other).await.json();
    assert_eq!(plan["changed"][0]["keys"][0]["key"], "timeout_ms", "{plan}");

    // One text is a whole set, in YAML and in JSON.
    let one = json!({"jobs": {"alarm": {"image": "b"}}}).to_string();
    for plan in [
        server.post("/api/definitions/plan", &one).await.json(),
        server.ask("POST", "/api/definitions/plan", &[], TEAM_B).await.json(),
    ] {
        assert_eq!(
            (&plan["unchanged"], &plan["removed"][0]["name"]),
            (&json!(1), &json!("resize")),
            "{plan}"
        );
    }
}

#[tokio::test]
async fn faults_of_several_files_are_told_at_once_with_the_name_of_each() {
    let server = started().await;
    let bad = files(&[("a.yaml", "jobs:\n  a: {imagee: x}\n"), ("b.yaml", "- {name: a, image: x}\n- 7\n")]);
    let problem = server.post("/api/definitions/plan", &bad).await.is_problem(422, "invalid_jobs_file");
    let fields: Vec<&str> =
        problem["errors"].as_array().unwrap().iter().filter_map(|it| it["field"].as_str()).collect();
    assert_eq!(fields, ["a.yaml:2:7", "b.yaml:1:10", "b.yaml:2:3"], "{problem}");
    assert!(problem.to_string().contains("was first defined at a.yaml:2:3"), "{problem}");
    for (names, field) in [
        (&["../a.yaml"][..], "files[0].name"),
        (&["a.yaml", "a.yaml"][..], "files[1].name"),
        (&["a.txt"][..], "files[0].name"),
    ] {
        let sent: Vec<(&str, &str)> = names.iter().map(|name| (*name, TEAM_B)).collect();
        let problem = server.post("/api/definitions/plan", &files(&sent)).await;
        let problem = problem.is_problem(422, "invalid_jobs_file");
        assert_eq!(problem["field"], field, "{problem}");
    }
    let problem =
        server.post("/api/definitions/plan", &files(&[])).await.is_problem(422, "invalid_jobs_file");
    assert_eq!(problem["errors"][0]["field"], "jobs.yaml", "the name of the server's directory: {problem}");
    server.post("/api/definitions/plan", r#"{"files": 7}"#).await.is_problem(422, "invalid_type");
    let unknown = r#"{"files": [{"name": "a.yaml", "text": "", "x": 1}]}"#;
    server.post("/api/definitions/plan", unknown).await.is_problem(422, "unknown_field");
    let (half, rest) = ("#".repeat(1_000_000), "#".repeat(1_000_001));
    let large = files(&[("a.yaml", &half), ("b.yaml", &rest)]);
    let problem = server.post("/api/definitions/plan", &large).await.is_problem(422, "invalid_jobs_file");
    assert_eq!(problem["errors"][0]["code"], "file_too_large", "{problem}");
    let huge = files(&[("a.yaml", &half.repeat(4))]);
    server.post("/api/definitions/plan", &huge).await.is_problem(413, "body_too_large");
}

#[tokio::test]
async fn a_plan_takes_from_the_server_what_any_present_file_takes() {
    let server = started().await;
    let taken = "- {name: taken, image: x, command: ['${PATH}'], env_file: own.env}\n";
    fs::write(server.jobs_file.join("own.env"), "A=hunter2\n").unwrap();
    fs::write(server.jobs_file.join("taken.yaml"), taken).unwrap();
    let elsewhere = taken.replace("taken", "other");
    let plan = server.post("/api/definitions/plan", &files(&[("z.yaml", &elsewhere)])).await.json();
    assert_eq!(plan["added"][0]["name"], "other", "{plan}");
    let plan = server.ask("POST", "/api/definitions/plan", &[], &elsewhere).await.json();
    assert_eq!(plan["added"][0]["name"], "other", "{plan}");
    let other = elsewhere.replace("own.env", "/etc/passwd");
    let answer =
        server.post("/api/definitions/plan", &files(&[("a.yaml", TEAM_B), ("z.yaml", &other)])).await;
    let problem = answer.is_problem(422, "invalid_jobs_file");
    assert_eq!(problem["errors"][0]["field"], "z.yaml:1:59", "{problem}");
    assert!(!answer.body.contains("root:"), "{answer:?}");
}

#[tokio::test]
async fn several_files_are_planned_for_a_server_with_one_file() {
    let server = Server::start().await;
    fs::write(&server.jobs_file, "jobs:\n  alarm: {image: b, env_file: own.env}\n").unwrap();
    fs::write(server.jobs_file.with_file_name("own.env"), "A=1\n").unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    assert_eq!(server.get("/api/definitions/alarm").await.json()["file"], Value::Null);
    let sent = files(&[("a.yaml", TEAM_A), ("b.yaml", "- {name: alarm, image: b, env_file: own.env}\n")]);
    let plan = server.post("/api/definitions/plan", &sent).await.json();
    assert_eq!((&plan["unchanged"], &plan["added"][0]["name"]), (&json!(1), &json!("resize")), "{plan}");
}
