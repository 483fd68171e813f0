//! Notifications by the real program, to real receivers: signed, grouped, sent again, and not lost by a crash.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

mod batches;
mod hanging;
mod mail;
mod output_lines;
mod receiver;
mod sent_now;

use std::process::Command;

use receiver::{Received, Receiver};
use serde_json::{Value, json};
use testkit::{Cluster, Process, wait_until};
use tokio::net::TcpListener;

const SECRET: &str = "whsec_cGxhbnRlZC1zZWNyZXQtb2YtdGhlLXRlc3Q0Nzg5";
const ALLOW: [&str; 2] = ["--allow-webhook", "127.0.0.0/8"];

/// A definition `nightly` that exits with its parameter, and these targets.
fn jobs_file(notify: &str) -> String {
    format!(
        "version: 1\njobs:\n  nightly:\n    runtime: process\n    params: {{ code: {{ type: integer, default: 3 }} }}\n    \
         command: [sh, -c, 'exit $PARAM_CODE']\n    notify: {notify}\n"
    )
}

/// A cluster with this jobs file, its server, and a worker.
async fn start(jobs: &str, flags: &[&str]) -> (Cluster, Process, Process) {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let server = cluster.start_server(flags).await;
    let worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    cluster.api().wait_for_ready_worker("only").await;
    (cluster, server, worker)
}

/// Runs a job with this exit code to its end, and returns its id.
async fn run(cluster: &Cluster, code: u8) -> u64 {
    let body = json!({ "params": { "code": code } });
    let id = cluster.api().post("/api/jobs/nightly", Some(&body)).await["id"].as_u64().unwrap();
    cluster.api().wait_for_job(id, |job| job["ended_at"].is_string()).await;
    id
}

async fn notifications(cluster: &Cluster) -> Vec<Value> {
    cluster.api().get("/api/notifications").await.as_array().unwrap().clone()
}

/// Checks a signature as `docs/notifications.md` says, by another program than ours.
fn is_signed(message: &Received) -> bool {
    let program = "import base64,hashlib,hmac,sys
key=base64.b64decode(sys.argv[1].removeprefix('whsec_'))
print('v1,'+base64.b64encode(hmac.new(key,sys.argv[2].encode(),hashlib.sha256).digest()).decode())";
    let (id, at) = (&message.headers["webhook-id"], &message.headers["webhook-timestamp"]);
    let signed = format!("{id}.{at}.{}", message.body);
    let output = Command::new("python3").args(["-c", program, SECRET, &signed]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim() == message.headers["webhook-signature"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_the_recovery_are_sent_signed_with_a_link() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!(
        "[{{ webhook: 'http://127.0.0.1:{0}/hook', secret: {SECRET} }}, {{ slack: 'http://127.0.0.1:{0}/slack', on: failed }}, \
         {{ slack: 'http://127.0.0.1:{0}/discord', format: discord, on: failed }}]",
        receiver.port
    )) + "    owner: finance\n    tags: [money, nightly]\n";
    let flags = [ALLOW[0], ALLOW[1], "--public-url", "https://jobs.example/"];
    let (cluster, _server, _worker) = start(&jobs, &flags).await;
    let failed = run(&cluster, 3).await;
    let received = receiver.wait_for(3).await;
    let of = |path: &str| received.iter().find(|message| message.path == path).unwrap();
    let (hook, slack) = (of("/hook"), of("/slack"));
    assert!(is_signed(hook), "{hook:?}");
    let body = hook.json();
    assert_eq!(body["type"], "definition.failed", "{body}");
    assert_eq!(body["data"]["job"]["id"], failed, "{body}");
    assert_eq!(body["data"]["job"]["exit_code"], 3, "{body}");
    assert_eq!(body["data"]["url"], format!("https://jobs.example/jobs/{failed}"), "{body}");
    assert_eq!(
        (&body["data"]["owner"], &body["data"]["tags"]),
        (&json!("finance"), &json!(["money", "nightly"]))
    );
    let job = &body["data"]["job"];
    assert_eq!((&job["worker"]["name"], &job["outcome"]), (&json!("only"), &json!("failed")), "{body}");
    assert!(job["ran_ms"].is_u64() && job["started_at"].is_string() && job["schedule"].is_null(), "{body}");
    let text = slack.json()["text"].as_str().unwrap().to_owned();
    let lines: Vec<&str> = text.lines().collect();
    let [fact, details, link] = lines[..] else { panic!("{text}") };
    assert_eq!(fact, format!("nightly failed: exit 3 (job {failed})"));
    assert!(details.starts_with("ran ") && details.ends_with("s on only, owner finance"), "{details}");
    assert_eq!(link, format!("<https://jobs.example/jobs/{failed}>"));
    assert!(!slack.headers.contains_key("webhook-id"));
    let content = format!("nightly failed: exit 3 \\(job {failed}\\)\n{details}\n{link}");
    let expected = json!({ "content": content, "allowed_mentions": { "parse": [] } });
    assert_eq!(of("/discord").json(), expected);

    let succeeded = run(&cluster, 0).await;
    let received = receiver.wait_for(4).await;
    let recovered = received[3].json();
    assert_eq!(recovered["type"], "definition.recovered", "{recovered}");
    assert_eq!(recovered["data"]["job"]["id"], succeeded, "{recovered}");
    wait_until("all are delivered", async || {
        notifications(&cluster).await.iter().all(|row| row["state"] == "delivered")
    })
    .await;
    // A further success is nothing new.
    run(&cluster, 0).await;
    assert_eq!(notifications(&cluster).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_was_refused_is_sent_again_with_the_same_id() {
    let receiver = Receiver::start(&["500 No", "302 Found"]).await;
    let jobs = jobs_file(&format!("{{ webhook: 'http://127.0.0.1:{}/hook' }}", receiver.port));
    let (cluster, _server, _worker) = start(&jobs, &ALLOW).await;
    run(&cluster, 3).await;
    wait_until("the first answer is shown", async || {
        notifications(&cluster).await[0]["error"] == "the target answered 500 Internal Server Error"
    })
    .await;
    wait_until("the redirect is shown", async || {
        let error = notifications(&cluster).await[0]["error"].to_string();
        error.contains("302 Found, a redirect, which is not followed")
    })
    .await;
    let received = receiver.wait_for(3).await;
    assert!(received.iter().all(|message| message.path == "/hook"), "no redirect is followed: {received:?}");
    let id = |message: &Received| message.headers["webhook-id"].clone();
    assert_eq!((id(&received[0]), id(&received[1])), (id(&received[1]), id(&received[2])));
    wait_until("it is delivered", async || {
        let row = &notifications(&cluster).await[0];
        row["state"] == "delivered" && row["tries"] == 3 && row["error"].is_null()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_outlives_a_crash_of_the_server() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let jobs = jobs_file(&format!("{{ webhook: 'http://127.0.0.1:{port}/hook' }}"));
    let (cluster, mut server, _worker) = start(&jobs, &ALLOW).await;
    let failed = run(&cluster, 3).await;
    wait_until("nobody listens there", async || notifications(&cluster).await[0]["error"].is_string()).await;
    server.kill();
    let receiver = Receiver::serve(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), &[]);
    let _server = cluster.start_server(&ALLOW).await;
    let received = receiver.wait_for(1).await;
    assert_eq!(received[0].json()["data"]["job"]["id"], failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_within_a_period_become_one_message_with_a_count() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!(
        "{{ webhook: 'http://127.0.0.1:{}/hook', on: [failed], period: 5s }}",
        receiver.port
    ));
    let (cluster, _server, _worker) = start(&jobs, &ALLOW).await;
    run(&cluster, 3).await;
    receiver.wait_for(1).await;
    let mut last = 0;
    for _ in 0..4 {
        last = run(&cluster, 4).await;
    }
    let count = |message: &Received| message.json()["data"]["count"].as_u64().unwrap();
    let counted = testkit::wait_for("all five are counted", async || {
        let received = receiver.received();
        (received.iter().map(count).sum::<u64>() == 5).then_some(received)
    })
    .await;
    assert!(counted.len() < 5, "fewer messages than failures: {counted:?}");
    let newest = counted.last().unwrap().json();
    assert_eq!(newest["data"]["job"]["id"], last, "{newest}");
    assert!(newest["data"]["text"].as_str().unwrap().contains(" times since "), "{newest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_definition_sends_a_webhook() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!("{{ webhook: 'http://127.0.0.1:{}/hook', on: stale }}", receiver.port))
        + "    expect: { success_within: 1s }\n";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), &jobs);
    let _server = cluster.start_server(&ALLOW).await;
    let received = receiver.wait_for(1).await;
    let body = received[0].json();
    assert_eq!(body["type"], "definition.stale", "{body}");
    assert!(body["data"]["job"].is_null(), "{body}");
    assert_eq!(body["data"]["expected"], json!({ "success_within_ms": 1_000 }), "{body}");
    assert_eq!(body["data"]["text"], "nightly is stale: no job has succeeded for longer than 1s", "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_about_a_job_of_a_schedule_has_its_slot() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!("{{ webhook: 'http://127.0.0.1:{}/hook', on: failed }}", receiver.port))
        + "    schedule: { id: often, every: 500ms }\n";
    let (_cluster, _server, _worker) = start(&jobs, &ALLOW).await;
    let received = receiver.wait_for(1).await;
    let job = received[0].json()["data"]["job"].clone();
    assert_eq!(job["schedule"], "often", "{job}");
    assert!(
        job["scheduled_at"].as_str() <= job["accepted_at"].as_str() && job["scheduled_at"].is_string(),
        "{job}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn inner_addresses_are_refused_and_urls_are_shown_nowhere() {
    let receiver = Receiver::start(&[]).await;
    let jobs = jobs_file(&format!(
        "{{ webhook: 'http://localhost:{}/planted-url', secret: {SECRET} }}",
        receiver.port
    ));
    let (cluster, mut server, _worker) = start(&jobs, &[]).await;
    let address = cluster.address();
    let (code, text) = cluster.run_cli(&["notify", "test", "nightly", "--server", &address]);
    assert!(code == 1 && text.contains("is not a public address; --allow-webhook"), "{code}: {text}");
    run(&cluster, 3).await;
    wait_until("the try is recorded", async || notifications(&cluster).await[0]["error"].is_string()).await;
    let (code, listed) = cluster.run_cli(&["notify", "ls", "--state", "waiting", "--server", &address]);
    assert!(code == 0 && listed.contains("webhook localhost:"), "{code}: {listed}");
    assert!(receiver.received().is_empty(), "nothing was sent");
    let mut shown = format!("{text}{listed}");
    for path in ["/api/notifications", "/api/definitions/nightly", "/api/definitions", "/definitions/nightly"]
    {
        shown.push_str(&String::from_utf8_lossy(&cluster.api().get_bytes(path).await));
    }
    server.terminate().await;
    shown.push_str(&server.log());
    for entry in std::fs::read_dir(cluster.path("data")).unwrap() {
        let path = entry.unwrap().path();
        // The copy of jobs.yaml has what that file has; it is for the server's user alone.
        if path.is_file() && !path.ends_with("accepted-jobs.json") {
            shown.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
        }
    }
    assert!(shown.contains("nightly") && !shown.contains("planted-url") && !shown.contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_names_a_target_that_fails_until_it_takes_a_message() {
    let receiver = Receiver::start(&["404 Gone"]).await;
    let jobs = jobs_file(&format!("{{ webhook: 'http://127.0.0.1:{}/planted-url' }}", receiver.port));
    let (cluster, _server, _worker) = start(&jobs, &ALLOW).await;
    let page = async |path: &str| String::from_utf8_lossy(&cluster.api().get_bytes(path).await).into_owned();
    let empty = page("/notifications").await;
    assert!(empty.contains("No message fits.") && !empty.contains("Failing targets"), "{empty}");
    run(&cluster, 3).await;
    wait_until("the target fails", async || {
        let failing = cluster.api().get("/api/notifications?failing=1").await;
        failing[0]["error"] == "the target answered 404 Not Found"
    })
    .await;
    let shown = page("/notifications").await;
    let (failing, messages) = (shown.find("Failing targets"), shown.find("<h2>Messages"));
    assert!(failing.is_some() && failing < messages, "{shown}");
    assert!(shown.contains("the target answered 404 Not Found") && !shown.contains("planted-url"), "{shown}");
    let overview = page("/").await;
    assert!(
        overview.contains("<a href=\"/notifications\">notifications to webhook 127.0.0.1:"),
        "{overview}"
    );
    wait_until("a later try is taken", async || {
        let failing = cluster.api().get("/api/notifications?failing=1").await;
        failing.as_array().unwrap().is_empty()
    })
    .await;
    let shown = page("/notifications?state=delivered").await;
    assert!(shown.contains("delivered") && !shown.contains("Failing targets"), "{shown}");
    assert!(!page("/").await.contains("notifications to webhook"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_says_which_targets_took_the_message() {
    let (good, bad) = (Receiver::start(&[]).await, Receiver::start(&["404 Gone", "404 Gone"]).await);
    let jobs = jobs_file(&format!(
        "[{{ slack: 'http://127.0.0.1:{}/a' }}, {{ webhook: 'http://127.0.0.1:{}/b' }}]",
        good.port, bad.port
    ));
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), &jobs);
    let _server = cluster.start_server(&ALLOW).await;
    let (code, text) = cluster.run_cli(&["notify", "test", "nightly", "--server", &cluster.address()]);
    assert!(code == 1 && text.contains("took the message"), "{code}: {text}");
    assert!(text.contains("the target answered 404") && text.contains("1 of 2 targets"), "{text}");
    assert_eq!(good.received()[0].json()["text"].as_str().unwrap(), "Test: nightly failed");
    assert_eq!(bad.received()[0].json()["data"]["test"], true);

    // The form of the dashboard does the same.
    let form = testkit::http::client().build().unwrap().post(cluster.api().url("/notifications/test"));
    let page = form.body("definition=nightly").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("took the message") && page.contains("the target answered 404"), "{page}");
    assert_eq!((good.received().len(), bad.received().len()), (2, 2));
    let page = String::from_utf8_lossy(&cluster.api().get_bytes("/notifications").await).into_owned();
    assert!(page.contains("No message fits.") && !page.contains("Failing targets"), "{page}");
}
