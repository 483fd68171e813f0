//! A whole server with short retention, over HTTP: what has ended goes, what has not stays, and numbers are never given again.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use longshore_server::config::{Config, Settings};
use longshore_server::{Server, ServerError};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A server at work.
struct Running {
    address: SocketAddr,
    leaving: CancellationToken,
    served: JoinHandle<Result<(), ServerError>>,
}

impl Running {
    async fn start(home: &Path, change: impl FnOnce(&mut Config)) -> Self {
        let jobs_file = home.join("jobs.yaml");
        std::fs::write(&jobs_file, "jobs: { resize: { image: 'resize:1' } }").expect("the place is writable");
        let listen = "127.0.0.1:0".to_owned();
        let settings = Settings { listen, data_dir: home.join("data"), jobs_file, ..Settings::default() };
        let mut config = settings.check().expect("the settings are right");
        change(&mut config);
        let leaving = CancellationToken::new();
        let server = Server::start(config, leaving.clone()).await.expect("it starts");
        let address = server.address();
        Self { address, leaving, served: tokio::spawn(server.run()) }
    }

    async fn stop(self) {
        self.leaving.cancel();
        self.served.await.expect("it does not panic").expect("it leaves in good order");
    }

    /// Status and body of an answer.
    async fn ask(&self, method: &str, path: &str, headers: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers in text");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    async fn make_job(&self, headers: &str) -> u64 {
        let (status, job) = self.ask("POST", "/api/jobs/resize", headers).await;
        assert_eq!(status, 201, "{job}");
        job["id"].as_u64().expect("a job has an id")
    }

    async fn cancel(&self, id: u64) {
        let (status, job) = self.ask("POST", &format!("/api/jobs/{id}/cancel"), "").await;
        assert_eq!((status, job["state"].as_str()), (200, Some("cancelled")), "nobody has it");
    }

    async fn until_gone(&self, id: u64) -> Value {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        let looking = async {
            loop {
                looks.tick().await;
                let (status, answer) = self.ask("GET", &format!("/api/jobs/{id}"), "").await;
                if status == 410 {
                    return answer;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), looking).await.expect("the job goes")
    }
}

#[tokio::test]
async fn a_definition_keeps_its_newest_jobs_and_a_reload_changes_the_rule() {
    let home = tempfile::tempdir().expect("a place");
    let rule = |keep: u32| {
        let text = format!("jobs: {{ resize: {{ image: 'resize:1', retention: {{ keep: {keep} }} }} }}");
        std::fs::write(home.path().join("jobs.yaml"), text).expect("the place is writable");
    };
    // Without the minute that every ended job is kept.
    let server = Running::start(home.path(), |config| config.retention.age_min = Duration::ZERO).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(server.make_job("").await);
    }
    let waiting = server.make_job("").await;
    for id in &ids {
        server.cancel(*id).await;
    }
    rule(2);
    let (status, reloaded) = server.ask("POST", "/api/definitions/reload", "content-length: 0\r\n").await;
    assert_eq!((status, &reloaded["changed"][0]), (200, &"resize".into()), "{reloaded}");
    let problem = server.until_gone(ids[1]).await;
    assert_eq!(problem["code"], "pruned");
    let listed = async |server: &Running| -> Vec<u64> {
        let (_, listed) = server.ask("GET", "/api/jobs", "").await;
        listed.as_array().into_iter().flatten().filter_map(|job| job["id"].as_u64()).collect()
    };
    assert_eq!(listed(&server).await, [waiting, ids[3], ids[2]]);
    let (_, shown) = server.ask("GET", "/api/definitions/resize", "").await;
    assert_eq!(shown["retention"]["keep"], 2);
    server.stop().await;
}

#[tokio::test]
async fn ended_jobs_go_and_their_numbers_with_them() {
    let home = tempfile::tempdir().expect("a place");
    let server = Running::start(home.path(), |_| {}).await;
    let key = "idempotency-key: one\r\n";
    let ended = server.make_job(key).await;
    let waiting = server.make_job("").await;
    server.cancel(ended).await;
    let (_, again) = server.ask("POST", &format!("/api/jobs/{ended}/retry"), "").await;
    assert_eq!(again["retry_of"], ended);
    server.stop().await;

    // The next one keeps nothing but keys.
    let server = Running::start(home.path(), |config| config.retention.jobs = Some(Duration::ZERO)).await;
    let problem = server.until_gone(ended).await;
    assert_eq!(problem["code"], "pruned");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("--keep-jobs")), "{problem}");
    let (status, listed) = server.ask("GET", "/api/jobs", "").await;
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
        let (status, problem) = server.ask(method, &format!("/api/jobs/{ended}{path}"), "").await;
        assert_eq!((status, problem["code"].as_str()), (410, Some("pruned")), "{path}");
        let (status, problem) = server.ask(method, &format!("/api/jobs/4{path}"), "").await;
        assert_eq!((status, problem["code"].as_str()), (404, Some("job_not_found")), "{path}");
    }
    let (_, retry) = server.ask("GET", "/api/jobs/3", "").await;
    assert_eq!((&retry["retry_of"], &retry["retry_of_removed"]), (&ended.into(), &true.into()));
    let (status, problem) = server.ask("POST", "/api/jobs/resize", key).await;
    assert_eq!((status, problem["code"].as_str()), (410, Some("pruned")));
    assert_eq!(problem["detail"], "this request was accepted before, as job 1, which has been removed since");
    assert_eq!(problem["hint"], "to run it again, use another Idempotency-Key");
    server.stop().await;

    // Without retention a cancelled job may be gone before the answer that shows it is written.
    let server = Running::start(home.path(), |_| {}).await;
    server.cancel(waiting).await;
    server.cancel(3).await;
    server.stop().await;

    let server = Running::start(home.path(), |config| {
        (config.retention.jobs, config.retention.keys) = (Some(Duration::ZERO), Duration::ZERO);
    })
    .await;
    server.until_gone(3).await;
    assert_eq!(server.make_job("").await, 4, "a number is never given again");
    server.stop().await;
}
