//! `longshore upgrade-check`: says whether this program can take over from the one that runs, before it is installed. It changes nothing.
//!
//! It looks at the data directory, the units and settings in use, the jobs file, and the running server with its workers.

mod running;
mod unit;

use std::path::{Path, PathBuf};

use server::config::jobs_file::{self, Environment};
use server::doctor::{self, CheckStatus, Finding};

use crate::args::{OutputArgs, ServerArgs};
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, Failure};
use crate::server::CheckedFiles;

/// Check whether this program can take over from the installed one. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Run the new program, before it is installed, as the server's user:
  ./longshore upgrade-check --data /var/lib/longshore --jobs /etc/longshore/jobs.yaml
  ./longshore upgrade-check --unit /lib/systemd/system/longshore-server.service
  ./longshore upgrade-check --server jobs.example:8080 --token-file api.token

A unit brings the data directory, the settings and the jobs file that its ExecStart names. Only what
is given is checked; the server may be running. Each line that is not ok has a next step.
Exit code 0: nothing prevents the upgrade; 1: something does, or with --strict there is a warning.")]
pub(crate) struct Flags {
    /// The data directory of the server.
    #[arg(long, env = "LONGSHORE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// The jobs file of the server, or its directory of jobs files.
    #[arg(long, env = "LONGSHORE_JOBS", value_name = "PATH")]
    jobs: Option<PathBuf>,
    /// A systemd unit of a server or a worker: its flags and settings must be known to this program. May be repeated.
    #[arg(long, value_name = "FILE")]
    unit: Vec<PathBuf>,
    /// The running server: HOST:PORT, with the base path if it has one, or a URL.
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
    /// Fail also if there is only a warning.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Checks what is given, and prints the findings.
pub(crate) async fn check(flags: Flags, parse: unit::ParseWords) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    let mut servers = Vec::new();
    for file in &flags.unit {
        let (found, files) = unit::check(file, parse);
        findings.extend(found);
        servers.extend(files);
    }
    let mut directories: Vec<PathBuf> = flags.data.iter().cloned().collect();
    for files in &servers {
        if !directories.contains(&files.data) {
            directories.push(files.data.clone());
        }
        findings.push(check_jobs(files));
    }
    if let Some(jobs) = flags.jobs.filter(|jobs| servers.iter().all(|files| files.jobs != *jobs)) {
        findings.push(check_jobs(&with_defaults(jobs)));
    }
    findings.splice(0..0, directories.iter().flat_map(|data| doctor::examine_upgrade(data)));
    if let Some(address) = &flags.server {
        let server_args = ServerArgs::new(
            Some(address),
            flags.token_file.as_deref(),
            flags.ca_file.as_deref(),
            flags.client_certificate,
        );
        findings.extend(running::check(&server_args).await);
    }
    if findings.is_empty() {
        return Err(Failure::new(Exit::Usage, "nothing is given that could be checked")
            .hint("use --data, --jobs, --unit or --server; see 'longshore upgrade-check --help'")
            .into());
    }
    crate::doctor::tell(&findings, flags.output.format)?;
    let worst = crate::doctor::worst(&findings);
    let is_refused = worst == CheckStatus::Fail || (flags.strict && worst == CheckStatus::Warn);
    if is_refused { Err(Failure::silent(Exit::Failed).into()) } else { Ok(()) }
}

/// A jobs file of a server with the default intervals.
fn with_defaults(jobs: PathBuf) -> CheckedFiles {
    let [heartbeat, lease] = ["5s", "30s"].map(str::to_owned);
    CheckedFiles { data: PathBuf::new(), jobs, heartbeat, lease, policy: None }
}

/// Checks a jobs file as this program would at its start.
fn check_jobs(files: &CheckedFiles) -> Finding {
    let next = format!("'longshore validate {}' of this program shows all faults", files.jobs.display());
    let fail = |text: String| Finding::fail("jobs", text, next.clone());
    let intervals = match server::config::intervals(&files.heartbeat, &files.lease) {
        Ok(intervals) => intervals,
        Err(error) => return fail(error.to_string()),
    };
    let policy = match server::policy::load_optional(files.policy.as_deref()) {
        Ok(policy) => policy,
        Err(error) => return fail(error.to_string()),
    };
    let environment = Environment::of_process().with_intervals(intervals).with_policy(policy);
    judge_jobs(&files.jobs, jobs_file::load(&files.jobs, &environment), next)
}

fn judge_jobs(
    file: &Path,
    loaded: Result<jobs_file::LoadedFile, jobs_file::Faults>,
    next: String,
) -> Finding {
    let shown = file.display();
    match loaded {
        Ok(loaded) if loaded.warnings.is_empty() => {
            Finding::ok("jobs", format!("{shown}: {} definitions are valid", loaded.definitions.len()))
        }
        Ok(loaded) => {
            Finding::warn("jobs", format!("{shown}: valid, with {} warnings", loaded.warnings.len()), next)
        }
        Err(faults) => {
            let count = faults.count();
            let first = faults.list.first().map(|fault| fault.text.clone()).unwrap_or_default();
            Finding::fail("jobs", format!("{shown}: {count} faults, the first: {first}"), next)
        }
    }
}
