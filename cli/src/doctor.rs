//! `longshore doctor`: checks the data directory, the server, its workers, and Docker on this machine.

mod connection;
mod engine;
mod worker;

use std::path::PathBuf;

use server::doctor::{self, Finding, FindingVerdict};

use crate::args::OutputArgs;
use crate::args::ServerArgs;
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen::{self, Format};
use crate::server::DataArgs;
use worker::{ReadWorker, WorkerConnection};

/// Check the data directory, server, workers and Docker. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore doctor                                    everything found on this machine
  longshore doctor --data /var/lib/longshore --deep   also read every index and all output
  longshore doctor --config /etc/longshore/worker.yaml
                                                      the worker of this machine: its settings, server, token and Docker
  longshore doctor --server jobs.example:8080 --token-file api.token -o json

A directory or server that is given must exist; defaults are checked only if they
exist. Each line that is not ok has a next step. Exit code 0: nothing has failed; 1: something has.")]
pub(crate) struct Flags {
    #[command(flatten)]
    data: DataArgs,
    /// Settings file of this machine's worker: checks the server that it names, with its certificates, its token and its docker program.
    // Its id is not `config`: that of other verbs has settings of the verb itself.
    #[arg(long = "config", id = "worker_settings", value_name = "FILE")]
    worker_settings: Option<PathBuf>,
    /// The server: HOST:PORT, with the base path if it has one, or a URL [default: that of --config, or 127.0.0.1:8080].
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
pub(crate) async fn doctor(flags: Flags, read_worker: ReadWorker) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    let data = flags.data.directory();
    if flags.data.is_given() || data.exists() {
        findings.extend(doctor::examine(&data, flags.deep));
    }
    let worker =
        flags.worker_settings.as_deref().map(|file| (file, WorkerConnection::read(file, read_worker)));
    let worker = match worker {
        Some((file, Ok(worker))) => {
            let text = format!("{}: a worker of {}", file.display(), worker.server);
            findings.push(Finding::ok("settings", text));
            Some(worker)
        }
        Some((file, Err(why))) => {
            let next = "correct the file: the worker does not start with it";
            findings.push(Finding::fail("settings", format!("{}: {why}", file.display()), next));
            None
        }
        None => None,
    };
    let server_args = server_args(&flags, worker.as_ref());
    let is_given = flags.server.is_some() || worker.is_some();
    // Without the settings of the worker its server is not known.
    if is_given || flags.worker_settings.is_none() {
        findings.extend(connection::check(&server_args, is_given).await);
    }
    match &worker {
        Some(worker) => {
            findings.extend(worker.check_token(&server_args).await);
            if let Some(docker) = worker.docker() {
                findings.push(engine::check(docker).await);
            }
        }
        None => findings.push(engine::check(&flags.docker).await),
    }
    tell(&findings, flags.output.format)?;
    match worst(&findings) {
        FindingVerdict::Fail => Err(Failure::silent(Exit::Failed).into()),
        FindingVerdict::Ok | FindingVerdict::Warn => Ok(()),
    }
}

/// The server and its certificates: of the flags, or of the worker. The worker's token is not for the API.
fn server_args(flags: &Flags, worker: Option<&WorkerConnection>) -> ServerArgs {
    let own = flags.client_certificate.clone();
    let has_own = own.tls_client_cert.is_some() || own.tls_client_key.is_some();
    let certificate = worker.filter(|_| !has_own).map(|worker| worker.client_certificate.clone());
    ServerArgs::new(
        flags.server.as_deref().or(worker.map(|worker| worker.server.as_str())),
        flags.token_file.as_deref(),
        flags.ca_file.as_deref().or(worker.and_then(|worker| worker.ca_file.as_deref())),
        certificate.unwrap_or(own),
    )
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
