//! `longshore changes`: lists the loads that have changed definitions.

use jiff::Timestamp;
use server::http::present::shapes::DefinitionChange;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::records;
use crate::screen;
use crate::view;

/// List the loads that have changed definitions, the newest first: when, how, by whom, and which.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore changes
  longshore changes resize                   those that added, changed or removed it
  longshore changes 'nightly-*' --since 7d
  longshore changes --by ci -o json

A load is a start of the server with another jobs file, a reload, the watch of the file, or a deploy.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Only those of this definition; '*' stands for any text.
    #[arg(value_name = "NAME", add = crate::completions::definitions())]
    name: Option<String>,
    /// Only those with this token, or by this user.
    #[arg(long, value_name = "TOKEN")]
    by: Option<String>,
    /// Only those at or after this instant (RFC 3339), from this date on (UTC), or so long ago at most (90s, 1h30m, 7d).
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    since: Option<String>,
    /// How many; 1 to 500.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
}

/// Lists the history of the definitions.
pub(crate) async fn changes(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let request = api.get(&["api", "definitions", "changes"]).query(&[("limit", flags.limit)]);
    let filters = [("name", &flags.name), ("by", &flags.by), ("since", &flags.since)];
    let given = filters.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let json = api.json(request.query(&given.collect::<Vec<_>>())).await?;
    if records::print(flags.common.format, &json, "id")? {
        return Ok(());
    }
    let changes: Vec<DefinitionChange> = parse(&api, &json)?;
    let now = Timestamp::now();
    let row = |change: &DefinitionChange| {
        vec![
            view::since(change.at, now),
            change.cause.to_string(),
            change.by.clone().unwrap_or_default(),
            change.after.clone(),
            change.words(),
            change.reason.clone().unwrap_or_default(),
        ]
    };
    screen::table(&[">AGO", "CAUSE", "BY", "REVISION", "CHANGE", "REASON"], changes.iter().map(row).collect())
}
