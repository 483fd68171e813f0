//! One job on several workers, by the real program: partial success, retries of what failed, distinct workers, cancels, and a crash of the server.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use testkit::{Api, Cluster, Process};

use crate::stub::{CliOutput, longshore, run};

const JOBS: &str = r#"
version: 1
defaults: { runtime: process }
jobs:
  # Fails where the file with the name of the worker is not there.
  everywhere:
    command: [sh, -c, 'case "$$LONGSHORE_RESULT" in */w1/*) on=w1;; */w2/*) on=w2;; *) on=w3;; esac; echo "on $$on of $$WHO"; test -e "$$GATES/$$on"']
    params: { gates: { type: string, required: true } }
    environment: { GATES: "${params.gates}", WHO: nobody }
    run_on: all
    hooks: { on_end: [tell] }
  tell: { command: ["true"] }
  two: { command: [sleep, "600"], concurrent_worker_cnt: 2, stop_grace_period: 1s }
  held: { command: [sleep, "600"], run_on: all, stop_grace_period: 1s }
  pair: { command: ["true"], run_on: 2 }
  three: { command: ["true"], run_on: 3 }
  one: { command: ["true"], workers: [w1], run_on: all }
  informed: { command: [sh, -c, 'echo "$$LONGSHORE_INDEX of $$LONGSHORE_BATCH_SIZE after $$LONGSHORE_AFTER"'], run_on: all }
"#;

struct Fleet {
    cluster: Cluster,
    api: Api,
    server: Process,
    _workers: Vec<Process>,
}

impl Fleet {
    async fn start(workers: &[&str]) -> Self {
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
        let (server, api) = (cluster.start_server(&[]).await, cluster.api());
        let mut fleet = Self { cluster, api, server, _workers: Vec::new() };
        for worker in workers {
            fleet.join(worker).await;
        }
        fleet
    }

    async fn join(&mut self, name: &str) {
        let flags = ["--no-docker", "--allow-process", "--slots", "2"];
        self._workers.push(self.cluster.start_worker(name, &flags));
        self.api.wait_for_ready_worker(name).await;
    }

    fn run_cli(&self, arguments: &[&str]) -> CliOutput {
        run(longshore(arguments).env("LONGSHORE_SERVER", format!("http://{}", self.cluster.address())))
    }

    async fn ended(&self, id: u64) -> Value {
        self.api.wait_for_job(id, |job| job["ended_at"].is_string()).await
    }

    /// The members of a job: their states by worker.
    async fn members(&self, id: u64) -> Vec<(String, String)> {
        let members = self.api.get(&format!("/api/jobs?member_of={id}")).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut members: Vec<(String, String)> = members
            .as_array()
            .unwrap()
            .iter()
            .map(|job| (text(&job["worker"]["name"]), text(&job["state"])))
            .collect();
        members.sort();
        members
    }
}

fn id_of(made: &CliOutput) -> u64 {
    made.out.trim().parse().unwrap_or_else(|_| panic!("{made:?}"))
}

/// The job in an answer as JSON.
fn made_by(made: &CliOutput) -> u64 {
    let job: Value = serde_json::from_str(&made.out).unwrap_or_else(|_| panic!("{made:?}"));
    job["id"].as_u64().unwrap()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(worker, state)| ((*worker).to_owned(), (*state).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_all_members_is_followed_with_the_worker_of_each_line() {
    let fleet = Fleet::start(&["w1", "w2"]).await;
    let gates = fleet.cluster.path("gates");
    fs::create_dir(&gates).unwrap();
    fs::write(gates.join("w1"), "").unwrap();
    let gates = format!("gates={}", gates.display());
    let of_all = ["w1 | on w1 of nobody\n", "w2 | on w2 of nobody\n"];
    let says = |text: &str, lines: &[&str]| lines.iter().all(|line| text.matches(line).count() == 1);

    let followed = fleet.run_cli(&["run", "everywhere", "-p", &gates, "--follow"]);
    assert!(followed.code == 1 && says(&followed.out, &of_all), "{followed:?}");
    let ends = ["w2 | longshore: job 3 failed, exit 1", "longshore: job 1 failed, 1 of 2 members succeeded"];
    let swapped = ["w2 | longshore: job 2 failed, exit 1", ends[1]];
    assert!(says(&followed.err, &ends) || says(&followed.err, &swapped), "{followed:?}");
    // It has no members until it is due.
    let delayed = fleet.run_cli(&["run", "everywhere", "-p", &gates, "--delay", "300ms", "--follow"]);
    assert!(delayed.code == 1 && says(&delayed.out, &of_all), "{delayed:?}");

    for arguments in [&["logs", "1"][..], &["logs", "-f", "1"], &["logs", "1", "--tail", "5"]] {
        let shown = fleet.run_cli(arguments);
        assert!(shown.code == 0 && says(&shown.out, &of_all), "{arguments:?}: {shown:?}");
    }
    let stamped = fleet.run_cli(&["logs", "1", "-t", "--stream", "stdout"]).out;
    assert!(stamped.contains("Z on w1 of nobody\n") && stamped.starts_with("w"), "{stamped}");
    let lines = fleet.run_cli(&["logs", "1", "-o", "ndjson"]).out;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["job"].is_u64() && line["worker"].is_string()), "{lines:?}");
    let one = fleet.run_cli(&["logs", "1", "--attempt", "1"]);
    assert!(one.code == 2 && one.err.contains("'longshore ls --member-of 1' lists them"), "{one:?}");

    let events = fleet.api.get_bytes("/api/events?member_of=1&follow=0&tail=100&kind=job.*").await;
    let events = String::from_utf8(events).unwrap();
    let count = |text: &str| events.matches(text).count();
    assert_eq!((count("\"kind\":\"job.ended\""), count("\"member_of\":1")), (3, 8), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_workers_that_get_no_member_are_named_with_the_reason() {
    let fleet = Fleet::start(&["w1", "w2"]).await;
    assert_eq!(fleet.run_cli(&["cordon", "w2"]).code, 0);
    let id = made_by(&fleet.run_cli(&["run", "informed", "-o", "json"]));
    fleet.ended(id).await;
    assert_eq!(fleet.members(id).await, pairs(&[("w1", "succeeded")]));
    let shown = fleet.run_cli(&["show", &id.to_string()]);
    assert!(
        shown.out.contains("workers left out") && shown.out.contains("no member for w2 (is cordoned)"),
        "{shown:?}"
    );
    // A worker that the definition does not list is not expected to get one.
    let id = made_by(&fleet.run_cli(&["run", "one", "-o", "json"]));
    let timeline = fleet.ended(id).await["timeline"].to_string();
    assert!(!timeline.contains("workers_left_out"), "{timeline}");
    assert_eq!(fleet.members(id).await, pairs(&[("w1", "succeeded")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_each_worker_and_what_failed_is_repeated_there() {
    let fleet = Fleet::start(&["w1", "w2", "w3"]).await;
    let gates = fleet.cluster.path("gates");
    fs::create_dir(&gates).unwrap();
    for open in ["w1", "w3"] {
        fs::write(gates.join(open), "").unwrap();
    }
    let gates_param = format!("gates={}", gates.display());
    let made = fleet.run_cli(&["run", "everywhere", "-p", &gates_param, "-e", "WHO=me", "--wait"]);
    assert_eq!(made.code, 1, "{made:?}");
    let parent = fleet.ended(1).await;
    assert_eq!(
        (&parent["state"], &parent["reason"]),
        (&json!("failed"), &json!("2 of 3 members succeeded, 1 failed"))
    );
    assert_eq!((parent.get("worker"), &parent["attempts"]), (None, &json!([])), "{parent}");
    let counts = json!({"run_on": "all", "complete": true, "total": 3, "live": 0, "succeeded": 2, "failed": 1,
        "cancelled": 0, "expired": 0, "lost": 0});
    assert_eq!(parent["members"], counts);
    assert_eq!(fleet.members(1).await, pairs(&[("w1", "succeeded"), ("w2", "failed"), ("w3", "succeeded")]));
    // The end of the parent has one hook, and those of the members none.
    let hooks = fleet.api.get("/api/jobs?name=tell").await;
    assert_eq!(hooks.as_array().map(Vec::len), Some(1), "{hooks}");
    // Members have what the parent was given, and say whose they are.
    let members = fleet.api.get("/api/jobs?member_of=1&state=failed").await;
    let failed = members[0]["id"].as_u64().unwrap();
    let failed_job = fleet.api.get(&format!("/api/jobs/{failed}")).await;
    assert_eq!(
        (&failed_job["member_of"], &failed_job["params"]["gates"]),
        (&json!(1), &json!(gates)),
        "{failed_job}"
    );
    let output = fleet.run_cli(&["logs", &failed.to_string()]);
    assert!(output.out.contains("on w2 of me"), "{output:?}");
    let shown = fleet.run_cli(&["show", "1"]);
    assert!(
        shown.out.contains("3: 2 succeeded, 1 failed; longshore ls --member-of 1 lists them"),
        "{shown:?}"
    );
    let listed = fleet.run_cli(&["ls", "--member-of", "1", "-q"]);
    assert_eq!(listed.out.lines().count(), 3, "{listed:?}");

    // A retry by filters repeats the parent and not its members; of the parent those that failed, on their workers.
    let counted = fleet.api.post("/api/jobs/retry?state=failed&dry_run=1", None).await;
    assert_eq!(counted["matched"], 1, "{counted}");
    fs::write(gates.join("w2"), "").unwrap();
    let again = made_by(&fleet.run_cli(&["retry", "1", "--members", "failed", "-o", "json"]));
    let parent = fleet.ended(again).await;
    assert_eq!((&parent["state"], &parent["retry_of"]), (&json!("succeeded"), &json!(1)), "{parent}");
    assert_eq!(fleet.members(again).await, pairs(&[("w2", "succeeded")]));
    // Of a member alone.
    let again = made_by(&fleet.run_cli(&["retry", &failed.to_string(), "-o", "json"]));
    fleet.ended(again).await;
    assert_eq!(fleet.members(again).await, pairs(&[("w2", "succeeded")]));
    // All of it.
    let again = made_by(&fleet.run_cli(&["retry", "1", "-o", "json"]));
    assert_eq!(fleet.ended(again).await["members"]["succeeded"], 3);
    let refused = fleet.run_cli(&["retry", &again.to_string(), "--members", "failed"]);
    assert!(refused.err.contains("has ended without success"), "{refused:?}");
    let metrics = fleet.api.get_bytes("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics);
    let ended = |state: &str| {
        let line = |line: &&str| {
            line.starts_with("longshore_jobs_ended_total")
                && line.contains("everywhere")
                && line.contains(state)
        };
        metrics.lines().find(line).and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    assert_eq!(
        (ended("succeeded").as_deref(), ended("failed").as_deref()),
        (Some("3"), Some("1")),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn members_take_distinct_workers_and_the_rest_wait_for_another_one() {
    let mut fleet = Fleet::start(&["w1", "w2"]).await;
    let parent = id_of(&fleet.run_cli(&["run", "three", "-q"]));
    fleet.api.wait_for_job(parent, |job| job["members"]["succeeded"] == 2).await;
    let waiting = fleet.api.get(&format!("/api/jobs?member_of={parent}&state=queued")).await;
    let waiting = waiting[0]["id"].as_u64().unwrap();
    let why = fleet.api.get(&format!("/api/jobs/{waiting}/explain")).await;
    let codes: Vec<&str> = why["workers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["obstacles"][0]["code"].as_str())
        .collect();
    assert_eq!(codes, ["sibling", "sibling"], "{why}");
    fleet.join("w3").await;
    assert_eq!(fleet.ended(parent).await["state"], "succeeded");
    let workers: BTreeSet<String> =
        fleet.members(parent).await.into_iter().map(|(worker, _)| worker).collect();
    assert_eq!(workers.len(), 3);
    // A list of workers and `run_on` go together.
    let parent = id_of(&fleet.run_cli(&["run", "one", "-q"]));
    fleet.ended(parent).await;
    assert_eq!(fleet.members(parent).await, pairs(&[("w1", "succeeded")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_survives_a_crash_of_the_server_and_its_cancel_stops_all_members() {
    let mut fleet = Fleet::start(&["w1", "w2"]).await;
    let parent = id_of(&fleet.run_cli(&["run", "two", "-q"]));
    let both = |list: &Value| list.as_array().is_some_and(|list| list.len() == 2);
    let running = format!("/api/jobs?member_of={parent}&state=running");
    testkit::wait_until("both members run", async || both(&fleet.api.get(&running).await)).await;
    fleet.server.kill();
    let _server = fleet.cluster.start_server(&[]).await;
    for worker in ["w1", "w2"] {
        fleet.api.wait_for_ready_worker(worker).await;
    }
    let job = fleet.api.get(&format!("/api/jobs/{parent}")).await;
    assert_eq!((&job["state"], &job["members"]["live"]), (&json!("running"), &json!(2)), "{job}");
    let member = fleet.api.get(&running).await[0]["id"].as_u64().unwrap();
    let cancelled = fleet.run_cli(&["cancel", &parent.to_string()]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let job = fleet.ended(parent).await;
    assert_eq!((&job["state"], &job["members"]["cancelled"]), (&json!("cancelled"), &json!(2)), "{job}");
    let member = fleet.api.get(&format!("/api/jobs/{member}")).await;
    assert_eq!((&member["state"], &member["confirmed"]), (&json!("cancelled"), &json!(true)), "{member}");
    // Its start was told before the crash, and is not told again.
    let started = fleet.api.get_bytes("/api/events?kind=job.started&follow=0&tail=100").await;
    assert!(!String::from_utf8_lossy(&started).contains("job.started"), "{started:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_shows_its_start_and_duration_and_says_where_the_output_is() {
    let fleet = Fleet::start(&["w1", "w2"]).await;
    let parent = id_of(&fleet.run_cli(&["run", "pair", "-q"]));
    let job = fleet.ended(parent).await;
    assert!(job["started_at"].is_string() && job["ran_ms"].is_u64(), "{job}");
    let events: Vec<&Value> = job["timeline"].as_array().unwrap().iter().map(|it| &it["event"]).collect();
    assert_eq!(events, ["accepted", "started", "succeeded"], "{job}");
    let listed = fleet.api.get("/api/jobs?name=pair&state=succeeded").await;
    let listed = listed.as_array().unwrap().iter().find(|it| it["id"] == parent).unwrap().clone();
    assert_eq!((&listed["started_at"], &listed["ran_ms"]), (&job["started_at"], &job["ran_ms"]), "{listed}");

    let events = fleet.api.get_bytes("/api/events?kind=job.started,job.ended&follow=0&tail=100").await;
    let events = String::from_utf8(events).unwrap();
    let of_parent: Vec<Value> = events
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter(|event| event["job"]["id"] == parent)
        .collect();
    let told: Vec<_> = of_parent.iter().map(|it| (&it["kind"], &it["job"]["state"])).collect();
    let (started, ended) = (json!("job.started"), json!("job.ended"));
    assert_eq!(told, [(&started, &json!("running")), (&ended, &json!("succeeded"))], "{events}");
    assert_eq!(of_parent[0]["at"], job["started_at"], "{events}");
    assert_eq!(of_parent[1]["job"]["ran_ms"], job["ran_ms"], "{events}");

    // A definition shows it as one run.
    let page = String::from_utf8(fleet.api.get_bytes("/definitions/pair").await).unwrap();
    let shows = |job: u64| page.contains(&format!("job {job}: succeeded"));
    assert!(shows(parent) && !shows(parent + 1) && !shows(parent + 2), "{page}");

    let notice =
        |job: u64| format!("longshore: job {job} runs on several workers and has no output of its own");
    let text = String::from_utf8(fleet.api.get_bytes(&format!("/api/jobs/{parent}/logs")).await).unwrap();
    assert!(text.starts_with(&notice(parent)) && text.lines().count() == 1, "{text}");
    let followed = fleet.api.request(reqwest::Method::POST, "/api/jobs/pair?follow=1", None, None);
    let followed = followed.await.unwrap().body.as_str().unwrap().to_owned();
    let next = parent + 3;
    assert!(followed.starts_with(&notice(next)), "{followed}");
    assert!(followed.ends_with(&format!("longshore: job {next} succeeded\n")), "{followed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_concurrency_of_a_batch_holds_for_members_of_all_its_jobs() {
    let fleet = Fleet::start(&["w1", "w2"]).await;
    let entry = json!({ "name": "held" });
    let batch = fleet.api.post("/api/jobs?concurrency=1", Some(&json!([entry, entry]))).await;
    let first = batch["first"].as_u64().unwrap();
    let members = |state: &str, parent: u64| format!("/api/jobs?member_of={parent}&state={state}");
    let count = async |state: &str| {
        let mut count = 0;
        for parent in [first, first + 1] {
            count += fleet.api.get(&members(state, parent)).await.as_array().map_or(0, Vec::len);
        }
        count
    };
    testkit::wait_until("one member runs", async || count("running").await == 1).await;
    let waiting = fleet.api.get(&members("queued", first + 1)).await;
    let waiting = waiting[0]["id"].as_u64().unwrap();
    fleet.api.wait_for_job(waiting, |job| job["pending_reason"]["code"] == "limit").await;
    assert_eq!((count("running").await, count("queued").await), (1, 3));
    let limits = fleet.api.get(&format!("/api/limits?name={first}")).await;
    let limits = limits.as_array().unwrap().iter().find(|it| it["kind"] == "batch").unwrap();
    assert_eq!((&limits["in_use"], &limits["waiting"]), (&json!(1), &json!(3)), "{limits}");
    let cancelled = fleet.run_cli(&["batch", &first.to_string(), "cancel", "--yes"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    fleet.ended(first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_were_never_made_are_repeated_as_well() {
    let fleet = Fleet::start(&["w1", "w2"]).await;
    let parent = id_of(&fleet.run_cli(&["run", "pair", "--delay", "1h", "-q"]));
    fleet.run_cli(&["cancel", &parent.to_string()]);
    let job = fleet.ended(parent).await;
    assert_eq!((&job["state"], &job["members"]["total"]), (&json!("cancelled"), &json!(0)), "{job}");
    let again = made_by(&fleet.run_cli(&["retry", &parent.to_string(), "--members", "failed", "-o", "json"]));
    assert_eq!(fleet.ended(again).await["state"], "succeeded");
    assert_eq!(fleet.members(again).await, pairs(&[("w1", "succeeded"), ("w2", "succeeded")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_told_the_place_of_their_parent_and_what_it_came_after() {
    let fleet = Fleet::start(&["w1", "w2"]).await;
    let first = id_of(&fleet.run_cli(&["run", "one", "-q"]));
    fleet.ended(first).await;
    let body = json!({"count": 2, "after": [first]});
    let of_array = fleet.api.post("/api/jobs/informed", Some(&body)).await["first"].as_u64().unwrap();
    for (index, parent) in [of_array, of_array + 1].into_iter().enumerate() {
        let job = fleet.ended(parent).await;
        assert_eq!(job["members"]["succeeded"], 2, "{job}");
        for member in fleet.api.get(&format!("/api/jobs?member_of={parent}")).await.as_array().unwrap() {
            let output = fleet.run_cli(&["logs", &member["id"].to_string()]);
            assert!(output.out.starts_with(&format!("{index} of 2 after [{{\"job\":{first},")), "{output:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_all_workers_fails_where_there_are_none() {
    let fleet = Fleet::start(&[]).await;
    let made = fleet.run_cli(&["run", "one", "--wait"]);
    assert_eq!(made.code, 1, "{made:?}");
    let job = fleet.ended(1).await;
    assert_eq!(job["reason"], "no worker that could run it was connected: it ran nowhere");
    let refused =
        fleet.api.request(reqwest::Method::POST, "/api/jobs/one?require_worker=1", None, None).await.unwrap();
    assert_eq!(refused.body["code"], "no_worker", "{refused}");
}
