//! `longshore batches`: lists batches.

use jiff::Timestamp;

use super::state_text;
use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::progress::BatchView as _;
use crate::records;
use crate::screen::{self, Format};
use crate::view::{self, BatchSummary};

/// List batches, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore batches
  longshore batches --state running
  longshore batches --name 'film*' --by ci --label team=film
  longshore batches -q --state failed
  longshore batches --name nightly --limit 5 -o json")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Only those with this name; * stands for any text.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only those in these states: waiting, running, succeeded, failed, cancelled.
    #[arg(long, value_name = "STATE,…")]
    state: Option<String>,
    /// Only those that the holder of this token, or proxy:USER, has made.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only those with a member that has this label.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Option<String>,
    /// Only those with this unique key.
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// How many; 1 to 500 [default: 50; with --quiet and as name 500].
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: Option<u16>,
    /// Print only their numbers.
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Lists batches.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let format =
        if flags.quiet && flags.common.format.is_text() { Format::Name } else { flags.common.format };
    if flags.quiet && format != Format::Name {
        return Err(Failure::new(Exit::Usage, "--quiet prints numbers, which are no records").into());
    }
    let limit = flags.limit.unwrap_or(if format == Format::Name { 500 } else { 50 });
    let filters = [
        ("name", flags.name),
        ("state", flags.state),
        ("submitted_by", flags.by),
        ("label", flags.label),
        ("unique_key", flags.unique_key),
    ];
    let filters: Vec<_> = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let request = api.get(&["api", "batches"]).query(&[("limit", limit)]).query(&filters);
    let json = api.json(request).await?;
    if records::print(format, &json, "id")? {
        return Ok(());
    }
    let batches: Vec<BatchSummary> = parse(&api, &json)?;
    let now = Timestamp::now();
    let row = |batch: &BatchSummary| {
        vec![
            batch.id.to_string(),
            batch.name.clone().unwrap_or_default(),
            batch.definitions_text(),
            state_text(batch),
            format!("{}/{}", batch.ended(), batch.count),
            batch.counts.failures().to_string(),
            view::since(batch.created_at, now),
            batch.submitted_by.clone().unwrap_or_default(),
        ]
    };
    screen::table(
        &[">ID", "NAME", "DEFINITION", "STATE", ">ENDED", ">FAILED", "AGE", "BY"],
        batches.iter().map(row).collect(),
    )
}
