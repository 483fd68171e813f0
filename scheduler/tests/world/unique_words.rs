//! Words of scenarios about unique keys, and about new jobs.

use crate::world::World;
use crate::world::protocol::JobId;
use crate::world::scheduler::batches::{BatchOptions, BatchUnique, MayReplace};
use crate::world::scheduler::limits::rules::{Clear, KeySource, OnDuplicate, UniqueRule};
use crate::world::scheduler::new_jobs::{NewJob, StartTime};

/// `unique=tenant duplicate=replace clear=success`; the key is a label, or what the request overrides with `unique=overrides`.
pub(crate) fn unique(words: &[&str]) -> Option<UniqueRule> {
    let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let key = option("unique")?;
    let on_duplicate =
        option("duplicate").map_or(OnDuplicate::Return, |name| OnDuplicate::named(name).unwrap());
    let clear = match option("clear") {
        Some("success") => Clear::Success,
        Some("failed") => Clear::Failed,
        _ => Clear::Always,
    };
    let key = (key != "overrides").then(|| KeySource::Label(key.into()));
    Some(UniqueRule { key, on_duplicate, clear })
}

/// `name=film max_failures=1 concurrency=2 retry_of=j1`, and what [`of_batch`] reads.
pub(crate) fn batch<'w>(option: impl Fn(&str) -> Option<&'w str>) -> BatchOptions {
    let limit = |name| option(name).map(|text| text.parse().unwrap());
    BatchOptions {
        name: option("name").map(str::to_owned),
        max_failures: limit("max_failures"),
        concurrency: limit("concurrency"),
        retry_of: option("retry_of").map(crate::job_id),
        unique: option("key").map(|key| of_batch(key, &option)),
    }
}

/// `key=main duplicate=replace may_replace=j1`; every batch may be replaced without the last word, and none with `may_replace=none`.
fn of_batch<'w>(key: &str, option: impl Fn(&str) -> Option<&'w str>) -> BatchUnique {
    let on_duplicate =
        option("duplicate").map_or(OnDuplicate::Return, |name| OnDuplicate::named(name).unwrap());
    let may_replace = match option("may_replace") {
        None => MayReplace::Any,
        Some("none") => MayReplace::None,
        Some(job) => MayReplace::Only(JobId(job.trim_start_matches('j').parse().unwrap())),
    };
    BatchUnique { key: key.into(), on_duplicate, may_replace }
}

/// `priority=3 in=10s delay=10s label=tenant:acme param=size:large unique_key=a retry_of=j1 by=ann after=j2:failed,j3+succeeded on=w1,2 where=zone:a`
pub(crate) fn new_job(world: &World, words: &[&str]) -> NewJob {
    let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let number = |job: &str| JobId(job.trim_start_matches('j').parse().unwrap());
    NewJob {
        priority: option("priority").map(|value| value.parse().unwrap()),
        run_at: option("in")
            .map(|value| StartTime::At(world.now.utc + crate::seconds(value)))
            .or(option("delay").map(|value| StartTime::After(crate::seconds(value)))),
        details: option("label")
            .map(crate::limit_words::labelled)
            .or(option("param").map(crate::limit_words::parametrised))
            .map(Box::new),
        unique_key: option("unique_key").map(Into::into),
        narrowing: crate::keys::narrowing(words),
        retry_of: option("retry_of").map(number),
        submitted_by: option("by").map(Into::into),
        after: option("after").map(crate::dependency_words::after).unwrap_or_default(),
        ..NewJob::default()
    }
}
