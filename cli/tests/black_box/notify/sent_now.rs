//! Messages that are sent before their next try: their receiver works again, or somebody asks for it.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::smtp::{MailServer, Offer, Refusal};
use testkit::{Cluster, wait_until};

use super::receiver::{Received, Receiver};
use super::{ALLOW, jobs_file, notifications, run, start};

/// The answer of a receiver that wants nothing for an hour: longer than a test waits.
const AWAY: &str = "503 No\r\nretry-after: 3600";

/// The definition `nightly` and a definition `weekly` that always fails, with the same target.
fn two_definitions(receiver: &Receiver) -> String {
    let notify = format!("{{ webhook: 'http://127.0.0.1:{}/hook', on: failed }}", receiver.port);
    jobs_file(&notify)
        + &format!("  weekly:\n    runtime: process\n    command: [sh, -c, 'exit 4']\n    notify: {notify}\n")
}

async fn run_weekly(cluster: &Cluster) {
    let id = cluster.api().post("/api/jobs/weekly", None).await["id"].as_u64().unwrap();
    cluster.api().wait_for_job(id, |job| job["ended_at"].is_string()).await;
}

/// The message about a definition.
async fn message(cluster: &Cluster, definition: &str) -> Value {
    notifications(cluster).await.into_iter().find(|row| row["definition"] == definition).unwrap()
}

async fn wait_until_refused(cluster: &Cluster, definition: &str) {
    wait_until("the message was refused", async || message(cluster, definition).await["error"].is_string())
        .await;
}

async fn wait_until_delivered(cluster: &Cluster) {
    wait_until("all are delivered", async || {
        notifications(cluster).await.iter().all(|row| row["state"] == "delivered")
    })
    .await;
}

/// The definitions that the received messages are about.
fn definitions(received: &[Received]) -> Vec<String> {
    received.iter().map(|it| it.json()["data"]["definition"].as_str().unwrap().to_owned()).collect()
}

fn id(message: &Received) -> String {
    message.headers["webhook-id"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_is_taken_brings_the_messages_that_wait() {
    let receiver = Receiver::start(&[AWAY]).await;
    let (cluster, _server, _worker) = start(&two_definitions(&receiver), &ALLOW).await;
    run(&cluster, 3).await;
    wait_until_refused(&cluster, "nightly").await;
    // The receiver asked to be left alone: it does not get the message of another definition either.
    run_weekly(&cluster).await;
    let (nightly, weekly) = (message(&cluster, "nightly").await, message(&cluster, "weekly").await);
    assert_eq!((&weekly["tries"], &weekly["state"]), (&json!(0), &json!("waiting")), "{weekly}");
    assert!(weekly["due_at"].as_str() > nightly["tried_at"].as_str(), "{weekly}");
    let address = cluster.address();
    let (code, text) = cluster.run_cli(&["notify", "ls", "--server", &address]);
    assert!(code == 0 && text.contains("NEXT TRY") && text.matches("in 59m").count() == 2, "{code}: {text}");

    let (code, text) = cluster.run_cli(&["notify", "test", "weekly", "--server", &address]);
    assert_eq!(code, 0, "{text}");
    wait_until_delivered(&cluster).await;
    let received = receiver.received();
    assert_eq!(definitions(&received), ["nightly", "weekly", "weekly", "nightly"]);
    assert_eq!(received[1].json()["data"]["test"], true);
    assert_eq!(id(&received[0]), id(&received[3]));
    assert_eq!(message(&cluster, "nightly").await["tries"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_taken_brings_those_that_failed_before_it() {
    let receiver = Receiver::start(&[AWAY]).await;
    let (cluster, mut server, _worker) = start(&two_definitions(&receiver), &ALLOW).await;
    run(&cluster, 3).await;
    wait_until_refused(&cluster, "nightly").await;
    // A server that has just started knows of no receiver that it is away.
    server.terminate().await;
    let _server = cluster.start_server(&ALLOW).await;
    cluster.api().wait_for_ready_worker("only").await;
    run_weekly(&cluster).await;
    wait_until_delivered(&cluster).await;
    assert_eq!(definitions(&receiver.received()), ["nightly", "weekly", "nightly"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_on_request_until_it_is_delivered() {
    let receiver = Receiver::start(&[AWAY, "500 No", "500 No"]).await;
    let (cluster, _server, _worker) = start(&two_definitions(&receiver), &ALLOW).await;
    run(&cluster, 3).await;
    wait_until_refused(&cluster, "nightly").await;
    let address = cluster.address();
    let send = |ids: &[&str]| cluster.run_cli(&[&["notify", "send", "--server", &address], ids].concat());
    let (code, text) = send(&["1"]);
    assert!(
        code == 1 && text.contains("the target answered 500 Internal Server Error; next try in"),
        "{code}: {text}"
    );
    assert!(text.contains("1 message not taken"), "{text}");

    let form = async |path: &str, body: &'static str| {
        let client = testkit::http::client().build().unwrap();
        client.post(cluster.api().url(path)).body(body).send().await.unwrap().text().await.unwrap()
    };
    let shown = String::from_utf8_lossy(&cluster.api().get_bytes("/notifications").await).into_owned();
    assert!(
        shown.contains("action=\"/notifications/1/send\"") && shown.contains("Send all that wait"),
        "{shown}"
    );
    let page = form("/notifications/1/send", "").await;
    assert!(page.contains("not taken") && page.contains("the target answered 500"), "{page}");
    let page = form("/notifications/1/send", "").await;
    assert!(page.contains("took the message"), "{page}");
    let shown = String::from_utf8_lossy(&cluster.api().get_bytes("/notifications").await).into_owned();
    assert!(!shown.contains("/send\""), "{shown}");
    let received = receiver.received();
    assert!(
        received.len() == 4 && received.iter().all(|message| id(message) == id(&received[0])),
        "{received:?}"
    );
    assert_eq!(message(&cluster, "nightly").await["tries"], 4);

    let (code, text) = send(&["1"]);
    assert!(code == 5 && text.contains("notification 1 was delivered"), "{code}: {text}");
    let (code, text) = send(&["99", "1"]);
    assert!(
        code == 4 && text.contains("there is no notification 99") && text.contains("was delivered"),
        "{text}"
    );
    for (id, status, problem) in
        [("1", 409, "already_delivered"), ("99", 404, "unknown_notification"), ("x", 400, "invalid_id")]
    {
        let path = format!("/api/notifications/{id}/send");
        let answer = cluster.api().request(Method::POST, &path, None, None).await.unwrap();
        assert_eq!((answer.status, &answer["code"]), (status, &json!(problem)), "{answer}");
    }
    wait_until("the requests are audited", async || {
        let audit = cluster.api().get("/api/audit?path=/send").await.to_string();
        audit.contains("notification 1 (definition nightly, webhook 127.0.0.1:")
            && audit.contains("already_delivered")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_messages_are_sent_on_request() {
    let receiver = Receiver::start(&[AWAY]).await;
    let (cluster, _server, _worker) = start(&two_definitions(&receiver), &ALLOW).await;
    run(&cluster, 3).await;
    wait_until_refused(&cluster, "nightly").await;
    run_weekly(&cluster).await;
    let address = cluster.address();
    let send = |flags: &[&str]| {
        cluster.run_cli(&[&["notify", "send", "--all", "--server", &address], flags].concat())
    };
    let none = |text: &str| text.contains("0 messages are sent now");
    for flags in [&["--state", "failed"][..], &["--name", "other"]] {
        let (code, text) = send(flags);
        assert!(code == 0 && none(&text), "{code}: {text}");
    }
    let (code, text) = send(&["--state", "delivered"]);
    assert!(code == 2 && text.contains("a delivered notification is not sent again"), "{code}: {text}");
    let form = testkit::http::client().build().unwrap().post(cluster.api().url("/notifications/send"));
    let page = form.body("name=other&state=waiting").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("No message waits or was given up."), "{page}");
    let (code, text) = send(&[]);
    assert!(
        code == 0 && text.contains("2 messages are sent now: 2 waiting, 0 failed before"),
        "{code}: {text}"
    );
    wait_until_delivered(&cluster).await;
    assert_eq!(definitions(&receiver.received()), ["nightly", "weekly", "nightly"]);
    let (code, text) = send(&[]);
    assert!(code == 0 && none(&text), "{code}: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_was_given_up_is_sent_on_request() {
    let refusals = [Refusal::Answer("RCPT", "550 5.1.1 no such user")];
    let server = MailServer::start(Offer::default(), &refusals).await;
    let smtp = format!("smtp+plain://127.0.0.1:{}", server.port);
    let flags = ["--smtp", &smtp, "--smtp-from", "longshore@example.org"];
    let (cluster, _server, _worker) =
        start(&jobs_file("{ email: ops@example.org, on: failed }"), &flags).await;
    run(&cluster, 3).await;
    wait_until("it is given up", async || message(&cluster, "nightly").await["state"] == "failed").await;
    assert_eq!(cluster.api().post("/api/notifications/send?state=waiting", None).await["failed"], 0);
    let sent = cluster.api().post("/api/notifications/1/send", None).await;
    assert_eq!(
        (&sent["state"], &sent["tries"], &sent["error"]),
        (&json!("delivered"), &json!(2), &Value::Null),
        "{sent}"
    );
    assert_eq!(server.wait_for(1).await[0].to, "TO:<ops@example.org>");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_target_was_removed_is_not_sent() {
    let receiver = Receiver::start(&[AWAY]).await;
    let (cluster, _server, _worker) = start(&two_definitions(&receiver), &ALLOW).await;
    run(&cluster, 3).await;
    wait_until_refused(&cluster, "nightly").await;
    std::fs::write(cluster.path("jobs.yaml"), jobs_file("[]")).unwrap();
    let (code, text) = cluster.run_cli(&["reload", "--server", &cluster.address()]);
    assert_eq!(code, 0, "{text}");
    let answer = cluster.api().request(Method::POST, "/api/notifications/1/send", None, None).await.unwrap();
    assert_eq!((answer.status, &answer["code"]), (409, &json!("target_removed")), "{answer}");
    assert!(answer.to_string().contains("has no target webhook 127.0.0.1:"), "{answer}");
    let (code, text) = cluster.run_cli(&["notify", "send", "--all", "--server", &cluster.address()]);
    assert!(
        code == 0 && text.contains("1 message left out: jobs.yaml does not name the target"),
        "{code}: {text}"
    );
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_sends_messages_and_only_those_in_the_scope() {
    let receiver = Receiver::start(&[AWAY]).await;
    let notify = format!("{{ webhook: 'http://127.0.0.1:{}/hook', on: stale }}", receiver.port);
    let definition = |name| {
        format!("  {name}:\n    runtime: fake\n    expect: {{ success_within: 1s }}\n    notify: {notify}\n")
    };
    let jobs = format!("version: 1\njobs:\n{}{}", definition("mine"), definition("other"));
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), &jobs, &ALLOW).await;
    let viewer = cluster.make_token(&admin, "eyes", &["--role", "viewer"]);
    let operator = cluster.make_token(&admin, "oncall", &["--role", "operator", "--definitions", "mine"]);
    let rows = || -> Vec<Value> {
        let (_, text) = cluster.run_as(&admin, &["notify", "ls", "-o", "json"]);
        serde_json::from_str(&text).unwrap_or_default()
    };
    wait_until("both wait, and one was refused", async || {
        rows().len() == 2 && rows().iter().any(|row| row["error"].is_string())
    })
    .await;
    let of = |name: &str| rows().iter().find(|row| row["definition"] == name).unwrap()["id"].to_string();
    let (mine, other) = (of("mine"), of("other"));
    for (token, words, why) in [
        (&viewer, &["notify", "send", &mine][..], "this request needs the role operator"),
        (&viewer, &["notify", "send", "--all"], "this request needs the role operator"),
        (&operator, &["notify", "send", &other], "not for jobs of this definition"),
    ] {
        let (code, text) = cluster.run_as(token, words);
        assert!(code == 3 && text.contains(why), "{words:?}: {code}: {text}");
    }
    let (code, text) = cluster.run_as(&operator, &["notify", "send", "--all"]);
    assert!(code == 0 && text.contains("1 message is sent now"), "{code}: {text}");
    assert!(text.contains("1 message left out: the token is not for the definition"), "{text}");
    wait_until("it is delivered", async || {
        rows().iter().any(|row| row["definition"] == "mine" && row["state"] == "delivered")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_a_crash_broke_off_is_made_again_soon() {
    let receiver = Receiver::start(&["500 No"; 20]).await;
    let (cluster, mut server, _worker) = start(&two_definitions(&receiver), &ALLOW).await;
    run(&cluster, 3).await;
    wait_until_refused(&cluster, "nightly").await;
    // The wait after these tries is longer than this test waits for anything.
    while message(&cluster, "nightly").await["tries"].as_u64() < Some(7) {
        cluster.api().post("/api/notifications/1/send", None).await;
    }
    receiver.fall_silent();
    let before = receiver.received().len();
    let path = cluster.api().url("/api/notifications/1/send");
    let asked = tokio::spawn(async move { testkit::http::client().build().unwrap().post(path).send().await });
    receiver.wait_for(before + 1).await;
    server.kill();
    assert!(asked.await.unwrap().is_err(), "it waited for the answer of the receiver");
    let _server = cluster.start_server(&ALLOW).await;
    let received = receiver.wait_for(before + 2).await;
    assert!(received.iter().all(|message| id(message) == id(&received[0])), "{received:?}");
}
