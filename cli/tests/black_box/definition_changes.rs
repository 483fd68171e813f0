//! The history of the definitions through the real binary: who has loaded what, how and why.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Cluster, Database, ProcessSpec, http, wait_until};

const JOBS: &str = "version: 1\njobs:\n  hello: { runtime: fake }\n  old: { runtime: fake }\n";
const NEW: &str = "version: 1\njobs:\n  hello: { runtime: fake, timeout: 1m, environment: { KEY: hunter2 } }\n  fresh: { runtime: fake }\n";
const ALLOW: [&str; 1] = ["--allow-deploy"];

fn cluster() -> Cluster {
    Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS)
}

fn write(cluster: &Cluster, name: &str, text: &str) -> String {
    let file = cluster.path(name);
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// The history as the API has it, newest first.
async fn changes(cluster: &Cluster) -> Vec<Value> {
    cluster.api().get("/api/definitions/changes").await.as_array().unwrap().clone()
}

/// Waits until the history has this number of rows, and returns them.
async fn wait_for_changes(cluster: &Cluster, count: usize) -> Vec<Value> {
    wait_until(&format!("{count} changes"), async || changes(cluster).await.len() == count).await;
    changes(cluster).await
}

/// Cause, requester, reason, and the names.
fn facts(row: &Value) -> Value {
    json!([row["cause"], row["by"], row["reason"], row["added"], row["changed"], row["removed"]])
}

#[tokio::test]
async fn each_load_that_changes_something_leaves_a_row_with_its_cause() {
    let cluster = cluster();
    let mut server = cluster.start_server(&ALLOW).await;
    let first = wait_for_changes(&cluster, 1).await.remove(0);
    assert_eq!(facts(&first), json!(["start", null, null, ["hello", "old"], [], []]));
    assert_eq!(first["before"], Value::Null, "nothing is known of the time before");

    let address = cluster.address();
    let file = write(&cluster, "mine.yaml", NEW);
    let deploy = |more: &[&str]| cluster.run_cli(&[&["deploy", &file, "--server", &address], more].concat());
    assert_eq!(deploy(&["--dry-run", "--reason", "a dry run"]).0, 0);
    let (code, text) = deploy(&["--reason", " merge request 41 "]);
    assert_eq!(code, 0, "{text}");
    // The answer comes after the row: the machine may lose power now.
    let deployed = changes(&cluster).await.remove(0);
    let names = (json!(["fresh"]), json!(["hello"]), json!(["old"]));
    assert_eq!(facts(&deployed), json!(["deploy", null, "merge request 41", names.0, names.1, names.2]));
    assert_eq!(deployed["before"], first["after"]);
    server.kill();
    let mut server = cluster.start_server(&["--watch-jobs"]).await;

    // The same text with a comment changes nothing.
    write(&cluster, "jobs.yaml", &format!("# comment\n{NEW}"));
    let (code, text) = cluster.run_cli(&["reload", "--server", &address, "--reason", "nothing"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(changes(&cluster).await.len(), 2, "neither a dry run, a start nor a comment has changed one");
    write(&cluster, "jobs.yaml", &format!("{NEW}  watched: {{ runtime: fake }}\n"));
    let rows = wait_for_changes(&cluster, 3).await;
    assert_eq!(facts(&rows[0]), json!(["watch", null, null, ["watched"], [], []]));
    server.terminate().await;

    // Another file while no server runs, with only another schedule.
    write(
        &cluster,
        "jobs.yaml",
        &format!("{NEW}  watched: {{ runtime: fake, schedule: {{ every: 7d }} }}\n"),
    );
    let server = cluster.start_server(&[]).await;
    let rows = wait_for_changes(&cluster, 4).await;
    assert_eq!(facts(&rows[0]), json!(["start", null, null, [], ["watched"], []]));
    assert_eq!(rows[0]["before"], rows[1]["after"]);
    write(&cluster, "jobs.yaml", NEW);
    server.signal(Signal::HUP);
    let rows = wait_for_changes(&cluster, 5).await;
    assert_eq!(facts(&rows[0]), json!(["reload", null, null, [], [], ["watched"]]));

    let (code, table) = cluster.run_cli(&["changes", "watch*", "--server", &address]);
    assert_eq!(code, 0, "{table}");
    let cells = ["reload", "removed watched", "start", "changed watched", "watch", "added watched"];
    assert!(cells.iter().all(|cell| table.contains(cell)) && !table.contains("deploy"), "{table}");
    let (_, text) = cluster.run_cli(&["changes", "-n", "1", "--server", &address, "-o", "json"]);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&text).unwrap(), rows[..1]);
    assert!(!Value::from(rows).to_string().contains("hunter2"));
}

#[tokio::test]
async fn pages_follow_one_another_and_filters_select() {
    let cluster = cluster();
    let _server = cluster.start_server(&[]).await;
    for number in 0..4 {
        write(&cluster, "jobs.yaml", &format!("{JOBS}  job-{number}: {{ runtime: fake }}\n"));
        let (code, text) = cluster.run_cli(&["reload", "--server", &cluster.address()]);
        assert_eq!(code, 0, "{text}");
    }
    let client = http::client().build().unwrap();
    let mut url = format!("http://{}/api/definitions/changes?limit=2", cluster.address());
    let (mut ids, mut pages) = (Vec::new(), 0);
    loop {
        let answer = client.get(&url).send().await.unwrap();
        let link = answer.headers().get("link").map(|it| it.to_str().unwrap().to_owned());
        let page: Vec<Value> = answer.json().await.unwrap();
        ids.extend(page.iter().map(|row| row["id"].as_u64().unwrap()));
        pages += 1;
        let Some(link) = link else { break };
        let path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
        url = format!("http://{}{path}", cluster.address());
    }
    assert_eq!((pages, ids), (3, vec![5, 4, 3, 2, 1]));
    let of = async |query: &str| {
        let found = cluster.api().get(&format!("/api/definitions/changes?{query}")).await;
        found.as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of("name=job-1").await, [4, 3], "it was removed, and added");
    assert_eq!(of("name=old,job-3&limit=1").await, [5]);
    assert_eq!(of("since=2999-01-01").await, [0; 0]);
    for query in ["cursor=x", "limit=0", "nmae=x"] {
        let url = format!("http://{}/api/definitions/changes?{query}", cluster.address());
        assert!(client.get(url).send().await.unwrap().status().is_client_error(), "{query}");
    }
}

#[tokio::test]
async fn a_requester_has_a_name_and_a_limited_token_sees_its_own_names() {
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &ALLOW).await;
    let ci = cluster.make_token(&admin, "ci", &["--role", "operator"]);
    let limited = cluster.make_token(&admin, "limited", &["--role", "submitter", "--definitions", "fre*"]);
    let file = write(&cluster, "mine.yaml", NEW);
    let (code, text) = cluster.run_as(&ci, &["deploy", &file, "--reason", "commit 5c1e"]);
    assert_eq!(code, 0, "{text}");
    write(&cluster, "jobs.yaml", JOBS);
    let (code, text) = cluster.run_as(&admin, &["reload", "--reason", "back"]);
    assert_eq!(code, 0, "{text}");
    write(&cluster, "jobs.yaml", "jobs: { hello: { runtime: fake, timeout: 2m }, old: { runtime: fake } }\n");
    assert_eq!(cluster.run_as(&admin, &["reload"]).0, 0);

    let rows = |token: &str, more: &[&str]| -> Vec<Value> {
        let (code, text) = cluster.run_as(token, &[&["changes", "-o", "json"], more].concat());
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let all = rows(&admin, &[]);
    assert_eq!(all.len(), 4);
    assert_eq!(all[1]["reason"], "back");
    assert_eq!(all[2]["by"], "ci");
    let by_ci = rows(&admin, &["--by", "ci"]);
    assert_eq!(by_ci.iter().map(facts).collect::<Vec<_>>(), [facts(&all[2])]);
    let seen = rows(&limited, &[]);
    let seen: Vec<Value> = seen.iter().map(facts).collect();
    assert_eq!(
        seen,
        [
            json!(["reload", all[1]["by"], "back", [], [], ["fresh"]]),
            json!(["deploy", "ci", "commit 5c1e", ["fresh"], [], []])
        ]
    );
    assert_eq!(rows(&admin, &["hello"]).len(), 4);
    let told = rows(&limited, &["hello"]);
    assert!(told.is_empty(), "a filter tells that a name changed which the token is not for: {told:?}");

    for (words, code) in [
        (&["deploy", &file, "--reason", "two\nlines"][..], "invalid_reason"),
        (&["deploy", &file, "--reason", ""], "invalid_reason"),
        (&["reload", "--reason", &"x".repeat(301)], "too_long"),
    ] {
        let (exit, told) = cluster.run_as(&ci, words);
        assert!(exit != 0 && told.contains(code), "{exit} {told}");
    }
    assert_eq!(rows(&admin, &[]).len(), 4, "a refused request loads nothing");
    wait_until("the reasons are in the audit log", async || {
        let (_, rows) = cluster.run_as(&admin, &["audit", "--path", "/api/definitions", "-o", "json"]);
        rows.contains("reason: commit 5c1e; revision ") && rows.contains("reason: back; added ")
    })
    .await;
    let (_, whoami) = cluster.run_as(&limited, &["definitions", "-o", "name"]);
    assert!(whoami.contains("hello"), "the limit is about the history, not about definitions: {whoami}");
}

/// As a machine leaves it that lost power between the replacement of the file and the load.
#[tokio::test]
async fn a_deploy_that_a_crash_has_cut_short_is_the_deploy_of_its_requester() {
    let cluster = cluster();
    let mut server = cluster.start_server(&ALLOW).await;
    wait_for_changes(&cluster, 1).await;
    let file = write(&cluster, "mine.yaml", NEW);
    let (_, plan) = cluster.run_cli(&["plan", &file, "--server", &cluster.address(), "-o", "json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    server.terminate().await;
    let data = cluster.path("data");
    let intend = |after: &Value| {
        let intent = json!({ "by": "ci", "reason": "commit 5c1e", "after": after });
        Database::execute(&data, &format!("UPDATE definition_load SET deploying = '{intent}'"));
    };

    // The crash came before the replacement.
    intend(&plan["revision"]);
    let mut server = cluster.start_server(&ALLOW).await;
    assert_eq!(changes(&cluster).await.len(), 1);
    wait_until("the intent is gone", async || {
        let query = "SELECT deploying IS NULL FROM definition_load";
        Database::open(&data).query_one::<bool>(query)
    })
    .await;
    assert_eq!(changes(&cluster).await.len(), 1);
    server.terminate().await;

    // It came after it.
    intend(&plan["revision"]);
    write(&cluster, "jobs.yaml", NEW);
    let mut server = cluster.start_server(&ALLOW).await;
    let rows = wait_for_changes(&cluster, 2).await;
    assert_eq!(facts(&rows[0]), json!(["deploy", "ci", "commit 5c1e", ["fresh"], ["hello"], ["old"]]));
    assert_eq!(rows[0]["after"], plan["revision"]);
    server.terminate().await;

    // Somebody has written another file since.
    intend(&plan["revision"]);
    write(&cluster, "jobs.yaml", JOBS);
    let _server = cluster.start_server(&ALLOW).await;
    let rows = wait_for_changes(&cluster, 3).await;
    assert_eq!(facts(&rows[0]), json!(["start", null, null, ["old"], ["hello"], ["fresh"]]));
}

/// A deploy that cannot replace the file leaves neither a row nor an intent.
#[tokio::test]
async fn a_refused_deploy_is_not_in_the_history() {
    let cluster = cluster();
    let mut server = cluster.start_server(&ALLOW).await;
    std::fs::create_dir(cluster.path(".jobs.yaml.draft")).unwrap();
    let file = write(&cluster, "mine.yaml", NEW);
    let (code, told) = cluster.run_cli(&["deploy", &file, "--server", &cluster.address()]);
    assert!(code != 0 && told.contains("the server cannot replace it"), "{told}");
    assert_eq!(wait_for_changes(&cluster, 1).await.len(), 1);
    server.terminate().await;
    let query = "SELECT deploying IS NULL FROM definition_load";
    assert!(Database::open(&cluster.path("data")).query_one::<bool>(query));
}

#[tokio::test]
async fn the_dashboard_shows_the_history() {
    let cluster = cluster();
    let _server = cluster.start_server(&ALLOW).await;
    let file = write(&cluster, "mine.yaml", NEW);
    let reason = "<b>merge</b> 41";
    let deploy = ["deploy", &file, "--server", &cluster.address(), "--reason", reason].map(str::to_owned);
    assert_eq!(cluster.run_cli(&deploy.each_ref().map(String::as_str)).0, 0);
    let page = async |path: &str| {
        let url = format!("http://{}{path}", cluster.address());
        let answer = http::client().build().unwrap().get(url).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    };
    let text = page("/changes").await;
    for part in ["<td>deploy</td>", "<td>start</td>", "&#60;b&#62;merge", "/changes?name=fresh\">fresh</a>"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = page("/changes?name=fresh&by=").await;
    assert!(text.contains("<td>deploy</td>") && !text.contains("<td>start</td>"), "{text}");
    assert!(page("/definitions").await.contains("href=\"/changes\""));
    assert!(page("/definitions/fresh").await.contains("href=\"/changes?name=fresh\""));
    assert!(page("/changes?name=nothing").await.contains("No change fits."));
}

/// A list of a row is limited, and says how many names it lacks.
#[tokio::test]
async fn a_long_list_of_names_is_cut() {
    let cluster = cluster();
    let many: String = (0..150).map(|number| format!("  job-{number:03}: {{ runtime: fake }}\n")).collect();
    write(&cluster, "jobs.yaml", &format!("jobs:\n{many}"));
    let spec: ProcessSpec = cluster.server_spec(&[]);
    let _server = spec.start();
    cluster.api().wait_until_ready().await;
    let row = wait_for_changes(&cluster, 1).await.remove(0);
    assert_eq!((row["added"].as_array().unwrap().len(), &row["added_more"]), (100, &json!(50)));
    let (_, table) = cluster.run_cli(&["changes", "job-149", "--server", &cluster.address()]);
    assert!(table.contains("and 50 more"), "a name that is cut off may be among them: {table}");
}

/// Also of a definition that goes and comes back, and of keys that are no part of a revision.
#[tokio::test]
async fn each_change_of_a_definition_is_an_event() {
    let cluster = cluster();
    let _server = cluster.start_server(&[]).await;
    let schedule =
        JOBS.replace("hello: { runtime: fake }", "hello: { runtime: fake, schedule: { every: 7d } }");
    let notify = JOBS.replace(
        "hello: { runtime: fake }",
        "hello: { runtime: fake, notify: [{ webhook: 'https://example.com/hook' }] }",
    );
    let without_old = "jobs: { hello: { runtime: fake } }";
    let list =
        ["events", "--kind", "definition.*", "--server", &cluster.address(), "-o", "json"].map(str::to_owned);
    let events = || {
        let (_, text) = cluster.run_cli(&list.each_ref().map(String::as_str));
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let words = all.map(|event| {
            let (kind, name) = (&event["kind"], &event["definition"]["name"]);
            format!("{} {}", kind.as_str().unwrap(), name.as_str().unwrap())
        });
        words.collect::<Vec<String>>()
    };
    let mut expected = Vec::new();
    for (text, more) in [
        (NEW, &["definition.changed fresh", "definition.changed hello", "definition.removed old"][..]),
        (JOBS, &["definition.changed hello", "definition.changed old", "definition.removed fresh"]),
        (&schedule, &["definition.changed hello"]),
        (&notify, &["definition.changed hello"]),
        (&notify, &[]),
        (JOBS, &["definition.changed hello"]),
        (without_old, &["definition.removed old"]),
        (JOBS, &["definition.changed old"]),
    ] {
        write(&cluster, "jobs.yaml", text);
        let (code, told) = cluster.run_cli(&["reload", "--server", &cluster.address()]);
        assert_eq!(code, 0, "{told}");
        expected.extend(more.iter().map(|event| (*event).to_owned()));
        // The next load may not come before the events of this one: they tell the difference of two snapshots.
        wait_until("the events of this load", async || events().len() >= expected.len()).await;
        assert_eq!(events(), expected);
    }
}
