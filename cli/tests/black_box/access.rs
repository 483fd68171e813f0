//! Tokens, roles, scopes and the audit log, with real processes.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use testkit::{Cluster, Database, Process, bearer, http, wait_until};

const JOBS: &str = "version: 1\njobs: { hello: { runtime: fake }, other: { runtime: fake } }\n";

/// A cluster whose server requires tokens, and the file of its first token.
async fn start() -> (Cluster, Process, String) {
    Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &[]).await
}

#[tokio::test]
async fn a_server_beyond_loopback_makes_a_token_for_its_administrator() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    cluster.set_host("0.0.0.0".to_owned());
    let server = cluster.spawn_server(&[]);
    wait_until("the first token is made", async || server.log().contains("made the first token")).await;
    let file = cluster.path("data/admin.token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("longshore_1_"));
    assert!(!server.log().contains("longshore_1_"), "the log does not show it");
}

#[tokio::test]
async fn the_first_token_is_in_its_file_before_it_is_valid() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    cluster.start_server(&[]).await.terminate().await;
    // A directory in the file's place: it cannot be written.
    std::fs::create_dir_all(cluster.path("data/admin.token/in-the-way")).unwrap();
    let mut server = cluster.spawn_server(&["--require-tokens"]);
    let status = server.wait_for_exit().await;
    assert!(!status.success() && server.log().contains("cannot write the first token"), "{}", server.log());
    std::fs::remove_dir_all(cluster.path("data/admin.token")).unwrap();
    let _server = cluster.start_server(&["--require-tokens"]).await;
    let file = cluster.admin_token();
    let (code, text) = cluster.run_as(&file, &["token", "ls", "-o", "json"]);
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!((code, rows.len()), (0, 1), "the start that failed left no token: {text}");
}

#[tokio::test]
async fn each_role_may_do_what_it_is_for() {
    let (cluster, _server, admin) = start().await;
    let viewer = cluster.make_token(&admin, "eyes", &["--role", "viewer"]);
    let submitter = cluster.make_token(
        &admin,
        "ci",
        &["--role", "submitter", "--definitions", "hel*", "--expires", "90d"],
    );
    let operator = cluster.make_token(&admin, "oncall", &["--role", "operator"]);
    let worker = cluster.make_token(&admin, "machines", &["--role", "worker"]);
    let ok = |file: &str, words: &[&str]| {
        let (code, text) = cluster.run_as(file, words);
        assert_eq!(code, 0, "{words:?}: {text}");
        text
    };
    let refused = |file: &str, words: &[&str], why: &str| {
        let (code, text) = cluster.run_as(file, words);
        assert!(code == 3 && text.contains(why), "{words:?}: {code}: {text}");
    };
    ok(&viewer, &["ls"]);
    refused(&viewer, &["run", "hello"], "role viewer; this request needs the role submitter");
    ok(&submitter, &["run", "hello"]);
    refused(&submitter, &["run", "other"], "not for jobs of this definition");
    refused(&submitter, &["run", "missing"], "not for jobs of this definition");
    refused(&submitter, &["pause", "hello"], "needs the role operator");
    ok(&admin, &["run", "other"]);
    refused(&submitter, &["cancel", "2"], "not for jobs of this definition");
    refused(&submitter, &["release", "1"], "needs the role operator");
    ok(&submitter, &["cancel", "1"]);
    ok(&submitter, &["retry", "1"]);
    let bulk = cluster.run_as(&submitter, &["cancel", "--name", "*", "--yes"]).1;
    assert!(bulk.contains("not for jobs of this definition"), "{bulk}");
    ok(&operator, &["cancel", "2"]);
    refused(&operator, &["token", "ls"], "needs the role admin");
    refused(&operator, &["audit"], "needs the role admin");
    refused(&worker, &["ls"], "role worker; this request needs the role viewer");
    let listed = ok(&admin, &["token", "ls"]);
    assert!(listed.contains("hel*") && listed.contains("first-admin"), "{listed}");
    let (code, text) = cluster.run_as(&admin, &["token", "create", "ci", "--role", "viewer"]);
    assert!(code == 5 && text.contains("there is a token \"ci\""), "{code}: {text}");
    let (code, text) = cluster.run_cli(&["ls", "--server", &cluster.address()]);
    assert!(code == 3 && text.contains("needs a valid token"), "{code}: {text}");
}

#[tokio::test]
async fn doctor_tells_what_anybody_may_know_and_names_the_token_that_is_missing() {
    let (cluster, _server, admin) = start().await;
    let doctor = |more: &[&str]| {
        let address = cluster.address();
        let (_, said) = cluster.run_cli(&[&["doctor", "-o", "json", "--server", &address], more].concat());
        let told: serde_json::Value = serde_json::from_str(&said).expect("a document");
        let findings = told["findings"].as_array().unwrap().iter();
        let seen: Vec<(String, String)> = findings
            .map(|it| (it["what"].as_str().unwrap().to_owned(), it["verdict"].as_str().unwrap().to_owned()))
            .filter(|(what, _)| ["server", "clock", "ready", "workers"].contains(&what.as_str()))
            .collect();
        seen
    };
    let expected = |all: &[(&str, &str)]| {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(doctor(&[]), expected(&[("server", "warn"), ("clock", "ok"), ("ready", "ok")]));
    let worker = cluster.make_token(&admin, "machines", &["--role", "worker"]);
    let with = doctor(&["--token-file", &worker]);
    assert_eq!(with, expected(&[("server", "fail"), ("clock", "ok"), ("ready", "ok")]));
    let with = doctor(&["--token-file", &admin]);
    let all = [("clock", "ok"), ("server", "ok"), ("ready", "ok"), ("workers", "warn")];
    assert_eq!(with, expected(&all));
}

#[tokio::test]
async fn a_token_can_be_saved_to_a_file_once() {
    let (cluster, _server, admin) = start().await;
    let file = cluster.path("machines.token");
    let save = ["token", "create", "machines", "--role", "worker", "--save", &file.display().to_string()];
    let save_if_missing = [&save[..], &["--if-missing"]].concat();
    let (code, shown) = cluster.run_as(&admin, &save_if_missing);
    let token = std::fs::read_to_string(&file).unwrap();
    assert!(code == 0 && token.starts_with("longshore_") && !shown.contains("longshore_"), "{shown}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let flags = ["--no-docker", "--allow-fake", "--token-file", &file.display().to_string()];
    let _worker = cluster.start_worker("only", &flags);
    let joined = async || cluster.run_as(&admin, &["workers"]).1.contains("only");
    wait_until("the worker has joined by it", joined).await;
    let (code, kept) = cluster.run_as(&admin, &[&save_if_missing[..], &["-o", "json"]].concat());
    // The note on standard error follows.
    let mut documents = serde_json::Deserializer::from_str(&kept).into_iter::<serde_json::Value>();
    let kept = documents.next().expect("a document").expect("JSON");
    assert_eq!((code, &kept["name"], &kept["made"]), (0, &"machines".into(), &false.into()), "{kept}");

    // Both before the server is asked, which has a token of this name.
    let (code, text) = cluster.run_as(&admin, &save_if_missing);
    assert!(code == 0 && text.contains("no token is made"), "{code}: {text}");
    let (code, text) = cluster.run_as(&admin, &save);
    assert!(code == 5 && text.contains("is there already"), "{code}: {text}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), token);

    let nowhere = cluster.path("missing/a.token").display().to_string();
    let words = ["token", "create", "lost", "--role", "worker", "--save", &nowhere];
    let (code, text) = cluster.run_as(&admin, &words);
    assert!(code == 1 && text.contains("cannot write"), "{code}: {text}");
    let (code, text) = cluster.run_as(&admin, &["token", "ls", "-o", "name"]);
    assert!(code == 0 && !text.contains("lost"), "no token is made that cannot be kept: {code}: {text}");
}

#[tokio::test]
async fn a_revocation_acts_at_once_also_on_what_is_open() {
    let (cluster, server, admin) = start().await;
    let viewer = cluster.make_token(&admin, "eyes", &["--role", "viewer"]);
    let machines = cluster.make_token(&admin, "machines", &["--role", "worker"]);
    let flags = ["--no-docker", "--allow-fake", "--token-file", &machines];
    let worker = cluster.start_worker("only", &flags);
    wait_until("the worker has joined", async || server.log().contains("worker joined")).await;
    let events = format!("http://{}/api/events", cluster.address());
    let client = http::client().build().unwrap();
    let mut stream = client.get(&events).header("authorization", bearer(&viewer)).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    for words in [&["token", "revoke", "eyes"][..], &["token", "revoke", "machines", "--workers"]] {
        let (code, text) = cluster.run_as(&admin, words);
        assert!(code == 0 && text.contains("is revoked"), "{text}");
    }
    // The stream breaks off: a regular end would mean that there are no more events.
    while let Ok(chunk) = stream.chunk().await {
        assert!(chunk.is_some(), "the stream ended as if it were complete");
    }
    wait_until("the worker is shut out", async || worker.log().contains("revoked")).await;
    let (code, text) = cluster.run_as(&viewer, &["ls"]);
    assert!(code == 3 && text.contains("the token was revoked"), "{code}: {text}");
}

#[tokio::test]
async fn a_server_with_the_token_file_of_a_client_takes_workers_by_join_tokens() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let file = cluster.path("client.token");
    std::fs::write(&file, "b7Qm2xT9kL4vR8nW1zC6yH3pD5sF0aGj").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let admin = file.display().to_string();
    let _server = cluster.start_server(&["--api-token-file", &admin]).await;
    let (code, text) = cluster.run_cli(&["ls", "--server", &cluster.address()]);
    assert!(code == 3 && text.contains("needs a valid token"), "{code}: {text}");
    let open = cluster.start_worker("open", &["--no-docker", "--allow-fake"]);
    wait_until("a worker without a token is refused", async || {
        open.log().contains("neither this worker nor its token")
    })
    .await;
    let join = cluster.make_token(&admin, "machines", &["--role", "worker"]);
    let _worker = cluster.start_worker("anna", &["--no-docker", "--allow-fake", "--token-file", &join]);
    wait_until("the worker has joined", async || cluster.run_as(&admin, &["workers"]).1.contains("anna"))
        .await;
}

#[tokio::test]
async fn no_token_changes_definitions() {
    let (cluster, _server, admin) = start().await;
    let client = http::client().build().unwrap();
    let before = std::fs::read(cluster.path("jobs.yaml")).unwrap();
    let list = || cluster.run_as(&admin, &["definitions", "-o", "json"]).1;
    let definitions = list();
    for (method, path) in [
        ("PUT", "/api/definitions/hello"),
        ("PATCH", "/api/definitions/hello"),
        ("DELETE", "/api/definitions/hello"),
        ("POST", "/api/definitions"),
        ("PUT", "/api/definitions"),
        ("POST", "/api/definitions/plan"),
    ] {
        let url = format!("http://{}{path}", cluster.address());
        let request = client.request(method.parse().unwrap(), url).header("authorization", bearer(&admin));
        let answer = request.body("jobs: { mine: { runtime: fake } }").send().await.unwrap();
        let is_plan = path.ends_with("/plan") && answer.status() == 200;
        assert!(is_plan || matches!(answer.status().as_u16(), 403..=405), "{method} {path}: {answer:?}");
    }
    assert_eq!(list(), definitions);
    assert_eq!(std::fs::read(cluster.path("jobs.yaml")).unwrap(), before);
}

#[tokio::test]
async fn an_expired_token_is_refused_and_what_it_has_open_ends() {
    let (cluster, mut server, admin) = start().await;
    let viewer = cluster.make_token(&admin, "eyes", &["--role", "viewer", "--expires", "1h"]);
    let client = http::client().build().unwrap();
    let ask = async |path: &str| {
        let request = client.get(format!("http://{}{path}", cluster.address()));
        request.header("authorization", bearer(&viewer)).send().await.unwrap()
    };
    // The shortest life of a token is a minute: its end is moved while the server is down. A slow machine gets more time.
    let mut open = None;
    for seconds in [3, 15, 60] {
        server.terminate().await;
        let moved =
            format!("UPDATE tokens SET expires_at = (unixepoch() + {seconds}) * 1000 WHERE name = 'eyes';");
        Database::execute(&cluster.path("data"), &moved);
        server = cluster.start_server(&["--require-tokens"]).await;
        let stream = ask("/api/events").await;
        if stream.status() == 200 {
            open = Some(stream);
            break;
        }
    }
    let mut stream = open.expect("a stream that began before the end of the token");
    while let Ok(chunk) = stream.chunk().await {
        assert!(chunk.is_some(), "the stream ended as if it were complete");
    }
    let answer = ask("/api/jobs").await;
    assert_eq!(answer.status(), 401);
    let problem: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(problem["code"], "token_expired", "{problem}");
    let (code, text) = cluster.run_as(&viewer, &["ls"]);
    assert!(code == 3 && text.contains("the token has expired"), "{code}: {text}");
    let listed = cluster.run_as(&admin, &["token", "ls"]).1;
    assert!(listed.lines().any(|line| line.starts_with("eyes") && line.contains("expired")), "{listed}");
}

#[tokio::test]
async fn requests_that_change_something_are_audited_and_outlive_a_restart() {
    let (cluster, mut server, admin) = start().await;
    let submitter = cluster.make_token(&admin, "ci", &["--role", "submitter"]);
    for _ in 0..3 {
        assert_eq!(cluster.run_as(&submitter, &["run", "hello"]).0, 0);
    }
    for _ in 0..3 {
        assert_eq!(cluster.run_as(&submitter, &["pause", "hello"]).0, 3);
    }
    assert_eq!(cluster.run_cli(&["run", "hello", "--server", &cluster.address()]).0, 3);
    let login = format!("http://{}/login?planted=words", cluster.address());
    http::client().build().unwrap().post(login).body("token=wrong").send().await.unwrap();
    for number in 0..3 {
        let method = format!("planted-{number}").parse().unwrap();
        let request =
            http::client().build().unwrap().request(method, format!("http://{}/api/jobs", cluster.address()));
        let refused = request.header("x-request-id", format!("planted-{number}")).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 401);
    }
    server.terminate().await;
    let _server = cluster.start_server(&["--require-tokens"]).await;
    let (code, text) = cluster.run_as(&admin, &["audit", "-o", "json"]);
    assert_eq!(code, 0, "{text}");
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    let count = |target: &str, token: Option<&str>, status: u64| -> u64 {
        let fits = |entry: &&Value| {
            entry["target"] == target && entry["token"].as_str() == token && entry["status"] == status
        };
        entries.iter().filter(fits).map(|entry| entry["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(count("/api/jobs/hello", Some("ci"), 201), 3, "{text}");
    assert_eq!(count("/api/definitions/hello/pause", Some("ci"), 403), 1, "{text}");
    assert_eq!(count("/api/definitions/{name}/{verb}", Some("ci"), 403), 2, "{text}");
    assert_eq!(count("/api/jobs/{name}", None, 401), 1, "no valid token: the route only: {text}");
    assert_eq!(count("*", None, 401), 4, "no valid token: like ones are one row: {text}");
    assert!(!text.contains("planted"), "a path that needs no token is logged by its route: {text}");
    assert_eq!(count("/api/tokens", Some("first-admin"), 201), 1, "{text}");
    let refused = cluster.run_as(&admin, &["audit", "--refused", "--by", "ci"]).1;
    assert!(refused.contains("403 forbidden") && !refused.contains("201"), "{refused}");
}

#[tokio::test]
async fn the_text_of_a_token_is_nowhere_but_in_its_file() {
    let (cluster, mut server, admin) = start().await;
    let submitter = cluster.make_token(&admin, "ci", &["--role", "submitter"]);
    assert_eq!(cluster.run_as(&submitter, &["run", "hello"]).0, 0);
    server.terminate().await;
    let text = std::fs::read_to_string(&submitter).unwrap();
    for entry in std::fs::read_dir(cluster.path("data")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let content = std::fs::read(&path).unwrap();
            let found = content.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    assert!(!server.log().contains(&text));
}

#[tokio::test]
async fn the_dashboard_offers_what_the_role_allows() {
    let (cluster, _server, admin) = start().await;
    let viewer = cluster.make_token(&admin, "eyes", &["--role", "viewer"]);
    let base = format!("http://{}", cluster.address());
    let page_as = async |token_file: &str, path: &str| {
        let client = http::client().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let token = std::fs::read_to_string(token_file).unwrap();
        let body = format!("to=%2F&token={}", token.trim());
        let form = "application/x-www-form-urlencoded";
        let login = client.post(format!("{base}/login")).header("content-type", form).body(body);
        let answer = login.send().await.unwrap();
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let page = client.get(format!("{base}{path}")).header("cookie", cookie).send().await.unwrap();
        (page.status().as_u16(), page.text().await.unwrap())
    };
    let (status, page) = page_as(&viewer, "/definitions/hello").await;
    assert!(status == 200 && page.contains("eyes (viewer)") && !page.contains("Run now"), "{page}");
    assert_eq!(page_as(&viewer, "/audit").await.0, 403);
    let (status, page) = page_as(&admin, "/definitions/hello").await;
    assert!(status == 200 && page.contains("Run now"), "{page}");
    wait_until("the login is in the audit log", async || {
        page_as(&admin, "/audit").await.1.contains("/login")
    })
    .await;
}

#[tokio::test]
async fn worker_join_writes_the_files_that_a_worker_starts_with() {
    let (cluster, _server, admin) = start().await;
    let token_file = cluster.make_token(&admin, "machines", &["--role", "worker"]);
    let token = std::fs::read_to_string(&token_file).unwrap();
    let viewer = std::fs::read_to_string(cluster.make_token(&admin, "eyes", &["--role", "viewer"])).unwrap();
    let settings = cluster.path("joined.yaml").display().to_string();
    let address = cluster.address();
    let join = |address: &str, token: &str, more: &[&str]| {
        cluster.run_cli(
            &[&["worker", "join", address, token, "--config", &settings, "--name", "anna"], more].concat(),
        )
    };
    for (address, token, code, why) in [
        (address.as_str(), "longshore_1_unknown", 3, "invalid_token"),
        (&address, &viewer, 3, "forbidden"),
        ("127.0.0.1:1", &token, 6, "no answer from"),
    ] {
        let (found, text) = join(address, token, &[]);
        assert!(found == code && text.contains(why), "{found}: {text}");
        assert_eq!(code == 3, text.contains("longshore token create NAME --role worker"), "{text}");
        assert!(!text.contains("LONGSHORE_API_TOKEN_FILE"), "{text}");
        assert!(!std::path::Path::new(&settings).exists(), "a refused token writes nothing");
    }
    let unfit = ["worker", "join", &address, &token, "--config", &settings, "--name", "build box"];
    let (code, text) = cluster.run_cli(&unfit);
    assert!(code == 2 && text.contains("--name: `build box` must be"), "{code}: {text}");
    assert!(!std::path::Path::new(&settings).exists(), "no worker could start with it");
    let (code, text) = join(&address, &token, &[]);
    assert!(code == 0 && text.contains(&format!("longshore worker --config {settings}")), "{text}");
    assert!(!text.contains(token.trim()), "the output does not show the token");
    for file in ["joined.yaml", "worker.token"] {
        let mode = std::fs::metadata(cluster.path(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let (code, text) = join(&address, &token, &[]);
    assert!(code == 5 && text.contains("--force, or name a file in another directory"), "{code}: {text}");
    assert_eq!(join(&address, &token, &["--force"]).0, 0);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_longshore"));
    let state = cluster.path("joined-state");
    command.args(["worker", "--no-docker", "--allow-fake", "--config", &settings, "--state-dir"]).arg(state);
    let _worker = Process::spawn(command, &cluster.path("joined.log")).unwrap();
    wait_until("the worker is connected", async || {
        let (_, text) = cluster.run_as(&admin, &["workers"]);
        text.contains("anna")
    })
    .await;
    let (code, text) =
        cluster.run_cli(&["token", "revoke", "machines", "--server", &address, "--token-file", &admin]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = join(&address, &token, &["--force"]);
    assert!(code == 3 && text.contains("token_revoked"), "{code}: {text}");

    let (code, text) = cluster.run_as(&admin, &["token", "revoke", "first-admin"]);
    assert!(code == 5 && text.contains("the last valid token of an administrator"), "{code}: {text}");
    assert!(text.contains("longshore token create NAME --role admin"), "{text}");
    let (code, text) = cluster.run_as(&admin, &["token", "revoke", "first-admin", "--yes"]);
    assert_eq!(code, 0, "{text}");
}
