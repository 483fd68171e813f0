//! Reasons of cordons, drains and pauses: taken from bodies and forms, and told by explanations.

use std::time::Duration;

use longshore_server::rfc3339::Time;
use protocol::Timestamp;
use scheduler::explain::{Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::job::State;
use scheduler::origin::{Intervention, Origin};
use scheduler::step::PendingReason;
use serde_json::{Value, json};

use crate::dashboard::form;
use crate::explain::{explanation, worker};
use crate::support::Server;

#[tokio::test]
async fn a_cordon_and_a_drain_take_a_reason_and_tell_it() {
    let server = Server::start().await;
    let ask = async |path: &str, body: &str| {
        server.ask("POST", path, &[("content-type", "application/json")], body).await
    };
    let reason = r#"{"reason":"disk swap"}"#;
    let expected = json!({ "since": "1970-01-01T00:00:01.000Z", "reason": "disk swap" });
    assert_eq!(ask("/api/workers/1/cordon", reason).await.json()["cordon"], expected);
    assert_eq!(server.get("/api/workers").await.json()[0]["cordon"], expected);
    assert_eq!(ask("/api/workers/2/drain", reason).await.json()["cordon"], expected, "of one that is away");
    assert_eq!(server.get("/api/workers?all=1").await.json()[1]["cordon"], expected);
    assert_eq!(ask("/api/workers/1/uncordon", "").await.json()["cordon"], Value::Null);

    ask("/api/workers/1/uncordon", reason).await.is_problem(413, "body_too_large");
    ask("/api/workers/1/cordon", r#"{"why":"x"}"#).await.is_problem(422, "unknown_field");
    let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(301));
    let told = ask("/api/workers/1/cordon", &long).await.is_problem(422, "too_long");
    assert_eq!(told["hint"], "a reason has at most 300 characters");
    let told = ask("/api/workers/1/cordon", r#"{"reason":""}"#).await.is_problem(422, "invalid_reason");
    assert_eq!((&told["field"], &told["hint"]), (&json!("reason"), &json!("leave it out, or say why")));
    for (bad, letter) in [
        (r#"{"reason":"two\nlines"}"#, "U+000A"),
        (r#"{"reason":"\u001b[31m"}"#, "U+001B"),
        (r#"{"reason":"\u202epaws ksid"}"#, "U+202E"),
    ] {
        let told = ask("/api/workers/1/cordon", bad).await.is_problem(422, "invalid_reason");
        assert_eq!(told["detail"], format!("the reason has the character {letter}"));
    }
    let operations = server.stand.world().operations.len();
    assert_eq!(operations, 3, "what is refused changes nothing");
}

#[tokio::test]
async fn a_cordon_takes_an_end_and_a_drain_none() {
    let server = Server::start().await;
    let ask = async |path: &str, body: &str| {
        server.ask("POST", path, &[("content-type", "application/json")], body).await
    };
    let cordon = "/api/workers/1/cordon";
    let told = ask(cordon, r#"{"until":"2099-01-01T00:00Z"}"#).await.is_problem(422, "invalid_time");
    assert_eq!(
        (&told["field"], &told["hint"]),
        (&json!("until"), &json!("without an end it lasts until somebody ends it"))
    );
    ask(cordon, r#"{"for":"0s"}"#).await.is_problem(422, "invalid_duration");
    ask(cordon, r#"{"for":"2h","until":"2027-01-01T00:00Z"}"#).await.is_problem(422, "invalid_time");
    ask("/api/workers/1/drain", r#"{"for":"2h"}"#).await.is_problem(422, "unknown_field");
    assert!(server.stand.world().operations.is_empty(), "what is refused changes nothing");

    let made = ask(cordon, r#"{"for":"2h","reason":"disk swap"}"#).await.json();
    let until = made["cordon"]["until"].as_str().unwrap().to_owned();
    assert_eq!(made["cordon"]["reason"], "disk swap");
    assert_eq!(server.get("/api/workers").await.json()[0]["cordon"]["until"], json!(until));
    assert!(server.get("/workers").await.body.contains(&until), "the list says when it ends");
    let page = server.get("/workers/1").await.body;
    assert!(page.contains(&format!(r#"name="until" value="{until}""#)), "{page}");

    // A new reason keeps the end; a form of a page that is too old changes nothing.
    let since = made["cordon"]["since"].as_str().unwrap();
    let fields = format!("since={since}&until={until}&reason=new+disk&for=");
    assert_eq!(form(&server, "/workers/1/cordon", &fields).await.status, 303);
    let now = || async { server.get("/api/workers/1").await.json()["cordon"].clone() };
    assert_eq!((&now().await["until"], &now().await["reason"]), (&json!(until), &json!("new disk")));
    let old = format!("since={since}&until=2026-01-01T00:00:00.000Z&reason=old");
    assert_eq!(form(&server, "/workers/1/cordon", &old).await.status, 303);
    assert_eq!(now().await["reason"], "new disk");
}

#[tokio::test]
async fn a_pause_takes_a_reason_and_a_resume_none() {
    let server = Server::start().await;
    let ask = async |path: &str, body: &str| {
        server.ask("POST", path, &[("content-type", "application/json")], body).await
    };
    for path in ["/api/pause", "/api/schedules/pause", "/api/definitions/resize/pause"] {
        assert_eq!(ask(path, r#"{"reason":"a move"}"#).await.status, 204, "{path}");
        ask(path, r#"{"reason":"a\tmove"}"#).await.is_problem(422, "invalid_reason");
        ask(&path.replace("pause", "resume"), r#"{"reason":"x"}"#).await.is_problem(413, "body_too_large");
    }
    assert_eq!(form(&server, "/definitions/resize/pause", "reason=a+move").await.status, 303);
    assert_eq!(form(&server, "/pause", "reason=+").await.status, 303, "no reason");
    let origins = server.stand.world().pause_origins.clone();
    let reasons: Vec<Option<&str>> = origins.iter().map(|origin| origin.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("a move"), Some("a move"), Some("a move"), Some("a move"), None]);
}

#[tokio::test]
async fn a_pause_takes_an_end_and_a_refusal_names_the_field() {
    let server = Server::start().await;
    let ask = async |body: &str| {
        server
            .ask("POST", "/api/definitions/resize/pause", &[("content-type", "application/json")], body)
            .await
    };
    let now = longshore_server::clock::now().utc;
    let instant = |after: u64| format!(r#"{{"until":"{}"}}"#, Time(now + Duration::from_secs(after)));
    assert_eq!(ask(r#"{"for":"2h","reason":"a move"}"#).await.status, 204);
    assert_eq!(ask(&instant(3_600)).await.status, 204);
    assert_eq!(form(&server, "/schedules/pause", "reason=&for=30m").await.status, 303);
    let refused = form(&server, "/schedules/pause", "for=soon").await;
    assert!(refused.status == 422 && refused.body.contains("is not a duration"), "{refused:?}");
    let ends = server.stand.world().pause_ends.clone();
    let lasts: Vec<i64> = ends.iter().flatten().map(|end| (end.0 - now.0) / 60_000).collect();
    assert_eq!(lasts, [120, 60, 30]);

    for bad in [r#"{"for":"0s"}"#, r#"{"for":"367d"}"#, r#"{"for":"soon"}"#] {
        assert_eq!(ask(bad).await.is_problem(422, "invalid_duration")["field"], "for", "{bad}");
    }
    let both = r#"{"for":"2h","until":"2026-12-01T06:00Z"}"#;
    for bad in [both, r#"{"until":"2020-01-01T00:00Z"}"#, r#"{"until":"2h"}"#, &instant(367 * 86_400)] {
        assert_eq!(ask(bad).await.is_problem(422, "invalid_time")["field"], "until", "{bad}");
    }
    ask(r#"{"for":7200}"#).await.is_problem(422, "invalid_type");
    ask(r#"{"lasts":"2h"}"#).await.is_problem(422, "unknown_field");
    assert_eq!(server.stand.world().pause_ends.len(), 3, "what is refused changes nothing");
}

/// A cordon or pause whose requester and reason are known.
pub(crate) fn of_anna(since: i64) -> Intervention {
    let origin = Origin { by: "anna".into(), reason: Some("disk swap".into()) };
    Intervention { since: Timestamp(since), until: None, origin }
}

#[tokio::test]
async fn a_job_whose_workers_are_cordoned_names_who_did_it_and_why() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let cordoned = |id, name, obstacle| WorkerVerdict {
        cordon: Some(of_anna(1_000)),
        ..worker(id, name, PlacementVerdict::Unable(vec![obstacle]))
    };
    let workers = vec![
        cordoned(1, "w1", Obstacle::Cordoned),
        cordoned(2, "w2", Obstacle::Draining),
        // Its cordon is not what keeps the job from it.
        cordoned(3, "w3", Obstacle::NotListed),
        worker(4, "w4", PlacementVerdict::Unable(vec![Obstacle::Cordoned])),
    ];
    server.stand.world().explanation =
        Some(explanation(State::Queued, Some(PendingReason::Cordoned), workers));
    let why = server.get("/api/jobs/1/explain").await.json();
    assert_eq!(
        why["reason"]["text"],
        "the workers that could run it are cordoned or draining: w1, cordoned by anna: disk swap; w2, drained by anna: disk swap"
    );
    let texts: Vec<&Value> = why["workers"].as_array().unwrap().iter().map(|it| &it["text"]).collect();
    let origin = "(since 1970-01-01T00:00:01.000Z by anna: disk swap)";
    assert_eq!(texts[0], &json!(format!("it is cordoned {origin}")));
    assert_eq!(texts[1], &json!(format!("it is draining: it finishes what it has, and leaves {origin}")));
    assert_eq!(texts[3], "it is cordoned");
}

#[tokio::test]
async fn the_page_of_a_worker_takes_a_reason_and_shows_it() {
    let server = Server::start().await;
    assert_eq!(form(&server, "/workers/1/cordon", "reason=+disk+swap+").await.status, 303);
    let page = server.ask("GET", "/workers/1", &[("accept", "text/html")], "").await;
    // The first button is the one that Enter presses.
    let first_button = page.body.split_once("name=\"reason\"").unwrap().1.split_once("</button>").unwrap().0;
    assert!(!first_button.contains("/drain"), "{first_button}");
    assert!(page.body.contains("Cordoned") && page.body.contains(": disk swap</p>"), "{page:?}");
    assert_eq!(form(&server, "/workers/1/uncordon", "reason=x").await.status, 303);
    let page = server.ask("GET", "/workers/1", &[("accept", "text/html")], "").await;
    assert!(!page.body.contains("disk swap"), "{page:?}");
}
