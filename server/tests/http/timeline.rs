//! The whole story of a job, as `GET /api/jobs/{id}` tells it: each attempt, why it ended, who asked for what, what was not believed,
//! and what is waited for.

#![allow(clippy::unwrap_used, reason = "an answer that lacks what is asked for is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use longshore_server::rfc3339::Time;
use longshore_server::store::AttemptRow;
use protocol::order::StopCause;
use protocol::report::{Availability, Outcome, ReleaseCause};
use protocol::{AttemptNo, Fence, JobId, Nonce, RuntimeKind, Timestamp, Token, WorkerId};
use scheduler::job::State;
use scheduler::snapshot::WorkerState;
use scheduler::step::Note;

use crate::support::Server;
use crate::support::facts::{attempt, change_worker, snapshot};

fn ended(number: u32, at: i64, outcome: Outcome, exit_code: Option<i32>, message: &str) -> AttemptRow {
    AttemptRow {
        assigned_at: Timestamp(at),
        started_at: exit_code.map(|_| Timestamp(at + 100)),
        ended_at: Some(Timestamp(at + 500)),
        outcome: Some(outcome),
        exit_code,
        message: message.into(),
        ..attempt(number, u64::from(number) + 40)
    }
}

/// Time within the story, event, attempt and words, a line each.
fn told(job: &serde_json::Value) -> Vec<String> {
    let events = job["timeline"].as_array().unwrap();
    let line = |event: &serde_json::Value| {
        let at = event["at"].as_str().unwrap();
        let of = event["attempt"].as_u64().map(|number| format!(" {number}")).unwrap_or_default();
        let worker = event["worker"]["name"].as_str().map(|name| format!(" on {name}")).unwrap_or_default();
        let text = event["text"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
        format!("{} {}{of}{worker}{text}", &at[17..23], event["event"].as_str().unwrap())
    };
    events.iter().map(line).collect()
}

#[tokio::test]
async fn the_timeline_has_the_cause_of_every_end_and_the_author_of_every_request() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    {
        let mut world = server.stand.world();
        let record = world.record(1);
        let docker = "3622b2f476fe540b2e1d41a1de2db7dd0fb62220c470a718300c066be94f87f4";
        record.past = vec![
            AttemptRow {
                container: docker.into(),
                ..ended(1, 2_000, Outcome::TimedOut, Some(143), "stopped because it ran for too long")
            },
            AttemptRow {
                released: Some(ReleaseCause::Policy),
                ..ended(2, 3_000, Outcome::Released, None, "this worker allows no image `resize:1`")
            },
            AttemptRow {
                container: "pid 7".into(),
                ..ended(3, 4_000, Outcome::Lost, Some(0), "its worker has not been heard of")
            },
            ended(4, 5_000, Outcome::PullFailed, None, "manifest unknown"),
        ];
        record.row.attempts = AttemptNo(5);
        record.row.attempt = Some(AttemptRow {
            container: "pid 8".into(),
            ..ended(5, 6_000, Outcome::Cancelled, Some(143), "cancelled; it ended with exit code 143")
        });
        record.row.retry_of = Some(JobId(9));
        let token = Token { job: JobId(1), fence: Fence(43), nonce: Nonce(7) };
        let worker = WorkerId(1);
        record.notes = vec![
            (Timestamp(4_300), Note::Unreachable { token, worker }),
            (Timestamp(5_000), Note::Released { by: "ann".into() }),
            (Timestamp(5_600), Note::LateReport { token, worker, said: "oom_killed".into() }),
            (Timestamp(6_000), Note::CancelRequested { by: "bob".into() }),
        ];
        world.end(1, State::Cancelled, 0);
        let record = world.record(1);
        record.row.reason = "cancelled".into();
        let attempt = record.row.attempt.as_mut().unwrap();
        (attempt.ended_at, attempt.outcome, attempt.exit_code) =
            (Some(Timestamp(6_500)), Some(Outcome::Cancelled), Some(143));
    }
    let job = server.get("/api/jobs/1").await.json();
    let expected = [
        "01.000 accepted: tries job 9 again",
        "02.000 assigned 1 on w1",
        "02.100 started 1 on w1: as container 3622b2f476fe",
        "02.500 attempt_ended 1 on w1: timed out: stopped because it ran for too long (exit code 143)",
        "03.000 assigned 2 on w1",
        "03.500 attempt_ended 2 on w1: given back: this worker allows no image `resize:1`",
        "04.000 assigned 3 on w1",
        "04.100 started 3 on w1: as pid 7",
        "04.300 worker_unreachable 3 on w1: its lease ran out",
        "04.500 attempt_ended 3 on w1: lost: its worker has not been heard of",
        "05.000 released: by ann",
        "05.000 assigned 4 on w1",
        "05.500 attempt_ended 4 on w1: pull failed: manifest unknown",
        "05.600 late_report 3 on w1: it said \"oom killed\", too late to be believed",
        "06.000 cancel_requested: by bob",
        "06.000 assigned 5 on w1",
        "06.100 started 5 on w1: as pid 8",
        "06.500 attempt_ended 5 on w1: cancelled; it ended with exit code 143",
        "09.000 cancelled: cancelled",
    ];
    assert_eq!(told(&job), expected);
    let late = serde_json::json!([{
        "at": "1970-01-01T00:00:05.600Z", "attempt": 3, "fence": 43, "worker": {"id": 1, "name": "w1"}, "said": "oom_killed",
    }]);
    assert_eq!(job["late_reports"], late);
    assert_eq!(job["attempts"][2]["ran_ms"], serde_json::json!(null), "nobody knows how long a lost one ran");
}

/// docs/design/failures.md, F20: its container had ended by itself before the stop, and its true outcome counts.
#[tokio::test]
async fn a_cancel_that_came_too_late_is_shown_as_such() {
    let server = Server::start().await;
    for _ in 0..2 {
        server.post("/api/jobs/resize", "").await;
    }
    {
        let mut world = server.stand.world();
        for job in 1..=2 {
            world.start(job);
            let asked = Note::CancelRequested { by: "bob".into() };
            world.record(job).notes = vec![(Timestamp(6_000), asked)];
        }
    }
    let running = server.get("/api/jobs/1").await.json();
    assert_eq!(running["cancel"], serde_json::json!(null), "nobody knows yet");
    assert!(told(&running).contains(&"06.000 cancel_requested: by bob".to_owned()), "{running}");
    server.stand.world().end(1, State::Succeeded, 0);
    server.stand.world().end(2, State::Cancelled, 143);

    let late = server.get("/api/jobs/1").await.json();
    assert_eq!((&late["state"], &late["cancel"]), (&"succeeded".into(), &"too_late".into()), "{late}");
    let expected = "06.000 cancel_requested: by bob: too late, what ended it had come first".to_owned();
    assert!(told(&late).contains(&expected), "{late}");
    let in_time = server.get("/api/jobs/2").await.json();
    assert_eq!((&in_time["state"], &in_time["cancel"]), (&"cancelled".into(), &serde_json::json!(null)));
}

/// Two attempts were in doubt; only the one that is told to be gone last confirms the cancel.
#[tokio::test]
async fn each_gone_attempt_is_shown_and_the_last_one_confirms_the_cancel() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    {
        let mut world = server.stand.world();
        world.end(1, State::Cancelled, 0);
        let record = world.record(1);
        record.past = (1..=3).map(|it| ended(it, 1_000 * i64::from(it), Outcome::Lost, None, "")).collect();
        let gone = |at, fence| {
            let token = Token { job: JobId(1), fence: Fence(fence), nonce: Nonce(7) };
            (Timestamp(at), Note::ContainerGone { token, worker: WorkerId(1) })
        };
        record.notes = vec![gone(4_500, 41), gone(10_000, 43), gone(11_000, 42)];
        record.row.confirmed = false;
    }
    let later = async || {
        let told = told(&server.get("/api/jobs/1").await.json());
        told.into_iter().filter(|line| line.contains("its container is gone")).collect::<Vec<_>>()
    };
    let gone = [
        "04.500 container_gone 1 on w1: its container is gone",
        "10.000 container_gone 3 on w1: its container is gone",
    ];
    assert_eq!(later().await[..2], gone);
    server.stand.world().record(1).row.confirmed = true;
    let confirmed = "11.000 cancel_confirmed 2 on w1: its container is gone";
    assert_eq!(later().await, [gone[0], gone[1], confirmed]);
}

#[tokio::test]
async fn the_running_time_is_shown_everywhere_even_if_the_end_was_reported_late() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    let ran_ms = async || {
        let list = server.get("/api/jobs").await.json();
        let job = server.get("/api/jobs/1").await.json();
        assert_eq!(list[0]["ran_ms"], job["ran_ms"]);
        job["ran_ms"].clone()
    };
    assert_eq!(ran_ms().await, serde_json::json!(null), "it runs");
    server.stand.world().end(1, State::Succeeded, 0);
    server.stand.world().record(1).row.attempt.as_mut().unwrap().ended_at = Some(Timestamp(3_054));
    assert_eq!(ran_ms().await, 54, "the job ended at 9,000");
    server.stand.world().record(1).row.attempt.as_mut().unwrap().outcome = Some(Outcome::Lost);
    assert_eq!(ran_ms().await, serde_json::json!(null), "nobody knows");
}

#[tokio::test]
async fn a_wait_is_shown_with_its_end_and_the_operators_remedy() {
    let server = Server::start().await;
    for _ in 0..3 {
        server.post("/api/jobs/resize", "").await;
    }
    {
        let mut world = server.stand.world();
        world.start(1);
        let held = world.record(2);
        held.row.state = State::Quarantined;
        held.row.attempts = AttemptNo(1);
        held.row.attempt = Some(ended(1, 2_000, Outcome::HostFailed, None, "no space left on device"));
        let scheduled = world.record(3);
        (scheduled.row.state, scheduled.row.due_at) = (State::Scheduled, Timestamp(61_000));
    }
    let mut silent = snapshot();
    change_worker(&mut silent, |worker| {
        (worker.state, worker.session, worker.since) = (WorkerState::Unreachable, None, Timestamp(40_000));
    });
    server.snapshot.send_replace(Arc::new(silent));

    let running = server.get("/api/jobs/1").await.json();
    // That was long ago.
    let expected = "its worker has been unreachable since 1970-01-01T00:00:40.000Z; no other connected worker may run the job now (a pause counts as well), \
         so it waits for this one; once another may, or somebody releases the job (longshore release 1), its attempt is given up, \
         and the job is tried again";
    assert_eq!(
        running["pending_reason"],
        serde_json::json!({ "code": "worker_unreachable", "text": expected })
    );
    // A lease of 30 s ran out a day from now: 60 s after the last word is 30 s later.
    let since = longshore_server::clock::now().utc + Duration::from_secs(86_400);
    let mut recent = snapshot();
    change_worker(&mut recent, |worker| {
        (worker.state, worker.session, worker.since) = (WorkerState::Unreachable, None, since);
    });
    server.snapshot.send_replace(Arc::new(recent));
    let (since, given_up) = (Time(since), Time(since + Duration::from_secs(30)));
    assert_eq!(
        server.get("/api/jobs/1").await.json()["pending_reason"]["text"],
        format!(
            "its worker has been unreachable since {since}; from about {given_up} on, once another connected worker may run the job, \
             its attempt is given up, and the job is tried again"
        )
    );
    let held = server.get("/api/jobs/2").await.json();
    assert_eq!(
        held["pending_reason"]["text"],
        "it is held after too many losses (of its workers or its containers): release it, or cancel it"
    );
    let last = told(&held).pop().unwrap();
    assert_eq!(
        last,
        "02.500 quarantined: the platform failed it once: it is held until somebody releases or cancels it"
    );
    let scheduled = server.get("/api/jobs/3").await.json();
    assert_eq!(scheduled["pending_reason"]["text"], "it is not due before 1970-01-01T00:01:01.000Z");
}

#[tokio::test]
async fn a_job_on_a_silent_runtime_shows_the_reason_and_the_remedy() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    let runtimes_in = |state: WorkerState, docker: Availability| {
        let mut facts = snapshot();
        let both = vec![(RuntimeKind::Process, Availability::Available), (RuntimeKind::Docker, docker)];
        change_worker(&mut facts, |worker| (worker.runtimes, worker.state) = (both, state));
        server.snapshot.send_replace(Arc::new(facts));
    };
    let runtimes = |docker: Availability| runtimes_in(WorkerState::Ready, docker);
    let reason = async |path: &str, field: &str| server.get(path).await.json()[field].clone();
    let button = "action=\"/jobs/1/release\"";
    let offers_release = async || server.get("/jobs/1").await.body.contains(button);

    runtimes(Availability::Available);
    assert!(!offers_release().await);
    assert_eq!(reason("/api/jobs/1", "pending_reason").await, serde_json::json!(null));
    assert_eq!(reason("/api/jobs/1/explain", "reason").await["code"], "running");

    runtimes(Availability::Unavailable("Is the docker daemon running?".into()));
    let expected = serde_json::json!({
        "code": "runtime_unavailable",
        "text": "its runtime docker does not answer its worker (Is the docker daemon running?): nobody can say whether it still runs, \
                 and it is waited for, until the runtime is back or somebody releases the job (longshore release 1)",
    });
    assert_eq!(reason("/api/jobs/1", "pending_reason").await, expected);
    assert_eq!(reason("/api/jobs/1/explain", "reason").await, expected);
    assert!(offers_release().await, "the page offers what the reason says");

    // Its worker may be suspect for the same cause.
    runtimes_in(WorkerState::Suspect, Availability::Unavailable("Is the docker daemon running?".into()));
    assert_eq!(reason("/api/jobs/1", "pending_reason").await, expected);

    let mut without = snapshot();
    let process = vec![(RuntimeKind::Process, Availability::Available)];
    change_worker(&mut without, |worker| worker.runtimes = process);
    server.snapshot.send_replace(Arc::new(without));
    assert!(offers_release().await);
    let taken_away = reason("/api/jobs/1", "pending_reason").await;
    assert_eq!(taken_away["code"], "runtime_unavailable");
    let text = taken_away["text"].as_str().unwrap();
    assert!(text.starts_with("its worker was started without its runtime docker: nobody"), "{text}");

    runtimes(Availability::Unavailable("Is the docker daemon running?".into()));
    server.stand.world().record(1).row.attempt.as_mut().unwrap().stopping = Some(StopCause::Cancel);
    let cancelled = reason("/api/jobs/1", "pending_reason").await;
    assert_eq!(cancelled["code"], "runtime_unavailable");
    let text = cancelled["text"].as_str().unwrap();
    assert!(text.contains("whether it is stopped") && text.contains("longshore release 1"), "{text}");

    server.stand.world().record(1).row.state = State::Queued;
    assert!(!offers_release().await, "a queued job has nothing to release");
}
