//! Expectations by the real program: a definition becomes stale and slow, and is met again.

use serde_json::{Value, json};
use testkit::{Cluster, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_is_stale_until_it_succeeds_and_slow_until_it_is_quick_enough() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let condition = async |name: &str, wanted: &str| {
        wait_for(wanted, async || {
            let expect = api.get(&format!("/api/definitions/{name}")).await["expect"].clone();
            Some(expect).filter(|it| it["condition"] == wanted)
        })
        .await
    };
    let stale = condition("beat", "stale").await;
    assert_eq!(
        (&stale["success_within_ms"], stale["stale_since"].is_string()),
        (&json!(1_000), true),
        "{stale}"
    );
    let (_, listed) = cluster.run_cli(&["definitions", "--server", &cluster.address()]);
    assert!(listed.contains("beat (stale)") && !listed.contains("drag ("), "{listed}");
    server.kill();
    let _server = cluster.start_server(&[]).await;
    let again = condition("beat", "stale").await;
    assert_eq!(again["stale_since"], stale["stale_since"], "a restart changes nothing");
    let ready = String::from_utf8(api.get_bytes("/readyz").await).unwrap();
    assert!(ready.starts_with("ready") && ready.contains("1 definition is stale, 0 are slow"), "{ready}");

    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    api.wait_for_ready_worker("only").await;
    let beat = api.post("/api/jobs/beat", None).await["id"].as_u64().unwrap();
    api.wait_for_job(beat, |job| job["state"] == "succeeded").await;
    let drag = api.post("/api/jobs/drag", Some(&json!({"args": ["300"]}))).await["id"].as_u64().unwrap();
    let slow = condition("drag", "slow").await;
    assert_eq!((&slow["slow_job"], &slow["stale_since"]), (&json!(drag), &Value::Null), "{slow}");
    let running = api.get(&format!("/api/jobs/{drag}")).await;
    assert_eq!(running["state"], "running", "nothing is stopped: {running}");
    api.post(&format!("/api/jobs/{drag}/cancel"), None).await;
    // Its end is a slow one as well: only a success after that ends the condition.
    api.wait_for_job(drag, |job| job["state"] == "cancelled").await;
    let quick = api.post("/api/jobs/drag", Some(&json!({"args": ["0"]}))).await["id"].as_u64().unwrap();
    api.wait_for_job(quick, |job| job["state"] == "succeeded").await;
    condition("drag", "met").await;
    assert!(api.get("/api/definitions/plain").await["expect"].is_null());
}

const JOBS: &str = "\
version: 1
jobs:
  beat: { runtime: process, command: ['true'], expect: { success_within: 1s } }
  drag: { runtime: process, command: [sleep], expect: { max_duration: 1s }, stop_grace_period: 1s }
  plain: { runtime: process, command: ['true'] }
";
