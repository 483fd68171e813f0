//! `longshore doctor`: checks the data directory, the server, its workers, and Docker on this machine.

mod connection;
mod engine;

use std::path::PathBuf;

use server::doctor::{self, Finding, FindingVerdict};

use crate::args::OutputArgs;
use crate::args::ServerArgs;
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen::{self, Format};
use crate::server::DataArgs;

/// Check the data directory, server, workers and Docker. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore doctor                                    everything found on this machine
  longshore doctor --data /var/lib/longshore --deep   also read every index and all output
  longshore doctor --server jobs.example:8080 --token-file api.token -o json

A directory or server that is given must exist; defaults are checked only if they
exist. Each line that is not ok has a next step. Exit code 0: nothing has failed; 1: something has.")]
pub(crate) struct Flags {
    #[command(flatten)]
    data: DataArgs,
    /// The server: HOST:PORT, with the base path if it has one, or a URL [default: 127.0.0.1:8080].
    #[arg(long, env = "LONGSHORE_SERVER", value_name = "ADDRESS")]
    server: Option<String>,
    /// File with the API token, readable by its owner only.
    #[arg(long, env = "LONGSHORE_API_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Trust the certificate authorities in this file, not the system's.
    #[arg(long, env = "LONGSHORE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    client_certificate: ClientCertificateArgs,
    /// The docker program of the worker on this machine, or a compatible one.
    #[arg(long, env = "LONGSHORE_DOCKER", default_value = "docker", value_name = "PROGRAM")]
    docker: PathBuf,
    /// Also read every index of the database and every record of output. Takes as long as reading the whole directory.
    #[arg(long)]
    deep: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs all checks and prints their findings.
pub(crate) async fn doctor(flags: Flags) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    let data = flags.data.directory();
    if flags.data.is_given() || data.exists() {
        findings.extend(doctor::examine(&data, flags.deep));
    }
    let server_args = ServerArgs::new(
        flags.server.as_deref(),
        flags.token_file.as_deref(),
        flags.ca_file.as_deref(),
        flags.client_certificate,
    );
    findings.extend(connection::check(&server_args, flags.server.is_some()).await);
    findings.push(engine::check(&flags.docker).await);
    tell(&findings, flags.output.format)?;
    match worst(&findings) {
        FindingVerdict::Fail => Err(Failure::silent(Exit::Failed).into()),
        FindingVerdict::Ok | FindingVerdict::Warn => Ok(()),
    }
}

/// The worst verdict.
pub(crate) fn worst(findings: &[Finding]) -> FindingVerdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(FindingVerdict::Ok)
}

/// Prints findings, each with its next step.
pub(crate) fn tell(findings: &[Finding], format: Format) -> anyhow::Result<()> {
    let json = serde_json::json!({ "verdict": worst(findings), "findings": findings });
    if records::print_list(format, &json, "findings", "what")? {
        return Ok(());
    }
    for Finding { what, verdict, text, next } in findings {
        screen::line(&format!("{:<5} {what:<12} {}", verdict.name(), screen::visible(text)))?;
        if !next.is_empty() {
            screen::line(&format!("{:<18} next: {}", "", screen::visible(next)))?;
        }
    }
    Ok(())
}
