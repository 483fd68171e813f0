//! A worker's health file, as a container's health check asks for it.

use std::process::{Command, Output};

use crate::support::{Stage, holds};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_well_while_it_hears_its_server_and_unknown_when_it_has_left() {
    let stage = Stage::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let file = stage.path("health");
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(["health", "--file"]).arg(&file).output().unwrap()
    };
    let says = |output: &Output, code: i32, words: &str| {
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        output.status.code() == Some(code) && String::from_utf8(said).unwrap().contains(words)
    };
    let mut server = stage.server(&["--heartbeat", "500ms", "--lease", "3s"]).await;
    assert!(says(&ask(), 6, "no worker keeps"));

    let flags = ["--no-docker", "--allow-fake", "--health-file", file.to_str().unwrap()];
    let mut worker = stage.worker("only", &flags);
    holds("it is connected", async || says(&ask(), 0, "connected\n")).await;
    server.kill();
    holds("its lease is over", async || says(&ask(), 6, "has not heard its server")).await;
    let mut server = stage.server(&["--heartbeat", "500ms", "--lease", "3s"]).await;
    holds("it is connected again", async || says(&ask(), 0, "connected\n")).await;
    worker.leave().await;
    assert!(says(&ask(), 6, "has left"));
    server.leave().await;
}
