//! The plans of rounds: the short one for every change, and the rounds of the long run, which goes on until its targets are reached.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::round::{Containers, Plan};
use crate::stats::RoundStats;
use crate::system::NetworkKind;

/// The plan for every change: many faults in a short time.
#[must_use]
pub fn short(seed: u64, docker: bool) -> Plan {
    let mut faults = BTreeMap::from([
        (Fault::KillServer, 100),
        (Fault::KillWorker, 30),
        (Fault::KillBoth, 3),
        (Fault::DeployServer, 2),
        (Fault::DeployWorker, 2),
        (Fault::PauseWorker, 2),
        (Fault::Cut, 3),
    ]);
    if docker {
        faults.insert(Fault::KillCommand, 3);
    }
    let containers = if docker { Containers::Machine } else { Containers::Nowhere };
    Plan {
        profile: "short".to_owned(),
        seed,
        faults,
        containers,
        network: NetworkKind::Proxies,
        small_disk: false,
        at_once: 3,
    }
}

/// The targets of the long run, summed over all its rounds.
pub const TARGETS: [(&str, u64); 8] = [
    ("kill_server_with_containers", 1_000),
    ("kill_worker_with_containers", 200),
    ("pauses", 100),
    ("cut", 50),
    ("restart_engine", 20),
    ("deploys", 20),
    ("fill_disk", 10),
    ("docker jobs", 2_000),
];

/// Compares a sum of rounds with [`TARGETS`].
#[must_use]
pub fn progress(sum: &RoundStats) -> Vec<(&'static str, u64, u64)> {
    let faults = |name: &str| sum.faults.get(name).copied().unwrap_or_default();
    let of = |name| match name {
        "pauses" => faults("pause_server") + faults("pause_worker"),
        "deploys" => faults("deploy_server") + faults("deploy_worker"),
        "docker jobs" => sum.jobs.get("docker").copied().unwrap_or_default(),
        other => faults(other),
    };
    TARGETS.iter().map(|(name, target)| (*name, of(name), *target)).collect()
}

/// The plan of the next round of the long run. Kinds take turns, so that an interrupted run had all of them.
#[must_use]
pub fn long(turn: u64, seed: u64) -> Plan {
    plan(&ROUNDS[turn as usize % ROUNDS.len()], seed)
}

/// The plan of the long run with this name.
#[must_use]
pub fn named(name: &str, seed: u64) -> Option<Plan> {
    ROUNDS.iter().find(|round| round.0 == name).map(|round| plan(round, seed))
}

/// The names of all plans of the long run.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ROUNDS.iter().map(|round| round.0).collect()
}

fn plan((profile, faults, containers, network): &Round, seed: u64) -> Plan {
    let faults: BTreeMap<_, _> = faults.iter().copied().collect();
    let small_disk = faults.contains_key(&Fault::FillDisk);
    let (containers, network) = (*containers, *network);
    Plan { profile: (*profile).to_owned(), seed, faults, containers, network, small_disk, at_once: 3 }
}

type Round = (&'static str, &'static [(Fault, u32)], Containers, NetworkKind);

const ROUNDS: [Round; 8] = [
    ("kills", KILLS, Containers::Machine, NetworkKind::Proxies),
    ("silence", SILENCE, Containers::Machine, NetworkKind::Proxies),
    ("engine", ENGINE, Containers::Private { live_restore: false }, NetworkKind::Proxies),
    ("partitions", SILENCE, Containers::Machine, NetworkKind::Namespaces),
    ("fences", FENCES, Containers::Machine, NetworkKind::Proxies),
    ("deploys", DEPLOYS, Containers::Machine, NetworkKind::Proxies),
    ("disk", DISK, Containers::Machine, NetworkKind::Proxies),
    ("live-restore", ENGINE, Containers::Private { live_restore: true }, NetworkKind::Proxies),
];
const KILLS: &[(Fault, u32)] =
    &[(Fault::KillServer, 60), (Fault::KillWorker, 12), (Fault::KillBoth, 4), (Fault::KillCommand, 6)];
/// Only faults during which a worker can still stop its containers, so `self_fence` must hold.
const FENCES: &[(Fault, u32)] = &[(Fault::Cut, 12), (Fault::PauseServer, 3), (Fault::KillServer, 8)];
/// Deploys only, which must not interrupt any job.
const DEPLOYS: &[(Fault, u32)] = &[(Fault::DeployServer, 10), (Fault::DeployWorker, 20)];
const DISK: &[(Fault, u32)] = &[(Fault::FillDisk, 6), (Fault::KillServer, 20), (Fault::KillWorker, 4)];
const SILENCE: &[(Fault, u32)] = &[
    (Fault::PauseServer, 3),
    (Fault::PauseWorker, 6),
    (Fault::Cut, 6),
    (Fault::KillServer, 15),
    (Fault::KillWorker, 3),
];
const ENGINE: &[(Fault, u32)] = &[
    (Fault::RestartEngine, 3),
    (Fault::PauseEngine, 2),
    (Fault::KillServer, 15),
    (Fault::KillWorker, 4),
    (Fault::KillCommand, 2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_count_if_containers_were_running() {
        let faults = [("kill_server", 1_000), ("kill_server_with_containers", 999), ("cut", 50)];
        let faults = faults.map(|(name, count)| (name.to_owned(), count)).into();
        let progress = progress(&RoundStats { faults, ..RoundStats::default() });
        assert!(progress.contains(&("kill_server_with_containers", 999, 1_000)), "{progress:?}");
        assert!(progress.contains(&("cut", 50, 50)), "{progress:?}");
    }
}
