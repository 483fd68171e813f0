//! What strikes: each kind does its harm, undoes it, and says in words what it did.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::link::{Link, Weather};
use crate::stage::{Dice, Process, within};
use crate::world::{LEASE, World};

/// Every kind.
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
    /// The same to a worker.
    PauseWorker,
    /// Trouble on the way of a worker to its server: broken, silent, one-way or slow.
    Cut,
    /// The Docker daemon dies or leaves, and comes back.
    RestartEngine,
    /// SIGSTOP of the Docker daemon: it takes every call, and answers none.
    PauseEngine,
    /// The server's disk is filled to the last byte, and given back after a while.
    FillDisk,
    /// The server is replaced as a deploy does it: SIGTERM, then a new process.
    DeployServer,
    /// A worker is replaced likewise; its containers go on.
    DeployWorker,
}

impl Fault {
    /// As it is written in results.
    #[must_use]
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Strikes once, and leaves everything running again.
    pub async fn strike(self, world: &World, mut dice: Dice) {
        let dice = &mut dice;
        let n = dice.below(world.workers.len() as u64) as usize;
        let worker = &world.workers[n];
        let what = match self {
            Self::KillServer => {
                let mut server = world.server.turn().await;
                busy(self, world).await;
                kill_server(world, &mut server, dice).await
            }
            Self::KillWorker => {
                let mut process = worker.role.turn().await;
                busy(self, world).await;
                process.kill();
                let stays_away = dice.below(8) == 0;
                rest(dice, if stays_away { AWAY_MS } else { SOON_MS }).await;
                worker.role.start(&mut process);
                format!("kill -9 of worker {n}")
            }
            Self::KillBoth => {
                let (mut server, mut process) = (world.server.turn().await, worker.role.turn().await);
                busy(self, world).await;
                process.kill();
                kill_server(world, &mut server, dice).await;
                worker.role.start(&mut process);
                format!("kill -9 of the server and worker {n}")
            }
            Self::KillCommand => match within(PATIENCE, async || commands(world).pop()).await {
                Some(command) => {
                    let _ = rustix::process::kill_process(command, Signal::KILL);
                    format!("kill -9 of docker command {}", command.as_raw_nonzero())
                }
                None => return,
            },
            Self::PauseServer => pause(&*world.server.turn().await, "the server", dice).await,
            Self::PauseWorker => pause(&*worker.role.turn().await, &format!("worker {n}"), dice).await,
            Self::Cut => format!("the way of worker {n} {}", cut(&*worker.link.lock().await, dice).await),
            Self::RestartEngine => match &world.engine {
                Some(engine) => engine.lock().await.restart(dice).await.to_owned(),
                None => return,
            },
            Self::PauseEngine => match &world.engine {
                Some(engine) => engine.lock().await.pause(*dice.one_of(&PAUSES)).await,
                None => return,
            },
            Self::FillDisk => match &world.disk {
                Some(disk) => fill(world, &*disk.lock().await, dice).await,
                None => return,
            },
            Self::DeployServer => {
                let mut server = world.server.turn().await;
                leave(&mut server).await;
                world.server.start(&mut server);
                world.server_serves(&mut server).await;
                "a deploy of the server".to_owned()
            }
            Self::DeployWorker => {
                let mut process = worker.role.turn().await;
                leave(&mut process).await;
                worker.role.start(&mut process);
                world.worker_joins(n).await;
                format!("a deploy of worker {n}")
            }
        };
        world.tell(&self.name(), what);
    }
}

/// Waits until something runs that the fault could harm, and counts it.
async fn busy(fault: Fault, world: &World) {
    let wants_containers = world.engine.is_some();
    let found = within(PATIENCE, async || {
        let (containers, processes) = world.in_flight();
        (if wants_containers { containers > 0 } else { processes > 0 }).then_some(())
    })
    .await;
    if found.is_some() && wants_containers {
        world.count(&format!("{}_with_containers", fault.name()));
    }
}

async fn kill_server(world: &World, server: &mut Process, dice: &mut Dice) -> String {
    server.kill();
    world.server.start(server);
    if dice.below(4) == 0 {
        // In the middle of its start, too.
        rest(dice, 80).await;
        server.kill();
        world.server.start(server);
        world.count("kill_server_in_start");
    }
    world.server_serves(server).await;
    "kill -9 of the server".to_owned()
}

async fn pause(process: &Process, who: &str, dice: &mut Dice) -> String {
    let time = *dice.one_of(&PAUSES);
    process.signal(Signal::STOP);
    tokio::time::sleep(time).await;
    process.signal(Signal::CONT);
    format!("{who} was frozen for {time:?}")
}

/// Asks a process to leave, and sees it gone. One that has just been started may not listen yet: then it ends as if killed.
async fn leave(process: &mut Process) {
    process.signal(Signal::TERM);
    let status = process.ended().await;
    let not_yet_listening = status.signal() == Some(Signal::TERM.as_raw());
    assert!(status.success() || not_yet_listening, "{status}");
}

async fn cut(link: &Link, dice: &mut Dice) -> String {
    let (weather, time) = (*dice.one_of(link.troubles()), *dice.one_of(&CUTS));
    link.turn(weather);
    tokio::time::sleep(time).await;
    link.turn(Weather::Clear);
    format!("was {weather:?} for {time:?}")
}

async fn fill(world: &World, disk: &Disk, dice: &mut Dice) -> String {
    let (began, time) = (Instant::now(), *dice.one_of(&FULL));
    disk.fill(async || {
        tokio::time::sleep(FILL_AGAIN).await;
        began.elapsed() < time
    })
    .await;
    world.server_serves(&mut *world.server.turn().await).await;
    format!("the server's disk was full for {time:?}")
}

/// The `docker` commands that run jobs of this round.
fn commands(world: &World) -> Vec<Pid> {
    let truth = world.stage.path("truth").display().to_string();
    let is_ours = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split('\0');
        words.next().is_some_and(|program| program.ends_with("docker")) && line.contains(&truth)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|it| std::fs::read(it.path().join("cmdline")).is_ok_and(|line| is_ours(&line)))
        .filter_map(|it| Pid::from_raw(it.file_name().to_str()?.parse().ok()?))
        .collect()
}

async fn rest(dice: &mut Dice, below_ms: u64) {
    tokio::time::sleep(Duration::from_millis(dice.below(below_ms))).await;
}

/// Something runs soon, or the fault strikes an idle machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// A supervisor starts a worker again within this time.
const SOON_MS: u64 = 1_500;
/// Some come back after their jobs have successors.
const AWAY_MS: u64 = 10_000;
/// From half a lease to ten; longer ones are rarer.
const PAUSES: [Duration; 8] = [
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
const FULL: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(10)];
/// What the server gives back is taken, too.
const FILL_AGAIN: Duration = Duration::from_millis(200);
/// A blink, less than a lease, more than one, and longer than a job waits for a lost worker.
const CUTS: [Duration; 5] = [
    LEASE.checked_div(10).unwrap(),
    LEASE.checked_div(2).unwrap(),
    LEASE.saturating_mul(1),
    LEASE.saturating_mul(2),
    LEASE.saturating_mul(4),
];
