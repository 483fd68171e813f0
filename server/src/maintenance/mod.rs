//! Background maintenance, one task per file. A task that fails logs the error and tries again later; no task ends the server.

pub(crate) mod leftovers;
mod output;
mod retention;
mod trusted_clock;

use std::path::PathBuf;
use std::sync::Arc;

use protocol::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::catalogue::Catalogue;
use crate::config::Retention as ServerRetention;
use crate::engine::Remover;
use crate::logs::Logs;
use crate::retention_time::RetentionTime;
use crate::store::Archive;
use output::OutputRetention;
use retention::JobRetention;

/// The things that maintenance looks at.
pub(crate) struct RetainedData {
    /// The jobs.
    pub(crate) archive: Arc<dyn Archive>,
    /// Their output.
    pub(crate) logs: Arc<Logs>,
    /// The rules of definitions.
    pub(crate) catalogue: Arc<Catalogue>,
}

/// Runs all maintenance tasks until the server stops. `last_cutoff_time` is the time that retention last measured ages by, from the store;
/// `time` is set to the one that it measures them by now. After it returns no task holds the store or the logs.
pub(crate) async fn run(
    limits: ServerRetention,
    last_cutoff_time: Option<Timestamp>,
    remover: Remover,
    data: PathBuf,
    RetainedData { archive, logs, catalogue }: RetainedData,
    time: RetentionTime,
    until: CancellationToken,
) {
    let mut retention = JobRetention::new(remover, limits, data, last_cutoff_time, crate::clock::now)
        .with_definitions(catalogue.clone(), time.clone());
    let output =
        OutputRetention::new(archive, logs, limits.output_bytes_max).with_definitions(catalogue, time);
    tokio::join!(until.run_until_cancelled(retention.run()), output.run(until.clone()));
}
