//! `longshore ack`: says that failures are dealt with, or takes that back.

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{VerbResult, by_id};
use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::bulk::{self, BulkResult, Selection};
use crate::failure::{Exit, Failure};
use crate::job_refs;
use crate::{records, screen};

/// Say that failures are dealt with, so that they are no longer unresolved.
///
/// A job that failed, expired or was lost is unresolved until it is retried, or somebody acknowledges it. The first acknowledgement of a
/// job stays until it is undone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore ls --unresolved                          the failures that nobody has dealt with
  longshore ack 12 13 --reason 'disk of db-2 was full'
  longshore ack --name resize --ended-since 3d       counts them, asks, and acknowledges them
  longshore ack --unresolved --yes                   all of them
  longshore ack 12 --undo")]
pub(crate) struct AckFlags {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    selection: Selection,
    /// Why they are dealt with, for those who look at them later: one line of at most 300 characters.
    #[arg(long, value_name = "TEXT", conflicts_with = "undo")]
    reason: Option<String>,
    /// Take acknowledgements back: the jobs are unresolved again, unless they were retried.
    #[arg(long)]
    undo: bool,
    /// Only count the jobs that would be changed.
    #[arg(long)]
    dry_run: bool,
}

/// Acknowledges failures; goes on after one that cannot be acknowledged.
pub(crate) async fn ack(flags: AckFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let selected = flags.selection.query()?;
    let undo = flags.undo.then_some(("undo", "1"));
    if flags.dry_run {
        return count(&api, &flags, selected, undo).await;
    }
    let mut body = Map::new();
    if let Some(reason) = flags.reason {
        body.insert("reason".into(), reason.into());
    }
    if let Some(mut query) = selected {
        if flags.undo && query.iter().any(|(name, _)| *name == "unresolved") {
            let text = "no acknowledged failure is unresolved: --undo and --unresolved exclude each other";
            return Err(Failure::new(Exit::Usage, text).into());
        }
        query.extend(undo.map(|(name, value)| (name, value.to_owned())));
        let verb = if flags.undo { "unacknowledge" } else { "acknowledge" };
        return bulk::acknowledge_all(&api, &flags.common, verb, &query, &body.into(), flags.selection.yes)
            .await;
    }
    let ids = job_refs::ids(&api, &flags.selection.ids).await?;
    let mut result = VerbResult::new(flags.common.format);
    let effect = |_: &_| if flags.undo { "is no longer acknowledged" } else { "is acknowledged" }.to_owned();
    let query: Vec<(&str, &str)> = undo.into_iter().collect();
    by_id::apply_with_body(&api, &mut result, ("acknowledge", &ids, &query), &body, effect).await?;
    result.finish()
}

/// Prints how many jobs would be changed.
async fn count(
    api: &Api,
    flags: &AckFlags,
    selected: Option<Vec<(&'static str, String)>>,
    undo: Option<(&str, &str)>,
) -> anyhow::Result<()> {
    let path = ["api", "jobs", "acknowledge"];
    let matched = match selected {
        Some(mut query) => {
            query.extend(undo.map(|_| ("undo", "1".to_owned())));
            bulk::count(api, &path, &query).await?
        }
        None => {
            let request =
                api.request(Method::POST, &path).query(&[("dry_run", "1")]).query(&undo.map(|it| [it]));
            let ids = job_refs::ids(api, &flags.selection.ids).await?;
            let answer = api.json(request.json(&json!({ "ids": ids }))).await?;
            api::parse::<BulkResult>(api, &answer)?.matched
        }
    };
    let counted: Value = json!({ "dry_run": true, "matched": matched });
    if records::print(flags.common.format, &counted, "matched")? {
        return Ok(());
    }
    let done = if flags.undo { "no longer be acknowledged" } else { "be acknowledged" };
    screen::line(&format!("{} would {done}", screen::counted(matched, "job")))
}
