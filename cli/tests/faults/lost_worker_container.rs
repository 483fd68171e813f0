//! A container whose worker never returns is stopped by another worker on the same engine as soon as its job has a successor. Containers of
//! present workers and current attempts are left alone.

use serde_json::json;

use crate::support::docker::{self, DefinitionContainers};
use crate::support::{Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn container_of_a_lost_worker_is_stopped_by_another_worker_on_the_engine() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new("");
    let name = format!("left-{}", cluster.port());
    std::fs::write(cluster.path("jobs.yaml"), jobs_file(&name)).unwrap();
    let containers = DefinitionContainers::new(&name);
    let _server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    let submit = async || api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    let runs = async |job, attempt: u32| {
        api.wait_for_job(job, |job| job["attempt_count"] == attempt && job["state"] == "running").await
    };
    let mut lost = cluster.start_worker("lost", &["--slots", "1"]);
    let orphan = submit().await;
    runs(orphan, 1).await;
    let _kept = cluster.start_worker("kept", &["--slots", "1"]);
    api.wait_for_ready_worker("kept").await;
    let other = submit().await;
    runs(other, 1).await;
    let [orphaned, kept] = [orphan, other].map(|job| containers.ids_for_job(job));

    lost.kill();
    std::fs::remove_dir_all(cluster.path("lost")).unwrap();
    let _fresh = cluster.start_worker("fresh", &["--slots", "1"]);

    let shown = runs(orphan, 2).await;
    assert_eq!(shown["worker"]["name"], "fresh", "{shown}");
    let successor =
        containers.ids_for_job(orphan).into_iter().filter(|id| *id != orphaned[0]).collect::<Vec<_>>();
    wait_until("what it has left is gone", async || !containers.ids().contains(&orphaned[0])).await;
    assert_eq!(
        (containers.ids_for_job(orphan), containers.ids_for_job(other)),
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
