//! The forms in which rounds are played: the short one before every change, the long one until its bar is reached.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::figures::Figures;
use crate::round::{Containers, Plan};
use crate::world::Ways;

/// What is checked before every change: a round whose faults are many and whose time is short.
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
        form: "short".to_owned(),
        seed,
        faults,
        containers,
        ways: Ways::Proxies,
        small_disk: false,
        at_once: 3,
    }
}

/// What the long form has to reach, over all its runs.
pub const BAR: [(&str, u64); 8] = [
    ("kill_server_with_containers", 1_000),
    ("kill_worker_with_containers", 200),
    ("pauses", 100),
    ("cut", 50),
    ("restart_engine", 20),
    ("deploys", 20),
    ("fill_disk", 10),
    ("docker jobs", 2_000),
];

/// How far a sum of figures has come towards [`BAR`].
#[must_use]
pub fn reached(sum: &Figures) -> Vec<(&'static str, u64, u64)> {
    let faults = |name: &str| sum.faults.get(name).copied().unwrap_or_default();
    let of = |name| match name {
        "pauses" => faults("pause_server") + faults("pause_worker"),
        "deploys" => faults("deploy_server") + faults("deploy_worker"),
        "docker jobs" => sum.jobs.get("docker").copied().unwrap_or_default(),
        other => faults(other),
    };
    BAR.iter().map(|(name, bar)| (*name, of(name), *bar)).collect()
}

/// The next round of the long form: they take turns, so that a run that is broken off has had something of everything.
#[must_use]
pub fn long(turn: u64, seed: u64) -> Plan {
    plan(&ROUNDS[turn as usize % ROUNDS.len()], seed)
}

/// The round of the long form that has this name.
#[must_use]
pub fn named(name: &str, seed: u64) -> Option<Plan> {
    ROUNDS.iter().find(|round| round.0 == name).map(|round| plan(round, seed))
}

/// The names of all rounds of the long form.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ROUNDS.iter().map(|round| round.0).collect()
}

fn plan((form, faults, containers, ways): &Round, seed: u64) -> Plan {
    let faults: BTreeMap<_, _> = faults.iter().copied().collect();
    let small_disk = faults.contains_key(&Fault::FillDisk);
    let (containers, ways) = (*containers, *ways);
    Plan { form: (*form).to_owned(), seed, faults, containers, ways, small_disk, at_once: 3 }
}

type Round = (&'static str, &'static [(Fault, u32)], Containers, Ways);

const ROUNDS: [Round; 8] = [
    ("kills", KILLS, Containers::Machine, Ways::Proxies),
    ("silence", SILENCE, Containers::Machine, Ways::Proxies),
    ("engine", ENGINE, Containers::Private { live_restore: false }, Ways::Proxies),
    ("partitions", SILENCE, Containers::Machine, Ways::Namespaces),
    ("fences", FENCES, Containers::Machine, Ways::Proxies),
    ("deploys", DEPLOYS, Containers::Machine, Ways::Proxies),
    ("disk", DISK, Containers::Machine, Ways::Proxies),
    ("live-restore", ENGINE, Containers::Private { live_restore: true }, Ways::Proxies),
];
const KILLS: &[(Fault, u32)] =
    &[(Fault::KillServer, 60), (Fault::KillWorker, 12), (Fault::KillBoth, 4), (Fault::KillCommand, 6)];
/// Nothing that keeps a worker from stopping a container: then fences have to hold.
const FENCES: &[(Fault, u32)] = &[(Fault::Cut, 12), (Fault::PauseServer, 3), (Fault::KillServer, 8)];
/// Nothing else: then a deploy has to disturb nobody.
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
    fn kills_count_towards_the_bar_if_containers_were_in_flight() {
        let faults = [("kill_server", 1_000), ("kill_server_with_containers", 999), ("cut", 50)];
        let faults = faults.map(|(name, count)| (name.to_owned(), count)).into();
        let reached = reached(&Figures { faults, ..Figures::default() });
        assert!(reached.contains(&("kill_server_with_containers", 999, 1_000)), "{reached:?}");
        assert!(reached.contains(&("cut", 50, 50)), "{reached:?}");
    }
}
