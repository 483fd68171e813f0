//! Secrets with real processes: what a job gets, and every place in which a value must not be.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use testkit::{Cluster, Process, docker, wait_until};

const JOBS: &str = r#"version: 1
jobs:
  show:
    runtime: process
    params: { token: { type: string, secret: true, required: true } }
    secrets: [key]
    environment: { PGPASSWORD: { secret: db_password }, GATE: "" }
    command:
      - sh
      - -c
      - |
        echo "variable=$PGPASSWORD param=$PARAM_TOKEN"
        printf 'file='; cat "$LONGSHORE_SECRETS_DIR/key"
        printf 'split=planted-'; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo 'variable-8f2c'
  late: { runtime: process, secrets: [late], command: [sh, -c, 'cat "$LONGSHORE_SECRETS_DIR/late"; echo done'] }
"#;

/// Answers of the API, events, metrics and pages of the dashboard, about the job and all that belongs to it.
const ANSWERS: [&str; 29] = [
    "/api/jobs",
    "/api/jobs/1",
    "/api/jobs/1/explain",
    "/api/jobs/1/logs",
    "/api/jobs/1/usage",
    "/api/logs/search?q=variable",
    "/api/definitions",
    "/api/definitions/show",
    "/api/schedules",
    "/api/workers",
    "/api/workers/1",
    "/api/batches",
    "/api/limits",
    "/api/notifications",
    "/api/events?tail=1000&follow=0",
    "/api/tokens",
    "/metrics",
    "/openapi.json",
    "/",
    "/jobs",
    "/jobs.ndjson",
    "/jobs/1",
    "/jobs/1/again",
    "/jobs/1/output",
    "/definitions/show",
    "/workers/1",
    "/schedules",
    "/notifications",
    "/logs/search?q=variable",
];

const VARIABLE: &str = "planted-variable-8f2c";
const FILE: &str = "planted-file-91ab";
const PARAM: &str = "planted-param-77d0";

fn put(cluster: &Cluster, name: &str, value: &str) {
    let path = cluster.path("secrets").join(name);
    std::fs::write(&path, value).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

async fn start() -> (Cluster, Process, Process) {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    std::fs::create_dir(cluster.path("secrets")).unwrap();
    put(&cluster, "db_password", &format!("{VARIABLE}\n"));
    put(&cluster, "key", &format!("{FILE}\n"));
    let secrets = cluster.path("secrets").display().to_string();
    let server = cluster.start_server(&["--secrets-dir", &secrets, "--log", "trace"]).await;
    let worker = cluster.start_worker("w1", &WORKER);
    cluster.api().wait_for_ready_worker("w1").await;
    (cluster, server, worker)
}

async fn text(cluster: &Cluster, path: &str) -> String {
    String::from_utf8(cluster.api().get_bytes(path).await).unwrap()
}

/// Every file below this directory that has one of the planted values.
fn files_with_values(directory: &Path) -> Vec<String> {
    files_with(directory, &has_value)
}

/// Every file below this directory whose content fits. Directories that another test removes meanwhile have none.
fn files_with(directory: &Path, fits: &dyn Fn(&[u8]) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_with(&path, fits)),
            Ok(kind) if kind.is_file() && fits(&std::fs::read(&path).unwrap_or_default()) => {
                found.push(path.display().to_string());
            }
            _ => {}
        }
    }
    found
}

fn has_value(bytes: &[u8]) -> bool {
    [VARIABLE, FILE].iter().any(|value| contains(bytes, value))
}

fn contains(bytes: &[u8], value: &str) -> bool {
    bytes.windows(value.len()).any(|part| part == value.as_bytes())
}

#[tokio::test]
async fn a_planted_value_is_in_the_job_and_nowhere_else() {
    let (cluster, _server, mut worker) = start().await;
    let gate = cluster.path("gate").display().to_string();
    let job = serde_json::json!({ "params": { "token": PARAM }, "environment": { "GATE": gate } });
    cluster.api().post("/api/jobs/show", Some(&job)).await;
    cluster.api().wait_for_job(1, |job| job["state"] == "running").await;
    wait_until("its first lines are there", async || {
        text(&cluster, "/api/jobs/1/logs").await.contains("file=")
    })
    .await;

    // While it runs: no command line, and no file but the output itself.
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        assert!(!has_value(&std::fs::read(process.path().join("cmdline")).unwrap_or_default()));
    }
    let in_state = files_with_values(&cluster.path("w1"));
    assert!(in_state.iter().all(|path| path.ends_with("/stdout")), "{in_state:?}");

    // Another process of the worker adopts the program, and masks the rest of its output.
    worker.kill();
    let worker = cluster.start_worker("w1", &WORKER);
    std::fs::write(&gate, "").unwrap();
    cluster.api().wait_for_job(1, |job| job["state"] == "succeeded").await;
    wait_until("all output is there", async || {
        text(&cluster, "/api/jobs/1/logs").await.contains("split=****")
    })
    .await;
    let output = text(&cluster, "/api/jobs/1/logs").await;
    assert!(output.contains(&format!("variable={}", "*".repeat(VARIABLE.len()))), "{output}");
    assert!(output.contains(&format!("param={}\n", "*".repeat(PARAM.len()))), "{output}");
    assert!(output.contains(&format!("file={}\n", "*".repeat(FILE.len()))), "{output}");
    assert!(!has_value(output.as_bytes()) && !output.contains(PARAM), "{output}");

    wait_until("the worker has removed the attempt", async || {
        files_with_values(&cluster.path("w1")).is_empty()
    })
    .await;
    let backup = cluster.path("backup").display().to_string();
    let (code, said) =
        cluster.run_cli(&["backup", "--data", &cluster.path("data").display().to_string(), "--to", &backup]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(files_with_values(&cluster.path("data")), Vec::<String>::new());
    assert_eq!(files_with_values(&cluster.path("backup")), Vec::<String>::new());
    for path in ANSWERS {
        let answer = cluster.api().get_bytes(path).await;
        assert!(!answer.is_empty(), "{path}");
        assert!(!has_value(&answer) && !contains(&answer, PARAM), "{path}");
    }
    wait_until("the submission is in the audit log", async || {
        text(&cluster, "/api/audit").await.contains("/api/jobs/show")
    })
    .await;
    for path in ["/api/audit", "/audit"] {
        let answer = cluster.api().get_bytes(path).await;
        assert!(!has_value(&answer) && !contains(&answer, PARAM), "{path}");
    }
    assert!(!has_value(worker.log().as_bytes()));
    for log in ["server.log", "w1.log"] {
        let bytes = std::fs::read(cluster.path(log)).unwrap();
        assert!(!has_value(&bytes) && !contains(&bytes, PARAM), "{log}");
        // Libraries show bytes in hexadecimal: this is "planted".
        assert!(!contains(&bytes.to_ascii_lowercase(), "706c616e746564"), "{log}");
    }
    let definition: Value = cluster.api().get("/api/definitions/show").await;
    assert_eq!(definition["secrets"], serde_json::json!(["db_password", "key"]));
}

#[tokio::test]
async fn a_job_waits_for_its_missing_secret_and_says_so() {
    let (cluster, server, _worker) = start().await;
    const REASON: &str = "the server has no secret late: put a file with this name into --secrets-dir";
    assert!(server.log().contains(REASON), "{}", server.log());
    let accepted = cluster.api().post("/api/jobs/late", None).await;
    assert_eq!(accepted["warning"]["code"], "secrets_missing", "{accepted}");
    let reason = serde_json::json!({ "code": "secrets_missing", "text": REASON });
    cluster.api().wait_for_job(1, |job| job["pending_reason"] == reason).await;
    let explained = cluster.api().get("/api/jobs/1/explain").await;
    assert_eq!(explained["reason"], serde_json::json!({ "code": "secrets_missing", "text": REASON }));
    let definition = cluster.api().get("/api/definitions/late").await;
    assert_eq!(definition["missing_secret"], REASON);
    assert!(text(&cluster, "/").await.contains(&format!("jobs of late wait: {REASON}")));
    assert!(text(&cluster, "/readyz").await.contains("warning: secrets: 1 definition waits for secrets"));
    let (code, said) = cluster.run_cli(&["doctor", "--server", &cluster.address(), "--docker", "none"]);
    assert!(said.contains(&format!("jobs of late wait: {REASON}")), "{code} {said}");

    // It had no attempt: the first one gets the secret.
    put(&cluster, "late", "planted-late-11\n");
    cluster.api().wait_for_job(1, |job| job["state"] == "succeeded").await;
    wait_until("its output is there", async || text(&cluster, "/api/jobs/1/logs").await.contains("done"))
        .await;
    assert_eq!(text(&cluster, "/api/jobs/1/logs").await, format!("{}\ndone\n", "*".repeat(15)));
    let job = cluster.api().get("/api/jobs/1").await;
    assert_eq!(job["attempt_count"], 1, "{job}");
    wait_until("nothing is missing", async || !text(&cluster, "/readyz").await.contains("secrets:")).await;
}

/// The watch looks rarely while all secrets are there, so the session that cannot read one tells it.
#[tokio::test]
async fn a_secret_that_goes_holds_its_jobs_back_after_few_attempts() {
    let (cluster, _server, _worker) = start().await;
    put(&cluster, "late", "planted-late-11");
    cluster.api().post("/api/jobs/late", None).await;
    cluster.api().wait_for_job(1, |job| job["state"] == "succeeded").await;
    std::fs::remove_file(cluster.path("secrets").join("late")).unwrap();
    cluster.api().post("/api/jobs/late", None).await;
    let is_held_back = |job: &Value| job["pending_reason"]["code"] == "secrets_missing";
    cluster.api().wait_for_job(2, is_held_back).await;
    put(&cluster, "late", "planted-late-12");
    let job = cluster.api().wait_for_job(2, |job| job["state"] == "succeeded").await;
    // Without the report an attempt a second would come back until the next look at all secrets.
    assert!(job["attempt_count"].as_u64().unwrap() <= 4, "{job}");
}

/// With a real engine: a container that runs as another user, with a read-only root.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_gets_its_secrets_as_files_and_variables() {
    if !docker::is_required() {
        return;
    }
    const SEALED: &str = "planted-sealed-5be0";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "");
    let name = format!("sealed-{}", cluster.address().rsplit(':').next().unwrap());
    let jobs = format!(
        "version: 1
jobs:
  {name}:
    image: busybox
    user: 1000:1000
    read_only: true
    network: none
    pull_policy: never
    secrets: [sealed]
    environment: {{ SEALED: {{ secret: sealed }} }}
    command:
      - sh
      - -c
      - |
        [ \"$(cat /run/secrets/sealed)\" = \"$SEALED\" ] && echo alike
        cat /run/secrets/sealed; echo
        (echo x > /run/secrets/sealed) 2>/dev/null || echo read-only
"
    );
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    std::fs::create_dir(cluster.path("secrets")).unwrap();
    put(&cluster, "sealed", SEALED);
    let containers = docker::DefinitionContainers::new(&name);
    let secrets = cluster.path("secrets").display().to_string();
    let _server = cluster.start_server(&["--secrets-dir", &secrets]).await;
    // Named, because this machine may itself be a container in which the engine runs.
    let mut worker = cluster.start_worker("w1", &["--secrets-tmpfs", "/dev/shm"]);
    cluster.api().wait_for_ready_worker("w1").await;
    let job = cluster.api().post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    cluster.api().wait_for_job(job, |job| job["state"] == "succeeded").await;
    let expected = format!("alike\n{}\nread-only\n", "*".repeat(SEALED.len()));
    wait_until("its output is there", async || {
        text(&cluster, &format!("/api/jobs/{job}/logs")).await == expected
    })
    .await;
    wait_until("the container and the files are removed", async || {
        let in_memory = files_with(Path::new("/dev/shm"), &|bytes| contains(bytes, SEALED));
        containers.ids().is_empty() && in_memory.is_empty()
    })
    .await;
    worker.terminate().await;
    assert!(files_with(&cluster.path("data"), &|bytes| contains(bytes, SEALED)).is_empty());
}

const WORKER: [&str; 6] = ["--no-docker", "--allow-process", "--on-term", "detach", "--log", "trace"];
