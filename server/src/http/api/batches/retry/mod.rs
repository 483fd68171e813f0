//! `POST /api/batches/{id}/retry`: a new batch of the members that have not succeeded. Those that cannot be repeated are left
//! out; all others are accepted together, or none is.
//!
//! `members` reads which jobs stand for these members, `repetitions` makes the new jobs, and `order` lets them come after one another as
//! before. A page of members is read at a time, so that other reads are served in between.

mod members;
mod order;
mod repetitions;

pub(crate) use members::last_batch_retry;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scheduler::batches::{BatchOptions, BatchUnique, MayReplace};
use scheduler::input::KeyHolder;
use scheduler::step::{Answer, Rejection};
use tokio::sync::OwnedMutexGuard;

use super::submit_many::{
    Asked, created, existing_batch, location, only_duplicates, options, replayed_batch,
};
use crate::auth::audit::note;
use crate::engine::Busy;
use crate::http::api::bulk::keys::fingerprint_text;
use crate::http::api::submission_answer::{DUPLICATE, REPLAYED, YES, json};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::detached::run_detached;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::RetriedBatch;
use crate::http::request::body;
use crate::http::request::idempotency_key::{find_accepted, find_holder, parse_key, submit_with_key};
use crate::http::request::query::Query;
use crate::http::request::submit_params::RevisionChoice;
use crate::http::state::AppState;
use crate::store::BatchRow;
use members::Cancelled;
use repetitions::{Purpose, Repetitions, repetitions};

/// Repeats the members of a batch that have not succeeded.
///
/// # Errors
/// Those of the parameters, those of a read, and the engine rejected the new batch.
pub(super) async fn retry(
    state: &Arc<AppState>,
    of: &BatchRow,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    body::none(body).await?;
    let mut query = Query::of(&parts.uri)?;
    let dry_run = query.switch("dry_run")?;
    let revision = RevisionChoice::read(&mut query)?;
    let choice = if query.switch("cancelled")? { Cancelled::Repeated } else { Cancelled::LeftOut };
    let given = options(&mut query)?;
    query.finish()?;
    let target = fingerprint_text(format!("retry batch {}", of.first), parts.uri.query());
    let key = parse_key(&parts, &target, &[])?;
    if dry_run {
        let counted = repetitions(state, of, choice, Purpose::Count).await?;
        note::detail(format!("counts only: {}", counted.matched));
        return Ok(json(StatusCode::OK, HeaderMap::new(), &RetriedBatch { dry_run, ..shown(of, &counted) }));
    }
    state.check_accepting()?;
    if let Some(holder) = find_holder(state, key.clone()).await? {
        return Ok(replayed(state, of, holder));
    }
    let turn = turn(state).await?;
    let options = BatchOptions {
        name: given.name.or_else(|| of.name.clone()),
        max_failures: given.max_failures.or(of.max_failures),
        concurrency: given.concurrency.or(of.concurrency),
        retry_of: Some(of.first),
        unique: unique_of(of),
    };
    let (state, of) = (Arc::clone(state), of.clone());
    // The turn ends with the submission: a client that leaves before must not let the next retry make a second batch.
    run_detached(async move {
        let answer = make(&state, &of, (choice, revision), options, key).await;
        drop(turn);
        answer
    })
    .await
}

/// The unique key of a batch for the one that repeats its members. A retry replaces no batch.
pub(crate) fn unique_of(of: &BatchRow) -> Option<BatchUnique> {
    let (key, on_duplicate) = (of.unique_key.as_deref()?.into(), of.on_duplicate.unwrap_or_default());
    Some(BatchUnique { key, on_duplicate, may_replace: MayReplace::None })
}

/// Waits until no other batch or pipeline is retried: two requests at once must not repeat the same jobs.
///
/// # Errors
/// `busy` if that takes too long.
pub(crate) async fn turn(state: &AppState) -> Result<OwnedMutexGuard<()>, Problem> {
    let turn = Arc::clone(&state.batch_retries).lock_owned();
    tokio::time::timeout(TURN_TIMEOUT, turn).await.map_err(|_| {
        Problem::new(ProblemCode::Busy, "batches are being retried, one after another")
            .hint("try again in some seconds; an Idempotency-Key makes that safe")
            .retry_after(5)
    })
}

/// Makes the new batch.
///
/// # Errors
/// Those of a read, and the engine rejected the batch.
async fn make(
    state: &Arc<AppState>,
    of: &BatchRow,
    (choice, revision): (Cancelled, RevisionChoice),
    options: BatchOptions,
    key: Option<(Arc<str>, u128)>,
) -> Result<Response, Problem> {
    let mut made = match repetitions(state, of, choice, Purpose::Make(revision)).await {
        Ok(made) => made,
        // A request with this key may have made the batch meanwhile.
        Err(refusal) => return Ok(replayed(state, of, find_accepted(state, key, refusal).await?)),
    };
    if made.jobs.is_empty() {
        return nothing_to_make(state, of, &made, key).await;
    }
    // The reads may have taken a while.
    state.check_accepting()?;
    let jobs = std::mem::take(&mut made.jobs);
    let asked = Asked::new(jobs.len(), &jobs);
    let answered = submit_with_key(state, jobs, Some(options), false, key).await?;
    drop(made.held.take());
    match answered {
        Answer::Accepted(accepted) => {
            let new = created(state, &accepted, &asked).await;
            note::detail(format!(
                "retry: batch {} of {} jobs, refused {}",
                new.batch, new.count, made.refused
            ));
            let shown = RetriedBatch { batch: Some(new), ..shown(of, &made) };
            Ok(json(StatusCode::CREATED, location(state, accepted.first), &shown))
        }
        Answer::Replayed(holder) => Ok(replayed(state, of, holder)),
        Answer::Duplicate(job) => {
            let shown = RetriedBatch { batch: Some(only_duplicates(job, asked.count)), ..shown(of, &made) };
            Ok(json(StatusCode::OK, HeaderMap::from_iter([(DUPLICATE, YES)]), &shown))
        }
        Answer::ExistingBatch { first, count } => {
            let shown = RetriedBatch { batch: Some(existing_batch(first, count)), ..shown(of, &made) };
            let mut headers = location(state, first);
            headers.insert(DUPLICATE, YES);
            Ok(json(StatusCode::OK, headers, &shown))
        }
        Answer::Rejected(Rejection::UnknownDefinition) => {
            Err(Problem::from(Busy).hint("jobs.yaml has just been read again; try again"))
        }
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

/// Answers that no batch was made, unless an earlier request with this key has made it.
async fn nothing_to_make(
    state: &AppState,
    of: &BatchRow,
    made: &Repetitions,
    key: Option<(Arc<str>, u128)>,
) -> Result<Response, Problem> {
    if let Some(holder) = find_holder(state, key).await? {
        return Ok(replayed(state, of, holder));
    }
    note::detail(format!("retry: no batch, refused {}", made.refused));
    Ok(json(StatusCode::OK, HeaderMap::new(), &shown(of, made)))
}

/// Answers a repeated request with the batch that the first one made.
fn replayed(state: &AppState, of: &BatchRow, holder: KeyHolder) -> Response {
    let mut headers = location(state, holder.job);
    headers.insert(REPLAYED, YES);
    let new = replayed_batch(&holder);
    let matched = u64::from(holder.count);
    let shown = RetriedBatch { batch: Some(new), retry_of: of.first.0, matched, ..RetriedBatch::default() };
    json(StatusCode::OK, headers, &shown)
}

fn shown(of: &BatchRow, made: &Repetitions) -> RetriedBatch {
    let Repetitions { matched, refused, refusals, cancelled, .. } = made;
    RetriedBatch {
        retry_of: of.first.0,
        matched: *matched,
        refused: *refused,
        refusals: refusals.clone(),
        cancelled: *cancelled,
        unended: of.counts.live(),
        ..RetriedBatch::default()
    }
}

/// The longest wait for other retries before the answer is `busy`.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
