//! A host on which nothing starts although its engine answers: it does not eat the queue, and takes jobs again when a container of its own
//! has shown that it can.

use serde_json::Value;

use crate::support::docker::{self, Containers, stand_in};
use crate::support::{Stage, holds};

/// Everything is what the engine says, but for what would start a container.
const BROKEN: &str = "case \"$1\" in run) echo \"$*\" >>\"$0.tries\"
    echo 'docker: Error response from daemon: no space left on device' >&2; exit 125;; esac
exec docker \"$@\"";
const WELL: &str = "case \"$1\" in run) echo \"$*\" >>\"$0.well\";; esac\nexec docker \"$@\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_nothing_takes_no_jobs_until_a_container_of_its_own_has_started() {
    if !docker::is_wanted() {
        return;
    }
    let stage = Stage::new("");
    let names = ["a", "b", "c", "d"].map(|letter| format!("broken-{letter}-{}", stage.port()));
    let jobs: String = names
        .iter()
        .map(|name| {
            format!("  {name}: {{ image: busybox, command: ['true'], network: none, pull_policy: never }}\n")
        })
        .collect();
    std::fs::write(stage.path("jobs.yaml"), format!("jobs:\n{jobs}")).unwrap();
    let _containers = names.each_ref().map(|name| Containers::of(name));
    let mut server = stage.server(&[]).await;
    let api = stage.api();
    let program = stand_in(&stage.path(""), BROKEN);
    let mut worker =
        stage.worker("only", &["--docker", program.to_str().unwrap(), "--slots", "1", "--backlog", "0"]);
    api.worker_ready("only").await;

    for name in &names[..3] {
        let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
        api.job(job, |job| job["attempts"][0]["outcome"] == "host_failed").await;
    }
    let broken = api.worker("only", |worker| worker["runtimes"][0]["available"] == false).await;
    let reason = broken["runtimes"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("three starts in a row failed") && reason.contains("no space left"), "{reason}");
    assert_eq!((&broken["state"], &broken["connected"]), (&"ready".into(), &true.into()), "{broken}");

    let last = api.post(&format!("/api/jobs/{}", names[3]), None).await["id"].as_u64().unwrap();
    let why = api.get(&format!("/api/jobs/{last}/explain")).await;
    assert_eq!(why["reason"]["code"], "no_runtime", "{why}");
    assert!(why["workers"][0]["text"].as_str().unwrap().contains("three starts in a row failed"), "{why}");
    let tried = || std::fs::read_to_string(stage.path("docker.tries")).unwrap_or_default();
    let probes = |told: &str| told.lines().filter(|line| line.contains("-probe-")).count();
    holds("it is tried again and again", async || probes(&tried()) >= 2).await;
    let job = api.get(&format!("/api/jobs/{last}")).await;
    assert_eq!(job["attempt_count"], 0, "nobody else pays for it: {job}");

    stand_in(&stage.path(""), WELL);
    let job = api.job(last, |job| job["state"] == "succeeded").await;
    assert_eq!(job["attempt_count"], 1, "{job}");
    let began = std::fs::read_to_string(stage.path("docker.well")).unwrap();
    assert!(began.lines().next().unwrap().contains("-probe-"), "the probe goes before any job: {began}");
    let well = api.worker("only", |worker| worker["runtimes"][0]["available"] == true).await;
    assert_eq!(well["runtimes"][0].get("reason"), None::<&Value>, "{well}");
    let listed = std::process::Command::new("docker")
        .args(["ps", "--all", "--quiet", "--filter", &format!("name={}", probe_name(&began))])
        .output()
        .unwrap();
    assert!(listed.stdout.is_empty(), "the probe is removed: {listed:?}");
    worker.leave().await;
    server.leave().await;
}

/// What the container was called that was begun first.
fn probe_name(began: &str) -> &str {
    began.split_whitespace().find(|word| word.contains("-probe-")).unwrap()
}
