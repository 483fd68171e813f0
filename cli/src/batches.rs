//! `longshore batches` and `longshore batch`: lists batches, shows one, waits for its end or cancels it. `retry` makes a batch of what has not
//! succeeded, `results` prints what the members left, and `follow` prints their output.

mod list;
mod made;
mod results;
mod resume;
mod resumed_rest;
mod retry;
mod set;
mod unique_args;

pub(crate) use list::{ListFlags, list};
pub(crate) use made::{Output, submit};
pub(crate) use resume::resume;
pub(crate) use unique_args::UniqueArgs;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use server::http::present::shapes::Pause;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::logs::{self, LogRequest, Together};
use crate::outage::{Awaited, Outage, until_answered};
use crate::progress::{self, BatchView as _, Display};
use crate::records;
use crate::screen::{self, Format};
use crate::show::dependencies_in_words;
use crate::view::{self, BatchSummary, FullBatch, JobView as _};
use crate::{bulk, duration};

pub(crate) fn parse_id(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a batch's id is a whole number from 1; 'longshore batches' lists them, with --name those of a name".to_owned())
}

/// Show a batch or its results, wait for its end, cancel it, change its limits, or retry it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore batch 120             how many members are in each state, and the first failures
  longshore batch 120 --wait      show the progress until the last member has ended
  longshore batch 120 -f          print the output of all members until then
  longshore batch 120 results     the parameters and the result of each member
  longshore batch 120 results -o csv > results.csv
  longshore batch 120 results --state failed --outcome timed_out
  longshore batch 120 results --latest    one whole table after retries: of each member the newest attempt
  longshore batch 120 cancel      cancel all members that have not ended
  longshore batch 120 retry       make a batch of the members that have not succeeded
  longshore batch 120 retry --dry-run
  longshore batch 120 retry -y --concurrency 5 --wait
  longshore batch 120 set --concurrency 20 --max-failures 5
  longshore batch 120 set --no-concurrency

With --wait and --follow the exit code is 0 if all members succeeded, 124 when the time of --wait is up, and 1 otherwise; after retry
they are for the new batch.
Ctrl-C does not stop the batch.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// The batch's number, which is that of its first job.
    #[arg(value_name = "ID", value_parser = parse_id)]
    id: u64,
    /// An operation on its members.
    #[arg(value_name = "OPERATION")]
    operation: Option<BatchOperation>,
    /// Wait until the batch has ended, at most this long.
    #[arg(short = 'w', long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = duration::parse)]
    wait: Option<Option<Duration>>,
    /// Print the output of all members until the batch has ended, each line with its job.
    #[arg(short = 'f', long, conflicts_with = "wait")]
    follow: bool,
    /// Do not ask before the operation.
    #[arg(short = 'y', long, requires = "operation")]
    yes: bool,
    /// For results: only members in this state (succeeded, failed, running, …); may be repeated.
    #[arg(long, value_name = "STATE", requires = "operation")]
    state: Vec<String>,
    /// For results: only members whose latest attempt had this outcome (timed_out, oom_killed, …); may be repeated.
    #[arg(long, value_name = "OUTCOME", requires = "operation")]
    outcome: Vec<String>,
    /// For results: of each member that was retried, by itself or with the batch, the last retry, in the place of the member.
    #[arg(long, requires = "operation")]
    latest: bool,
    /// For retry: only tell how many members would be in the new batch.
    #[arg(long, requires = "operation", conflicts_with_all = ["follow", "wait", "quiet", "key"])]
    dry_run: bool,
    /// For retry: repeat the command that had this key, which makes no second batch.
    #[arg(long, value_name = "KEY", requires = "operation")]
    key: Option<String>,
    /// For set: members that may run at once. For retry: of the new batch [default: as of this batch].
    #[arg(long, value_name = "COUNT", requires = "operation", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// For set: cancel what has not started once this many members have failed. For retry: of the new batch [default: as of this batch].
    #[arg(long, value_name = "COUNT", requires = "operation", value_parser = clap::value_parser!(u32).range(1..))]
    max_failures: Option<u32>,
    /// For set: any number of members may run at once.
    #[arg(long, requires = "operation", conflicts_with = "concurrency")]
    no_concurrency: bool,
    /// For set: no number of failures cancels the rest.
    #[arg(long, requires = "operation", conflicts_with = "max_failures")]
    no_max_failures: bool,
    /// For retry: also repeat the members that somebody cancelled, one by one or with the batch.
    #[arg(long, requires = "operation")]
    cancelled: bool,
    /// For retry: print only the number of the new batch. With --wait only the exit code tells how it ended.
    #[arg(short = 'q', long, requires = "operation", conflicts_with = "follow")]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BatchOperation {
    /// Cancel the members that have not ended.
    Cancel,
    /// Make a batch of the members that have not succeeded.
    Retry,
    /// Print the parameters, the result or the reason of each member.
    Results,
    /// Change the limits of the batch.
    Set,
}

/// Prints the output of all members until the batch has ended.
///
/// # Errors
/// A member did not succeed, or the server was away for too long.
async fn follow(api: &Api, format: Format, id: u64) -> anyhow::Result<()> {
    records::refuse_records(format)?;
    let wanted = LogRequest::everything(id, format.is_json());
    let end = async {
        let mut outage = Outage::before_first_answer(None);
        let ask = async || api.json(api.get(&["api", "batches", &id.to_string()])).await;
        let batch: BatchSummary =
            parse(api, &until_answered(Some(&mut outage), Awaited::FollowedBatch(id), ask).await?)?;
        logs::follow_together(api, &wanted, Together::Batch(id, batch.count)).await
    };
    let ended = tokio::select! {
        // Its signal handler is there before the first note.
        biased;
        _ = tokio::signal::ctrl_c() => {
            screen::note(&format!("longshore: batch {id} continues; stop it with 'longshore batch {id} cancel'"));
            return Err(Failure::silent(Exit::Interrupted).into());
        }
        ended = end => ended?,
    };
    let ended: BatchSummary = parse(api, &ended)?;
    screen::note(&format!("longshore: batch {id} {}: {}", state_text(&ended), ended.members_text()));
    if ended.state == "succeeded" { Ok(()) } else { Err(Failure::silent(Exit::Failed).into()) }
}

/// Shows a batch, or does something with its members.
pub(crate) async fn batch(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let format = flags.common.format;
    match flags.operation {
        Some(BatchOperation::Retry) => return retry::retry(&api, flags).await,
        Some(BatchOperation::Results) => return results::print(&api, &flags).await,
        Some(BatchOperation::Set) => return set::set(&api, &flags).await,
        Some(BatchOperation::Cancel) => cancel(&api, &flags).await?,
        None if flags.follow => return follow(&api, format, flags.id).await,
        None => {}
    }
    match (flags.wait, flags.operation) {
        (Some(limit), operation) => {
            let outage = match operation {
                Some(_) => Outage::default(),
                None => Outage::before_first_answer(limit),
            };
            wait(&api, flags.id, limit, outage, &flags.output()).await
        }
        (None, Some(_)) => Ok(()),
        (None, None) => {
            let json = api.json(api.get(&["api", "batches", &flags.id.to_string()])).await?;
            if records::print(format, &json, "id")? {
                return Ok(());
            }
            show(&parse(&api, &json)?)
        }
    }
}

async fn cancel(api: &Api, flags: &Flags) -> anyhow::Result<()> {
    let for_retry = [
        ("--key", flags.key.is_some()),
        ("--dry-run", flags.dry_run),
        ("--follow", flags.follow),
        ("--quiet", flags.quiet),
        ("--cancelled", flags.cancelled),
        ("--concurrency", flags.concurrency.is_some()),
        ("--max-failures", flags.max_failures.is_some()),
    ];
    flags.refuse_filters("cancel")?;
    flags.refuse_lifting("cancel")?;
    if let Some((flag, _)) = for_retry.iter().find(|(_, is_given)| *is_given) {
        let hint = "to cancel twice does no harm, and a cancelled batch has nothing to follow";
        return Err(Failure::new(Exit::Usage, format!("{flag} is for retry, not for cancel"))
            .hint(hint)
            .into());
    }
    bulk::cancel_batch_if_confirmed(api, &flags.common, flags.id, flags.yes).await
}

impl Flags {
    /// The output about the batch, or about the new one.
    const fn output(&self) -> Output {
        Output { format: self.common.format, quiet: self.quiet, wait: self.wait }
    }

    /// Refuses the flags that take limits away.
    fn refuse_lifting(&self, operation: &str) -> Result<(), Failure> {
        let given = [("--no-concurrency", self.no_concurrency), ("--no-max-failures", self.no_max_failures)];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                Err(Failure::new(Exit::Usage, format!("{flag} is for set, not for {operation}")))
            }
            None => Ok(()),
        }
    }

    /// Refuses the filters of results.
    fn refuse_filters(&self, operation: &str) -> Result<(), Failure> {
        let given = [
            ("--state", !self.state.is_empty()),
            ("--outcome", !self.outcome.is_empty()),
            ("--latest", self.latest),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                let text = format!("{flag} is for results, not for {operation}");
                Err(Failure::new(Exit::Usage, text)
                    .hint("to act on some members use their ids, of 'longshore ls -q --batch'"))
            }
            None => Ok(()),
        }
    }
}

/// Waits for the end of a batch and prints how it ended. The outage says whether the server has answered before, and what is left of the limit.
///
/// # Errors
/// A member did not succeed, the time is up, or the server was away for too long.
async fn wait(
    api: &Api,
    id: u64,
    limit: Option<Duration>,
    mut outage: Outage,
    output: &Output,
) -> anyhow::Result<()> {
    let Output { format, quiet, .. } = *output;
    let display = if quiet { Display::Quiet } else { Display::new() };
    let end = async {
        let left = outage.left();
        let end = progress::wait_for_end(api, id, &mut outage, display);
        match limit {
            None => end.await,
            Some(limit) => {
                if let Ok(ended) = tokio::time::timeout(left.unwrap_or(limit), end).await {
                    return ended;
                }
                if let Some(failure) = outage.into_failure() {
                    return Err(failure);
                }
                progress::print_unended(api, format, "batches", id).await?;
                let text = format!("batch {id} has not ended after {limit:?}, and continues");
                Err(Failure::new(Exit::TimedOut, text).hint(format!("see 'longshore batch {id}'")).into())
            }
        }
    };
    let ended: Value = tokio::select! {
        // Its signal handler is there before the first note.
        biased;
        _ = tokio::signal::ctrl_c() => {
            screen::note(&format!("longshore: batch {id} continues; stop it with 'longshore batch {id} cancel'"));
            return Err(Failure::silent(Exit::Interrupted).into());
        }
        ended = end => ended?,
    };
    let batch: FullBatch = parse(api, &ended)?;
    match format {
        Format::Table | Format::Wide if quiet => {}
        Format::Table | Format::Wide => show(&batch)?,
        format => drop(records::print(format, &ended, "id")?),
    }
    if batch.batch.state == "succeeded" { Ok(()) } else { Err(Failure::silent(Exit::Failed).into()) }
}

fn show(full: &FullBatch) -> anyhow::Result<()> {
    let batch = &full.batch;
    let now = Timestamp::now();
    screen::fields(&[
        ("batch", batch.id.to_string()),
        ("name", batch.name.clone().unwrap_or_default()),
        ("definition", batch.definitions_text()),
        ("retry of", batch_text(batch.retry_of)),
        ("retried as", batch_text(batch.retried_as)),
        ("state", state_text(batch)),
        ("progress", format!("{} of {} ended", batch.ended(), batch.count)),
        ("members", batch.members_text()),
        ("outcomes", full.outcomes_text()),
        ("max failures", view::optional(batch.max_failures.as_ref())),
        ("at once", view::optional(batch.concurrency.as_ref())),
        (
            "skipped",
            Some(batch.skipped).filter(|skipped| *skipped > 0).map(|it| it.to_string()).unwrap_or_default(),
        ),
        ("unique key", view::optional(batch.unique_key.as_ref())),
        ("replaced by", batch_text(batch.replaced_by)),
        ("cancelled by", view::optional(batch.cancelled_by.as_ref())),
        ("paused", batch.pause.as_ref().map(paused_text).unwrap_or_default()),
        ("accepted", format!("{} ago", view::since(batch.created_at, now))),
        ("made by", view::optional(batch.submitted_by.as_ref())),
        ("before", dependencies_in_words(&full.dependents)),
        ("eta", batch.eta.map(|eta| format!("in {}", view::until(eta, now))).unwrap_or_default()),
    ])?;
    if batch.max_failures_reached {
        let text = if batch.ended_at.is_some() { "were" } else { "are" };
        screen::line(&format!("max_failures was reached: members that had not started {text} cancelled"))?;
    }
    for job in &full.failures {
        let index = job.index.map(|index| format!(" [{index}]")).unwrap_or_default();
        let job = &job.job;
        screen::line(&format!("job {}{index} {}", job.id, screen::visible(&job.end_text())))?;
    }
    if full.failures.len() < batch.counts.failures() as usize {
        screen::line(&format!("and more: longshore ls --batch {} --state failed,expired,lost", batch.id))?;
    }
    Ok(())
}

/// A pause in the words of its beginning, its end, its requester and its reason.
fn paused_text(pause: &Pause) -> String {
    let since = pause.since.map(|since| format!("since {since}")).unwrap_or_default();
    format!("{since}{}", pause.why())
}

/// The state, and that the batch was stopped by its failures, is being cancelled or is paused.
pub(crate) fn state_text(batch: &BatchSummary) -> String {
    match (batch.max_failures_reached, batch.ended_at) {
        (false, None) if batch.cancelled_by.is_some() => format!("{} (stopping)", batch.state),
        (false, _) if batch.pause.is_some() => format!("{} (paused)", batch.state),
        (false, _) => batch.state.to_string(),
        (true, None) => format!("{} (stopping)", batch.state),
        (true, Some(_)) => format!("{} (stopped)", batch.state),
    }
}

fn batch_text(batch: Option<u64>) -> String {
    batch.map(|batch| format!("batch {batch}")).unwrap_or_default()
}
