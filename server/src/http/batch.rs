//! Requests for many jobs: all of them or none.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use protocol::{JobId, Revision};
use scheduler::input::{KeyHolder, NewJob};
use scheduler::step::{Accepted, Answer, Rejection};

use super::body::{self, Form};
use super::code::Code;
use super::definitions;
use super::desk::Desk;
use super::jobs::unexpected;
use super::key::{accepted_before, ask, key_of};
use super::problem::Problem;
use super::submit::{Manner, REPLAYED, YES, json, warning};
use super::view::{self, Time};
use super::wanted::{self, Wanted};
use crate::catalogue::Definitions;

/// `POST /api/jobs`
pub(super) async fn many(State(desk): State<Arc<Desk>>, request: Request) -> Result<Response, Problem> {
    desk.may_accept()?;
    let (parts, body) = request.into_parts();
    let manner = Manner::of(&parts.uri)?;
    if manner.wait.is_some() || manner.follow {
        return Err(Problem::new(Code::InvalidQuery, "nobody can wait for a whole batch").field("?wait"));
    }
    let form = body::form(&parts.headers, true)?;
    let length: Option<usize> =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut room = desk.large_bodies.room();
    let pieces = body::pieces(body, MANY_BYTES_MAX, MANY_PATIENCE, &mut room).await?;
    let definitions = desk.app.catalogue.current();
    let read = move || {
        let text = Bytes::from(pieces.concat());
        drop(pieces);
        let key = key_of(&parts, "", &text)?;
        Ok((read_many(&text, form, &definitions), key))
    };
    let is_small = length.is_some_and(|length| length <= INLINE_BYTES_MAX);
    let (jobs, key) = if is_small { read()? } else { desk.study(read).await? };
    let jobs = match jobs {
        Ok(jobs) => jobs,
        Err(refusal) if matches!(refusal.code(), Code::UnknownJob | Code::DefinitionDisabled) => {
            return accepted_before(&desk, key, refusal).await.map(replayed_many);
        }
        Err(refusal) => return Err(refusal),
    };
    // The disk had room when the body began to arrive, which may be minutes ago.
    desk.must_have_room()?;
    match ask(&desk, jobs, true, manner.require_worker, key).await? {
        Answer::Accepted(accepted) => Ok(created_many(&accepted)),
        Answer::Replayed(holder) => Ok(replayed_many(holder)),
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(unexpected(&answer)),
    }
}

/// The jobs of a batch.
///
/// # Errors
/// What is wrong with the first entry that is wrong.
pub(super) fn read_many(text: &[u8], form: Form, definitions: &Definitions) -> Result<Vec<NewJob>, Problem> {
    let mut jobs = Vec::new();
    let mut last: Option<(String, Revision)> = None;
    let take = |wanted: Wanted<'_>| {
        if jobs.len() == MANY_MAX {
            return Err(Problem::new(Code::TooManyJobs, format!("more than {MANY_MAX} jobs in one request")));
        }
        let Some(name) = wanted.name else {
            return Err(
                Problem::new(Code::MissingField, "an entry needs the name of a definition").field("name")
            );
        };
        // Most batches are of one definition.
        let revision = match &last {
            Some((known, revision)) if *known == name => *revision,
            _ => {
                let entry = definitions::find(definitions, &name).map_err(|problem| problem.field("name"))?;
                if !entry.definition.enabled {
                    return Err(Problem::from(Rejection::Disabled).field("name"));
                }
                last = Some((name.into_owned(), entry.definition.revision));
                entry.definition.revision
            }
        };
        jobs.push(NewJob { revision, ..wanted.job });
        Ok(())
    };
    match form {
        Form::Lines => wanted::read_lines(text, take)?,
        Form::Json => wanted::read_array(text, take)?,
    }
    match jobs.is_empty() {
        true => Err(Problem::new(Code::EmptyBatch, "the body has no entry")),
        false => Ok(jobs),
    }
}

fn created_many(accepted: &Accepted) -> Response {
    let batch = view::Batch {
        created_at: Some(Time(accepted.created_at)),
        warning: accepted.pending.and_then(warning),
        ..batch(accepted.first, accepted.count)
    };
    json(StatusCode::CREATED, HeaderMap::new(), &batch)
}

fn replayed_many(holder: KeyHolder) -> Response {
    let headers = HeaderMap::from_iter([(REPLAYED, YES)]);
    json(StatusCode::OK, headers, &batch(holder.job, holder.count))
}

fn batch(first: JobId, count: u32) -> view::Batch {
    let last = first.0 + u64::from(count.saturating_sub(1));
    view::Batch { batch: first.0, count, first: first.0, last, ..view::Batch::default() }
}

const MANY_BYTES_MAX: usize = 64 << 20;
const MANY_MAX: usize = 100_000;

/// 64 MiB at two megabits a second.
const MANY_PATIENCE: Duration = Duration::from_secs(300);

/// Read where it arrives up to this size: less than half a millisecond.
const INLINE_BYTES_MAX: usize = 64 << 10;
