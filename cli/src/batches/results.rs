//! `longshore batch ID results`: what each member was given and what it left.

use serde_json::Value;
use server::http::present::shapes::ListedJob;

use super::Flags;
use crate::api::{Api, parse};
use crate::failure::{Exit, Failure};
use crate::jobs;
use crate::screen::{self, Format};
use crate::view::{self, BatchSummary, JobView as _};

/// Prints a line for each member.
///
/// # Errors
/// The flag is not for results, and those of the requests.
pub(super) async fn print(api: &Api, flags: &Flags) -> anyhow::Result<()> {
    refuse_other_flags(flags)?;
    let id = flags.id.to_string();
    let batch: BatchSummary = parse(api, &api.json(api.get(&["api", "batches", &id])).await?)?;
    let query = [("batch", id), ("results", "1".to_owned())];
    match flags.common.format {
        Format::Csv => jobs::export(api, &query, "text/csv").await?,
        Format::Ndjson => jobs::export(api, &query, "application/x-ndjson").await?,
        format => {
            let members = in_order(api, &query).await?;
            print_members(api, format, members)?;
        }
    }
    note_absent(&batch);
    Ok(())
}

/// All members by their position. Lists have the newest job first.
async fn in_order(api: &Api, query: &[(&'static str, String)]) -> anyhow::Result<Vec<Value>> {
    let (mut members, _) = jobs::fetch_jobs(api, query, MEMBERS_MAX).await?;
    members.sort_by_key(|member| (member["index"].as_u64(), member["id"].as_u64()));
    Ok(members)
}

fn print_members(api: &Api, format: Format, members: Vec<Value>) -> anyhow::Result<()> {
    match format {
        Format::Json => screen::json(&Value::Array(members)),
        Format::Name => {
            members.iter().try_for_each(|member| screen::line(&jobs::job_id(api, member)?.to_string()))
        }
        format => {
            let row = |member: &Value| Ok(row(&parse(api, member)?, format));
            let rows = members.iter().map(row).collect::<anyhow::Result<_>>()?;
            screen::table(&[">INDEX", ">JOB", "STATE", "PARAMS", "RESULT", "WHY"], rows)
        }
    }
}

fn row(member: &ListedJob, format: Format) -> Vec<String> {
    let params = member.params.iter().map(|(name, value)| format!("{name}={}", plain(value)));
    let params = params.collect::<Vec<_>>().join(" ");
    let result = member.result.as_ref().map(plain).unwrap_or_default();
    let cell = |text: String| match format {
        Format::Wide => text,
        _ => view::shortened(&text, CELL_CHARS),
    };
    let reason = member.job.reason_text();
    vec![
        view::optional(member.index.as_ref()),
        member.job.id.to_string(),
        member.job.state_text(),
        cell(params),
        cell(result),
        reason,
    ]
}

/// A text as it is, everything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Says which members have no result yet, or are not listed any more.
fn note_absent(batch: &BatchSummary) {
    let live = batch.counts.live();
    if live > 0 {
        let of = screen::counted(batch.count, "member");
        screen::note(&format!("longshore: {live} of {of} have not ended; batch {} goes on", batch.id));
    }
    if batch.removed > 0 {
        let members = screen::counted(batch.removed, "member");
        screen::note(&format!("longshore: the server no longer keeps {members} of batch {}", batch.id));
    }
}

fn refuse_other_flags(flags: &Flags) -> Result<(), Failure> {
    let for_others = [
        ("--wait", flags.wait.is_some()),
        ("--follow", flags.follow),
        ("--yes", flags.yes),
        ("--key", flags.key.is_some()),
        ("--concurrency", flags.concurrency.is_some()),
        ("--max-failures", flags.max_failures.is_some()),
    ];
    match for_others.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            let hint = format!(
                "to wait for the last result: longshore batch {id} --wait; longshore batch {id} results",
                id = flags.id
            );
            Err(Failure::new(Exit::Usage, format!("{flag} is not for results")).hint(hint))
        }
        None => Ok(()),
    }
}

/// The most members that a batch has.
const MEMBERS_MAX: usize = 100_000;

/// Characters of parameters and of a result in a table.
const CELL_CHARS: usize = 60;
