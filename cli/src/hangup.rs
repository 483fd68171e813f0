//! SIGHUP makes a server read jobs.yaml again.

use std::io;
use std::sync::Arc;

use server::reload::Reloader;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives SIGHUP from now on. Before this call the signal ends the process.
///
/// # Errors
/// The handler cannot be installed.
pub(crate) fn listen() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Reloads the definitions at each signal. The reloader records the result; a file with faults changes nothing.
pub(crate) async fn reload_at_each(mut hangups: Signal, reloader: Arc<Reloader>) {
    while hangups.recv().await.is_some() {
        tracing::info!("SIGHUP received: reading {} again", reloader.name());
        reloader.reload_on_hangup().await;
    }
}
