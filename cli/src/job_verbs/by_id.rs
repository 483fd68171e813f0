//! Several jobs by id: the bulk operations of the server, which answer with the effect on each job.

use std::pin::pin;

use anyhow::Context as _;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use server::http::present::shapes::BulkEffect;

use super::{VerbResult, named, retried};
use crate::api::{self, Api};
use crate::failure::{Exit, Failure};
use crate::screen::Format;
use crate::view;
use crate::view::JobView as _;

/// The part of the server's answer that is shown.
#[derive(Debug, serde::Deserialize)]
struct Answer {
    results: Vec<BulkEffect>,
}

/// Applies a verb to jobs, as many a request as are printed together. `effect` says in words what became of a job; its argument tells
/// whether the job has ended.
pub(super) async fn apply(
    api: &Api,
    result: &mut VerbResult,
    verb: &str,
    ids: &[u64],
    query: &[(&str, &str)],
    effect: impl Fn(bool) -> &'static str,
) -> anyhow::Result<()> {
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    for ids in ids.chunks(IDS_PER_REQUEST) {
        let request = api.request(Method::POST, &["api", "jobs", verb]).query(query);
        let request = request.json(&json!({ "ids": ids }));
        let answer = tokio::select! {
            answer = send(api, request) => answer,
            _ = &mut interrupt => {
                result.note_interrupt(ids);
                return Ok(());
            }
        };
        // The next request would fail, too.
        let Some(answer) = result.record(answer) else { return Ok(()) };
        for it in api::parse::<Answer>(api, &answer)?.results {
            show(api, result, it, &effect).await?;
        }
    }
    Ok(())
}

/// Sends the request with a key, so that it can be sent again and no job is retried twice.
async fn send(api: &Api, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let key = api::idempotency_key(None)?;
    let sent = api.send_with_key(request, &key).await.unwrap_or_else(|lost| {
        let hint =
            "the operation may have been done: look at the jobs with 'longshore ls' before you repeat it";
        Err(Failure::new(Exit::Unavailable, lost).hint(hint).into())
    });
    sent.map(|answer| answer.json)
}

async fn show(
    api: &Api,
    result: &mut VerbResult,
    shown: BulkEffect,
    effect: impl Fn(bool) -> &'static str,
) -> anyhow::Result<()> {
    let BulkEffect { job, state, made, problem } = shown;
    if let Some(problem) = problem {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = serde_json::to_value(&problem).context("a problem document")?;
        result.record::<()>(named(job, Err(api::failure_of(status, problem).into())));
        return Ok(());
    }
    let text = match made {
        Some(made) => retried(job, made),
        None => {
            let after = view::Job { state: state.unwrap_or_default(), ..view::Job::default() };
            format!("job {job} {}", effect(after.has_ended()))
        }
    };
    let id = made.unwrap_or(job);
    // The answer has no whole jobs; they are read for formats that show them.
    let json = match result.format {
        Format::Table | Format::Wide | Format::Name => json!({ "id": id }),
        Format::Json | Format::Ndjson | Format::Csv => {
            let read = api.json(api.get(&["api", "jobs", &id.to_string()])).await;
            let Some(json) = result.record(named(id, read)) else { return Ok(()) };
            json
        }
    };
    result.print(json, &text)
}

/// The server applies as many at once, and serves other requests in between.
const IDS_PER_REQUEST: usize = 200;
