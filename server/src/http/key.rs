//! Idempotency keys of requests: what they stand for, and how they come to the engine.

use std::sync::Arc;

use axum::http::HeaderName;
use axum::http::request::Parts;
use scheduler::input::{Key, KeyHolder, NewJob};
use scheduler::step::{Answer, Rejection};
use sha2::{Digest, Sha256};

use super::code::Code;
use super::desk::Desk;
use super::jobs::unexpected;
use super::problem::Problem;
use crate::engine::Busy;

/// The request's idempotency key, and the hash of what it asks for.
pub(super) fn key_of(parts: &Parts, target: &str, body: &[u8]) -> Result<Option<(Arc<str>, u128)>, Problem> {
    let mut given = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = given.next() else { return Ok(None) };
    let bytes = key.as_bytes();
    let fits = (1..=KEY_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    let (true, None, Ok(key)) = (fits, given.next(), key.to_str()) else {
        return Err(Problem::new(
            Code::InvalidIdempotencyKey,
            format!("it is one header of 1 to {KEY_BYTES_MAX} visible ASCII characters"),
        )
        .field("Idempotency-Key"));
    };
    let hash = Sha256::new().chain_update(target).chain_update([0]).chain_update(body).finalize();
    let digest = u128::from_be_bytes(std::array::from_fn(|index| hash[index]));
    Ok(Some((format!("http:{key}").into(), digest)))
}

/// Puts jobs to the engine, with what the archive knows of the key. A batch is put once: it is not copied for the rare case that its
/// reading is too old, since its client can try again.
pub(super) async fn ask(
    desk: &Desk,
    mut jobs: Vec<NewJob>,
    batch: bool,
    require_worker: bool,
    key: Option<(Arc<str>, u128)>,
) -> Result<Answer, Problem> {
    let Some((key, digest)) = key else {
        return Ok(desk.app.engine.submit(jobs, batch, require_worker, None).await?);
    };
    let readings = if batch { 1 } else { KEY_READINGS_MAX };
    for left in (0..readings).rev() {
        let asked = Arc::clone(&key);
        let (found, read_at) = desk.read(move |archive| archive.key(&asked)).await?;
        let key = Key { key: Arc::clone(&key), digest, found, read_at };
        let jobs = if left == 0 { std::mem::take(&mut jobs) } else { jobs.clone() };
        match desk.app.engine.submit(jobs, batch, require_worker, Some(key)).await? {
            Answer::Rejected(Rejection::KeyReadingTooOld) => {}
            answer => return Ok(answer),
        }
    }
    Err(Busy.into())
}

/// Who holds the key of a request that is about to be refused: it may have been accepted before, when it could be, and its client has
/// not heard the answer.
///
/// # Errors
/// The refusal, unless the key is known; `idempotency_mismatch` if it stands for another request.
pub(super) async fn accepted_before(
    desk: &Desk,
    key: Option<(Arc<str>, u128)>,
    refusal: Problem,
) -> Result<KeyHolder, Problem> {
    if key.is_none() {
        return Err(refusal);
    }
    // The scheduler looks at the key first, and only then for what is to be made: a job of no definition.
    match ask(desk, vec![NewJob::default()], false, false, key).await? {
        Answer::Replayed(holder) => Ok(holder),
        Answer::Rejected(Rejection::UnknownDefinition) => Err(refusal),
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(unexpected(&answer)),
    }
}

/// A key may be kept for longer than its job.
pub(super) fn removed_since(problem: Problem, holder: &KeyHolder) -> Problem {
    match problem.code() {
        Code::Pruned => Problem::new(
            Code::Pruned,
            format!("this request was accepted before, as job {}, which has been removed since", holder.job),
        )
        .hint("to run it again, use another Idempotency-Key"),
        _ => problem,
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const KEY_BYTES_MAX: usize = 255;

/// A reading is too old only if the brain forgets faster than a read takes.
const KEY_READINGS_MAX: usize = 3;
