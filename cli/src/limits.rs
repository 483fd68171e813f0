//! `longshore limits`: shows the limits that jobs need, what is in use, and what waits.

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::records;
use crate::screen;
use crate::view::Limit;

/// List the limits that jobs need now: what is in use, by which jobs, and how many wait.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore limits
  longshore limits db-main
  longshore limits -o json | jq '.[] | select(.waiting > 0)'")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Only those of this definition or group.
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Lists limits.
pub(crate) async fn limits(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut request = api.get(&["api", "limits"]);
    if let Some(name) = &flags.name {
        request = request.query(&[("name", name)]);
    }
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
    }
    let limits: Vec<Limit> = parse(&api, &json)?;
    let row = |limit: &Limit| {
        let value = match (limit.limit, limit.interval_ms) {
            (Some(permits), _) => permits.to_string(),
            (None, Some(interval)) => {
                let interval = crate::duration::show(i64::try_from(interval).unwrap_or(i64::MAX));
                let burst = limit.burst.filter(|burst| *burst > 1);
                format!(
                    "1 per {interval}{}",
                    burst.map(|burst| format!(", burst {burst}")).unwrap_or_default()
                )
            }
            (None, None) => "none".to_owned(),
        };
        let holders: Vec<String> = limit.holders.iter().map(u64::to_string).collect();
        vec![
            limit.kind.to_string(),
            limit.name.clone(),
            limit.key.clone().unwrap_or_default(),
            value,
            limit.in_use.to_string(),
            limit.waiting.to_string(),
            holders.join(" "),
        ]
    };
    screen::table(
        &["KIND", "NAME", "KEY", ">LIMIT", ">IN USE", ">WAITING", "HELD BY"],
        limits.iter().map(row).collect(),
    )
}
