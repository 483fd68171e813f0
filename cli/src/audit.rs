//! `longshore audit`: lists the requests that were to change something.

use jiff::Timestamp;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::records;
use crate::screen;
use crate::view::{self, AuditEntry};

/// List the requests that changed something or tried to, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore audit
  longshore audit --since 1h
  longshore audit --by ci --limit 500
  longshore audit --path /cancel --since 2026-03-01T00:00:00Z
  longshore audit --about 'token ci'
  longshore audit --refused -o json")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Only those with this token.
    #[arg(long, value_name = "TOKEN")]
    by: Option<String>,
    /// Only those with this text in the path.
    #[arg(long, value_name = "TEXT")]
    path: Option<String>,
    /// Only those with this text in what they acted on or changed.
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// Only those at or after this instant (RFC 3339), from this date on (UTC), or so long ago at most (90s, 1h30m, 7d).
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    since: Option<String>,
    /// Only those that were refused.
    #[arg(long)]
    refused: bool,
    /// How many; 1 to 500.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
}

/// Lists the audit log.
pub(crate) async fn audit(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut request = api.get(&["api", "audit"]).query(&[("limit", flags.limit)]);
    let filters =
        [("by", &flags.by), ("path", &flags.path), ("about", &flags.about), ("since", &flags.since)];
    for (name, value) in filters {
        if let Some(value) = value {
            request = request.query(&[(name, value)]);
        }
    }
    if flags.refused {
        request = request.query(&[("refused", "1")]);
    }
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "id")? {
        return Ok(());
    }
    let entries: Vec<AuditEntry> = parse(&api, &json)?;
    let now = Timestamp::now();
    let row = |entry: &AuditEntry| {
        let answer = match &entry.problem {
            Some(problem) => format!("{} {problem}", entry.status),
            None => entry.status.to_string(),
        };
        vec![
            view::since(entry.to, now),
            entry.token.clone().unwrap_or_else(|| "none".to_owned()),
            entry.address.clone().unwrap_or_default(),
            format!("{} {}", entry.method, entry.target),
            about(entry),
            answer,
            entry.count.to_string(),
        ]
    };
    screen::table(
        &[">AGO", "TOKEN", "ADDRESS", "REQUEST", "ABOUT", "ANSWER", ">TIMES"],
        entries.iter().map(row).collect(),
    )
}

/// The thing that a request acted on, and its change.
fn about(entry: &AuditEntry) -> String {
    let (object, detail) = (entry.object.as_deref(), entry.detail.as_deref());
    [object, detail].into_iter().flatten().collect::<Vec<_>>().join(": ")
}
