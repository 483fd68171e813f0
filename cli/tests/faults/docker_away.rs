//! A worker whose Docker is unavailable reports that and keeps running; its jobs wait with that reason and run when Docker returns.

use serde_json::{Value, json};

use crate::support::Cluster;
use crate::support::docker::{self, DefinitionContainers, write_fake_docker};

#[tokio::test(flavor = "multi_thread")]
async fn worker_without_docker_keeps_running_and_its_jobs_show_why_they_wait() {
    let cluster = Cluster::new(&jobs_file("lone"));
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut missing = cluster.start_worker("missing", &["--docker", "/nonexistent/docker"]);
    let program = write_fake_docker(&cluster.path(""), AWAY);
    let mut away = cluster.start_worker("away", &["--docker", program.to_str().unwrap()]);
    let worker = api.wait_for_worker("missing", is_without_docker).await;
    assert!(reason(&worker).contains("/nonexistent/docker"), "{worker}");
    let worker = api.wait_for_worker("away", is_without_docker).await;
    assert!(reason(&worker).contains("Is the docker daemon running?"), "{worker}");
    assert!(reason(&worker).starts_with("docker_unavailable: "), "{worker}");
    assert!(
        reason(&worker).ends_with("; start the engine (systemctl start docker), or correct DOCKER_HOST"),
        "{worker}"
    );

    let job = api.post("/api/jobs/lone", None).await;
    assert_eq!(
        (&job["state"], &job["pending_reason"]["code"]),
        (&json!("queued"), &json!("runtime_unavailable")),
        "{job}"
    );
    let job = api
        .wait_for_job(job["id"].as_u64().unwrap(), |job| {
            job["pending_reason"]["code"] == "runtime_unavailable"
        })
        .await;
    assert_eq!(job["attempt_count"], 0, "nobody is offered what it cannot run: {job}");
    for (name, worker) in [("missing", &mut missing), ("away", &mut away)] {
        assert!(worker.is_running());
        assert_eq!(api.wait_for_worker(name, is_without_docker).await["connected"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_uses_docker_when_it_returns_and_waits_when_it_is_gone() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new("");
    let name = format!("back-{}", cluster.port());
    std::fs::write(cluster.path("jobs.yaml"), jobs_file(&name)).unwrap();
    let _containers = DefinitionContainers::new(&name);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let program = write_fake_docker(&cluster.path(""), AWAY);
    let _worker = cluster.start_worker("only", &["--docker", program.to_str().unwrap()]);
    api.wait_for_worker("only", is_without_docker).await;
    let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["pending_reason"]["code"] == "runtime_unavailable").await;

    write_fake_docker(&cluster.path(""), "exec docker \"$@\"");
    let job = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(job["attempt_count"], 1, "{job}");
    let worker = api.wait_for_ready_worker("only").await;
    assert_eq!(worker["runtimes"][0]["available"], true, "{worker}");

    write_fake_docker(&cluster.path(""), AWAY);
    let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    // The worker notices it at the next use at the latest. Only the engine knows whether a container was created, so the attempt is
    // returned when it answers.
    api.wait_for_worker("only", is_without_docker).await;
    write_fake_docker(&cluster.path(""), "exec docker \"$@\"");
    let job = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    let tried = job["attempts"].as_array().unwrap();
    let (last, before) = tried.split_last().unwrap();
    assert_eq!(last["outcome"], "succeeded", "{job}");
    assert!(before.iter().all(|it| it["released"] == "runtime_unavailable"), "{job}");
}

/// The worker lost its attempt directories, too, so only the engine knows its containers. It is asked as soon as it answers.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_from_before_a_start_without_docker_are_resolved_when_docker_returns() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new("");
    let name = format!("begun-{}", cluster.port());
    let truth = cluster.path("truth");
    std::fs::create_dir(&truth).unwrap();
    let wait = "until [ -e /truth/end ]; do sleep 0.1; done";
    let jobs = format!(
        "version: 1\njobs:\n  {name}: {{ image: busybox, command: [sh, -c, '{wait}'], network: none, pull_policy: never, volumes: ['{}:/truth'] }}\n",
        truth.display()
    );
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    let containers = DefinitionContainers::new(&name);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let program = write_fake_docker(&cluster.path(""), "exec docker \"$@\"");
    let flags =
        ["--docker", program.to_str().unwrap(), "--slots", "2", "--allow-mount", truth.to_str().unwrap()];
    let mut worker = cluster.start_worker("only", &flags);
    let post = async || api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    let (kept, gone) = (post().await, post().await);
    for job in [kept, gone] {
        api.wait_for_job(job, |job| job["state"] == "running").await;
    }

    worker.kill();
    std::fs::remove_dir_all(cluster.attempts_dir("only")).unwrap();
    containers.remove_for_job(gone);
    write_fake_docker(&cluster.path(""), AWAY);
    let _worker = cluster.start_worker("only", &flags);
    api.wait_for_worker("only", is_without_docker).await;
    for job in [kept, gone] {
        let job = api.get(&format!("/api/jobs/{job}")).await;
        assert_eq!((&job["state"], &job["attempt_count"]), (&json!("running"), &json!(1)), "{job}");
        assert_eq!(job["pending_reason"]["code"], "runtime_unavailable", "{job}");
    }

    write_fake_docker(&cluster.path(""), "exec docker \"$@\"");
    api.wait_for_job(gone, |job| job["attempt_count"] == 2 && job["state"] == "running").await;
    std::fs::write(truth.join("end"), "").unwrap();
    let job = api.wait_for_job(kept, |job| job["state"] == "succeeded").await;
    assert_eq!((&job["attempt_count"], &job["late_reports"]), (&json!(1), &json!([])), "{job}");
    let job = api.wait_for_job(gone, |job| job["state"] == "succeeded").await;
    assert_eq!((&job["attempts"][0]["outcome"], &job["attempt_count"]), (&json!("lost"), &json!(2)), "{job}");
}

fn is_without_docker(worker: &Value) -> bool {
    worker["state"] == "ready"
        && worker["runtimes"][0]["name"] == "docker"
        && worker["runtimes"][0]["available"] == false
}

fn reason(worker: &Value) -> &str {
    worker["runtimes"][0]["reason"].as_str().unwrap()
}

fn jobs_file(name: &str) -> String {
    format!(
        "version: 1\njobs:\n  {name}: {{ image: busybox, command: ['true'], network: none, pull_policy: never }}\n"
    )
}

/// Output of the docker command without a daemon.
const AWAY: &str = "\
echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2
[ \"$1\" = run ] && exit 125
exit 1";
