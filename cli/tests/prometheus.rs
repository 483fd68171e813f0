//! A real Prometheus takes the rules of `deploy/prometheus`, scrapes a server, and answers every query of the rules and of the Grafana board.
//!
//! It needs Debian's `prometheus`, which has `promtool`. `LONGSHORE_TEST_PROMETHEUS=required` asks for it.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::{Api, Cluster, Process, ReservedPort, wait_for, wait_until};

const JOBS_FILE: &str = "
jobs:
  say: { runtime: process, command: [echo, hello] }
  fails: { runtime: process, command: [sh, -c, exit 3] }
  tick: { runtime: process, command: ['true'], schedule: { every: 500ms } }
  nowhere: { runtime: process, command: ['true'], requires: [gpu] }
";

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_takes_the_rules_and_answers_the_queries_of_the_board() {
    if !is_required() {
        return;
    }
    check_files();
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS_FILE);
    let mut server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "3"]);
    cluster.api().wait_for_ready_worker("only").await;
    // A definition is known to a metric after its first job, so each counter is scraped before it grows further.
    run(&cluster, "say").await;
    run(&cluster, "fails").await;
    cluster.api().post("/api/jobs/nowhere", None).await;
    // Counted as 4xx.
    assert!(cluster.api().try_get("/api/jobs/1000000").await.is_err());
    check_metrics(&cluster).await;
    let (_process, _port, prometheus) = start_prometheus(&cluster);
    wait_until("the server is scraped", async || {
        has_series(&prometheus, "longshore_jobs_ended_total{definition=\"fails\",state=\"failed\"} > 0").await
    })
    .await;

    let rules = wait_for("all rules were evaluated", async || {
        let rules = rules(&prometheus).await;
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    })
    .await;
    assert!(rules.len() > 10, "{rules:?}");
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    let mut queries: Vec<String> = rules.iter().map(|rule| rule["query"].as_str().unwrap().into()).collect();
    queries.extend(queries_of_the_board());
    let mut without_data = BTreeSet::new();
    for query in &queries {
        query_vector(&prometheus, query).await.unwrap_or_else(|problem| panic!("{query}: {problem}"));
        for selector in selectors(query) {
            if !has_series(&prometheus, &selector).await {
                without_data.insert(selector);
            }
        }
    }
    // A class of answers has no series before its first answer.
    let absent = BTreeSet::from(["longshore_http_requests_total{status=\"5xx\"}".to_owned()]);
    assert!(without_data.is_subset(&absent), "selectors of deploy/ that fit no series: {without_data:?}");

    run(&cluster, "fails").await;
    let condition = "more than half of the jobs of a definition fail";
    wait_until(condition, async || is_pending(&prometheus, "LongshoreJobsFail", "fails").await).await;
    server.terminate().await;
    wait_until("the server is down", async || is_pending(&prometheus, "LongshoreDown", "").await).await;
}

fn is_required() -> bool {
    let required = std::env::var("LONGSHORE_TEST_PROMETHEUS").is_ok_and(|value| value == "required");
    if !required {
        eprintln!("skipped: this test needs Prometheus (LONGSHORE_TEST_PROMETHEUS is not `required`)");
    }
    required
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// `promtool` finds no fault in the files as they are, and alerts fire when they should.
fn check_files() {
    let files = deploy().join("prometheus");
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prometheus");
    for (directory, words) in [
        (&files, &["check", "rules", "longshore.rules.yml"][..]),
        (&files, &["check", "config", "--syntax-only", "prometheus.yml"]),
        (&alerts, &["test", "rules", "alerts.yml"]),
    ] {
        let output = Command::new("promtool").current_dir(directory).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

/// `promtool` finds no fault in the text format, which clients get that do not ask for OpenMetrics.
async fn check_metrics(cluster: &Cluster) {
    let file = cluster.path("metrics.txt");
    std::fs::write(&file, cluster.api().get_bytes("/metrics").await).unwrap();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap());
    let output = promtool.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// Runs a job to its end.
async fn run(cluster: &Cluster, name: &str) {
    let job = cluster.api().post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    cluster.api().wait_for_job(job, |job| job["ended_at"].is_string()).await;
}

/// A Prometheus with the rules of `deploy/`, which scrapes the server twice a second.
fn start_prometheus(cluster: &Cluster) -> (Process, ReservedPort, Api) {
    let port = ReservedPort::new();
    let address = format!("127.0.0.1:{}", port.number());
    let rules = deploy().join("prometheus/longshore.rules.yml");
    let config = format!(
        "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}
rule_files: [{}]
scrape_configs:
  - job_name: longshore
    static_configs: [{{ targets: [\"{}\"] }}]
",
        std::fs::canonicalize(rules).unwrap().display(),
        cluster.address(),
    );
    let file = cluster.path("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("prometheus");
    command.arg("--config.file").arg(file).arg("--storage.tsdb.path").arg(cluster.path("prometheus"));
    command.arg("--web.listen-address").arg(&address).current_dir(cluster.path(""));
    let process = Process::spawn(command, &cluster.path("prometheus.log")).unwrap();
    (process, port, Api::new(&address))
}

async fn rules(prometheus: &Api) -> Vec<Value> {
    let Ok(answer) = prometheus.try_get("/api/v1/rules").await else { return Vec::new() };
    let groups = answer.body["data"]["groups"].as_array().cloned().unwrap_or_default();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// An alert of this name waits for its time to be over; of this definition, if one is named.
async fn is_pending(prometheus: &Api, name: &str, definition: &str) -> bool {
    let rules = rules(prometheus).await;
    let mut alerts =
        rules.iter().filter(|rule| rule["name"] == name).flat_map(|rule| rule["alerts"].as_array().unwrap());
    alerts.any(|alert| {
        ["pending", "firing"].iter().any(|state| alert["state"] == **state)
            && (definition.is_empty() || alert["labels"]["definition"] == definition)
    })
}

async fn query_vector(prometheus: &Api, query: &str) -> Result<Vec<Value>, String> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = prometheus.try_get(&format!("/api/v1/query?query={encoded}")).await;
    let answer = answer.map_err(|error| error.to_string())?.body;
    match answer["data"]["result"].as_array() {
        Some(result) if answer["status"] == "success" => Ok(result.clone()),
        _ => Err(answer.to_string()),
    }
}

async fn has_series(prometheus: &Api, query: &str) -> bool {
    query_vector(prometheus, query).await.is_ok_and(|series| !series.is_empty())
}

/// The queries of all panels, with the variables of the board replaced.
fn queries_of_the_board() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("expr").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|inner| collect(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| collect(inner, found)),
            _ => {}
        }
    }
    let text = std::fs::read_to_string(deploy().join("grafana/longshore.json")).unwrap();
    let mut found = Vec::new();
    collect(&serde_json::from_str(&text).unwrap(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    found.iter().map(|query| query.replace("$instance", ".*").replace("$__rate_interval", "1m")).collect()
}

/// The parts of a query that name series: a metric with its labels.
fn selectors(query: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = query.match_indices("longshore_").map(|(at, _)| &query[at..]);
    let selector = |text: &str| {
        let name_end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        let labels =
            text[name_end..].strip_prefix('{').and_then(|rest| rest.find('}')).map_or(0, |at| at + 2);
        text[..name_end + labels].to_owned()
    };
    starts.map(selector).collect()
}
