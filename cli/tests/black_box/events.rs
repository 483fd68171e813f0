//! `longshore events` by the real program: what jobs become, and a reader that outlives a restart of the server.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its cluster fails")]

use serde_json::Value;
use testkit::{Process, wait_until};

use crate::running::Running;
use crate::stub::longshore;

impl Running {
    /// Makes a job, and waits for its end.
    async fn job(&self, name: &str) -> u64 {
        let job = self.api.post(&format!("/api/jobs/{name}"), None).await;
        let id = job["id"].as_u64().unwrap();
        self.api.wait_for_job(id, |job| job["ended_at"].is_string()).await;
        id
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_events_are_printed_and_selected() {
    let running = Running::start(JOBS_FILE).await;
    let (one, two) = (running.job("say").await, running.job("fails").await);
    let json = running.run_cli(&["events", "--kind", "job.*", "-o", "json"]);
    assert_eq!((json.code, json.err.as_str()), (0, ""), "{json:?}");
    let events: Vec<Value> = json.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for job in [one, two] {
        let of_job = events.iter().filter(|event| event["job"]["id"] == job);
        let kinds: Vec<&str> = of_job.map(|event| event["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["job.accepted", "job.assigned", "job.started", "job.ended"]);
    }
    let failed = running.run_cli(&["events", "--state", "failed", "--worker", "only"]);
    assert!(
        failed.out.ends_with(&format!("job.ended             fails {two}: failed, exit 3, on only\n")),
        "{failed:?}"
    );
    assert_eq!(failed.out.lines().count(), 1, "{failed:?}");
    let joined = running.run_cli(&["events", "--kind", "worker.*", "--tail", "500"]);
    assert!(joined.out.contains("worker.joined") && joined.out.contains("only: ready"), "{joined:?}");
    let wrong = running.run_cli(&["events", "--kind", "job.endet"]);
    assert!(wrong.code == 2 && wrong.err.contains("did you mean \"job.ended\"?"), "{wrong:?}");
    let gone = running.run_cli(&["events", "--after", "0.1.1"]);
    assert!(gone.code == 4 && gone.err.contains("events_gone"), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_outlives_a_restart_and_says_what_it_may_have_missed() {
    let mut running = Running::start(JOBS_FILE).await;
    running.job("say").await;
    let mut command = longshore(&["events", "-f", "--tail", "1", "--kind", "job.ended"]);
    command.env("LONGSHORE_SERVER", format!("http://{}", running.cluster.address()));
    let follower = Process::spawn(command, &running.cluster.path("follower.log")).unwrap();
    let said = |text: String| {
        let follower = &follower;
        async move {
            wait_until("the follower prints it", async || follower.log().contains(&text)).await;
        }
    };
    said("say 1: succeeded".to_owned()).await;
    let second = running.job("say").await;
    said(format!("say {second}: succeeded")).await;
    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    said("some events are missing".to_owned()).await;
    running.api.wait_for_ready_worker("only").await;
    let third = running.job("fails").await;
    said(format!("fails {third}: failed")).await;
    assert_eq!(follower.log().matches("job.ended").count(), 3, "{}", follower.log());
}

const JOBS_FILE: &str = "
jobs:
  say: { runtime: process, command: [echo, hello] }
  fails: { runtime: process, command: [sh, -c, exit 3] }
";
