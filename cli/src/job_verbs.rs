//! `longshore cancel`, `release`, `ack`, `retry`: operations on jobs that are given by id. The last two have files of their own.
//!
//! One job takes a request of its own. Several share requests (`by_id`), except for a retry with changes. The results are printed after each
//! request, so that Ctrl-C loses few of them. The first refusal decides the exit code. Operations on all jobs that filters select are in
//! `bulk`.

mod ack;
mod by_id;
mod retry;

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::bulk::{Operation, Selection, apply_to_all, cancel_batch};
use crate::failure::{self, Exit, Failure};
use crate::job_refs;
use crate::outage::Outage;
use crate::records;
use crate::screen::{self, Format};
use crate::view::JobView as _;
use crate::{error_output, view};
pub(crate) use ack::{AckFlags, ack};
pub(crate) use retry::{RetryFlags, retry};

/// End jobs: at once if they wait, else by stopping their containers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore cancel 12
  longshore cancel 12 13 14
  longshore cancel '1064[3-9,12]'    members of batch 1064, by their index
  longshore cancel --batch 100       all jobs of the batch that have not ended
  longshore cancel --name 'resize-*' --state queued    counts them, asks, and cancels them")]
pub(crate) struct CancelFlags {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    selection: Selection,
}

/// Let jobs continue that wait for a person: quarantined ones, or those of an unreachable worker.
///
/// A quarantined job is queued again. An attempt whose worker is unreachable, or cannot reach its Docker, is given up: it is not
/// believed any more, and the job gets another one. The old container may still run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore ls --state quarantined
  longshore release 12
  longshore release --name resize --yes    all quarantined jobs of the definition")]
pub(crate) struct ReleaseFlags {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    selection: Selection,
}

/// Cancels jobs; goes on after one that cannot be cancelled.
pub(crate) async fn cancel(flags: CancelFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let query = flags.selection.query()?;
    // A batch alone is a set that the caller has named: there is nothing to confirm.
    let batch = flags.selection.batch.filter(|_| query.as_ref().is_some_and(|query| query.len() == 1));
    if let (Some(query), None) = (&query, batch) {
        let operation = Operation { verb: "cancel", key: None, body: None };
        return apply_to_all(&api, &flags.common, operation, query, flags.selection.yes).await;
    }
    if let Some(batch) = batch {
        return cancel_batch(&api, &flags.common, batch).await;
    }
    let effect = |job: &view::Job| match job.has_ended() {
        true => "is cancelled".to_owned(),
        false => "is being stopped".to_owned(),
    };
    let ids = job_refs::ids(&api, &flags.selection.ids).await?;
    apply_to_ids(&api, &flags.common, &ids, "cancel", effect).await
}

/// Releases jobs; goes on after one that cannot be released.
pub(crate) async fn release(flags: ReleaseFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    if let Some(query) = flags.selection.query()? {
        let operation = Operation { verb: "release", key: None, body: None };
        return apply_to_all(&api, &flags.common, operation, &query, flags.selection.yes).await;
    }
    let ids = job_refs::ids(&api, &flags.selection.ids).await?;
    apply_to_ids(&api, &flags.common, &ids, "release", released).await
}

/// Describes the effect of a release, which ends a job that was being cancelled, and frees the unique key of an ended one.
fn released(job: &view::Job) -> String {
    match &*job.state {
        "cancelled" => "is cancelled".to_owned(),
        state if job.has_ended() => format!("has ended as {state}; its unique key is free"),
        _ => "goes on".to_owned(),
    }
}

/// Applies a verb without changes to one job, or to several.
async fn apply_to_ids(
    api: &Api,
    common: &CommonArgs,
    ids: &[u64],
    verb: &str,
    effect: impl Fn(&view::Job) -> String,
) -> anyhow::Result<()> {
    let mut result = VerbResult::new(common.format);
    let [id] = ids else {
        by_id::apply(api, &mut result, verb, ids, &[], effect).await?;
        return result.finish();
    };
    let request = api.request(Method::POST, &["api", "jobs", &id.to_string(), verb]);
    let answer = tokio::select! {
        answer = api.json(request) => answer,
        _ = tokio::signal::ctrl_c() => return result.interrupted(&[*id]),
    };
    if let Some(json) = result.record(named(*id, answer)) {
        let job: view::Job = api::parse(api, &json)?;
        result.print(json, &format!("job {} {}", job.id, effect(&job)))?;
    }
    result.finish()
}

/// Results of the jobs so far.
struct VerbResult {
    format: Format,
    answers: Vec<Value>,
    /// The jobs that retries made, or found under their unique key; each once.
    made: Vec<u64>,
    /// The number of made jobs whose ids an older server has not told.
    made_unknown: u64,
    /// True if the verb waits for the made jobs, and prints them at their ends.
    waits: bool,
    /// The outage of a verb that waits, for all of its requests.
    outage: Option<Outage>,
    /// Exit code of the first refusal.
    first_refusal: Option<Exit>,
}

impl VerbResult {
    const fn new(format: Format) -> Self {
        Self {
            format,
            answers: Vec::new(),
            made: Vec::new(),
            made_unknown: 0,
            waits: false,
            outage: None,
            first_refusal: None,
        }
    }

    /// Returns the answer; a refusal is printed at once.
    fn record<T>(&mut self, answer: anyhow::Result<T>) -> Option<T> {
        answer
            .inspect_err(|error| {
                error_output::report(error, self.format);
                self.first_refusal = self.first_refusal.or(Some(failure::exit_of(error)));
            })
            .ok()
    }

    /// Prints one result as text; with `-o json` all results are printed at the end.
    fn print(&mut self, json: Value, words: &str) -> anyhow::Result<()> {
        if self.format.is_text() {
            screen::line(words)?;
        }
        self.answers.push(json);
        Ok(())
    }

    /// Notes a job that a retry made. A duplicate is told on standard error if standard output is not for people.
    fn note_made(&mut self, made: &view::Job, words: &str) {
        if made.duplicate && !self.format.is_text() {
            screen::note(&format!("longshore: {words}"));
        }
        if !self.made.contains(&made.id) {
            self.made.push(made.id);
        }
    }

    fn finish(mut self) -> anyhow::Result<()> {
        if self.format == Format::Name {
            // Several retries may have found the same job under their unique key.
            let mut named = BTreeSet::new();
            self.answers.retain(|answer| answer["id"].as_u64().is_none_or(|id| named.insert(id)));
        }
        records::print(self.format, &Value::Array(self.answers), "id")?;
        self.first_refusal.map_or(Ok(()), |exit| Err(Failure::silent(exit).into()))
    }

    /// Ends after Ctrl-C during the request for these jobs.
    fn interrupted(mut self, ids: &[u64]) -> anyhow::Result<()> {
        self.note_interrupt(ids);
        self.finish()
    }

    /// Returns true if the next request would fail as well: the server is away, or the time is up.
    fn ends_with(&self, error: &anyhow::Error) -> bool {
        match failure::exit_of(error) {
            Exit::TimedOut => true,
            // A limit of one definition is none of the next one.
            Exit::Unavailable => error
                .downcast_ref::<Failure>()
                .is_none_or(|failure| failure.document().is_none() || (self.waits && !failure.is_persistent)),
            _ => false,
        }
    }

    fn note_interrupt(&mut self, ids: &[u64]) {
        let jobs = match ids {
            [id] => format!("job {id}"),
            [first, .., last] => format!("{} jobs ({first} … {last})", ids.len()),
            [] => String::new(),
        };
        screen::note(&format!(
            "longshore: interrupted: the outcome for {jobs} is unknown; later jobs were not requested"
        ));
        self.first_refusal = Some(Exit::Interrupted);
    }
}

/// Says of which job an error tells, unless it says so itself.
fn named<T>(id: u64, answer: anyhow::Result<T>) -> anyhow::Result<T> {
    answer.map_err(|error| {
        let name = format!("job {id}");
        if error.to_string().starts_with(&format!("{name} ")) { error } else { error.context(name) }
    })
}
