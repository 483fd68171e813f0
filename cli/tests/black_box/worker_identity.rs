//! Join tokens and the secrets of workers, with real processes: who joins, who comes back, and who is shut out.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use testkit::{Cluster, Database, Process, wait_until};

const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: fake }
  big: { runtime: fake, requires: { gpu: a100 } }
";
const FLAGS: [&str; 2] = ["--no-docker", "--allow-fake"];
const QUICK_LEASE: [&str; 5] = ["--require-tokens", "--heartbeat", "500ms", "--lease", "3s"];

/// A cluster whose server requires tokens.
struct Stage {
    cluster: Cluster,
    admin: String,
}

impl Stage {
    fn new(jobs: &str) -> Self {
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
        let admin = cluster.admin_token();
        Self { cluster, admin }
    }

    async fn start_server(&self) -> Process {
        self.cluster.start_server(&["--require-tokens"]).await
    }

    /// Runs a command as the administrator.
    fn run(&self, words: &[&str]) -> (i32, String) {
        self.cluster.run_as(&self.admin, words)
    }

    fn run_ok(&self, words: &[&str]) -> String {
        let (code, text) = self.run(words);
        assert_eq!(code, 0, "{words:?}: {text}");
        text
    }

    /// Makes a join token, and returns the file that it was written to.
    fn make_token(&self, name: &str, flags: &[&str]) -> String {
        self.cluster.make_token(&self.admin, name, &[&["--role", "worker"], flags].concat())
    }

    fn start_worker(&self, name: &str, token_file: &str, flags: &[&str]) -> Process {
        self.cluster.start_worker(name, &[&FLAGS, &["--token-file", token_file], flags].concat())
    }

    fn json(&self, words: &[&str]) -> Vec<Value> {
        let text = self.run_ok(&[words, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// All known workers with this name, in the order of their ids.
    fn workers(&self, name: &str) -> Vec<Value> {
        let mut workers = self.json(&["workers", "--all"]);
        workers.retain(|worker| worker["name"] == name);
        workers
    }

    fn is_ready(&self, name: &str) -> bool {
        self.workers(name).iter().any(|worker| worker["state"] == "ready")
    }

    async fn wait_until_ready(&self, name: &str) {
        wait_until(&format!("{name} is ready"), async || self.is_ready(name)).await;
    }

    fn token(&self, name: &str) -> Value {
        let tokens = self.json(&["token", "ls"]);
        tokens.into_iter().rev().find(|token| token["name"] == name).expect("it is listed")
    }
}

#[tokio::test]
async fn a_worker_comes_back_by_its_own_secret_after_its_join_token_has_ended() {
    let stage = Stage::new(JOBS);
    let mut server = stage.start_server().await;
    let join = stage.make_token("join", &["--expires", "1h"]);
    let mut worker = stage.start_worker("anna", &join, &[]);
    stage.wait_until_ready("anna").await;
    worker.terminate().await;
    server.terminate().await;
    Database::execute(&stage.cluster.path("data"), "UPDATE tokens SET expires_at = 1 WHERE name = 'join'");

    let _server = stage.start_server().await;
    assert_eq!(stage.token("join")["state"], "expired");
    let worker = stage.start_worker("anna", &join, &[]);
    stage.wait_until_ready("anna").await;
    // Nor does a revocation of the token end its session, and the file may be gone.
    let said = stage.run_ok(&["token", "revoke", "join"]);
    assert!(said.contains("--workers revokes them, too"), "{said}");
    std::fs::remove_file(&join).unwrap();
    drop(worker);
    let _worker = stage.start_worker("anna", &join, &[]);
    stage.wait_until_ready("anna").await;
    assert_eq!(stage.workers("anna").len(), 1, "it is the same worker");

    // Another worker is not let in by it.
    std::fs::write(&join, "longshore_2_other").unwrap();
    std::fs::set_permissions(&join, std::fs::Permissions::from_mode(0o600)).unwrap();
    let other = stage.start_worker("bert", &join, &[]);
    wait_until("bert is refused", async || other.log().contains("answered 401")).await;
    assert!(stage.workers("bert").is_empty());
}

#[tokio::test]
async fn two_workers_at_once_cannot_take_the_last_use_of_a_join_token() {
    let stage = Stage::new(JOBS);
    let mut server = stage.start_server().await;
    let join = stage.make_token("once", &["--uses", "1"]);
    assert_eq!(stage.token("once")["uses_left"], 1);
    let mut workers: Vec<Process> =
        ["one", "two", "three"].iter().map(|name| stage.start_worker(name, &join, &[])).collect();
    wait_until("one has joined, and the others are refused", async || {
        let refused = workers.iter().filter(|worker| worker.log().contains("token_used_up")).count();
        refused == 2 && stage.json(&["workers"]).len() == 1
    })
    .await;
    let token = stage.token("once");
    assert_eq!(
        (&token["state"], &token["uses_left"], &token["joined"]),
        (&"used_up".into(), &0.into(), &1.into()),
        "{token}"
    );
    let winner = stage.json(&["workers"])[0]["name"].as_str().unwrap().to_owned();

    // The count is in the store, and reconnecting is no use.
    for worker in &mut workers {
        worker.kill();
    }
    server.terminate().await;
    let _server = stage.start_server().await;
    assert_eq!(stage.token("once")["uses_left"], 0);
    let _winner = stage.start_worker(&winner, &join, &[]);
    stage.wait_until_ready(&winner).await;
    let late = stage.start_worker("late", &join, &[]);
    wait_until("a fourth one is refused", async || late.log().contains("token_used_up")).await;
    assert_eq!(stage.json(&["workers", "--all"]).len(), 1);
}

#[tokio::test]
async fn a_granted_label_cannot_be_claimed_by_another_worker() {
    let stage = Stage::new(JOBS);
    let mut server = stage.start_server().await;
    let plain = stage.make_token("plain", &[]);
    let claim = ["--label", "gpu=a100", "--label", "zone=eu"];
    let mut claimant = stage.start_worker("claimant", &plain, &claim);
    stage.wait_until_ready("claimant").await;
    assert_eq!(stage.workers("claimant")[0]["labels"]["gpu"], "a100", "nobody grants it yet");

    let granting = stage.make_token("granting", &["--labels", "gpu=a100"]);
    let labels = |name: &str| stage.workers(name)[0]["labels"].clone();
    assert_eq!(labels("claimant"), serde_json::json!({ "zone": "eu" }), "taken from one that is connected");
    claimant.terminate().await;
    let mut claimant = stage.start_worker("claimant", &plain, &claim);
    stage.wait_until_ready("claimant").await;
    assert_eq!(labels("claimant"), serde_json::json!({ "zone": "eu" }));
    stage.run_ok(&["run", "big"]);
    assert_eq!(stage.json(&["ls", "--name", "big"])[0]["pending_reason"]["code"], "no_match");

    let mut granted = stage.start_worker("granted", &granting, &["--label", "gpu=none"]);
    stage.wait_until_ready("granted").await;
    let shown = &stage.workers("granted")[0];
    assert_eq!((&shown["labels"]["gpu"], &shown["labels_granted"]["gpu"]), (&"a100".into(), &"a100".into()));
    wait_until("the job runs where the label was granted", async || {
        let job = &stage.json(&["ls", "--name", "big"])[0];
        job["worker"]["name"] == "granted"
    })
    .await;

    // It stays with the worker after its token has ended, and after a restart.
    stage.run_ok(&["token", "revoke", "granting"]);
    granted.terminate().await;
    claimant.terminate().await;
    server.terminate().await;
    let _server = stage.start_server().await;
    let _granted = stage.start_worker("granted", &granting, &[]);
    let _claimant = stage.start_worker("claimant", &plain, &claim);
    stage.wait_until_ready("granted").await;
    stage.wait_until_ready("claimant").await;
    assert_eq!(labels("granted")["gpu"], "a100");
    assert_eq!(labels("claimant"), serde_json::json!({ "zone": "eu" }));
}

#[tokio::test]
async fn a_revoked_worker_is_shut_out_and_its_job_is_handed_on() {
    let test = std::process::id();
    let jobs = format!(
        "version: 1\njobs:\n  long: {{ runtime: process, command: [sh, -c, 'while [ -d /proc/{test} ]; do sleep 0.1; done'], \
         stop_grace_period: 1s, lost_after: 4s }}\n"
    );
    let stage = Stage::new(&jobs);
    let mut server = stage.cluster.start_server(&QUICK_LEASE).await;
    let join = stage.make_token("join", &[]);
    let process = ["--allow-process", "--slots", "1"];
    let bad = stage.start_worker("bad", &join, &process);
    stage.wait_until_ready("bad").await;
    stage.run_ok(&["run", "long"]);
    let job = || stage.json(&["ls", "--name", "long"])[0].clone();
    wait_until("the job runs", async || job()["state"] == "running").await;
    let _good = stage.start_worker("good", &join, &process);
    stage.wait_until_ready("good").await;

    let said = stage.run_ok(&["worker", "revoke", "bad"]);
    assert!(said.contains("is revoked"), "{said}");
    wait_until("the worker learns it", async || bad.log().contains("worker_revoked")).await;
    let shown = &stage.workers("bad")[0];
    assert!(shown["state"] == "revoked" && shown["connected"] == false, "{shown}");
    assert!(shown["revoked_at"].is_string(), "{shown}");
    wait_until("the job runs elsewhere", async || {
        let job = job();
        job["worker"]["name"] == "good" && job["state"] == "running"
    })
    .await;
    assert!(stage.run_ok(&["show", "1"]).contains("lost"), "{}", stage.run_ok(&["show", "1"]));
    wait_until("the revocation is in the audit log", async || {
        stage.run_ok(&["audit", "--path", "/revoke"]).contains("/api/workers/1/revoke")
    })
    .await;

    // Neither a restart of the server nor one of the worker lets the old secret in again, whatever token comes with it.
    server.terminate().await;
    let _server = stage.cluster.start_server(&QUICK_LEASE).await;
    drop(bad);
    let mut bad = stage.start_worker("bad", &join, &process);
    wait_until("it is refused", async || bad.log().matches("worker_revoked").count() > 0).await;
    assert_eq!(stage.workers("bad").len(), 1);
    bad.kill();

    // With --rejoin and a token that is valid it is a new worker.
    let _bad = stage.start_worker("bad", &join, &["--allow-process", "--slots", "1", "--rejoin"]);
    stage.wait_until_ready("bad").await;
    let states: Vec<Value> = stage.workers("bad").iter().map(|worker| worker["state"].clone()).collect();
    assert_eq!(states, ["revoked", "ready"]);
}

#[tokio::test]
async fn the_workers_of_a_join_token_are_revoked_with_it() {
    let stage = Stage::new(JOBS);
    let _server = stage.start_server().await;
    let (leaked, kept) = (stage.make_token("leaked", &[]), stage.make_token("kept", &[]));
    let one = stage.start_worker("one", &leaked, &[]);
    let two = stage.start_worker("two", &leaked, &[]);
    let _three = stage.start_worker("three", &kept, &[]);
    for name in ["one", "two", "three"] {
        stage.wait_until_ready(name).await;
    }
    let said = stage.run_ok(&["token", "revoke", "leaked", "--workers"]);
    assert!(said.contains("workers revoked with it: 2"), "{said}");
    for worker in [&one, &two] {
        wait_until("it is shut out", async || worker.log().contains("worker_revoked")).await;
    }
    assert!(stage.is_ready("three"));
    let again = stage.run_ok(&["token", "revoke", "leaked", "--workers"]);
    assert!(again.contains("workers revoked with it: 0"), "a revoked token has workers, too: {again}");
    let (code, text) = stage.run(&["token", "create", "wrong", "--role", "viewer", "--uses", "1"]);
    assert!(code != 0 && text.contains("only a token with the role worker has uses"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_worker_that_is_away_since_before_a_restart_are_counted_as_running() {
    let jobs = "version: 1\njobs:\n  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }\n";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let mut server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("anna", &FLAGS);
    cluster.api().wait_for_ready_worker("anna").await;
    cluster.api().post("/api/jobs/long", None).await;
    cluster.api().wait_for_job(1, |job| job["state"] == "running").await;
    worker.kill();
    server.kill();
    let _server = cluster.start_server(&[]).await;
    let anna = cluster.api().get("/api/workers/1").await;
    assert_eq!(
        (&anna["state"], &anna["busy"], &anna["queued"]),
        (&"disconnected".into(), &1.into(), &0.into()),
        "{anna}"
    );
    let (_, listed) = cluster.run_cli(&["workers", "--server", &cluster.address()]);
    assert!(listed.contains("1/?"), "{listed}");
}
