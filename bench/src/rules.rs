//! Batches of 1,000 definitions with limits by key, required labels and priorities, in turns with the same batches of definitions without
//! rules, with as many of these in flight, and with batches of one definition: jobs per second and processor time, as ratios. Two of these
//! are measured once more with few waiting jobs, because a priority takes jobs from anywhere in a deep backlog.

use crate::load::Pace;
use crate::record::Record;
use crate::run_dir::{Access, BenchEnv};
use crate::throughput::{self, LoadSize, Run};
use crate::turns::{TURNS, medians};
use crate::workload::{BATCH, CONNECTIONS, DEFINITIONS, WorkerSettings, Workload};

/// Connections that each have one live batch: enough that workers always find waiting jobs.
const STEADY_CONNECTIONS: u64 = 16;

/// Takes the figures.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    let flood = LoadSize { jobs, batch: BATCH, connections: CONNECTIONS, pace: Pace::Accepted };
    let steady = LoadSize { connections: STEADY_CONNECTIONS, pace: Pace::Ended, ..flood };
    let kinds = [
        ("one_definition", flood, Workload::Silent, WorkerSettings::Tuned),
        ("many_definitions", flood, Workload::Many, WorkerSettings::Tuned),
        ("many_definitions_without_backlog", flood, Workload::Many, WorkerSettings::TunedWithoutBacklog),
        ("rules", flood, Workload::Ruled, WorkerSettings::Tuned),
        ("steady_many_definitions", steady, Workload::Many, WorkerSettings::TunedWithoutBacklog),
        ("steady_rules", steady, Workload::Ruled, WorkerSettings::Tuned),
    ];
    let figures = medians(kinds, async |(_, load, workload, settings)| {
        let access = Access::Open;
        let run = Run { bench: "rules", load, workload, history: 0, settings, access, is_watched: false };
        let figures = throughput::take(env, run).await?;
        Ok([figures.server_cpu_us, figures.jobs_per_s])
    })
    .await?;
    let mut record = Record::new("rules ratios");
    record.set("jobs", jobs);
    record.set("turns", TURNS);
    record.set("definitions", DEFINITIONS);
    for ((name, ..), [cost, rate]) in kinds.iter().zip(&figures) {
        record.figure(&format!("{name}_jobs_per_s"), *rate);
        record.figure(&format!("{name}_server_cpu_us_per_job"), *cost);
    }
    let [[_, one], [_, many], [_, level], [_, ruled], [_, steady_many], [_, steady_ruled]] = figures;
    record.figure("rules_to_many_definitions", ruled / many);
    record.figure("rules_to_many_definitions_without_backlog", ruled / level);
    record.figure("rules_to_one_definition", ruled / one);
    record.figure("steady_rules_to_many_definitions", steady_ruled / steady_many);
    record.print();
    Ok(())
}
