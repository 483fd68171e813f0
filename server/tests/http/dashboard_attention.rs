//! The dashboard on trouble, over real HTTP: waiting jobs, missed expectations, workers; and that its pages stay small.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::fmt::Write as _;
use std::sync::Arc;

use longshore_server::store::{Acknowledgement, FailureStatus};
use protocol::report::Outcome;
use protocol::resources::OfferedResources;
use protocol::{JobId, Revision, RuntimeKind, Timestamp, Uptime, WorkerId};
use scheduler::expectations::{ExpectationRow, SlowRun};
use scheduler::job::State;
use scheduler::pauses::{PauseTarget, Pauses};
use scheduler::placement::exclusion::Excluded;
use scheduler::snapshot::{Snapshot, Suspicion, WorkerState};
use scheduler::step::{Change, PendingReason};

use crate::support::event_groups::{self, FIRST, added, assigned, closed, ended, group, started};
use crate::support::facts::{change_worker, waiting};
use crate::support::{Answered, Server};

/// Changes the snapshot, as the engine would publish it.
fn publish(server: &Server, change: impl FnOnce(&mut Snapshot)) {
    server.snapshot.send_modify(|snapshot| change(Arc::make_mut(snapshot)));
}

fn all_say(answer: &Answered, texts: &[&str]) {
    assert_eq!(answer.status, 200, "{answer:?}");
    for text in texts {
        assert!(answer.body.contains(text), "no {text:?} in {}", answer.body);
    }
}

async fn reload(server: &Server, jobs: &str) {
    std::fs::write(&server.jobs_file, jobs).unwrap();
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn pauses_that_are_not_named_lead_to_the_page_that_shows_them() {
    let server = Server::start().await;
    let group = |number| PauseTarget::Group(format!("g{number:02}").into());
    let batches = |count| (1..=count).map(|first| PauseTarget::Batch(JobId(first)));
    let pause = async |targets: Vec<PauseTarget>| {
        let pauses = targets.into_iter().map(|target| (target, Timestamp(1).into()));
        publish(&server, |snapshot| snapshot.pauses = Arc::new(Pauses::of(pauses)));
        server.get("/").await
    };
    let page = pause((0..12).map(group).chain(batches(3)).collect()).await;
    all_say(&page, &["2 more pauses", "href=\"/definitions\"", "3 more batches are paused"]);
    let page = pause(batches(12).collect()).await;
    let link = "/batches?state=waiting%2Crunning";
    all_say(&page, &["2 more batches are paused", &format!("href=\"{link}\"")]);
    assert!(!page.body.contains("more pauses"), "{page:?}");
    assert_eq!(server.get(link).await.status, 200);
}

#[tokio::test]
async fn the_overview_names_jobs_that_wait_in_vain_with_a_link_to_them() {
    let server = Server::start().await;
    publish(&server, |snapshot| {
        let other = |reason, count| scheduler::snapshot::Waiting {
            revision: Revision(3),
            ..waiting(None, reason, count)
        };
        snapshot.waiting = vec![
            waiting(None, PendingReason::NoMatch, 4),
            waiting(None, PendingReason::Busy, 30),
            waiting(Some(2), PendingReason::PinnedWorkerAway, 1),
            other(PendingReason::TooLarge, 2),
        ];
    });
    let page = server.get("/").await;
    all_say(
        &page,
        &[
            "4 jobs of resize wait: no connected worker has the required labels",
            "href=\"/jobs?state=queued&#38;name=resize\"",
            "1 job of resize waits: the only worker",
            "2 jobs of backup wait: no connected worker offers enough of a reserved resource",
            "<b>37</b> waiting",
            "<td class=\"number\">30</td><td>all slots of the workers that could run it",
        ],
    );
    assert!(!page.body.contains("30 jobs"), "a busy worker passes by itself: {}", page.body);
    assert_eq!(server.get("/jobs?state=queued&name=resize").await.status, 200);
    publish(&server, |snapshot| snapshot.waiting.clear());
    let calm = server.get("/").await;
    all_say(&calm, &["Nothing. All is well.", "<b>0</b> waiting"]);
    assert!(!calm.body.contains("oldest wait"), "{}", calm.body);
}

#[tokio::test]
async fn the_overview_names_failures_that_nobody_has_dealt_with() {
    let server = Server::start().await;
    all_say(&server.get("/").await, &["<b>0</b> unresolved failures"]);
    for name in ["resize", "backup", "resize"] {
        server.post(&format!("/api/jobs/{name}"), "").await;
    }
    for job in 1..=3 {
        server.stand.world().end(job, State::Failed, 1);
    }
    let page = server.get("/").await;
    all_say(
        &page,
        &[
            "<a class=\"tile\" href=\"/jobs?unresolved=1\"><b>3</b> unresolved failures</a>",
            "resize: 2 failures that nobody has dealt with",
            "backup: 1 failure that nobody has dealt with",
            "href=\"/jobs?name=resize&#38;unresolved=1\"",
        ],
    );
    let list = server.get("/jobs?unresolved=1").await;
    all_say(
        &list,
        &[
            "Jobs that have failed and that nobody has dealt with.",
            "value=\"acknowledge\"",
            "value=\"retry\"",
        ],
    );
    assert!(!list.body.contains("value=\"cancel\""), "{}", list.body);
    all_say(&server.get("/jobs/1").await, &["action=\"/jobs/1/acknowledge\"", "this failure"]);
    let confirm = "verb=acknowledge&selection=unresolved%3D1";
    let asked = server
        .ask("POST", "/jobs/bulk", &[("content-type", "application/x-www-form-urlencoded")], confirm)
        .await;
    all_say(&asked, &["<b>3</b> jobs fit", "name=\"reason\""]);
    server.stand.world().record(1).row.failure = FailureStatus::Acknowledged(Acknowledgement {
        at: Timestamp(9_500),
        by: Some("anna".to_owned()),
        reason: Some("disk swap".to_owned()),
    });
    let job = server.get("/jobs/1").await;
    all_say(&job, &["1970-01-01T00:00:09.500Z by anna: disk swap", "action=\"/jobs/1/unacknowledge\""]);
    assert!(!job.body.contains("action=\"/jobs/1/acknowledge\""), "{}", job.body);
    all_say(&server.get("/").await, &["<b>2</b> unresolved failures"]);
}

#[tokio::test]
async fn the_overview_counts_running_jobs_and_not_attempts_that_are_about_to_run() {
    let mut server = Server::start().await;
    let accepted = (1..=6).flat_map(|job| [added(job, 1, None), assigned(job)]);
    let changes = accepted.chain((1..=5).map(started)).collect();
    event_groups::publish(&mut server, group(FIRST, changes)).await;
    let page = server.get("/").await;
    all_say(&page, &["<a class=\"tile\" href=\"/jobs?state=running\"><b>5</b> running</a>"]);
    let end = ended(5, State::Failed, closed(5, Outcome::Failed, Some(1)));
    event_groups::publish(&mut server, group(FIRST + 1, vec![started(6), end])).await;
    all_say(&server.get("/").await, &["<b>5</b> running"]);
    let waits = Change::AttemptClosed {
        job: JobId(6),
        closed: closed(6, Outcome::Failed, Some(1)),
        due_at: Timestamp(9_000),
        state: State::Scheduled,
    };
    event_groups::publish(&mut server, group(FIRST + 2, vec![waits])).await;
    all_say(&server.get("/").await, &["<b>4</b> running"]);
}

#[tokio::test]
async fn missed_expectations_are_named_where_people_look() {
    let server = Server::start().await;
    let jobs = "jobs:
  nightly: { image: 'a:1', expect: { success_within: 26h, max_duration: 1h } }
  calm: { image: 'a:1', expect: { success_within: 2h } }
";
    reload(&server, jobs).await;
    publish(&server, |snapshot| {
        snapshot.missed = vec![ExpectationRow {
            definition: "nightly".into(),
            awaited_since: Some(Timestamp(1_000)),
            stale_since: Some(Timestamp(2_000)),
            slow: Some(SlowRun { job: JobId(7), since: Timestamp(3_000) }),
        }];
    });
    let text = "nightly is stale and slow: it had no success within 1d 2h; a run took longer than 1h 0m, as job 7 did";
    let overview = server.get("/").await;
    all_say(&overview, &[text, "<a href=\"/definitions/nightly\">nightly is stale"]);
    assert!(!overview.body.contains("expectations:"), "names, not counts: {}", overview.body);
    let list = server.get("/definitions").await;
    all_say(
        &list,
        &["nightly</a> <span class=\"state bad\">stale</span> <span class=\"state bad\">slow</span>"],
    );
    assert_eq!(list.body.matches("state bad").count(), 2, "calm is as expected: {}", list.body);
    let page = server.get("/definitions/nightly").await;
    all_say(
        &page,
        &[
            "Stale <time",
            "Slow <time",
            "href=\"/jobs/7\"",
            "<dt>expect</dt><dd>a success within 1d 2h, runs of at most 1h 0m</dd>",
        ],
    );
    all_say(&server.get("/definitions/calm").await, &["<dt>expect</dt><dd>a success within 2h 0m</dd>"]);
    let metrics = server.get("/metrics").await;
    all_say(&metrics, &["longshore_expectation_missed{definition=\"nightly\",condition=\"stale\"} 1"]);
}

#[tokio::test]
async fn the_bars_of_a_day_lead_to_the_jobs_of_their_hour() {
    let server = Server::start().await;
    server.post("/api/jobs/backup", "").await;
    server.stand.world().end(1, State::Failed, 3);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    server.stand.world().record(1).row.ended_at = Some(Timestamp(i64::try_from(now).unwrap()));
    // The first page may come before the ends are counted.
    let link = first_bar(&server).await;
    let list = server.get(&link).await;
    all_say(&list, &["/jobs/1\"", "Jobs that ended from "]);
    assert!(link.contains("state=failed%2Clost%2Cexpired"), "{link}");
}

/// The address behind the first bar of the overview, once the ends are counted.
async fn first_bar(server: &Server) -> String {
    for _ in 0..1_000 {
        let page = server.get("/").await.body;
        if let Some(start) = page.find("/jobs?state=failed%2Clost%2Cexpired&#38;ended_since") {
            let link: String = page[start..].chars().take_while(|char| *char != '"').collect();
            return link.replace("&#38;", "&");
        }
    }
    panic!("no bar has a link")
}

#[tokio::test]
async fn the_page_of_a_worker_tells_why_it_gets_nothing_and_resets_it() {
    let server = Server::start().await;
    publish(&server, |snapshot| {
        change_worker(snapshot, |worker| {
            worker.state = WorkerState::Suspect;
            let cause = "it failed to start 3 definitions".to_owned();
            worker.suspect =
                Some(Suspicion { since: Timestamp(1_000), cause, until: Some(Uptime(u64::MAX / 4)) });
            worker.exclusions = vec![
                (Excluded::Revision(Revision(3)), None),
                (Excluded::Runtime(RuntimeKind::Docker), Some(Uptime(u64::MAX / 4))),
            ];
            worker.drain_deadline = Some(Timestamp(9_000));
            worker.offer = OfferedResources {
                cpus_milli: Some(4_000),
                memory_bytes: Some(8 << 30),
                ..Default::default()
            };
            worker.in_use.cpus_milli = 1_500;
        });
    });
    let page = server.get("/workers/1").await;
    all_say(
        &page,
        &[
            "it failed to start 3 definitions. It gets one job <time",
            "a worker that fails to start jobs of 3 definitions in a row is suspect: it gets nothing for 1m 0s, twice as long",
            "Its drain ends <time",
            "action=\"/workers/1/reset\"",
            "<a href=\"/definitions/backup\">backup</a>",
            "does not allow it",
            "all jobs of docker",
            "it starts anew, or is reset",
            "<td>Cores</td><td class=\"number\">1.5</td><td class=\"number\">4</td>",
            "<td>Memory</td><td class=\"number\">0 B</td><td class=\"number\">8.0 GiB</td>",
        ],
    );
    let api = server.get("/api/workers/1").await.json();
    assert_eq!(api["exclusions"].as_array().map(Vec::len), Some(2), "{api}");
    assert!(api["suspect"]["rule"].as_str().is_some_and(|rule| rule.ends_with("at most 1h 0m")), "{api}");
    assert_eq!(
        (&api["exclusions"][0]["of"], &api["exclusions"][0]["name"]),
        (&"revision".into(), &"backup".into())
    );
    assert!(
        api["exclusions"][0].get("until").is_none() && api["exclusions"][1]["until"].is_string(),
        "{api}"
    );
    assert!(server.get("/api/workers").await.json()[0].get("exclusions").is_none(), "lists stay short");
    all_say(&server.get("/").await, &["worker w1 is suspect: it failed to start 3 definitions"]);

    let reset = server.ask("POST", "/workers/1/reset", &[], "").await;
    assert_eq!((reset.status, reset.header("location")), (303, "/workers/1"), "{reset:?}");
    assert_eq!(server.stand.world().operations.last().unwrap().1, scheduler::input::Operation::Reset);
}

#[tokio::test]
async fn pages_stay_small_with_2_000_schedules_and_many_workers() {
    let server = Server::start().await;
    let mut jobs = "jobs:\n".to_owned();
    for number in 0..2_000 {
        let rule = ["every: 1h", "cron: '5 * * * *'", "every: 30m", "cron: '0 3 * * *'"][number % 4];
        writeln!(jobs, "  a-definition-{number:04}: {{ image: 'a:1', schedule: {{ {rule} }} }}").unwrap();
    }
    reload(&server, &jobs).await;
    publish(&server, |snapshot| {
        let like = snapshot.workers.iter().next().unwrap().clone();
        for id in 1..=500 {
            let worker = scheduler::snapshot::WorkerFacts {
                id: WorkerId(id),
                name: format!("w{id}").as_str().into(),
                ..like.clone()
            };
            snapshot.workers.set(WorkerId(id), Some(worker));
        }
    });
    for path in ["/", "/schedules", "/schedules?page=40", "/workers", "/workers?page=10", "/workers?all=1"] {
        let page = server.get(path).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.body.len() < 100_000, "{path} has {} bytes", page.body.len());
    }
    all_say(&server.get("/schedules").await, &["2000 schedules", "page=2\">More"]);
    let last = server.get("/schedules?page=40").await;
    all_say(&last, &["page=39\">Back"]);
    assert!(!last.body.contains(">More<"), "{}", last.body);
    all_say(
        &server.get("/workers?page=2").await,
        &["500 workers", "/workers/51\"", "page=1\">Back", "page=3\">More"],
    );
}

#[tokio::test]
async fn pages_json_and_files_are_compressed_and_streams_are_not() {
    let server = Server::start().await;
    for _ in 0..20 {
        server.post("/api/jobs/resize", "").await;
    }
    let page = server.get("/").await.body;
    let style = page[page.find("/static/").unwrap()..].split('"').next().unwrap_or_default().to_owned();
    let gzip = [("accept-encoding", "gzip, br")];
    for path in ["/", "/jobs", "/api/jobs", "/api/definitions", "/openapi.json", &style] {
        let answer = server.ask("GET", path, &gzip, "").await;
        assert_eq!((answer.status, answer.header("content-encoding")), (200, "gzip"), "{path}");
        let varies = |(name, value): &(String, String)| name == "vary" && value.contains("accept-encoding");
        assert!(answer.headers.iter().any(varies), "{path}: {answer:?}");
        assert!(answer.body.starts_with('\u{1f}'), "{path} is not gzip");
        assert_eq!(server.get(path).await.header("content-encoding"), "", "{path}: not asked for");
    }
    let range = [("accept-encoding", "gzip"), ("range", "bytes=0-5")];
    for (path, headers) in [
        ("/api/events?follow=0&tail=10", &gzip[..]),
        ("/api/jobs/1/logs", &gzip[..]),
        ("/api/jobs/1/logs?stream=stdout", &range[..]),
        ("/jobs.csv", &gzip[..]),
    ] {
        let answer = server.ask("GET", path, headers, "").await;
        assert_eq!(answer.header("content-encoding"), "", "{path}: {answer:?}");
    }
}
