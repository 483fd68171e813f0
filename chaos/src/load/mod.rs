//! The load under which faults strike: clients that ask for jobs, look at them, and write down what they were told.

mod flood;
pub mod jobs;
mod runner;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use reqwest::Method;
use serde_json::Value;

use crate::history::{Event, History};
use crate::stage::{Api, Dice};

/// What all clients share.
#[derive(Debug)]
pub struct Desk {
    api: Api,
    history: Arc<History>,
    acknowledged: AtomicU64,
    /// Some of the jobs that were promised, to look at again later.
    known: Mutex<Vec<u64>>,
    closed: AtomicBool,
}

impl Desk {
    /// Clients of this server.
    #[must_use]
    pub fn open(api: Api, history: Arc<History>) -> Arc<Self> {
        let (acknowledged, known, closed) = Default::default();
        Arc::new(Self { api, history, acknowledged, known, closed })
    }

    /// Starts clients: so many that flood it with fake jobs, and for each of `runs` one that has a job of that definition running all
    /// the time.
    #[must_use]
    pub fn clients(self: &Arc<Self>, floods: u64, runs: &[String], dice: &mut Dice) -> Vec<JoinHandle<()>> {
        let flood = |n| {
            let (desk, dice) = (Arc::clone(self), dice.split());
            own_thread(async move || flood::pour(n, &desk, dice).await)
        };
        let mut clients: Vec<_> = (0..floods).map(flood).collect();
        for (n, definition) in runs.iter().enumerate() {
            let (desk, dice, definition) = (Arc::clone(self), dice.split(), definition.clone());
            clients.push(own_thread(async move || runner::run(n, &definition, &desk, dice).await));
        }
        clients
    }

    /// How many requests have been promised jobs.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Nobody begins anything new.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Asks for jobs, and writes down what comes of it; the first job, if they were promised.
    async fn submit(&self, path: &str, body: &Value, label: &str, key: Option<&str>) -> Option<u64> {
        let answer = self.api.ask(Method::POST, path, Some(body), key).await.ok()?;
        let job =
            answer.body["first"].as_u64().or(answer.body["id"].as_u64()).filter(|_| answer.is_success());
        self.history.note(Event::Answered { label: label.to_owned(), status: answer.status, job });
        let job = job?;
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        let mut known = self.known.lock().unwrap();
        if known.len() < KNOWN_MAX {
            known.push(job);
        } else {
            let place = job as usize % KNOWN_MAX;
            known[place] = job;
        }
        Some(job)
    }

    /// Asks for the end of a job, and writes down what comes of it. Whether there was an answer.
    async fn cancel(&self, job: u64) -> bool {
        let path = format!("/api/jobs/{job}/cancel");
        let Ok(answer) = self.api.ask(Method::POST, &path, None, None).await else { return false };
        self.history.note(Event::Cancelled { job, status: answer.status });
        answer.status != 503
    }

    /// Looks at a job, and writes down what it sees unless it is what it saw `before`.
    async fn look(&self, job: u64, before: &mut Option<Event>) -> Option<String> {
        let answer = self.api.ask(Method::GET, &format!("/api/jobs/{job}"), None, None).await.ok()?;
        let shown = &answer.body;
        let state = shown["state"].as_str().unwrap_or_default().to_owned();
        let fence =
            shown["attempts"].as_array().and_then(|all| all.last()).and_then(|it| it["fence"].as_u64());
        let exit_code = shown["exit_code"].as_i64();
        let seen = Event::Seen { job, status: answer.status, state: state.clone(), fence, exit_code };
        if before.as_ref() != Some(&seen) {
            self.history.note(seen.clone());
            *before = Some(seen);
        }
        Some(state)
    }

    /// Looks at a job that was promised some time ago.
    async fn look_back(&self, dice: &mut Dice) {
        let known = {
            let known = self.known.lock().unwrap();
            (!known.is_empty()).then(|| *dice.one_of(&known))
        };
        if let Some(job) = known {
            self.look(job, &mut None).await;
        }
    }
}

/// A thread for each client, as if it were another machine.
fn own_thread<T: Send + 'static>(life: impl AsyncFnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(life())
    })
}

/// Enough to come back to something old.
const KNOWN_MAX: usize = 10_000;
