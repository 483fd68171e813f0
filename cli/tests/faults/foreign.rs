//! A container whose worker will never come back, on an engine that another worker uses too: it is stopped by order of the server, as
//! soon as its job has a successor. What still has its worker, or is current, is left alone.

use serde_json::json;

use crate::support::docker::{self, Containers};
use crate::support::{Stage, holds};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_without_its_state_directory_has_left_is_stopped_by_another_one() {
    if !docker::is_wanted() {
        return;
    }
    let stage = Stage::new("");
    let name = format!("left-{}", stage.port());
    std::fs::write(stage.path("jobs.yaml"), jobs_file(&name)).unwrap();
    let containers = Containers::of(&name);
    let _server = stage.server(QUICK_LEASE).await;
    let api = stage.api();
    let submit = async || api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    let runs = async |job, attempt: u32| {
        api.job(job, |job| job["attempt_count"] == attempt && job["state"] == "running").await
    };
    let mut lost = stage.worker("lost", &["--slots", "1"]);
    let orphan = submit().await;
    runs(orphan, 1).await;
    let _kept = stage.worker("kept", &["--slots", "1"]);
    api.worker_ready("kept").await;
    let other = submit().await;
    runs(other, 1).await;
    let [orphaned, kept] = [orphan, other].map(|job| containers.of_job(job));

    lost.kill();
    std::fs::remove_dir_all(stage.path("lost")).unwrap();
    let _fresh = stage.worker("fresh", &["--slots", "1"]);

    let shown = runs(orphan, 2).await;
    assert_eq!(shown["worker"]["name"], "fresh", "{shown}");
    let successor = containers.of_job(orphan).into_iter().filter(|id| *id != orphaned[0]).collect::<Vec<_>>();
    holds("what it has left is gone", async || !containers.ids().contains(&orphaned[0])).await;
    assert_eq!(
        (containers.of_job(orphan), containers.of_job(other)),
        (successor, kept),
        "nobody else is touched"
    );
    for job in [orphan, other] {
        assert_eq!(api.get(&format!("/api/jobs/{job}")).await["state"], json!("running"));
    }
}

fn jobs_file(name: &str) -> String {
    format!(
        "version: 1\njobs:\n  {name}: {{ image: busybox, command: [sleep, '600'], network: none, pull_policy: never, \
         stop_grace_period: 1s, lost_after: 4s }}\n"
    )
}

const QUICK_LEASE: &[&str] = &["--heartbeat", "500ms", "--lease", "3s"];
