//! Schedules by the real program: a server and a worker of their own, asked over real HTTP and by the user's verbs.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its cluster fails")]

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{wait_for, wait_until};

use crate::running::Running;
use crate::stub::{longshore, run};

impl Running {
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run_cli(&[arguments, &["-o", "json"]].concat());
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
        serde_json::from_str(&output.out).unwrap()
    }

    /// The rows of the ledger that are jobs: slot and job.
    async fn fired(&self) -> Vec<(String, u64)> {
        let rows = self.api.get("/api/definitions/tick/fires?limit=500").await;
        let row = |row: &Value| Some((row["from"].as_str()?.to_owned(), row["job"].as_u64()?));
        let made_a_job = |row: &&Value| row["verdict"] == "fired" || row["verdict"] == "caught_up";
        rows.as_array().unwrap().iter().filter(made_a_job).filter_map(row).collect()
    }

    async fn until_fired(&self, count: usize) -> Vec<(String, u64)> {
        wait_for("slots fire", async || Some(self.fired().await).filter(|rows| rows.len() >= count)).await
    }

    async fn post(&self, path: &str) -> (u16, Value) {
        let answer = self.api.request(Method::POST, path, None, None).await.unwrap();
        (answer.status, answer.body["code"].clone())
    }

    async fn state(&self) -> Value {
        self.api.get("/api/schedules?name=tick").await[0]["state"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_become_jobs_that_know_their_slot_and_are_listed() {
    let running = Running::start(JOBS_FILE).await;
    let rows = running.until_fired(3).await;
    let (slot, job) = rows.last().unwrap();
    let shown = running.api.wait_for_job(*job, |job| job["state"] == "succeeded").await;
    assert_eq!((&shown["schedule"], &shown["scheduled_at"]), (&json!("fast"), &json!(slot)));
    let printed = format!("fast {slot}\n");
    let number = job.to_string();
    wait_until("the output is there", async || running.run_cli(&["logs", &number]).out == printed).await;

    let schedules = running.api.get("/api/schedules?next=2").await;
    let [schedule] = &schedules.as_array().unwrap()[..] else { panic!("{schedules}") };
    let keys = ["name", "id", "rule", "timezone", "state"].map(|key| schedule[key].as_str().unwrap());
    assert_eq!(keys, ["tick", "fast", "every 500ms", "UTC", "active"]);
    assert_eq!(schedule["next"].as_array().unwrap().len(), 2);
    assert!(schedule["last_fire"]["job"].as_u64() >= Some(*job), "{schedule}");
    let definition = running.api.get("/api/definitions/tick").await;
    assert_eq!(definition["schedules"][0]["id"], "fast", "{definition}");
    assert_eq!(definition["next_fire_at"], definition["schedules"][0]["next"][0], "{definition}");
    let listed = running.api.get("/api/definitions").await;
    let [plain, tick] = &listed.as_array().unwrap()[..] else { panic!("{listed}") };
    assert!(tick["next_fire_at"].as_str() >= Some(slot.as_str()), "{tick}");
    assert_eq!(plain.get("next_fire_at"), None, "{plain}");

    let only = running.run_cli(&["run", "tick", "-q"]);
    assert_eq!(only.code, 0, "{only:?}");
    let by_schedule = running.json(&["ls", "--schedule", "fast", "-n", "500"]);
    let made = by_schedule.as_array().unwrap().iter();
    assert!(made.clone().any(|it| it["id"] == *job) && made.clone().all(|it| it["schedule"] == "fast"));
    assert_eq!(running.json(&["ls", "--schedule", "other"]), json!([]));
    assert_eq!(running.json(&["ls", "--schedule", "fast", "--name", "plain"]), json!([]));
    let counted = "/api/jobs/retry?schedule=fast&state=succeeded&dry_run=1";
    let counted = running.api.request(Method::POST, counted, None, None).await.unwrap();
    assert!(counted.body["matched"].as_u64() >= Some(1), "{counted:?}");

    let table = running.run_cli(&["schedules"]);
    let (heading, row) = table.out.split_once('\n').unwrap();
    assert!(heading.starts_with("NAME") && row.contains("every 500ms"), "{table:?}");
    assert_eq!(running.json(&["schedules"])[0]["id"], "fast");
    let next = running.json(&["next", "tick", "-n", "3"]);
    assert_eq!(next.as_array().unwrap().len(), 3);
    assert_eq!(next[0]["schedule"], "fast");
    let of_day = running.json(&["next", "tick", "-n", "1", "--from", "2099-12-01"]);
    assert_eq!(of_day[0]["at"], "2099-12-01T00:00:00.000Z", "{of_day}");
    let from = ["next", "tick", "-n", "1", "--from", "2026-10-25T00:30:00Z"];
    assert_eq!(running.json(&from)[0]["at"], "2026-10-25T00:30:00.000Z");
    let table = running.run_cli(&from);
    assert!(table.out.contains("Sun 2026-10-25 00:30:00 +00:00"), "{table:?}");
    let of = |filter: &[&str]| running.json(&[&["fires", "tick"], filter].concat());
    assert_ne!(of(&["--schedule", "fast", "--since", "1h"]), json!([]));
    assert_eq!(of(&["--until", "1h"]), json!([]));
    assert_eq!(running.run_cli(&["fires", "tick", "--schedule", "slow"]).code, 4);
    let fires = running.run_cli(&["fires", "tick", "--limit", "2"]);
    assert!(fires.out.lines().count() == 3 && fires.out.contains("fired"), "{fires:?}");
    assert_eq!(running.json(&["fires", "tick", "--limit", "2"]).as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_read_page_by_page_and_wrong_requests_are_refused() {
    let running = Running::start(JOBS_FILE).await;
    running.until_fired(5).await;
    assert_eq!(running.post("/api/schedules/pause").await.0, 204);
    let all = running.api.get("/api/definitions/tick/fires?limit=500").await;
    let (newest, mut path) = (all[0]["from"].clone(), "/api/definitions/tick/fires?limit=2".to_owned());
    let mut paged = Vec::new();
    loop {
        let answer = running.api.request(Method::GET, &path, None, None).await.unwrap();
        assert!(answer.is_success(), "{path}: {answer:?}");
        paged.extend(answer.body.as_array().unwrap().iter().map(|row| row["from"].clone()));
        let Some(next) = answer.next else { break };
        path = next;
    }
    // A row of the pause may have come in front meanwhile.
    let paged: Vec<Value> = paged.into_iter().skip_while(|slot| *slot != newest).collect();
    let whole: Vec<Value> = all.as_array().unwrap().iter().map(|row| row["from"].clone()).collect();
    assert_eq!(paged, whole, "no row is missing or shown twice");
    assert_eq!(running.api.get("/api/definitions/plain/fires").await, json!([]));
    for (path, status, code) in [
        ("/api/definitions/tick/fires?limit=0", 400, "invalid_limit"),
        ("/api/definitions/tick/fires?cursor=x", 400, "invalid_cursor"),
        ("/api/definitions/other/fires", 404, "unknown_job"),
        ("/api/schedules?next=101", 400, "invalid_limit"),
        ("/api/schedules?name=other", 404, "unknown_job"),
    ] {
        let answer = running.api.request(Method::GET, path, None, None).await.unwrap();
        assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_schedule_skips_its_slots_and_never_fires_them_later() {
    let running = Running::start(JOBS_FILE).await;
    running.until_fired(1).await;
    for (on, off) in [
        (&["pause", "tick"][..], &["resume", "tick"][..]),
        (&["pause", "tick", "--schedule", "fast"], &["resume", "tick", "--schedule", "fast"]),
        (&["pause", "--schedules"], &["resume", "--schedules"]),
        (&["pause", "--all"], &["resume", "--all"]),
    ] {
        let paused = running.run_cli(on);
        assert!(paused.code == 0 && paused.out.ends_with(" paused\n"), "{paused:?}");
        assert_eq!(running.state().await, "paused");
        let before = running.fired().await;
        wait_until("a slot is skipped", async || {
            let row = running.api.get("/api/definitions/tick/fires?limit=1").await[0].clone();
            row["verdict"] == "skipped" && row["reason"] == "paused"
        })
        .await;
        assert_eq!(running.fired().await, before, "nothing fires");
        assert_eq!(running.run_cli(on).code, 0, "it may be output twice");
        let resumed = running.run_cli(off);
        assert!(resumed.code == 0 && resumed.out.ends_with(" resumed\n"), "{resumed:?}");
        assert_eq!(running.state().await, "active");
        let rows = running.until_fired(before.len() + 1).await;
        let skipped = running.api.get("/api/definitions/tick/fires?limit=500").await;
        let skipped =
            skipped.as_array().unwrap().iter().find(|row| row["reason"] == "paused").unwrap().clone();
        let last_skipped = skipped["to"].as_str().unwrap();
        assert!(rows[rows.len() - before.len() - 1].0.as_str() > last_skipped, "{rows:?}, {skipped}");
    }
    let mut paused = running.json(&["pause", "tick"]);
    assert!(paused["since"].take().is_string(), "{paused}");
    let expected = json!({"name": "tick", "schedule": null, "group": null, "batch": null, "state": "paused", "changed": true,
        "since": null, "until": null, "by": null, "reason": null, "replaced": null, "others": []});
    assert_eq!(paused, expected);
    for (path, expected) in [
        ("/api/definitions/other/pause", (404, json!("unknown_job"))),
        ("/api/definitions/tick/pause?schedule=other", (404, json!("unknown_schedule"))),
        ("/api/definitions/tick/pause?other=1", (400, json!("invalid_query"))),
        ("/api/schedules/stop", (404, json!("not_found"))),
    ] {
        assert_eq!(running.post(path).await, expected, "{path}");
    }
    let unknown = running.run_cli(&["pause", "tick", "--schedule", "other"]);
    assert!(unknown.code == 4 && unknown.err.contains("unknown_schedule"), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_schedule_tells_the_end_of_its_pause_and_fires_after_it() {
    let running = Running::start(JOBS_FILE).await;
    running.until_fired(1).await;
    assert_eq!(running.run_cli(&["pause", "tick", "--schedule", "fast", "--for", "1h"]).code, 0);
    let until = running.api.get("/api/pauses").await[0]["until"].clone();
    let shown = running.api.get("/api/schedules?name=tick").await[0].clone();
    assert_eq!((&shown["state"], &shown["paused_until"]), (&json!("paused"), &until), "{shown}");
    let table = running.run_cli(&["schedules"]);
    assert!(table.out.contains(&format!("paused until {}", until.as_str().unwrap())), "{table:?}");
    assert!(table.out.contains(&format!("after {}", until.as_str().unwrap())), "{table:?}");
    let page = String::from_utf8(running.api.get_bytes("/schedules").await).unwrap();
    assert!(page.contains("<td data-label=\"next\"><span class=\"muted\">paused</span>"), "{page}");
    // A slot at the end of the pause fires.
    for (from, state) in [(None, "paused"), (until.as_str(), "active")] {
        let from = from.map(|from| vec!["--from", from]).unwrap_or_default();
        let slots = running.json(&[&["next", "tick", "-n", "1"], from.as_slice()].concat());
        assert_eq!(slots[0]["state"], state, "{slots}");
        let table = running.run_cli(&[&["next", "tick", "-n", "1"], from.as_slice()].concat());
        assert!(table.out.contains(state), "{table:?}");
    }
    assert_eq!(running.run_cli(&["pause", "--all"]).code, 0);
    let shown = running.api.get("/api/schedules?name=tick").await[0].clone();
    assert_eq!(shown["paused_until"], Value::Null, "another pause has no end: {shown}");
    assert_eq!(running.run_cli(&["resume", "--all"]).code, 0);

    let again = running.run_cli(&["pause", "tick", "--schedule", "fast", "--for", "1s"]);
    assert_eq!(again.out, "tick/fast paused for 1s\n", "{again:?}");
    let before = running.fired().await;
    running.until_fired(before.len() + 1).await;
    assert_eq!(running.state().await, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_schedule_is_shown_as_disabled_while_everything_is_paused() {
    let running = Running::start(&JOBS_FILE.replace("overlap: allow", "enabled: false")).await;
    assert_eq!(running.state().await, "disabled");
    let listed = running.api.get("/api/definitions").await;
    assert!(listed.as_array().unwrap().iter().all(|it| it.get("next_fire_at").is_none()), "{listed}");
    assert_eq!(running.run_cli(&["pause", "--all"]).code, 0);
    assert_eq!(running.state().await, "disabled", "resuming would not bring its jobs back");
    assert!(running.api.get("/api/schedules?name=tick").await[0]["paused_since"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_fires_each_slot_once() {
    let mut running = Running::start(JOBS_FILE).await;
    let mut count = 2;
    for _ in 0..3 {
        let rows = running.until_fired(count).await;
        running.server.kill();
        running.server = running.cluster.start_server(&[]).await;
        count = rows.len() + 2;
    }
    running.until_fired(count).await;
    assert_eq!(running.post("/api/schedules/pause").await.0, 204);
    let ledger = running.fired().await;
    let slots: BTreeSet<&String> = ledger.iter().map(|(slot, _)| slot).collect();
    assert_eq!(slots.len(), ledger.len(), "a slot has one row");
    let jobs = running.api.all_jobs().await;
    let jobs = jobs.iter().filter(|job| job["name"] == "tick");
    let made: Vec<(String, u64)> = jobs
        .map(|job| (job["scheduled_at"].as_str().unwrap().to_owned(), job["id"].as_u64().unwrap()))
        .collect();
    assert_eq!(made.len(), ledger.len(), "each job has its row, and each row its job");
    let by_slot = |rows: Vec<(String, u64)>| rows.into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(by_slot(made), by_slot(ledger));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_does_not_exist_is_named_where_it_is_paused() {
    let running = Running::start(JOBS_FILE).await;
    let refused = running.run_cli(&["pause", "tick", "--schedule", "slow"]);
    assert!(refused.err.contains("\"tick\" has no schedule \"slow\""), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_makes_the_jobs_of_skipped_slots_once() {
    let running = Running::start(JOBS_FILE).await;
    running.until_fired(1).await;
    assert_eq!(running.run_cli(&["pause", "tick", "--schedule", "fast"]).code, 0);
    let skipped = wait_for("three slots are skipped", async || {
        let row = running.api.get("/api/definitions/tick/fires?limit=1").await[0].clone();
        (row["reason"] == "paused" && row["count"].as_u64() >= Some(3)).then_some(row)
    })
    .await;
    let (from, to) = (skipped["from"].as_str().unwrap(), skipped["to"].as_str().unwrap());
    let range = ["backfill", "tick", "--from", from, "--to", to];
    let dry = running.json(&[&range[..], &["--dry-run"]].concat());
    assert_eq!((&dry["count"], &dry["batch"]), (&skipped["count"], &Value::Null), "{dry}");
    assert!(dry["slots"].as_array().unwrap().iter().all(|slot| slot["result"] == "open"), "{dry}");

    let made = running.json(&range);
    assert_eq!(made["count"], skipped["count"], "{made}");
    for slot in made["slots"].as_array().unwrap() {
        let job = slot["job"].as_u64().unwrap();
        let shown = running.api.wait_for_job(job, |job| job["state"] == "succeeded").await;
        assert_eq!((&shown["schedule"], &shown["scheduled_at"]), (&json!("fast"), &slot["slot"]));
        assert_eq!(shown["batch"], made["batch"]);
    }
    let again = running.json(&range);
    assert_eq!((&again["count"], &again["batch"]), (&json!(0), &Value::Null), "{again}");
    let future = running.run_cli(&["backfill", "tick", "--from", "2999-01-01"]);
    assert!(future.code == 2 && future.err.contains("in the future"), "{future:?}");
    let reversed = running.run_cli(&["backfill", "tick", "--from", "2026-01-02", "--to", "2026-01-01"]);
    assert!(reversed.code == 2 && reversed.err.contains("later than \"to\""), "{reversed:?}");
    assert!(!future.err.contains("later than") && !reversed.err.contains("in the future"), "one cause each");
    let results = again["slots"].as_array().unwrap().iter().map(|slot| &slot["job"]);
    let jobs = made["slots"].as_array().unwrap().iter().map(|slot| &slot["job"]);
    assert!(results.eq(jobs), "each slot has the job that it had: {again}");
    assert!(running.run_cli(&range).err.contains("no slot of this range is without a job"));
    let rows = running.api.get("/api/definitions/tick/fires?limit=500").await;
    let count = rows.as_array().unwrap().iter().filter(|row| row["verdict"] == "backfilled").count();
    assert_eq!(json!(count), skipped["count"], "the ledger has each of them: {rows}");

    let base = "/api/definitions/tick/backfill";
    for (path, expected) in [
        (format!("{base}?to={to}"), (422, json!("missing_field"))),
        (format!("{base}?from=yesterday"), (400, json!("invalid_query"))),
        (format!("{base}?from=2026-02-30"), (400, json!("invalid_query"))),
        (format!("{base}?from=2020-01-01&to=2020-01-01"), (413, json!("too_many_jobs"))),
        (format!("{base}?from=2020-01-02&to=2020-01-01"), (400, json!("invalid_query"))),
        (format!("{base}?from=2100-01-01T00:00:00Z"), (400, json!("invalid_query"))),
        (format!("{base}?from=2020-01-01T00:00:00Z"), (413, json!("too_many_jobs"))),
        (format!("{base}?from={from}&schedule=other"), (404, json!("unknown_schedule"))),
        (format!("{base}?from={from}&intervall=1s"), (400, json!("invalid_query"))),
        (format!("/api/definitions/plain/backfill?from={from}"), (404, json!("unknown_schedule"))),
        (format!("/api/definitions/other/backfill?from={from}"), (404, json!("unknown_job"))),
    ] {
        assert_eq!(running.post(&path).await, expected, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_of_a_paused_schedule_leaves_no_passed_slot_undecided() {
    let running = Running::start(JOBS_FILE).await;
    running.until_fired(1).await;
    assert_eq!(running.run_cli(&["pause", "tick", "--schedule", "fast"]).code, 0);
    let first = wait_for("a slot is skipped", async || {
        let row = running.api.get("/api/definitions/tick/fires?limit=1").await[0].clone();
        (row["reason"] == "paused").then_some(row)
    })
    .await;
    let range = ["backfill", "tick", "--from", first["from"].as_str().unwrap(), "--dry-run"];
    let dry = wait_for("further slots pass", async || {
        let dry = running.json(&range);
        (dry["slots"].as_array().unwrap().len() >= 4).then_some(dry)
    })
    .await;
    assert!(dry["slots"].as_array().unwrap().iter().all(|slot| slot["result"] == "open"), "{dry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_can_run_now_as_its_schedule_would_and_takes_no_slot() {
    let running = Running::start(JOBS_FILE).await;
    assert_eq!(running.run_cli(&["pause", "--schedules"]).code, 0);
    let before = running.fired().await;
    let now = running.run_cli(&["run", "tick", "--as-scheduled", "--follow"]);
    assert!(now.code == 0 && now.out.starts_with("fast 20"), "{now:?}");
    assert_eq!(running.run_cli(&["run", "tick", "--as-scheduled", "--schedule", "fast", "-q"]).code, 0);
    assert_eq!(running.fired().await, before, "no slot is used");
    let newest = running.api.all_jobs().await[0].clone();
    assert_eq!(newest["scheduled_at"], Value::Null, "{newest}");
    for (path, expected) in [
        ("/api/jobs/plain?as_scheduled=1", (404, json!("unknown_schedule"))),
        ("/api/jobs/tick?as_scheduled=1&schedule=fats", (404, json!("unknown_schedule"))),
        ("/api/jobs/tick?schedule=fast", (400, json!("invalid_query"))),
    ] {
        assert_eq!(running.post(path).await, expected, "{path}");
    }
    // A retry with changes keeps the variables of the slot.
    let job = newest["id"].as_u64().unwrap();
    running.api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    let retried = running.run_cli(&["retry", &job.to_string(), "-e", "MORE=1"]);
    assert_eq!(retried.code, 0, "{retried:?}");
}

#[test]
fn the_next_slots_of_a_rule_need_no_server() {
    let rule = ["next", "--cron", "0 2 * * *", "--timezone", "Europe/Berlin", "-n", "2"];
    let table = run(&mut longshore(&rule));
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(table.code == 0 && lines.len() == 3 && lines[0].starts_with("UTC "), "{table:?}");
    assert!(lines[1..].iter().all(|line| line.contains(" 02:00:00 +0")), "{table:?}");
    let from =
        ["next", "--cron", "30 * * * *", "--timezone", "Europe/Berlin", "--from", "2026-10-25T00:30:00Z"];
    let twice = run(&mut longshore(&[&from[..], &["-n", "2"]].concat()));
    let offsets: Vec<&str> = twice.out.lines().skip(1).filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(offsets, ["+02:00", "+01:00"], "{twice:?}");
    let of_day = run(&mut longshore(&[&rule[..], &["--from", "2026-12-01"]].concat()));
    assert!(of_day.out.contains("2026-12-01T01:00:00.000Z"), "{of_day:?}");
    let json = run(&mut longshore(&[&rule[..], &["-o", "json"]].concat()));
    assert_eq!(serde_json::from_str::<Value>(&json.out).unwrap().as_array().unwrap().len(), 2);
    for (arguments, why) in [
        (&["next", "--cron", "0 2 * *"][..], "5 fields, or 6 with seconds first"),
        (&["next", "--cron", "0 0 30 2 *"], "never fires"),
        (&["next", "--every", "1ms"], "100"),
        (
            &["next", "--cron", "0 2 * * *", "--timezone", "Europe/Berln"],
            "\"Europe/Berln\" is no time zone; did you mean Europe/Berlin?",
        ),
    ] {
        let refused = run(&mut longshore(arguments));
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(why) && refused.err.lines().count() == 1, "{arguments:?}: {refused:?}");
    }
}

const JOBS_FILE: &str = r#"
jobs:
  tick:
    runtime: process
    command: [sh, -c, 'echo "$$LONGSHORE_SCHEDULE_ID $$LONGSHORE_SCHEDULED_AT"']
    overlap: allow
    schedule: { id: fast, every: 500ms }
  plain:
    runtime: process
    command: ["true"]
"#;
