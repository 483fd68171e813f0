//! Batches of 1,000 definitions with limits by key, required labels and priorities, in turns with the same batches of definitions without
//! rules, with as many of these in flight, and with batches of one definition: jobs per second and processor time, as ratios.

use crate::record::Record;
use crate::run_dir::{Access, BenchEnv};
use crate::throughput::{self, LoadSize, Run};
use crate::turns::{TURNS, medians};
use crate::workload::{BATCH, CONNECTIONS, DEFINITIONS, WorkerSettings, Workload};

/// Takes the figures.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    let kinds = [
        (Workload::Silent, WorkerSettings::Tuned),
        (Workload::Many, WorkerSettings::Tuned),
        (Workload::Many, WorkerSettings::TunedWithoutBacklog),
        (Workload::Ruled, WorkerSettings::Tuned),
    ];
    let [[one_cost, one_rate], [many_cost, many_rate], [level_cost, level_rate], [ruled_cost, ruled_rate]] =
        medians(kinds, async |(workload, settings)| {
            let load = LoadSize { jobs, batch: BATCH, connections: CONNECTIONS };
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
    record.figure("one_definition_jobs_per_s", one_rate);
    record.figure("many_definitions_jobs_per_s", many_rate);
    record.figure("many_definitions_without_backlog_jobs_per_s", level_rate);
    record.figure("rules_jobs_per_s", ruled_rate);
    record.figure("rules_to_many_definitions", ruled_rate / many_rate);
    record.figure("rules_to_many_definitions_without_backlog", ruled_rate / level_rate);
    record.figure("rules_to_one_definition", ruled_rate / one_rate);
    record.figure("one_definition_server_cpu_us_per_job", one_cost);
    record.figure("many_definitions_server_cpu_us_per_job", many_cost);
    record.figure("many_definitions_without_backlog_server_cpu_us_per_job", level_cost);
    record.figure("rules_server_cpu_us_per_job", ruled_cost);
    record.print();
    Ok(())
}
