//! (n) Batches of 1,000 definitions with limits by key, required labels and priorities, in turns with the same batches of definitions without
//! rules, and with batches of one definition: jobs per second and processor time, as ratios.

use crate::record::Record;
use crate::stage::{Access, BenchEnv};
use crate::throughput::{self, Jobs, Run};
use crate::turns::{TURNS, medians};

/// Takes the figures.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    let kinds = [Jobs::Silent, Jobs::Many, Jobs::Ruled];
    let [[one_cost, one_rate], [many_cost, many_rate], [ruled_cost, ruled_rate]] =
        medians(kinds, async |jobs_of| {
            let load = (jobs, throughput::BATCH, throughput::CONNECTIONS);
            let access = Access::Open;
            let run =
                Run { bench: "rules", load, jobs_of, history: 0, tuned: true, access, is_watched: false };
            let taken = throughput::take(env, run).await?;
            Ok([taken.server_cpu_us, taken.jobs_per_s])
        })
        .await?;
    let mut record = Record::new("rules ratios");
    record.set("jobs", jobs);
    record.set("turns", TURNS);
    record.set("definitions", DEFINITIONS);
    record.figure("one_definition_jobs_per_s", one_rate);
    record.figure("many_definitions_jobs_per_s", many_rate);
    record.figure("rules_jobs_per_s", ruled_rate);
    record.figure("rules_to_many_definitions", ruled_rate / many_rate);
    record.figure("rules_to_one_definition", ruled_rate / one_rate);
    record.figure("one_definition_server_cpu_us_per_job", one_cost);
    record.figure("many_definitions_server_cpu_us_per_job", many_cost);
    record.figure("rules_server_cpu_us_per_job", ruled_cost);
    record.print();
    Ok(())
}

/// The definitions for a jobs file. With rules, half of them may run on each of two workers.
pub(crate) fn definitions(with_rules: bool) -> String {
    let rules = |n: u64| {
        let (worker, priority) = (n % 2 + 1, n % 5);
        format!(
            ", priority: {priority}, requires: {{ bench: w{worker} }}, concurrency: {{ limit: 10, key: labels.customer }}"
        )
    };
    let rules = |n| if with_rules { rules(n) } else { String::new() };
    (0..DEFINITIONS).map(|n| format!("  many-{n}: {{ runtime: fake{} }}\n", rules(n))).collect()
}

/// A batch with a job of each definition.
pub(crate) fn batch(members: u64) -> String {
    (0..members)
        .map(|n| {
            let (definition, customer) = (n % DEFINITIONS, n % CUSTOMERS);
            format!("{{\"name\":\"many-{definition}\",\"labels\":{{\"customer\":\"c{customer}\"}}}}\n")
        })
        .collect()
}

const DEFINITIONS: u64 = 1_000;
const CUSTOMERS: u64 = 50;
