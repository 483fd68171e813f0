//! Who follows a job's output sees all of it once, whatever becomes of the connection.

use std::path::Path;

use chaos::stage::Launch;

use crate::support::{Stage, holds};

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_a_silent_job_sees_its_end_although_the_server_was_killed_meanwhile() {
    let stage = Stage::new("");
    let go = stage.path("go");
    let script = format!("echo one; while [ ! -e {} ]; do sleep 0.05; done; echo two; exit 3", go.display());
    let jobs =
        format!("version: 1\njobs: {{ talk: {{ runtime: process, command: [sh, -c, '{script}'] }} }}\n");
    std::fs::write(stage.path("jobs.yaml"), jobs).unwrap();
    let mut server = stage.server(&[]).await;
    let mut worker = stage.worker("only", &["--no-docker", "--allow-process"]);
    let api = stage.api();
    api.worker_ready("only").await;
    let job = api.post("/api/jobs/talk", None).await["id"].as_u64().unwrap();

    let follow = ["logs", "-f", &job.to_string(), "--server", &stage.address()].map(str::to_owned);
    let program = Path::new(env!("CARGO_BIN_EXE_longshore"));
    let mut reader = Launch::new(program, follow.to_vec(), stage.path("reader.log")).start();
    holds("what was written is shown", async || reader.said() == "one\n").await;
    server.kill();
    holds("the reader notices", async || reader.said().contains("the connection broke")).await;
    let mut server = stage.server(&[]).await;
    api.worker_ready("only").await;
    std::fs::write(go, "").unwrap();
    let status = reader.ended().await;
    assert!(status.success(), "{status}: {}", reader.said());
    let shown: Vec<String> =
        reader.said().lines().filter(|line| !line.starts_with("longshore:")).map(str::to_owned).collect();
    assert_eq!(shown, ["one", "two"], "{}", reader.said());
    worker.leave().await;
    server.leave().await;
}
