//! What blocks, such as a sync, done where it holds up nobody.

use crate::attempt_dir::{Error, describe};

/// Does it elsewhere. What fails is logged: for what nobody could do better about.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Option<T> {
    tried(work)
        .await
        .inspect_err(|error| tracing::error!(error, "the attempt's directory cannot be used"))
        .ok()
}

/// Does it elsewhere.
///
/// # Errors
/// Why it cannot be done, in words.
pub(super) async fn tried<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?.map_err(|error| describe(&error))
}
