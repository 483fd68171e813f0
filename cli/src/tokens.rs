//! `longshore token`: makes, lists and revokes tokens.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::files::{Draft, PRIVATE};
use crate::records;
use crate::screen::{self, Format};
use crate::view::{self, NewToken, Token};

/// Make, list and revoke tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore token create ci --role submitter --definitions 'nightly-*' --expires 90d --save ci.token
  longshore token create machines --role worker --save worker.token
  longshore token create anna --role worker --labels zone=eu --uses 1 --expires 1h --save anna.token
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
    /// Of a submitter or an operator: act on jobs of these definitions only; '*' stands for any text. Everything can be read.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    definitions: Vec<String>,
    /// How long it is valid, such as 90d; without it until it is revoked.
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    /// Of a token for workers: how many may join by it [default: any number].
    #[arg(long, value_name = "NUMBER")]
    uses: Option<u32>,
    /// Of a token for workers: labels that they get, which no worker can claim for itself.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Write the token to this file, which only its owner can read, and do not print it. The file must not be there.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Make no token if the file of --save is there: for commands that are run at each start.
    #[arg(long, requires = "save")]
    if_missing: bool,
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
    /// Also revoke the workers that have joined by it; without this they stay.
    #[arg(long)]
    workers: bool,
    /// Revoke it even if it is the last valid token of an administrator.
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TokenRole {
    /// Read everything except for tokens and the audit log
    Viewer,
    /// Also submit, change, cancel and retry jobs, and acknowledge failures
    Submitter,
    /// Also release jobs, operate workers, pause schedules, reload and deploy definitions
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
    if flags.common.format == Format::Name && flags.save.is_none() {
        // The token is shown once, and a name is not the token.
        let failure = Failure::new(Exit::Usage, "-o name would not show the token");
        return Err(failure
            .hint("leave -o out, which prints only the token, or write it to a file with --save")
            .into());
    }
    if let Some(file) = &flags.save
        && is_kept(file, flags.if_missing)?
    {
        let kept = json!({ "name": flags.name, "file": file, "made": false });
        return records::print(flags.common.format, &kept, "name").map(drop);
    }
    let api = Api::new(&flags.common.server_args)?;
    let mut body = json!({ "name": flags.name, "role": flags.role.name() });
    if !flags.definitions.is_empty() {
        body["definitions"] = flags.definitions.into();
    }
    if let Some(expires) = flags.expires {
        body["expires"] = expires.into();
    }
    if let Some(uses) = flags.uses {
        body["uses"] = uses.into();
    }
    if !flags.labels.is_empty() {
        body["labels"] = flags.labels.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
    }
    // The file first: a token that cannot be kept is not made.
    let draft = flags.save.as_deref().map(|file| Draft::create(file, PRIVATE)).transpose()?;
    let mut json = api.json(api.request(reqwest::Method::POST, &["api", "tokens"]).json(&body)).await?;
    for warning in json["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        screen::note(&format!("warning: {warning}"));
    }
    if let (Some(file), Some(draft)) = (&flags.save, draft) {
        let made: NewToken = parse(&api, &json)?;
        draft.finish(&format!("{}\n", made.token)).with_context(|| {
            format!(
                "the token was made, and is lost: longshore token revoke {}",
                screen::visible(&flags.name)
            )
        })?;
        if let Some(shown) = json.as_object_mut() {
            shown.remove("token");
        }
        return match records::print(flags.common.format, &json, "name")? {
            true => Ok(()),
            false => screen::line(&format!("wrote the token to {}", file.display())),
        };
    }
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
    }
    let made: NewToken = parse(&api, &json)?;
    // Only the token goes to standard output, so that it can be written to a file.
    screen::note(
        "this is the only time that the token is shown; keep it in a file that only its user can read",
    );
    screen::line(&made.token)
}

/// True if the file is there and shall be kept.
fn is_kept(file: &Path, if_missing: bool) -> anyhow::Result<bool> {
    match file.symlink_metadata() {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot look for {}", file.display())),
    }
    let text = format!("{} is there already", file.display());
    if if_missing {
        screen::note(&format!("{text}; no token is made"));
        return Ok(true);
    }
    Err(Failure::new(Exit::Conflict, text).hint("remove it, or name another file with --save").into())
}

async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = api.json(api.get(&["api", "tokens"])).await?;
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
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
            match (token.uses, token.joined) {
                (Some(uses), Some(joined)) => format!("{joined}/{uses}"),
                (_, joined) => joined.map(|it| it.to_string()).unwrap_or_default(),
            },
            view::pairs(&token.labels),
        ]
    };
    screen::table(
        &["NAME", "ROLE", "STATE", "DEFINITIONS", ">AGE", ">USED", ">EXPIRES", ">JOINED", "LABELS"],
        tokens.iter().map(row).collect(),
    )
}

async fn revoke(flags: RevokeFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    if !flags.yes {
        refuse_last_administrator(&api, &flags.name).await?;
    }
    let path = ["api", "tokens", &flags.name, "revoke"];
    let mut request = api.request(reqwest::Method::POST, &path);
    if flags.workers {
        request = request.query(&[("workers", "1")]);
    }
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
    }
    let token: Token = parse(&api, &json)?;
    let workers = match (token.workers_revoked, token.joined) {
        (Some(count), _) => format!("; workers revoked with it: {count}"),
        (None, Some(1..)) => "; the workers that joined by it stay: --workers revokes them, too".to_owned(),
        (None, _) => String::new(),
    };
    screen::line(&format!("token {} is revoked{workers}", screen::visible(&flags.name)))
}

/// Without a valid token of an administrator, nobody can make tokens until the server restarts.
async fn refuse_last_administrator(api: &Api, name: &str) -> anyhow::Result<()> {
    let tokens: Vec<Token> = parse(api, &api.json(api.get(&["api", "tokens"])).await?)?;
    let mut admins = tokens.iter().filter(|token| token.role == "admin" && token.state == "valid");
    if !admins.clone().any(|token| token.name == name) || admins.any(|token| token.name != name) {
        return Ok(());
    }
    let text = format!("{} is the last valid token of an administrator", screen::visible(name));
    let hint = "make another one first ('longshore token create NAME --role admin'); or add --yes: the next start of the server then makes one, in admin.token of its data directory, unless it has --api-token-file";
    Err(Failure::new(Exit::Conflict, text).hint(hint).into())
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a label is written KEY=VALUE".to_owned()),
    }
}
