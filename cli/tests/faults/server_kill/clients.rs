//! Those who submit, and one who watches. They write down what they were told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Dice, eventually};

/// One request for jobs.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    /// The label on each of its jobs.
    pub(super) label: String,
    /// How many jobs it asked for.
    pub(super) count: u64,
    pub(super) key: Option<String>,
    /// The number of its first job, if it got a 2xx.
    pub(super) acknowledged: Option<u64>,
}

/// What all clients were told.
#[derive(Debug, Default)]
pub(super) struct Books {
    submissions: Mutex<Vec<Submission>>,
    acknowledged: AtomicU64,
    closed: AtomicBool,
}

impl Books {
    pub(super) fn submissions(&self) -> Vec<Submission> {
        self.submissions.lock().unwrap().clone()
    }

    /// How many submissions have got a 2xx.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Nobody begins anything new.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    fn write(&self, submission: Submission) {
        self.acknowledged.fetch_add(u64::from(submission.acknowledged.is_some()), Ordering::Relaxed);
        self.submissions.lock().unwrap().push(submission);
    }
}

/// Submits until the books are closed: single jobs and batches, with keys and without.
pub(super) fn submit(client: u64, api: Api, mut dice: Dice, books: Arc<Books>) -> JoinHandle<()> {
    own_thread(async move || {
        let mut number = 0;
        while books.is_open() {
            number += 1;
            let label = format!("{client}-{number}");
            let count = if dice.below(8) == 0 { 1 + dice.below(50) } else { 0 };
            let key = (dice.below(2) == 0).then(|| format!("key-{label}"));
            let (path, body) = request(&label, count, &mut dice);
            let acknowledged = match &key {
                Some(key) => Some(insist(&api, &path, &body, key, dice.below(4) == 0).await),
                None => attempt(&api, &path, &body).await,
            };
            books.write(Submission { label, count: count.max(1), key, acknowledged });
        }
    })
}

/// A single job if `count` is zero, else a batch.
fn request(label: &str, count: u64, dice: &mut Dice) -> (String, Value) {
    let mut name = || ["quick", "talk", "slow"][dice.below(3) as usize];
    let labels = json!({ "submission": label });
    if count == 0 {
        return (format!("/api/jobs/{}", name()), json!({ "labels": labels }));
    }
    let jobs: Vec<Value> = (0..count).map(|_| json!({ "name": name(), "labels": labels })).collect();
    ("/api/jobs".to_owned(), Value::Array(jobs))
}

/// Tries once: without a key nobody can know what became of a request that got no answer.
async fn attempt(api: &Api, path: &str, body: &Value) -> Option<u64> {
    let mut answered = None;
    if let Ok(answer) = api.ask(Method::POST, path, Some(body), None).await {
        answered = first_job(&answer);
    }
    if answered.is_none() {
        // The server is away: the next one waits until it is back, so that the test does not spin.
        api.ready().await;
    }
    answered
}

/// Tries until there is an answer, and perhaps once more: it is the same one.
async fn insist(api: &Api, path: &str, body: &Value, key: &str, again: bool) -> u64 {
    let ask = async || {
        eventually("a keyed submission is answered", async || {
            first_job(&api.ask(Method::POST, path, Some(body), Some(key)).await.ok()?)
        })
        .await
    };
    let first = ask().await;
    if again {
        assert_eq!(ask().await, first, "{key} has made two jobs");
    }
    first
}

/// What was promised; nothing, if the server is about to leave or too busy.
fn first_job(answer: &Answer) -> Option<u64> {
    match answer.status {
        200 | 201 => answer.body["first"].as_u64().or(answer.body["id"].as_u64()),
        503 => None,
        _ => panic!("{answer:?}"),
    }
}

/// A thread for each, as if it were another machine.
fn own_thread<T: Send + 'static>(life: impl AsyncFnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(life())
    })
}

/// Writes down how jobs looked when they were first seen as ended.
pub(super) fn watch_ends(api: Api, books: Arc<Books>) -> JoinHandle<HashMap<u64, Value>> {
    own_thread(async move || {
        let mut seen: HashMap<u64, Value> = HashMap::new();
        while books.is_open() {
            let page = api.ask(Method::GET, "/api/jobs?state=succeeded&limit=500", None, None).await;
            let Ok(Answer { status: 200, body: Value::Array(jobs), .. }) = page else {
                api.ready().await;
                continue;
            };
            for job in jobs {
                let id = job["id"].as_u64().unwrap();
                let before = seen.entry(id).or_insert_with(|| job.clone());
                assert_eq!(*before, job, "an ended job has changed");
            }
        }
        seen
    })
}
