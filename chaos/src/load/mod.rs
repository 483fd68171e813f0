//! The load of a round: clients that submit jobs, read them, and record every answer.

mod flood;
pub mod jobs;
mod runner;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use reqwest::Method;
use serde_json::Value;

use crate::history::{Event, History};
use testkit::{Api, SeededRng};

/// State that all clients share.
#[derive(Debug)]
pub struct Clients {
    api: Api,
    history: Arc<History>,
    accepted_requests: AtomicU64,
    /// Accepted jobs to read again later.
    known: Mutex<Vec<u64>>,
    stopped: AtomicBool,
}

impl Clients {
    /// Creates the shared state for clients of this server.
    #[must_use]
    pub fn new(api: Api, history: Arc<History>) -> Arc<Self> {
        let (accepted_requests, known, stopped) = Default::default();
        Arc::new(Self { api, history, accepted_requests, known, stopped })
    }

    /// Starts the client threads: `floods` clients that submit fake jobs, and one client for each entry of `runs` that keeps one job of
    /// that definition running.
    #[must_use]
    pub fn spawn(self: &Arc<Self>, floods: u64, runs: &[String], rng: &mut SeededRng) -> Vec<JoinHandle<()>> {
        let flood = |n| {
            let (clients, rng) = (Arc::clone(self), rng.fork());
            spawn_client_thread(async move || flood::run(n, &clients, rng).await)
        };
        let mut clients: Vec<_> = (0..floods).map(flood).collect();
        for (n, definition) in runs.iter().enumerate() {
            let (shared, rng, definition) = (Arc::clone(self), rng.fork(), definition.clone());
            clients.push(spawn_client_thread(async move || runner::run(n, &definition, &shared, rng).await));
        }
        clients
    }

    /// The number of requests that the server accepted.
    #[must_use]
    pub fn accepted_requests(&self) -> u64 {
        self.accepted_requests.load(Ordering::Relaxed)
    }

    /// Makes all clients end after their current request.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_active(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed)
    }

    /// Submits jobs and records the answer; returns the id of the first job if they were accepted.
    async fn submit(&self, path: &str, body: &Value, label: &str, key: Option<&str>) -> Option<u64> {
        let answer = self.api.request(Method::POST, path, Some(body), key).await.ok()?;
        let job =
            answer.body["first"].as_u64().or(answer.body["id"].as_u64()).filter(|_| answer.is_success());
        self.history.append(Event::Answered { label: label.to_owned(), status: answer.status, job });
        let job = job?;
        self.accepted_requests.fetch_add(1, Ordering::Relaxed);
        let mut known = self.known.lock().unwrap();
        if known.len() < KNOWN_MAX {
            known.push(job);
        } else {
            let index = job as usize % KNOWN_MAX;
            known[index] = job;
        }
        Some(job)
    }

    /// Cancels a job and records the answer; returns false if the server did not answer or was unavailable.
    async fn cancel(&self, job: u64) -> bool {
        let path = format!("/api/jobs/{job}/cancel");
        let Ok(answer) = self.api.request(Method::POST, &path, None, None).await else { return false };
        self.history.append(Event::Cancelled { job, status: answer.status });
        answer.status != 503
    }

    /// Reads a job, and records it unless it is the same as `before`.
    async fn observe_job(&self, job: u64, before: &mut Option<Event>) -> Option<String> {
        let answer = self.api.request(Method::GET, &format!("/api/jobs/{job}"), None, None).await.ok()?;
        let shown = &answer.body;
        let state = shown["state"].as_str().unwrap_or_default().to_owned();
        let fence =
            shown["attempts"].as_array().and_then(|all| all.last()).and_then(|it| it["fence"].as_u64());
        let exit_code = shown["exit_code"].as_i64();
        let seen = Event::Seen { job, status: answer.status, state: state.clone(), fence, exit_code };
        if before.as_ref() != Some(&seen) {
            self.history.append(seen.clone());
            *before = Some(seen);
        }
        Some(state)
    }

    /// Reads a job that was accepted some time ago.
    async fn observe_old_job(&self, rng: &mut SeededRng) {
        let known = {
            let known = self.known.lock().unwrap();
            (!known.is_empty()).then(|| *rng.choose(&known))
        };
        if let Some(job) = known {
            self.observe_job(job, &mut None).await;
        }
    }
}

/// Starts a thread with its own runtime, as if the client were another machine.
fn spawn_client_thread<T: Send + 'static>(life: impl AsyncFnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(life())
    })
}

/// Number of job ids that are remembered.
const KNOWN_MAX: usize = 10_000;
