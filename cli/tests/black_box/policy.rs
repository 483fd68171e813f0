//! The policy of the server (`--policy`), with real processes.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use serde_json::Value;
use testkit::{Cluster, http};

const JOBS: &str = "version: 1
jobs:
  hello: { image: 'busybox:1', network: none, timeout: 30m }
  online: { image: 'busybox:1', timeout: 30m }
";

const POLICY: &str = "version: 1
rules:
  - images: ['busybox:*']
  - roles: [submitter]
    networks: [none]
    max_timeout: 1h
";

/// A cluster with a policy, which is not started.
fn cluster() -> (Cluster, String) {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let policy = cluster.path("policy.yaml");
    std::fs::write(&policy, POLICY).unwrap();
    (cluster, policy.display().to_string())
}

#[tokio::test]
async fn a_rule_for_a_role_holds_for_each_way_to_make_a_job() {
    let (cluster, policy) = cluster();
    let _server = cluster.start_server(&["--require-tokens", "--policy", &policy]).await;
    let admin = cluster.admin_token();
    let submitter = cluster.make_token(&admin, "submitter", &["--role", "submitter"]);
    let refused = |words: &[&str], reason: &str| {
        let (code, text) = cluster.run_as(&submitter, words);
        assert!(code != 0 && text.contains(reason), "{words:?}: {code}: {text}");
    };
    let network = "network: bridge is not allowed (rule 2 of the server's policy)";
    refused(&["run", "online"], network);
    refused(&["run", "online", "--count", "3"], network);
    refused(&["run", "hello", "--timeout", "2h"], "timeout: 2h is above 1h");
    let (code, text) = cluster.run_as(&submitter, &["run", "hello", "--timeout", "1h"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = cluster.run_as(&admin, &["run", "online"]);
    assert_eq!(code, 0, "the rule is not for administrators: {text}");
    assert_eq!(cluster.run_as(&admin, &["cancel", "2"]).0, 0);
    refused(&["retry", "2"], network);
    let token = std::fs::read_to_string(&submitter).unwrap();
    let many = http::client().build().unwrap().post(format!("http://{}/api/jobs", cluster.address()));
    let many = many.header("content-type", "application/json").bearer_auth(token.trim());
    let answer = many.body(r#"[{"name":"hello"},{"name":"online"}]"#).send().await.unwrap();
    assert_eq!(answer.status(), 403);
    let problem: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(problem["code"], "forbidden_by_policy", "{problem}");
}

#[tokio::test]
async fn definitions_that_break_a_rule_are_not_loaded() {
    let (cluster, policy) = cluster();
    let server = cluster.start_server(&["--policy", &policy]).await;
    let address = cluster.address();
    let run = |words: &[&str]| cluster.run_cli(&[words, &["--server", &address]].concat());
    assert_eq!(run(&["run", "hello"]).0, 0);

    std::fs::write(
        cluster.path("jobs.yaml"),
        JOBS.replace("hello: { image: 'busybox:1'", "hello: { image: alpine"),
    )
    .unwrap();
    let (code, text) = run(&["reload"]);
    assert!(code != 0 && text.contains("image: alpine is not allowed (rule 1"), "{code}: {text}");
    let file = cluster.path("jobs.yaml").display().to_string();
    let (code, text) = run(&["plan", &file]);
    assert!(code != 0 && text.contains("image: alpine is not allowed (rule 1"), "{code}: {text}");
    let (code, text) = cluster.run_cli(&["validate", &file, "--policy", &policy]);
    assert!(
        code == 2 && text.contains("jobs.yaml:3:3") && text.contains("forbidden_by_policy"),
        "{code}: {text}"
    );

    // A new policy takes effect with a reload, also on the original revisions of jobs.
    std::fs::write(&policy, "rules: [{images: [alpine]}]").unwrap();
    std::fs::write(cluster.path("jobs.yaml"), "jobs: { hello: { image: alpine } }").unwrap();
    let (code, text) = run(&["reload"]);
    assert!(
        code == 0 && text.contains("changed: hello; ") && text.contains("; the policy has changed"),
        "{text}"
    );
    assert!(run(&["reload"]).1.contains("nothing has changed"), "the same rules");
    assert_eq!(run(&["cancel", "1"]).0, 0);
    let (code, text) = run(&["retry", "1", "--revision", "original"]);
    assert!(code != 0 && text.contains("image: busybox:1 is not allowed"), "{code}: {text}");
    assert_eq!(run(&["retry", "1"]).0, 0);

    std::fs::write(&policy, "rules: [{imagess: []}]").unwrap();
    let (code, text) = run(&["reload"]);
    assert!(code != 0 && text.contains("is not valid") && text.contains("imagess"), "{code}: {text}");
    assert!(!server.log().contains("panicked"), "{}", server.log());
    drop(server);
    let mut server = cluster.spawn_server(&["--policy", &policy]);
    assert_eq!(server.wait_for_exit().await.code(), Some(2), "{}", server.log());
    assert!(server.log().contains("the policy") && server.log().contains("imagess"), "{}", server.log());
}
