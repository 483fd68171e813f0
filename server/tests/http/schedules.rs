//! Schedules: their slots from an instant on, and the rows of their ledger that a request selects.

use longshore_server::store::FireRecord;
use protocol::{JobId, Timestamp};
use scheduler::job::State;
use scheduler::schedule::ScheduleId;
use scheduler::schedule::catch_up::SlotCount;
use scheduler::schedules::{FireRow, FireVerdict, ScheduleRow, SkipReason};
use serde_json::{Value, json};

use crate::support::Server;

const JOBS: &str = "{report: {image: r, schedule: [
    {id: hourly, cron: '30 * * * *', timezone: Europe/Berlin},
    {id: daily, at: '02:30', timezone: Europe/Berlin}]}, plain: {image: p}}";

async fn start() -> Server {
    let server = Server::start().await;
    std::fs::write(&server.jobs_file, format!("jobs: {JOBS}\n")).expect("a place for jobs.yaml");
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    server
}

/// Adds a row for the slots from and to these instants, in seconds since 1970.
fn add(server: &Server, schedule: &str, (from, to): (i64, i64), verdict: FireVerdict) {
    let (from, to) = (Timestamp(from * 1_000), Timestamp(to * 1_000));
    let count = SlotCount { count: 1, exact: true };
    let (definition, schedule) = ("report".into(), ScheduleId::named(schedule));
    let row = FireRow { definition, schedule, from, to, count, verdict, at: to };
    let mut world = server.stand.world();
    let id = world.fires.len() as u64 + 1;
    world.fires.push(FireRecord { id, row });
}

/// The beginnings of the rows, without their dates.
fn beginnings(rows: &Value) -> Vec<&str> {
    let rows = rows.as_array().expect("a list").iter();
    rows.map(|row| &row["from"].as_str().expect("an instant")[11..19]).collect()
}

#[tokio::test]
async fn the_ledger_is_narrowed_by_schedule_and_time() {
    let server = start().await;
    add(&server, "hourly", (10, 10), FireVerdict::Fired(JobId(1)));
    add(&server, "daily", (20, 20), FireVerdict::Fired(JobId(2)));
    add(&server, "hourly", (30, 50), FireVerdict::Skipped(SkipReason::Paused));
    add(&server, "removed", (60, 60), FireVerdict::Fired(JobId(3)));
    let rows = async |query: &str| server.get(&format!("/api/definitions/report/fires?{query}")).await.json();
    assert_eq!(beginnings(&rows("schedule=hourly").await), ["00:00:30", "00:00:10"]);
    assert_eq!(beginnings(&rows("schedule=removed").await), ["00:01:00"]);
    let since = "since=1970-01-01T00:00:20Z";
    assert_eq!(beginnings(&rows(since).await), ["00:01:00", "00:00:30", "00:00:20"]);
    let until = "until=1970-01-01T00:00:30Z";
    assert_eq!(beginnings(&rows(until).await), ["00:00:20", "00:00:10"]);
    let within = "since=1970-01-01T00:00:40Z&until=1970-01-01T00:00:41Z";
    assert_eq!(beginnings(&rows(within).await), ["00:00:30"], "a row with a slot in the range");
    assert_eq!(rows(&format!("schedule=daily&{within}")).await, json!([]));
}

#[tokio::test]
async fn the_next_page_of_the_ledger_keeps_its_filters() {
    let server = start().await;
    for at in 1..=4 {
        add(&server, if at == 3 { "daily" } else { "hourly" }, (at, at), FireVerdict::Fired(JobId(1)));
    }
    let path = "/api/definitions/report/fires?schedule=hourly&since=1970-01-01T00:00:02Z&limit=1";
    let first = server.get(path).await;
    assert_eq!(beginnings(&first.json()), ["00:00:04"]);
    let link = first.header("link");
    let next = link.strip_prefix('<').and_then(|link| link.split_once('>')).expect("a next page").0;
    let second = server.get(next).await;
    assert_eq!((beginnings(&second.json()), second.header("link")), (vec!["00:00:02"], ""));
}

#[tokio::test]
async fn a_slot_shows_how_its_job_and_the_last_retry_of_that_ended() {
    let server = start().await;
    for state in [State::Succeeded, State::Failed, State::Failed] {
        assert_eq!(server.post("/api/jobs/report", "").await.status, 201);
        let job = server.stand.world().jobs.len() as u64;
        server.stand.world().end(job, state, i32::from(state == State::Failed) * 3);
    }
    for job in 1..=3 {
        add(&server, "hourly", (job, job), FireVerdict::Fired(JobId(job.cast_unsigned())));
    }
    add(&server, "hourly", (4, 4), FireVerdict::Skipped(SkipReason::Overlap(JobId(3))));
    add(&server, "gone", (5, 5), FireVerdict::Fired(JobId(99)));
    // A retry of a retry: the last one counts.
    for job in [3, 4] {
        assert_eq!(server.post(&format!("/api/jobs/{job}/retry"), "").await.status, 201);
        server.stand.world().end(job + 1, State::Failed, 5);
    }
    let rows = async |query: &str| server.get(&format!("/api/definitions/report/fires{query}")).await.json();
    let all = rows("").await;
    let shown = |row: usize| ["state", "unresolved", "timezone"].map(|key| all[row][key].clone());
    assert_eq!(shown(0), [Value::Null, Value::Null, Value::Null], "its job was deleted");
    assert_eq!(shown(1), [Value::Null, Value::Null, json!("Europe/Berlin")], "another job was in its way");
    assert_eq!(shown(2), [json!("failed"), json!(true), json!("Europe/Berlin")]);
    assert_eq!((&all[2]["retry"]["id"], &all[2]["retry"]["state"]), (&json!(5), &json!("failed")));
    assert_eq!((shown(3)[1].clone(), &all[3]["retry"]), (json!(true), &Value::Null));
    assert_eq!(shown(4)[..2], [json!("succeeded"), Value::Null]);
    assert_eq!(beginnings(&rows("?failed=1").await), ["00:00:03", "00:00:02"]);
    let page = server.get("/api/definitions/report/fires?failed=1&limit=1").await;
    assert_eq!(beginnings(&page.json()), ["00:00:03"]);
    let link = page.header("link");
    let next = link.strip_prefix('<').and_then(|link| link.split_once('>')).expect("a next page").0;
    let last = server.get(next).await;
    assert_eq!((beginnings(&last.json()), last.header("link")), (vec!["00:00:02"], ""));
    server.stand.world().end(5, State::Succeeded, 0);
    assert_eq!(beginnings(&rows("?failed=1").await), ["00:00:02"]);
    server.get("/api/definitions/report/fires?failed=2").await.is_problem(400, "invalid_query");

    let page = server.get("/schedules?name=report").await.body;
    assert!(page.contains("job 5</a> <span class=\"state good\">succeeded</span>"), "{page}");
    let failed = server.get("/schedules?name=report&failed=1").await.body;
    assert!(failed.contains("href=\"/jobs/2\"") && !failed.contains("href=\"/jobs/1\""), "{failed}");
}

#[tokio::test]
async fn wrong_filters_of_the_ledger_are_refused() {
    let server = start().await;
    let fires = "/api/definitions/report/fires";
    let unknown = server.get(&format!("{fires}?schedule=hourli")).await.is_problem(404, "unknown_schedule");
    assert_eq!(unknown["near"], json!(["hourly"]));
    server.get(&format!("{fires}?since=yesterday")).await.is_problem(400, "invalid_query");
    server.get("/api/definitions/plain/fires?schedule=x").await.is_problem(404, "unknown_schedule");
    assert_eq!(server.get(&format!("{fires}?schedule=hourly")).await.json(), json!([]));
    for time in ["since", "until"] {
        let query = format!("schedule=hourli&{time}=1970-01-01T00:00:20Z");
        server.get(&format!("{fires}?{query}")).await.is_problem(404, "unknown_schedule");
    }
}

#[tokio::test]
async fn what_has_left_the_file_is_known_by_its_rows_also_if_a_filter_fits_none() {
    let server = start().await;
    add(&server, "removed", (10, 10), FireVerdict::Fired(JobId(1)));
    add(&server, "old", (10, 10), FireVerdict::Fired(JobId(2)));
    server.stand.world().fires[1].row.definition = "gone".into();
    let late = "since=1970-01-01T00:00:20Z";
    let rows = async |path: &str| server.get(&format!("/api/definitions/{path}")).await;
    for path in ["report/fires?schedule=removed", "gone/fires?", "gone/fires?schedule=old"] {
        assert_eq!(rows(&format!("{path}&{late}")).await.json(), json!([]), "{path}");
    }
    for path in ["gone/fires?schedule=odl", "report/fires?schedule=old"] {
        rows(path).await.is_problem(404, "unknown_schedule");
        rows(&format!("{path}&{late}")).await.is_problem(404, "unknown_schedule");
    }
    rows(&format!("never/fires?{late}")).await.is_problem(404, "unknown_job");
    rows(&format!("never/fires?schedule=old&{late}")).await.is_problem(404, "unknown_job");
}

#[tokio::test]
async fn slots_are_shown_from_an_instant_on() {
    let server = start().await;
    let schedules =
        async |query: &str| server.get(&format!("/api/schedules?name=report&{query}")).await.json();
    // The hour from 00:00 to 01:00 UTC and the next one have the same local times.
    let shown = schedules("next=2&from=2026-10-25T00:30:00Z").await;
    assert_eq!(shown[0]["next"], json!(["2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z"]));
    assert_eq!(shown[1]["next"], json!(["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]));
    let past = schedules("next=1&from=2020-01-01T00:00:00Z").await;
    assert_eq!(
        (&past[0]["next"], &past[0]["state"]),
        (&json!(["2020-01-01T00:30:00.000Z"]), &json!("active"))
    );
    // The zone of these schedules is two hours ahead of UTC on that day.
    let of_day = schedules("next=1&from=2026-10-24").await;
    assert_eq!(of_day[0]["next"], json!(["2026-10-23T22:30:00.000Z"]), "{of_day}");
    assert_eq!(of_day[1]["next"], json!(["2026-10-24T00:30:00.000Z"]), "{of_day}");
    server.get("/api/schedules?from=soon").await.is_problem(400, "invalid_query");
}

#[tokio::test]
async fn a_schedule_shows_all_that_decides_about_its_jobs() {
    let server = Server::start().await;
    let jobs = "jobs: {report: {image: r, allow: [args, environment], catch_up: all, catch_up_window: 2h, catch_up_limit: 7, schedule:
        [{id: spread, cron: '0 * * * *', jitter: 10m, start_at: 2026-01-01T00:00:00Z, end_at: 2100-01-01T00:00:00Z,
          args: [--all], environment: {TOKEN: swordfish}}, {id: plain, cron: '0 * * * *'}]}}\n";
    std::fs::write(&server.jobs_file, jobs).expect("a place for jobs.yaml");
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");

    let answer = server.get("/api/definitions/report").await;
    assert!(!answer.body.contains("swordfish"), "{answer:?}");
    let shown = answer.json();
    assert_eq!(
        (&shown["catch_up"], &shown["catch_up_window_ms"], &shown["catch_up_limit"]),
        (&json!("all"), &json!(7_200_000), &json!(7))
    );
    let (spread, plain) = (&shown["schedules"][0], &shown["schedules"][1]);
    for (key, value) in [
        ("jitter_ms", json!(600_000)),
        ("start_at", json!("2026-01-01T00:00:00.000Z")),
        ("end_at", json!("2100-01-01T00:00:00.000Z")),
        ("args", json!(["--all"])),
        ("environment", json!(["TOKEN"])),
    ] {
        assert_eq!((&spread[key], plain.get(key)), (&value, None), "{key}");
    }
    let instants = |list: &Value| -> Vec<i64> {
        let list = list.as_array().expect("a list").iter();
        list.map(|at| at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()).collect()
    };
    let (slots, due) = (instants(&spread["next"]), instants(&spread["next_due"]));
    assert_eq!(slots.len(), due.len());
    assert!(slots.iter().zip(&due).all(|(slot, due)| (0..=600_000).contains(&(due - slot))), "{spread}");
    assert!(slots != due && plain.get("next_due").is_none(), "{shown}");
    let page = server.get("/definitions/report").await.body;
    for text in ["up to 10m", "arguments --all, variables TOKEN", "all within 2h", "at most 7", ">fires "] {
        assert!(page.contains(text), "no {text} in {page}");
    }

    // A slot that fired when it was due is not late, here as in the last fire.
    let (slot, due) = (Timestamp(slots[0]), Timestamp(due[0]));
    let count = SlotCount { count: 1, exact: true };
    let verdict = FireVerdict::Fired(JobId(1));
    let (definition, schedule) = ("report".into(), ScheduleId::named("spread"));
    let row =
        FireRow { definition, schedule, from: slot, to: slot, count, verdict, at: Timestamp(due.0 + 3) };
    server.stand.world().fires.push(FireRecord { id: 1, row });
    let fires = server.get("/api/definitions/report/fires").await.json();
    assert_eq!(fires[0]["lateness_ms"], 3, "{fires}");
}

/// Lets the schedule `hourly` have decided its slots up to this number of seconds from now. Returns that time.
fn decide_ahead(server: &Server, seconds: i64) -> jiff::Timestamp {
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    let cursor = Timestamp(until.as_millisecond());
    let row = ScheduleRow {
        definition: "report".into(),
        schedule: ScheduleId::named("hourly"),
        cursor,
        fingerprint: 0,
        removed_at: None,
        last_fire: None,
    };
    server.stand.world().schedules.rows = vec![row];
    server.snapshot.send_modify(|snapshot| std::sync::Arc::make_mut(snapshot).latest_slot = Some(cursor));
    until
}

#[tokio::test]
async fn a_schedule_that_is_silent_because_the_clock_was_set_back_is_told_everywhere() {
    let server = start().await;
    let until = decide_ahead(&server, 172_800).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let listed = server.get("/api/schedules").await.json();
    let told = listed[0]["decided_until"].as_str().expect("a time");
    assert!(told.starts_with(&until) && listed[1].get("decided_until").is_none(), "{listed}");
    let warning = format!("schedules: the clock was set back, and slots up to {until}");
    let ready = server.get("/readyz").await;
    assert!(ready.status == 200 && ready.body.contains(&format!("ready\nwarning: {warning}")), "{ready:?}");
    assert!(server.get("/").await.body.contains(&warning));
    for page in ["/schedules", "/definitions/report"] {
        let body = server.get(page).await.body;
        assert!(body.matches("fires nothing until").count() == 1 && body.contains(&until), "{page}: {body}");
    }
    assert!(server.get("/metrics").await.body.contains("longshore_schedules_silent 1\n"));

    let version = server.get("/version").await.json();
    assert!(
        version["time"].as_str().is_some_and(|time| time < until.as_str()),
        "the clock itself: {version}"
    );

    // A time service corrects a clock by less.
    decide_ahead(&server, 30);
    assert!(server.get("/api/schedules").await.json()[0].get("decided_until").is_none());
    assert_eq!(server.get("/readyz").await.body, "ready\n");
    assert!(server.get("/metrics").await.body.contains("longshore_schedules_silent 0\n"));
}

#[tokio::test]
async fn the_page_of_one_definition_does_not_pause_the_schedules_of_all() {
    let server = start().await;
    let pauses = |page: &str| page.contains("action=\"/schedules/pause\"");
    let all = server.get("/schedules").await.body;
    assert!(pauses(&all) && all.contains("Pause all schedules of the server?"), "{all}");
    let one = server.get("/schedules?name=report").await.body;
    assert!(one.contains("Schedules of") && !pauses(&one), "{one}");
    let none = server.get("/schedules?name=plain").await.body;
    assert!(
        none.contains("plain has no schedule.") && !none.contains("No definition has a schedule"),
        "{none}"
    );
}
