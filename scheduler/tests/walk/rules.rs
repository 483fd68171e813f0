//! Limits and hooks of the definitions of random walks.

use std::time::Duration;

use crate::world::scheduler::hooks::Hooks;
use crate::world::scheduler::limits::rules::{Concurrency, KeySource, LimitRules, OnFull, RateLimit};

/// One has no limits, one a limit for each tenant, and two share a group; these have rates.
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
