//! A host whose engine answers but cannot start containers: the worker takes no jobs until its own probe container has started.

use serde_json::Value;

use crate::support::docker::{self, DefinitionContainers, write_fake_docker};
use crate::support::{Cluster, wait_until};

/// Passes all commands to the engine except those that start a container.
const BROKEN: &str = "case \"$1\" in run) echo \"$*\" >>\"$0.tries\"
    echo 'docker: Error response from daemon: no space left on device' >&2; exit 125;; esac
exec docker \"$@\"";
const WELL: &str = "case \"$1\" in run) echo \"$*\" >>\"$0.well\";; esac\nexec docker \"$@\"";

#[tokio::test(flavor = "multi_thread")]
async fn host_that_cannot_start_containers_takes_no_jobs_until_its_probe_container_starts() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new("");
    let names = ["a", "b", "c", "d"].map(|letter| format!("broken-{letter}-{}", cluster.port()));
    let jobs: String = names
        .iter()
        .map(|name| {
            format!("  {name}: {{ image: busybox, command: ['true'], network: none, pull_policy: never }}\n")
        })
        .collect();
    std::fs::write(cluster.path("jobs.yaml"), format!("jobs:\n{jobs}")).unwrap();
    let _containers = names.each_ref().map(|name| DefinitionContainers::new(name));
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let program = write_fake_docker(&cluster.path(""), BROKEN);
    let mut worker = cluster
        .start_worker("only", &["--docker", program.to_str().unwrap(), "--slots", "1", "--backlog", "0"]);
    api.wait_for_ready_worker("only").await;

    for name in &names[..3] {
        let job = api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
        api.wait_for_job(job, |job| job["attempts"][0]["outcome"] == "host_failed").await;
    }
    let is_broken =
        |worker: &Value| worker["runtimes"][0]["available"] == false && worker["state"] == "suspect";
    let broken = api.wait_for_worker("only", is_broken).await;
    let reason = broken["runtimes"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("three starts in a row failed") && reason.contains("no space left"), "{reason}");
    assert_eq!(broken["connected"], true, "{broken}");

    let last = api.post(&format!("/api/jobs/{}", names[3]), None).await["id"].as_u64().unwrap();
    let why = api.get(&format!("/api/jobs/{last}/explain")).await;
    assert_eq!(why["reason"]["code"], "runtime_unavailable", "{why}");
    assert!(why["workers"][0]["text"].as_str().unwrap().contains("three starts in a row failed"), "{why}");
    let tried = || std::fs::read_to_string(cluster.path("docker.tries")).unwrap_or_default();
    let probes = |told: &str| told.lines().filter(|line| line.contains("-probe-")).count();
    wait_until("it is tried again and again", async || probes(&tried()) >= 2).await;
    let job = api.get(&format!("/api/jobs/{last}")).await;
    assert_eq!(job["attempt_count"], 0, "nobody else pays for it: {job}");

    write_fake_docker(&cluster.path(""), WELL);
    let job = api.wait_for_job(last, |job| job["state"] == "succeeded").await;
    assert_eq!(job["attempt_count"], 1, "{job}");
    let began = std::fs::read_to_string(cluster.path("docker.well")).unwrap();
    assert!(began.lines().next().unwrap().contains("-probe-"), "the probe goes before any job: {began}");
    let well = api.wait_for_worker("only", |worker| worker["runtimes"][0]["available"] == true).await;
    assert_eq!(well["runtimes"][0].get("reason"), None::<&Value>, "{well}");
    let listed = std::process::Command::new("docker")
        .args(["ps", "--all", "--quiet", "--filter", &format!("name={}", probe_name(&began))])
        .output()
        .unwrap();
    assert!(listed.stdout.is_empty(), "the probe is removed: {listed:?}");
    worker.terminate().await;
    server.terminate().await;
}

/// The name of the container that was started first.
fn probe_name(began: &str) -> &str {
    began.split_whitespace().find(|word| word.contains("-probe-")).unwrap()
}
