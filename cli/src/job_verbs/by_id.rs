//! Several jobs by id: the bulk operations of the server, which answer with the effect on each job.

use std::collections::BTreeMap;
use std::pin::pin;

use anyhow::Context as _;
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};
use server::http::present::shapes::BulkEffect;

use super::retry::retried;
use super::{VerbResult, named};
use crate::api::{self, Api};
use crate::bulk::BulkResult;
use crate::failure::{Exit, exit_of};
use crate::outage::Outage;
use crate::screen::{self, Format};
use crate::view;

/// The server's answer. An older server sends the counts only.
#[derive(Debug, serde::Deserialize)]
struct Answer {
    #[serde(default)]
    results: Vec<BulkEffect>,
    #[serde(flatten)]
    counts: BulkResult,
}

/// Applies a verb to jobs, as many a request as are printed together. `effect` describes in words how the operation changed a job.
pub(super) async fn apply(
    api: &Api,
    result: &mut VerbResult,
    verb: &str,
    ids: &[u64],
    query: &[(&str, &str)],
    effect: impl Fn(&view::Job) -> String,
) -> anyhow::Result<()> {
    apply_with_body(api, result, (verb, ids, query), &Map::new(), effect).await
}

/// As [`apply`], with these fields in the body of each request.
pub(super) async fn apply_with_body(
    api: &Api,
    result: &mut VerbResult,
    (verb, ids, query): (&str, &[u64], &[(&str, &str)]),
    fields: &Map<String, Value>,
    effect: impl Fn(&view::Job) -> String,
) -> anyhow::Result<()> {
    let mut counts = BulkResult::default();
    let applied = apply_in_parts(api, result, (verb, ids, query), fields, effect, &mut counts).await;
    show_counts(result, counts, verb)?;
    applied
}

async fn apply_in_parts(
    api: &Api,
    result: &mut VerbResult,
    (verb, ids, query): (&str, &[u64], &[(&str, &str)]),
    fields: &Map<String, Value>,
    effect: impl Fn(&view::Job) -> String,
    counts: &mut BulkResult,
) -> anyhow::Result<()> {
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    for ids in ids.chunks(IDS_PER_REQUEST) {
        let request = api.request(Method::POST, &["api", "jobs", verb]).query(query);
        let mut body = fields.clone();
        body.insert("ids".into(), json!(ids));
        let request = request.json(&body);
        let answer = tokio::select! {
            // Its signal handler is there before the first note.
            biased;
            _ = &mut interrupt => {
                result.note_interrupt(ids);
                return Ok(());
            }
            answer = send(api, request, result.outage.as_mut()) => answer,
        };
        // The next request would fail, too.
        let Some(answer) = result.record(answer) else { return Ok(()) };
        let answer: Answer = api::parse(api, &answer)?;
        if answer.results.is_empty() && answer.counts.matched == 0 {
            return Err(api.unexpected_response().into());
        }
        if answer.results.is_empty() {
            counts.add(answer.counts);
            continue;
        }
        let mut jobs = BTreeMap::new();
        let is_interrupted = tokio::select! {
            () = read_jobs(api, result, &answer.results, &mut jobs) => false,
            _ = &mut interrupt => true,
        };
        for it in answer.results {
            show(result, it, &mut jobs, &effect)?;
        }
        if is_interrupted {
            screen::note("longshore: interrupted: not all jobs were read; later jobs were not requested");
            result.first_refusal = Some(Exit::Interrupted);
            return Ok(());
        }
    }
    Ok(())
}

/// Sends the request with a key, so that it can be sent again and no job is retried twice. A verb that waits for the jobs also waits for a
/// server that is away.
async fn send(
    api: &Api,
    request: reqwest::RequestBuilder,
    outage: Option<&mut Outage>,
) -> anyhow::Result<Value> {
    let key = api::idempotency_key(None)?;
    let sent = api.send_with_key(request, &key, outage).await.unwrap_or_else(|lost| {
        let hint =
            "the operation may have been done: look at the jobs with 'longshore ls' before you repeat it";
        Err(lost.hint(hint).into())
    });
    sent.map(|answer| answer.json)
}

/// Reads the jobs that the operation changed or made, for formats that show whole jobs: the answer has none. A job that cannot be read is
/// left out, because the operation itself has succeeded.
async fn read_jobs(api: &Api, result: &VerbResult, results: &[BulkEffect], jobs: &mut BTreeMap<u64, Value>) {
    // A wait prints the jobs as they end.
    if result.waits || !matches!(result.format, Format::Json | Format::Ndjson | Format::Csv) {
        return;
    }
    for it in results.iter().filter(|it| it.problem.is_none()) {
        let id = it.made.unwrap_or(it.job);
        match api.json(api.get(&["api", "jobs", &id.to_string()])).await {
            Ok(json) => {
                jobs.insert(id, json);
            }
            Err(error) => {
                screen::note(&format!(
                    "longshore: the operation is done, but job {id} cannot be read: {error:#}"
                ));
                if exit_of(&error) == Exit::Unavailable {
                    return;
                }
            }
        }
    }
}

fn show(
    result: &mut VerbResult,
    shown: BulkEffect,
    jobs: &mut BTreeMap<u64, Value>,
    effect: impl Fn(&view::Job) -> String,
) -> anyhow::Result<()> {
    let BulkEffect { job, state, made, duplicate, problem } = shown;
    if let Some(problem) = problem {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = serde_json::to_value(&problem).context("a problem document")?;
        result.record::<()>(named(job, Err(api::failure_of(status, problem).into())));
        return Ok(());
    }
    let (id, text, known) = match made {
        Some(made) => {
            let new = view::Job { id: made, duplicate, ..view::Job::default() };
            let text = retried(job, &new);
            result.note_made(&new, &text);
            let known =
                if duplicate { json!({ "id": made }) } else { json!({ "id": made, "retry_of": job }) };
            (made, text, known)
        }
        None => {
            let after =
                view::Job { id: job, state: state.clone().unwrap_or_default(), ..view::Job::default() };
            (job, format!("job {job} {}", effect(&after)), json!({ "id": job, "state": state }))
        }
    };
    let mut json = jobs.remove(&id).unwrap_or(known);
    if duplicate {
        json["duplicate"] = true.into();
    }
    result.print(json, &text)
}

/// Shows the counts of an older server, which does not send the effect on each job.
fn show_counts(result: &mut VerbResult, counts: BulkResult, verb: &str) -> anyhow::Result<()> {
    if counts.matched == 0 {
        return Ok(());
    }
    if counts.refused > 0 {
        result.first_refusal = result.first_refusal.or(Some(Exit::Conflict));
    }
    if verb == "retry" {
        result.made.extend(counts.jobs.iter().copied());
        result.made_unknown = counts.unlisted();
        // A script that takes the ids must learn that some are missing.
        if result.made_unknown > 0 && (result.waits || result.format == Format::Name) {
            result.first_refusal = result.first_refusal.or(Some(Exit::Failed));
        }
    }
    match result.format {
        // The wait prints the jobs; the ids stand for them if there is none after Ctrl-C.
        Format::Name | Format::Json | Format::Ndjson | Format::Csv if result.waits => {
            counts.note_refusals();
            result.answers.extend(counts.jobs.iter().map(|id| json!({ "id": id })));
        }
        Format::Table | Format::Wide | Format::Name => {
            counts.print(verb, result.format)?;
            if result.format != Format::Name && !counts.jobs.is_empty() {
                let jobs = counts.jobs.iter().map(u64::to_string).collect::<Vec<_>>();
                screen::line(&format!("new jobs: {}", jobs.join(" ")))?;
            }
        }
        Format::Json | Format::Ndjson | Format::Csv => result.answers.push(serde_json::to_value(counts)?),
    }
    Ok(())
}

/// The server applies as many at once, and serves other requests in between.
const IDS_PER_REQUEST: usize = 200;
