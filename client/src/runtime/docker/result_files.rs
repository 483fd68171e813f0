//! Keeps jobs from filling the worker's disk through their result files, which are mounted from its state directory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{DockerContext, run_blocking};
use crate::attempt_dir::AttemptDir;

/// Looks at the result files of all attempts that have not ended, again and again.
pub(super) async fn run(shared: Arc<DockerContext>) {
    loop {
        sleep(LOOK_EVERY).await;
        let dirs = shared.registry.live_dirs();
        if !dirs.is_empty() {
            let cut_all = move || {
                dirs.iter().for_each(cut);
                Ok(())
            };
            run_blocking(cut_all).await;
        }
    }
}

fn cut(dir: &AttemptDir) {
    match dir.cut_result(RESULT_FILE_BYTES_MAX) {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(path = %dir.path().display(), "a job has written more than 64 MiB into its result file; it is cut")
        }
        Err(error) => {
            tracing::warn!(path = %dir.path().display(), %error, "cannot cut a result file that is too large")
        }
    }
}

/// Far more than a result may have.
const RESULT_FILE_BYTES_MAX: u64 = 64 << 20;

/// A look costs a microsecond for each attempt. A fast disk takes a few gigabytes in this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
