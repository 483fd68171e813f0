//! `/metrics` of a real server after a few jobs, and what `deploy/` makes of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its cluster fails")]

use std::collections::BTreeSet;
use std::path::Path;

use testkit::{Api, Cluster, wait_for};

const JOBS_FILE: &str = "
jobs:
  say: { runtime: process, command: [echo, hello] }
  fails: { runtime: process, command: [sh, -c, exit 3] }
  waits: { runtime: process, command: ['true'] }
  sleeps: { runtime: process, command: [sleep, '3600'] }
  tick: { runtime: process, command: ['true'], schedule: { every: 500ms } }
";

async fn scrape(api: &Api) -> String {
    String::from_utf8(api.get_bytes("/metrics").await).unwrap()
}

/// The value of a sample with exactly these labels.
fn value(scrape: &str, sample: &str) -> Option<f64> {
    scrape.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

/// The names of all samples.
fn samples(scrape: &str) -> BTreeSet<&str> {
    let lines = scrape.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// The metrics of Longshore that a file names.
fn named(path: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| word.starts_with("longshore_")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_counts_what_happened_and_has_every_metric_that_deploy_names() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS_FILE);
    let (_server, api) = (cluster.start_server(&[]).await, cluster.api());
    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "3"]);
    api.wait_for_ready_worker("only").await;
    for name in ["say", "say", "fails"] {
        let job = api.post(&format!("/api/jobs/{name}"), None).await;
        api.wait_for_job(job["id"].as_u64().unwrap(), |job| job["ended_at"].is_string()).await;
    }
    api.post("/api/definitions/waits/pause", None).await;
    for name in ["waits", "sleeps", "waits"] {
        api.post(&format!("/api/jobs/{name}"), None).await;
    }
    // A job that does not exist: counted as 4xx.
    assert!(api.try_get("/api/jobs/1000000").await.is_err());
    let expected = [
        ("longshore_jobs_accepted_total{definition=\"say\"}", 2.0),
        ("longshore_jobs_ended_total{definition=\"say\",state=\"succeeded\"}", 2.0),
        ("longshore_jobs_ended_total{definition=\"say\",state=\"failed\"}", 0.0),
        ("longshore_jobs_ended_total{definition=\"fails\",state=\"failed\"}", 1.0),
        ("longshore_attempt_run_seconds_count{definition=\"say\"}", 2.0),
        ("longshore_attempts_ended_total{outcome=\"failed\"}", 1.0),
        ("longshore_attempts_ended_total{outcome=\"lost\"}", 0.0),
        ("longshore_workers{state=\"ready\"}", 1.0),
        ("longshore_workers{state=\"unreachable\"}", 0.0),
        ("longshore_workers{state=\"suspect\"}", 0.0),
        ("longshore_jobs_quarantined", 0.0),
        ("longshore_pauses", 1.0),
        ("longshore_workers_set_aside", 0.0),
        ("longshore_attempts_unmanaged", 0.0),
        ("longshore_workers_lacking_runtime{runtime=\"docker\"}", 0.0),
        ("longshore_workers_lacking_runtime{runtime=\"process\"}", 0.0),
        ("longshore_slots{kind=\"total\"}", 3.0),
        ("longshore_http_requests_total{route=\"/api/jobs/{name}\",method=\"POST\",status=\"2xx\"}", 6.0),
        ("longshore_jobs_queued{definition=\"waits\"}", 2.0),
        ("longshore_jobs_queued{definition=\"sleeps\"}", 0.0),
        ("longshore_jobs_running{definition=\"sleeps\"}", 1.0),
        ("longshore_jobs_running{definition=\"waits\"}", 0.0),
        ("longshore_jobs_unresolved{definition=\"fails\"}", 1.0),
        ("longshore_jobs_unresolved{definition=\"other\"}", 0.0),
        ("longshore_http_requests_total{route=\"/api/jobs/{name}\",method=\"GET\",status=\"4xx\"}", 1.0),
        ("longshore_storage_low", 0.0),
        ("longshore_address_lock_outs_total", 0.0),
    ];
    // Counters follow the answers a moment later, and a slot fires in its own time.
    let text = wait_for("the counters follow", async || {
        let text = scrape(&api).await;
        let fired = value(&text, "longshore_schedule_verdicts_total{verdict=\"fired\"}")?;
        let is_complete =
            fired > 0.0 && expected.iter().all(|(sample, wanted)| value(&text, sample) == Some(*wanted));
        is_complete.then_some(text)
    })
    .await;
    let here = samples(&text);
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for file in ["prometheus/longshore.rules.yml", "grafana/longshore.json"] {
        let named = named(&deploy.join(file));
        assert!(named.len() > 5, "{file}: {named:?}");
        for name in named {
            assert!(here.contains(name.as_str()), "{file} names {name}, which no scrape has");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_refused_is_told_until_a_good_one_is_read() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS_FILE);
    let (_server, api) = (cluster.start_server(&[]).await, cluster.api());
    for (text, code, told) in [(JOBS_FILE, 0, 0.0), ("jobs: {", 2, 1.0), (JOBS_FILE, 0, 0.0)] {
        std::fs::write(cluster.path("jobs.yaml"), text).unwrap();
        let reloaded = cluster.run_cli(&["reload", "--server", &cluster.address()]);
        assert_eq!(reloaded.0, code, "{reloaded:?}");
        assert_eq!(value(&scrape(&api).await, "longshore_jobs_file_refused"), Some(told));
        let ready = String::from_utf8(api.get_bytes("/readyz").await).unwrap();
        assert_eq!(ready.contains("warning: jobs.yaml: it was refused at 2"), told > 0.0, "{ready}");
    }
}
