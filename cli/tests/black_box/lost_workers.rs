//! Workers that go without leaving, on the overview of the dashboard.

use testkit::{Cluster, wait_until};

const JOBS: &str = "jobs: { hello: { runtime: fake } }\n";
const FLAGS: [&str; 2] = ["--no-docker", "--allow-fake"];

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_names_a_worker_that_went_without_leaving_until_it_is_back() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&["--heartbeat", "500ms", "--lease", "3s"]).await;
    let api = cluster.api();
    let (mut killed, mut left) =
        (cluster.start_worker("killed", &FLAGS), cluster.start_worker("left", &FLAGS));
    for name in ["killed", "left"] {
        api.wait_for_ready_worker(name).await;
    }
    left.terminate().await;
    killed.kill();
    let overview = async || String::from_utf8(api.get_bytes("/").await).expect("a page");
    wait_until("the overview names the worker", async || overview().await.contains("worker killed went"))
        .await;
    assert!(!overview().await.contains("worker left"), "it has left");
    let _worker = cluster.start_worker("killed", &FLAGS);
    api.wait_for_ready_worker("killed").await;
    assert!(!overview().await.contains("worker killed went"), "it is back");
}
