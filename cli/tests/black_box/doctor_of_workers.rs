//! `longshore doctor --config` on the machine of a worker that reaches its server over TLS with a token.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::{Cluster, Process, wait_until};

use crate::stub::{longshore, run};

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
    assert!(found["settings"].1.contains("worker.yaml") && !found.contains_key("server"), "{found:?}");
    let (code, found) = machine.doctor(&machine.settings(&join, "slots: 20000\n"), &[]);
    assert!(code == 1 && found["settings"].1.contains("slots"), "as the worker checks it: {found:?}");
    assert_eq!(machine.doctor(&machine.path("absent.yaml"), &[]).0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_joined_needs_no_token() {
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
        machine.doctor(&settings, &[]).1["token"].1 == "the worker has joined, and needs no token any more"
    })
    .await;
}
