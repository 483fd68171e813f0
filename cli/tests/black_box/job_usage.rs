//! The use of resources, with real processes: what the API, the CLI, the dashboard and the metrics tell while a job runs and when it has
//! ended.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use serde_json::Value;
use testkit::{Cluster, Process, docker, wait_for};

/// A job that keeps the memory that it has and uses CPU until it may end.
struct BusyJob {
    cluster: Cluster,
    _server: Process,
    worker: Process,
    id: u64,
    flags: Vec<String>,
    way: Way,
}

/// The way to end the job.
enum Way {
    Container(docker::DefinitionContainers),
    Process,
}

impl BusyJob {
    /// Starts a container with this limit. It has 20 MiB when it uses CPU.
    async fn container(name: &str, end: &str) -> Self {
        Self::container_with(&[], name, end).await
    }

    /// As [`Self::container`], by a worker with these flags.
    async fn container_with(flags: &[&str], name: &str, end: &str) -> Self {
        let jobs = format!(
            "version: 1\njobs:\n  {name}:\n    image: busybox\n    resources: {{ memory: 32m }}\n    command:\n      - sh\n      - -c\n      - |\n        dd if=/dev/zero of=/dev/shm/kept bs=1M count=20 2>&1\n        until [ -e /dev/shm/go ]; do :; done\n        {end}\n"
        );
        let way = Way::Container(docker::DefinitionContainers::new(name));
        Self::start(name, &jobs, way, &[&["--on-term", "detach"], flags].concat()).await
    }

    /// Starts a plain process.
    async fn process(name: &str) -> Self {
        let jobs = format!(
            "version: 1\njobs:\n  {name}:\n    runtime: process\n    environment: {{ GATE: \"\" }}\n    command: [sh, -c, 'until [ -e \"$GATE\" ]; do :; done; exit 3']\n"
        );
        Self::start(name, &jobs, Way::Process, &["--no-docker", "--allow-process", "--on-term", "detach"])
            .await
    }

    async fn start(name: &str, jobs: &str, way: Way, flags: &[&str]) -> Self {
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
        let server = cluster.start_server(&[]).await;
        let worker = cluster.start_worker("w1", flags);
        cluster.api().wait_for_ready_worker("w1").await;
        let gate = cluster.path("gate");
        let body = match way {
            Way::Container(_) => serde_json::json!({}),
            Way::Process => serde_json::json!({ "environment": { "GATE": gate } }),
        };
        let job = cluster.api().post(&format!("/api/jobs/{name}"), Some(&body)).await;
        let id = job["id"].as_u64().unwrap();
        Self {
            cluster,
            _server: server,
            worker,
            id,
            flags: flags.iter().map(|it| (*it).to_owned()).collect(),
            way,
        }
    }

    async fn job(&self) -> Value {
        self.cluster.api().get(&format!("/api/jobs/{}", self.id)).await
    }

    /// Resources that its attempt has used so far, or at its end.
    async fn usage(&self) -> Value {
        self.job().await["attempts"][0]["usage"].clone()
    }

    /// Waits until this CPU time was seen while it runs.
    async fn wait_for_cpu(&self, ms: u64) -> Value {
        wait_for(&format!("{ms} ms of CPU are seen"), async || {
            let usage = self.usage().await;
            (usage["cpu_ms"].as_u64() >= Some(ms)).then_some(usage)
        })
        .await
    }

    fn let_end(&self) {
        match &self.way {
            Way::Container(containers) => {
                assert!(containers.touch(self.id, "/dev/shm/go"));
            }
            Way::Process => std::fs::write(self.cluster.path("gate"), "").unwrap(),
        }
    }

    async fn end(&self) -> Value {
        self.let_end();
        self.cluster.api().wait_for_job(self.id, |job| job["ended_at"].is_string()).await;
        self.job().await
    }

    async fn restart_worker(&mut self) {
        self.worker.kill();
        self.worker =
            self.cluster.start_worker("w1", &self.flags.iter().map(String::as_str).collect::<Vec<_>>());
        self.cluster.api().wait_for_ready_worker("w1").await;
    }

    async fn text(&self, path: &str) -> String {
        String::from_utf8(self.cluster.api().get_bytes(path).await).unwrap()
    }
}

fn name(of: &str) -> String {
    format!("{of}-{}", std::process::id())
}

fn figure(usage: &Value, name: &str) -> u64 {
    usage[name].as_u64().unwrap_or_else(|| panic!("{name} is not in {usage}"))
}

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_measured_while_it_runs_and_when_it_has_ended() {
    if !docker::is_required() {
        return;
    }
    let name = name("busy");
    let busy = BusyJob::container(&name, "exit 0").await;
    let running = busy.wait_for_cpu(300).await;
    assert!(figure(&running, "memory_peak_bytes") >= 20 * MIB, "{running}");
    let curve = wait_for("a curve", async || {
        let curve = busy.cluster.api().get(&format!("/api/jobs/{}/usage", busy.id)).await;
        (curve["points"].as_array().unwrap().len() >= 2).then_some(curve)
    })
    .await;
    let last = curve["points"].as_array().unwrap().last().unwrap();
    assert!(figure(last, "memory_bytes") >= 20 * MIB, "{curve}");
    let page = busy.text(&format!("/jobs/{}", busy.id)).await;
    assert!(page.contains("<polyline class=\"curve\"") && page.contains("CPU time"), "{page}");

    let ended = busy.end().await;
    assert_eq!(ended["state"], "succeeded");
    let usage = &ended["attempts"][0]["usage"];
    assert!(figure(usage, "cpu_ms") >= figure(&running, "cpu_ms"), "{usage}");
    let peak = figure(usage, "memory_peak_bytes");
    assert!((20 * MIB..=32 * MIB).contains(&peak), "{usage}");
    assert!(usage["network_received_bytes"].is_u64() && usage["network_sent_bytes"].is_u64(), "{usage}");

    let (code, shown) =
        busy.cluster.run_cli(&["show", &busy.id.to_string(), "--server", &busy.cluster.address()]);
    assert!(code == 0 && shown.contains("MEMORY") && shown.contains("MiB"), "{shown}");
    let metrics = busy.text("/metrics").await;
    let counted = format!("longshore_attempt_cpu_seconds_total{{definition=\"{name}\"}}");
    let seconds = metrics.lines().find_map(|line| line.strip_prefix(&counted)?.trim().parse::<f64>().ok());
    assert!(seconds > Some(0.2), "{counted}: {seconds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_process_is_measured_and_has_no_network_of_its_own() {
    let busy = BusyJob::process("busy").await;
    let running = busy.wait_for_cpu(300).await;
    let ended = busy.end().await;
    assert_eq!((&ended["state"], &ended["attempts"][0]["exit_code"]), (&"failed".into(), &3.into()));
    let usage = &ended["attempts"][0]["usage"];
    assert!(figure(usage, "cpu_ms") >= figure(&running, "cpu_ms"), "{usage}");
    assert!(figure(usage, "memory_peak_bytes") > 100_000, "{usage}");
    assert!(usage.get("network_received_bytes").is_none(), "{usage}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_for_lack_of_memory_tells_the_limit_and_the_peak() {
    if !docker::is_required() {
        return;
    }
    let busy =
        BusyJob::container(&name("greedy"), "exec dd if=/dev/zero of=/dev/shm/more bs=1M count=40").await;
    busy.wait_for_cpu(1).await;
    let ended = busy.end().await;
    let attempt = &ended["attempts"][0];
    assert_eq!(attempt["outcome"], "oom_killed", "{attempt}");
    let peak = figure(&attempt["usage"], "memory_peak_bytes");
    assert!((31 * MIB..=32 * MIB).contains(&peak), "{attempt}");
    let message = attempt["message"].as_str().unwrap();
    assert!(message.starts_with("killed for its memory limit of 32 MiB, at a peak of 3"), "{message}");
}

/// Passes all commands to the engine, and hides that a container was killed for its memory.
const SILENT_ABOUT_MEMORY: &str = r#"case "$1" in
events)
    for argument; do
        shift
        [ "$argument" = event=oom ] && argument=event=rename
        set -- "$@" "$argument"
    done ;;
inspect)
    docker "$@" >"$0.$$"
    code=$?
    sed 's/"OOMKilled":true/"OOMKilled":false/' "$0.$$"
    rm "$0.$$"
    exit $code ;;
esac
exec docker "$@""#;

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_for_lack_of_memory_is_seen_in_the_control_group_if_the_engine_does_not_report_it() {
    if !docker::is_required() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = docker::write_fake_docker(directory.path(), SILENT_ABOUT_MEMORY);
    let flags = ["--docker", program.to_str().unwrap()];
    let end = "exec dd if=/dev/zero of=/dev/shm/more bs=1M count=40";
    // On a loaded machine the control group may be gone before the worker gets to read it.
    let mut ended = Value::Null;
    for number in 1..=TRIES {
        let busy = BusyJob::container_with(&flags, &name(&format!("silent-{number}")), end).await;
        busy.wait_for_cpu(1).await;
        ended = busy.end().await;
        if ended["attempts"][0]["outcome"] == "oom_killed" {
            return;
        }
    }
    panic!("{TRIES} kills were not seen: {ended}");
}

/// One kill is enough.
const TRIES: u32 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_keeps_its_figures_when_its_worker_is_killed() {
    if docker::is_required() {
        keeps_its_figures(BusyJob::container(&name("adopted"), "exit 0").await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_keeps_its_figures_when_its_worker_is_killed() {
    keeps_its_figures(BusyJob::process("adopted").await).await;
}

async fn keeps_its_figures(mut busy: BusyJob) {
    let before = busy.wait_for_cpu(300).await;
    busy.restart_worker().await;
    busy.wait_for_cpu(figure(&before, "cpu_ms") + 1).await;
    let ended = busy.end().await;
    let usage = &ended["attempts"][0]["usage"];
    assert!(figure(usage, "cpu_ms") > figure(&before, "cpu_ms"), "{usage}");
    assert!(figure(usage, "memory_peak_bytes") >= figure(&before, "memory_peak_bytes"), "{usage}");
}
