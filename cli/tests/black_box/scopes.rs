//! Tokens of one server among each other, with real processes: scopes of operators, and idempotency keys.

use serde_json::Value;
use testkit::{Cluster, Process, bearer, http, wait_until};

const JOBS: &str = "version: 1
jobs: { hello: { runtime: fake }, other: { runtime: fake }, fixed: { runtime: fake, allow: [run_at] } }
";

/// A cluster whose server requires tokens, and the file of its first token.
async fn start() -> (Cluster, Process, String) {
    Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &[]).await
}

#[tokio::test]
async fn an_operator_of_some_definitions_changes_nothing_that_concerns_others() {
    let (cluster, _server, admin) = start().await;
    let some = cluster.make_token(&admin, "some", &["--role", "operator", "--definitions", "hel*"]);
    assert_eq!(cluster.run_as(&some, &["pause", "hello"]).0, 0);
    assert_eq!(cluster.run_as(&some, &["resume", "hello"]).0, 0);
    let outside = "the token is not for jobs of this definition";
    let more = "the token is for certain definitions only, and this acts on more than these";
    for (words, why) in [
        (&["pause", "other"][..], outside),
        (&["pause", "other", "--schedule", "nightly"], outside),
        (&["pause", "--all"], more),
        (&["pause", "--group", "db"], more),
        (&["pause", "--schedules"], more),
        (&["resume", "--all"], more),
        (&["reload"], more),
    ] {
        let (code, text) = cluster.run_as(&some, words);
        assert!(code == 3 && text.contains(why), "{words:?}: {code}: {text}");
    }
    let cordon = format!("http://{}/api/workers/1/cordon", cluster.address());
    let request = http::client().build().unwrap().post(cordon).header("authorization", bearer(&some));
    assert_eq!(request.send().await.unwrap().status(), 403);
    // The text is the same for a definition that exists and for one that does not.
    let refusals = ["other", "nosuch"].map(|name| cluster.run_as(&some, &["run", name]));
    let (code, text) = &refusals[0];
    let hint = "the token is for \"hel*\"; \"longshore whoami\" shows what it allows";
    assert!(*code == 3 && text.contains(outside) && text.contains(hint), "{code}: {text}");
    assert_eq!(refusals[0], refusals[1]);
    assert_eq!(cluster.run_as(&admin, &["run", "other"]).0, 0);
    let (code, text) = cluster.run_as(&some, &["run", "hello", "--after", "1:ended"]);
    assert!(code == 3 && text.contains(outside), "it would get the results of that job: {code}: {text}");
    for role in ["admin", "viewer"] {
        let words = ["token", "create", "more", "--role", role, "--definitions", "hello"];
        let (code, text) = cluster.run_as(&admin, &words);
        let expected = format!("a token with the role {role} is for all definitions");
        assert!(code != 0 && text.contains(&expected), "{text}");
    }
}

/// A script whose list came out empty does not get a token for everything.
#[tokio::test]
async fn a_token_for_an_empty_list_of_definitions_is_refused() {
    let (cluster, _server, admin) = start().await;
    let url = format!("http://{}/api/tokens", cluster.address());
    let client = http::client().build().unwrap();
    for list in ["[]", "null"] {
        let request = client.post(&url).header("authorization", bearer(&admin));
        let body = format!(r#"{{"name":"none","role":"submitter","definitions":{list}}}"#);
        let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{list}");
        assert_eq!(answer.json::<Value>().await.unwrap()["field"], "definitions", "{list}");
    }
}

#[tokio::test]
async fn a_submitter_changes_of_a_waiting_job_what_a_submission_may_set() {
    let (cluster, _server, admin) = start().await;
    let submitter = cluster.make_token(&admin, "one", &["--role", "submitter"]);
    assert_eq!(cluster.run_as(&submitter, &["run", "fixed"]).0, 0);
    let client = http::client().build().unwrap();
    let change = async |token: &str, body: &'static str| {
        let request = client.patch(format!("http://{}/api/jobs/1", cluster.address()));
        let request =
            request.header("authorization", bearer(token)).header("content-type", "application/json");
        let answer = request.body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, text) = change(&submitter, r#"{"priority":100}"#).await;
    assert!(status == 422 && text.contains("override_not_allowed"), "{status} {text}");
    assert_eq!(change(&submitter, r#"{"delay":"1h"}"#).await.0, 200);
    assert_eq!(change(&admin, r#"{"priority":100}"#).await.0, 200);
}

#[tokio::test]
async fn an_idempotency_key_belongs_to_the_token_that_sent_it() {
    let (cluster, _server, admin) = start().await;
    let one = cluster.make_token(&admin, "one", &["--role", "submitter"]);
    let other = cluster.make_token(&admin, "other", &["--role", "submitter"]);
    let client = http::client().build().unwrap();
    let submit = async |token: &str, name: &str| {
        let request = client.post(format!("http://{}/api/jobs/{name}", cluster.address()));
        let request = request.header("authorization", bearer(token)).header("idempotency-key", "deploy-1");
        let answer = request.send().await.unwrap();
        let is_replay = answer.headers().contains_key("idempotent-replay");
        let job: Value = answer.json().await.unwrap();
        (job["id"].as_u64(), is_replay)
    };
    assert_eq!(submit(&one, "hello").await, (Some(1), false));
    assert_eq!(submit(&other, "hello").await, (Some(2), false), "the same request of another one");
    assert_eq!(submit(&admin, "other").await, (Some(3), false), "another request of another one");
    assert_eq!(submit(&one, "hello").await, (Some(1), true));
    assert_eq!(submit(&other, "hello").await, (Some(2), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_ends_with_the_revocation_of_its_token() {
    let (cluster, _server, admin) = start().await;
    let reader = cluster.make_token(&admin, "reader", &["--role", "viewer"]);
    assert_eq!(cluster.run_as(&admin, &["run", "hello"]).0, 0);
    let client = http::client().build().unwrap();
    let url = |path: &str| format!("http://{}{path}", cluster.address());
    let waiting = client.get(url("/api/jobs/1?wait=5m")).header("authorization", bearer(&reader));
    let waiting = tokio::spawn(waiting.send());
    wait_until("the request was admitted", async || {
        let tokens =
            client.get(url("/api/tokens")).header("authorization", bearer(&admin)).send().await.unwrap();
        let tokens: Value = tokens.json().await.unwrap();
        let mut tokens = tokens.as_array().unwrap().iter();
        tokens.any(|token| token["name"] == "reader" && token["last_used_at"].is_string())
    })
    .await;
    assert_eq!(cluster.run_as(&admin, &["token", "revoke", "reader"]).0, 0);
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.status(), 401);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["code"], "invalid_token", "it was admitted before: {problem}");
}

/// The definitions may come later, so it is no error; and mistypes are common.
#[tokio::test]
async fn a_token_for_definitions_that_are_not_there_is_made_with_a_warning() {
    let (cluster, _server, admin) = start().await;
    let create = |name: &str, definitions: &str, more: &[&str]| {
        let words = ["token", "create", name, "--role", "submitter", "--definitions", definitions];
        cluster.run_as(&admin, &[&words, more].concat())
    };
    let (code, text) = create("one", "helo,other,nightly-*", &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("warning: no definition fits \"helo\" now; did you mean \"hello\"?"), "{text}");
    assert!(text.contains("warning: no definition fits \"nightly-*\" now\n"), "{text}");
    assert!(!text.contains("\"other\"") && text.contains("longshore_"), "{text}");
    let file = cluster.path("two.token").display().to_string();
    let (code, text) = create("two", "nightly-*", &["--save", &file]);
    assert!(code == 0 && text.contains("warning: no definition fits"), "{text}");
    let (code, text) = create("three", "hel*", &["-o", "json"]);
    assert!(code == 0 && !text.contains("warning"), "{text}");
}

/// A token for some definitions cancels a batch as a whole if all members are of these, and else those that it may act on.
#[tokio::test]
async fn a_limited_token_cancels_of_a_batch_what_it_may_act_on() {
    let (cluster, _server, admin) = start().await;
    let some = cluster.make_token(&admin, "some", &["--role", "operator", "--definitions", "hel*"]);
    assert_eq!(cluster.run_as(&admin, &["run", "hello", "--count", "3"]).0, 0);
    let list = cluster.path("list.json");
    std::fs::write(&list, r#"[{"name":"hello"},{"name":"other"}]"#).unwrap();
    assert_eq!(cluster.run_as(&admin, &["submit", list.to_str().unwrap()]).0, 0);
    let (code, text) = cluster.run_as(&some, &["batch", "1", "cancel", "-y"]);
    assert_eq!((code, text.as_str()), (0, "batch 1: 3 jobs are cancelled\n"));
    let (code, text) = cluster.run_as(&some, &["batch", "4", "cancel", "-y"]);
    assert!(code == 5 && text.contains("batch 4: 1 job is cancelled"), "{code}: {text}");
    let shown = |batch: &str| {
        let (_, text) = cluster.run_as(&admin, &["batch", batch, "-o", "json"]);
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let (whole, part) = (shown("1"), shown("4"));
    assert!(whole["cancelled_by"].as_str().unwrap().ends_with(" token some"), "{whole}");
    assert_eq!((&part["counts"]["queued"], part.get("cancelled_by")), (&1.into(), None), "{part}");
}

#[tokio::test]
async fn a_limited_token_replaces_no_batch_that_it_may_not_cancel() {
    let (cluster, _server, admin) = start().await;
    let some = cluster.make_token(&admin, "some", &["--role", "submitter", "--definitions", "hello"]);
    let push = |token: &str, name: &str| {
        let flags = ["--count", "2", "--batch-unique-key", "main", "--on-duplicate", "replace"];
        cluster.run_as(token, &[&["run", name][..], &flags].concat())
    };
    let (code, text) = push(&some, "hello");
    assert_eq!(code, 0, "{text}");
    let (code, text) = push(&some, "hello");
    assert!(code == 0 && text.contains("batch 1 is being cancelled, because batch 3 replaces it"), "{text}");
    let (code, text) = push(&admin, "other");
    assert!(code == 0 && text.contains("because batch 5 replaces it"), "{code}: {text}");
    let (code, text) = push(&some, "hello");
    assert!(code == 3 && text.contains("would cancel batch 5"), "{code}: {text}");
    let (code, text) = cluster.run_as(&admin, &["batch", "5"]);
    assert!(code == 0 && text.contains("waiting") && !text.contains("replaced by"), "{text}");
    // Nothing was made, and the key is where it was. To be told of the batch is no cancel.
    let (code, text) = cluster.run_as(&some, &["run", "hello", "--count", "2", "--batch-unique-key", "main"]);
    assert!(code == 0 && text.contains("batch 5 has the unique key"), "{code}: {text}");
    let (code, text) = cluster.run_as(&admin, &["batches", "--unique-key", "main", "-q"]);
    assert_eq!((code, text.trim()), (0, "5\n3\n1"), "{text}");
}
