//! Runs blocking work, such as a sync, on a thread of its own.

use std::io;
use std::time::Duration;

use crate::attempt_dir::{AttemptDir, Error};
use crate::error_chain::error_chain;

/// Runs `work` on a blocking thread. An error is logged and dropped.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Option<T> {
    try_blocking(work)
        .await
        .inspect_err(|error| tracing::error!(error, "cannot use an attempt directory"))
        .ok()
}

/// Runs `work` on a blocking thread.
///
/// # Errors
/// The error of `work` as one line.
pub(super) async fn try_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error_chain(&error))
}

/// Reads from an attempt directory on a blocking thread, again and again until that is possible.
pub(super) async fn read_until_possible<T: Send + 'static>(
    dir: &AttemptDir,
    read: impl Fn(&AttemptDir) -> Result<T, Error> + Copy + Send + 'static,
) -> T {
    loop {
        let dir = dir.clone();
        match try_blocking(move || read(&dir)).await {
            Ok(found) => return found,
            Err(why) => tracing::error!(why, "cannot read the end of an attempt yet; trying again"),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Pause between two tries to read.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Runs `work` on a blocking thread. A panic of it is an error.
pub(super) async fn spawn_io<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
