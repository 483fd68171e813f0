//! Pauses of jobs with real processes: of a definition, of a group, and of the whole server.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its cluster fails")]

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Cluster, wait_until};

use crate::running::Running;

const JOBS: &str = "version: 1
jobs:
  plain: { runtime: process, command: ['true'] }
  other: { runtime: process, command: ['true'] }
  backup: { runtime: process, command: ['true'], concurrency: { limit: 1, group: db } }
  vacuum: { runtime: process, command: ['true'], concurrency: { limit: 1, group: db } }
  long: { runtime: process, command: [sleep, '60'] }
";

impl Running {
    async fn submit(&self, name: &str) -> (u64, Value) {
        let job = self.api.post(&format!("/api/jobs/{name}"), None).await;
        (job["id"].as_u64().unwrap(), job)
    }

    /// Submits a job, and waits until it has succeeded.
    async fn run_to_success(&self, name: &str) {
        let (id, _) = self.submit(name).await;
        self.api.wait_for_job(id, |job| job["state"] == "succeeded").await;
    }

    /// The status and the problem code of the answer.
    async fn post_for_status(&self, path: &str) -> (u16, Value) {
        let answer = self.api.request(Method::POST, path, None, None).await.unwrap();
        (answer.status, answer.body["code"].clone())
    }

    /// Waits until the job waits for the end of a pause.
    async fn wait_until_paused(&self, id: u64) {
        let job = self.api.wait_for_job(id, |job| job["pending_reason"]["code"] == "paused").await;
        assert_eq!(job["state"], "queued", "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_paused_definition_wait_until_it_is_resumed_also_over_a_restart() {
    let mut running = Running::start(JOBS).await;
    let paused = running.run_cli(&["pause", "plain"]);
    assert_eq!((paused.code, paused.out.as_str()), (0, "plain paused\n"), "{paused:?}");
    let (first, job) = running.submit("plain").await;
    assert_eq!(job["warning"]["code"], "paused", "{job}");
    let warned = running.run_cli(&["run", "plain", "--require-worker"]);
    assert!(
        warned.code == 6
            && warned.err.contains("the definition plain is paused since 20")
            && warned.err.contains("leave --require-worker out"),
        "{warned:?}"
    );
    running.run_to_success("other").await;
    running.wait_until_paused(first).await;
    for words in [&["show", &first.to_string()][..], &["ls", "-o", "wide"]] {
        let shown = running.run_cli(words);
        assert!(shown.out.contains("the definition plain is paused since 20"), "{shown:?}");
    }

    let shown = running.api.get("/api/definitions/plain").await;
    assert_eq!(
        (&shown["pauses"][0]["of"], &shown["waiting"][0]["count"]),
        (&json!("definition"), &json!(1)),
        "{shown}"
    );
    assert_eq!(shown["waiting"][0]["code"], "paused", "{shown}");
    assert_eq!(running.api.get("/api/definitions/other").await["pauses"], Value::Null);
    let table = running.run_cli(&["definitions"]);
    assert!(table.out.contains("plain (paused)"), "{table:?}");
    let why = running.run_cli(&["explain", &first.to_string()]);
    assert!(why.out.contains("the definition plain is paused since 20"), "{why:?}");
    let events = running.api.get_bytes("/api/events?follow=0&tail=9&kind=definition.paused").await;
    let events = String::from_utf8(events).unwrap();
    assert!(events.contains(r#""pause":{"of":"definition","name":"plain","since":"#), "{events}");

    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;
    let (second, _) = running.submit("plain").await;
    running.run_to_success("other").await;
    running.wait_until_paused(first).await;
    running.wait_until_paused(second).await;
    let resumed = running.run_cli(&["resume", "plain"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (0, "plain resumed\n"), "{resumed:?}");
    for id in [first, second] {
        running.api.wait_for_job(id, |job| job["state"] == "succeeded").await;
    }
    assert_eq!(running.api.get("/api/pauses").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_and_the_whole_server_can_be_paused() {
    let running = Running::start(JOBS).await;
    assert_eq!(running.run_cli(&["pause", "--group", "db"]).out, "group db paused\n");
    let (backup, _) = running.submit("backup").await;
    let (vacuum, _) = running.submit("vacuum").await;
    running.run_to_success("other").await;
    running.wait_until_paused(backup).await;
    running.wait_until_paused(vacuum).await;
    assert_eq!(running.run_cli(&["pause", "--all"]).code, 0);
    let (other, _) = running.submit("other").await;
    running.wait_until_paused(other).await;
    let pauses = running.api.get("/api/pauses").await;
    let of: Vec<&Value> = pauses.as_array().unwrap().iter().map(|pause| &pause["of"]).collect();
    assert_eq!(of, ["server", "group"], "{pauses}");

    let still = running.run_cli(&["resume", "backup"]);
    assert!(still.code == 0 && still.err.contains("backup still waits: the group db is paused"), "{still:?}");
    assert_eq!(running.run_cli(&["resume", "--all"]).code, 0);
    running.api.wait_for_job(other, |job| job["state"] == "succeeded").await;
    running.wait_until_paused(backup).await;
    assert_eq!(running.run_cli(&["resume", "--group", "db"]).code, 0);
    for id in [backup, vacuum] {
        running.api.wait_for_job(id, |job| job["state"] == "succeeded").await;
    }

    assert_eq!(running.run_cli(&["pause", "--schedules"]).code, 0);
    running.run_to_success("plain").await;
    for (path, expected) in [
        ("/api/pause?group=bd", (404, json!("unknown_group"))),
        ("/api/resume?group=x", (404, json!("unknown_group"))),
        ("/api/definitions/plan1/pause", (404, json!("unknown_job"))),
        ("/api/pause?name=plain", (400, json!("invalid_query"))),
        ("/api/resume", (204, Value::Null)),
    ] {
        assert_eq!(running.post_for_status(path).await, expected, "{path}");
    }
    let unknown = running.run_cli(&["pause", "--group", "bd"]);
    assert!(unknown.code == 4 && unknown.err.contains("unknown_group"), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_with_an_end_ends_by_itself() {
    let running = Running::start(JOBS).await;
    let paused = running.run_cli(&["pause", "plain", "--for", "1h", "--reason", "db upgrade"]);
    assert_eq!((paused.code, paused.out.as_str()), (0, "plain paused for 1h\n"), "{paused:?}");
    let (job, _) = running.submit("plain").await;
    running.wait_until_paused(job).await;
    let first = running.api.get("/api/pauses").await[0].clone();
    let until = first["until"].as_str().unwrap().to_owned();
    let table = running.run_cli(&["definitions"]);
    assert!(table.out.contains(&format!("plain (paused until {until})")), "{table:?}");
    let why = running.run_cli(&["explain", &job.to_string()]);
    assert!(why.out.contains(&format!(" until {until}: db upgrade")), "{why:?}");
    let page = running.api.get_bytes("/definitions/plain").await;
    assert!(String::from_utf8_lossy(&page).contains(&until), "the page of the definition tells the end");
    let attention = String::from_utf8(running.api.get_bytes("/").await).unwrap();
    assert!(attention.contains(&format!("is paused until {until}: db upgrade")), "{attention}");

    // Another pause replaces the end and the reason; the beginning stays.
    let again = running.run_cli(&["pause", "plain", "--for", "2h"]);
    assert_eq!(again.out, "plain paused for 2h\n");
    let since = first["since"].as_str().unwrap();
    let replaced =
        format!("plain was paused since {since} until {until}: db upgrade; the new pause replaces that\n");
    assert_eq!(again.err, replaced);
    let second = running.api.get("/api/pauses").await[0].clone();
    assert!(second["until"].as_str() > Some(&until), "{second}");
    assert_eq!((&second["since"], &second["reason"]), (&first["since"], &Value::Null), "{second}");
    assert_eq!(running.run_cli(&["pause", "plain"]).out, "plain paused\n");
    let unended = running.run_cli(&["pause", "plain", "--reason", " swap "]);
    let replaced = format!("plain was paused since {since} without an end; the new pause replaces that\n");
    assert_eq!(unended.err, replaced);
    assert_eq!(running.api.get("/api/pauses").await[0]["reason"], "swap", "without the blanks");
    assert_eq!(running.run_cli(&["pause", "plain"]).out, "plain paused\n");
    assert_eq!(running.api.get("/api/pauses").await[0]["until"], Value::Null, "none replaces it as well");
    assert_eq!(running.run_cli(&["pause", "plain"]).out, "plain was paused already\n");

    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2)).to_string();
    let last = running.run_cli(&["pause", "plain", "--until", &soon]);
    assert_eq!(last.out, format!("plain paused until {soon}\n"), "{last:?}");
    running.api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(running.api.get("/api/pauses").await, json!([]));
    let events = running.run_cli(&["events", "--kind", "definition.resumed"]);
    assert!(events.out.contains("plain: its pause was until 20"), "{events:?}");
    assert!(
        running.server.log().contains("pause ended at the time that was given with it"),
        "{}",
        running.server.log_tail()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_whose_end_comes_while_the_server_is_down_ends_at_its_start() {
    let mut running = Running::start(JOBS).await;
    assert_eq!(running.run_cli(&["pause", "--group", "db", "--for", "2s"]).code, 0);
    assert_eq!(running.run_cli(&["pause", "plain", "--for", "1h"]).code, 0);
    let paused_at = jiff::Timestamp::now();
    let ((backup, _), (plain, _)) = (running.submit("backup").await, running.submit("plain").await);
    running.server.kill();
    wait_until("the time of the first pause is over", async || {
        jiff::Timestamp::now().duration_since(paused_at) > jiff::SignedDuration::from_secs(2)
    })
    .await;
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_job(backup, |job| job["state"] == "succeeded").await;
    running.wait_until_paused(plain).await;
    let pauses = running.api.get("/api/pauses").await;
    assert_eq!((pauses.as_array().unwrap().len(), &pauses[0]["name"]), (1, &json!("plain")), "{pauses}");
    assert!(pauses[0]["until"].is_string(), "the end outlives a restart: {pauses}");
    assert_eq!(running.run_cli(&["resume", "plain"]).out, "plain resumed\n");
    running.api.wait_for_job(plain, |job| job["state"] == "succeeded").await;
    assert_eq!(running.run_cli(&["pause", "plain"]).out, "plain paused\n");
    assert_eq!(running.api.get("/api/pauses").await[0]["until"], Value::Null, "a resume clears the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_end_of_a_pause_names_the_field() {
    let running = Running::start(JOBS).await;
    for (flag, value, said) in [
        ("--for", "0s", "for: \"0s\" is not a duration from 1s to 366d"),
        ("--for", "500d", "for: \"500d\" is not a duration from 1s to 366d"),
        ("--until", "2020-01-01T00:00Z", "until: \"2020-01-01T00:00Z\" has passed"),
        ("--until", "tomorrow", "--until: \"tomorrow\" is no time; write 18:30"),
    ] {
        let refused = running.run_cli(&["pause", "plain", flag, value]);
        assert!(refused.code == 2 && refused.err.contains(said), "{refused:?}");
    }
    let both = running.run_cli(&["pause", "plain", "--for", "1h", "--until", "2099-01-01T00:00Z"]);
    assert!(both.code == 2 && both.err.contains("cannot be used with"), "{both:?}");
    assert_eq!(running.api.get("/api/pauses").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_recalls_prefetched_jobs_and_keeps_running_ones() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let (_server, api) = (cluster.start_server(&[]).await, cluster.api());
    let worker = ["--no-docker", "--allow-process", "--slots", "1", "--backlog", "1"];
    let _worker = cluster.start_worker("only", &worker);
    api.wait_for_ready_worker("only").await;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        jobs.push(api.post("/api/jobs/long", None).await["id"].as_u64().unwrap());
    }
    api.wait_for_job(jobs[0], |job| job["state"] == "running").await;
    api.wait_for_job(jobs[1], |job| job["state"] == "assigned").await;
    api.post("/api/definitions/long/pause", None).await;
    let waits = |job: &Value| job["state"] == "queued" && job["pending_reason"]["code"] == "paused";
    api.wait_for_job(jobs[1], waits).await;
    assert_eq!(api.get(&format!("/api/jobs/{}", jobs[0])).await["state"], "running");

    // The slot stays free for others.
    let other = api.post("/api/jobs/other", None).await["id"].as_u64().unwrap();
    api.post(&format!("/api/jobs/{}/cancel", jobs[0]), None).await;
    api.wait_for_job(other, |job| job["state"] == "succeeded").await;
    api.wait_for_job(jobs[1], waits).await;
    api.post("/api/definitions/long/resume", None).await;
    api.wait_for_job(jobs[1], |job| job["state"] == "running").await;
    api.post(&format!("/api/jobs/{}/cancel", jobs[1]), None).await;
    wait_until("it is cancelled", async || {
        api.get(&format!("/api/jobs/{}", jobs[1])).await["state"] == "cancelled"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_of_a_removed_definition_can_be_paused_and_resumed() {
    let running = Running::start(JOBS).await;
    assert_eq!(running.run_cli(&["cordon", "only"]).code, 0);
    let (job, _) = running.submit("plain").await;
    let (backup, _) = running.submit("backup").await;
    let without =
        JOBS.lines().filter(|line| !["plain", "backup", "vacuum"].iter().any(|it| line.contains(it)));
    std::fs::write(running.cluster.path("jobs.yaml"), without.collect::<Vec<_>>().join("\n")).unwrap();
    assert_eq!(running.run_cli(&["reload"]).code, 0);

    let paused = running.run_cli(&["pause", "plain"]);
    assert_eq!((paused.code, paused.out.as_str()), (0, "plain paused\n"), "{paused:?}");
    assert_eq!(running.run_cli(&["pause", "--group", "db"]).out, "group db paused\n");
    let again = running.run_cli(&["pause", "plain"]);
    assert_eq!((again.code, again.out.as_str()), (0, "plain was paused already\n"), "{again:?}");
    assert_eq!(running.run_cli(&["uncordon", "only"]).code, 0);
    running.run_to_success("other").await;
    running.wait_until_paused(job).await;
    running.wait_until_paused(backup).await;
    let pauses = running.api.get("/api/pauses").await;
    assert_eq!((&pauses[0]["name"], &pauses[1]["name"]), (&json!("db"), &json!("plain")), "{pauses}");
    let why = running.run_cli(&["explain", &job.to_string()]);
    assert!(why.out.contains("the definition plain is paused since 20"), "{why:?}");

    assert_eq!(running.run_cli(&["resume", "plain"]).out, "plain resumed\n");
    assert_eq!(running.run_cli(&["resume", "--group", "db"]).out, "group db resumed\n");
    for id in [job, backup] {
        running.api.wait_for_job(id, |job| job["state"] == "succeeded").await;
    }
    assert_eq!(running.api.get("/api/pauses").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_of_what_is_not_paused_says_so() {
    let running = Running::start(JOBS).await;
    for (words, said) in [
        (vec!["resume", "other"], "other was not paused\n"),
        (vec!["resume", "--group", "db"], "group db was not paused\n"),
        (vec!["resume", "--schedules"], "all schedules were not paused\n"),
        (vec!["resume", "--all"], "all jobs and schedules were not paused\n"),
    ] {
        let resumed = running.run_cli(&words);
        assert_eq!((resumed.code, resumed.out.as_str()), (0, said), "{resumed:?}");
    }
    let json: Value = serde_json::from_str(&running.run_cli(&["resume", "other", "-o", "json"]).out).unwrap();
    assert_eq!(
        (&json["name"], &json["state"], &json["changed"]),
        (&json!("other"), &json!("resumed"), &json!(false))
    );
    assert_eq!(running.run_cli(&["pause", "other"]).out, "other paused\n");
    let json: Value = serde_json::from_str(&running.run_cli(&["resume", "other", "-o", "json"]).out).unwrap();
    assert_eq!(json["changed"], true, "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_and_a_resume_tell_programs_the_pause() {
    let running = Running::start(JOBS).await;
    let json = |words: &[&str]| -> Value {
        let done = running.run_cli(words);
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    };
    let first = json(&["pause", "plain", "--for", "1h", "--reason", "swap", "-o", "json"]);
    let listed = running.api.get("/api/pauses").await[0].clone();
    for key in ["since", "until", "reason"] {
        assert_eq!((first[key].is_string(), &first[key]), (true, &listed[key]), "{key}");
    }
    assert_eq!((&first["by"], &first["replaced"]), (&Value::Null, &Value::Null), "{first}");
    let second = json(&["pause", "plain", "-o", "json"]);
    assert_eq!((&second["until"], &second["reason"]), (&Value::Null, &Value::Null), "{second}");
    assert_eq!(second["replaced"], listed, "{second}");
    let resumed = json(&["resume", "plain", "-o", "json"]);
    assert_eq!((&resumed["since"], &resumed["replaced"]), (&first["since"], &Value::Null), "{resumed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_says_which_pauses_still_hold() {
    let jobs = format!(
        "{JOBS}  timed: {{ runtime: process, command: ['true'], schedule: {{ id: day, cron: '0 0 * * *' }} }}\n"
    );
    let running = Running::start(&jobs).await;
    for words in [
        &["pause", "timed"][..],
        &["pause", "backup", "--reason", "swap"],
        &["pause", "--all", "--for", "1h"],
    ] {
        assert_eq!(running.run_cli(words).code, 0, "{words:?}");
    }
    let resume = |words: &[&str]| running.run_cli(&[&["resume"], words].concat()).err;
    let still = resume(&["timed", "--schedule", "day"]);
    assert!(still.contains("timed/day still waits: the whole server is paused until 20"), "{still}");
    assert!(still.contains("timed/day still waits: the definition timed is paused\n"), "{still}");
    let still = resume(&["--schedules"]);
    assert!(still.contains("all schedules still wait: the whole server is paused until 20"), "{still}");
    assert!(still.contains("still paused: the definition timed\n") && !still.contains("backup"), "{still}");
    let still = resume(&["--group", "db"]);
    assert!(
        still.contains("still paused: the definition backup: swap\n") && !still.contains("timed"),
        "{still}"
    );
    let still = resume(&["--all"]);
    assert!(still.contains("definition timed") && !still.contains("whole server"), "{still}");
    assert_eq!(resume(&["timed"]), "");
}
