//! The cost of tokens and of TLS: single POSTs, in turns with a server without access control, as ratios of processor time.

use crate::load::Pace;
use crate::record::Record;
use crate::run_dir::{Access, BenchEnv};
use crate::singles::CONNECTIONS;
use crate::throughput::{self, LoadSize, Run};
use crate::turns::{TURNS, medians};
use crate::workload::{WorkerSettings, Workload};

/// Takes the figures.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    let kinds = [Access::Open, Access::Tokens, Access::Tls];
    let [[open], [tokens], [tls]] = medians(kinds, async |access| {
        let load = LoadSize { jobs, batch: 1, connections: CONNECTIONS, pace: Pace::Accepted };
        let workload = Workload::Talkative;
        let run = Run {
            bench: "access",
            load,
            workload,
            history: 0,
            settings: WorkerSettings::Tuned,
            access,
            is_watched: false,
        };
        Ok([throughput::take(env, run).await?.server_cpu_us])
    })
    .await?;
    let mut record = Record::new("access ratios");
    record.set("jobs", jobs);
    record.set("turns", TURNS);
    record.figure("open_server_cpu_us_per_job", open);
    record.figure("cpu_ratio_tokens", tokens / open);
    record.figure("cpu_ratio_tls", tls / open);
    record.print();
    Ok(())
}
