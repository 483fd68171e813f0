//! `longshore doctor` beside a real server: no findings on a healthy system, and one for each problem.

use serde_json::Value;

use crate::support::Cluster;

fn ask(cluster: &Cluster, more: &[&str]) -> (i32, Value) {
    let (data, server) = (cluster.path("data"), cluster.address());
    let words = ["doctor", "-o", "json", "--data", data.to_str().unwrap(), "--server", &server];
    let (code, said) = cluster.run_cli(&[&words[..], more].concat());
    (code, serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}")))
}

/// The findings, without those about the disk and engine of this machine.
fn complaints(told: &Value) -> Vec<(&str, &str)> {
    let findings = told["findings"].as_array().unwrap().iter();
    findings
        .map(|it| (it["what"].as_str().unwrap(), it["verdict"].as_str().unwrap()))
        .filter(|(what, verdict)| *verdict != "ok" && !["room", "docker"].contains(what))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_problems_only() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let mut server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("only", &["--no-docker", "--allow-fake"]);
    cluster.api().wait_for_ready_worker("only").await;
    let job = cluster.api().post("/api/jobs/quick", None).await["id"].as_u64().unwrap();
    cluster.api().wait_for_job(job, |job| job["state"] == "succeeded").await;
    let (_, told) = ask(&cluster, &["--deep"]);
    assert_eq!(complaints(&told), [], "{told:#}");
    assert_eq!(told["findings"].as_array().unwrap().iter().filter(|it| it["what"] == "store").count(), 1);

    let token = cluster.path("token");
    std::fs::write(&token, "secret").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o646)).unwrap();
    let (code, told) = ask(&cluster, &["--token-file", token.to_str().unwrap()]);
    assert_eq!((code, complaints(&told)), (1, vec![("server", "fail")]), "{told:#}");
    assert!(!told.to_string().contains("secret"));

    worker.terminate().await;
    server.terminate().await;
    let (code, told) = ask(&cluster, &[]);
    assert_eq!((code, complaints(&told)), (1, vec![("server", "fail")]), "{told:#}");
}
