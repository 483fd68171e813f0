//! `longshore doctor --config` on the machine of a worker that reaches its server over TLS with a token.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use testkit::{Cluster, Process, wait_until};

use crate::stub::{JSON, Stub, longshore, run};

/// The directory of a server with TLS and tokens.
struct Machine {
    cluster: Cluster,
    _server: Process,
}

impl Machine {
    async fn start() -> Self {
        let cluster =
            Cluster::new(env!("CARGO_BIN_EXE_longshore"), "version: 1\njobs: { hello: { runtime: fake } }\n");
        let path = |name: &str| cluster.path(name).display().to_string();
        let (code, text) = cluster.run_cli(&["cert", "--host", "jobs.example", "--dir", &path("tls")]);
        assert_eq!(code, 0, "{text}");
        let files = [path("tls/server.pem"), path("tls/server-key.pem")];
        let server =
            cluster.spawn_server(&["--require-tokens", "--tls-cert", &files[0], "--tls-key", &files[1]]);
        let machine = Self { cluster, _server: server };
        wait_until("the server is ready", async || machine.ask(&["health"]).0 == 0).await;
        machine
    }

    fn path(&self, name: &str) -> String {
        self.cluster.path(name).display().to_string()
    }

    fn url(&self) -> String {
        format!("https://{}", self.cluster.address())
    }

    /// Runs a verb about the server.
    fn ask(&self, words: &[&str]) -> (i32, String) {
        let (url, ca) = (self.url(), self.path("tls/ca.pem"));
        self.cluster.run_cli(&[words, &["--server", &url, "--ca-file", &ca]].concat())
    }

    fn make_token(&self, name: &str, role: &str) -> String {
        let (admin, file) = (self.cluster.admin_token(), self.path(&format!("{name}.token")));
        let words = ["token", "create", name, "--role", role, "--token-file", &admin, "--save", &file];
        let (code, text) = self.ask(&words);
        assert_eq!(code, 0, "{text}");
        file
    }

    /// Writes the settings of the worker, and returns their file.
    fn settings(&self, token_file: &str, more: &str) -> String {
        let file = self.path("worker.yaml");
        let (url, ca, state) = (self.url(), self.path("tls/ca.pem"), self.path("anna"));
        let text = format!(
            "server: {url}\nca_file: {ca}\ntoken_file: {token_file}\nstate_dir: {state}\nname: anna\nallow_fake: true\n{more}"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The findings of `doctor` by what was looked at, each with its verdict and text.
    fn doctor(&self, settings: &str, more: &[&str]) -> (i32, BTreeMap<String, (String, String)>) {
        let mut command = longshore(&["doctor", "-o", "json", "--config", settings]);
        let said = run(command.args(more).env_remove("LONGSHORE_SERVER"));
        let told: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        let findings = told["findings"].as_array().unwrap().iter();
        let finding = |it| (text(it, "what"), (text(it, "verdict"), text(it, "text")));
        (said.code, findings.map(finding).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_a_worker_are_checked_with_its_server_and_token() {
    let machine = Machine::start().await;
    let (join, viewer) = (machine.make_token("join", "worker"), machine.make_token("eyes", "viewer"));
    let settings = machine.settings(&join, "no_docker: true\n");
    let (code, found) = machine.doctor(&settings, &["--token-file", &viewer]);
    assert_eq!((code, found["token"].1.as_str()), (0, "the server accepts the worker's token"), "{found:?}");
    assert!(["settings", "server", "ready", "clock"].iter().all(|what| found[*what].0 == "ok"), "{found:?}");
    assert!(!found.contains_key("docker"), "the worker runs no containers: {found:?}");
    // Without a token for the API the server tells less, and nothing has failed.
    let (code, found) = machine.doctor(&settings, &[]);
    assert_eq!((code, found["server"].0.as_str(), found["token"].0.as_str()), (0, "warn", "ok"), "{found:?}");

    let (code, found) = machine.doctor(&machine.settings(&viewer, "docker: /no/docker\n"), &[]);
    assert_eq!((code, found["token"].0.as_str()), (1, "fail"), "a viewer is no worker: {found:?}");
    assert!(found["docker"].1.contains("/no/docker"), "{found:?}");
    let (code, found) = machine.doctor(&machine.settings(&machine.path("missing"), ""), &[]);
    assert!(code == 1 && found["token"].1.contains("missing"), "{found:?}");
    let (code, found) = machine.doctor(&machine.settings(&join, "slotz: 2\n"), &[]);
    assert_eq!((code, found["settings"].0.as_str()), (1, "fail"), "{found:?}");
    let fault = "worker.yaml:7:1: unknown_field: there is no setting \"slotz\"; did you mean \"slots\"?";
    assert!(found["settings"].1.ends_with(fault) && !found.contains_key("server"), "{found:?}");
    let (code, found) = machine.doctor(&machine.settings(&join, "slots: 20000\n"), &[]);
    assert!(code == 1 && found["settings"].1.contains("slots"), "as the worker checks it: {found:?}");
    assert_eq!(machine.doctor(&machine.path("absent.yaml"), &[]).0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_joined_is_named_with_its_cluster() {
    let machine = Machine::start().await;
    let settings = machine.settings(&machine.make_token("join", "worker"), "no_docker: true\n");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(["worker", "--config", &settings]);
    let _worker = Process::spawn(command, &machine.cluster.path("anna.log")).unwrap();
    let admin = machine.cluster.admin_token();
    wait_until("the worker has joined", async || {
        machine.ask(&["workers", "--token-file", &admin]).1.contains("anna")
    })
    .await;
    let settings = machine.settings(&machine.path("removed"), "no_docker: true\n");
    wait_until("its membership is recorded", async || {
        let (_, found) = machine.doctor(&settings, &[]);
        found.get("membership").is_some_and(|(verdict, text)| {
            verdict == "ok"
                && text.contains("has joined as worker 1 of cluster ")
                && text.ends_with("is not tried")
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_membership_is_a_finding_that_names_its_file() {
    let machine = Machine::start().await;
    let settings =
        machine.settings(&machine.make_token("join", "worker"), "no_docker: true\nshare_state_dir: false\n");
    std::fs::create_dir(machine.path("anna")).unwrap();
    let file = machine.path("anna/membership");
    std::fs::write(&file, "?").unwrap();
    let (code, found) = machine.doctor(&settings, &[]);
    assert_eq!((code, found["membership"].0.as_str()), (1, "fail"), "{found:?}");
    assert!(found["membership"].1.contains(&file) && found["membership"].1.contains("damaged"), "{found:?}");
    assert!(!found.contains_key("token"), "{found:?}");
}

#[test]
fn variables_of_the_shell_and_flags_do_not_replace_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let (settings, token) = (dir.path().join("worker.yaml"), dir.path().join("token"));
    std::fs::write(&token, "secret-of-the-worker\n").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let other = Stub::new();
    let ours = Stub::new();
    ours.on("GET /api/workers/connect", "426 Upgrade Required", JSON, "{}");
    let text = format!(
        "server: {}\ntoken_file: {}\nstate_dir: {}\nno_docker: true\nallow_fake: true\n",
        ours.address(),
        token.display(),
        dir.path().join("state").display()
    );
    std::fs::write(&settings, text).unwrap();
    let doctor = |more: &[&str]| {
        let mut command = other.longshore(&["doctor", "--config"]);
        command.arg(&settings).args(more).env("LONGSHORE_API_TOKEN_FILE", &token);
        run(command.env("LONGSHORE_DOCKER", "/no/docker").env("LONGSHORE_CA_FILE", "/no/ca"))
    };
    let said = doctor(&[]);
    assert!(said.out.contains(&format!("a worker of {}", ours.address())), "{said:?}");
    assert!(said.out.contains("the server accepts the worker's token"), "{said:?}");
    assert!(!said.out.contains("/no/"), "{said:?}");
    let with_token: Vec<String> = ours
        .requests()
        .into_iter()
        .filter(|request| request.head.iter().any(|line| line.starts_with("authorization:")))
        .map(|request| request.line)
        .collect();
    assert_eq!(with_token, ["GET /api/workers/connect"], "the token of the shell is for another server");
    for flag in ["--server", "--ca-file", "--tls-client-cert", "--tls-client-key", "--docker"] {
        let said = doctor(&[flag, "127.0.0.1:1"]);
        let why = format!("error: {flag} and --config exclude each other; ");
        assert!(said.code == 2 && said.err.starts_with(&why), "{said:?}");
    }
    assert!(other.requests().is_empty(), "{:?}", other.requests());
}

#[test]
fn an_error_of_the_server_is_told_once_without_a_word_about_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let settings = dir.path().join("worker.yaml");
    let doctor = |lines: &str| {
        let state = dir.path().join("state");
        std::fs::write(
            &settings,
            format!("state_dir: {}\nno_docker: true\nallow_fake: true\n{lines}", state.display()),
        )
        .unwrap();
        let said = run(longshore(&["doctor", "--config"]).arg(&settings));
        assert_eq!(said.code, 1, "{said:?}");
        said.out
    };
    // It answers everything with 418.
    let other = Stub::new();
    for lines in [
        format!("server: {}\n", other.address()),
        "server: https://127.0.0.1:1\nca_file: /no/ca.pem\n".to_owned(),
        "server: http://127.0.0.1:1\n".to_owned(),
    ] {
        let out = doctor(&lines);
        assert_eq!(out.matches("fail ").count(), 1, "{out}");
        assert!(out.contains("fail  server") && !out.contains("token create"), "{out}");
    }
    let out = doctor(&format!("server: {}\ntoken_file: /no/token\n", other.address()));
    assert!(
        out.contains("/no/token") && out.contains("correct token_file") && !out.contains("token create"),
        "{out}"
    );
}
