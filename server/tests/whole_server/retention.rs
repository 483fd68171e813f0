//! A whole server with short retention, over HTTP: what has ended goes, what has not stays, and numbers are never given again.

use std::path::Path;
use std::time::Duration;

use longshore_server::config::Config;
use serde_json::Value;

use crate::support::RunningServer;

async fn start(home: &Path, change: impl FnOnce(&mut Config)) -> RunningServer {
    RunningServer::start_with(home, "jobs: { resize: { image: 'resize:1' } }", change).await
}

/// Returns the status and the document of an answer.
async fn ask(server: &RunningServer, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let (head, body) = server.send(method, path, headers, "").await;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body)
}

async fn make_job(server: &RunningServer, headers: &[(&str, &str)]) -> u64 {
    let (status, job) = ask(server, "POST", "/api/jobs/resize", headers).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_u64().expect("a job has an id")
}

async fn cancel(server: &RunningServer, id: u64) {
    let (status, job) = ask(server, "POST", &format!("/api/jobs/{id}/cancel"), &[]).await;
    assert_eq!((status, job["state"].as_str()), (200, Some("cancelled")), "nobody has it");
}

async fn until_gone(server: &RunningServer, id: u64) -> Value {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let looking = async {
        loop {
            looks.tick().await;
            let (status, answer) = ask(server, "GET", &format!("/api/jobs/{id}"), &[]).await;
            if status == 410 {
                return answer;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.expect("the job goes")
}

#[tokio::test]
async fn a_definition_keeps_its_newest_jobs_and_a_reload_changes_the_rule() {
    let home = tempfile::tempdir().expect("a place");
    let rule = |keep: u32| {
        let text = format!("jobs: {{ resize: {{ image: 'resize:1', retention: {{ keep: {keep} }} }} }}");
        std::fs::write(home.path().join("jobs.yaml"), text).expect("the place is writable");
    };
    // Without the minute that every ended job is kept.
    let server = start(home.path(), |config| config.retention.age_min = Duration::ZERO).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(make_job(&server, &[]).await);
    }
    let waiting = make_job(&server, &[]).await;
    for id in &ids {
        cancel(&server, *id).await;
    }
    rule(2);
    let (status, reloaded) = ask(&server, "POST", "/api/definitions/reload", &[]).await;
    assert_eq!((status, &reloaded["changed"][0]), (200, &"resize".into()), "{reloaded}");
    let problem = until_gone(&server, ids[1]).await;
    assert_eq!(problem["code"], "pruned");
    let listed = async |server: &RunningServer| -> Vec<u64> {
        let (_, listed) = ask(server, "GET", "/api/jobs", &[]).await;
        listed.as_array().into_iter().flatten().filter_map(|job| job["id"].as_u64()).collect()
    };
    assert_eq!(listed(&server).await, [waiting, ids[3], ids[2]]);
    let (_, shown) = ask(&server, "GET", "/api/definitions/resize", &[]).await;
    assert_eq!(shown["retention"]["keep"], 2);
    server.stop().await;
}

#[tokio::test]
async fn ended_jobs_go_and_their_numbers_with_them() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path(), |_| {}).await;
    let key = [("idempotency-key", "one")];
    let ended = make_job(&server, &key).await;
    let waiting = make_job(&server, &[]).await;
    cancel(&server, ended).await;
    let (_, again) = ask(&server, "POST", &format!("/api/jobs/{ended}/retry"), &[]).await;
    assert_eq!(again["retry_of"], ended);
    server.stop().await;

    // The next one keeps nothing but keys.
    let server = start(home.path(), |config| config.retention.jobs = Some(Duration::ZERO)).await;
    let problem = until_gone(&server, ended).await;
    assert_eq!(problem["code"], "pruned");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("--keep-jobs")), "{problem}");
    let (status, listed) = ask(&server, "GET", "/api/jobs", &[]).await;
    let ids: Vec<u64> =
        listed.as_array().into_iter().flatten().filter_map(|job| job["id"].as_u64()).collect();
    assert_eq!((status, ids), (200, vec![3, waiting]), "what waits stays");
    let of_a_job = [
        ("GET", "?wait=1s"),
        ("GET", "/explain"),
        ("POST", "/cancel"),
        ("POST", "/release"),
        ("POST", "/retry"),
        ("GET", "/logs"),
    ];
    for (method, path) in of_a_job {
        let (status, problem) = ask(&server, method, &format!("/api/jobs/{ended}{path}"), &[]).await;
        assert_eq!((status, problem["code"].as_str()), (410, Some("pruned")), "{path}");
        let (status, problem) = ask(&server, method, &format!("/api/jobs/4{path}"), &[]).await;
        assert_eq!((status, problem["code"].as_str()), (404, Some("job_not_found")), "{path}");
    }
    let (_, retry) = ask(&server, "GET", "/api/jobs/3", &[]).await;
    assert_eq!((&retry["retry_of"], &retry["retry_of_removed"]), (&ended.into(), &true.into()));
    let (status, problem) = ask(&server, "POST", "/api/jobs/resize", &key).await;
    assert_eq!((status, problem["code"].as_str()), (410, Some("pruned")));
    assert_eq!(problem["detail"], "this request was accepted before, as job 1, which has been removed since");
    assert_eq!(problem["hint"], "to run it again, use another Idempotency-Key");
    server.stop().await;

    // Without retention a cancelled job may be gone before the answer that shows it is written.
    let server = start(home.path(), |_| {}).await;
    cancel(&server, waiting).await;
    cancel(&server, 3).await;
    server.stop().await;

    let server = start(home.path(), |config| {
        (config.retention.jobs, config.retention.keys) = (Some(Duration::ZERO), Duration::ZERO);
    })
    .await;
    until_gone(&server, 3).await;
    assert_eq!(make_job(&server, &[]).await, 4, "a number is never given again");
    server.stop().await;
}
