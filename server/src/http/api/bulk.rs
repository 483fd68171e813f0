//! `POST /api/jobs/cancel`, `/retry`, `/release` and `/acknowledge`: one operation on many jobs, selected by filters or by id.
//!
//! The jobs are read in pages and passed to the engine a slice at a time, so that other requests are served in between. A request ends
//! after some time with a cursor; the client goes on from there. A definition may bear the name of an operation: a request without
//! filters and ids submits a job of it.

mod acknowledge;
mod batch_cancel;
mod by_number;
mod command;
mod in_order;
pub(crate) mod keys;
mod one_job;
pub(crate) mod retried;
pub(crate) mod selection;
mod verb;

pub(crate) use batch_cancel::{cancel_batch, check_scope_of_members};

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use protocol::JobId;
use scheduler::job::State as JobState;
use scheduler::step::Rejection;
use tokio::time::Instant;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::auth::role::Permission;
use crate::http::api::acknowledge::acknowledgement;
use crate::http::api::jobs::requester;
use crate::http::api::submission_answer::json;
use crate::http::api::submit;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::idempotency_key::parse_key;
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::request::request_id::RequestId;
use crate::http::request::submit_params::RevisionChoice;
use crate::http::request::{body, cursor, job_filter, reason};
use crate::http::state::AppState;
use crate::store::{Acknowledgement, JobFilter, JobRow};
use batch_cancel::whole_batch;
use keys::fingerprint_text;
use retried::{Candidate, Done, ToRetry};
use selection::AcknowledgedSelection;
use verb::{EngineVerb, Verb, has_parameter, names_a_filter};

/// `POST /api/jobs/cancel`
pub(crate) async fn cancel(state: State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    bulk(state, Verb::Cancel, request).await
}

/// `POST /api/jobs/retry`
pub(crate) async fn retry(state: State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    bulk(state, Verb::Retry, request).await
}

/// `POST /api/jobs/release`
pub(crate) async fn release(state: State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    bulk(state, Verb::Release, request).await
}

/// `POST /api/jobs/acknowledge`
pub(crate) async fn acknowledge(state: State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    bulk(state, Verb::Acknowledge, request).await
}

/// `GET` of these paths: the name of an operation is not the id of a job.
pub(crate) async fn not_an_id() -> Problem {
    Problem::new(ProblemCode::InvalidId, "this path takes POST; the id of a job is a whole number from 1")
}

/// The effect of an operation on one job.
enum Effect {
    /// The operation is complete; the job is in this state.
    Done(JobState),
    /// A cancel was accepted; the container is being stopped. The job is still in this state.
    Stopping(JobState),
    /// A retry made this job.
    Made(JobId),
    /// A retry made no job: this one has the unique key, and the definition returns it.
    Existing(JobId),
}

async fn bulk(state: State<Arc<AppState>>, mut verb: Verb, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let (text, held) = body::submission(&state.body_budget, &parts.headers, body).await?;
    let has_filter = parts.uri.query().is_some_and(|query| names_a_filter(query, verb));
    let names_jobs =
        || serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|body| body.get("ids").is_some());
    if !has_filter && !names_jobs() {
        let is_dry_run = parts.uri.query().is_some_and(|query| has_parameter(query, "dry_run"));
        if !is_dry_run && state.services.catalogue.current().find(verb.name()).is_some() {
            // The submission reserves memory for its body itself.
            drop(held);
            let request = Request::from_parts(parts, text.into());
            return submit::one(state, Name(verb.name().to_owned()), request).await;
        }
        verb.read_selection(&text)?;
        return Err(needs_selection());
    }
    if verb == Verb::Release {
        Actor::current().check(Permission::Operate)?;
    }
    let State(state) = state;
    let mut query = Query::of(&parts.uri)?;
    let dry_run = query.switch("dry_run")?;
    if verb == Verb::Acknowledge && query.switch("undo")? {
        verb = Verb::TakeBack;
    }
    let AcknowledgedSelection { ids, reason } = verb.read_selection(&text)?;
    let acknowledgement = match verb {
        Verb::Acknowledge => Some(acknowledgement(reason::origin(reason)?)),
        _ => None,
    };
    // A filter by revision has 32 digits; a retry chooses one by a word.
    let revision = match verb {
        Verb::Retry => RevisionChoice::read(&mut query)?,
        _ => RevisionChoice::Current,
    };
    // A retry may go through its jobs in another order than a list.
    let retry_cursor = match verb {
        Verb::Retry if !dry_run => query.text("cursor")?,
        _ => None,
    };
    let mut filter = job_filter::read(&state, &mut query).await?;
    query.finish()?;
    let key = parse_key(&parts, &fingerprint_text(verb.name().to_owned(), parts.uri.query()), &text)?;
    let (by, request_id) = (requester(&parts), RequestId::of(&parts.extensions));
    let reason = acknowledgement.as_ref().and_then(|it| it.reason.clone());
    let operation = Arc::new(Operation { state, verb, revision, by, request_id, key, acknowledgement });
    let mut result = shapes::BulkResult { dry_run, ..shapes::BulkResult::default() };
    if let Some(ids) = ids {
        note::object("jobs by number");
        if has_filter || filter.before.is_some() || retry_cursor.is_some() {
            return Err(
                Problem::new(ProblemCode::InvalidQuery, "ids and filters exclude each other").field("ids")
            );
        }
        if ids.len() > IDS_MAX {
            let detail = format!("{} ids are too many (max {IDS_MAX})", ids.len());
            return Err(Problem::new(ProblemCode::TooLong, detail).field("ids"));
        }
        note::object(format!("jobs {}", note::list(&ids)));
        operation.run_by_number(&ids, &mut result).await?;
    } else if !has_filter {
        return Err(needs_selection());
    } else {
        note::object(match parts.uri.query() {
            Some(query) => format!("jobs with {query}"),
            None => "jobs".to_owned(),
        });
        if filter.states.is_empty() {
            filter.states = verb.states().to_vec();
        }
        // The others were dealt with.
        filter.unresolved |= verb == Verb::Acknowledge;
        match parts.uri.query().and_then(|query| whole_batch(query, &filter)) {
            Some(first) if verb == Verb::Cancel => {
                operation.cancel_members(first, filter, &mut result).await?;
            }
            _ if verb == Verb::Retry && !dry_run => {
                operation.run_retry(filter, retry_cursor.as_deref(), &mut result).await?;
            }
            _ => operation.run(filter, &mut result).await?,
        }
    }
    let reason = reason.map(|reason| format!("; reason: {reason}")).unwrap_or_default();
    note::detail(verb.in_words(&result) + &reason);
    Ok(json(StatusCode::OK, HeaderMap::new(), &result))
}

/// Without a selection a request would take all jobs there are.
fn needs_selection() -> Problem {
    Problem::new(ProblemCode::MissingField, "it needs filters in the query, or \"ids\" in the body")
        .field("ids")
        .hint("send {\"ids\":[12,13]}, or filters such as ?name=resize&state=queued")
}

/// The part of the answer about single jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// Counts, and the first refusals.
    Counts,
    /// The same for jobs that had not ended when they were selected.
    OfLiveJobs,
    /// Also the effect on each job.
    EachJob,
}

/// One bulk request.
struct Operation {
    state: Arc<AppState>,
    verb: Verb,
    revision: RevisionChoice,
    by: String,
    request_id: RequestId,
    /// The idempotency key of the request; each job has one of its own made from it.
    key: Option<(Arc<str>, u128)>,
    /// Of [`Verb::Acknowledge`].
    acknowledgement: Option<Acknowledgement>,
}

impl Operation {
    /// Goes through the jobs of a filter, newest first, or counts them, until all are done, the time is up, or a page fails after others: the
    /// next request begins with that page, and gets the error if it lasts.
    async fn run(
        self: &Arc<Self>,
        mut filter: JobFilter,
        result: &mut shapes::BulkResult,
    ) -> Result<(), Problem> {
        let until = Instant::now() + TIME_MAX;
        filter.limit = if result.dry_run { COUNT_SLICE } else { SLICE };
        let next = self.run_newest_first(filter, &Done::default(), until, result).await?;
        result.next = next.map(cursor::write);
        Ok(())
    }

    /// Goes through the jobs of a filter, and of those that this request has retried before, newest first. Returns the last job that is done
    /// unless all are.
    async fn run_newest_first(
        self: &Arc<Self>,
        mut filter: JobFilter,
        done: &Done,
        until: Instant,
        result: &mut shapes::BulkResult,
    ) -> Result<Option<JobId>, Problem> {
        loop {
            let last = match self.run_page(&filter, done, result).await {
                Err(_) if result.matched > 0 && !result.dry_run => return Ok(filter.before),
                last => last?,
            };
            let Some(last) = last else { return Ok(None) };
            filter.before = Some(last);
            if Instant::now() >= until || self.state.services.shutdown.is_cancelled() {
                return Ok(Some(last));
            }
        }
    }

    /// Applies the operation to one page of the jobs of a filter, and of those that this request has retried before. Returns the last job of
    /// the page unless it is the last page.
    async fn run_page(
        self: &Arc<Self>,
        filter: &JobFilter,
        done: &Done,
        result: &mut shapes::BulkResult,
    ) -> Result<Option<JobId>, Problem> {
        let page = filter.clone();
        let mut rows = self.state.read(move |archive| archive.jobs(&page)).await?;
        let left = done.repeated.iter().filter(|job| filter.before.is_none_or(|before| **job < before));
        let mut repeated: Vec<JobId> = left.take(filter.limit).copied().collect();
        // Both are cut where the first of them ends.
        let last_of_rows = rows.last().filter(|_| rows.len() == filter.limit).map(|row| row.job);
        let last = last_of_rows.max(repeated.last().copied().filter(|_| repeated.len() == filter.limit));
        rows.retain(|row| Some(row.job) >= last);
        repeated.retain(|job| Some(*job) >= last);
        let is_left_out = |row: &JobRow| match self.verb {
            Verb::Retry => Candidate::is_member_to_leave(row, filter),
            Verb::TakeBack => !acknowledge::would_change(self.verb, row.state, &row.failure),
            Verb::Cancel | Verb::Release | Verb::Acknowledge => false,
        };
        rows.retain(|row| !is_left_out(row));
        // A dry run counts what would be done; without it, each of the others is a refusal.
        if result.dry_run {
            let (actor, count) = (Actor::current(), rows.len());
            rows.retain(|row| actor.scope.includes(&row.definition));
            result.out_of_scope += (count - rows.len()) as u64;
        }
        let chosen: Vec<JobId> = match self.verb {
            Verb::Retry => {
                let mut candidates = Candidate::of_rows(&rows, filter);
                candidates.extend(self.repeated_candidates(&repeated).await?);
                candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.job));
                candidates.dedup_by_key(|candidate| candidate.job);
                done.leave_out(&mut candidates);
                let ToRetry { chosen, left_out } = self.to_retry(candidates, filter).await?;
                result.leave_out(left_out);
                chosen.into_iter().map(|(_, job)| job).collect()
            }
            _ => rows.iter().map(|row| row.job).collect(),
        };
        let mut matched = chosen.len() as u64;
        if !result.dry_run {
            let selects_ended = filter.states.iter().any(|state| state.has_ended());
            let detail = if selects_ended { Detail::Counts } else { Detail::OfLiveJobs };
            matched -= self.apply(chosen, result, detail).await?;
        }
        result.matched += matched;
        Ok(last)
    }

    /// Applies the operation to a slice of jobs. Returns the number of those that were to end and have ended by themselves meanwhile.
    async fn apply(
        self: &Arc<Self>,
        jobs: Vec<JobId>,
        result: &mut shapes::BulkResult,
        detail: Detail,
    ) -> Result<u64, Problem> {
        let Some(verb) = self.verb.of_engine() else {
            self.apply_acknowledgement(jobs, result, detail).await?;
            return Ok(0);
        };
        match verb {
            EngineVerb::Retry => self.state.check_accepting()?,
            EngineVerb::Cancel | EngineVerb::Release => self.state.check_not_stalled()?,
        }
        let (mut effects, mut ended_meanwhile) = (self.effects(jobs, verb), 0);
        while let Some((job, effect)) = effects.next().await {
            let has_ended = |problem: &Problem| problem.code() == ProblemCode::AlreadyFinished;
            if verb == EngineVerb::Cancel
                && detail == Detail::OfLiveJobs
                && effect.as_ref().is_err_and(has_ended)
            {
                ended_meanwhile += 1;
                continue;
            }
            let effect = match effect {
                // Without the effect on each job, the answer could not say that no job was made.
                Ok(Effect::Existing(other)) if detail != Detail::EachJob => {
                    Err(Rejection::Duplicate { job: Some(other) }.into())
                }
                effect => effect,
            };
            self.record(job, effect, result, detail);
        }
        Ok(ended_meanwhile)
    }

    /// Adds the effect on one job to the result.
    fn record(
        &self,
        job: JobId,
        effect: Result<Effect, Problem>,
        result: &mut shapes::BulkResult,
        detail: Detail,
    ) {
        if detail == Detail::EachJob {
            let base_path = &self.state.services.base_path;
            result.results.push(by_number::shown(job, &effect, base_path, self.request_id.as_str()));
        }
        match effect {
            Ok(Effect::Done(_) | Effect::Existing(_)) => result.done += 1,
            Ok(Effect::Stopping(_)) => result.stopping += 1,
            Ok(Effect::Made(made)) => {
                result.done += 1;
                if result.jobs.len() < JOBS_SHOWN {
                    result.jobs.push(made.0);
                    if detail != Detail::EachJob {
                        result.retries.push(shapes::RetryMade { job: job.0, made: made.0 });
                    }
                }
            }
            Err(problem) => {
                result.refused += 1;
                if result.refusals.len() < REFUSALS_SHOWN {
                    let detail = problem.detail().to_owned();
                    let code = problem.code().name().into();
                    result.refusals.push(shapes::Refusal { job: job.0, code, detail });
                }
            }
        }
    }
}

/// Jobs of one slice; other requests are served between two slices.
const SLICE: usize = 200;
/// Jobs that are counted by one read.
const COUNT_SLICE: usize = 500;
/// Requests to the engine at once.
const AT_ONCE: usize = 32;
/// A request ends with a cursor after this time: proxies cut longer ones.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Ids of one request.
const IDS_MAX: usize = 10_000;
/// Refusals that are shown; all are counted.
const REFUSALS_SHOWN: usize = 20;
/// New jobs whose ids are shown.
const JOBS_SHOWN: usize = 1_000;
