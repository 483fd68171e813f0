//! `longshore batch ID results`: what each member was given and what it left, in the order of the members. Each page is printed as soon as it is read.

use serde_json::Value;
use server::http::present::shapes::ListedJob;

use super::Flags;
use crate::api::{Api, parse};
use crate::failure::{Exit, Failure};
use crate::jobs;
use crate::screen::{self, Format, StreamedTable};
use crate::view::{self, BatchSummary, JobView as _};

/// Prints a line for each member.
///
/// # Errors
/// The flag is not for results, and those of the requests.
pub(super) async fn print(api: &Api, flags: &Flags) -> anyhow::Result<()> {
    refuse_other_flags(flags)?;
    let id = flags.id.to_string();
    let batch: BatchSummary = parse(api, &api.json(api.get(&["api", "batches", &id])).await?)?;
    let filters = [("state", &flags.state), ("outcome", &flags.outcome)];
    let filters = filters.into_iter().filter(|(_, values)| !values.is_empty());
    let filters = filters.map(|(name, values)| (name, values.join(",")));
    let latest = flags.latest.then(|| ("latest", "1".to_owned()));
    let in_order = [("batch", id), ("order", "oldest".to_owned())].into_iter().chain(latest);
    let query: Vec<(&'static str, String)> = in_order.chain(filters).collect();
    let with_results = [&query[..], &[("results", "1".to_owned())]].concat();
    match flags.common.format {
        Format::Csv => jobs::export(api, &with_results, "text/csv").await?,
        Format::Ndjson => jobs::export(api, &with_results, "application/x-ndjson").await?,
        // Only the ids are printed.
        Format::Name => print_in_order(api, &query, Printer::Names).await?,
        format => print_in_order(api, &with_results, Printer::new(format)).await?,
    }
    note_absent(&batch, flags.latest);
    Ok(())
}

async fn print_in_order(
    api: &Api,
    query: &[(&'static str, String)],
    mut printer: Printer,
) -> anyhow::Result<()> {
    let mut cursor = None;
    loop {
        let (members, next) = jobs::fetch_page(api, query, cursor, PAGE).await?;
        if !members.is_empty() {
            printer.print(api, &members)?;
        }
        if next.is_none() {
            return printer.finish();
        }
        cursor = next;
    }
}

/// Prints pages of members.
enum Printer {
    /// An array.
    Json {
        has_entries: bool,
    },
    Names,
    Table(Format, StreamedTable),
}

impl Printer {
    fn new(format: Format) -> Self {
        match format {
            Format::Json => Self::Json { has_entries: false },
            format => Self::Table(
                format,
                StreamedTable::new(&[">INDEX", ">JOB", "STATE", "PARAMS", "RESULT", "WHY"]),
            ),
        }
    }

    fn print(&mut self, api: &Api, members: &[Value]) -> anyhow::Result<()> {
        match self {
            Self::Json { has_entries } => members
                .iter()
                .try_for_each(|member| screen::array_entry(member, std::mem::replace(has_entries, true))),
            Self::Names => {
                members.iter().try_for_each(|member| screen::line(&jobs::job_id(api, member)?.to_string()))
            }
            Self::Table(format, table) => {
                let row = |member: &Value| Ok(row(&parse(api, member)?, *format));
                table.print(members.iter().map(row).collect::<anyhow::Result<_>>()?)
            }
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Json { has_entries } => screen::array_end(has_entries),
            Self::Names => Ok(()),
            Self::Table(_, table) => table.finish(),
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
    let reason = member.note.clone().unwrap_or_else(|| member.job.reason_text());
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
fn note_absent(batch: &BatchSummary, is_latest: bool) {
    let live = batch.counts.live();
    // The table of latest attempts shows what goes on: members are only some of them.
    if live > 0 && !is_latest {
        let of = screen::counted(batch.count, "member");
        screen::note(&format!("longshore: {live} of {of} have not ended; batch {} goes on", batch.id));
    }
    if batch.removed > 0 {
        let members = screen::counted(batch.removed, "member");
        screen::note(&format!("longshore: the server no longer keeps {members} of batch {}", batch.id));
    }
}

fn refuse_other_flags(flags: &Flags) -> Result<(), Failure> {
    flags.refuse_lifting("results")?;
    let for_others = [
        ("--wait", flags.wait.is_some()),
        ("--follow", flags.follow),
        ("--yes", flags.yes),
        ("--key", flags.key.is_some()),
        ("--concurrency", flags.concurrency.is_some()),
        ("--max-failures", flags.max_failures.is_some()),
        ("--quiet", flags.quiet),
        ("--cancelled", flags.cancelled),
        ("--dry-run", flags.dry_run),
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

/// Members that are read and printed at once.
const PAGE: usize = 500;

/// Characters of parameters and of a result in a table.
const CELL_CHARS: usize = 60;
