//! `kill -9` of the server at any moment, while clients submit without pause: what got a 2xx is there and ends once, and a key, a
//! batch and an end are what they were promised to be.

mod clients;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Dice, Ledger, Process, Stage, holds};
use clients::{Books, Submission};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_survives_every_kill_of_the_server_and_ends_once() {
    let mut dice = Dice::of_this_run();
    let kills = std::env::var("LONGSHORE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let stage = Stage::new(JOBS);
    let mut server = stage.server(&[]).await;
    let mut workers = [stage.worker("one", FAKE), stage.worker("two", FAKE)];
    let books = Arc::new(Books::default());
    let clients: Vec<_> =
        (0..CLIENTS).map(|n| clients::submit(n, stage.api(), dice.split(), Arc::clone(&books))).collect();
    let witness = clients::watch_ends(stage.api(), Arc::clone(&books));

    let mut starts = 1;
    for _ in 0..kills {
        let enough = books.acknowledged() + dice.below(60);
        holds("clients go on", async || books.acknowledged() >= enough).await;
        server.kill();
        starts += 1;
        server = stage.launch_server(&[]);
        if dice.below(4) == 0 {
            // In the middle of its start, too.
            server.lives_for(Duration::from_millis(dice.below(80))).await;
            server.kill();
            starts += 1;
            server = stage.launch_server(&[]);
        }
        stage.api().ready().await;
    }
    books.close();
    for client in clients {
        client.join().unwrap();
    }
    let seen_ended = witness.join().unwrap();
    stage.api().all_ended().await;

    for name in ["one", "two"] {
        stage.api().worker(name, |worker| worker["state"] == "ready" && worker["busy"] == 0).await;
    }
    assert!(workers.iter_mut().all(Process::is_alive), "a worker does not live and die with its server");
    let jobs = stage.api().all_jobs().await;
    println!("{starts} starts, {} submissions, {} jobs", books.submissions().len(), jobs.len());
    check_jobs(&jobs);
    check_submissions(&jobs, &books.submissions());
    check_ends(&jobs, &seen_ended);
    check_output(&stage, &jobs).await;
    for worker in &mut workers {
        worker.leave().await;
    }
    server.leave().await;
    check_database(&Ledger::open(&stage.path("data")), &jobs, &books.submissions(), starts);
}

/// Each number once, and each job a success.
fn check_jobs(jobs: &[Value]) {
    let mut numbers: Vec<u64> = jobs.iter().map(id).collect();
    assert!(numbers.is_sorted_by(|a, b| a > b), "newest first, each number once");
    numbers.dedup();
    assert_eq!(numbers.len(), jobs.len());
    for job in jobs {
        assert!(
            job["state"] == "succeeded" && job["outcome"] == "succeeded" && job["exit_code"] == 0,
            "{job}"
        );
    }
}

/// What was acknowledged is there, whole, under the number that was said; what was not is there whole, or not at all.
fn check_submissions(jobs: &[Value], submissions: &[Submission]) {
    let mut by_label: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for job in jobs {
        by_label.entry(job["labels"]["submission"].as_str().unwrap()).or_default().push(id(job));
    }
    for submission in submissions {
        let Some(mut numbers) = by_label.remove(submission.label.as_str()) else {
            assert!(submission.acknowledged.is_none(), "accepted, and lost: {submission:?}");
            continue;
        };
        numbers.sort_unstable();
        let first = numbers[0];
        let expected: Vec<u64> = (first..first + submission.count).collect();
        assert_eq!(numbers, expected, "neither whole nor absent, or made twice: {submission:?}");
        assert!(submission.acknowledged.is_none_or(|said| said == first), "{submission:?} is at {first}");
    }
    assert!(by_label.is_empty(), "nobody asked for these: {by_label:?}");
}

/// A job that was once seen as ended still looks the same.
fn check_ends(jobs: &[Value], seen_ended: &HashMap<u64, Value>) {
    assert!(!seen_ended.is_empty());
    for job in jobs {
        if let Some(seen) = seen_ended.get(&id(job)) {
            assert_eq!(seen, job, "an ended job has changed");
        }
    }
}

/// Output outlives the kills too.
async fn check_output(stage: &Stage, jobs: &[Value]) {
    let talkers: Vec<u64> = jobs.iter().filter(|job| job["name"] == "talk").map(id).collect();
    for job in talkers.iter().step_by(talkers.len().div_ceil(SAMPLES)) {
        let path = format!("/api/jobs/{job}/logs?stream=stdout");
        let api = stage.api();
        holds("the whole output is there", async || api.bytes(&path).await == b"I was here\n").await;
    }
}

fn check_database(ledger: &Ledger, jobs: &[Value], submissions: &[Submission], starts: i64) {
    let count = |query: &str| ledger.one::<i64>(query);
    let all = i64::try_from(jobs.len()).unwrap();
    assert_eq!(count("SELECT count(*) FROM jobs"), 0, "none is left alive");
    assert_eq!(count("SELECT count(*) FROM ended WHERE state = 6"), all);
    let epoch = count("SELECT epoch FROM installation");
    assert!(0 < epoch && epoch <= starts, "a start is an epoch, if it lives to take it");
    assert_eq!(count("SELECT max(id) <= (SELECT last_job FROM installation) FROM ended"), 1);
    // Whoever was released unstarted may be tried elsewhere; nobody was lost, and nobody was tried beside.
    assert_eq!(count("SELECT count(*) FROM past_attempts WHERE outcome <> 12"), 0);
    assert_eq!(count("SELECT count(*) FROM past_attempts WHERE started_at IS NOT NULL"), 0);
    let miscounted = "SELECT count(*) FROM ended e WHERE attempts <> 1 + (SELECT count(*) FROM past_attempts p WHERE p.job = e.id)";
    assert_eq!(count(miscounted), 0, "attempts are numbered without holes");
    assert_eq!(
        count("SELECT count(*) - count(DISTINCT fence) FROM all_attempts"),
        0,
        "a fence is given once"
    );
    assert_eq!(count("SELECT count(*) FROM notes"), 0, "no worker said anything that was not believed");
    let keyed = submissions.iter().filter(|it| it.key.is_some());
    assert_eq!(count("SELECT count(*) FROM keys"), i64::try_from(keyed.count()).unwrap());
    let said = submissions.iter().filter(|it| it.key.is_some()).filter_map(|it| it.acknowledged);
    let mut said: Vec<i64> = said.map(|job| i64::try_from(job).unwrap()).collect();
    said.sort_unstable();
    assert_eq!(ledger.numbers("SELECT job FROM keys ORDER BY job"), said);
    let silent = "SELECT count(*) FROM ended e JOIN definitions d ON d.id = e.definition WHERE d.name = 'talk' AND stdout_bytes <> 11";
    assert_eq!(count(silent), 0);
}

fn id(job: &Value) -> u64 {
    job["id"].as_u64().unwrap()
}

/// In a run of which nobody asks for more.
const KILLS: u32 = 20;
const CLIENTS: u64 = 4;
const SAMPLES: usize = 50;
const FAKE: &[&str] = &["--no-docker", "--allow-fake", "--slots", "8", "--backlog", "8"];
const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: fake }
  talk: { runtime: fake, environment: { FAKE_STDOUT: I was here } }
  slow: { runtime: fake, environment: { FAKE_SLEEP: 50ms } }
";
