//! The audit log, with real processes: the object and the kind of each change, workers that join, and reloads without a request.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Cluster, Process, http, wait_until};

const JOBS: &str = "version: 1\njobs: { hello: { runtime: fake }, other: { runtime: fake } }\n";

/// A cluster whose server requires tokens, and the file of its first token.
async fn start(flags: &[&str]) -> (Cluster, Process, String) {
    Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, flags).await
}

/// Runs a command as the administrator.
fn run(cluster: &Cluster, admin: &str, words: &[&str]) -> String {
    let (code, text) = cluster.run_as(admin, words);
    assert_eq!(code, 0, "{words:?}: {text}");
    text
}

/// The rows with this text in object or detail.
fn rows(cluster: &Cluster, admin: &str, about: &str) -> Vec<Value> {
    serde_json::from_str(&run(cluster, admin, &["audit", "--about", about, "-o", "json"])).unwrap()
}

/// Waits for a row, since rows are written about once a second.
async fn row(cluster: &Cluster, admin: &str, about: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    wait_until(&format!("the audit log has {about}"), async || {
        found = rows(cluster, admin, about).into_iter().find(|row| fits(row));
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tokio::test]
async fn each_change_has_its_object_and_its_kind() {
    let (cluster, _server, admin) = start(&[]).await;
    cluster.make_token(&admin, "eyes", &["--role", "viewer"]);
    cluster.make_token(&admin, "ci", &["--role", "submitter", "--definitions", "hel*", "--expires", "90d"]);
    let api = format!("http://{}/api", cluster.address());
    let bearer = format!("Bearer {}", std::fs::read_to_string(&admin).unwrap().trim());
    let post = async |path: &str, body: Value| {
        let client = http::client().build().unwrap();
        let request = client.post(format!("{api}{path}")).header("authorization", &bearer);
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await;
        answer.unwrap().status().as_u16()
    };
    let secret = json!([{"name": "hello", "environment": {"PASSWORD": "planted"}}, {"name": "other"}]);
    assert_eq!(post("/jobs", secret).await, 201);
    assert_eq!(post("/jobs/cancel", json!({"ids": [1, 2]})).await, 200);
    assert_eq!(post("/definitions/plan", json!({"jobs": {"new": {"runtime": "fake"}}})).await, 200);
    let eyes = row(&cluster, &admin, "token eyes", |_| true).await;
    assert_eq!((&eyes["detail"], &eyes["count"]), (&json!("role viewer"), &json!(1)), "{eyes}");
    let ci = row(&cluster, &admin, "token ci", |_| true).await;
    assert_eq!(ci["detail"], "role submitter; definitions hel*; expires in 90d");
    let batch = row(&cluster, &admin, "definitions hello, other", |row| row["target"] == "/api/jobs").await;
    assert_eq!(batch["status"], 201);
    let bulk = row(&cluster, &admin, "jobs 1, 2", |_| true).await;
    assert_eq!(bulk["detail"], "cancel: 2 of 2 jobs, refused 0");
    let plan = row(&cluster, &admin, "would", |_| true).await;
    assert_eq!(plan["detail"], "would add new; remove hello, other");
    let table = run(&cluster, &admin, &["audit", "--about", "token ci"]);
    assert!(table.contains("token ci: role submitter; definitions hel*"), "{table}");
    assert!(!run(&cluster, &admin, &["audit", "-o", "json"]).contains("planted"));
    let page = format!("http://{}/audit?about=token+ci", cluster.address());
    let page =
        http::client().build().unwrap().get(page).header("authorization", &bearer).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("role submitter; definitions hel*") && !page.contains("token eyes"), "{page}");
}

#[tokio::test]
async fn workers_that_join_and_changes_of_them_are_named() {
    let (cluster, _server, admin) = start(&[]).await;
    let token = cluster.make_token(&admin, "join", &["--role", "worker", "--uses", "1"]);
    let flags = ["--no-docker", "--allow-fake", "--token-file", &token];
    let mut first = cluster.start_worker("anna", &flags);
    let joined = row(&cluster, &admin, "worker 1 (anna)", |_| true).await;
    assert_eq!(joined["token"], "join");
    assert_eq!((&joined["detail"], &joined["role"]), (&json!("joined"), &json!("worker")));
    assert_eq!((&joined["address"], &joined["status"]), (&json!("127.0.0.1"), &json!(101)));
    first.terminate().await;
    let _again = cluster.start_worker("anna", &flags);
    let _refused = cluster.start_worker("berta", &flags);
    let refused = row(&cluster, &admin, "worker berta", |_| true).await;
    assert_eq!((&refused["problem"], &refused["status"]), (&json!("token_used_up"), &json!(403)));
    run(&cluster, &admin, &["label", "1", "disk=fast"]);
    let changed = row(&cluster, &admin, "label disk=fast", |_| true).await;
    assert_eq!((&changed["object"], &changed["method"]), (&json!("worker 1 (anna)"), &json!("PATCH")));
    assert_eq!(rows(&cluster, &admin, "joined").len(), 1, "a worker that connects again does not join");
    let wrong = cluster.path("wrong.token");
    std::fs::write(&wrong, "longshore_9_unknown").unwrap();
    std::fs::set_permissions(&wrong, std::fs::Permissions::from_mode(0o600)).unwrap();
    let wrong = wrong.display().to_string();
    let _stranger = cluster.start_worker("clara", &["--no-docker", "--allow-fake", "--token-file", &wrong]);
    wait_until("the worker with a wrong token is recorded", async || {
        let refused = run(&cluster, &admin, &["audit", "--path", "/workers/connect", "--refused"]);
        refused.contains("401 invalid_token")
    })
    .await;
}

#[tokio::test]
async fn reloads_by_a_signal_and_by_the_watch_are_recorded() {
    let (cluster, server, admin) = start(&["--watch-jobs"]).await;
    let write = |text: &str| std::fs::write(cluster.path("jobs.yaml"), text).unwrap();
    write(&JOBS.replace("hello", "new"));
    let watched = row(&cluster, &admin, "added new", |row| row["method"] == "WATCH").await;
    assert_eq!((&watched["detail"], &watched["status"]), (&json!("added new; removed hello"), &json!(200)));
    write("jobs: {");
    let refused = row(&cluster, &admin, "stay as they were", |row| row["method"] == "WATCH").await;
    assert_eq!((&refused["problem"], &refused["status"]), (&json!("invalid_jobs_file"), &json!(422)));
    server.signal(Signal::HUP);
    let signal = row(&cluster, &admin, "definitions", |row| row["method"] == "SIGNAL").await;
    assert_eq!((&signal["target"], &signal["token"]), (&json!("SIGHUP"), &Value::Null));
}

#[tokio::test]
async fn a_request_whose_client_leaves_early_is_recorded() {
    let (cluster, _server, admin) = start(&[]).await;
    let bearer = format!("Bearer {}", std::fs::read_to_string(&admin).unwrap().trim());
    let client = http::client().build().unwrap();
    let submit = client
        .post(format!("http://{}/api/jobs/hello?wait=60s", cluster.address()))
        .header("authorization", &bearer)
        .send();
    let submit = tokio::spawn(submit);
    wait_until("the job is there", async || run(&cluster, &admin, &["ls"]).contains("hello")).await;
    submit.abort();
    wait_until("the request is recorded", async || {
        run(&cluster, &admin, &["audit", "--path", "/api/jobs/hello"]).contains("499")
    })
    .await;
}

#[tokio::test]
async fn logins_and_refused_actions_of_pages_have_their_status_and_their_problem() {
    let (cluster, _server, admin) = start(&[]).await;
    let base = format!("http://{}", cluster.address());
    let client = http::client().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let form = async |path: &str, cookie: &str, body: String| {
        let request = client.post(format!("{base}{path}")).header("cookie", cookie);
        let form = "application/x-www-form-urlencoded";
        request.header("content-type", form).header("accept", "text/html").body(body).send().await.unwrap()
    };
    let wrong = form("/login", "", "token=wrong".to_owned()).await;
    assert_eq!(wrong.status().as_u16(), 401);
    let token = std::fs::read_to_string(&admin).unwrap();
    let right = form("/login", "", format!("token={}", token.trim())).await;
    assert_eq!(right.status().as_u16(), 303);
    let cookie = right.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let refused = form("/jobs/999/cancel", cookie, String::new()).await;
    assert_eq!(refused.status().as_u16(), 404);
    assert!(refused.text().await.unwrap().contains("</html>"), "a page");
    form("/pause", cookie, String::new()).await;
    let row = row(&cluster, &admin, "token first-admin", |row| row["target"] == "/login").await;
    assert_eq!(row["status"], 303, "{row}");
    let text = run(&cluster, &admin, &["audit", "-o", "json"]);
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    for (target, status, problem) in [
        ("/login", 401, json!("invalid_token")),
        ("/jobs/999/cancel", 404, json!("job_not_found")),
        ("/pause", 303, Value::Null),
    ] {
        let fits =
            |row: &&Value| row["target"] == target && row["status"] == status && row["problem"] == problem;
        assert!(rows.iter().any(|row| fits(&row)), "{target}: {text}");
    }
}
