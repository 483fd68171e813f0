//! The health file of a worker, as a container health check reads it.

use std::process::{Command, Output};

use crate::support::{Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn health_file_follows_the_connection_of_the_worker() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let file = cluster.path("health");
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(["health", "--file"]).arg(&file).output().unwrap()
    };
    let says = |output: &Output, code: i32, words: &str| {
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        output.status.code() == Some(code) && String::from_utf8(said).unwrap().contains(words)
    };
    let mut server = cluster.start_server(&["--heartbeat", "500ms", "--lease", "3s"]).await;
    assert!(says(&ask(), 6, "no worker keeps"));

    let flags = ["--no-docker", "--allow-fake", "--health-file", file.to_str().unwrap()];
    let mut worker = cluster.start_worker("only", &flags);
    wait_until("it is connected", async || says(&ask(), 0, "connected\n")).await;
    server.kill();
    wait_until("its lease is over", async || says(&ask(), 6, "has not heard its server")).await;
    let mut server = cluster.start_server(&["--heartbeat", "500ms", "--lease", "3s"]).await;
    wait_until("it is connected again", async || says(&ask(), 0, "connected\n")).await;
    worker.terminate().await;
    assert!(says(&ask(), 6, "has left"));
    server.terminate().await;
}
