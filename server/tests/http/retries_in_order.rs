//! Retries by filters: in the order of slots, once for each chain of retries, and the same answer to the same request.

use longshore_server::auth::role::Role;
use longshore_server::store::JobSlot;
use protocol::{JobId, Timestamp};
use scheduler::job::State;
use serde_json::{Value, json};

use crate::refused_pages::with_token;
use crate::support::Server;

/// A server with this number of failed jobs; the slots of these are days.
async fn with_failed_jobs(count: u64, slot_of: impl Fn(u64) -> Option<i64>) -> Server {
    let server = Server::start().await;
    let body = format!("[{}]", vec![r#"{"name":"resize"}"#; count as usize].join(","));
    assert_eq!(server.post("/api/jobs", &body).await.status, 201);
    let mut world = server.stand.world();
    for job in 1..=count {
        let slot =
            slot_of(job).map(|day| JobSlot { schedule: "nightly".into(), at: Timestamp(day * DAY_MS) });
        world.record(job).row.slot = slot;
        world.end(job, State::Failed, 1);
    }
    drop(world);
    server
}

const DAY_MS: i64 = 86_400_000;

async fn retry(server: &Server, query: &str, key: Option<&str>) -> Value {
    let headers: Vec<(&str, &str)> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
    let answer = server.ask("POST", &format!("/api/jobs/retry?{query}"), &headers, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// The jobs that were retried, and the new jobs.
fn pairs(result: &Value) -> Vec<(u64, u64)> {
    let pair = |it: &Value| (it["job"].as_u64().expect("a job"), it["made"].as_u64().expect("a job"));
    result["retries"].as_array().map(|all| all.iter().map(pair).collect()).unwrap_or_default()
}

#[tokio::test]
async fn jobs_are_retried_in_the_order_of_their_slots_and_those_without_one_last() {
    // More than the server reads at once. Each seventh job has no slot; two jobs share each slot.
    let slot_of =
        |job: u64| (!job.is_multiple_of(7)).then_some(i64::try_from(job * 7919 % 260).expect("a day"));
    let server = with_failed_jobs(520, slot_of).await;
    let result = retry(&server, "state=failed", None).await;
    let made = pairs(&result);
    let mut expected: Vec<u64> = (1..=520).collect();
    expected.sort_by_key(|job| (slot_of(*job).unwrap_or(i64::MAX), *job));
    let retried: Vec<u64> = made.iter().map(|(job, _)| *job).collect();
    assert_eq!(retried, expected);
    assert!(made.is_sorted_by_key(|(_, made)| *made), "the new jobs have their numbers in this order");
    assert_eq!((&result["jobs"][0], &result["ordered"]), (&json!(made[0].1), &json!(true)));
}

#[tokio::test]
async fn a_continuation_keeps_the_order_and_takes_none_of_its_own_jobs() {
    for (query, key) in [("name=resize", None), ("name=resize", Some("k")), ("unresolved=1", Some("k"))] {
        check_continuation(query, key).await;
    }
}

async fn check_continuation(query: &str, key: Option<&str>) {
    let server = with_failed_jobs(250, |job| Some(250 - i64::try_from(job).expect("a day"))).await;
    server.stand.world().fills_disk_at = Some((350, server.storage.clone()));
    let first = retry(&server, query, key).await;
    let next = first["next"].as_str().expect("a cursor").to_owned();
    server.storage.note(1 << 40, 1 << 40);
    // The new jobs have failed meanwhile: they are newer than the operation.
    for (_, made) in pairs(&first) {
        server.stand.world().end(made, State::Failed, 1);
    }
    let second = retry(&server, &format!("{query}&cursor={next}"), key).await;
    assert!(second.get("next").is_none(), "{second}");
    let all = [pairs(&first), pairs(&second)].concat();
    let retried: Vec<u64> = all.iter().map(|(job, _)| *job).collect();
    assert_eq!(retried, (1..=250).rev().collect::<Vec<u64>>());
    assert!(all.is_sorted_by_key(|(_, made)| *made));
    assert_eq!((first["matched"].as_u64(), second["matched"].as_u64()), (Some(200), Some(50)));
    assert_eq!(second["retried_before"], Value::Null, "those of the first request are done: {second}");
    let of_a_list = "name=resize&cursor=AAAAAAAAAAA";
    server
        .ask("POST", &format!("/api/jobs/retry?{of_a_list}"), &[], "")
        .await
        .is_problem(400, "invalid_cursor");
}

#[tokio::test]
async fn a_chain_of_retries_is_retried_once_and_not_after_a_success() {
    let server = with_failed_jobs(3, |job| Some(i64::try_from(job).expect("a day"))).await;
    for job in 1..=2 {
        assert_eq!(server.post(&format!("/api/jobs/{job}/retry"), "").await.status, 201);
    }
    server.stand.world().end(4, State::Failed, 1);
    server.stand.world().end(5, State::Succeeded, 0);
    let counted = retry(&server, "schedule=nightly&state=failed&dry_run=1", None).await;
    assert_eq!((&counted["matched"], &counted["retried_before"]), (&json!(2), &json!(2)), "{counted}");
    let result = retry(&server, "schedule=nightly&state=failed", None).await;
    assert_eq!(pairs(&result), [(4, 6), (3, 7)]);
    let left_out =
        json!([{"job": 2, "retry": 5, "state": "succeeded"}, {"job": 1, "retry": 4, "state": "failed"}]);
    assert_eq!((&result["left_out"], &result["retried_before"]), (&left_out, &json!(2)), "{result}");
    assert_eq!((&result["matched"], &result["done"], &result["refused"]), (&json!(2), &json!(2), &json!(0)));
    let again = retry(&server, "schedule=nightly&state=failed", None).await;
    let last = json!({"job": 1, "retry": 6, "state": "queued"});
    assert_eq!((&again["matched"], &again["left_out"][3]), (&json!(0), &last), "{again}");
}

#[tokio::test]
async fn the_same_request_has_the_same_answer_also_if_its_jobs_have_failed_since() {
    let server = with_failed_jobs(4, |job| Some(10 - i64::try_from(job).expect("a day"))).await;
    assert_eq!(server.post("/api/jobs/1/retry", "").await.status, 201);
    for query in ["state=failed", "unresolved=1"] {
        let key = Some(query);
        let first = retry(&server, query, key).await;
        assert_eq!(first["done"], 3, "{first}");
        for (_, made) in pairs(&first) {
            server.stand.world().end(made, State::Failed, 1);
        }
        let made = server.stand.world().jobs.len();
        assert_eq!(retry(&server, query, key).await, first);
        assert_eq!(server.stand.world().jobs.len(), made);
        let slot = |job: u64| server.stand.world().record(job).row.slot.as_ref().map(|slot| slot.at);
        assert!(pairs(&first).is_sorted_by_key(|(job, _)| slot(*job)), "{first}");
    }
    assert_eq!(server.stand.world().record(11).row.retry_of, Some(JobId(8)));
}

/// More jobs than a request retries in order.
const TOO_MANY: u64 = 10_001;

#[tokio::test]
async fn of_too_many_jobs_the_newest_come_first_and_the_answer_says_so() {
    let server = with_failed_jobs(TOO_MANY, |job| Some(i64::try_from(job).expect("a day"))).await;
    let disk_full_at = |more: usize| Some((TOO_MANY as usize + more, server.storage.clone()));
    server.stand.world().fills_disk_at = disk_full_at(200);
    let first = retry(&server, "state=failed", Some("k")).await;
    assert_eq!((&first["ordered"], &first["matched"]), (&json!(false), &json!(200)), "{first}");
    let retried: Vec<u64> = pairs(&first).iter().map(|(job, _)| *job).collect();
    assert_eq!(retried, (TOO_MANY - 199..=TOO_MANY).rev().collect::<Vec<u64>>());
    server.storage.note(1 << 40, 1 << 40);
    server.stand.world().fills_disk_at = disk_full_at(400);
    // The new jobs have failed meanwhile. Neither the rest nor a repetition retries them.
    for (_, made) in pairs(&first) {
        server.stand.world().end(made, State::Failed, 1);
    }
    let next = first["next"].as_str().expect("a cursor");
    let second = retry(&server, &format!("state=failed&cursor={next}"), Some("k")).await;
    let retried: Vec<u64> = pairs(&second).iter().map(|(job, _)| *job).collect();
    assert_eq!(retried, (TOO_MANY - 399..=TOO_MANY - 200).rev().collect::<Vec<u64>>());
    assert_eq!((&second["ordered"], &second["matched"]), (&json!(false), &json!(200)), "{second}");
}

#[tokio::test]
async fn a_continuation_that_becomes_too_large_leaves_out_what_is_done() {
    // The newest jobs have the oldest slots. The first 300 jobs have not failed yet.
    let slot_of =
        |job: u64| Some(i64::try_from(if job > 300 { 20_000 - job } else { 30_000 }).expect("a day"));
    let server = with_failed_jobs(10_300, slot_of).await;
    for job in 1..=300 {
        server.stand.world().record(job).row.state = State::Running;
    }
    server.stand.world().fills_disk_at = Some((10_500, server.storage.clone()));
    let first = retry(&server, "state=failed", Some("k")).await;
    assert_eq!((&first["ordered"], &first["matched"]), (&json!(true), &json!(200)), "{first}");
    for job in 1..=300 {
        server.stand.world().end(job, State::Failed, 1);
    }
    server.storage.note(1 << 40, 1 << 40);
    server.stand.world().fills_disk_at = Some((10_700, server.storage.clone()));
    let next = first["next"].as_str().expect("a cursor");
    let second = retry(&server, &format!("state=failed&cursor={next}"), Some("k")).await;
    assert_eq!((&second["ordered"], &second["matched"]), (&json!(false), &json!(200)), "{second}");
    let retried: Vec<u64> = pairs(&second).iter().map(|(job, _)| *job).collect();
    assert_eq!(retried, (9_901..=10_100).rev().collect::<Vec<u64>>());
}

#[tokio::test]
async fn jobs_out_of_scope_are_not_shown_with_their_retries() {
    let (server, _tokens, token) = with_token(Role::Submitter, &["resize"]).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    for _ in 0..3 {
        assert_eq!(server.ask("POST", "/api/jobs/resize", &headers, "").await.status, 201);
    }
    for job in 1..=3 {
        server.stand.world().end(job, State::Failed, 1);
    }
    for job in 1..=2 {
        let retried = server.ask("POST", &format!("/api/jobs/{job}/retry"), &headers, "").await;
        assert_eq!(retried.status, 201, "{retried:?}");
    }
    for job in [2, 3, 5] {
        server.stand.world().record(job).row.definition = "backup".into();
    }
    let done = server.ask("POST", "/api/jobs/retry?state=failed", &headers, "").await.json();
    let left_out = json!([{"job": 1, "retry": 4, "state": "queued"}]);
    assert_eq!((&done["retried_before"], &done["left_out"]), (&json!(1), &left_out), "{done}");
    let counts = ["matched", "done", "refused"].map(|key| done[key].clone());
    assert_eq!(counts, [json!(1), json!(0), json!(1)], "{done}");
}
