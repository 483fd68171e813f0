//! `longshore whoami`: the token of this command line, as the server sees it.

use jiff::Timestamp;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::records;
use crate::screen;
use crate::view::{self, Caller};

/// Show whose token is used: its name, role, definitions and end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore whoami
  longshore whoami --token-file ci.token -o json

A token that expires within 14 days is also warned of on standard error.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
}

/// Asks the server and prints its answer.
pub(crate) async fn whoami(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = api.json(api.get(&["api", "whoami"])).await?;
    let caller: Caller = parse(&api, &json)?;
    if let Some(warning) = &caller.warning {
        screen::note(&format!("warning: {}", screen::visible(&warning.text)));
    }
    if records::print(flags.common.format, &json, "token")? {
        return Ok(());
    }
    let definitions = match caller.definitions.is_empty() {
        true => "all".to_owned(),
        false => caller.definitions.join(","),
    };
    let now = Timestamp::now();
    let expires = caller.expires_at.map(|at| format!("in {}, at {at}", view::until(at, now)));
    let never = if caller.login == "token" { "never" } else { "" };
    screen::fields(&[
        ("token", caller.token.unwrap_or_else(|| "none: this server needs no token".to_owned())),
        ("role", caller.role.to_string()),
        ("definitions", definitions),
        ("expires", expires.unwrap_or_else(|| never.to_owned())),
    ])
}
