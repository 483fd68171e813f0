//! A server that goes on from a backup: it knows less than its workers do. What it does not know is left running, shown, and its numbers
//! are not given again.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Api, Process, Stage, holds};

/// A server, a worker, one job that has ended, and one that runs until it is told to end.
struct Story {
    stage: Stage,
    api: Api,
    server: Process,
    worker: Process,
}

impl Story {
    async fn begin() -> Self {
        let stage = Stage::new("");
        std::fs::write(stage.path("jobs.yaml"), jobs_file(&stage)).unwrap();
        let (server, worker, api) = (stage.server(&[]).await, start_worker(&stage), stage.api());
        api.worker_ready("only").await;
        let story = Self { stage, api, server, worker };
        story.submit("quick").await;
        story.api.job(1, |job| job["state"] == "succeeded").await;
        story
    }

    async fn submit(&self, name: &str) -> u64 {
        self.api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap()
    }

    /// Waits until the worker has told of exactly these: (job, fence).
    async fn unmanaged(&self, expected: &[(u64, u64)]) -> Value {
        let told = |worker: &Value| {
            let list = worker["unmanaged"].as_array().cloned().unwrap_or_default();
            list.iter()
                .map(|it| (it["job"].as_u64().unwrap(), it["fence"].as_u64().unwrap()))
                .collect::<Vec<_>>()
        };
        self.api.worker("only", |worker| worker["state"] == "ready" && told(worker) == expected).await
    }

    /// Puts an old copy of the data directory in the place of one that knows one job more; which one. The server is gone.
    async fn go_back(&mut self) -> u64 {
        self.server.leave().await;
        copy(&self.stage, "data", "old");
        self.server = self.stage.server(&[]).await;
        self.api.worker_ready("only").await;
        let lost = self.submit("wait").await;
        self.runs(lost, 2).await;
        self.server.kill();
        std::fs::rename(self.stage.path("data"), self.stage.path("lost")).unwrap();
        copy(&self.stage, "old", "data");
        lost
    }

    fn truth(&self) -> String {
        std::fs::read_to_string(self.stage.path("truth")).unwrap_or_default()
    }

    async fn runs(&self, job: u64, fence: u64) {
        let line = format!("start {job}#{fence}\n");
        holds("it writes down that it has started", async || self.truth().contains(&line)).await;
    }

    /// Lets what runs end, and waits until it is no more.
    async fn let_end(&mut self, job: u64, fence: u64) {
        assert!(!self.truth().contains("end"), "nobody has stopped it, and it has not ended by itself");
        std::fs::write(self.stage.path("go"), "").unwrap();
        let line = format!("end {job}#{fence}\n");
        holds("it ends by itself", async || self.truth().contains(&line)).await;
        self.unmanaged(&[]).await;
        let attempts = self.stage.attempts("only");
        holds("nothing is left of it", async || std::fs::read_dir(&attempts).unwrap().next().is_none()).await;
        self.worker.leave().await;
        self.server.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_backup_does_not_know_goes_on_and_no_number_is_given_twice() {
    let mut story = Story::begin().await;
    let backup = text(&story.stage, "backup");
    let (code, said) = story.stage.verb(&["backup", "--data", &text(&story.stage, "data"), "--to", &backup]);
    assert_eq!((code, said.contains("jobs up to 1")), (0, true), "{said}");
    let lost = story.submit("wait").await;
    story.runs(lost, 2).await;

    story.server.kill();
    let restore = ["restore", "--from", &backup, "--data", &text(&story.stage, "data")];
    let (code, said) = story.stage.verb(&restore);
    assert_eq!((code, said.contains("--replace")), (5, true), "{said}");
    let (code, said) = story.stage.verb(&[&restore[..], &["--replace"]].concat());
    assert_eq!(
        (code, said.contains("the next job will be 16777219")),
        (0, true),
        "beyond the lost one: {said}"
    );
    story.server = story.stage.server(&[]).await;

    let worker = story.unmanaged(&[(lost, 2)]).await;
    let container = worker["unmanaged"][0]["container"].as_str().unwrap();
    assert!(container.ends_with("-2-2") && worker["unmanaged"][0]["phase"]["name"] == "running", "{worker}");
    let said = story.server.said();
    assert!(said.contains("was restored from a backup") && said.contains("were never given here"), "{said}");
    assert_eq!(story.api.get("/api/jobs/1/logs").await, json!("quick\n"), "output is in a backup too");
    let next = story.submit("quick").await;
    assert_eq!(next, 16_777_219);
    let next = story.api.job(next, |job| job["state"] == "succeeded").await;
    assert_eq!(next["attempts"][0]["fence"], 16_777_219, "{next}");
    // A server that starts once more knows it as well.
    story.server.leave().await;
    story.server = story.stage.server(&[]).await;
    story.unmanaged(&[(lost, 2)]).await;
    story.let_end(lost, 2).await;
}

/// In the backup it waits at its worker. By the time of the disaster it has ended, and nobody but the lost store knows that it ever ran.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_assigned_in_a_backup_and_has_run_since_runs_again_as_another_attempt() {
    let mut story = Story::begin().await;
    let mut jobs = Vec::new();
    for fence in 2..=3 {
        jobs.push(story.submit("wait").await);
        story.runs(jobs[jobs.len() - 1], fence).await;
    }
    let third = story.submit("wait").await;
    story.api.job(third, |job| job["state"] == "assigned" && job["attempts"][0]["fence"] == 4).await;
    let (backup, data) = (text(&story.stage, "backup"), text(&story.stage, "data"));
    let (code, said) = story.stage.verb(&["backup", "--data", &data, "--to", &backup]);
    assert_eq!(code, 0, "{said}");

    std::fs::write(story.stage.path("go"), "").unwrap();
    story.api.job(third, |job| job["state"] == "succeeded").await;
    let attempts = story.stage.attempts("only");
    holds("nothing is left of it", async || std::fs::read_dir(&attempts).unwrap().next().is_none()).await;
    story.server.kill();
    let (code, said) = story.stage.verb(&["restore", "--from", &backup, "--data", &data, "--replace"]);
    assert_eq!(code, 0, "{said}");
    story.server = story.stage.server(&[]).await;

    let third = story.api.job(third, |job| job["state"] == "succeeded").await;
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
    story.worker.leave().await;
    story.server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_old_copy_of_the_directory_does_not_know_goes_on_although_its_number_was_given_again() {
    let mut story = Story::begin().await;
    let lost = story.go_back().await;
    story.worker.signal(Signal::STOP);
    story.server = story.stage.server(&[]).await;
    let namesake = story.submit("quick").await;
    assert_eq!(namesake, lost, "nobody was there who could have told that it is taken");
    story.worker.signal(Signal::CONT);

    story.unmanaged(&[(lost, 2)]).await;
    let namesake = story.api.job(namesake, |job| job["state"] == "succeeded").await;
    assert_eq!(namesake["attempts"][0]["fence"], 3, "the fence of the other one is left out: {namesake}");
    story.let_end(lost, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_never_gave_is_stopped_by_a_persons_word() {
    let mut story = Story::begin().await;
    let lost = story.go_back().await;
    story.server = story.stage.server(&[]).await;
    story.unmanaged(&[(lost, 2)]).await;

    story.api.post("/api/workers/1/stop-unmanaged?job=2&fence=2", None).await;

    story.unmanaged(&[]).await;
    let attempts = story.stage.attempts("only");
    holds("nothing is left of it", async || std::fs::read_dir(&attempts).unwrap().next().is_none()).await;
    assert!(!story.truth().contains("end"), "it was stopped, and has not ended by itself");
    assert!(story.server.said().contains("an operator has attempts stopped"));
    story.worker.leave().await;
    story.server.leave().await;
}

fn start_worker(stage: &Stage) -> Process {
    stage.worker("only", &["--no-docker", "--allow-process", "--slots", "2"])
}

fn text(stage: &Stage, name: &str) -> String {
    stage.path(name).to_str().unwrap().to_owned()
}

/// What a person does who knows no better; the server is stopped.
fn copy(stage: &Stage, from: &str, to: &str) {
    let copied = std::process::Command::new("cp").arg("-r").args([stage.path(from), stage.path(to)]).status();
    assert!(copied.unwrap().success());
}

fn jobs_file(stage: &Stage) -> String {
    let home = text(stage, "");
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
