//! Finds the batch that a request names.

use protocol::JobId;

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::state::AppState;
use crate::store::BatchRow;

/// The batch with this first job.
///
/// # Errors
/// `batch_not_found`, and those of a read.
pub(crate) async fn find(state: &AppState, first: JobId) -> Result<BatchRow, Problem> {
    let found = state.read(move |archive| archive.batch(first)).await?;
    found.ok_or_else(|| {
        Problem::new(ProblemCode::BatchNotFound, format!("there is no batch {first}"))
            .hint("a batch has the number of its first job; GET /api/batches lists the batches")
    })
}
