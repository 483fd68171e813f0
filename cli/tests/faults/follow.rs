//! A client that follows the output of a job gets all of it once, over broken connections.

use std::path::Path;

use testkit::ProcessSpec;

use crate::support::{Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn follower_of_a_silent_job_sees_its_end_after_a_server_kill() {
    let cluster = Cluster::new("");
    let go = cluster.path("go");
    let script = format!("echo one; while [ ! -e {} ]; do sleep 0.05; done; echo two; exit 3", go.display());
    let jobs =
        format!("version: 1\njobs: {{ talk: {{ runtime: process, command: [sh, -c, '{script}'] }} }}\n");
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    let mut server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    let api = cluster.api();
    api.wait_for_ready_worker("only").await;
    let job = api.post("/api/jobs/talk", None).await["id"].as_u64().unwrap();

    let follow = ["logs", "-f", &job.to_string(), "--server", &cluster.address()].map(str::to_owned);
    let program = Path::new(env!("CARGO_BIN_EXE_longshore"));
    let mut reader = ProcessSpec::new(program, follow.to_vec(), cluster.path("reader.log")).start();
    wait_until("what was written is shown", async || reader.log() == "one\n").await;
    server.kill();
    wait_until("the reader notices", async || reader.log().contains("the connection broke")).await;
    let mut server = cluster.start_server(&[]).await;
    api.wait_for_ready_worker("only").await;
    std::fs::write(go, "").unwrap();
    let status = reader.wait_for_exit().await;
    assert!(status.success(), "{status}: {}", reader.log());
    let shown: Vec<String> =
        reader.log().lines().filter(|line| !line.starts_with("longshore:")).map(str::to_owned).collect();
    assert_eq!(shown, ["one", "two"], "{}", reader.log());
    worker.terminate().await;
    server.terminate().await;
}
