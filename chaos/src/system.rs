//! The system under test: a server, its workers, the network between them, and the engine.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use crate::disk::Disk;
use crate::engine::Engine;
use crate::history::{Event, History};
use crate::link::{Link, Network, Proxy};
use crate::load::jobs::{self, JobsFileParams, Runtime};
use crate::marks;
use testkit::{Cluster, Process, ProcessSpec, wait_at_most, wait_for};

/// One process that faults stop and start again.
#[derive(Debug)]
pub struct ManagedProcess {
    spec: ProcessSpec,
    process: AsyncMutex<Process>,
}

impl ManagedProcess {
    /// Waits until no other fault holds the process.
    pub async fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().await
    }

    /// Starts a new process in place of the old one.
    pub fn start(&self, process: &mut Process) {
        *process = self.spec.start();
    }
}

/// A worker and its link to the server.
#[derive(Debug)]
pub struct Worker {
    /// The worker's process.
    pub process: ManagedProcess,
    /// Its link to the server; the lock allows one fault at a time.
    pub link: AsyncMutex<Link>,
}

/// The running system and its counters.
#[derive(Debug)]
pub struct TestSystem {
    /// Directory, port and logs.
    pub cluster: Cluster,
    /// The record of requests and faults.
    pub history: Arc<History>,
    /// The server.
    pub server: ManagedProcess,
    /// The workers.
    pub workers: Vec<Worker>,
    /// The engine, if containers run.
    pub engine: Option<AsyncMutex<Engine>>,
    /// The definitions whose jobs write marks.
    pub marking_definitions: Vec<String>,
    /// The small disk under the server's data, if there is one.
    pub disk: Option<AsyncMutex<Disk>>,
    counts: Mutex<BTreeMap<String, u64>>,
    /// Dropped last, after the workers that use it.
    _network: Option<Network>,
}

/// Files and directories that a round uses.
#[derive(Clone, Debug)]
pub struct RoundPaths {
    /// The longshore program.
    pub longshore: PathBuf,
    /// The statically linked test job program.
    pub test_job: PathBuf,
    /// The directory in which rounds create theirs.
    pub directory: PathBuf,
}

/// The kind of network between workers and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    /// Proxies in this process.
    Proxies,
    /// Network namespaces; needs root.
    Namespaces,
}

impl TestSystem {
    /// Sets up and starts everything. With `small_disk` the server's data is on a disk that can be filled.
    pub async fn start(
        paths: &RoundPaths,
        engine: Option<Engine>,
        network: NetworkKind,
        small_disk: bool,
        workers: u32,
    ) -> Self {
        let mut cluster = Cluster::new_in(&paths.directory, &paths.longshore, "");
        let disk = small_disk.then(|| AsyncMutex::new(Disk::mount(cluster.path("data"))));
        let network = (network == NetworkKind::Namespaces).then(|| Network::new(cluster.port()));
        let mut flags = vec!["--heartbeat", "500ms", "--lease", "3s"];
        if let Some(network) = &network {
            cluster.set_host(network.host());
            flags.push("--insecure-no-auth");
        }
        let suffix = cluster.port().to_string();
        prepare_marks_dir(&cluster.path("marks"));
        let image = engine.as_ref().map(|engine| engine.import_job_image(&paths.test_job, &paths.directory));
        let params = JobsFileParams {
            test_job: &paths.test_job,
            image: image.as_deref(),
            marks_dir: &cluster.path("marks"),
            suffix: &suffix,
        };
        std::fs::write(cluster.path("jobs.yaml"), jobs::jobs_file(&params)).unwrap();
        let mut marking_definitions = jobs::names(Runtime::Process, &suffix);
        if engine.is_some() {
            marking_definitions.extend(jobs::names(Runtime::Docker, &suffix));
        }
        let history = Arc::new(History::create(&cluster.path("history.jsonl")).unwrap());
        let spec = cluster.server_spec(&flags);
        let server = ManagedProcess { process: AsyncMutex::new(spec.start()), spec };
        cluster.api().wait_until_ready().await;
        let mut started = Vec::new();
        for n in 1..=workers {
            let link = match &network {
                Some(network) => Link::Namespace(network.namespace(n)),
                None => Link::Proxy(Proxy::start(cluster.port()).await),
            };
            started.push(worker(&cluster, &format!("w{n}"), link, engine.as_ref()));
        }
        let (engine, counts) = (engine.map(AsyncMutex::new), Mutex::default());
        Self {
            cluster,
            history,
            server,
            workers: started,
            engine,
            marking_definitions,
            disk,
            counts,
            _network: network,
        }
    }

    /// Waits until the server is ready. A server that ended because its disk is full is started again, as a supervisor would.
    pub async fn wait_until_server_ready(&self, server: &mut Process) {
        let api = self.cluster.api();
        wait_for("the server serves", async || {
            if !server.is_running() {
                self.server.start(server);
                self.count("server_gave_up");
            }
            let answer = api.request(Method::GET, "/readyz", None, None).await.ok()?;
            answer.is_success().then_some(())
        })
        .await;
    }

    /// Waits until a new worker process is ready, as a deploy does. Without this wait, a worker could be away for longer than `self_fence`
    /// allows. The wait is short, because the server may be unreachable.
    pub async fn wait_until_worker_ready(&self, n: usize) {
        let (api, name) = (self.cluster.api(), format!("w{}", n + 1));
        wait_at_most(JOIN_TIMEOUT, async || {
            let workers = api.request(Method::GET, "/api/workers?all=1", None, None).await.ok()?;
            let workers = workers.body.as_array()?;
            workers.iter().any(|it| it["name"] == name && it["state"] == "ready").then_some(())
        })
        .await;
    }

    /// Records and counts a fault.
    pub fn record_fault(&self, kind: &str, what: String) {
        self.count(kind);
        self.history.append(Event::Fault { kind: kind.to_owned(), what });
    }

    /// Increments a counter.
    pub fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    /// All counters.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap().clone()
    }

    /// Counts the containers and the plain processes that run jobs now, according to the marks.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize) {
        // The last line may not be complete yet.
        let marks = marks::read(&self.cluster.path("marks/marks.jsonl")).unwrap_or_default();
        marks::in_flight(&marks)
    }
}

/// Containers may run as another user than plain processes; both must be able to append.
fn prepare_marks_dir(directory: &Path) {
    std::fs::create_dir(directory).unwrap();
    let marks = directory.join("marks.jsonl");
    std::fs::write(&marks, "").unwrap();
    std::fs::set_permissions(&marks, Permissions::from_mode(0o666)).unwrap();
}

impl Drop for TestSystem {
    fn drop(&mut self) {
        // Workers first: a running one would create more containers.
        self.cluster.kill_all();
        if let Some(engine) = &mut self.engine {
            engine.get_mut().remove(&self.marking_definitions);
        }
    }
}

fn worker(cluster: &Cluster, name: &str, link: Link, engine: Option<&Engine>) -> Worker {
    let mounts = cluster.path("marks").display().to_string();
    let mut flags =
        vec!["--allow-process", "--allow-fake", "--on-term", "detach", "--slots", "4", "--backlog", "4"];
    match engine {
        Some(_) => flags.extend(["--allow-mount", &mounts]),
        None => flags.push("--no-docker"),
    }
    let mut spec = cluster.worker_spec(name, &link.address(), &flags);
    spec.through = link.command_prefix();
    spec.environment = engine.map(Engine::environment).unwrap_or_default();
    let process = ManagedProcess { process: AsyncMutex::new(spec.start()), spec };
    Worker { process, link: AsyncMutex::new(link) }
}

/// The lease of workers in every round, a tenth of the default.
pub const LEASE: Duration = Duration::from_secs(3);
/// The longest wait for a worker, as long as for other conditions of a fault.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
