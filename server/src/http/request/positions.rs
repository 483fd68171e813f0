//! The filter `index`: positions in the batch of the filter `batch`.

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::batch;
use crate::http::request::query::{Query, invalid_query};
use crate::http::state::AppState;
use crate::positions::Positions;
use crate::store::{BatchRow, JobFilter};

/// Reads `index` of a query; empty if it is absent.
///
/// # Errors
/// `invalid_query`.
pub(crate) fn read(query: &mut Query) -> Result<Vec<Positions>, Problem> {
    let Some(text) = query.text("index")? else { return Ok(Vec::new()) };
    Positions::read(&text).map_err(|fault| invalid_query("index", &fault))
}

/// Refuses positions without a batch, and those that no member of the batch has.
///
/// # Errors
/// `invalid_query`, `batch_not_found`, `job_not_found`, and those of a read.
pub(crate) async fn check(state: &AppState, filter: &JobFilter) -> Result<(), Problem> {
    if filter.positions.is_empty() {
        return Ok(());
    }
    let Some(first) = filter.batch else {
        return Err(invalid_query("index", "it is a position in the batch that the parameter batch names"));
    };
    let batch = batch::find(state, first).await?;
    let (of, positions) = (batch.clone(), filter.positions.clone());
    match state.read(move |archive| archive.unknown_position(&of, &positions)).await? {
        Some(position) => Err(unknown(&batch, position)),
        None => Ok(()),
    }
}

fn unknown(batch: &BatchRow, position: u32) -> Problem {
    let BatchRow { first, count, .. } = batch;
    let members = if *count == 1 { "1 member".to_owned() } else { format!("{count} members") };
    let detail = format!("batch {first} has {members}, and none with the index {position}");
    let hint = match batch.retry_of {
        Some(of) => {
            format!("it is a retry of batch {of}: its members have the indexes of those that they repeat")
        }
        None => format!("its indexes are 0 to {}", count.saturating_sub(1)),
    };
    Problem::new(ProblemCode::JobNotFound, detail).field("?index").hint(hint)
}
