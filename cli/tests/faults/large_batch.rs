//! A server that is killed or stopped in the middle of a large batch: afterwards all jobs of the batch exist or none, as the client was
//! told. None runs before all exist.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Database, SeededRng};
use tokio::task::JoinHandle;

use crate::support::{Api, Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn large_batch_is_atomic_over_a_kill() {
    let seed = std::env::var("LONGSHORE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(SeededRng::random_seed);
    println!("repeat this with LONGSHORE_SEED={seed}");
    let mut rng = SeededRng::new(seed);
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("one", FAKE);
    cluster.api().wait_for_ready_worker("one").await;
    let (mut whole, mut interrupted) = (0, 0);
    for round in 0..KILLS {
        let database = Database::open(&cluster.path("data"));
        let key = (round % 2 == 0).then(|| format!("batch-{round}"));
        let asked = submit(cluster.api(), key.clone());
        let members = rng.below(MEMBERS - 1) + 1;
        wait_until("some members are made", async || asked.is_finished() || made(&database) >= members).await;
        server.kill();
        let told = asked.await.unwrap().first();
        // The next start finds the data that is on the disk now.
        interrupted += u32::from(is_forming(&database));
        assert_eq!(database.query_one::<i64>(TOUCHED), 0, "a member took part before its batch was made");
        drop(database);
        server = cluster.start_server(&[]).await;
        let before = whole;
        whole = batches(&cluster);
        match told {
            Some(first) => {
                assert!(whole == before + 1 && has_all(&cluster.api(), first).await, "round {round}")
            }
            None => assert!(whole <= before + 1),
        }
        if key.is_some() {
            // The repeated request finds the batch or creates it.
            let first = submit(cluster.api(), key).await.unwrap().first().unwrap();
            assert!(told.is_none_or(|told| told == first), "told {told:?}, and then {first}");
            assert!(has_all(&cluster.api(), first).await);
            whole = batches(&cluster);
            assert_eq!(whole, before + 1, "a key has made two batches");
        }
    }
    println!("{interrupted} of {KILLS} kills came between two slices");
    assert!(interrupted > 0, "nothing was shown");
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_batch_is_atomic_over_a_shutdown() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let database = Database::open(&cluster.path("data"));
    let asked = submit(cluster.api(), None);
    wait_until("its first members are made", async || asked.is_finished() || made(&database) > 0).await;
    drop(database);
    server.signal(Signal::TERM);
    let told = asked.await.unwrap();
    let status = server.wait_for_exit().await;
    assert!(status.success(), "{status}:\n{}", server.log());
    let mut server = cluster.start_server(&[]).await;
    match (told, batches(&cluster)) {
        (Reply::Accepted(first), 1) => assert!(has_all(&cluster.api(), first).await),
        // A machine that is too slow for the time of a shutdown loses the answer.
        (Reply::Refused, 0) | (Reply::Lost, 0 | 1) => {}
        other => panic!("{other:?}"),
    }
    server.terminate().await;
}

/// The reply to the submission of a large batch.
#[derive(Clone, Copy, Debug)]
enum Reply {
    /// It is made; this is its first job.
    Accepted(u64),
    /// The server refused it: it is not made.
    Refused,
    /// The connection ended before the reply.
    Lost,
}

impl Reply {
    /// The first job of a batch that was accepted.
    const fn first(self) -> Option<u64> {
        match self {
            Self::Accepted(first) => Some(first),
            Self::Refused | Self::Lost => None,
        }
    }
}

/// Submits a large batch.
fn submit(api: Api, key: Option<String>) -> JoinHandle<Reply> {
    tokio::spawn(async move {
        let body = Value::Array(vec![json!({ "name": "long" }); MEMBERS as usize]);
        match api.request(Method::POST, "/api/jobs", Some(&body), key.as_deref()).await {
            Err(_) => Reply::Lost,
            Ok(answer) => match answer.status {
                200 | 201 => {
                    assert_eq!(answer.body["count"], MEMBERS);
                    Reply::Accepted(answer.body["first"].as_u64().unwrap())
                }
                503 => Reply::Refused,
                _ => panic!("{answer:?}"),
            },
        }
    })
}

/// Counts the stored members of the unfinished batch.
fn made(database: &Database) -> u64 {
    let made: i64 = database.query_one("SELECT count(*) FROM jobs JOIN forming ON id BETWEEN first AND last");
    u64::try_from(made).unwrap()
}

fn is_forming(database: &Database) -> bool {
    database.query_one::<i64>("SELECT count(*) FROM forming") > 0
}

/// Counts the large batches. The database contains nothing else, and every batch has all its members in a row.
fn batches(cluster: &Cluster) -> u64 {
    let database = Database::open(&cluster.path("data"));
    assert!(!is_forming(&database), "what was left of a batch is still there");
    let query = "SELECT batch, count(*), min(id), max(id) FROM all_jobs GROUP BY batch";
    let found: Vec<(i64, i64, i64, i64)> =
        database.query_rows(query, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    let members = i64::try_from(MEMBERS).unwrap();
    for batch in &found {
        assert_eq!(*batch, (batch.0, members, batch.0, batch.0 + members - 1));
    }
    found.len() as u64
}

/// Returns true if the first and the last member can be read.
async fn has_all(api: &Api, first: u64) -> bool {
    for id in [first, first + MEMBERS - 1] {
        let answer = api.request(Method::GET, &format!("/api/jobs/{id}"), None, None).await.unwrap();
        if answer.status != 200 || answer.body["batch"] != first {
            return false;
        }
    }
    true
}

/// Returns true if a member has left the queue before its batch is complete.
const TOUCHED: &str = "SELECT count(*) FROM jobs JOIN forming ON id BETWEEN first AND last WHERE state <> 2 OR fence IS NOT NULL";
/// The largest batch that one request may have.
const MEMBERS: u64 = 100_000;
const KILLS: u32 = 5;
const FAKE: &[&str] = &["--no-docker", "--allow-fake", "--slots", "2", "--backlog", "2"];
const JOBS: &str = "\
version: 1
jobs:
  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }
";
