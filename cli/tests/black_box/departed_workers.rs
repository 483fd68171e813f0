//! A job that asks for a worker by its id, and the worker joins anew under another one.

use testkit::Cluster;

const JOBS: &str = "jobs: { hello: { runtime: fake } }\n";
const FLAGS: [&str; 2] = ["--no-docker", "--allow-fake"];

#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_an_id_that_has_left_is_told_the_new_id_of_the_name() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&["--heartbeat", "500ms", "--lease", "3s"]).await;
    let (api, address) = (cluster.api(), cluster.address());
    let cli = |words: &[&str]| cluster.run_cli(&[words, &["--server", &address]].concat());
    let mut first = cluster.start_worker("anna", &FLAGS);
    let old = api.wait_for_ready_worker("anna").await["id"].as_u64().expect("an id");
    first.terminate().await;
    let away = cli(&["run", "hello", "--on", &format!("id:{old}")]);
    assert!(away.0 == 0 && !away.1.contains("has left"), "it may come back: {away:?}");

    // The disk of the machine is wiped.
    std::fs::remove_dir_all(cluster.path("anna")).unwrap();
    let _second = cluster.start_worker("anna", &FLAGS);
    let new = api.wait_for_ready_worker("anna").await["id"].as_u64().expect("an id");
    assert_ne!(old, new);
    let left = format!(
        "worker {old} has left: its name anna is that of worker {new} now, so ask for id:{new}, or for the name"
    );
    let told = cli(&["run", "hello", "--on", &format!("id:{old}")]);
    assert!(told.0 == 0 && told.1.contains("warning") && told.1.contains(&left), "{told:?}");
    let told = cli(&["run", "hello", "--count", "2", "--on", &format!("id:{old}")]);
    assert!(told.0 == 0 && told.1.contains("warning") && told.1.contains(&left), "{told:?}");
    let told = cli(&["explain", "2"]);
    assert!(told.0 == 0 && told.1.contains(&left), "{told:?}");
    let told = cli(&["run", "hello", "--on", &format!("id:{new}"), "--wait"]);
    assert!(told.0 == 0 && !told.1.contains("has left"), "{told:?}");

    let (code, text) = cli(&["forget", &format!("id:{old}")]);
    assert_eq!(code, 0, "{text}");
    let told = cli(&["explain", "2"]);
    let forgotten = format!("no worker has the id {old}: it was forgotten, or never joined");
    assert!(told.0 == 0 && told.1.contains(&forgotten), "{told:?}");
}
