//! Words of scenarios about the settings of the server.

use crate::keys::seconds;
use crate::world::World;
use crate::world::scheduler::{Config, PriorityAgeing, ServerLimits};

/// `slice 5 max-jobs 9`, `server-limits running=2 queued=3`, `priority-ageing 10s`, `set-aside-after 60s`: a world with these settings,
/// to begin a scenario.
pub(crate) fn world(words: &[&str]) -> World {
    let after = |name: &str| words.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    let number = |name: &str| after(name).map(|value| value.parse().unwrap());
    let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let limit = |name: &str| option(name).map(|value| value.parse().unwrap());
    let ageing = after("priority-ageing").map(|period| PriorityAgeing::every(seconds(period)).unwrap());
    World::with(Config {
        jobs_max: number("max-jobs").unwrap_or(usize::MAX),
        server_limits: ServerLimits { running_max: limit("running"), queued_max: limit("queued") },
        priority_ageing: ageing.unwrap_or_default(),
        set_aside_after: after("set-aside-after").map(seconds),
        ..World::config(1, number("slice").unwrap_or(crate::SLICE))
    })
}
