//! Deploys of definitions through the real binary: the jobs file is replaced and loaded, or nothing changes.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::{Value, json};
use testkit::{Cluster, bearer, http, wait_until};

const JOBS: &str = "version: 1\njobs:\n  hello: { runtime: fake }\n  old: { runtime: fake }\n";
const NEW: &str = "# from git\nversion: 1\njobs:\n  hello: { runtime: fake, timeout: 1m }\n  fresh: { runtime: fake, schedule: { cron: '0 2 1 1 *' } }\n";

/// A cluster without tokens whose server takes deploys.
fn cluster() -> Cluster {
    Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS)
}

/// Writes a text into the cluster's directory, and deploys it from there with these flags.
fn deploy(cluster: &Cluster, text: &str, flags: &[&str]) -> (i32, String) {
    let file = cluster.path("mine.yaml").display().to_string();
    std::fs::write(&file, text).unwrap();
    cluster.run_cli(&[&["deploy", &file, "--server", &cluster.address()], flags].concat())
}

fn file(cluster: &Cluster, name: &str) -> String {
    std::fs::read_to_string(cluster.path(name)).unwrap()
}

/// The names of the definitions in force.
async fn names(cluster: &Cluster) -> Vec<String> {
    let list = cluster.api().get("/api/definitions").await;
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

fn revision(cluster: &Cluster) -> String {
    let jobs = cluster.path("jobs.yaml").display().to_string();
    let (code, plan) = cluster.run_cli(&["plan", &jobs, "--server", &cluster.address(), "-o", "json"]);
    assert_eq!(code, 0, "{plan}");
    let plan: Value = serde_json::from_str(&plan).unwrap();
    plan["current_revision"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_deploy_replaces_the_file_and_the_definitions_and_a_former_file_is_rolled_back_to() {
    let cluster = cluster();
    let jobs = cluster.path("jobs.yaml");
    std::fs::set_permissions(&jobs, std::fs::Permissions::from_mode(0o640)).unwrap();
    let mut server = cluster.start_server(&["--allow-deploy"]).await;
    let before = revision(&cluster);

    let (code, text) = deploy(&cluster, NEW, &["--dry-run"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("+ fresh\n    next: ") && text.contains("nothing was changed"), "{text}");
    assert_eq!(
        (names(&cluster).await, file(&cluster, "jobs.yaml")),
        (vec!["hello".into(), "old".into()], JOBS.into())
    );
    assert!(!cluster.path("jobs.yaml.previous").exists());

    let (code, text) = deploy(&cluster, NEW, &["--expect", &before]);
    assert_eq!(code, 0, "{text}");
    for part in [
        "+ fresh\n    next: ",
        "- old\n",
        "~ hello\n    timeout_ms: 3600000 -> 60000\n",
        "1 added, 1 removed, 1 changed, 0 unchanged; deployed revision ",
        &format!(", before {before}\nthe former text is in jobs.yaml.previous, "),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(names(&cluster).await, ["fresh", "hello"]);
    assert_eq!(
        (file(&cluster, "jobs.yaml"), file(&cluster, "jobs.yaml.previous")),
        (NEW.into(), JOBS.into())
    );
    assert_eq!(std::fs::metadata(&jobs).unwrap().mode() & 0o777, 0o640);
    assert!(server.log().contains("jobs.yaml deployed"), "{}", server.log());

    // The same text again writes nothing, so the former one stays where it is.
    let after = revision(&cluster);
    let (code, text) = deploy(&cluster, NEW, &["--expect", &after, "-o", "json"]);
    let same: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{code} {error}: {text}"));
    assert_eq!(
        (&same["revision"], &same["unchanged"], &same["dry_run"]),
        (&json!(after), &json!(2), &json!(false))
    );
    assert_eq!(same["previous_file"], Value::Null);
    assert_eq!(file(&cluster, "jobs.yaml.previous"), JOBS);

    // The machine loses power as soon as the answer is there.
    server.kill();
    let _server = cluster.start_server(&["--allow-deploy"]).await;
    assert_eq!(names(&cluster).await, ["fresh", "hello"]);
    let (code, text) = deploy(&cluster, JOBS, &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!((names(&cluster).await, revision(&cluster)), (vec!["hello".into(), "old".into()], before));
    assert_eq!(
        (file(&cluster, "jobs.yaml"), file(&cluster, "jobs.yaml.previous")),
        (JOBS.into(), NEW.into())
    );
}

#[tokio::test]
async fn a_refused_deploy_changes_neither_the_file_nor_the_definitions() {
    let cluster = cluster();
    std::fs::write(cluster.path("values.env"), "PASSWORD=hunter2\n").unwrap();
    let server = cluster.start_server(&["--allow-deploy"]).await;
    let refused = async |text: &str, flags: &[&str], expected: &[&str]| {
        let (code, told) = deploy(&cluster, text, flags);
        assert_ne!(code, 0, "{told}");
        for part in expected {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("hunter2"), "a value is shown: {told}");
        assert_eq!(names(&cluster).await, ["hello", "old"], "{told}");
        assert!(!cluster.path("jobs.yaml.previous").exists(), "{told}");
    };
    let shown = cluster.path("mine.yaml").display().to_string();
    refused("jobs: { a: { runtime: fake } }\nx: 1\n", &[], &[&format!("{shown}:2:1: unknown_field")]).await;
    refused("jobs: {}\n", &[], &[&format!("{shown}: no_jobs: file defines no jobs")]).await;
    refused(
        &format!("{NEW}#{}", "x".repeat(2_000_000)),
        &[],
        &[&format!("{shown}: file_too_large: it is larger than 2000000 bytes")],
    )
    .await;
    refused(NEW, &["--expect", &"0".repeat(32)], &["the definitions have the revision"]).await;
    refused(NEW, &["--expect", "abc"], &["as a plan shows it"]).await;
    refused(NEW, &["--max-removed", "0"], &["too_many_removed", "may remove 0: old"]).await;
    // Values of the server that its own file does not take.
    let reads = "jobs:\n  a: { runtime: fake, environment: { P: '${PATH}' } }\n  b: { runtime: fake, env_file: values.env }\n";
    refused(reads, &[], &[&format!("{shown}:2:"), &format!("{shown}:3:")]).await;
    let directory = cluster.path("").display().to_string();
    let (code, told) = cluster.run_cli(&["deploy", &directory, "--server", &cluster.address()]);
    assert_eq!((code, told.contains("a deploy takes one file")), (2, true), "{told}");
    assert_eq!(file(&cluster, "jobs.yaml"), JOBS);

    // An edit on the server that nobody has loaded: it is not lost without a word.
    let expected = revision(&cluster);
    let edited = format!("{JOBS}  edited: {{ runtime: fake }}\n");
    std::fs::write(cluster.path("jobs.yaml"), &edited).unwrap();
    refused(NEW, &["--expect", &expected], &["has changes that were not loaded", "longshore reload"]).await;
    let new = cluster.path("mine.yaml").display().to_string();
    let (_, plan) = cluster.run_cli(&["plan", &new, "--server", &cluster.address()]);
    assert!(plan.contains("jobs.yaml has changes that were not loaded"), "{plan}");
    assert_eq!(file(&cluster, "jobs.yaml"), edited);

    // The disk refuses the new file.
    std::fs::create_dir(cluster.path(".jobs.yaml.draft")).unwrap();
    refused(NEW, &[], &["the server cannot replace it", "remove the directory whose name ends with .draft"])
        .await;
    assert_eq!(file(&cluster, "jobs.yaml"), edited);
    std::fs::remove_dir(cluster.path(".jobs.yaml.draft")).unwrap();

    let (code, told) = deploy(&cluster, NEW, &["--max-removed", "1"]);
    assert!(code == 0 && told.contains("keeps them in jobs.yaml.previous"), "{told}");
    assert_eq!((file(&cluster, "jobs.yaml"), file(&cluster, "jobs.yaml.previous")), (NEW.into(), edited));
    assert!(server.log().contains("a deploy was refused"), "{}", server.log());
}

#[tokio::test]
async fn a_server_takes_no_deploys_unless_it_is_told_to_and_none_into_a_directory() {
    let cluster = cluster();
    let mut server = cluster.start_server(&[]).await;
    let (code, told) = deploy(&cluster, NEW, &[]);
    assert_eq!((code, told.contains("--allow-deploy")), (3, true), "{told}");
    assert_eq!(
        (names(&cluster).await, file(&cluster, "jobs.yaml")),
        (vec!["hello".into(), "old".into()], JOBS.into())
    );
    server.terminate().await;

    std::fs::create_dir(cluster.path("jobs.d")).unwrap();
    std::fs::write(cluster.path("jobs.d/a.yaml"), JOBS).unwrap();
    let directory = cluster.path("jobs.d").display().to_string();
    let spec = cluster.server_spec(&["--allow-deploy"]);
    let jobs = cluster.path("jobs.yaml").display().to_string();
    let arguments = spec.arguments.iter().map(|it| if *it == jobs { directory.clone() } else { it.clone() });
    let _server = testkit::ProcessSpec { arguments: arguments.collect(), ..spec }.start();
    cluster.api().wait_until_ready().await;
    let (code, told) = deploy(&cluster, NEW, &[]);
    assert_eq!((code, told.contains("a deploy replaces one file")), (5, true), "{told}");
    assert_eq!(
        (names(&cluster).await, file(&cluster, "jobs.d/a.yaml")),
        (vec!["hello".into(), "old".into()], JOBS.into())
    );
}

#[tokio::test]
async fn operators_deploy_and_the_audit_log_has_both_revisions() {
    let flags = ["--allow-deploy"];
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &flags).await;
    let mine = cluster.path("mine.yaml").display().to_string();
    std::fs::write(&mine, NEW).unwrap();
    let submitter = cluster.make_token(&admin, "submits", &["--role", "submitter"]);
    let limited = cluster.make_token(&admin, "limited", &["--role", "operator", "--definitions", "*"]);
    for (token, code) in [(&submitter, "operator"), (&limited, "for certain definitions only")] {
        let (exit, told) = cluster.run_as(token, &["deploy", &mine]);
        assert_eq!((exit, told.contains(code)), (3, true), "{told}");
    }
    assert_eq!(file(&cluster, "jobs.yaml"), JOBS);
    let ci = cluster.make_token(&admin, "ci", &["--role", "operator"]);
    let (exit, told) = cluster.run_as(&ci, &["deploy", &mine, "-o", "json"]);
    assert_eq!(exit, 0, "{told}");
    let directory = cluster.path("").display().to_string();
    assert!(told.contains("\"jobs.yaml.previous\"") && !told.contains(&directory), "{told}");
    let deployed: Value = serde_json::from_str(&told).unwrap();
    let mut found = Value::Null;
    wait_until("the deploy is in the audit log", async || {
        let (_, rows) = cluster.run_as(&admin, &["audit", "--by", "ci", "-o", "json"]);
        found = serde_json::from_str::<Vec<Value>>(&rows).unwrap().pop().unwrap_or_default();
        !found.is_null()
    })
    .await;
    let [before, after] = ["current_revision", "revision"].map(|key| deployed[key].as_str().unwrap());
    let detail = format!("revision {before} -> {after}; added fresh; changed hello; removed old");
    assert_eq!((&found["object"], &found["detail"]), (&json!("definitions"), &json!(detail)), "{found}");
    assert_eq!((&found["method"], &found["status"]), (&json!("PUT"), &json!(200)), "{found}");

    // Several files in one body, and a body that never ends.
    let put = async |body: String| {
        let url = format!("http://{}/api/definitions", cluster.address());
        let request = http::client().build().unwrap().put(url).header("authorization", bearer(&ci));
        request.header("content-type", "application/json").body(body).send().await.unwrap()
    };
    let several = json!({ "files": [{ "name": "a.yaml", "text": JOBS }] }).to_string();
    let answer = put(several).await;
    assert_eq!(answer.status(), 422);
    assert!(answer.text().await.unwrap().contains("the body has several"));
    assert_eq!(put("#".repeat(3_000_000)).await.status(), 413);
    assert_eq!(file(&cluster, "jobs.yaml"), NEW);
}

#[tokio::test]
async fn a_watch_does_not_load_the_deployed_file_again_and_follows_a_link_to_it() {
    let cluster = cluster();
    // As a checkout beside the configuration.
    std::fs::create_dir(cluster.path("real")).unwrap();
    std::fs::rename(cluster.path("jobs.yaml"), cluster.path("real/v1.yaml")).unwrap();
    symlink("real/v1.yaml", cluster.path("jobs.yaml")).unwrap();
    let server = cluster.start_server(&["--allow-deploy", "--watch-jobs"]).await;
    let read = || server.log().matches("reading jobs.yaml again").count();
    wait_until("the first look", async || read() == 1).await;
    assert_eq!(deploy(&cluster, NEW, &[]).0, 0);
    assert_eq!(file(&cluster, "real/v1.yaml"), NEW);
    assert!(std::fs::symlink_metadata(cluster.path("jobs.yaml")).unwrap().is_symlink());
    // The watch looks each second: it has seen the deployed file at rest once this job's time has come.
    let api = cluster.api();
    let job = api.post("/api/jobs/hello", Some(&json!({ "delay": "4s" }))).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "queued").await;
    // Only the edit after the deploy is a change.
    std::fs::write(cluster.path("real/v1.yaml"), JOBS).unwrap();
    wait_until("the edit is loaded", async || names(&cluster).await == ["hello", "old"]).await;
    assert_eq!(read(), 2, "{}", server.log());
}

#[tokio::test]
async fn a_deploy_is_held_to_the_policy_as_it_is_now() {
    let cluster = cluster();
    let policy = cluster.path("policy.yaml").display().to_string();
    let write = |timeout: &str| {
        let text = format!("version: 1\nrules:\n  - runtimes: [fake]\n    max_timeout: {timeout}\n");
        std::fs::write(&policy, text).unwrap();
    };
    write("2h");
    let _server = cluster.start_server(&["--allow-deploy", "--policy", &policy]).await;
    let (code, told) = deploy(&cluster, &NEW.replace("1m", "3h"), &[]);
    assert!(code != 0 && told.contains("mine.yaml:4:3") && told.contains("forbidden_by_policy"), "{told}");
    write("3h");
    let (code, told) = deploy(&cluster, &NEW.replace("1m", "3h"), &[]);
    assert!(code == 0 && told.contains("0 unchanged; the policy has changed; deployed revision"), "{told}");
    write("1m");
    let (code, told) = deploy(&cluster, JOBS, &[]);
    assert!(code != 0 && told.contains("forbidden_by_policy"), "{told}");
    assert_eq!(names(&cluster).await, ["fresh", "hello"]);
}

#[tokio::test]
async fn a_deploy_whose_answer_was_lost_is_repeated_with_the_same_expectation() {
    let cluster = cluster();
    let _server = cluster.start_server(&["--allow-deploy"]).await;
    let before = revision(&cluster);
    for _ in 0..2 {
        let (code, text) = deploy(&cluster, NEW, &["--expect", &before]);
        assert_eq!(code, 0, "{text}");
    }
    let (code, text) = deploy(&cluster, JOBS, &["--expect", &before]);
    assert!(code != 0 && text.contains("the definitions have the revision"), "another file: {text}");
}

#[tokio::test]
async fn a_deploy_that_removed_a_variable_of_the_server_is_rolled_back() {
    let cluster = cluster();
    let takes = "jobs:\n  hello: { runtime: fake, environment: { P: '${PATH}' } }\n";
    std::fs::write(cluster.path("jobs.yaml"), takes).unwrap();
    let server = cluster.start_server(&["--allow-deploy"]).await;
    assert!(server.log().contains("deploys are allowed without tokens"), "{}", server.log());
    for text in [JOBS, takes] {
        let (code, told) = deploy(&cluster, text, &[]);
        assert_eq!(code, 0, "{told}");
    }
    for (text, is_known) in [(JOBS, true), (NEW, true), (takes, false)] {
        let (code, told) = deploy(&cluster, text, &[]);
        assert_eq!(code == 0, is_known, "neither the present nor the former file takes it: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_whose_client_has_left_is_in_the_audit_log_with_its_effect() {
    let cluster = cluster();
    let policy = cluster.path("policy.yaml");
    let rules = "version: 1\nrules: []\n";
    std::fs::write(&policy, rules).unwrap();
    let flags = ["--allow-deploy", "--policy", policy.to_str().unwrap()];
    let _server = cluster.start_server(&flags).await;
    // The server reads the policy in the turn of the deploy, and waits there for a writer.
    std::fs::remove_file(&policy).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &policy, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let mut client = TcpStream::connect(cluster.address().trim_start_matches("http://")).unwrap();
    let head =
        format!("PUT /api/definitions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", NEW.len());
    client.write_all(format!("{head}{NEW}").as_bytes()).unwrap();
    // Opens as soon as the server does.
    let mut pipe = tokio::task::spawn_blocking(move || std::fs::File::options().write(true).open(policy))
        .await
        .unwrap()
        .unwrap();
    drop(client);
    let rows = async || cluster.api().get("/api/audit?limit=10").await.as_array().unwrap().clone();
    let deploys = async |status: u64| {
        let all = rows().await;
        all.into_iter().filter(|row| row["method"] == "PUT" && row["status"] == status).collect::<Vec<_>>()
    };
    wait_until("the request is over", async || !deploys(499).await.is_empty()).await;
    pipe.write_all(rules.as_bytes()).unwrap();
    drop(pipe);
    wait_until("the deploy is in the audit log", async || !deploys(200).await.is_empty()).await;
    let row = deploys(200).await.remove(0);
    let detail = row["detail"].as_str().unwrap();
    assert!(detail.starts_with("revision ") && detail.contains("added fresh"), "{row}");
    assert!(detail.contains("the client left before the end"), "{row}");
    assert_eq!(
        (file(&cluster, "jobs.yaml"), names(&cluster).await),
        (NEW.into(), vec!["fresh".into(), "hello".into()])
    );
}
