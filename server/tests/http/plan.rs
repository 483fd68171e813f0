//! Plans over HTTP: the effect that a reload would have.

use std::sync::Arc;

use protocol::Timestamp;
use scheduler::origin::Intervention;
use scheduler::pauses::{PauseTarget, Pauses};
use scheduler::schedule::ScheduleId;
use serde_json::{Value, json};

use crate::support::Server;
use crate::support::facts::{change_worker, snapshot};

const PRESENT: &str = "jobs:
  resize: {image: 'resize:1', timeout: 1m, environment: {PW: hunter2}, retry: {max: 1}}
  report: {image: report, schedule: {cron: '0 2 * * *'}}
  old: {image: old}
";

/// A server whose present definitions are those of [`PRESENT`].
async fn started() -> Server {
    let server = Server::start().await;
    std::fs::write(&server.jobs_file, PRESENT).expect("the place is writable");
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    server
}

async fn plan(server: &Server, text: &str) -> Value {
    let answer = server.ask("POST", "/api/definitions/plan", &[], text).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!answer.body.contains("hunter"), "a value is shown: {answer:?}");
    answer.json()
}

#[tokio::test]
async fn a_plan_of_the_present_file_has_no_changes() {
    let server = started().await;
    let plan = plan(&server, PRESENT).await;
    assert_eq!(plan["unchanged"], 3, "{plan}");
    assert_eq!(plan["current_revision"], plan["revision"]);
    let revision = server.get("/api/definitions").await.header("longshore-definitions-revision").to_owned();
    assert_eq!(plan["current_revision"], revision.as_str());
    for kind in ["added", "removed", "changed"] {
        assert_eq!(plan[kind], json!([]), "{plan}");
    }
}

#[tokio::test]
async fn a_plan_names_labels_that_no_connected_worker_has() {
    let server = started().await;
    let text = "jobs: {fresh: {image: fresh, requires: {zone: b, disk: ssd}}}";
    let mut facts = snapshot();
    change_worker(&mut facts, |worker| worker.own_labels = vec![("zone".into(), "b".into())]);
    server.snapshot.send_replace(Arc::new(facts.clone()));
    assert_eq!(plan(&server, text).await["added"][0]["unmet"], json!(["disk=ssd"]));
    change_worker(&mut facts, |worker| worker.session = None);
    server.snapshot.send_replace(Arc::new(facts));
    assert_eq!(plan(&server, text).await["added"][0]["unmet"], Value::Null, "nobody is known to be there");
}

#[tokio::test]
async fn a_plan_warns_of_a_paused_schedule_whose_rule_changes() {
    let server = started().await;
    let changed = PRESENT.replace("0 2", "0 3");
    let unpaused = plan(&server, &changed).await;
    assert_eq!(unpaused["warnings"], json!([]), "nothing is paused");
    let keys = unpaused["changed"][0]["keys"].as_array().expect("the rule has changed");
    let gone = keys.iter().find(|key| key["old"].is_string()).expect("the old rule is gone");
    let id = gone["key"].as_str().unwrap_or_default().trim_start_matches("schedules.");
    let mut facts = snapshot();
    let target = PauseTarget::Schedule("report".into(), ScheduleId::named(id));
    facts.pauses = Pauses::of([(target, Timestamp(1).into())]).into();
    server.snapshot.send_replace(Arc::new(facts));
    let warnings = plan(&server, &changed).await["warnings"].clone();
    let text = warnings[0].as_str().unwrap_or_default();
    assert!(text.starts_with(&format!("report: the paused schedule {id} goes")), "{warnings}");
    for same in [PRESENT, &PRESENT.replace(", schedule: {cron: '0 2 * * *'}", "")] {
        assert_eq!(plan(&server, same).await["warnings"], json!([]), "nothing takes its place");
    }
}

#[tokio::test]
async fn a_reload_takes_the_planned_definitions_and_no_others() {
    let server = started().await;
    let text = "jobs: { second: { image: x } }";
    let planned = plan(&server, text).await;
    let [present, new] =
        ["current_revision", "revision"].map(|key| planned[key].as_str().unwrap().to_owned());
    let path = format!("/api/definitions/reload?expect={present}&expect_new={new}");
    std::fs::write(&server.jobs_file, "jobs: { third: { image: x } }").unwrap();
    let problem = server.ask("POST", &path, &[], "").await.is_problem(409, "revision_mismatch");
    assert!(problem["detail"].as_str().unwrap().starts_with("the file has"), "{problem}");
    assert_eq!(server.get("/api/definitions/resize").await.status, 200, "nothing was changed");
    std::fs::write(&server.jobs_file, text).unwrap();
    assert_eq!(server.ask("POST", &path, &[], "").await.json()["added"], json!(["second"]));
}

#[tokio::test]
async fn a_plan_and_a_reload_warn_of_a_paused_definition_that_goes() {
    let server = started().await;
    let without =
        PRESENT.lines().filter(|line| !line.trim_start().starts_with("report:")).collect::<Vec<_>>();
    let removed = without.join("\n");
    let renamed = PRESENT.replace("report:", "reports:");
    assert_ne!(renamed, PRESENT);
    assert_eq!(plan(&server, &renamed).await["warnings"], json!([]), "nothing is paused");
    let mut facts = snapshot();
    let id = ScheduleId::named("nightly");
    let targets = [PauseTarget::Definition("report".into()), PauseTarget::Schedule("report".into(), id)];
    let until = |target: &PauseTarget| matches!(target, PauseTarget::Schedule(..)).then_some(Timestamp(9));
    let pause = |target| (Intervention { until: until(&target), ..Timestamp(1).into() }, target);
    facts.pauses = Pauses::of(targets.into_iter().map(pause).map(|(pause, target)| (target, pause))).into();
    server.snapshot.send_replace(Arc::new(facts));
    let then = "report is removed: its pause does not hold for the new definitions (reports): give them \"enabled: false\" if they are not to start";
    let expected = json!([
        format!("report is paused, and {then}"),
        format!("the schedule nightly of report is paused until 1970-01-01T00:00:00.009Z, and {then}"),
    ]);
    assert_eq!(plan(&server, &renamed).await["warnings"], expected);
    let kept = "report is paused, and report is removed: its pause is kept for its name";
    assert_eq!(plan(&server, &removed).await["warnings"][0], kept);
    std::fs::write(&server.jobs_file, renamed).unwrap();
    let reloaded = server.ask("POST", "/api/definitions/reload", &[], "").await.json();
    assert_eq!(reloaded["warnings"], expected);
}

#[tokio::test]
async fn a_plan_counts_jobs_that_wait_for_their_time() {
    let server = started().await;
    for name in ["old", "resize", "resize"] {
        let answer = server.post(&format!("/api/jobs/{name}"), r#"{"delay":"1h"}"#).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let plan = plan(&server, "jobs: {resize: {image: 'resize:2'}}").await;
    assert_eq!(plan["removed"][0], json!({"name": "old", "queued": 0, "scheduled": 1}), "{plan}");
    assert_eq!(plan["changed"][0]["scheduled"], 2, "{plan}");
    assert_eq!(plan["cancels_removed"], Value::Null);
}

#[tokio::test]
async fn a_plan_names_what_would_change_and_changes_nothing() {
    let server = started().await;
    let revision = server.get("/api/definitions").await.header("longshore-definitions-revision").to_owned();
    let text = "jobs:
  resize: {image: 'resize:2', environment: {PW: hunter3}, retry: {max: 3}}
  report: {image: report, schedule: {cron: '0 2 * * *'}}
  fresh: {image: fresh, schedule: {every: 1h}}
";
    let plan = plan(&server, text).await;
    assert_eq!((&plan["unchanged"], &plan["added"][0]["name"]), (&json!(1), &json!("fresh")), "{plan}");
    assert_eq!(plan["added"][0]["next"].as_array().unwrap().len(), 3);
    assert_eq!(plan["removed"], json!([{"name": "old", "queued": 0}]));
    let changed = &plan["changed"][0];
    assert_eq!(changed["name"], "resize");
    assert_ne!(changed["from_revision"], changed["to_revision"]);
    let keys = json!([
        {"key": "image", "old": "resize:1", "new": "resize:2"},
        {"key": "retry.max", "old": 1, "new": 3},
        {"key": "timeout_ms", "old": 60_000, "new": 3_600_000},
        {"key": "environment.PW", "hidden": true},
    ]);
    assert_eq!(changed["keys"], keys, "{plan}");
    assert_eq!(server.get("/api/definitions").await.header("longshore-definitions-revision"), revision);

    // The reload that the plan told of brings the revision that it told.
    std::fs::write(&server.jobs_file, text).unwrap();
    let path = format!("/api/definitions/reload?expect={}", plan["current_revision"].as_str().unwrap());
    let reloaded = server.ask("POST", &path, &[], "").await.json();
    assert_eq!(reloaded["revision"], plan["revision"], "{reloaded}");
    server.ask("POST", &path, &[], "").await.is_problem(409, "revision_mismatch");
}

#[tokio::test]
async fn descriptive_keys_and_schedules_are_compared_too() {
    let server = started().await;
    let plan = plan(
        &server,
        &PRESENT.replace(
            "image: report, schedule: {cron: '0 2",
            "image: report, description: nightly, schedule: {cron: '0 3",
        ),
    )
    .await;
    let changed = &plan["changed"][0];
    assert_eq!(changed["name"], "report");
    assert_eq!(changed["from_revision"], changed["to_revision"]);
    assert_ne!(plan["current_revision"], plan["revision"], "the set differs, so reload --expect notices");
    let keys: Vec<&str> =
        changed["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    assert_eq!(keys[0], "description", "{plan}");
    assert!(keys[1..].iter().all(|key| key.starts_with("schedules.")) && keys.len() == 3, "{plan}");
}

#[tokio::test]
async fn keys_that_act_on_jobs_which_were_made_before_are_marked() {
    let server = Server::start().await;
    let present = "jobs: {a: {image: a, concurrency: 1, expect: {max_duration: 1m}}, b: {image: b}}";
    std::fs::write(&server.jobs_file, present).expect("the place is writable");
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let text = "jobs:
  a: {image: a2, concurrency: {limit: 2, on_full: reject}, expect: {max_duration: 2m}, workers: [w1]}
  b: {image: b, concurrency: 1, max_queued: 7}
";
    let plan = plan(&server, text).await;
    let keys = |index: usize, at_once: bool| -> Vec<&str> {
        let keys = plan["changed"][index]["keys"].as_array().unwrap().iter();
        let keys = keys.filter(|key| (key["at_once"] == true) == at_once);
        keys.map(|key| key["key"].as_str().unwrap()).collect()
    };
    assert_eq!(keys(0, true), ["concurrency.limit", "expect.max_duration_ms", "workers"], "{plan}");
    assert_eq!(keys(0, false), ["concurrency.on_full", "image"]);
    assert_eq!(keys(1, true), ["max_queued"], "jobs that were made before a limit are not counted");
    assert_eq!(keys(1, false), ["concurrency.limit", "concurrency.on_full"]);
}

#[tokio::test]
async fn a_rule_for_ended_jobs_is_compared_and_shown() {
    let server = started().await;
    let text = PRESENT.replace("{image: old}", "{image: old, retention: {keep: 9, failed_max_age: 2m}}");
    let plan = plan(&server, &text).await;
    assert_eq!(plan["changed"][0]["from_revision"], plan["changed"][0]["to_revision"]);
    let keys = json!([
        {"key": "retention.failed_max_age_ms", "new": 120_000, "at_once": true},
        {"key": "retention.keep", "new": 9, "at_once": true},
    ]);
    assert_eq!(plan["changed"][0]["keys"], keys, "{plan}");
    std::fs::write(&server.jobs_file, &text).unwrap();
    let reloaded = server.ask("POST", "/api/definitions/reload", &[], "").await.json();
    assert_eq!(reloaded["changed"], json!(["old"]));
    let shown = server.get("/api/definitions").await.json();
    assert_eq!(shown[0]["retention"], json!({"keep": 9, "failed_max_age_ms": 120_000}));
    assert_eq!(shown[1]["retention"], Value::Null);
}

#[tokio::test]
async fn a_bad_file_gets_the_problem_of_a_reload() {
    let server = started().await;
    let ask = async |text: &str| server.ask("POST", "/api/definitions/plan", &[], text).await;
    let problem = ask("jobs:\n  a: {imagee: x}\n  b: {image: x, timeout: long}\n").await;
    let problem = problem.is_problem(422, "invalid_jobs_file");
    assert!(problem["errors"].as_array().unwrap().len() >= 2, "{problem}");
    assert!(problem["errors"][0]["field"].as_str().unwrap().starts_with("jobs.yaml:2:"), "{problem}");
    ask("").await.is_problem(422, "invalid_jobs_file");
    ask(&"#".repeat(2_000_101)).await.is_problem(413, "body_too_large");
}

#[tokio::test]
async fn a_plan_shows_no_variable_and_no_file_of_the_server() {
    let server = started().await;
    for (job, taken) in
        [("{image: x, command: '${PATH}'}", "PATH"), ("{image: x, env_file: /etc/passwd}", "/etc/passwd")]
    {
        let answer = server.ask("POST", "/api/definitions/plan", &[], &format!("jobs: {{a: {job}}}")).await;
        let problem = answer.is_problem(422, "invalid_jobs_file");
        let detail = problem["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains(taken) && detail.contains("a plan or a deploy takes"), "{problem}");
        assert!(!answer.body.contains("/bin") && !answer.body.contains("root:"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_plan_shows_no_value_of_a_variable_that_the_file_takes_in_another_way() {
    let server = Server::start().await;
    let present = "jobs:\n  a: {image: x, environment: {PW: '${HOME}'}, notify: {webhook: 'https://h.example${HOME}'}, \
                   params: {p: {secret: true, default: '${HOME}'}}}\n";
    std::fs::write(&server.jobs_file, present).unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let plan = async |text: &str| server.ask("POST", "/api/definitions/plan", &[], text).await;
    assert_eq!(plan(&present.replace("  a:", "  b:")).await.json()["added"][0]["name"], "b");
    for (from, to, key) in [
        ("PW: '${HOME}'", "PW: {secret: '${HOME}'}", "environment.PW.secret"),
        ("h.example${HOME}", "${HOME}.example", "notify.webhook"),
        ("secret: true", "secret: true, pattern: '^.a'", "params.p.default"),
    ] {
        let answer = plan(&present.replace(from, to)).await;
        let problem = answer.is_problem(422, "invalid_jobs_file");
        let detail = problem["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("${HOME}") && detail.contains(key), "{problem}");
        let home = std::env::var("HOME").unwrap();
        assert!(home.len() < 3 || !answer.body.contains(&home), "{answer:?}");
    }
}

#[tokio::test]
async fn a_definition_may_be_named_plan() {
    let server = started().await;
    server.get("/api/definitions/plan").await.is_problem(404, "unknown_job");
    std::fs::write(&server.jobs_file, "jobs: {plan: {image: x}}").unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    assert_eq!(server.get("/api/definitions/plan").await.json()["image"], "x");
}

#[tokio::test]
async fn a_plan_shows_what_changes_of_a_schedule_but_no_secret_of_it() {
    let server = Server::start().await;
    let file = |schedule: &str| {
        format!(
            "jobs:\n  report:\n    image: report\n    params: {{ depth: {{type: integer, default: 1}}, key: {{secret: true, default: hunter1}} }}\n    \
             schedule: {{ id: night, cron: '0 2 * * *', {schedule} }}\n"
        )
    };
    std::fs::write(
        &server.jobs_file,
        file("jitter: 1m, start_at: '2026-01-01T00:00:00Z', params: {depth: 2, key: hunter2}"),
    )
    .unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let text = file("jitter: 90s, start_at: '2027-01-01T00:00:00Z', params: {depth: 3, key: hunter3}");
    let planned = plan(&server, &text).await;
    let keys = json!([
        {"key": "schedules.night.jitter_ms", "old": 60_000, "new": 90_000},
        {"key": "schedules.night.params.depth", "old": 2, "new": 3},
        {"key": "schedules.night.start_at", "old": "2026-01-01T00:00:00.000Z", "new": "2027-01-01T00:00:00.000Z"},
        {"key": "schedules.night.params.key", "hidden": true},
    ]);
    assert_eq!(planned["changed"][0]["keys"], keys, "{planned}");
    // A changed default of the definition, which jobs of the schedule get too, is a change of the definition alone.
    let default = file("jitter: 1m, start_at: '2026-01-01T00:00:00Z', params: {depth: 2, key: hunter2}")
        .replace("default: 1", "default: 5");
    let planned = plan(&server, &default).await;
    assert_eq!(
        planned["changed"][0]["keys"],
        json!([{"key": "params.depth.default", "old": 1, "new": 5}]),
        "{planned}"
    );
}
