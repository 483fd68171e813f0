//! Keys of jobs.yaml whose effect is seen only with a real worker.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use serde_json::json;
use testkit::{Cluster, docker, wait_until};

/// The output of a container with these keys, once its last line begins so; `None` without an engine.
async fn output_of_container(prefix: &str, keys: &str, last_line: &str) -> Option<String> {
    if !docker::is_required() {
        return None;
    }
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "");
    let name = format!("{prefix}-{}", cluster.address().rsplit(':').next().unwrap());
    let jobs = format!("jobs:\n  {name}:\n    image: busybox\n    pull_policy: never\n{keys}");
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    let containers = docker::DefinitionContainers::new(&name);
    let _server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("w1", &["--on-term", "detach"]);
    cluster.api().wait_for_ready_worker("w1").await;
    let job = cluster.api().post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
    cluster.api().wait_for_job(job, |job| job["state"] == "succeeded").await;
    let is_whole =
        async || output(&cluster, job).await.lines().last().is_some_and(|line| line.starts_with(last_line));
    wait_until("its output has come", is_whole).await;
    let shown = output(&cluster, job).await;
    wait_until("the container is removed", async || containers.ids().is_empty()).await;
    worker.terminate().await;
    Some(shown)
}

#[tokio::test]
async fn shm_size_is_the_size_of_the_shared_memory_of_the_container() {
    let keys = "    network: none\n    shm_size: 12m\n    command: [df, -k, /dev/shm]\n";
    let Some(shown) = output_of_container("shm", keys, "shm").await else { return };
    let size = shown.lines().last().and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(size, Some("12288"), "12 MiB in KiB: {shown}");
}

#[tokio::test]
async fn names_limits_and_groups_are_as_the_definition_says() {
    let keys = "    hostname: report
    extra_hosts: ['db:10.0.0.5', 'six=[fd00::5]', 'gate:host-gateway']
    dns: [10.0.0.2]
    dns_search: [example.org]
    ulimits: {nofile: {soft: 512, hard: 600}, nproc: 1000}
    group_add: [44, 1234]
    command: [sh, -c, 'hostname; cat /etc/hosts; cat /etc/resolv.conf; echo files $$(ulimit -Sn) $$(ulimit -Hn); echo core $$(ulimit -c); echo groups $$(id -G)']
";
    let Some(shown) = output_of_container("options", keys, "groups").await else { return };
    let lines: Vec<String> =
        shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "report",
        "10.0.0.5 db",
        "fd00::5 six",
        "nameserver 10.0.0.2",
        "search example.org",
        "files 512 600",
        "core 0",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line} is not in {shown}");
    }
    assert!(lines.iter().any(|it| it.ends_with(" gate")), "{shown}");
    let groups = lines.iter().find_map(|it| it.strip_prefix("groups ")).unwrap();
    assert!(["44", "1234"].iter().all(|group| groups.split(' ').any(|it| it == *group)), "{shown}");
}

/// The same job as a plain process and, with an engine, in a container. Key and script have no line breaks and no apostrophes.
struct BothRuntimes {
    cluster: Cluster,
    names: Vec<String>,
    containers: Option<docker::DefinitionContainers>,
}

impl BothRuntimes {
    fn new(key: &str, script: &str) -> Self {
        let job = |name: &str, what: &str| {
            format!("  {name}:\n    {what}\n    {key}\n    command: [sh, -c, '{script}']\n")
        };
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "");
        let mut jobs = format!("jobs:\n{}", job("plain", "runtime: process"));
        let mut names = vec!["plain".to_owned()];
        let mut containers = None;
        if docker::is_required() {
            let name = format!("contained-{}", cluster.address().rsplit(':').next().unwrap());
            jobs += &job(&name, "image: busybox\n    pull_policy: never\n    network: none");
            containers = Some(docker::DefinitionContainers::new(&name));
            names.push(name);
        }
        std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
        Self { cluster, names, containers }
    }

    async fn wait_until_removed(&self) {
        if let Some(containers) = &self.containers {
            wait_until("the containers are removed", async || containers.ids().is_empty()).await;
        }
    }
}

#[tokio::test]
async fn an_exit_code_of_success_exit_codes_is_a_success_and_stays_visible() {
    let both = BothRuntimes::new("success_exit_codes: [0, 24]", "exit $0");
    let cluster = &both.cluster;
    let _server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("w1", &["--allow-process"]);
    cluster.api().wait_for_ready_worker("w1").await;
    for name in &both.names {
        for (code, state) in [("24", "succeeded"), ("23", "failed"), ("0", "succeeded")] {
            let body = json!({ "args": [code] });
            let made = cluster.api().post(&format!("/api/jobs/{name}"), Some(&body)).await;
            let id = made["id"].as_u64().unwrap();
            let job = cluster.api().wait_for_job(id, |job| !job["ended_at"].is_null()).await;
            assert_eq!(
                (&job["state"], &job["outcome"], &job["exit_code"]),
                (&json!(state), &json!(state), &json!(code.parse::<i32>().unwrap())),
                "{job}"
            );
        }
    }
    let found = cluster.api().get("/api/jobs?exit_code=24&state=succeeded").await;
    assert_eq!(found[0]["exit_code"], 24, "{found}");
    let definition = cluster.api().get("/api/definitions/plain").await;
    assert_eq!(definition["success_exit_codes"], json!([24]));
    let (code, said) =
        cluster.run_cli(&["run", "plain", "--wait", "--server", &cluster.address(), "--", "24"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("succeeded, exit 24"), "{said}");
    both.wait_until_removed().await;
    worker.terminate().await;
}

#[tokio::test]
async fn a_job_is_told_its_definition_its_try_and_its_worker() {
    let script = "echo $LONGSHORE_DEFINITION $LONGSHORE_TRY $LONGSHORE_WORKER; test $LONGSHORE_TRY = 2";
    let key = "retry: { max: 1, backoff: { kind: fixed, initial: 10ms } }";
    let both = BothRuntimes::new(key, script);
    let cluster = &both.cluster;
    let _server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("dock-3", &["--allow-process"]);
    cluster.api().wait_for_ready_worker("dock-3").await;
    for name in &both.names {
        let job = cluster.api().post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap();
        let ended = cluster.api().wait_for_job(job, |job| !job["ended_at"].is_null()).await;
        assert_eq!((&ended["state"], &ended["attempt_count"]), (&json!("succeeded"), &json!(2)), "{ended}");
        wait_until("its last try is told its number", async || {
            output(cluster, job).await.contains(&format!("{name} 2 dock-3"))
        })
        .await;
    }
    both.wait_until_removed().await;
    worker.terminate().await;
}

#[tokio::test]
async fn what_fits_a_pattern_of_log_mask_does_not_leave_the_worker() {
    let jobs = r#"
jobs:
  telling:
    runtime: process
    log: { mask: ['key=\w+', '(?i)^secret .*$'] }
    command:
      - sh
      - -c
      - |
        echo 'user=anna key=planted1 done'
        echo 'Secret planted2'
        echo 'no secret here' >&2
        printf 'key=pla'; sleep 0.3; printf 'nted3 the end'
"#;
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let _server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--on-term", "detach"]);
    cluster.api().wait_for_ready_worker("w1").await;
    let job = cluster.api().post("/api/jobs/telling", None).await["id"].as_u64().unwrap();
    cluster.api().wait_for_job(job, |job| job["state"] == "succeeded").await;
    wait_until("its output is there, masked", async || {
        let output = output(&cluster, job).await;
        assert!(!output.contains("planted"), "{output}");
        let lines =
            ["user=anna ************ done", "***************", "no secret here", "************ the end"];
        lines.iter().all(|line| output.lines().any(|it| it == *line))
    })
    .await;
    worker.terminate().await;
}

#[tokio::test]
async fn a_job_gets_the_input_of_its_definition_unless_it_brings_its_own() {
    let jobs = r#"
jobs:
  counts:
    runtime: process
    input: { pages: [1, 2], name: "${HOME}" }
    command: [sh, -c, 'cat "$LONGSHORE_INPUT" > "$LONGSHORE_RESULT"']
"#;
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let _server = cluster.start_server(&[]).await;
    let mut worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--on-term", "detach"]);
    cluster.api().wait_for_ready_worker("w1").await;
    let home = std::env::var("HOME").unwrap_or_default();
    for (body, expected) in [
        (None, json!({"pages": [1, 2], "name": home})),
        (Some(json!({"input": [7]})), json!([7])),
        (Some(json!({"input": null})), json!(null)),
        (Some(json!({"args": ["more"]})), json!({"pages": [1, 2], "name": home})),
    ] {
        let job = cluster.api().post("/api/jobs/counts", body.as_ref()).await["id"].as_u64().unwrap();
        let job = cluster.api().wait_for_job(job, |job| job["state"] == "succeeded").await;
        assert_eq!(job["result"], expected, "{job}");
    }
    worker.terminate().await;
}

/// The output of a job as people get it.
async fn output(cluster: &Cluster, job: u64) -> String {
    String::from_utf8(cluster.api().get_bytes(&format!("/api/jobs/{job}/logs")).await).unwrap()
}
