//! `longshore logs --attempt all`.

use testkit::Cluster;

const JOBS: &str = r#"
jobs:
  flaky:
    runtime: process
    retry: { max: 1, backoff: { initial: 10ms } }
    command: ["sh", "-c", "printf tried; exit 3"]
"#;

#[tokio::test]
async fn the_output_of_all_attempts_is_printed_in_order_each_below_a_heading() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process"]);
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    let job = api.post("/api/jobs/flaky", None).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "failed").await;
    let (id, address) = (job.to_string(), cluster.address());
    let logs = |flags: &[&str]| cluster.run_cli(&[&["logs", &id, "--server", &address], flags].concat());

    let (code, shown) = logs(&["--attempt", "all"]);
    let heading = |number| format!("==> attempt {number} on w1: failed, exit 3 <==");
    assert_eq!((code, shown), (0, format!("{}\ntried\n{}\ntried", heading(1), heading(2))));
    let (code, shown) = logs(&["--attempt", "all", "-o", "json"]);
    let lines: Vec<serde_json::Value> =
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let attempts: Vec<_> = lines.iter().map(|line| (&line["attempt"], &line["text"])).collect();
    assert_eq!((code, attempts), (0, vec![(&1.into(), &"tried".into()), (&2.into(), &"tried".into())]));

    let (code, shown) = logs(&["--attempt", "all", "--follow"]);
    assert!(code == 2 && shown.contains("does not go together with --follow"), "{shown}");
    let (code, shown) = logs(&["--attempt", "some"]);
    assert!(code == 2 && shown.contains("it is the number of an attempt, or \"all\""), "{shown}");
}
