//! Keeps jobs from filling the worker's disk through their result files, which are mounted from its state directory.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{DockerState, run_blocking};
use crate::attempt_dir::AttemptDir;

/// Looks at the result files of all attempts that have not ended, again and again.
pub(super) async fn run(docker: Arc<DockerState>) {
    // Those that were warned of: a job may go on writing for hours.
    let mut known: BTreeSet<PathBuf> = BTreeSet::new();
    loop {
        sleep(LOOK_EVERY).await;
        let dirs = docker.registry.live_dirs();
        known.retain(|path| dirs.iter().any(|dir| dir.path() == path));
        if !dirs.is_empty() {
            let cut_all = move || Ok(dirs.into_iter().filter(cut).map(|dir| dir.path().to_owned()).collect());
            let cut: Vec<PathBuf> = run_blocking(cut_all).await.unwrap_or_default();
            for path in cut {
                if known.insert(path.clone()) {
                    tracing::warn!(path = %path.display(), "a job has written more than 64 MiB into its result file; it is cut");
                }
            }
        }
    }
}

/// Cuts a result file that is too large. Returns true if it was.
fn cut(dir: &AttemptDir) -> bool {
    dir.cut_result(RESULT_FILE_BYTES_MAX).unwrap_or_else(|error| {
        tracing::warn!(path = %dir.path().display(), %error, "cannot cut a result file that is too large");
        false
    })
}

/// Far more than a result may have.
const RESULT_FILE_BYTES_MAX: u64 = 64 << 20;

/// A look costs a microsecond for each attempt. A fast disk takes a few gigabytes in this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
