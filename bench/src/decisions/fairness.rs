//! A key with few jobs behind keys with many: how many jobs end until its last one has ended.

use std::collections::BTreeSet;

use crate::decisions::model::{Model, definition};
use crate::decisions::scenes::{keyed_job, limited};
use crate::record::Record;

/// Takes the figure with a limit that binds, and with slots that bind.
pub(super) fn measure(keys: u64, jobs: u64) -> anyhow::Result<()> {
    for (binding, limit, slots) in [("limit", 1, 2 * u32::try_from(keys)?), ("slots", 1_000, 10)] {
        let ended = ended_until_small_is_done(keys, jobs, limit, slots)?;
        let fair = SMALL * (keys + 1);
        let mut record = Record::new("decisions");
        record.set("question", "fairness");
        record.set("binding", binding);
        record.set("large_keys", keys);
        record.set("jobs_of_a_large_key", jobs);
        record.set("jobs_of_the_small_key", SMALL);
        record.set("limit_of_a_key", limit);
        record.set("slots", slots);
        record.set("jobs_ended_until_the_small_key_is_done", ended);
        record.set("fair_share", fair);
        record.figure("ratio", ended as f64 / fair as f64);
        record.print();
    }
    Ok(())
}

fn ended_until_small_is_done(keys: u64, jobs: u64, limit: u32, slots: u32) -> anyhow::Result<u64> {
    let mut model = Model::new(vec![limited(definition(0), limit)])?;
    model.connect(slots, 0, Vec::new())?;
    for key in 0..keys {
        model.submit((0..jobs).map(|_| keyed_job(0, key)))?;
    }
    model.submit((0..SMALL).map(|_| keyed_job(0, keys)))?;
    let first = keys * jobs + 1;
    let mut left: BTreeSet<u64> = (first..first + SMALL).collect();
    let mut ended = 0;
    while let Some(job) = model.oldest() {
        model.finish_oldest()?;
        ended += 1;
        if left.remove(&job) && left.is_empty() {
            return Ok(ended);
        }
    }
    anyhow::bail!("{} jobs of the small key never started", left.len())
}

/// Jobs of the small key.
const SMALL: u64 = 10;
