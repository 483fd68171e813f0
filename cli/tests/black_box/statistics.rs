//! `longshore statistics`.

use testkit::Cluster;

const JOBS: &str = r#"
jobs:
  mixed:
    runtime: process
    retry: { max: 1, backoff: { initial: 10ms } }
    allow: [args]
    command: ["sh", "-c", "exit $0"]
  other: { runtime: process, command: ["true"] }
"#;

#[tokio::test]
async fn statistics_count_the_ended_jobs_of_one_definition() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let none = api.get("/api/definitions/mixed/statistics").await;
    let expected = serde_json::json!({
        "name": "mixed", "jobs": 0, "complete": true, "states": {}, "retries": 0, "retried_jobs": 0
    });
    assert_eq!(none, expected);

    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "4"]);
    api.wait_for_ready_worker("w1").await;
    let entry = |name: &str, code: Option<&str>| match code {
        Some(code) => serde_json::json!({ "name": name, "args": [code] }),
        None => serde_json::json!({ "name": name }),
    };
    let all: Vec<_> = [("mixed", Some("0")), ("mixed", Some("3")), ("mixed", Some("0")), ("other", None)]
        .map(|(name, code)| entry(name, code))
        .into();
    api.post("/api/jobs", Some(&all.into())).await;
    for job in 1..=4 {
        api.wait_for_job(job, |job| !job["ended_at"].is_null()).await;
    }
    let told = api.get("/api/definitions/mixed/statistics").await;
    assert_eq!((&told["jobs"], &told["complete"]), (&3.into(), &true.into()), "{told}");
    assert_eq!(told["states"], serde_json::json!({ "succeeded": 2, "failed": 1 }), "{told}");
    assert!((told["success_rate"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9, "{told}");
    assert_eq!((&told["retries"], &told["retried_jobs"]), (&1.into(), &1.into()), "{told}");
    assert_eq!(told["last_failure"]["id"], 2, "{told}");
    for kind in ["run", "wait"] {
        let of = |key: &str| told[kind][key].as_u64().unwrap();
        assert!(of("p50_ms") <= of("p90_ms") && of("p99_ms") <= of("max_ms"), "{told}");
    }
    let newest = api.get("/api/definitions/mixed/statistics?jobs=1").await;
    assert_eq!((&newest["jobs"], &newest["complete"]), (&1.into(), &false.into()), "{newest}");
    let later = api.get("/api/definitions/mixed/statistics?since=2100-01-01").await;
    assert_eq!((&later["jobs"], &later["complete"]), (&0.into(), &true.into()), "{later}");

    let address = cluster.address();
    let (code, shown) = cluster.run_cli(&["stats", "mixed", "--server", &address]);
    let rate = "2 (66.7 % of those that succeeded, failed or were lost)";
    assert!(code == 0 && shown.contains(rate) && shown.contains("1, of 1 job"), "{shown}");
    assert!(shown.contains("run time") && shown.contains("last failure"), "{shown}");
    let (code, shown) = cluster.run_cli(&["statistics", "mixd", "--server", &address]);
    assert!(code == 4 && shown.contains("mixed"), "{shown}");
}
