//! The cancel of a whole batch. The engine marks the batch in one step and goes on by itself, so one request is enough, and no member starts
//! after its answer.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::response::Response;
use protocol::JobId;
use scheduler::step::{Answer, Rejection};

use super::Operation;
use super::command::JobCommand;
use super::verb::{Verb, names};
use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::http::api::jobs::requester;
use crate::http::api::submission_answer::json;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::BulkResult;
use crate::http::request::query::Query;
use crate::http::request::request_id::RequestId;
use crate::http::request::submit_params::RevisionChoice;
use crate::http::request::{body, cursor};
use crate::http::state::AppState;
use crate::store::JobFilter;

/// Cancels the members of a batch.
///
/// # Errors
/// Those of the filters, and those that end the whole operation.
pub(crate) async fn cancel_batch(
    state: Arc<AppState>,
    first: JobId,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    body::none(body).await?;
    let mut query = Query::of(&parts.uri)?;
    let dry_run = query.switch("dry_run")?;
    let before = query.text("cursor")?.as_deref().map(cursor::read).transpose()?;
    query.finish()?;
    let operation = cancel_operation(state, &parts);
    let mut result = BulkResult { dry_run, ..BulkResult::default() };
    let members = JobFilter { before, ..members_of(first) };
    operation.cancel_members(first, members, &mut result).await?;
    note::detail(Verb::Cancel.in_words(&result));
    Ok(json(StatusCode::OK, HeaderMap::new(), &result))
}

/// The cancel of members, as this request makes it.
fn cancel_operation(state: Arc<AppState>, parts: &Parts) -> Arc<Operation> {
    operation(state, requester(parts), RequestId::of(&parts.extensions))
}

fn operation(state: Arc<AppState>, by: String, request_id: RequestId) -> Arc<Operation> {
    let (verb, revision) = (Verb::Cancel, RevisionChoice::Current);
    Arc::new(Operation { state, verb, revision, by, request_id, key: None, acknowledgement: None })
}

/// Refuses a token that may not act on all members of a batch that have not ended.
///
/// # Errors
/// `out_of_scope`, `busy` if it takes too long to find out, and those of a read.
pub(crate) async fn check_scope_of_members(state: &Arc<AppState>, first: JobId) -> Result<(), Problem> {
    // It only counts, so nothing of the requester is written down.
    let operation = operation(Arc::clone(state), String::new(), RequestId::of(&Extensions::new()));
    match operation.reach_of(first).await? {
        Reach::All => Ok(()),
        // A token with a whole scope may act on all of them.
        Reach::Some => Ok(Actor::current().check_whole_scope()?),
        Reach::Unknown => Err(Problem::new(ProblemCode::Busy, SCOPE_UNKNOWN)
            .hint("try again, or use a token without a scope: then the members need not be read")
            .retry_after(SCOPE_RETRY_SECONDS)),
    }
}

/// The members of a batch that a token may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    All,
    /// At least one is of a definition outside the scope.
    Some,
    /// The time was up, or the server began to leave, before all were read; those that were are in the scope.
    Unknown,
}

impl Reach {
    /// The result of a dry run over all members.
    const fn of(counted: &BulkResult) -> Self {
        match (counted.out_of_scope, &counted.next) {
            (0, None) => Self::All,
            (0, Some(_)) => Self::Unknown,
            _ => Self::Some,
        }
    }
}

const SCOPE_UNKNOWN: &str =
    "it took too long to find out if the token may act on all members of the batch: nothing was changed";

const SCOPE_RETRY_SECONDS: u64 = 10;

/// The batch whose members a query selects, if it has no other filter.
pub(super) fn whole_batch(query: &str, filter: &JobFilter) -> Option<JobId> {
    filter.batch.filter(|_| names(query).all(|name| matches!(name, "" | "batch" | "cursor" | "dry_run")))
}

/// The members of a batch that have not ended.
fn members_of(first: JobId) -> JobFilter {
    JobFilter { batch: Some(first), states: Verb::Cancel.states().to_vec(), ..JobFilter::default() }
}

impl Operation {
    /// Cancels the members of a batch that have not ended, or counts them. `members` selects them.
    pub(super) async fn cancel_members(
        self: &Arc<Self>,
        first: JobId,
        members: JobFilter,
        result: &mut BulkResult,
    ) -> Result<(), Problem> {
        // If it took long to find out, the members are cancelled page by page, as if some were outside.
        if result.dry_run || self.reach_of(first).await? != Reach::All {
            return self.run(members, result).await;
        }
        self.state.check_not_stalled()?;
        match self.ask_engine(first, JobCommand::CancelBatch).await? {
            Answer::BatchCancelRequested { live, ended } => {
                result.matched = live.into();
                result.done = ended.into();
                result.stopping = live.saturating_sub(ended).into();
                Ok(())
            }
            // All members have ended.
            Answer::Rejected(Rejection::NotLive) => Ok(()),
            Answer::Rejected(rejection) => Err(rejection.into()),
            answer => Err(Problem::unexpected_answer(&answer)),
        }
    }

    /// The members of a batch that have not ended and that the token of the request may act on.
    async fn reach_of(self: &Arc<Self>, first: JobId) -> Result<Reach, Problem> {
        if Actor::current().has_whole_scope() {
            return Ok(Reach::All);
        }
        let mut counted = BulkResult { dry_run: true, ..BulkResult::default() };
        self.run(members_of(first), &mut counted).await?;
        Ok(Reach::of(&counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_were_not_read_in_time_are_not_taken_for_members_outside_the_scope() {
        let counted = |out_of_scope, next: Option<&str>| {
            let next = next.map(str::to_owned);
            Reach::of(&BulkResult { dry_run: true, out_of_scope, next, ..BulkResult::default() })
        };
        assert_eq!(counted(0, None), Reach::All);
        assert_eq!(counted(0, Some("c")), Reach::Unknown);
        assert_eq!(counted(1, None), Reach::Some);
        assert_eq!(counted(1, Some("c")), Reach::Some);
    }
}
