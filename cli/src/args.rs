//! Flags that several verbs have in common: the server's address and token, and the output format.

use std::path::{Path, PathBuf};

use protocol::wire::SLOTS_MAX;

use crate::client_certificate::ClientCertificateArgs;
use crate::screen::Format;

/// Address and token of a server, and the certificates that prove it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// The server: HOST:PORT, with the base path if it has one, or a URL.
    // Parsed later: clap shows a value that it rejects, and an address may contain a password.
    #[arg(
        long = "server",
        id = "server",
        env = "LONGSHORE_SERVER",
        default_value = DEFAULT_ADDRESS,
        value_name = "ADDRESS",
        help_heading = "Server"
    )]
    pub(crate) address: String,
    /// File with the API token, readable by its owner only.
    #[arg(long, env = "LONGSHORE_API_TOKEN_FILE", value_name = "FILE", help_heading = "Server")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust the certificate authorities in this file, not the system's.
    #[arg(long, env = "LONGSHORE_CA_FILE", value_name = "FILE", help_heading = "Server")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Certificate for a server that asks for one: a PEM file.
    #[arg(long, env = "LONGSHORE_TLS_CLIENT_CERT", value_name = "FILE", help_heading = "Server")]
    tls_client_cert: Option<PathBuf>,
    /// Private key of that certificate: a PEM file, not readable by everyone.
    #[arg(long, env = "LONGSHORE_TLS_CLIENT_KEY", value_name = "FILE", help_heading = "Server")]
    tls_client_key: Option<PathBuf>,
}

impl ServerArgs {
    /// Uses the default address if none is given.
    pub(crate) fn new(
        address: Option<&str>,
        token_file: Option<&Path>,
        ca_file: Option<&Path>,
        client_certificate: ClientCertificateArgs,
    ) -> Self {
        Self {
            address: address.unwrap_or(DEFAULT_ADDRESS).to_owned(),
            token_file: token_file.map(Path::to_owned),
            ca_file: ca_file.map(Path::to_owned),
            tls_client_cert: client_certificate.tls_client_cert,
            tls_client_key: client_certificate.tls_client_key,
        }
    }

    /// The certificate for a server that asks for one.
    pub(crate) fn client_certificate(&self) -> ClientCertificateArgs {
        ClientCertificateArgs {
            tls_client_cert: self.tls_client_cert.clone(),
            tls_client_key: self.tls_client_key.clone(),
        }
    }
}

/// The address that a server listens on by default.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// Flags of every verb that does not ask a server.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Output format: table or wide for people; json, ndjson, csv or name for programs.
    #[arg(
        short = 'o',
        long = "output",
        env = "LONGSHORE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    pub(crate) format: Format,
}

/// Flags of every verb that asks a server.
#[derive(Debug, clap::Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) server_args: ServerArgs,
    /// Output format: table or wide for people; json, ndjson, csv or name (ids or names only) for programs.
    #[arg(
        short = 'o',
        long = "output",
        env = "LONGSHORE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    pub(crate) format: Format,
}

/// Checks that a definition name can be a segment of the URL.
pub(crate) fn parse_definition_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text == "." || text == ".." {
        return Err("not a definition name; 'longshore definitions' lists them".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a number of slots. Zero means as many as the protocol allows.
pub(crate) fn slots(text: &str) -> Result<u32, String> {
    let slots = number(text, 0, SLOTS_MAX)?;
    Ok(if slots == 0 { SLOTS_MAX } else { slots })
}

/// Parses a number. The range stands in the message only: the configuration of a worker checks it.
pub(crate) fn number(text: &str, from: u32, to: u32) -> Result<u32, String> {
    text.parse().map_err(|_| format!("not a number from {from} to {to}"))
}
