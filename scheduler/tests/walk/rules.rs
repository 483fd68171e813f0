//! Limits and hooks of the definitions of random walks, and facts of their workers.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::NAMES;
use crate::world::Member;
use crate::world::protocol::WorkerId;
use crate::world::protocol::resources::OfferedResources;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::hooks::Hooks;
use crate::world::scheduler::limits::rules::{Concurrency, KeySource, LimitRules, OnFull, RateLimit};
use crate::world::scheduler::placement::narrowing::Narrowing;
use crate::world::scheduler::placement::rules::{Condition, LabelRule, WorkerSelector};

/// Limits by number. 0: none; 1: one job at once for each tenant; 2 and 3: two at once in one group, and a rate.
pub(super) fn limits(number: usize) -> LimitRules {
    let tenant = || Some(KeySource::Label("tenant".into()));
    let size = || Some(KeySource::Param("size".into()));
    let group = |limit| Concurrency { limit, key: None, group: Some("g".into()), on_full: OnFull::Queue };
    match number {
        1 => LimitRules {
            concurrency: Some(Concurrency { limit: 1, key: tenant(), group: None, on_full: OnFull::Queue }),
            ..LimitRules::default()
        },
        2 => LimitRules {
            concurrency: Some(group(2)),
            rate: Some(RateLimit { limit: 2, per: Duration::from_secs(20), burst: 2, key: size() }),
            ..LimitRules::default()
        },
        3 => LimitRules {
            concurrency: Some(group(2)),
            rate: Some(RateLimit { limit: 2, per: Duration::from_secs(30), burst: 2, key: tenant() }),
            ..LimitRules::default()
        },
        _ => LimitRules::default(),
    }
}

/// Rules of the definitions for new jobs: `on_full` (where there is a concurrency limit) and `max_queued`.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    on_full: Vec<OnFull>,
    queued_max: Vec<Option<u32>>,
}

impl Default for Admission {
    fn default() -> Self {
        let all = NAMES.len();
        Self { on_full: vec![OnFull::Queue; all], queued_max: vec![None; all] }
    }
}

impl Admission {
    /// Sets these rules in the definition of this number.
    pub(super) fn apply(&self, number: usize, definition: &mut Definition) {
        definition.limits.queued_max = self.queued_max[number];
        if let Some(rule) = &mut definition.limits.concurrency {
            rule.on_full = self.on_full[number];
        }
    }
}

/// Rules for four definitions; most jobs are let in.
pub(crate) fn admission() -> impl Strategy<Value = Admission> {
    let on_full = prop_oneof![
        4 => Just(OnFull::Queue),
        1 => Just(OnFull::Reject),
        2 => Just(OnFull::CancelRunning),
        2 => Just(OnFull::CancelOldest),
    ];
    let queued_max = prop_oneof![6 => Just(None), 1 => (2..9_u32).prop_map(Some)];
    let both = (prop::collection::vec(on_full, 4), prop::collection::vec(queued_max, 4));
    both.prop_map(|(on_full, queued_max)| Admission { on_full, queued_max })
}

/// A loop, which a jobs.yaml cannot have: its chain must end all the same.
pub(super) fn hooks(number: usize) -> Hooks {
    let named = |names: &[&str]| names.iter().copied().map(Into::into).collect();
    match number {
        0 => Hooks { on_start: named(&["b"]), on_end: named(&["c"]), ..Hooks::default() },
        1 => Hooks { on_failure: named(&["a", "c"]), ..Hooks::default() },
        2 => Hooks { on_success: named(&["a"]), on_failure: named(&["a"]), ..Hooks::default() },
        _ => Hooks::default(),
    }
}

/// Some jobs ask for workers by their names, their labels or both.
pub(crate) fn narrowing(number: usize) -> Option<Arc<Narrowing>> {
    let named = |name: &str| WorkerSelector::Name(name.into());
    let in_a = LabelRule { label: "zone".into(), condition: Condition::In(vec!["a".into()]) };
    match number % 9 {
        0 => Narrowing::asked(vec![named("w2")], Vec::new()),
        1 => Narrowing::asked(vec![named("w1"), WorkerSelector::Id(WorkerId(2))], Vec::new()),
        2 => Narrowing::asked(Vec::new(), vec![in_a]),
        3 => Narrowing::asked(vec![named("w1"), named("w3")], vec![in_a]),
        _ => None,
    }
}

/// A worker is replaced by an older or a newer one from one connection to the next.
fn protocol(slots: u8, backlog: u8) -> u16 {
    if (slots + backlog).is_multiple_of(3) { 1 } else { 2 }
}

/// Resources of a worker, which differ from one connection to the next.
fn offer(worker: u8, slots: u8) -> OfferedResources {
    let worker = usize::from(worker);
    let memory = [Some(20 << 20), None, Some(8 << 20), Some(17 << 20)][worker];
    let gpus = [2, 1, 1, 3][worker] - usize::from(slots == 3);
    let seats = [1, 2, 0, 3][worker];
    OfferedResources {
        cpus_milli: None,
        memory_bytes: memory,
        gpus: (0..gpus).map(|id| id.to_string()).collect(),
        custom: if seats > 0 { vec![("seat".into(), seats)] } else { Vec::new() },
    }
}

/// Sets facts of a worker that is about to connect.
pub(super) fn prepare(member: &mut Member, worker: u8, slots: u8, backlog: u8) {
    member.offer = offer(worker, slots);
    member.protocol = protocol(slots, backlog);
}
