//! `longshore server`: a server's settings from flags, and its life.

use std::path::{Path, PathBuf};

use server::config::{Config, RetentionSettings, Settings, SettingsError};
use server::store::LoadError;
use server::{Server, ServerError};
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
use crate::telemetry::{self, Logging};
use crate::{settings, validate};

/// Run a server: accept jobs, hand them to workers, remember everything.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore server                                  on loopback, open to this machine
  longshore server --jobs /etc/longshore/jobs.yaml --data /var/lib/longshore
  longshore server --listen 0.0.0.0:8080 --api-token-file api.token --worker-token-file worker.token

SIGTERM and Ctrl-C let requests under way finish; jobs go on at their workers.")]
pub(crate) struct Flags {
    /// Where to listen: IP:PORT or localhost:PORT; port 0 takes a free one.
    #[arg(long, env = "LONGSHORE_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: String,
    #[command(flatten)]
    data: Data,
    /// The job definitions.
    #[arg(long, env = "LONGSHORE_JOBS", default_value = "jobs.yaml", value_name = "FILE")]
    jobs: PathBuf,
    /// The path under which everything is served, behind a proxy.
    #[arg(
        long,
        env = "LONGSHORE_BASE_PATH",
        default_value = "",
        value_name = "PATH",
        hide_default_value = true
    )]
    base_path: String,
    /// How often workers say that they are alive.
    #[arg(long, env = "LONGSHORE_HEARTBEAT", default_value = "5s", value_name = "DURATION")]
    heartbeat: String,
    /// After how long a silent worker counts as unreachable; its jobs then wait for their lost_after.
    #[arg(long, env = "LONGSHORE_LEASE", default_value = "30s", value_name = "DURATION")]
    lease: String,
    /// How many jobs may wait or run at once: beyond that no new ones are accepted. Each takes some 200 bytes of memory.
    #[arg(long, env = "LONGSHORE_MAX_JOBS", default_value = "5000000", value_name = "N")]
    max_jobs: String,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    file: settings::Settings,
    // Groups with a heading come last: the heading stands over all that follows.
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    retention: Retention,
}

/// The data directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Data {
    /// Where everything is kept, on a local disk [default: as root /var/lib/longshore, else ~/.local/share/longshore].
    #[arg(long, alias = "data-dir", env = "LONGSHORE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Data {
    /// Whether somebody has named one.
    pub(crate) const fn is_named(&self) -> bool {
        self.data.is_some()
    }

    /// The one that was named, or the usual one.
    pub(crate) fn directory(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(default_data)
    }
}

/// Who is let in.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Access")]
struct Access {
    /// A file with the token that the API asks for, readable by its owner only.
    #[arg(long, env = "LONGSHORE_API_TOKEN_FILE", value_name = "FILE")]
    api_token_file: Option<PathBuf>,
    /// A file with the token that workers are asked for, readable by its owner only.
    #[arg(long, env = "LONGSHORE_WORKER_TOKEN_FILE", value_name = "FILE")]
    worker_token_file: Option<PathBuf>,
    /// Listen beyond loopback without tokens: everybody who reaches the port may run everything.
    #[arg(long, env = "LONGSHORE_INSECURE_NO_AUTH")]
    insecure_no_auth: bool,
    /// Answer to this host name too. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_HOST", value_name = "HOST", value_delimiter = ',')]
    allow_host: Vec<String>,
}

/// What is kept how long. Nothing that has not ended is ever deleted.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Retention")]
struct Retention {
    /// How long jobs are kept after their end; or 'forever'.
    #[arg(long, env = "LONGSHORE_KEEP_JOBS", default_value = "30d", value_name = "DURATION")]
    keep_jobs: String,
    /// How many ended jobs are kept; or 'unlimited'. Those that ended first go first.
    #[arg(long, env = "LONGSHORE_KEEP_JOBS_MAX", default_value = "10000000", value_name = "N")]
    keep_jobs_max: String,
    /// How much output of all jobs together is kept; or 'unlimited'. Output goes with its job; beyond this size the oldest goes
    /// before its job.
    #[arg(long, env = "LONGSHORE_KEEP_OUTPUT_MAX", default_value = "10g", value_name = "SIZE")]
    keep_output_max: String,
    /// How long idempotency keys are kept.
    #[arg(long, env = "LONGSHORE_KEEP_KEYS", default_value = "7d", value_name = "DURATION")]
    keep_keys: String,
    /// How long late reports are kept, if their job is.
    #[arg(long, env = "LONGSHORE_KEEP_LATE_REPORTS", default_value = "30d", value_name = "DURATION")]
    keep_late_reports: String,
}

impl From<Retention> for RetentionSettings {
    fn from(flags: Retention) -> Self {
        Self {
            jobs: flags.keep_jobs,
            jobs_max: flags.keep_jobs_max,
            output_max: flags.keep_output_max,
            keys: flags.keep_keys,
            late_reports: flags.keep_late_reports,
        }
    }
}

/// Runs the server until it is told to leave.
pub(crate) fn server(flags: Flags) -> anyhow::Result<()> {
    telemetry::start(&flags.logging)?;
    keep_to_ourselves();
    flags.file.tell();
    let config = config(Settings {
        listen: flags.listen,
        data_dir: flags.data.directory(),
        jobs_file: flags.jobs,
        api_token_file: flags.access.api_token_file,
        worker_token_file: flags.access.worker_token_file,
        insecure_no_auth: flags.access.insecure_no_auth,
        base_path: flags.base_path,
        allowed_hosts: flags.access.allow_host,
        heartbeat: flags.heartbeat,
        lease: flags.lease,
        max_jobs: flags.max_jobs,
        retention: flags.retention.into(),
    })?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let mut terms = client::terms()?;
        let leaving = CancellationToken::new();
        let running = start(config, leaving.clone()).await?.run();
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended.map_err(told),
            _ = terms.recv() => leaving.cancel(),
        }
        tracing::info!("leaving: requests under way finish; another signal ends at once");
        tokio::select! {
            ended = running => ended.map_err(told),
            _ = terms.recv() => Err(Failure::silent(Exit::Interrupted).into()),
        }
    })
}

/// From here on, what this process makes is for its user alone: environments and output may hold secrets. Not for a process that starts
/// others' programs, which would inherit it.
pub(crate) fn keep_to_ourselves() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Opens everything, and says where it listens.
pub(crate) async fn start(config: Config, leaving: CancellationToken) -> anyhow::Result<Server> {
    if config.is_plain_beyond_loopback() {
        tracing::warn!("plain HTTP beyond loopback: tokens and output can be read on the way");
    }
    let data = config.data_dir.clone();
    let server = Server::start(config, leaving).await.map_err(|error| cannot_start(error, &data))?;
    tracing::info!("listening on http://{}", server.address());
    Ok(server)
}

/// Likewise [`told`]; what is wrong with a store is better looked at than guessed.
fn cannot_start(error: ServerError, data: &Path) -> anyhow::Error {
    match error {
        ServerError::Store(error) if !matches!(error, LoadError::Foreign(_)) => {
            let hint = format!("'longshore doctor --data {}' tells more", data.display());
            Failure::new(Exit::Failed, format!("{:#}", anyhow::Error::new(error))).hint(hint).into()
        }
        other => told(other),
    }
}

/// An error of the server's as the end of a verb.
pub(crate) fn told(error: ServerError) -> anyhow::Error {
    match error {
        ServerError::JobsFile(faults) => validate::refuse(&faults).into(),
        other => other.into(),
    }
}

/// Checks settings.
fn config(settings: Settings) -> anyhow::Result<Config> {
    settings.check().map_err(wrong)
}

/// A setting that is wrong as the end of a verb.
pub(crate) fn wrong(wrong: SettingsError) -> anyhow::Error {
    Failure::new(Exit::Usage, format!("{:#}", anyhow::Error::new(wrong))).into()
}

fn default_data() -> PathBuf {
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) if !rustix::process::geteuid().is_root() => {
            PathBuf::from(home).join(".local/share/longshore")
        }
        _ => PathBuf::from("/var/lib/longshore"),
    }
}
