//! A server that ends in the middle of a large batch, by `kill -9` or because it is asked to: afterwards all of its jobs are there or
//! none, as the client was told, and none of them was touched before they all were.

use chaos::stage::{Dice, Ledger};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Api, Stage, holds};

#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_survives_a_kill_as_a_whole_or_not_at_all() {
    let seed = std::env::var("LONGSHORE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(Dice::fresh_seed);
    println!("repeat this with LONGSHORE_SEED={seed}");
    let mut dice = Dice::new(seed);
    let stage = Stage::new(JOBS);
    let mut server = stage.server(&[]).await;
    let _worker = stage.worker("one", FAKE);
    stage.api().worker_ready("one").await;
    let (mut whole, mut interrupted) = (0, 0);
    for round in 0..KILLS {
        let ledger = Ledger::open(&stage.path("data"));
        let key = (round % 2 == 0).then(|| format!("batch-{round}"));
        let asked = submit(stage.api(), key.clone());
        let so_many = dice.below(MEMBERS - 1) + 1;
        holds("some members are made", async || asked.is_finished() || made(&ledger) >= so_many).await;
        server.kill();
        let told = asked.await.unwrap();
        // What lies on the disk now is what the next start finds.
        interrupted += u32::from(is_forming(&ledger));
        assert_eq!(ledger.one::<i64>(TOUCHED), 0, "a member took part before its batch was made");
        drop(ledger);
        server = stage.server(&[]).await;
        let before = whole;
        whole = batches(&stage);
        match told {
            Some(first) => {
                assert!(whole == before + 1 && has_all(&stage.api(), first).await, "round {round}")
            }
            None => assert!(whole <= before + 1),
        }
        if key.is_some() {
            // Whatever became of it: the next try finds it, or makes it.
            let first = submit(stage.api(), key).await.unwrap().unwrap();
            assert!(told.is_none_or(|told| told == first), "told {told:?}, and then {first}");
            assert!(has_all(&stage.api(), first).await);
            whole = batches(&stage);
            assert_eq!(whole, before + 1, "a key has made two batches");
        }
    }
    println!("{interrupted} of {KILLS} kills came between two slices");
    assert!(interrupted > 0, "nothing was shown");
    server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_to_leave_finishes_a_large_batch_or_leaves_nothing_of_it() {
    let stage = Stage::new(JOBS);
    let mut server = stage.server(&[]).await;
    let ledger = Ledger::open(&stage.path("data"));
    let asked = submit(stage.api(), None);
    holds("its first members are made", async || asked.is_finished() || made(&ledger) > 0).await;
    drop(ledger);
    server.signal(Signal::TERM);
    let told = asked.await.unwrap();
    let status = server.ended().await;
    assert!(status.success(), "{status}:\n{}", server.said());
    let mut server = stage.server(&[]).await;
    assert_eq!(batches(&stage), u64::from(told.is_some()));
    if let Some(first) = told {
        assert!(has_all(&stage.api(), first).await);
    }
    server.leave().await;
}

/// Asks for a large batch; the number of its first job, if that was promised.
fn submit(api: Api, key: Option<String>) -> JoinHandle<Option<u64>> {
    tokio::spawn(async move {
        let body = Value::Array(vec![json!({ "name": "long" }); MEMBERS as usize]);
        let answer = api.ask(Method::POST, "/api/jobs", Some(&body), key.as_deref()).await.ok()?;
        match answer.status {
            200 | 201 => {
                assert_eq!(answer.body["count"], MEMBERS);
                answer.body["first"].as_u64()
            }
            503 => None,
            _ => panic!("{answer:?}"),
        }
    })
}

/// How many members of the batch that is being made lie on the disk.
fn made(ledger: &Ledger) -> u64 {
    let made: i64 = ledger.one("SELECT count(*) FROM jobs JOIN forming ON id BETWEEN first AND last");
    u64::try_from(made).unwrap()
}

fn is_forming(ledger: &Ledger) -> bool {
    ledger.one::<i64>("SELECT count(*) FROM forming") > 0
}

/// How many large batches there are. Nothing else is there, and each has all of its members, one behind the other.
fn batches(stage: &Stage) -> u64 {
    let ledger = Ledger::open(&stage.path("data"));
    assert!(!is_forming(&ledger), "what was left of a batch is still there");
    let query = "SELECT batch, count(*), min(id), max(id) FROM all_jobs GROUP BY batch";
    let found: Vec<(i64, i64, i64, i64)> =
        ledger.rows(query, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    let members = i64::try_from(MEMBERS).unwrap();
    for batch in &found {
        assert_eq!(*batch, (batch.0, members, batch.0, batch.0 + members - 1));
    }
    found.len() as u64
}

/// Whether the first and the last one can be looked at.
async fn has_all(api: &Api, first: u64) -> bool {
    for id in [first, first + MEMBERS - 1] {
        let answer = api.ask(Method::GET, &format!("/api/jobs/{id}"), None, None).await.unwrap();
        if answer.status != 200 || answer.body["batch"] != first {
            return false;
        }
    }
    true
}

/// A member that is more than waiting, although its batch is still being made.
const TOUCHED: &str = "SELECT count(*) FROM jobs JOIN forming ON id BETWEEN first AND last WHERE state <> 2 OR fence IS NOT NULL";
/// The most that a request may ask for.
const MEMBERS: u64 = 100_000;
const KILLS: u32 = 5;
const FAKE: &[&str] = &["--no-docker", "--allow-fake", "--slots", "2", "--backlog", "2"];
const JOBS: &str = "\
version: 1
jobs:
  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }
";
