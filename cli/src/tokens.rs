//! `longshore token`: makes, lists and revokes tokens.

use jiff::Timestamp;
use serde_json::json;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::screen::{self, Format};
use crate::view::{self, NewToken, Token};

/// Make, list and revoke tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore token create ci --role submitter --definitions 'nightly-*,report' --expires 90d >ci.token
  longshore token create machines --role worker >worker.token
  longshore token ls
  longshore token revoke ci

Only administrators may do this: a server beyond loopback writes the first administrator's token to admin.token in its data directory.")]
pub(crate) struct Flags {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Debug, clap::Subcommand)]
enum TokenVerb {
    Create(CreateFlags),
    Ls(ListFlags),
    Revoke(RevokeFlags),
}

/// Make a token, and print it. It can not be read again.
#[derive(Debug, clap::Args)]
struct CreateFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Its name, for lists and the audit log.
    #[arg(value_name = "NAME")]
    name: String,
    /// Role of its holder.
    #[arg(long, value_enum)]
    role: TokenRole,
    /// Only for jobs of these definitions; '*' stands for any text.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    definitions: Vec<String>,
    /// How long it is valid, such as 90d; without it until it is revoked.
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
}

/// List the tokens, revoked ones too.
#[derive(Debug, clap::Args)]
struct ListFlags {
    #[command(flatten)]
    common: CommonArgs,
}

/// Revoke a token at once, with everything that was opened by it.
#[derive(Debug, clap::Args)]
struct RevokeFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// Its name.
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TokenRole {
    /// Read everything except for tokens and the audit log
    Viewer,
    /// Also submit, change, cancel and retry jobs
    Submitter,
    /// Also release jobs, operate workers, pause schedules, reload definitions
    Operator,
    /// Also manage tokens and read the audit log
    Admin,
    /// Connect as a worker, and nothing else
    Worker,
}

impl TokenRole {
    const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }
}

/// Runs the verb behind `token`.
pub(crate) async fn token(flags: Flags) -> anyhow::Result<()> {
    match flags.verb {
        TokenVerb::Create(flags) => create(flags).await,
        TokenVerb::Ls(flags) => list(flags).await,
        TokenVerb::Revoke(flags) => revoke(flags).await,
    }
}

async fn create(flags: CreateFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut body = json!({ "name": flags.name, "role": flags.role.name() });
    if !flags.definitions.is_empty() {
        body["definitions"] = flags.definitions.into();
    }
    if let Some(expires) = flags.expires {
        body["expires"] = expires.into();
    }
    let json = api.json(api.request(reqwest::Method::POST, &["api", "tokens"]).json(&body)).await?;
    if flags.common.format == Format::Json {
        return screen::json(&json);
    }
    let made: NewToken = parse(&api, &json)?;
    // Only the token goes to standard output, so that it can be written to a file.
    screen::note(
        "this is the only time that the token is shown; keep it in a file that only its user can read",
    );
    screen::line(&made.token)
}

async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = api.json(api.get(&["api", "tokens"])).await?;
    if flags.common.format == Format::Json {
        return screen::json(&json);
    }
    let tokens: Vec<Token> = parse(&api, &json)?;
    let now = Timestamp::now();
    let row = |token: &Token| {
        let definitions =
            if token.definitions.is_empty() { "all".to_owned() } else { token.definitions.join(",") };
        vec![
            token.name.clone(),
            token.role.to_string(),
            token.state.to_string(),
            definitions,
            view::since(token.created_at, now),
            token.last_used_at.map(|at| view::since(at, now)).unwrap_or_default(),
            token.expires_at.map_or_else(|| "never".to_owned(), |at| view::until(at, now)),
        ]
    };
    screen::table(
        &["NAME", "ROLE", "STATE", "DEFINITIONS", ">AGE", ">USED", ">EXPIRES"],
        tokens.iter().map(row).collect(),
    )
}

async fn revoke(flags: RevokeFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let path = ["api", "tokens", &flags.name, "revoke"];
    let json = api.json(api.request(reqwest::Method::POST, &path)).await?;
    if flags.common.format == Format::Json {
        return screen::json(&json);
    }
    screen::line(&format!("token {} is revoked", screen::visible(&flags.name)))
}
