//! `longshore wait`, against a stub server and a real one that is restarted meanwhile.

use testkit::{Cluster, ProcessSpec, wait_until};

use crate::stub::{JSON, Stub, job, run};

/// The JSON of a batch, with further members.
fn batch(id: u64, more: &str) -> String {
    format!(r#"{{"id":{id},"count":2,"created_at":"2026-03-01T09:30:00.000Z",{more}}}"#)
}

const SUCCEEDED: &str = r#""state":"succeeded","outcome":"succeeded","exit_code":0"#;
const FAILED: &str = r#""state":"failed","outcome":"failed","exit_code":37"#;

#[test]
fn the_exit_code_is_that_of_the_first_id_that_did_not_succeed() {
    let stub = Stub::new();
    stub.on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, r#""state":"running""#))
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, FAILED))
        .on("GET /api/jobs/13?wait=60s", "200 OK", JSON, &job(13, SUCCEEDED))
        .on("GET /api/jobs/14?wait=60s", "200 OK", JSON, &job(14, r#""state":"cancelled""#));
    let ended = r#""state":"failed","progress":1.0,"counts":{"scheduled":0,"queued":0,"assigned":0,"running":0,
        "quarantined":0,"succeeded":1,"failed":1,"cancelled":0,"expired":0,"lost":0},"ended_at":"2026-03-01T09:31:00.000Z""#;
    stub.on("GET /api/batches/20?wait=60s", "200 OK", JSON, &batch(20, ended));
    for (ids, code, lines) in [
        (&["13"][..], 0, &["job 13 succeeded"][..]),
        (&["13", "12", "14"], 37, &["job 12 failed, exit 37", "job 13 succeeded", "job 14 cancelled"]),
        (&["batch:20", "12"], 1, &["batch 20 failed: 1 succeeded, 1 failed", "job 12 failed, exit 37"]),
        (
            &["12", "batch:20", "12"],
            37,
            &["batch 20 failed: 1 succeeded, 1 failed", "job 12 failed, exit 37"],
        ),
        (&["14"], 1, &["job 14 cancelled"]),
    ] {
        let said = run(&mut stub.longshore(&[&["wait"], ids].concat()));
        let mut printed: Vec<&str> = said.out.lines().collect();
        printed.sort_unstable();
        assert_eq!((said.code, printed.as_slice(), said.err.as_str()), (code, lines, ""), "{ids:?}");
    }
}

#[test]
fn the_time_can_be_up_and_what_has_not_ended_is_named() {
    let stub = Stub::new();
    let running = job(13, r#""state":"running""#);
    stub.on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, SUCCEEDED))
        .on("GET /api/jobs/13?wait=60s", "200 OK", JSON, &running)
        .on("GET /api/jobs/13", "200 OK", JSON, &running);
    let said = run(&mut stub.longshore(&["wait", "13", "12", "--timeout", "5s"]));
    let err = "error: the time of 5s is up: job 13 has not ended, and continues\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (124, "job 12 succeeded\n", err));
    let said = run(&mut stub.longshore(&["wait", "13", "12", "--timeout", "5s", "-o", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let states: Vec<_> = shown.as_array().unwrap().iter().map(|job| (&job["id"], &job["state"])).collect();
    assert_eq!(states, [(&13.into(), &"running".into()), (&12.into(), &"succeeded".into())]);
    assert_eq!(said.code, 124);
}

#[test]
fn programs_get_a_record_of_each_end() {
    let stub = Stub::new();
    stub.on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, SUCCEEDED)).on(
        "GET /api/jobs/13?wait=60s",
        "200 OK",
        JSON,
        &job(13, FAILED),
    );
    let said = |format: &str| run(&mut stub.longshore(&["wait", "12", "13", "-o", format]));
    assert_eq!((said("name").code, said("name").out.as_str()), (37, "12\n13\n"));
    let shown: serde_json::Value = serde_json::from_str(&said("json").out).unwrap();
    assert_eq!((&shown[0]["id"], &shown[1]["exit_code"]), (&12.into(), &37.into()));
    assert_eq!(said("ndjson").out.lines().filter(|line| line.starts_with('{')).count(), 2);
    assert!(said("csv").out.starts_with("id,name,state,"));
}

#[test]
fn an_unknown_id_ends_the_wait_at_once() {
    let stub = Stub::new();
    let problem = r#"{"code":"job_not_found","status":404,"title":"no","detail":"no job 7"}"#;
    stub.on("GET /api/jobs/7?wait=60s", "404 Not Found", "application/problem+json", problem).on(
        "GET /api/jobs/12?wait=60s",
        "200 OK",
        JSON,
        &job(12, r#""state":"running""#),
    );
    let said = run(&mut stub.longshore(&["wait", "12", "7"]));
    assert_eq!((said.code, said.out.as_str()), (4, ""), "{said:?}");
    assert!(said.err.starts_with("error: no job 7"), "{said:?}");
}

#[test]
fn a_number_that_may_mean_a_batch_is_answered_with_its_form() {
    let stub = Stub::new();
    let problem = r#"{"code":"job_not_found","status":404,"title":"no","detail":"no job 7"}"#;
    stub.on("GET /api/jobs/7?wait=60s", "404 Not Found", "application/problem+json", problem)
        .on("GET /api/batches/7", "200 OK", JSON, &batch(7, r#""state":"running""#))
        .on("GET /api/jobs/8?wait=60s", "404 Not Found", "application/problem+json", problem)
        .on("GET /api/jobs/9?wait=60s", "200 OK", JSON, &job(9, &format!(r#""batch":9,{SUCCEEDED}"#)))
        .on("GET /api/jobs/10?wait=60s", "200 OK", JSON, &job(10, &format!(r#""batch":9,{SUCCEEDED}"#)));
    let said = run(&mut stub.longshore(&["wait", "7"]));
    assert!(said.code == 4 && said.err.contains("batch 7 exists: longshore wait batch:7"), "{said:?}");
    let said = run(&mut stub.longshore(&["wait", "8"]));
    assert!(said.code == 4 && !said.err.contains("batch"), "{said:?}");
    let said = run(&mut stub.longshore(&["wait", "9"]));
    let note = "longshore: job 9 is only the first one of batch 9; for all of them: longshore wait batch:9\n";
    assert_eq!((said.code, said.err.as_str()), (0, note), "{said:?}");
    for others in [&["wait", "9", "10"][..], &["wait", "10"]] {
        assert_eq!(run(&mut stub.longshore(others)).err, "", "{others:?}");
    }
}

#[test]
fn followed_output_can_end_with_the_exit_code_of_the_job() {
    let stub = Stub::new();
    let end = "event: end\nid: 1:0\ndata: {\"job\":12,\"state\":\"failed\",\"text\":\"longshore: job 12 failed, exit 37\"}\n\n";
    stub.on("GET /api/jobs/12", "200 OK", JSON, &job(12, FAILED))
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &job(12, FAILED))
        .on("GET /api/jobs/12/logs?encoding=base64&follow=1", "200 OK", "text/event-stream", end);
    let said = run(&mut stub.longshore(&["logs", "-f", "12", "--exit-code"]));
    assert_eq!((said.code, said.err.as_str()), (37, "longshore: job 12 failed, exit 37\n"), "{said:?}");
    let said = run(&mut stub.longshore(&["logs", "-f", "12"]));
    assert_eq!((said.code, said.err.as_str()), (0, "longshore: job 12 failed, exit 37\n"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_over_a_restart_of_the_server() {
    let program = env!("CARGO_BIN_EXE_longshore");
    let cluster = Cluster::new(program, "");
    let go = cluster.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; exit 3", go.display());
    let jobs = format!(
        "version: 1\njobs:\n  hold: {{ runtime: process, command: [sh, -c, '{script}'] }}\n  \
         quick: {{ runtime: process, command: ['true'] }}\n"
    );
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    let mut server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "2"]);
    let api = cluster.api();
    api.wait_for_ready_worker("only").await;
    let hold = api.post("/api/jobs/hold", None).await["id"].as_u64().unwrap();
    let quick = api.post("/api/jobs/quick", Some(&serde_json::json!({ "count": 2 }))).await;
    let batch = quick["batch"].as_u64().unwrap();

    let (hold, batch) = (hold.to_string(), format!("batch:{batch}"));
    let words = ["wait", &hold, &batch, "--server", &cluster.address()].map(str::to_owned);
    let log = cluster.path("wait.log");
    let mut waiting = ProcessSpec::new(std::path::Path::new(program), words.to_vec(), log).start();
    wait_until("the batch has ended", async || waiting.log().contains(" succeeded: 2 succeeded")).await;
    server.kill();
    wait_until("the verb notices", async || waiting.log().contains("the connection broke")).await;
    let mut server = cluster.start_server(&[]).await;
    api.wait_for_ready_worker("only").await;
    std::fs::write(go, "").unwrap();
    let status = waiting.wait_for_exit().await;
    assert_eq!(status.code(), Some(3), "{}", waiting.log());
    assert!(waiting.log().ends_with(&format!("job {hold} failed, exit 3\n")), "{}", waiting.log());
    worker.terminate().await;
    server.terminate().await;
}
