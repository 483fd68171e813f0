//! A worker whose Docker is away: it says so and stays, its jobs wait and say why, and go on when Docker is back.

use serde_json::{Value, json};

use crate::support::Stage;
use crate::support::docker::{self, Containers, stand_in};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_docker_stays_and_says_why_its_jobs_wait() {
    let stage = Stage::new(&jobs_file("lone"));
    let _server = stage.server(&[]).await;
    let api = stage.api();
    let mut missing = stage.worker("missing", &["--docker", "/nonexistent/docker"]);
    let program = stand_in(&stage.path(""), AWAY);
    let mut away = stage.worker("away", &["--docker", program.to_str().unwrap()]);
    let worker = api.worker("missing", is_without_docker).await;
    assert!(reason(&worker).contains("/nonexistent/docker"), "{worker}");
    let worker = api.worker("away", is_without_docker).await;
    assert!(reason(&worker).contains("Is the docker daemon running?"), "{worker}");
    assert!(reason(&worker).starts_with("docker_unavailable: "), "{worker}");
    assert!(
        reason(&worker).ends_with("; start the engine (systemctl start docker), or correct DOCKER_HOST"),
        "{worker}"
    );

    let job = api.post("/api/jobs/lone", None).await;
    assert_eq!(
        (&job["state"], &job["pending_reason"]["code"]),
        (&json!("queued"), &json!("no_runtime")),
        "{job}"
    );
    let job = api.job(job["id"].as_u64().unwrap(), |job| job["pending_reason"]["code"] == "no_runtime").await;
    assert_eq!(job["attempt_count"], 0, "nobody is offered what it cannot run: {job}");
    for (name, worker) in [("missing", &mut missing), ("away", &mut away)] {
        assert!(worker.is_alive());
        assert_eq!(api.worker(name, is_without_docker).await["connected"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_that_comes_back_is_used_and_that_goes_away_is_waited_for() {
    if !docker::is_wanted() {
        return;
    }
    let stage = Stage::new("");
    let name = format!("back-{}", stage.port());
    std::fs::write(stage.path("jobs.yaml"), jobs_file(&name)).unwrap();
    let _containers = Containers::of(&name);
    let _server = stage.server(&[]).await;
    let api = stage.api();
    let program = stand_in(&stage.path(""), AWAY);
    let _worker = stage.worker("only", &["--docker", program.to_str().unwrap()]);
    api.worker("only", is_without_docker).await;
    let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    api.job(job, |job| job["pending_reason"]["code"] == "no_runtime").await;

    stand_in(&stage.path(""), "exec docker \"$@\"");
    let job = api.job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(job["attempt_count"], 1, "{job}");
    let worker = api.worker_ready("only").await;
    assert_eq!(worker["runtimes"][0]["available"], true, "{worker}");

    stand_in(&stage.path(""), AWAY);
    let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    // Noticed at the latest when it is used. Whether a container was made only the engine knows: its attempt is given back when that tells.
    api.worker("only", is_without_docker).await;
    stand_in(&stage.path(""), "exec docker \"$@\"");
    let job = api.job(job, |job| job["state"] == "succeeded").await;
    let tried = job["attempts"].as_array().unwrap();
    let (last, before) = tried.split_last().unwrap();
    assert_eq!(last["outcome"], "succeeded", "{job}");
    assert!(before.iter().all(|it| it["released"] == "runtime_unavailable"), "{job}");
}

/// It has lost its directories too, so only the engine knows what was begun: it is asked as soon as it answers, and what is not there is
/// not waited for until the next connection.
#[tokio::test(flavor = "multi_thread")]
async fn docker_that_was_away_when_its_worker_began_tells_what_became_of_its_jobs() {
    if !docker::is_wanted() {
        return;
    }
    let stage = Stage::new("");
    let name = format!("begun-{}", stage.port());
    let truth = stage.path("truth");
    std::fs::create_dir(&truth).unwrap();
    let wait = "until [ -e /truth/end ]; do sleep 0.1; done";
    let jobs = format!(
        "version: 1\njobs:\n  {name}: {{ image: busybox, command: [sh, -c, '{wait}'], network: none, pull_policy: never, volumes: ['{}:/truth'] }}\n",
        truth.display()
    );
    std::fs::write(stage.path("jobs.yaml"), jobs).unwrap();
    let containers = Containers::of(&name);
    let _server = stage.server(&[]).await;
    let api = stage.api();
    let program = stand_in(&stage.path(""), "exec docker \"$@\"");
    let flags =
        ["--docker", program.to_str().unwrap(), "--slots", "2", "--allow-mount", truth.to_str().unwrap()];
    let mut worker = stage.worker("only", &flags);
    let post = async || api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    let (kept, gone) = (post().await, post().await);
    for job in [kept, gone] {
        api.job(job, |job| job["state"] == "running").await;
    }

    worker.kill();
    std::fs::remove_dir_all(stage.attempts("only")).unwrap();
    containers.remove_job(gone);
    stand_in(&stage.path(""), AWAY);
    let _worker = stage.worker("only", &flags);
    api.worker("only", is_without_docker).await;
    for job in [kept, gone] {
        let job = api.get(&format!("/api/jobs/{job}")).await;
        assert_eq!((&job["state"], &job["attempt_count"]), (&json!("running"), &json!(1)), "{job}");
        assert_eq!(job["pending_reason"]["code"], "runtime_unavailable", "{job}");
    }

    stand_in(&stage.path(""), "exec docker \"$@\"");
    api.job(gone, |job| job["attempt_count"] == 2 && job["state"] == "running").await;
    std::fs::write(truth.join("end"), "").unwrap();
    let job = api.job(kept, |job| job["state"] == "succeeded").await;
    assert_eq!((&job["attempt_count"], &job["late_reports"]), (&json!(1), &json!([])), "{job}");
    let job = api.job(gone, |job| job["state"] == "succeeded").await;
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

/// What the program does when there is no daemon.
const AWAY: &str = "\
echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2
[ \"$1\" = run ] && exit 125
exit 1";
