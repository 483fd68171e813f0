//! `longshore doctor` beside a real server: it finds nothing where all is well, and names what is not.

use serde_json::Value;

use crate::support::Stage;

fn ask(stage: &Stage, more: &[&str]) -> (i32, Value) {
    let (data, server) = (stage.path("data"), stage.address());
    let words = ["doctor", "-o", "json", "--data", data.to_str().unwrap(), "--server", &server];
    let (code, said) = stage.verb(&[&words[..], more].concat());
    (code, serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}")))
}

/// What is not well, but for what this machine alone decides: its disk, and its engine.
fn complaints(told: &Value) -> Vec<(&str, &str)> {
    let findings = told["findings"].as_array().unwrap().iter();
    findings
        .map(|it| (it["what"].as_str().unwrap(), it["verdict"].as_str().unwrap()))
        .filter(|(what, verdict)| *verdict != "ok" && !["room", "docker"].contains(what))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_has_no_complaints_where_all_is_well_and_names_what_is_not() {
    let stage = Stage::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let mut server = stage.server(&[]).await;
    let mut worker = stage.worker("only", &["--no-docker", "--allow-fake"]);
    stage.api().worker_ready("only").await;
    let job = stage.api().post("/api/jobs/quick", None).await["id"].as_u64().unwrap();
    stage.api().job(job, |job| job["state"] == "succeeded").await;
    let (_, told) = ask(&stage, &["--deep"]);
    assert_eq!(complaints(&told), [], "{told:#}");
    assert_eq!(told["findings"].as_array().unwrap().iter().filter(|it| it["what"] == "store").count(), 1);

    let token = stage.path("token");
    std::fs::write(&token, "secret").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (code, told) = ask(&stage, &["--token-file", token.to_str().unwrap()]);
    assert_eq!((code, complaints(&told)), (1, vec![("server", "fail")]), "{told:#}");
    assert!(!told.to_string().contains("secret"));

    worker.leave().await;
    server.leave().await;
    let (code, told) = ask(&stage, &[]);
    assert_eq!((code, complaints(&told)), (1, vec![("server", "fail")]), "{told:#}");
}
