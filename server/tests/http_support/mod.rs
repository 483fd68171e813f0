//! A whole HTTP face on a real port, before a stand-in for engine and archive that the tests can look into and change.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses its part, and no test needs better panics"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use longshore_server::auth::Access;
use longshore_server::catalogue::{Catalogue, Definitions, Entry};
use longshore_server::engine::{Command, Handle};
use longshore_server::http::{App, router};
use longshore_server::listener::{Limits, Listener};
use longshore_server::logs::{self, Logs};
use longshore_server::store::{
    Archive, AttemptRow, JobFilter, JobRecord, JobRow, ReadError, StoredDefinition,
};
use protocol::container::{Body, ContainerSpec};
use protocol::report::{Outcome, OutputLengths};
use protocol::{AttemptNo, Fence, JobId, Nonce, Revision, SessionId, Timestamp, WorkerId};
use scheduler::definition::{Definition, LossPolicy, RetryPolicy};
use scheduler::input::{GroupNo, KeyHolder, NewJob, Operation};
use scheduler::job::State;
use scheduler::snapshot::{Snapshot, WorkerFacts, WorkerState};
use scheduler::step::{Accepted, Answer, PendingReason, Rejection, WorkerRow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// What the stand-in knows.
#[derive(Default)]
pub struct World {
    pub jobs: Vec<JobRecord>,
    pub keys: HashMap<String, KeyHolder>,
    pub workers: Vec<WorkerRow>,
    pub operations: Vec<(WorkerId, Operation)>,
    pub waiting: HashMap<JobId, Vec<oneshot::Sender<State>>>,
    pub pending: Option<PendingReason>,
    pub unreadable: bool,
    names: HashMap<Revision, String>,
}

impl World {
    /// Ends a job, and tells those who wait.
    pub fn end(&mut self, id: u64, state: State, exit_code: i32) {
        let row = &mut self.record(id).row;
        row.state = state;
        row.ended_at = Some(Timestamp(9_000));
        row.reason = if exit_code == 0 { String::new() } else { format!("exit code {exit_code}") };
        if let Some(attempt) = &mut row.attempt {
            attempt.ended_at = Some(Timestamp(9_000));
            attempt.exit_code = Some(exit_code);
            attempt.outcome = Some(if exit_code == 0 { Outcome::Succeeded } else { Outcome::Failed });
        }
        for waiting in self.waiting.remove(&JobId(id)).unwrap_or_default() {
            // Whoever waited may have gone.
            let _ = waiting.send(state);
        }
    }

    /// Gives a job to worker 1.
    pub fn start(&mut self, id: u64) {
        let row = &mut self.record(id).row;
        row.state = State::Running;
        row.attempts = AttemptNo(1);
        row.attempt = Some(attempt(1, 100 + id));
    }

    pub fn record(&mut self, id: u64) -> &mut JobRecord {
        self.jobs.iter_mut().find(|record| record.row.job == JobId(id)).expect("the job exists")
    }

    fn add(&mut self, new: NewJob, batch: Option<JobId>) -> JobId {
        let id = JobId(self.jobs.len() as u64 + 1);
        let details = new.details.unwrap_or_default();
        let row = JobRow {
            job: id,
            definition: self.names[&new.revision].clone(),
            revision: new.revision,
            state: State::Queued,
            priority: new.priority.unwrap_or_default(),
            created_at: Timestamp(1_000),
            due_at: Timestamp(1_000),
            timeout: new.timeout,
            batch,
            retry_of: new.retry_of,
            labels: details.labels,
            ended_at: None,
            reason: String::new(),
            confirmed: true,
            attempts: AttemptNo(0),
            attempt: None,
        };
        self.jobs.push(JobRecord { row, body: details.body, past: Vec::new(), notes: Vec::new() });
        id
    }
}

/// The stand-in, shared with the tests.
#[derive(Clone, Default)]
pub struct Stand(Arc<Mutex<World>>);

impl Stand {
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Result<MutexGuard<'_, World>, ReadError> {
        let world = self.world();
        if world.unreadable {
            return Err(ReadError(Box::new(std::io::Error::other("a secret of the disk"))));
        }
        Ok(world)
    }
}

impl Archive for Stand {
    fn job(&self, id: JobId) -> Result<Option<JobRecord>, ReadError> {
        Ok(self.read()?.jobs.iter().find(|record| record.row.job == id).cloned())
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, ReadError> {
        let fits = |row: &&JobRow| {
            (filter.states.is_empty() || filter.states.contains(&row.state))
                && filter.name.as_ref().is_none_or(|name| *name == row.definition)
                && filter.batch.is_none_or(|batch| row.batch == Some(batch))
                && filter.label.as_ref().is_none_or(|label| row.labels.contains(label))
                && filter.before.is_none_or(|before| row.job < before)
        };
        let world = self.read()?;
        Ok(world
            .jobs
            .iter()
            .rev()
            .map(|record| &record.row)
            .filter(fits)
            .take(filter.limit)
            .cloned()
            .collect())
    }

    fn key(&self, key: &str) -> Result<(Option<KeyHolder>, GroupNo), ReadError> {
        Ok((self.read()?.keys.get(key).copied(), GroupNo(1)))
    }

    fn bodies(&self, _ids: &[JobId]) -> Result<Vec<(JobId, Body)>, ReadError> {
        Ok(Vec::new())
    }

    fn definition(&self, _revision: Revision) -> Result<Option<StoredDefinition>, ReadError> {
        Ok(None)
    }

    fn workers(&self) -> Result<Vec<WorkerRow>, ReadError> {
        Ok(self.read()?.workers.clone())
    }

    fn last_ended(&self, definition: &str) -> Result<Option<JobRow>, ReadError> {
        let world = self.read()?;
        let ended = |row: &&JobRow| row.definition == definition && row.state.has_ended();
        Ok(world.jobs.iter().rev().map(|record| &record.row).find(ended).cloned())
    }
}

/// A server under test.
pub struct Server {
    pub address: SocketAddr,
    pub stand: Stand,
    pub logs: Arc<Logs>,
    pub leaving: CancellationToken,
    pub served: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Server {
    /// Open, on loopback, without a base path.
    pub async fn start() -> Self {
        Self::with(|access| access, "", Limits::default()).await
    }

    pub async fn with(guard: impl FnOnce(Access) -> Access, base_path: &str, limits: Limits) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), limits).await.unwrap();
        let address = listener.address();
        let stand = Stand::default();
        let catalogue = Catalogue::new(Definitions::new(definitions()));
        for entry in catalogue.current().iter() {
            let definition = &entry.definition;
            stand.world().names.insert(definition.revision, definition.name.clone());
        }
        stand.world().workers.push(worker_row(1, "w1"));
        stand.world().workers.push(worker_row(2, "w2"));
        let (inbox, commands) = mpsc::channel(64);
        let (_, snapshot) = watch::channel(Arc::new(snapshot()));
        tokio::spawn(answer(commands, stand.clone()));
        let directory = tempfile::tempdir().unwrap();
        let logs = Logs::open(directory.path(), logs::Limits::default()).unwrap();
        let leaving = CancellationToken::new();
        let app = App {
            engine: Handle::new(inbox, snapshot),
            archive: Arc::new(stand.clone()),
            catalogue: Arc::new(catalogue),
            logs: Arc::clone(&logs),
            access: Arc::new(guard(Access::open(address))),
            base_path: base_path.to_owned(),
            leaving: leaving.clone(),
        };
        let workers = Router::new()
            .route("/api/workers/connect", axum::routing::get(|| async { "here workers connect\n" }));
        let served = tokio::spawn(listener.serve(router(app, workers), leaving.clone()));
        Self { address, stand, logs, leaving, served, _directory: directory }
    }

    /// A request with these headers, on a connection of its own.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("host: localhost\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        self.say(format!("{head}\r\n{body}").as_bytes()).await
    }

    pub async fn get(&self, path: &str) -> Answered {
        self.ask("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answered {
        self.ask("POST", path, &[("content-type", "application/json")], body).await
    }

    /// These very bytes; the answer is whatever comes until the server closes.
    pub async fn say(&self, bytes: &[u8]) -> Answered {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before it has taken everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = within(stream.read_to_end(&mut answer)).await;
        Answered::parse(&answer)
    }

    /// Begins a request whose answer is read bit by bit.
    pub async fn open(&self, head: &str) -> Open {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("{head}\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        Open { stream, seen: String::new() }
    }
}

/// A request under way.
pub struct Open {
    stream: TcpStream,
    pub seen: String,
}

impl Open {
    /// Reads on until this text has come.
    pub async fn until(&mut self, text: &str) {
        let Self { stream, seen } = self;
        let reading = async {
            let mut buffer = [0; 4096];
            while !seen.contains(text) {
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "the answer ended before {text:?}: {seen}");
                seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        };
        within(reading).await;
    }

    /// Reads on until the server closes.
    pub async fn until_closed(&mut self) {
        let mut rest = Vec::new();
        let _ = within(self.stream.read_to_end(&mut rest)).await;
        self.seen.push_str(&String::from_utf8_lossy(&rest));
    }

    pub async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answered {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_default();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status, headers, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that it is a problem document with this status and code.
    pub fn is_problem(&self, status: u16, code: &str) -> serde_json::Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"], self.header("x-request-id"));
        assert!(problem["type"].as_str().unwrap().ends_with(&format!("/problems/{code}")), "{self:?}");
        problem
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size @ 1..) = usize::from_str_radix(size, 16) else { break };
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    whole
}

/// Nothing in a test may hang.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it should not take this long")
}

pub fn attempt(number: u32, fence: u64) -> AttemptRow {
    AttemptRow {
        number: AttemptNo(number),
        fence: Fence(fence),
        nonce: Nonce(7),
        worker: WorkerId(1),
        worker_name: "w1".into(),
        assigned_at: Timestamp(2_000),
        started_at: Some(Timestamp(3_000)),
        container: "c1".into(),
        stopping: None,
        ended_at: None,
        outcome: None,
        exit_code: None,
        message: String::new(),
        output: OutputLengths::default(),
        result: None,
        released: None,
    }
}

fn definitions() -> Vec<Entry> {
    ["resize", "resize-all", "backup", "off"]
        .into_iter()
        .zip(1..)
        .map(|(name, revision)| entry(name, revision))
        .collect()
}

fn entry(name: &str, revision: u128) -> Entry {
    let environment = vec![("PASSWORD".to_owned(), "hunter2".to_owned())];
    let definition = Definition {
        name: name.to_owned(),
        revision: Revision(revision),
        enabled: name != "off",
        priority: 5,
        timeout: Some(Duration::from_secs(3600)),
        retry: RetryPolicy::default(),
        loss: LossPolicy::default(),
        container: ContainerSpec { image: "resize:1".to_owned(), environment, ..ContainerSpec::default() },
    };
    let stored =
        StoredDefinition { revision: Revision(revision), name: name.to_owned(), entry: "{}".to_owned() };
    Entry {
        definition: Arc::new(definition),
        stored: Arc::new(stored),
        description: Some("Makes pictures smaller".to_owned()),
        owner: None,
        tags: Vec::new(),
    }
}

fn worker_row(id: u64, name: &str) -> WorkerRow {
    WorkerRow {
        worker: WorkerId(id),
        name: name.into(),
        secret_hash: [0; 32],
        joined_at: Timestamp(10),
        seen_at: Timestamp(20),
        cordoned: false,
        slots: None,
    }
}

fn snapshot() -> Snapshot {
    let worker = WorkerFacts {
        id: WorkerId(1),
        name: "w1".into(),
        session: Some(SessionId(1)),
        state: WorkerState::Ready,
        since: Timestamp(500),
        slots: 4,
        busy: 1,
        backlog: 4,
        queued: 0,
        cordoned: false,
        labels: vec![("zone".to_owned(), "a".to_owned())],
        runtimes: Vec::new(),
        version: "0.1.0".to_owned(),
        address: "127.0.0.1:5".to_owned(),
    };
    Snapshot {
        workers: vec![worker],
        waiting: vec![(Revision(1), PendingReason::Busy, 3)],
        ..Snapshot::default()
    }
}

/// Does what an engine would do, without a brain.
async fn answer(mut commands: mpsc::Receiver<Command>, stand: Stand) {
    while let Some(command) = commands.recv().await {
        let mut world = stand.world();
        // Whoever asked may have gone.
        let _ = match command {
            Command::Submit { jobs, batch, require_worker, key, reply } => {
                reply.send(submit(&mut world, jobs, batch, require_worker, key))
            }
            Command::Cancel { job, reply, .. } => reply.send(cancel(&mut world, job)),
            Command::Operate { worker, operation, reply } => {
                let known = world.workers.iter().any(|row| row.worker == worker);
                let answer = match (known, &operation, worker) {
                    (false, ..) => Answer::Rejected(Rejection::UnknownWorker),
                    (_, Operation::Forget, WorkerId(1)) => Answer::Rejected(Rejection::WorkerConnected),
                    _ => Answer::Done,
                };
                world.operations.push((worker, operation));
                reply.send(answer)
            }
            Command::Define { .. } => continue,
            Command::AwaitEnd { job, reply } => {
                let live =
                    world.jobs.iter().any(|record| record.row.job == job && !record.row.state.has_ended());
                if live {
                    world.waiting.entry(job).or_default().push(reply);
                }
                continue;
            }
        };
    }
}

fn submit(
    world: &mut World,
    jobs: Vec<NewJob>,
    batch: bool,
    require_worker: bool,
    key: Option<scheduler::input::Key>,
) -> Answer {
    if let Some(key) = &key
        && let Some(found) = key.found
    {
        return match found.digest == key.digest {
            true => Answer::Replayed(found),
            false => Answer::Rejected(Rejection::KeyMismatch(found)),
        };
    }
    if require_worker && let Some(reason) = world.pending {
        return Answer::Rejected(Rejection::NoWorker(reason));
    }
    if jobs.iter().any(|job| job.revision == Revision(4)) {
        return Answer::Rejected(Rejection::Disabled);
    }
    let first = JobId(world.jobs.len() as u64 + 1);
    let count = jobs.len() as u32;
    for job in jobs {
        world.add(job, batch.then_some(first));
    }
    if let Some(key) = key {
        world.keys.insert(key.key.to_string(), KeyHolder { job: first, count, digest: key.digest });
    }
    Answer::Accepted(Accepted {
        first,
        count,
        created_at: Timestamp(1_000),
        state: State::Queued,
        pending: world.pending.or(Some(PendingReason::Soon)),
    })
}

fn cancel(world: &mut World, job: JobId) -> Answer {
    let state = world.jobs.iter().find(|record| record.row.job == job).map(|record| record.row.state);
    match state {
        Some(State::Running) => Answer::Cancelling(State::Running),
        Some(state) if !state.has_ended() => {
            world.end(job.0, State::Cancelled, 0);
            Answer::Cancelling(State::Cancelled)
        }
        _ => Answer::Rejected(Rejection::NotLive),
    }
}
