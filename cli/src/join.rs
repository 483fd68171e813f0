//! `longshore worker join`: tries a server and a token, then writes the settings file and the token file of a worker.
//!
//! Nothing is written before the server has accepted the token. The worker makes its identity at its first start, as it does without `join`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::api::Api;
use crate::args::ServerArgs;
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, Failure};
use crate::files::{PRIVATE, replace};
use crate::screen;

/// Try the connection to a server, and write the settings file of a worker for it.
///
/// The token is kept in worker.token beside the settings file. Both files are readable by their owner only.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore worker join https://jobs.example:8080 - --ca-file ca.pem <worker.token
  longshore worker join jobs.example:8080 longshore_1_… --config worker.yaml --name anna")]
pub(crate) struct Flags {
    /// The server: HOST:PORT, with the base path if it has one, or a URL.
    #[arg(value_name = "URL")]
    server: String,
    /// A token with the role worker; - reads it from standard input, where other users of the machine cannot see it.
    #[arg(value_name = "TOKEN")]
    token: String,
    /// Name of the worker [default: the host name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The settings file to write.
    // Its id is not `config`: `--config` of other subcommands names a file that is read.
    #[arg(long = "config", id = "target", value_name = "FILE", default_value = "/etc/longshore/worker.yaml")]
    target: PathBuf,
    /// Trust the certificate authorities in this file, not the system's.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    client_certificate: ClientCertificateArgs,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
}

/// Checks the token at the server, then writes both files.
pub(crate) async fn join(flags: Flags) -> anyhow::Result<()> {
    flags
        .name
        .as_deref()
        .map_or(Ok(()), client::check_name)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let settings = std::path::absolute(&flags.target).context("cannot make the path of --config absolute")?;
    let token_file = settings.with_file_name("worker.token");
    for path in [&settings, &token_file] {
        if !flags.force && path.symlink_metadata().is_ok() {
            let text = format!("{} exists already", path.display());
            return Err(Failure::new(Exit::Conflict, text)
                .hint("replace it with --force, or name a file in another directory with --config")
                .into());
        }
    }
    let token = if flags.token == "-" { read_token()? } else { flags.token };
    let token = token.trim();
    let ca_file = flags.ca_file.as_deref().map(std::path::absolute).transpose()?;
    let client_certificate = ClientCertificateArgs {
        tls_client_cert: flags.client_certificate.tls_client_cert.map(std::path::absolute).transpose()?,
        tls_client_key: flags.client_certificate.tls_client_key.map(std::path::absolute).transpose()?,
    };
    let server_args =
        ServerArgs::new(Some(&flags.server), None, ca_file.as_deref(), client_certificate.clone());
    Api::with_token(&server_args, token)?.check_worker_token().await?;
    let mut keys = vec![("server", flags.server), ("token_file", text_of(&token_file)?)];
    if let Some(file) = &ca_file {
        keys.push(("ca_file", text_of(file)?));
    }
    let ClientCertificateArgs { tls_client_cert, tls_client_key } = &client_certificate;
    for (key, file) in [("tls_client_cert", tls_client_cert), ("tls_client_key", tls_client_key)] {
        if let Some(file) = file {
            keys.push((key, text_of(file)?));
        }
    }
    keys.extend(flags.name.map(|name| ("name", name)));
    let mut text =
        "# Written by `longshore worker join`. Keys are the long flags of `longshore worker`.\n".to_owned();
    for (key, value) in keys {
        // A JSON string is a YAML string.
        text += &format!("{key}: {}\n", serde_json::Value::from(value));
    }
    replace(&token_file, &format!("{token}\n"), PRIVATE)?;
    replace(&settings, &text, PRIVATE)?;
    screen::line(&format!("the server accepts the token; wrote {}", settings.display()))?;
    screen::line(&format!("start the worker: longshore worker --config {}", settings.display()))
}

fn read_token() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = read.context("cannot read the token from standard input")?;
    if bytes as u64 > TOKEN_BYTES_MAX {
        bail!("standard input has more than {TOKEN_BYTES_MAX} bytes: it is not a token");
    }
    Ok(text)
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Longer than any token; bounds what is read from standard input.
const TOKEN_BYTES_MAX: u64 = 4096;
