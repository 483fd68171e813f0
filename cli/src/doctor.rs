//! `longshore doctor`: checks the data directory, the server, its workers, and Docker on this machine.

mod connection;
mod engine;
mod worker;

use std::path::{Path, PathBuf};

use server::doctor::{self, CheckStatus, Finding};

use crate::args::OutputArgs;
use crate::args::ServerArgs;
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen::{self, Format};
use crate::server::DataArgs;
use connection::NamedBy;
pub(crate) use connection::refused_connection;
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
exist. Each line that is not ok has a next step. Exit code 0: nothing has failed; 1: something has.

With --config the variables LONGSHORE_* of this shell do not count, except LONGSHORE_OUTPUT: the
service of the worker does not have them. Settings that it gets from variables are not checked.")]
pub(crate) struct Flags {
    #[command(flatten)]
    data: DataArgs,
    /// Settings file of this machine's worker: checks the server that it names, with its certificates, its token and its docker program. Not
    /// together with --server, --ca-file, --tls-client-cert, --tls-client-key and --docker.
    // Its id is not `config`: that of other verbs has settings of the verb itself.
    #[arg(long = "config", id = "worker_settings", value_name = "FILE")]
    worker_settings: Option<PathBuf>,
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
    /// The docker program of the worker on this machine, or a compatible one [default: docker].
    #[arg(long, env = "LONGSHORE_DOCKER", value_name = "PROGRAM")]
    docker: Option<PathBuf>,
    /// Also read every index of the database and every record of output. Takes as long as reading the whole directory.
    #[arg(long)]
    deep: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs all checks and prints their findings.
pub(crate) async fn doctor(flags: Flags, read_worker: ReadWorker) -> anyhow::Result<()> {
    flags.check()?;
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
            let file = file.display().to_string();
            // Faults in the file name it with their lines.
            let text = if why.contains(&file) { why } else { format!("{file}: {why}") };
            findings.push(Finding::fail("settings", text, next));
            None
        }
        None => None,
    };
    let server_args = server_args(&flags, worker.as_ref());
    let named_by = match (&worker, &flags.worker_settings, &flags.server) {
        (Some(_), ..) => Some(NamedBy::SettingsFile),
        // Without the settings of the worker its server is not known.
        (None, Some(_), _) => None,
        (None, None, Some(_)) => Some(NamedBy::Flag),
        (None, None, None) => Some(NamedBy::Nothing),
    };
    let mut of_server = Vec::new();
    if let Some(named_by) = named_by {
        of_server = connection::check(&server_args, named_by).await;
    }
    let server_fails = of_server.iter().any(|it| it.what == "server" && it.verdict == CheckStatus::Fail);
    findings.extend(of_server);
    match &worker {
        Some(worker) => {
            findings.extend(worker.check_token(&server_args, server_fails).await);
            if let Some(docker) = worker.docker() {
                findings.push(engine::check(docker).await);
            }
        }
        None => findings.push(engine::check(flags.docker.as_deref().unwrap_or(Path::new("docker"))).await),
    }
    tell(&findings, flags.output.format)?;
    match worst(&findings) {
        CheckStatus::Fail => Err(Failure::silent(Exit::Failed).into()),
        CheckStatus::Ok | CheckStatus::Warn => Ok(()),
    }
}

impl Flags {
    /// Refuses a second server beside that of the worker: its token must not get there. Variables do not come here with --config.
    fn check(&self) -> Result<(), Failure> {
        let certificate = &self.client_certificate;
        let rivals = [
            ("--server", self.server.is_some()),
            ("--ca-file", self.ca_file.is_some()),
            ("--tls-client-cert", certificate.tls_client_cert.is_some()),
            ("--tls-client-key", certificate.tls_client_key.is_some()),
            ("--docker", self.docker.is_some()),
        ];
        match rivals.iter().find(|(_, is_given)| *is_given && self.worker_settings.is_some()) {
            Some((flag, _)) => {
                let text = format!("{flag} and --config exclude each other");
                let hint = "with --config, the settings file names the server, its certificates and the docker program";
                Err(Failure::new(Exit::Usage, text).hint(hint))
            }
            None => Ok(()),
        }
    }
}

/// The server and its certificates: of the worker, or of the flags. The worker's token is not for the API.
fn server_args(flags: &Flags, worker: Option<&WorkerConnection>) -> ServerArgs {
    let token_file = flags.token_file.as_deref();
    match worker {
        Some(worker) => ServerArgs::new(
            Some(&worker.server),
            token_file,
            worker.ca_file.as_deref(),
            worker.client_certificate.clone(),
        ),
        None => ServerArgs::new(
            flags.server.as_deref(),
            token_file,
            flags.ca_file.as_deref(),
            flags.client_certificate.clone(),
        ),
    }
}

/// The worst verdict.
pub(crate) fn worst(findings: &[Finding]) -> CheckStatus {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(CheckStatus::Ok)
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
