//! The log of the long-running verbs.

use testkit::Cluster;

#[tokio::test]
async fn the_log_of_server_and_worker_can_be_json() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "jobs: { hello: { image: busybox } }");
    let format = ["--log-format", "json"];
    let mut server = cluster.start_server(&format).await;
    let mut worker =
        cluster.start_worker("only", &[&format as &[_], &["--no-docker", "--allow-process"]].concat());
    cluster.api().wait_for_ready_worker("only").await;
    worker.terminate().await;
    server.terminate().await;
    for process in [&server, &worker] {
        let log = process.log();
        assert!(!log.is_empty(), "a process logs that it starts");
        for line in log.lines() {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let has = |field: &str| entry[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(has("timestamp") && has("level") && has("message") && has("target"), "{line}");
        }
    }
}

/// With the feature, `traces/` sees what is exported.
#[cfg(not(feature = "otel"))]
#[tokio::test]
async fn a_server_without_traces_says_so_if_it_is_asked_for_them() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "jobs: { hello: { image: busybox } }");
    let mut spec = cluster.server_spec(&[]);
    spec.environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT".into(), "http://127.0.0.1:9".into()));
    let mut server = spec.start();
    cluster.api().wait_until_ready().await;
    server.terminate().await;
    let says = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but this binary was built without traces";
    assert_eq!(server.log().matches(says).count(), 1, "{}", server.log());
}
