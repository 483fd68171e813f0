//! `longshore server`: the flags of a server, its start and its shutdown.

mod retention;

use std::path::{Path, PathBuf};

use server::config::{Config, Deploys, MailSettings, Settings, SettingsError};
use server::store::LoadError;
use server::{Server, ServerError};
use tokio_util::sync::CancellationToken;

use retention::RetentionArgs;

use crate::auth_proxy::AuthProxyArgs;
use crate::failure::{Exit, Failure};
use crate::logging::{self, LoggingArgs};
use crate::{api_token, core_dumps, hangup, settings, systemd, validate};

/// Run a server: accept jobs, store them, and send them to workers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore server                                  on loopback, for this machine only
  longshore server --jobs /etc/longshore/jobs.yaml --data /var/lib/longshore
  longshore server --listen 0.0.0.0:8080 --api-token-file api.token --worker-token-file worker.token

On SIGTERM or Ctrl-C, requests in progress finish; jobs continue on their workers.
On SIGHUP, jobs.yaml is read again, as by 'longshore reload'.")]
pub(crate) struct Flags {
    /// Address to listen on: IP:PORT or localhost:PORT; port 0 takes a free one.
    #[arg(long, env = "LONGSHORE_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: String,
    #[command(flatten)]
    data: DataArgs,
    /// File with the job definitions, or a directory of such files (*.yaml, *.yml).
    #[arg(long, env = "LONGSHORE_JOBS", default_value = "jobs.yaml", value_name = "PATH")]
    jobs: PathBuf,
    /// Reload the job definitions when their file or directory changes. A file with faults changes nothing.
    #[arg(long, env = "LONGSHORE_WATCH_JOBS")]
    watch_jobs: bool,
    /// Let operators replace the jobs file by 'longshore deploy'. They can then run any image, with any secret, that a policy does not forbid.
    #[arg(long, env = "LONGSHORE_ALLOW_DEPLOY")]
    allow_deploy: bool,
    /// Path prefix of all URLs, for a server behind a proxy.
    #[arg(
        long,
        env = "LONGSHORE_BASE_PATH",
        default_value = "",
        value_name = "PATH",
        hide_default_value = true
    )]
    base_path: String,
    /// Interval at which workers send heartbeats.
    #[arg(long, env = "LONGSHORE_HEARTBEAT", default_value = "5s", value_name = "DURATION")]
    heartbeat: String,
    /// A worker that is silent for this long counts as unreachable; its jobs then wait for their lost_after.
    #[arg(long, env = "LONGSHORE_LEASE", default_value = "30s", value_name = "DURATION")]
    lease: String,
    /// Number of jobs that may wait or run at once; beyond it, new jobs are refused. Each takes about 200 bytes of memory.
    #[arg(long, env = "LONGSHORE_MAX_JOBS", default_value = "5000000", value_name = "N")]
    max_jobs: String,
    /// Number of jobs that may run at once, on all workers together; unlimited if absent. With it nothing is prefetched.
    #[arg(long, env = "LONGSHORE_MAX_RUNNING", value_name = "N")]
    max_running: Option<String>,
    /// Number of jobs that may wait for a worker or a limit; beyond it, new jobs are refused; unlimited if absent.
    #[arg(long, env = "LONGSHORE_MAX_QUEUED", value_name = "N")]
    max_queued: Option<String>,
    /// A waiting job gains a priority step for each such time that it waits, so that low priorities do not wait for ever; off if absent.
    #[arg(long, env = "LONGSHORE_PRIORITY_AGEING", value_name = "DURATION")]
    priority_ageing: Option<String>,
    /// When a job has waited for so long for resources, a worker gets no later job that needs the same until it has room; or off.
    #[arg(long, env = "LONGSHORE_SET_ASIDE_AFTER", default_value = "10m", value_name = "DURATION")]
    set_aside_after: String,
    /// Labels that workers may claim with --label: names, or beginnings with *; others are set by 'longshore label'.
    #[arg(long, env = "LONGSHORE_WORKER_LABELS", default_value = "*", value_name = "KEYS")]
    worker_labels: String,
    /// Waiting jobs of a definition that was removed from jobs.yaml: run them as they were submitted, or cancel them.
    #[arg(long, env = "LONGSHORE_REMOVED_DEFINITIONS", value_enum, default_value_t, value_name = "WHAT")]
    removed_definitions: RemovedDefinitions,
    /// Start of a server whose jobs.yaml has faults: with the definitions that it accepted last, or not at all.
    #[arg(long, env = "LONGSHORE_FAULTY_JOBS_FILE", value_enum, default_value_t, value_name = "WHAT")]
    faulty_jobs_file: FaultyJobsFile,
    /// URL of the dashboard as people write it, for links in notifications.
    #[arg(long, env = "LONGSHORE_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Post notifications also to this network, such as 10.0.0.0/8; without it only to public addresses. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_WEBHOOK", value_name = "CIDR", value_delimiter = ',')]
    allow_webhook: Vec<String>,
    #[command(flatten)]
    logging: LoggingArgs,
    #[command(flatten)]
    pub(crate) file: settings::Settings,
    // clap puts the heading of a group above all flags that follow, so groups come last.
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    auth_proxy: AuthProxyArgs,
    #[command(flatten)]
    mail: MailArgs,
    #[command(flatten)]
    retention: RetentionArgs,
}

/// Treatment of waiting jobs whose definition is not in jobs.yaml any more.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum RemovedDefinitions {
    /// Run them as they were submitted
    #[default]
    Run,
    /// Cancel them
    Cancel,
}

impl From<RemovedDefinitions> for server::config::RemovedDefinitions {
    fn from(chosen: RemovedDefinitions) -> Self {
        match chosen {
            RemovedDefinitions::Run => Self::Run,
            RemovedDefinitions::Cancel => Self::Cancel,
        }
    }
}

/// Start of a server whose jobs file has faults.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum FaultyJobsFile {
    /// Start with the definitions that were accepted last; if there are none, refuse
    #[default]
    UseLast,
    /// Refuse to start
    Refuse,
}

impl From<FaultyJobsFile> for server::config::FaultyJobsFile {
    fn from(chosen: FaultyJobsFile) -> Self {
        match chosen {
            FaultyJobsFile::UseLast => Self::UseLast,
            FaultyJobsFile::Refuse => Self::Refuse,
        }
    }
}

impl Flags {
    /// The data directory, the jobs file and what its check depends on.
    pub(crate) fn checked_files(self) -> CheckedFiles {
        CheckedFiles {
            data: self.data.directory(),
            jobs: self.jobs,
            heartbeat: self.heartbeat,
            lease: self.lease,
            policy: self.access.policy,
        }
    }
}

/// The files of a server that an upgrade has to be able to read.
#[derive(Debug)]
pub(crate) struct CheckedFiles {
    pub(crate) data: PathBuf,
    pub(crate) jobs: PathBuf,
    pub(crate) heartbeat: String,
    pub(crate) lease: String,
    pub(crate) policy: Option<PathBuf>,
}

/// The data directory.
#[derive(Debug, clap::Args)]
pub(crate) struct DataArgs {
    /// Data directory, on a local disk [default: as root /var/lib/longshore, else ~/.local/share/longshore].
    #[arg(long, alias = "data-dir", env = "LONGSHORE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
}

impl DataArgs {
    /// Returns true if the flag or its variable was given.
    pub(crate) const fn is_given(&self) -> bool {
        self.data.is_some()
    }

    /// The given directory, or the default.
    pub(crate) fn directory(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(default_data)
    }
}

/// Access control.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Access")]
struct AccessArgs {
    /// File with the API token, readable by its owner only.
    #[arg(long, env = api_token::VARIABLE, value_name = "FILE")]
    api_token_file: Option<PathBuf>,
    /// File with the token for workers, readable by its owner only.
    #[arg(long, env = "LONGSHORE_WORKER_TOKEN_FILE", value_name = "FILE")]
    worker_token_file: Option<PathBuf>,
    /// Require a token from every client also on loopback, such as behind a proxy; beyond loopback the server does so in any case.
    #[arg(long, env = "LONGSHORE_REQUIRE_TOKENS")]
    require_tokens: bool,
    /// Listen beyond loopback without tokens: everyone who reaches the port can run anything.
    #[arg(long, env = "LONGSHORE_INSECURE_NO_AUTH")]
    insecure_no_auth: bool,
    /// Speak TLS with this certificate: a PEM file, the server's own first, then the authorities in between.
    #[arg(long, env = "LONGSHORE_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate: a PEM file, not readable by everyone. Both files are read again when they change.
    #[arg(long, env = "LONGSHORE_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Ask clients for a certificate that an authority in this PEM file has signed. It is read again when it changes.
    #[arg(long, env = "LONGSHORE_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Treatment of clients without a certificate: required refuses them, optional lets them in [default: required].
    #[arg(long, env = "LONGSHORE_TLS_CLIENT_AUTH", value_name = "HOW")]
    tls_client_auth: Option<String>,
    /// Directory with the secrets of jobs, a file each. They are read for each attempt and sent over TLS or loopback only.
    #[arg(long, env = "LONGSHORE_SECRETS_DIR", value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
    /// File with limits on what definitions may do: images, volumes, networks, users, resources. It is read again with the jobs file.
    #[arg(long, env = "LONGSHORE_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// File with logins for private registries. The worker that pulls an image gets the login of its registry, over TLS or loopback only.
    #[arg(long, env = "LONGSHORE_REGISTRIES", value_name = "FILE")]
    registries: Option<PathBuf>,
    /// Also answer to this host name. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_HOST", value_name = "HOST", value_delimiter = ',')]
    allow_host: Vec<String>,
}

/// E-mail.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "E-mail")]
struct MailArgs {
    /// Mail server for notifications: smtp://HOST with STARTTLS, smtps://HOST with TLS, smtp+plain://HOST without encryption.
    #[arg(long, env = "LONGSHORE_SMTP", value_name = "URL")]
    smtp: Option<String>,
    /// Sender of e-mail, such as 'Longshore <longshore@example.org>'.
    #[arg(long, env = "LONGSHORE_SMTP_FROM", value_name = "ADDRESS")]
    smtp_from: Option<String>,
    /// User at the mail server.
    #[arg(long, env = "LONGSHORE_SMTP_USER", value_name = "NAME")]
    smtp_user: Option<String>,
    /// File with the password of that user, readable by its owner only.
    #[arg(long, env = "LONGSHORE_SMTP_PASSWORD_FILE", value_name = "FILE")]
    smtp_password_file: Option<PathBuf>,
}

impl From<MailArgs> for MailSettings {
    fn from(flags: MailArgs) -> Self {
        Self {
            server: flags.smtp,
            from: flags.smtp_from,
            user: flags.smtp_user,
            password_file: flags.smtp_password_file,
        }
    }
}

/// Runs the server until a signal.
pub(crate) fn server(flags: Flags) -> anyhow::Result<()> {
    logging::start(&flags.logging)?;
    restrict_umask();
    core_dumps::forbid();
    flags.file.log_source();
    let (api, worker) = (&flags.access.api_token_file, &flags.access.worker_token_file);
    api_token::warn_of_client_token(api.as_deref(), worker.as_deref());
    let config = config(Settings {
        listen: flags.listen,
        data_dir: flags.data.directory(),
        jobs_file: flags.jobs,
        api_token_file: flags.access.api_token_file,
        worker_token_file: flags.access.worker_token_file,
        require_tokens: flags.access.require_tokens,
        insecure_no_auth: flags.access.insecure_no_auth,
        auth_proxy: flags.auth_proxy.into(),
        tls_cert: flags.access.tls_cert,
        tls_key: flags.access.tls_key,
        tls_client_ca: flags.access.tls_client_ca,
        tls_client_auth: flags.access.tls_client_auth,
        secrets_dir: flags.access.secrets_dir,
        policy_file: flags.access.policy,
        registries_file: flags.access.registries,
        base_path: flags.base_path,
        allowed_hosts: flags.access.allow_host,
        public_url: flags.public_url,
        allowed_webhooks: flags.allow_webhook,
        mail: flags.mail.into(),
        heartbeat: flags.heartbeat,
        lease: flags.lease,
        max_jobs: flags.max_jobs,
        max_running: flags.max_running,
        max_queued: flags.max_queued,
        priority_ageing: flags.priority_ageing,
        set_aside_after: flags.set_aside_after,
        worker_labels: flags.worker_labels,
        removed_definitions: flags.removed_definitions.into(),
        faulty_jobs_file: flags.faulty_jobs_file.into(),
        deploys: if flags.allow_deploy { Deploys::Allowed } else { Deploys::Refused },
        retention: flags.retention.into(),
    })?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let mut signals = systemd::announce_stop(client::shutdown_signals()?);
        let shutdown = CancellationToken::new();
        let hangups = hangup::listen()?;
        let server = start(config, shutdown.clone()).await?;
        systemd::report(server.last_turn());
        tokio::spawn(hangup::reload_at_each(hangups, server.reloader()));
        if flags.watch_jobs {
            let (reloader, shutdown) = (server.reloader(), shutdown.clone());
            tokio::spawn(async move { reloader.watch(shutdown).await });
        }
        let running = server.run();
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended.map_err(failure_from),
            _ = signals.recv() => shutdown.cancel(),
        }
        tracing::info!("shutting down: requests in progress finish; a second signal exits at once");
        tokio::select! {
            ended = running => ended.map_err(failure_from),
            _ = signals.recv() => Err(Failure::silent(Exit::Interrupted).into()),
        }
    })
}

/// Restricts the files of this process to its user, because environments and output may contain secrets. Not for workers, whose child
/// processes would inherit the umask.
pub(crate) fn restrict_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Starts the server and logs its address.
pub(crate) async fn start(config: Config, shutdown: CancellationToken) -> anyhow::Result<Server> {
    if config.is_plain_beyond_loopback() {
        tracing::warn!(
            "plain HTTP beyond loopback: tokens and output can be read on the network; --tls-cert and --tls-key encrypt it"
        );
    }
    let data = config.data_dir.clone();
    let server = Server::start(config, shutdown).await.map_err(|error| cannot_start(error, &data))?;
    tracing::info!("listening on {}", server.url());
    Ok(server)
}

/// As [`failure_from`], with a hint to run the doctor if the database cannot be used.
fn cannot_start(error: ServerError, data: &Path) -> anyhow::Error {
    match error {
        ServerError::Store(error) if !matches!(error, LoadError::Foreign(_)) => {
            let hint = format!("'longshore doctor --data {}' shows details", data.display());
            Failure::new(Exit::Failed, format!("{:#}", anyhow::Error::new(error))).hint(hint).into()
        }
        error @ (ServerError::Policy(_) | ServerError::Registries(_) | ServerError::Tls(_)) => {
            Failure::new(Exit::Usage, format!("{:#}", anyhow::Error::new(error))).into()
        }
        other => failure_from(other),
    }
}

/// Converts a server error into a failure.
pub(crate) fn failure_from(error: ServerError) -> anyhow::Error {
    match error {
        ServerError::JobsFile(faults) => validate::refuse(&faults).into(),
        other => other.into(),
    }
}

/// Checks the settings.
fn config(settings: Settings) -> anyhow::Result<Config> {
    settings.check().map_err(usage_failure)
}

/// Converts a wrong setting into a failure.
pub(crate) fn usage_failure(wrong: SettingsError) -> anyhow::Error {
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
