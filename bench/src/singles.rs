//! Single submissions: a request per job, over 64 kept-alive connections.

use crate::load::Pace;
use crate::run_dir::{Access, BenchEnv};
use crate::throughput::{self, LoadSize, Run};

/// Takes all figures of single POSTs.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64, history: u64) -> anyhow::Result<()> {
    for (settings, workload, history) in throughput::variants(history) {
        let load = LoadSize { jobs, batch: 1, connections: CONNECTIONS, pace: Pace::Accepted };
        let access = Access::Open;
        let run = Run { bench: "singles", load, workload, history, settings, access, is_watched: false };
        throughput::take(env, run).await?;
    }
    Ok(())
}

pub(crate) const CONNECTIONS: u64 = 64;
