//! A server restored from a backup knows less than its workers. Attempts that it does not know continue, are listed, and their ids are not
//! reused.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Api, Cluster, Process, wait_until};

/// A server, a worker, an ended job, and a job that runs until a file tells it to end.
struct Story {
    cluster: Cluster,
    api: Api,
    server: Process,
    worker: Process,
}

impl Story {
    async fn begin() -> Self {
        let cluster = Cluster::new("");
        std::fs::write(cluster.path("jobs.yaml"), jobs_file(&cluster)).unwrap();
        let (server, worker, api) = (cluster.start_server(&[]).await, start_worker(&cluster), cluster.api());
        api.wait_for_ready_worker("only").await;
        let story = Self { cluster, api, server, worker };
        story.submit("quick").await;
        story.api.wait_for_job(1, |job| job["state"] == "succeeded").await;
        story
    }

    async fn submit(&self, name: &str) -> u64 {
        self.api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap()
    }

    /// Waits until the worker lists exactly these unmanaged attempts (job, fence).
    async fn unmanaged(&self, expected: &[(u64, u64)]) -> Value {
        let told = |worker: &Value| {
            let list = worker["unmanaged"].as_array().cloned().unwrap_or_default();
            list.iter()
                .map(|it| (it["job"].as_u64().unwrap(), it["fence"].as_u64().unwrap()))
                .collect::<Vec<_>>()
        };
        self.api
            .wait_for_worker("only", |worker| worker["state"] == "ready" && told(worker) == expected)
            .await
    }

    /// Replaces the data directory by a copy that does not know the latest job; returns that job. The server is stopped.
    async fn go_back(&mut self) -> u64 {
        self.server.terminate().await;
        copy(&self.cluster, "data", "old");
        self.server = self.cluster.start_server(&[]).await;
        self.api.wait_for_ready_worker("only").await;
        let lost = self.submit("wait").await;
        self.runs(lost, 2).await;
        self.server.kill();
        std::fs::rename(self.cluster.path("data"), self.cluster.path("lost")).unwrap();
        copy(&self.cluster, "old", "data");
        lost
    }

    fn truth(&self) -> String {
        std::fs::read_to_string(self.cluster.path("truth")).unwrap_or_default()
    }

    async fn runs(&self, job: u64, fence: u64) {
        let line = format!("start {job}#{fence}\n");
        wait_until("it writes down that it has started", async || self.truth().contains(&line)).await;
    }

    /// Lets the running job end, and waits until its container is gone.
    async fn let_end(&mut self, job: u64, fence: u64) {
        assert!(!self.truth().contains("end"), "nobody has stopped it, and it has not ended by itself");
        std::fs::write(self.cluster.path("go"), "").unwrap();
        let line = format!("end {job}#{fence}\n");
        wait_until("it ends by itself", async || self.truth().contains(&line)).await;
        self.unmanaged(&[]).await;
        let attempts = self.cluster.attempts_dir("only");
        wait_until("nothing is left of it", async || std::fs::read_dir(&attempts).unwrap().next().is_none())
            .await;
        self.worker.terminate().await;
        self.server.terminate().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_unknown_to_a_backup_continue_and_ids_are_not_reused() {
    let mut story = Story::begin().await;
    let backup = text(&story.cluster, "backup");
    let (code, said) =
        story.cluster.run_cli(&["backup", "--data", &text(&story.cluster, "data"), "--to", &backup]);
    assert_eq!((code, said.contains("jobs up to 1")), (0, true), "{said}");
    let lost = story.submit("wait").await;
    story.runs(lost, 2).await;

    story.server.kill();
    let restore = ["restore", "--from", &backup, "--data", &text(&story.cluster, "data")];
    let (code, said) = story.cluster.run_cli(&restore);
    assert_eq!((code, said.contains("--replace")), (5, true), "{said}");
    let (code, said) = story.cluster.run_cli(&[&restore[..], &["--replace"]].concat());
    assert_eq!(
        (code, said.contains("the next job will be 16777219")),
        (0, true),
        "beyond the lost one: {said}"
    );
    story.server = story.cluster.start_server(&[]).await;

    let worker = story.unmanaged(&[(lost, 2)]).await;
    let container = worker["unmanaged"][0]["container"].as_str().unwrap();
    assert!(container.ends_with("-2-2") && worker["unmanaged"][0]["phase"]["name"] == "running", "{worker}");
    let said = story.server.log();
    assert!(
        said.contains("was restored from a backup") && said.contains("this database never assigned"),
        "{said}"
    );
    assert_eq!(story.api.get("/api/jobs/1/logs").await, json!("quick\n"), "output is in a backup too");
    let next = story.submit("quick").await;
    assert_eq!(next, 16_777_219);
    let next = story.api.wait_for_job(next, |job| job["state"] == "succeeded").await;
    assert_eq!(next["attempts"][0]["fence"], 16_777_219, "{next}");
    // The next start knows it, too.
    story.server.terminate().await;
    story.server = story.cluster.start_server(&[]).await;
    story.unmanaged(&[(lost, 2)]).await;
    story.let_end(lost, 2).await;
}

/// In the backup the job waits at its worker. It ended after the backup, and only the lost database knew that.
#[tokio::test(flavor = "multi_thread")]
async fn attempt_that_ran_after_the_backup_is_repeated_with_a_new_fence() {
    let mut story = Story::begin().await;
    let mut jobs = Vec::new();
    for fence in 2..=3 {
        jobs.push(story.submit("wait").await);
        story.runs(jobs[jobs.len() - 1], fence).await;
    }
    let third = story.submit("wait").await;
    story.api.wait_for_job(third, |job| job["state"] == "assigned" && job["attempts"][0]["fence"] == 4).await;
    let (backup, data) = (text(&story.cluster, "backup"), text(&story.cluster, "data"));
    let (code, said) = story.cluster.run_cli(&["backup", "--data", &data, "--to", &backup]);
    assert_eq!(code, 0, "{said}");

    std::fs::write(story.cluster.path("go"), "").unwrap();
    story.api.wait_for_job(third, |job| job["state"] == "succeeded").await;
    let attempts = story.cluster.attempts_dir("only");
    wait_until("nothing is left of it", async || std::fs::read_dir(&attempts).unwrap().next().is_none())
        .await;
    story.server.kill();
    let (code, said) = story.cluster.run_cli(&["restore", "--from", &backup, "--data", &data, "--replace"]);
    assert_eq!(code, 0, "{said}");
    story.server = story.cluster.start_server(&[]).await;

    let third = story.api.wait_for_job(third, |job| job["state"] == "succeeded").await;
    let told = third["attempts"].as_array().unwrap();
    assert_eq!(
        (told.len(), &told[0]["outcome"], &told[0]["fence"]),
        (2, &json!("lost"), &json!(4)),
        "{third}"
    );
    assert!(told[1]["fence"].as_u64() > Some(16_777_216), "{third}");
    let id = third["id"].as_u64().unwrap();
    let runs = |fence: &Value| story.truth().matches(&format!("start {id}#{fence}\n")).count();
    assert_eq!((runs(&told[0]["fence"]), runs(&told[1]["fence"])), (1, 1), "{}", story.truth());
    story.worker.terminate().await;
    story.server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_unknown_to_a_copied_directory_continue_although_their_id_is_reused() {
    let mut story = Story::begin().await;
    let lost = story.go_back().await;
    story.worker.signal(Signal::STOP);
    story.server = story.cluster.start_server(&[]).await;
    let namesake = story.submit("quick").await;
    assert_eq!(namesake, lost, "nobody was there who could have told that it is taken");
    story.worker.signal(Signal::CONT);

    story.unmanaged(&[(lost, 2)]).await;
    let namesake = story.api.wait_for_job(namesake, |job| job["state"] == "succeeded").await;
    // The server of a copied directory gives the fence again. The worker refuses it, at no cost for the job.
    let attempts = namesake["attempts"].as_array().unwrap();
    let ends: Vec<_> = attempts.iter().map(|attempt| (&attempt["fence"], &attempt["outcome"])).collect();
    assert_eq!(ends, [(&json!(2), &json!("released")), (&json!(3), &json!("succeeded"))], "{namesake}");
    story.let_end(lost, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unmanaged_attempt_is_stopped_by_an_operator() {
    let mut story = Story::begin().await;
    let lost = story.go_back().await;
    story.server = story.cluster.start_server(&[]).await;
    story.unmanaged(&[(lost, 2)]).await;

    story.api.post("/api/workers/1/stop-unmanaged?job=2&fence=2", None).await;

    story.unmanaged(&[]).await;
    let attempts = story.cluster.attempts_dir("only");
    wait_until("nothing is left of it", async || std::fs::read_dir(&attempts).unwrap().next().is_none())
        .await;
    assert!(!story.truth().contains("end"), "it was stopped, and has not ended by itself");
    assert!(story.server.log().contains("operator ordered a stop of unmanaged attempts"));
    story.worker.terminate().await;
    story.server.terminate().await;
}

fn start_worker(cluster: &Cluster) -> Process {
    cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "2"])
}

fn text(cluster: &Cluster, name: &str) -> String {
    cluster.path(name).to_str().unwrap().to_owned()
}

/// Copies the data directory by hand, without `longshore backup`; the server is stopped.
fn copy(cluster: &Cluster, from: &str, to: &str) {
    let copied =
        std::process::Command::new("cp").arg("-r").args([cluster.path(from), cluster.path(to)]).status();
    assert!(copied.unwrap().success());
}

fn jobs_file(cluster: &Cluster) -> String {
    let home = text(cluster, "");
    format!(
        "version: 1\njobs:\n  quick: {{ runtime: process, command: [echo, quick] }}\n  wait:\n    runtime: process\n    \
         command: [sh, -c, '{}']\n",
        SCRIPT
            .replace("HOME", home.trim_end_matches('/'))
            .replace("TEST", &std::process::id().to_string())
            .replace('$', "$$")
    )
}

const SCRIPT: &str = "echo start $LONGSHORE_JOB#$LONGSHORE_ATTEMPT >>HOME/truth; \
    while [ ! -e HOME/go ] && [ -d /proc/TEST ]; do sleep 0.05; done; echo end $LONGSHORE_JOB#$LONGSHORE_ATTEMPT >>HOME/truth";
