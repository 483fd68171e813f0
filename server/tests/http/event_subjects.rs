//! `GET /api/events`: what events say about attempts and expectations.

use protocol::{JobId, Timestamp, WorkerId};
use scheduler::expectations::{ExpectationRow, SlowRun};
use scheduler::step::{Change, Note};

use crate::support::Server;
use crate::support::event_groups::{FIRST, added, assigned, group, kept, kinds, publish, token};

#[tokio::test]
async fn an_event_about_the_current_attempt_has_its_number_and_times() {
    let mut server = Server::start().await;
    let late = Note::LateReport { token: token(1), worker: WorkerId(1), said: "started".to_owned() };
    let late = Change::Noted { job: JobId(1), at: Timestamp(3_500), note: late };
    let gone = Change::ContainerGone { token: token(9), worker: WorkerId(1), at: Timestamp(3_600) };
    publish(&mut server, group(FIRST, vec![added(1, 1, None), assigned(1), late, gone])).await;
    let events = kept(&server, "&kind=attempt.late_report,job.confirmed").await;
    let attempt = &events[0]["attempt"];
    assert_eq!((attempt["number"].as_u64(), events[0]["said"].as_str()), (Some(1), Some("started")));
    assert_eq!(attempt["assigned_at"], "1970-01-01T00:00:02.000Z");
    let attempt = &events[1]["attempt"];
    assert_eq!(attempt["fence"], 109);
    assert!(attempt.get("number").is_none() && attempt.get("assigned_at").is_none(), "unknown: {attempt}");
}

#[tokio::test]
async fn a_missed_expectation_is_an_event_once_until_it_is_met_again() {
    let mut server = Server::start().await;
    let row = |stale: Option<i64>, slow: Option<u64>| {
        Change::Expectation(ExpectationRow {
            definition: "backup".into(),
            awaited_since: Some(Timestamp(1_000)),
            stale_since: stale.map(Timestamp),
            slow: slow.map(|job| SlowRun { job: JobId(job), since: Timestamp(4_000) }),
        })
    };
    let changes = vec![
        row(None, None),
        row(Some(3_000), None),
        row(Some(3_000), None),
        row(Some(3_000), Some(7)),
        row(None, Some(7)),
        row(None, None),
    ];
    publish(&mut server, group(FIRST, changes)).await;
    let gone = Change::ExpectationDropped { definition: "backup".into() };
    publish(&mut server, group(FIRST + 1, vec![row(Some(3_000), None), gone, row(Some(3_000), None)])).await;
    let events = kept(&server, "&kind=expectation.*&name=backup").await;
    let expected = ["missed", "missed", "met", "missed", "missed"].map(|kind| format!("expectation.{kind}"));
    assert_eq!(kinds(&events), expected);
    assert_eq!(
        (&events[0]["name"], &events[0]["at"]),
        (&"backup".into(), &"1970-01-01T00:00:05.000Z".into())
    );
    assert_eq!(events[0]["expectation"]["condition"], "stale");
    assert_eq!(events[0]["expectation"]["stale_since"], "1970-01-01T00:00:03.000Z");
    let both = &events[1]["expectation"];
    assert_eq!((both["condition"].as_str(), both["slow_job"].as_u64()), (Some("stale, slow"), Some(7)));
    assert_eq!(events[2]["expectation"]["condition"], "met");
}
