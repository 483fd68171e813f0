//! Idempotency keys: parsed from the header, and passed to the engine.

use std::sync::Arc;

use axum::http::HeaderName;
use axum::http::request::Parts;
use scheduler::batches::BatchOptions;
use scheduler::input::{IdempotencyKey, KeyHolder};
use scheduler::new_jobs::{NewJob, NewJobs};
use scheduler::step::{Answer, Rejection};
use sha2::{Digest, Sha256};

use crate::auth::actor::Actor;
use crate::engine::Busy;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::predecessors;
use crate::http::state::AppState;

/// The idempotency key of a request, with the fingerprint of the request: a hash of `fingerprint_text` and the body. Keys of different tokens,
/// and of requests without a token, are different keys.
pub(crate) fn parse_key(
    parts: &Parts,
    fingerprint_text: &str,
    body: &[u8],
) -> Result<Option<(Arc<str>, u128)>, Problem> {
    let mut given = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = given.next() else { return Ok(None) };
    let bytes = key.as_bytes();
    let fits = (1..=KEY_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    let (true, None, Ok(key)) = (fits, given.next(), key.to_str()) else {
        return Err(Problem::new(
            ProblemCode::InvalidIdempotencyKey,
            format!("it is one header of 1 to {KEY_BYTES_MAX} visible ASCII characters"),
        )
        .field("Idempotency-Key"));
    };
    let hash = Sha256::new().chain_update(fingerprint_text).chain_update([0]).chain_update(body).finalize();
    let digest = u128::from_be_bytes(std::array::from_fn(|index| hash[index]));
    // No key has a space, so a name of a token and a key are told apart.
    let key = match &Actor::current().token {
        Some(name) => format!("http:{name} {key}"),
        None => format!("http:{key}"),
    };
    Ok(Some((key.into(), digest)))
}

/// Submits jobs to the engine with the archive's answers about the key and about the jobs that they come after.
pub(crate) async fn submit_with_key(
    state: &AppState,
    jobs: impl Into<NewJobs>,
    batch: Option<BatchOptions>,
    require_worker: bool,
    key: Option<(Arc<str>, u128)>,
) -> Result<Answer, Problem> {
    let jobs = with_submitter(jobs.into());
    if !predecessors::has_any(&jobs) {
        return submit_looked_up(state, jobs, batch, require_worker, key).await;
    }
    for _ in 0..TRIES_MAX {
        let looked_up = match predecessors::resolve(state, jobs.clone()).await {
            Ok(jobs) => jobs,
            Err(refusal) => return find_accepted(state, key, refusal).await.map(Answer::Replayed),
        };
        // The archive knows of the end before the answer says that it was not known.
        match submit_looked_up(state, looked_up, batch.clone(), require_worker, key.clone()).await? {
            Answer::Rejected(Rejection::PredecessorEnded(_)) => {}
            answer => return Ok(answer),
        }
    }
    Err(Busy.into())
}

/// Submits jobs to the engine with the archive's answer about the key. A batch is tried once: copying it for the rare case of a stale
/// answer costs too much, and its client can retry.
async fn submit_looked_up(
    state: &AppState,
    mut jobs: NewJobs,
    batch: Option<BatchOptions>,
    require_worker: bool,
    key: Option<(Arc<str>, u128)>,
) -> Result<Answer, Problem> {
    let Some((key, digest)) = key else {
        return Ok(state.services.engine.submit(jobs, batch, require_worker, None).await?);
    };
    let tries = if batch.is_some() { 1 } else { TRIES_MAX };
    for left in (0..tries).rev() {
        let key = look_up(state, Arc::clone(&key), digest).await?;
        let jobs = if left == 0 { std::mem::replace(&mut jobs, Vec::new().into()) } else { jobs.clone() };
        match state.services.engine.submit(jobs, batch.clone(), require_worker, Some(key)).await? {
            Answer::Rejected(Rejection::KeyReadingTooOld) => {}
            answer => return Ok(answer),
        }
    }
    Err(Busy.into())
}

/// Reads what the archive knows of a key.
///
/// # Errors
/// Those of a read.
pub(crate) async fn look_up(
    state: &AppState,
    key: Arc<str>,
    digest: u128,
) -> Result<IdempotencyKey, Problem> {
    let asked = Arc::clone(&key);
    let (found, read_at) = state.read(move |archive| archive.key(&asked)).await?;
    Ok(IdempotencyKey { key, digest, found, read_at })
}

/// Submits a job that comes after no other, with the archive's answer about its key. The engine gets it when the future is polled first, so
/// that several are accepted in the order in which they are polled; again later if the answer was stale.
pub(crate) async fn submit_looked_up_first(
    state: &AppState,
    new: NewJob,
    key: Option<IdempotencyKey>,
) -> Result<Answer, Problem> {
    let jobs = with_submitter(vec![new].into());
    let Some(key) = key else {
        return Ok(state.services.engine.submit(jobs, None, false, None).await?);
    };
    let (again, again_with) = (jobs.clone(), (Arc::clone(&key.key), key.digest));
    match state.services.engine.submit(jobs, None, false, Some(key)).await? {
        Answer::Rejected(Rejection::KeyReadingTooOld) => {
            submit_looked_up(state, again, None, false, Some(again_with)).await
        }
        answer => Ok(answer),
    }
}

/// Adds the name of the caller, as the audit log has it. Without one, as on a server that needs no token, nothing is stored.
fn with_submitter(mut jobs: NewJobs) -> NewJobs {
    if let Some(name) = &Actor::current().token {
        jobs.set_submitted_by(name);
    }
    jobs
}

/// Finds the job of an earlier request with the same key before a refusal: that request may have been accepted, and its answer lost.
///
/// # Errors
/// The refusal, unless the key is known; `idempotency_mismatch` if the key belongs to another request.
pub(crate) async fn find_accepted(
    state: &AppState,
    key: Option<(Arc<str>, u128)>,
    refusal: Problem,
) -> Result<KeyHolder, Problem> {
    find_holder(state, key).await?.ok_or(refusal)
}

/// Finds the job of an earlier request with the same key before a refusal of what the request says: its definition may have changed since
/// that request was accepted.
///
/// # Errors
/// The refusal, unless this very request was accepted under its key.
pub(crate) async fn find_repeated(
    state: &AppState,
    key: Option<(Arc<str>, u128)>,
    refusal: Problem,
) -> Result<KeyHolder, Problem> {
    match find_holder(state, key).await {
        Ok(Some(holder)) => Ok(holder),
        Ok(None) => Err(refusal),
        Err(problem) if problem.code() == ProblemCode::IdempotencyMismatch => Err(refusal),
        Err(problem) => Err(problem),
    }
}

/// Finds the job of an earlier request with the same key, without submitting anything.
///
/// # Errors
/// `idempotency_mismatch` if the key belongs to another request, and those of a read.
pub(crate) async fn find_holder(
    state: &AppState,
    key: Option<(Arc<str>, u128)>,
) -> Result<Option<KeyHolder>, Problem> {
    if key.is_none() {
        return Ok(None);
    }
    // The scheduler checks the key before the definition, so a job without definition is never accepted.
    match submit_looked_up(state, vec![NewJob::default()].into(), None, false, key).await? {
        Answer::Replayed(holder) => Ok(Some(holder)),
        Answer::Rejected(Rejection::UnknownDefinition) => Ok(None),
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

/// A key may outlive its job.
pub(crate) fn explain_pruned(problem: Problem, holder: &KeyHolder) -> Problem {
    match problem.code() {
        ProblemCode::Pruned => Problem::new(
            ProblemCode::Pruned,
            format!("this request was accepted before, as job {}, which has been removed since", holder.job),
        )
        .hint("to run it again, use another Idempotency-Key"),
        _ => problem,
    }
}

/// The header that has the key.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const KEY_BYTES_MAX: usize = 255;

/// Tries before the answer is `busy`. The archive's answer is stale only if the scheduler forgets keys, or jobs end, faster than a read takes.
const TRIES_MAX: usize = 3;
