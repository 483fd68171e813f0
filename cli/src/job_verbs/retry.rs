//! `longshore retry`: makes new jobs like ended ones, with changes laid over what they had.

use std::pin::pin;

use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value};

use super::{VerbResult, by_id, named};
use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::bulk::{Operation, Selection, apply_to_all};
use crate::failure::{Exit, Failure};
use crate::overrides::{self, Overrides};
use crate::screen::{self, Format};
use crate::{jobs, view};

/// Run jobs that have ended again, as new jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore retry 12
  longshore retry 12 13 14
  longshore retry 12 -e SIZE=640 -- --verbose           with changes laid over what the job had
  longshore retry 12 --input fixed.json --delay 10m     with another input, in ten minutes
  longshore retry 12 --clear input --clear params.size  without its input and this parameter
  longshore retry 12 --on web-4                         on another worker than the one that it asked for
  longshore retry 12 --members failed                   of a job on several workers: those that did not succeed
  longshore retry --name resize --ended-since 1h        counts them, asks, and retries them
  longshore logs -f \"$(longshore retry 12 -o json | jq .id)\"

The definition is used as it is now; --revision original uses the one that the job was made with.
Flags that change the new jobs are for jobs that are given by id. Parameters, variables and labels replace those of the same name.")]
pub(crate) struct RetryFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Ids of the jobs.
    #[arg(value_name = "ID", value_parser = jobs::parse_job_id)]
    ids: Vec<u64>,
    /// All failed, expired and lost jobs of the batch whose first job this is.
    #[arg(long, value_name = "ID", conflicts_with = "ids", value_parser = jobs::parse_job_id)]
    batch: Option<u64>,
    #[command(flatten)]
    selection: Selection,
    /// Use the current definition, or the revision that the job was made with.
    #[arg(long, value_name = "WHICH", default_value = "current", value_parser = ["current", "original"])]
    revision: String,
    /// Of jobs on several workers: repeat all members, or those that did not succeed. For jobs that are given by id.
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = ["all", "failed"])]
    members: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Label to set or replace; --label selects jobs. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = overrides::pair)]
    set_label: Vec<(String, String)>,
    /// Leave out this field of the job: args, environment, input, labels, params, priority, requires, timeout, workers, or a parameter
    /// as params.NAME. May be repeated.
    #[arg(long, value_name = "FIELD")]
    clear: Vec<String>,
    /// Arguments that replace those of the job.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
    /// Make no second job if one was made with this key [default: a new one, for sending the request again]. For one job, or all jobs that
    /// filters select.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// The changes that a retry by id lays over what the jobs had.
struct Changes {
    body: Map<String, Value>,
    query: Vec<(&'static str, String)>,
}

/// Makes new jobs like ended ones; goes on after one that cannot be tried again.
pub(crate) async fn retry(flags: RetryFlags) -> anyhow::Result<()> {
    flags.check_one_id()?;
    let selected = flags.selected()?;
    let changes = flags.changes()?;
    let api = Api::new(&flags.common.server_args)?;
    let revision = flags.revision.as_str();
    if let Some(mut query) = selected {
        if !changes.is_empty() {
            let text = "flags that change the new jobs (such as -p, -e, --clear, --members and -- ARGS) are for jobs that are given by id";
            return Err(Failure::new(Exit::Usage, text).into());
        }
        query.push(("revision", revision.to_owned()));
        let operation = Operation { verb: "retry", key: flags.key.as_deref() };
        return apply_to_all(&api, &flags.common, operation, &query, flags.selection.yes).await;
    }
    let mut result = VerbResult::new(&flags.common);
    if flags.ids.len() > 1 && changes.is_empty() {
        let query = [("revision", revision)];
        by_id::apply(&api, &mut result, "retry", &flags.ids, &query, |_| String::new()).await?;
        return result.finish();
    }
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    for id in &flags.ids {
        let key = api::idempotency_key(flags.key.as_deref())?;
        let made = tokio::select! {
            made = api.create_job(changes.request(&api, *id, revision), &key) => made,
            _ = &mut interrupt => return result.interrupted(&[*id]),
        };
        // A single one needs no name.
        let made = if flags.ids.len() == 1 { made } else { named(*id, made) };
        if let Some(made) = result.record(made) {
            let job: view::Job = api::parse(&api, &made.json)?;
            if flags.key.is_some() {
                made.note_replay(&job);
            }
            result.print(made.json, &retried(*id, &job))?;
        }
    }
    finish(result, flags.ids.len() == 1)
}

impl RetryFlags {
    /// Refuses keys that stand for one job together with several jobs.
    fn check_one_id(&self) -> Result<(), Failure> {
        let flag = match (&self.key, &self.overrides.unique_key) {
            (Some(_), _) => "--key",
            (None, Some(_)) => "--unique-key",
            (None, None) => return Ok(()),
        };
        if self.ids.len() < 2 {
            return Ok(());
        }
        let text = format!("{flag} can be used with one id only");
        Err(Failure::new(Exit::Usage, text).hint("retry each job with its own command"))
    }

    /// The query that selects the jobs; `None` if ids are given.
    fn selected(&self) -> Result<Option<Vec<(&'static str, String)>>, Failure> {
        self.selection.query(&self.ids, self.batch).map_err(|failure| {
            let is_for_ids = !self.ids.is_empty() && self.selection.has_label();
            if is_for_ids { failure.hint("to label the new job, use --set-label") } else { failure }
        })
    }

    fn changes(&self) -> Result<Changes, Failure> {
        let mut body = self.overrides.fields()?;
        let labels = overrides::object(&self.set_label, "the label")?;
        body.extend(labels.map(|labels| ("labels".to_owned(), labels)));
        if !self.args.is_empty() {
            body.insert("args".to_owned(), self.args.clone().into());
        }
        let members = (self.members != "all").then(|| ("members", self.members.clone()));
        let cleared = (!self.clear.is_empty()).then(|| ("clear", self.clear.join(",")));
        Ok(Changes { body, query: members.into_iter().chain(cleared).collect() })
    }
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.body.is_empty() && self.query.is_empty()
    }

    fn request(&self, api: &Api, id: u64, revision: &str) -> RequestBuilder {
        let mut request = api.request(Method::POST, &["api", "jobs", &id.to_string(), "retry"]);
        if revision != "current" {
            request = request.query(&[("revision", revision)]);
        }
        if !self.query.is_empty() {
            request = request.query(&self.query);
        }
        if self.body.is_empty() { request } else { request.json(&self.body) }
    }
}

/// Prints the results that are not printed yet.
fn finish(mut result: VerbResult, is_one: bool) -> anyhow::Result<()> {
    match &mut result {
        // It is no list: programs take its id.
        VerbResult { format: Format::Json, answers, first_refusal: None } if is_one => {
            screen::json(&answers.pop().unwrap_or_default())
        }
        // Of one that was refused there is nothing to show.
        VerbResult { first_refusal: Some(exit), .. } if is_one => Err(Failure::silent(*exit).into()),
        _ => result.finish(),
    }
}

/// Says which job tries another one again, or that the retry made none.
pub(super) fn retried(job: u64, made: &view::Job) -> String {
    let id = made.id;
    match made.duplicate {
        true => format!("job {id} has the unique key; no second job was created for job {job}"),
        false => format!("job {id} tries job {job} again; follow it with: longshore logs -f {id}"),
    }
}
