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

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_lost_before_a_restart_is_named_after_it_and_the_list_says_what_it_hides() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let flags = ["--heartbeat", "500ms", "--lease", "3s"];
    let mut server = cluster.start_server(&flags).await;
    let api = cluster.api();
    let (mut killed, mut left) =
        (cluster.start_worker("killed", &FLAGS), cluster.start_worker("left", &FLAGS));
    for name in ["killed", "left"] {
        api.wait_for_ready_worker(name).await;
    }
    left.terminate().await;
    killed.kill();
    let overview = async || String::from_utf8(api.get_bytes("/").await).expect("a page");
    let names_it = async || overview().await.contains("worker killed went");
    wait_until("the overview names the worker", names_it).await;
    let address = cluster.address();
    let list = |words: &[&str]| cluster.run_cli(&[words, &["--server", &address]].concat());
    let short = list(&["workers"]);
    let hidden = "2 workers without connection and jobs are not listed (2 gone); see all with: longshore workers --all";
    assert!(short.0 == 0 && short.1.contains(hidden), "{short:?}");
    for words in [&["workers", "--all"][..], &["workers", "-o", "json"]] {
        let other = list(words);
        assert!(other.0 == 0 && !other.1.contains("not listed"), "{other:?}");
    }

    server.terminate().await;
    let _server = cluster.start_server(&flags).await;
    wait_until("the overview names the worker again", names_it).await;
    assert!(!overview().await.contains("worker left went"), "it has left");
    let _worker = cluster.start_worker("killed", &FLAGS);
    api.wait_for_ready_worker("killed").await;
    assert!(!overview().await.contains("worker killed went"), "it is back");
}
