//! (l) The cost of tokens and of TLS: single POSTs, in turns with a server that is open, as ratios of processor time.

use crate::record::Record;
use crate::singles::CONNECTIONS;
use crate::stage::{Access, BenchEnv};
use crate::throughput::{self, Run};

/// Takes each figure three times, in turns.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64) -> anyhow::Result<()> {
    let kinds = [Access::Open, Access::Tokens, Access::Tls];
    let mut costs = kinds.map(|_| Vec::new());
    for _ in 0..TURNS {
        for (access, costs) in kinds.into_iter().zip(&mut costs) {
            let load = (jobs, 1, CONNECTIONS);
            let run = Run { bench: "access", load, output: true, history: 0, tuned: true, access };
            costs.push(throughput::take(env, run).await?);
        }
    }
    let [open, tokens, tls] = costs.map(median);
    let mut record = Record::new("access ratios");
    record.set("jobs", jobs);
    record.set("turns", TURNS);
    record.figure("open_server_cpu_us_per_job", open);
    record.figure("tokens_to_open", tokens / open);
    record.figure("tls_to_open", tls / open);
    record.print();
    Ok(())
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

const TURNS: usize = 3;
