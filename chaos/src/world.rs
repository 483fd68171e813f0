//! Everything that can be struck in a round: a server, its workers, the ways between them, and the engine.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use tokio::sync::{Mutex as Turn, MutexGuard};

use crate::disk::Disk;
use crate::engine::Engine;
use crate::history::{Event, History};
use crate::link::{Link, Network, Proxy};
use crate::load::jobs::{self, Props, Runtime};
use crate::round::{Place, Plan};
use crate::stage::{Launch, Process, Stage, eventually, within};
use crate::truth;

/// One process that is started again and again.
#[derive(Debug)]
pub struct Role {
    launch: Launch,
    process: Turn<Process>,
}

impl Role {
    /// Waits until nothing else strikes it.
    pub async fn turn(&self) -> MutexGuard<'_, Process> {
        self.process.lock().await
    }

    /// A new process in its place.
    pub fn start(&self, process: &mut Process) {
        *process = self.launch.start();
    }
}

/// A worker and its way to the server.
#[derive(Debug)]
pub struct Worker {
    /// Its process.
    pub role: Role,
    /// Its way to the server. One trouble at a time.
    pub link: Turn<Link>,
}

/// What is struck, and what is counted.
#[derive(Debug)]
pub struct World {
    /// The directory of all of them.
    pub stage: Stage,
    /// What clients and faults write down.
    pub history: Arc<History>,
    /// The server.
    pub server: Role,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// Where containers run, if any do.
    pub engine: Option<Turn<Engine>>,
    /// The definitions whose jobs leave marks.
    pub witnessed: Vec<String>,
    /// What the server's data lies on, if it is a disk of its own.
    pub disk: Option<Turn<Disk>>,
    tally: Mutex<BTreeMap<String, u64>>,
    /// Outlives those who live on it.
    _network: Option<Network>,
}

/// What ways lead from workers to their server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Proxies in this process.
    Proxies,
    /// Network namespaces; needs root.
    Namespaces,
}

impl World {
    /// Sets everything up, and starts it.
    pub async fn begin(place: &Place, engine: Option<Engine>, plan: &Plan, workers: u32) -> Self {
        let mut stage = Stage::below(&place.directory, &place.longshore, "");
        let disk = plan.small_disk.then(|| Turn::new(Disk::mount(stage.path("data"))));
        let network = (plan.ways == Ways::Namespaces).then(|| Network::new(stage.port()));
        let mut flags = vec!["--heartbeat", "500ms", "--lease", "3s"];
        if let Some(network) = &network {
            stage.move_to(network.host());
            flags.push("--insecure-no-auth");
        }
        let suffix = stage.port().to_string();
        prepare_truth(&stage.path("truth"));
        let image = engine.as_ref().map(|engine| engine.provide(&place.witness, &place.directory));
        let props = Props {
            witness: &place.witness,
            image: image.as_deref(),
            truth: &stage.path("truth"),
            suffix: &suffix,
        };
        std::fs::write(stage.path("jobs.yaml"), jobs::file(&props)).unwrap();
        let mut witnessed = jobs::names(Runtime::Process, &suffix);
        if engine.is_some() {
            witnessed.extend(jobs::names(Runtime::Docker, &suffix));
        }
        let history = Arc::new(History::begin(&stage.path("history.jsonl")).unwrap());
        let launch = stage.server_launch(&flags);
        let server = Role { process: Turn::new(launch.start()), launch };
        stage.api().ready().await;
        let mut started = Vec::new();
        for n in 1..=workers {
            let link = match &network {
                Some(network) => Link::Namespace(network.namespace(n)),
                None => Link::Proxy(Proxy::to(stage.port()).await),
            };
            started.push(worker(&stage, &format!("w{n}"), link, engine.as_ref()));
        }
        let (engine, tally) = (engine.map(Turn::new), Mutex::default());
        Self { stage, history, server, workers: started, engine, witnessed, disk, tally, _network: network }
    }

    /// Waits until the server serves. One that gives up, because its disk is full, is started again as a supervisor would.
    pub async fn server_serves(&self, server: &mut Process) {
        let api = self.stage.api();
        eventually("the server serves", async || {
            if !server.is_alive() {
                self.server.start(server);
                self.count("server_gave_up");
            }
            let answer = api.ask(Method::GET, "/readyz", None, None).await.ok()?;
            answer.is_success().then_some(())
        })
        .await;
    }

    /// Waits until a new process of a worker has joined, as a deploy that looks at its health does: one that replaces them faster than they
    /// join keeps a worker away for longer than what is fenced may run without its server. If the server is out of reach, nobody waits long.
    pub async fn worker_joins(&self, n: usize) {
        let (api, name) = (self.stage.api(), format!("w{}", n + 1));
        within(JOIN_PATIENCE, async || {
            let workers = api.ask(Method::GET, "/api/workers?all=1", None, None).await.ok()?;
            let workers = workers.body.as_array()?;
            workers.iter().any(|it| it["name"] == name && it["state"] == "ready").then_some(())
        })
        .await;
    }

    /// Writes down that something was done, and counts it.
    pub fn tell(&self, kind: &str, what: String) {
        self.count(kind);
        self.history.note(Event::Fault { kind: kind.to_owned(), what });
    }

    /// Counts something.
    pub fn count(&self, what: &str) {
        *self.tally.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    /// Everything that was counted.
    #[must_use]
    pub fn tally(&self) -> BTreeMap<String, u64> {
        self.tally.lock().unwrap().clone()
    }

    /// How many containers, and how many plain processes, are running jobs now, as far as they have said so.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize) {
        // A mark that is being written may not be a whole line yet.
        let marks = truth::read(&self.stage.path("truth/marks")).unwrap_or_default();
        truth::in_flight(&marks)
    }
}

/// Containers may run as another user than plain processes do: both must be able to leave marks.
fn prepare_truth(directory: &Path) {
    std::fs::create_dir(directory).unwrap();
    let marks = directory.join("marks");
    std::fs::write(&marks, "").unwrap();
    std::fs::set_permissions(&marks, Permissions::from_mode(0o666)).unwrap();
}

impl Drop for World {
    fn drop(&mut self) {
        // Workers first: one that lives would go on making containers.
        self.stage.end_what_is_left();
        if let Some(engine) = &mut self.engine {
            engine.get_mut().remove(&self.witnessed);
        }
    }
}

fn worker(stage: &Stage, name: &str, link: Link, engine: Option<&Engine>) -> Worker {
    let mounts = stage.path("truth").display().to_string();
    let mut flags =
        vec!["--allow-process", "--allow-fake", "--on-term", "detach", "--slots", "4", "--backlog", "4"];
    match engine {
        Some(_) => flags.extend(["--allow-mount", &mounts]),
        None => flags.push("--no-docker"),
    }
    let mut launch = stage.worker_launch(name, &link.address(), &flags);
    launch.through = link.through();
    launch.environment = engine.map(Engine::environment).unwrap_or_default();
    let role = Role { process: Turn::new(launch.start()), launch };
    Worker { role, link: Turn::new(link) }
}

/// How long a worker's lease lasts in every round: a tenth of the usual one.
pub const LEASE: Duration = Duration::from_secs(3);
/// The longest wait for a process to join; as long as for anything else that a fault waits for.
const JOIN_PATIENCE: Duration = Duration::from_secs(10);
