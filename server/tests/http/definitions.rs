//! Definitions as the API shows them.

use scheduler::job::State;

use crate::support::Server;

#[tokio::test]
async fn definitions_are_shown_without_their_values() {
    let server = Server::start().await;
    let list = server.get("/api/definitions").await;
    assert_eq!(list.json().as_array().unwrap().len(), 4);
    let one = server.get("/api/definitions/resize").await;
    assert_eq!(one.json()["image"], "resize:1");
    assert_eq!(one.json()["environment"], serde_json::json!(["PASSWORD"]));
    assert_eq!(one.json()["timeout_ms"], 3_600_000);
    let waiting = one.json()["waiting"].clone();
    assert_eq!(
        waiting[1],
        serde_json::json!({"code": "busy", "count": 3,
        "text": "all slots of the workers that could run it are taken"})
    );
    assert_eq!((&waiting[0]["code"], &waiting[0]["count"]), (&"pinned_worker_away".into(), &3.into()));
    assert!(!list.body.contains("hunter2") && !one.body.contains("hunter2"));
    server.get("/api/definitions/resise").await.is_problem(404, "unknown_job");
}

#[tokio::test]
async fn a_list_has_the_job_of_each_definition_that_ended_last_if_it_is_asked_for() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().end(1, State::Failed, 3);
    for (query, is_shown) in [("?last_ended=1", true), ("?last_ended=0", false), ("", false)] {
        let list = server.get(&format!("/api/definitions{query}")).await.json();
        let mut shown = 0;
        for definition in list.as_array().unwrap() {
            let one = server
                .get(&format!("/api/definitions/{}", definition["name"].as_str().unwrap()))
                .await
                .json();
            let expected = if is_shown { &one["last_ended"] } else { &serde_json::Value::Null };
            assert_eq!(&definition["last_ended"], expected, "{query}");
            shown += usize::from(!expected.is_null());
        }
        assert_eq!(shown > 0, is_shown, "{query}");
    }
    server.get("/api/definitions?last_ended=yes").await.is_problem(400, "invalid_query");
}

#[tokio::test]
async fn a_definition_is_shown_with_all_that_is_in_force() {
    let server = Server::start().await;
    let file = r#"
jobs:
  plain: { image: busybox }
  full:
    image: busybox
    tmpfs: ["/tmp:size=1m"]
    shm_size: 1g
    read_only: true
    cap_add: [NET_ADMIN]
    cap_drop: [ALL]
    init: false
    platform: linux/amd64
    labels: { team: web }
    pull_policy: always
    pull_timeout: 3m
    stop_signal: SIGINT
    retry: { max: 2, backoff: { factor: 1.5 } }
    lost_limit: 5
    lost_after: 2m
    on_lost: wait
    self_fence: true
    ping_interval: 2s
    on_lost_timeout: 3h
    queue_timeout: 4m
    quarantine_timeout: 5 days
    unexpected_retry_delay: 7s
    log: { max_bytes: 1m, mask: 'key=\w+' }
    input: { pages: [1, 2] }
    hostname: report
    extra_hosts: { db: host-gateway }
    dns: [10.0.0.2]
    dns_search: [example.org]
    ulimits: { nofile: { soft: 1024, hard: -1 } }
    group_add: [44]
"#;
    std::fs::write(&server.jobs_file, file).unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let full = serde_json::json!({
        "tmpfs": ["/tmp:size=1m"], "shm_bytes": 1 << 30, "read_only": true, "cap_add": ["NET_ADMIN"], "cap_drop": ["ALL"], "init": false,
        "platform": "linux/amd64", "labels": {"team": "web"}, "pull_policy": "always", "pull_timeout_ms": 180_000,
        "stop_signal": "SIGINT", "lost_limit": 5, "lost_after_ms": 120_000, "on_lost": "wait",
        "on_lost_timeout_ms": 10_800_000, "queue_timeout_ms": 240_000, "quarantine_timeout_ms": 432_000_000,
        "ping_interval_ms": 2_000, "unexpected_retry_delay_ms": 7_000, "log_max_bytes": 1 << 20,
        "log_mask": ["key=\\w+"], "input_bytes": 15, "hostname": "report", "extra_hosts": ["db:host-gateway"],
        "dns": ["10.0.0.2"], "dns_search": ["example.org"], "ulimits": {"nofile": {"soft": 1_024, "hard": -1}},
        "group_add": ["44"],
    });
    let usual = serde_json::json!({
        "tmpfs": null, "shm_bytes": null, "read_only": false, "cap_add": null, "cap_drop": null, "init": true,
        "platform": null, "labels": null, "pull_policy": "missing", "pull_timeout_ms": 900_000,
        "stop_signal": null, "lost_limit": 3, "lost_after_ms": 60_000, "on_lost": "retry", "self_fence_ms": null,
        "on_lost_timeout_ms": null, "queue_timeout_ms": null, "quarantine_timeout_ms": null,
        "ping_interval_ms": null, "unexpected_retry_delay_ms": null, "log_max_bytes": 64 << 20, "log_mask": null,
        "input_bytes": null, "hostname": null, "extra_hosts": null, "ulimits": null, "group_add": null,
    });
    for (name, expected, factor) in [("full", full, 1_500), ("plain", usual, 2_000)] {
        let shown = server.get(&format!("/api/definitions/{name}")).await.json();
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&shown[key], value, "{name}: {key}");
        }
        assert_eq!(shown["retry"]["backoff_factor_milli"], factor);
        assert_eq!(shown["self_fence_ms"].is_u64(), name == "full");
    }
}

#[tokio::test]
async fn definitions_are_found_by_their_tags() {
    let server = Server::start().await;
    let file = "jobs:\n  a: { image: x, tags: [report, nightly] }\n  b: { image: x, tags: report }\n  c: { image: x }\n";
    std::fs::write(&server.jobs_file, file).unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let names = async |query: &str| {
        let list = server.get(&format!("/api/definitions{query}")).await.json();
        list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["a", "b", "c"]);
    assert_eq!(names("?tag=report").await, ["a", "b"]);
    assert_eq!(names("?tag=nightly").await, ["a"]);
    assert_eq!(names("?tag=repor").await, Vec::<String>::new());
}
