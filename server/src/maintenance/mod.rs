//! Background maintenance, one task per file. A task that fails logs the error and tries again later; no task ends the server.

pub(crate) mod leftovers;
mod output;
mod retention;
mod trusted_clock;

use std::path::PathBuf;
use std::sync::Arc;

use protocol::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::config::Retention as Kept;
use crate::engine::Remover;
use crate::logs::Logs;
use crate::store::Archive;
use output::OutputRetention;
use retention::JobRetention;

/// Runs all maintenance tasks until the server stops. `by` is the time that retention last went by, from the store. After it returns no
/// task holds the store or the logs.
pub(crate) async fn run(
    kept: Kept,
    by: Option<Timestamp>,
    remover: Remover,
    data: PathBuf,
    archive: Arc<dyn Archive>,
    logs: Arc<Logs>,
    until: CancellationToken,
) {
    let mut retention = JobRetention::new(remover, kept, data, by, crate::clock::now);
    let output = OutputRetention::new(archive, logs, kept.output_bytes_max);
    tokio::join!(until.run_until_cancelled(retention.run()), output.run(until.clone()));
}
