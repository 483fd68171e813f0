//! `longshore retry`: makes new jobs like ended ones, with changes laid over what they had.

use std::pin::pin;

use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value};

use super::{VerbResult, by_id, named};
use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::bulk::{Operation, Selection, apply_to_all};
use crate::failure::{Exit, Failure};
use crate::job_refs::{self, JobRef};
use crate::new_job::{NewJobArgs, note_warning};
use crate::outage::{Awaited, Outage, until_answered};
use crate::overrides::{self, Overrides};
use crate::screen;
use crate::{view, wait};

/// Run jobs that have ended again, as new jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore retry 12
  longshore retry 12 13 14
  longshore retry '1064[3,7]'                           members of batch 1064, by their index
  longshore retry 12 -e SIZE=640 -- --verbose           with changes laid over what the job had
  longshore retry 12 --input fixed.json --delay 10m     with another input, in ten minutes
  longshore retry 12 --clear input --clear params.size  without its input and this parameter
  longshore retry 12 --on web-4                         on another worker than it asked for
  longshore retry 12 --members failed                   those of several that did not succeed
  longshore retry 12 --follow                           print its output; exit with its exit code
  longshore retry 12 13 14 --wait=10m                   wait for all ends, at most ten minutes
  longshore retry --name resize --ended-since 1h        counts them, asks, and retries them
  longshore retry --name resize --schedule nightly --unresolved
                                                        the failed slots of a schedule, oldest first

With --follow and --wait the exit code is that of 'longshore run': the container's, and 0 after any
success; 1 if the new job ended without one, or if the time of --wait is up. With several ids --wait
prints a line at each end. The exit code is then that of the first new job that did not succeed,
else that of the first refusal. Ctrl-C does not stop the jobs.

The definition is used as it is now; --revision original uses the one that the job was made with.
With filters, jobs of slots are retried in the order of the slots; of more than 10,000 jobs the
newest come first. A job that was retried before is left to its last retry while that is kept;
with --unresolved also after its deletion. Flags that change the new jobs are for jobs that are
given by id. Parameters, variables and labels replace those of the same name.")]
pub(crate) struct RetryFlags {
    #[command(flatten)]
    common: CommonArgs,
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
    #[command(flatten)]
    next: NewJobArgs,
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
    flags.check_one_id(flags.selection.ids.len())?;
    flags.next.check(flags.common.format)?;
    let selected = flags.selected()?;
    let api = Api::new(&flags.common.server_args)?;
    if let Some(query) = selected {
        return retry_selected(&api, flags, query).await;
    }
    let ask = async || job_refs::ids(&api, &flags.selection.ids).await;
    let mut outage = flags.next.outage();
    // Ids alone need no request, and are no answer of the server.
    let asked = outage.as_mut().filter(|_| flags.selection.ids.iter().any(JobRef::needs_request));
    let ids = until_answered(asked, Awaited::Nothing, ask).await?;
    flags.check_one_id(ids.len())?;
    if flags.next.follow && ids.len() > 1 {
        let hint = "use --wait, or follow each new job with 'longshore logs -f'";
        return Err(Failure::new(Exit::Usage, "--follow is for one job").hint(hint).into());
    }
    // It reads standard input, and tells the instant of --at: the flags are known to fit together.
    let changes = flags.changes()?;
    match ids[..] {
        [id] => retry_one(&api, &flags, id, &changes, outage).await,
        _ => retry_several(&api, &flags, &ids, &changes, outage).await,
    }
}

/// Retries all jobs that filters select.
async fn retry_selected(
    api: &Api,
    mut flags: RetryFlags,
    mut query: Vec<(&'static str, String)>,
) -> anyhow::Result<()> {
    if flags.change_jobs() {
        let text = "flags that change the new jobs (such as -p, -e, --clear, --members and -- ARGS) are for jobs that are given by id";
        return Err(Failure::new(Exit::Usage, text).into());
    }
    if flags.next.follow || flags.next.wait.is_some() {
        let text = "--wait and --follow are for jobs that are given by id";
        let hint = match flags.selection.batch {
            Some(batch) => format!("use 'longshore batch {batch} retry --wait'"),
            None => "add --quiet, and give the ids that it prints to 'longshore wait'".to_owned(),
        };
        return Err(Failure::new(Exit::Usage, text).hint(hint).into());
    }
    flags.common.format = flags.next.list_format(flags.common.format);
    query.push(("revision", flags.revision));
    let operation = Operation { verb: "retry", key: flags.key.as_deref(), body: None };
    apply_to_all(api, &flags.common, operation, &query, flags.selection.yes).await
}

/// Retries a job, and waits for the new one if asked to.
async fn retry_one(
    api: &Api,
    flags: &RetryFlags,
    id: u64,
    changes: &Changes,
    mut outage: Option<Outage>,
) -> anyhow::Result<()> {
    let key = api::idempotency_key(flags.key.as_deref())?;
    let made = tokio::select! {
        // Its signal handler is there before the first note.
        biased;
        _ = tokio::signal::ctrl_c() => return VerbResult::new(flags.common.format).interrupted(&[id]),
        made = api.create_job(changes.request(api, id, &flags.revision), &key, outage.as_mut()) => made?,
    };
    let job: view::Job = api::parse(api, &made.json)?;
    if flags.key.is_some() {
        made.note_replay(&job);
    }
    note_warning(&job);
    let text = retried(id, &job);
    if job.duplicate && !flags.next.prints_text(flags.common.format) {
        screen::note(&format!("longshore: {text}"));
    }
    flags.next.print(api, flags.common.format, &made.json, &text, outage.as_ref()).await
}

/// Retries jobs, and waits for the new ones if asked to.
async fn retry_several(
    api: &Api,
    flags: &RetryFlags,
    ids: &[u64],
    changes: &Changes,
    outage: Option<Outage>,
) -> anyhow::Result<()> {
    let mut result = VerbResult::new(flags.next.list_format(flags.common.format));
    result.outage = outage;
    result.waits = flags.next.wait.is_some();
    make_several(api, flags, (ids, changes), &mut result).await?;
    if result.waits && result.made_unknown > 0 {
        screen::note(&format!(
            "longshore: {} made, and not waited for: the server has not told the ids; 'longshore ls' shows the jobs",
            screen::counted(result.made_unknown, "new job")
        ));
    }
    let made = std::mem::take(&mut result.made);
    let (Some(limit), false) = (flags.next.wait, made.is_empty()) else { return result.finish() };
    if result.first_refusal == Some(Exit::Interrupted) {
        return result.finish();
    }
    if flags.next.quiet && flags.common.format.is_text() {
        made.iter().try_for_each(|id| screen::line(&id.to_string()))?;
    }
    let ends = wait::Ends {
        format: flags.common.format,
        quiet: flags.next.quiet,
        names_unended: true,
        limit,
        // As of a wait for one job.
        exit_when_up: Exit::TimedOut,
        outage: result.outage.take().unwrap_or_default(),
    };
    ends.wait(api, made.into_iter().map(wait::Subject::Job)).await?;
    result.first_refusal.map_or(Ok(()), |exit| Err(Failure::silent(exit).into()))
}

/// Makes the new jobs, and prints each.
async fn make_several(
    api: &Api,
    flags: &RetryFlags,
    (ids, changes): (&[u64], &Changes),
    result: &mut VerbResult,
) -> anyhow::Result<()> {
    let revision = flags.revision.as_str();
    if changes.is_empty() {
        let query = [("revision", revision)];
        return by_id::apply(api, result, "retry", ids, &query, |_| String::new()).await;
    }
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    for id in ids {
        let key = api::idempotency_key(None)?;
        let request = changes.request(api, *id, revision);
        let made = tokio::select! {
            // Its signal handler is there before the first note.
            biased;
            _ = &mut interrupt => {
                result.note_interrupt(&[*id]);
                return Ok(());
            }
            made = api.create_job(request, &key, result.outage.as_mut()) => made,
        };
        if made.as_ref().is_err_and(|error| result.ends_with(error)) {
            result.record(named(*id, made));
            if ids.last() != Some(id) {
                screen::note("longshore: later jobs were not requested");
            }
            return Ok(());
        }
        if let Some(made) = result.record(named(*id, made)) {
            let job: view::Job = api::parse(api, &made.json)?;
            note_warning(&job);
            let text = retried(*id, &job);
            result.note_made(&job, &text);
            result.print(made.json, &text)?;
        }
    }
    Ok(())
}

impl RetryFlags {
    /// Refuses keys that stand for one job together with several jobs.
    fn check_one_id(&self, count: usize) -> Result<(), Failure> {
        let flag = match (&self.key, &self.overrides.unique_key) {
            (Some(_), _) => "--key",
            (None, Some(_)) => "--unique-key",
            (None, None) => return Ok(()),
        };
        if count < 2 {
            return Ok(());
        }
        let text = format!("{flag} can be used with one id only");
        Err(Failure::new(Exit::Usage, text).hint("retry each job with its own command"))
    }

    /// The query that selects the jobs; `None` if ids are given.
    fn selected(&self) -> Result<Option<Vec<(&'static str, String)>>, Failure> {
        self.selection.query().map_err(|failure| {
            let is_for_ids = !self.selection.ids.is_empty() && self.selection.has_label();
            if is_for_ids { failure.hint("to label the new job, use --set-label") } else { failure }
        })
    }

    /// True if flags change the new jobs.
    fn change_jobs(&self) -> bool {
        self.overrides.are_given()
            || !self.set_label.is_empty()
            || !self.clear.is_empty()
            || !self.args.is_empty()
            || self.members != "all"
    }

    fn changes(&self) -> Result<Changes, Failure> {
        let labels = overrides::object(&self.set_label, "the label")?;
        let mut body = self.overrides.fields(self.next.quiet)?;
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

/// Says which job tries another one again, or that the retry made none.
pub(super) fn retried(job: u64, made: &view::Job) -> String {
    let id = made.id;
    match made.duplicate {
        true => format!("job {id} has the unique key; no second job was created for job {job}"),
        false => format!("job {id} tries job {job} again; follow it with: longshore logs -f {id}"),
    }
}
