//! Words of scenarios about limits.

use std::fmt::Write as _;

use crate::world::World;
use crate::world::protocol::Timestamp;
use crate::world::protocol::container::Resources;
use crate::world::scheduler::details::JobDetails;
use crate::world::scheduler::limits::LimitSelection;
use crate::world::scheduler::limits::rules::{Concurrency, KeySource, LimitRules, OnFull, RateLimit};
use crate::world::scheduler::params::JobParams;

/// Tells the state of all limits (`limits`), of those with a name (`limits named db`), or of those of a definition (`limits of backup group=db`);
/// or how many jobs wait, and why (`waiting`).
pub(crate) fn tell(world: &mut World, start: Timestamp, words: &[&str], text: &mut String) {
    let now = world.now.utc.0 - start.0;
    let selection = match words {
        ["waiting"] => return tell_waiting(world, start, text),
        ["limits"] => LimitSelection::All,
        ["limits", "named", name] => LimitSelection::Named((*name).into()),
        ["limits", "of", name] => LimitSelection::OfDefinition { name: (*name).into(), group: None },
        ["limits", "of", name, group] => LimitSelection::OfDefinition {
            name: (*name).into(),
            group: Some(group.strip_prefix("group=").unwrap().into()),
        },
        _ => panic!("waiting, limits, limits named NAME, or limits of NAME [group=GROUP]"),
    };
    for it in world.scheduler.limits(world.now, &selection).limits {
        let value = match (it.permits, it.rate) {
            (Some(permits), _) => format!("{} of {permits} in use", it.in_use),
            (None, Some(rate)) => format!("one each {}ms, {} at once", rate.interval / 1_000_000, rate.burst),
            (None, None) => "not in force".into(),
        };
        let next = it.next_start.map(|at| format!(", next {}ms", at.0 - start.0)).unwrap_or_default();
        writeln!(text, "    {now:>6}ms  {}: {value}, {} wait{next}", it.id, it.waiting).unwrap();
    }
}

/// Tells how many jobs of each definition wait, and why, as the snapshot says.
fn tell_waiting(world: &mut World, start: Timestamp, text: &mut String) {
    let now = world.now.utc.0 - start.0;
    let snapshot = world.scheduler.snapshot();
    for it in &snapshot.waiting {
        let (name, reason) = (&snapshot.definitions[&it.revision].name, it.reason.name());
        let only = it.pinned_to.map(|only| format!(" for worker {only}")).unwrap_or_default();
        writeln!(text, "    {now:>6}ms  {name}: {} wait{only}, {reason}", it.count).unwrap();
    }
}

/// `limit=2 key=tenant group=db on_full=reject rate=3/10s burst=2 rate_key=tenant queued=5`; keys are labels, or `params.size`.
pub(crate) fn limits(words: &[&str]) -> LimitRules {
    let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let label = |key: &str| {
        option(key).map(|name| match name.strip_prefix("params.") {
            Some(name) => KeySource::Param(name.into()),
            None => KeySource::Label(name.into()),
        })
    };
    let on_full = option("on_full")
        .map_or(OnFull::Queue, |name| OnFull::ALL.into_iter().find(|(known, _)| *known == name).unwrap().1);
    LimitRules {
        concurrency: option("limit").map(|limit| Concurrency {
            limit: limit.parse().unwrap(),
            key: label("key"),
            group: option("group").map(str::to_owned),
            on_full,
        }),
        rate: option("rate").map(|rate| {
            let (limit, per) = rate.split_once('/').unwrap();
            let burst = option("burst").map_or(1, |burst| burst.parse().unwrap());
            RateLimit {
                limit: limit.parse().unwrap(),
                per: crate::seconds(per),
                burst,
                key: label("rate_key"),
            }
        }),
        queued_max: option("queued").map(|max| max.parse().unwrap()),
        unique: crate::unique_words::unique(words),
    }
}

/// `size:large`
pub(crate) fn parametrised(param: &str) -> JobDetails {
    let (name, value) = param.split_once(':').unwrap();
    let variables = vec![(format!("PARAM_{}", name.to_uppercase()), value.into())];
    JobDetails { params: JobParams { variables, ..JobParams::default() }, ..JobDetails::default() }
}

/// `tenant:acme`
pub(crate) fn labelled(label: &str) -> JobDetails {
    let (name, value) = label.split_once(':').unwrap();
    JobDetails { labels: vec![(name.into(), value.into())], ..JobDetails::default() }
}

/// Amounts by name, such as `seat:2,disk:1`.
pub(crate) fn amounts(words: &str) -> Vec<(String, u32)> {
    let amount = |word: &str| {
        let (name, amount) = word.split_once(':').unwrap();
        (name.to_owned(), amount.parse().unwrap())
    };
    words.split(',').map(amount).collect()
}

/// Resources that each job of a definition reserves.
pub(crate) fn resources<'w>(option: impl Fn(&str) -> Option<&'w str>) -> Resources {
    Resources {
        memory_bytes: option("memory").map(|mebibytes| mebibytes.parse::<u64>().unwrap() << 20),
        cpus_milli: option("cpus").map(|milli| milli.parse().unwrap()),
        gpus: option("gpus").map_or(0, |count| count.parse().unwrap()),
        custom: option("custom").map_or_else(Vec::new, amounts),
        ..Resources::default()
    }
}
