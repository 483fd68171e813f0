//! How much is stored of the output of attempts that was cut at `log.max_bytes`, for the JSON of a job.

use std::sync::Arc;

use protocol::report::OutputLengths;
use protocol::{Fence, JobId, Revision};

use crate::config::jobs_file;
use crate::http::present::shapes::{Attempt, FullJob, OutputBytes, OutputCut};
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
    let attempts = full.attempts.iter_mut().rev();
    let cut = attempts.filter(|it| it.output.as_ref().is_some_and(|output| written(output) > max_bytes));
    let cut: Vec<&mut Attempt> = cut.collect();
    let counted = cut.iter().take(ATTEMPTS_MAX).map(|it| AttemptKey { job, fence: Fence(it.fence) });
    let counted = count(state, counted.collect()).await;
    for (attempt, stored) in cut.into_iter().zip(counted.into_iter().chain(std::iter::repeat(None))) {
        let (stdout_stored_bytes, stderr_stored_bytes) = match stored {
            Some(StoredOutput::Counted(stored)) if stored == OutputLengths::default() => continue,
            Some(StoredOutput::Counted(stored)) => (Some(stored.stdout), Some(stored.stderr)),
            Some(StoredOutput::Uncounted) | None => (None, None),
        };
        if let Some(output) = &mut attempt.output {
            output.cut = Some(OutputCut { max_bytes, stdout_stored_bytes, stderr_stored_bytes });
        }
    }
}

/// The stored output of each of these attempts; `None` where it cannot be read. All that were not counted before are counted in one turn.
async fn count(state: &AppState, attempts: Vec<AttemptKey>) -> Vec<Option<StoredOutput>> {
    let logs = Arc::clone(&state.services.logs);
    let known: Vec<Option<StoredOutput>> = attempts.iter().map(|attempt| logs.stored(*attempt)).collect();
    if known.iter().all(Option::is_some) {
        return known;
    }
    let before = known.clone();
    let count = move || {
        let one = |(attempt, known): (AttemptKey, Option<StoredOutput>)| {
            known.or_else(|| logs.count_stored(attempt).ok())
        };
        Ok(attempts.into_iter().zip(known).map(one).collect())
    };
    state.block(count).await.unwrap_or(before)
}

/// Attempts of one job whose stored output is counted, the latest ones: each costs a walk through its index.
const ATTEMPTS_MAX: usize = 10;
