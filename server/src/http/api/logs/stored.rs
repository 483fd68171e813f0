//! How much is stored of the output of attempts that was cut at `log.max_bytes`, for the JSON of a job.

use std::sync::Arc;

use protocol::report::OutputLengths;
use protocol::{Fence, JobId, Revision};

use crate::config::jobs_file;
use crate::http::present::shapes::{FullJob, OutputBytes, OutputCut};
use crate::http::state::AppState;
use crate::logs::{AttemptKey, BYTES_MAX_FROM, StoredOutput};

/// Adds to the output of each attempt that it was cut, and how much of it is stored. If something cannot be read, it is left out: the job
/// itself is known. Nothing is added if no output is stored any more.
pub(crate) async fn add_cuts(state: &AppState, revision: Revision, full: &mut FullJob) {
    let written = |output: &OutputBytes| output.stdout_bytes.saturating_add(output.stderr_bytes);
    let longest = full.attempts.iter().filter_map(|attempt| attempt.output.as_ref()).map(written).max();
    if longest.is_none_or(|longest| longest <= BYTES_MAX_FROM) {
        return;
    }
    let Ok(stored) = state.read(move |archive| archive.definition(revision)).await else { return };
    let max_bytes = jobs_file::log_bytes_max(stored.as_ref());
    let job = JobId(full.job.id);
    let mut left = ATTEMPTS_MAX;
    for attempt in full.attempts.iter_mut().rev() {
        let Some(output) = attempt.output.as_mut().filter(|output| written(output) > max_bytes) else {
            continue;
        };
        let mut cut = OutputCut { max_bytes, ..OutputCut::default() };
        if left > 0 {
            left -= 1;
            let key = AttemptKey { job, fence: Fence(attempt.fence) };
            match count(state, key).await {
                Some(StoredOutput::Counted(stored)) if stored == OutputLengths::default() => continue,
                Some(StoredOutput::Counted(stored)) => {
                    (cut.stdout_stored_bytes, cut.stderr_stored_bytes) =
                        (Some(stored.stdout), Some(stored.stderr));
                }
                Some(StoredOutput::Uncounted) | None => {}
            }
        }
        output.cut = Some(cut);
    }
}

/// The stored output of an attempt; `None` if it cannot be read.
async fn count(state: &AppState, attempt: AttemptKey) -> Option<StoredOutput> {
    let logs = Arc::clone(&state.services.logs);
    match logs.stored(attempt) {
        Some(known) => Some(known),
        None => state.search(move || Ok(logs.count_stored(attempt)?)).await.ok(),
    }
}

/// Attempts of one job whose stored output is counted, the latest ones: each costs a walk through its index.
const ATTEMPTS_MAX: usize = 10;
