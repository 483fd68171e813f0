//! The faults: each is injected once, is undone at the end, and is recorded in the history.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::link::{Link, LinkState};
use crate::system::{LEASE, TestSystem};
use testkit::{Process, SeededRng, wait_at_most};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// `kill -9` of the server, sometimes again while it starts.
    KillServer,
    /// `kill -9` of a worker.
    KillWorker,
    /// `kill -9` of the server and a worker at once.
    KillBoth,
    /// `kill -9` of a `docker` command that a worker has started.
    KillCommand,
    /// SIGSTOP of the server for half a lease up to ten.
    PauseServer,
    /// SIGSTOP of a worker for half a lease up to ten.
    PauseWorker,
    /// A network fault between a worker and the server: broken, silent, one-way or slow.
    Cut,
    /// The Docker daemon is killed or stopped, and started again.
    RestartEngine,
    /// SIGSTOP of the Docker daemon: it accepts connections and does not answer.
    PauseEngine,
    /// The server's disk is full for a while.
    FillDisk,
    /// A deploy of the server: SIGTERM, then a new process.
    DeployServer,
    /// A deploy of a worker; its containers go on.
    DeployWorker,
}

impl Fault {
    /// The name in results.
    #[must_use]
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Injects the fault once, and returns when all processes have been started again; a worker may not be connected yet.
    pub async fn inject(self, system: &TestSystem, mut rng: SeededRng) {
        let rng = &mut rng;
        let n = rng.below(system.workers.len() as u64) as usize;
        let worker = &system.workers[n];
        let what = match self {
            Self::KillServer => {
                let mut server = system.server.lock().await;
                wait_until_busy(self, system).await;
                kill_server(system, &mut server, rng).await
            }
            Self::KillWorker => {
                let mut process = worker.process.lock().await;
                wait_until_busy(self, system).await;
                process.kill();
                let stays_away = rng.below(8) == 0;
                sleep_up_to(rng, if stays_away { AWAY_MS } else { SOON_MS }).await;
                worker.process.start(&mut process);
                format!("kill -9 of worker {n}")
            }
            Self::KillBoth => {
                let (mut server, mut process) = (system.server.lock().await, worker.process.lock().await);
                wait_until_busy(self, system).await;
                process.kill();
                kill_server(system, &mut server, rng).await;
                worker.process.start(&mut process);
                format!("kill -9 of the server and worker {n}")
            }
            Self::KillCommand => {
                match wait_at_most(BUSY_TIMEOUT, async || docker_commands(system).pop()).await {
                    Some(command) => {
                        let _ = rustix::process::kill_process(command, Signal::KILL);
                        format!("kill -9 of docker command {}", command.as_raw_nonzero())
                    }
                    None => return,
                }
            }
            Self::PauseServer => pause(&*system.server.lock().await, "the server", rng).await,
            Self::PauseWorker => pause(&*worker.process.lock().await, &format!("worker {n}"), rng).await,
            Self::Cut => format!("the link of worker {n} {}", cut(&*worker.link.lock().await, rng).await),
            Self::RestartEngine => match &system.engine {
                Some(engine) => engine.lock().await.restart(rng).await.to_owned(),
                None => return,
            },
            Self::PauseEngine => match &system.engine {
                Some(engine) => engine.lock().await.pause(*rng.choose(&PAUSE_TIMES)).await,
                None => return,
            },
            Self::FillDisk => match &system.disk {
                Some(disk) => fill(system, &*disk.lock().await, rng).await,
                None => return,
            },
            Self::DeployServer => {
                let mut server = system.server.lock().await;
                terminate(&mut server).await;
                system.server.start(&mut server);
                system.wait_until_server_ready(&mut server).await;
                "a deploy of the server".to_owned()
            }
            Self::DeployWorker => {
                let mut process = worker.process.lock().await;
                terminate(&mut process).await;
                worker.process.start(&mut process);
                system.wait_until_worker_ready(n).await;
                format!("a deploy of worker {n}")
            }
        };
        system.record_fault(&self.name(), what);
    }
}

/// Waits until jobs are running that the fault can affect, and counts that case.
async fn wait_until_busy(fault: Fault, system: &TestSystem) {
    let wants_containers = system.engine.is_some();
    let found = wait_at_most(BUSY_TIMEOUT, async || {
        let (containers, processes) = system.in_flight();
        (if wants_containers { containers > 0 } else { processes > 0 }).then_some(())
    })
    .await;
    if found.is_some() && wants_containers {
        system.count(&format!("{}_with_containers", fault.name()));
    }
}

async fn kill_server(system: &TestSystem, server: &mut Process, rng: &mut SeededRng) -> String {
    server.kill();
    system.server.start(server);
    if rng.below(4) == 0 {
        // Kill it once more during its start.
        sleep_up_to(rng, 80).await;
        server.kill();
        system.server.start(server);
        system.count("kill_server_in_start");
    }
    system.wait_until_server_ready(server).await;
    "kill -9 of the server".to_owned()
}

async fn pause(process: &Process, who: &str, rng: &mut SeededRng) -> String {
    let time = *rng.choose(&PAUSE_TIMES);
    process.signal(Signal::STOP);
    tokio::time::sleep(time).await;
    process.signal(Signal::CONT);
    format!("{who} was frozen for {time:?}")
}

/// Sends SIGTERM and waits for the end. A process that has not yet installed its signal handler is killed by the signal.
async fn terminate(process: &mut Process) {
    process.signal(Signal::TERM);
    let status = process.wait_for_exit().await;
    let not_yet_listening = status.signal() == Some(Signal::TERM.as_raw());
    assert!(status.success() || not_yet_listening, "{status}");
}

async fn cut(link: &Link, rng: &mut SeededRng) -> String {
    let (state, time) = (*rng.choose(link.faulty_states()), *rng.choose(&CUT_TIMES));
    link.set_state(state);
    tokio::time::sleep(time).await;
    link.set_state(LinkState::Clear);
    format!("was {state:?} for {time:?}")
}

async fn fill(system: &TestSystem, disk: &Disk, rng: &mut SeededRng) -> String {
    let (began, time) = (Instant::now(), *rng.choose(&FULL_TIMES));
    disk.fill(async || {
        tokio::time::sleep(REFILL_PAUSE).await;
        began.elapsed() < time
    })
    .await;
    system.wait_until_server_ready(&mut *system.server.lock().await).await;
    format!("the server's disk was full for {time:?}")
}

/// Finds the `docker` commands that run jobs of this round.
fn docker_commands(system: &TestSystem) -> Vec<Pid> {
    let marks_dir = system.cluster.path("marks").display().to_string();
    let is_ours = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split('\0');
        words.next().is_some_and(|program| program.ends_with("docker")) && line.contains(&marks_dir)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|it| std::fs::read(it.path().join("cmdline")).is_ok_and(|line| is_ours(&line)))
        .filter_map(|it| Pid::from_raw(it.file_name().to_str()?.parse().ok()?))
        .collect()
}

async fn sleep_up_to(rng: &mut SeededRng, below_ms: u64) {
    tokio::time::sleep(Duration::from_millis(rng.below(below_ms))).await;
}

/// After this time the fault is injected into an idle system.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// A supervisor restarts a worker within this time.
const SOON_MS: u64 = 1_500;
/// Sometimes a worker returns after its jobs were given to another one.
const AWAY_MS: u64 = 10_000;
/// From half a lease to ten leases; long ones are rarer.
const PAUSE_TIMES: [Duration; 8] = [
    LEASE.checked_div(2).unwrap(),
    LEASE,
    LEASE,
    LEASE.saturating_mul(2),
    LEASE.saturating_mul(2),
    LEASE.saturating_mul(3),
    LEASE.saturating_mul(5),
    LEASE.saturating_mul(10),
];
/// Shorter and longer than the server needs to notice.
const FULL_TIMES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(10)];
/// Space that the server frees is filled again at this interval.
const REFILL_PAUSE: Duration = Duration::from_millis(200);
/// From a tenth of a lease to longer than `lost_after`.
const CUT_TIMES: [Duration; 5] = [
    LEASE.checked_div(10).unwrap(),
    LEASE.checked_div(2).unwrap(),
    LEASE.saturating_mul(1),
    LEASE.saturating_mul(2),
    LEASE.saturating_mul(4),
];
