//! The parameters that a job took from the results of the jobs that it came after.
//!
//! They are not stored with the job: they follow from its submission and from those results, which do not change.

use scheduler::results::takes_params;
use scheduler::step::Note;

use crate::http::middleware::problem::Problem;
use crate::http::request::definition;
use crate::http::state::AppState;
use crate::params::params_of_predecessors;
use crate::store::JobRecord;

/// Adds them to the job, with a note about values that were left out.
///
/// # Errors
/// The store cannot be read.
pub(super) async fn add(state: &AppState, mut record: JobRecord) -> Result<JobRecord, Problem> {
    if record.after.is_empty() {
        return Ok(record);
    }
    let Some(definition) = definition::of_revision(state, record.row.revision).await? else {
        return Ok(record);
    };
    if !takes_params(&definition.submission) {
        return Ok(record);
    }
    let job = record.row.job;
    let stored = state.read(move |archive| archive.overrides(&[job])).await?.pop();
    let Some((_, stored)) = stored else { return Ok(record) };
    let taken = params_of_predecessors(&definition.submission, &stored);
    if let Some(params) = taken.params {
        record.params = params.given;
    }
    let first = record.past.first().or(record.row.attempt.as_ref());
    if let Some(first) = first.filter(|_| !taken.left_out.is_empty()) {
        record.notes.push((first.assigned_at, Note::ResultLeftOut { why: taken.left_out.join("; ") }));
    }
    Ok(record)
}
