//! What goes on beside requests and workers: one background chore per file. A chore that fails says so and tries again later; none of
//! them ends the server.

mod calendar;
mod output;
mod retention;

use std::sync::Arc;

use protocol::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::config::Retention as Kept;
use crate::engine::Remover;
use crate::logs::Logs;
use crate::store::Archive;
use output::Output;
use retention::Retention;

/// Does all chores until told to leave. `by` is the time that retention went by, as it was last written down. When this returns, nothing is held any more.
pub(crate) async fn run(
    kept: Kept,
    by: Option<Timestamp>,
    remover: Remover,
    archive: Arc<dyn Archive>,
    logs: Arc<Logs>,
    until: CancellationToken,
) {
    let mut retention = Retention::new(remover, kept, by, crate::clock::now);
    let output = Output::new(archive, logs, kept.output_bytes_max);
    tokio::join!(until.run_until_cancelled(retention.run()), output.run(until.clone()));
}
