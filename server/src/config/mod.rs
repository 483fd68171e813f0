//! The server's configuration: its settings and the jobs file.
//!
//! [`Settings`] are texts as flags and variables give them; [`Settings::check`] turns them into a [`Config`] or names the wrong one by flag
//! and variable. Inside of the server there are only parsed, valid values. The CLI decides between flags and `LONGSHORE_*`.

mod address;
mod auth_proxy;
mod error;
mod intervals;
mod job_counts;
pub mod jobs_file;
mod jobs_file_rules;
mod mail;
pub mod next_slots;
mod private_file;
mod retention;
mod tls;
mod token;
mod waiting;
mod worker_labels;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::order::Intervals;
use scheduler::{PriorityAgeing, ServerLimits};

use crate::auth::proxy::ProxyLogin;
use crate::listener::tls::TlsFiles;
use crate::notifications::addresses::AllowedNetworks;
use crate::notifications::mail::server::MailServer;
use crate::secrets::SecretsDir;
pub use address::BasePath;
pub use auth_proxy::AuthProxySettings;
pub use error::SettingsError;
pub use intervals::intervals;
pub use jobs_file_rules::{Deploys, FaultyJobsFile, RemovedDefinitions};
pub use mail::MailSettings;
pub use private_file::PrivateFileError;
pub use retention::{Retention, RetentionSettings};
pub use token::{Token, TokenError};
pub use worker_labels::WorkerLabels;

/// The server's settings as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `host:port` to listen on; port 0 takes a free one.
    pub listen: String,
    /// The data directory: store, logs and lock.
    pub data_dir: PathBuf,
    /// The path of jobs.yaml.
    pub jobs_file: PathBuf,
    /// A file with the API token.
    pub api_token_file: Option<PathBuf>,
    /// A file with the worker token.
    pub worker_token_file: Option<PathBuf>,
    /// Require tokens also on loopback, such as behind a proxy.
    pub require_tokens: bool,
    /// Listen beyond loopback without tokens.
    pub insecure_no_auth: bool,
    /// A reverse proxy that signs users in.
    pub auth_proxy: AuthProxySettings,
    /// A file with the certificate for TLS.
    pub tls_cert: Option<PathBuf>,
    /// A file with the key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// A file with the authorities that sign the certificates of clients.
    pub tls_client_ca: Option<PathBuf>,
    /// `required` or `optional`: treatment of clients without a certificate.
    pub tls_client_auth: Option<String>,
    /// A directory with the secrets of jobs.
    pub secrets_dir: Option<PathBuf>,
    /// A file with limits on what definitions may do.
    pub policy_file: Option<PathBuf>,
    /// A file with logins for registries.
    pub registries_file: Option<PathBuf>,
    /// The path prefix of all URLs; empty for none.
    pub base_path: String,
    /// Host names to accept beside the own address.
    pub allowed_hosts: Vec<String>,
    /// The URL of the server for people, for links in notifications.
    pub public_url: Option<String>,
    /// Networks to which notifications may be posted beside public addresses, such as `10.0.0.0/8`.
    pub allowed_webhooks: Vec<String>,
    /// The mail server for notifications.
    pub mail: MailSettings,
    /// The interval between two heartbeats of a worker.
    pub heartbeat: String,
    /// The duration of a worker's lease after a heartbeat.
    pub lease: String,
    /// The limit of jobs that have not ended.
    pub max_jobs: String,
    /// Jobs that may hold a worker at once; absent means no limit.
    pub max_running: Option<String>,
    /// Jobs that may wait for a worker or a limit; absent means no limit.
    pub max_queued: Option<String>,
    /// The time after which a waiting job gains a priority step; absent means that priorities do not grow.
    pub priority_ageing: Option<String>,
    /// The wait for resources after which a worker is set aside for a job, or `off`.
    pub set_aside_after: String,
    /// Labels that workers may claim: names separated by commas, each with `*` at its end if it is a beginning.
    pub worker_labels: String,
    /// Treatment of waiting jobs whose definition jobs.yaml no longer has.
    pub removed_definitions: RemovedDefinitions,
    /// The start of a server whose jobs file has faults.
    pub faulty_jobs_file: FaultyJobsFile,
    /// Replacement of the jobs file by a request.
    pub deploys: Deploys,
    /// Retention of jobs, output, keys and late reports.
    pub retention: RetentionSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            data_dir: PathBuf::from("longshore-data"),
            jobs_file: PathBuf::from("jobs.yaml"),
            api_token_file: None,
            worker_token_file: None,
            require_tokens: false,
            insecure_no_auth: false,
            auth_proxy: AuthProxySettings::default(),
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_client_auth: None,
            secrets_dir: None,
            policy_file: None,
            registries_file: None,
            base_path: String::new(),
            allowed_hosts: Vec::new(),
            public_url: None,
            allowed_webhooks: Vec::new(),
            mail: MailSettings::default(),
            heartbeat: "5s".to_owned(),
            lease: "30s".to_owned(),
            max_jobs: "5000000".to_owned(),
            max_running: None,
            max_queued: None,
            priority_ageing: None,
            set_aside_after: "10m".to_owned(),
            worker_labels: "*".to_owned(),
            removed_definitions: RemovedDefinitions::default(),
            faulty_jobs_file: FaultyJobsFile::default(),
            deploys: Deploys::default(),
            retention: RetentionSettings::default(),
        }
    }
}

/// The server's settings, parsed and valid.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// The data directory: store, logs and lock.
    pub data_dir: PathBuf,
    /// The path of jobs.yaml.
    pub jobs_file: PathBuf,
    /// The API token; without it the API is open.
    pub api_token: Option<Token>,
    /// The worker token; without it every worker may connect.
    pub worker_token: Option<Token>,
    /// True if every request needs a token, also if no token was given in a file.
    pub requires_tokens: bool,
    /// A reverse proxy that signs users in.
    pub proxy: Option<ProxyLogin>,
    /// Certificate and key for TLS; without them the server speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The secrets of jobs; without it there are none.
    pub secrets: Option<Arc<SecretsDir>>,
    /// The file of the policy; without it there are no rules.
    pub policy_file: Option<PathBuf>,
    /// The file with logins for registries; without it workers use their own.
    pub registries_file: Option<PathBuf>,
    /// The path prefix of all URLs.
    pub base_path: BasePath,
    /// Host names to accept beside the own address, in lower case.
    pub allowed_hosts: Vec<String>,
    /// The URL of the server for people, without a slash at its end.
    pub public_url: Option<String>,
    /// Networks to which notifications may be posted beside public addresses.
    pub webhook_networks: AllowedNetworks,
    /// The mail server for notifications; without it there is no e-mail.
    pub mail: Option<MailServer>,
    /// Heartbeat, lease and margins, as workers receive them.
    pub intervals: Intervals,
    /// The limit of jobs that have not ended.
    pub jobs_max: usize,
    /// Limits on the jobs that run, and on those that wait.
    pub server_limits: ServerLimits,
    /// Growth of the priority of waiting jobs.
    pub priority_ageing: PriorityAgeing,
    /// The wait for resources after which a worker is set aside for a job; never if absent.
    pub set_aside_after: Option<Duration>,
    /// Labels that workers may claim.
    pub worker_labels: WorkerLabels,
    /// Treatment of waiting jobs whose definition jobs.yaml no longer has.
    pub removed_definitions: RemovedDefinitions,
    /// The start of a server whose jobs file has faults.
    pub faulty_jobs_file: FaultyJobsFile,
    /// Replacement of the jobs file by a request.
    pub deploys: Deploys,
    /// Retention of jobs, output, keys and late reports.
    pub retention: Retention,
}

impl Config {
    /// True if tokens cross a network in plain text: the server warns at its start.
    #[must_use]
    pub fn is_plain_beyond_loopback(&self) -> bool {
        self.tls.is_none() && !self.listen.ip().is_loopback()
    }
}

impl Settings {
    /// Parses and checks the settings. Reads the token files, and lists the directory of secrets.
    ///
    /// # Errors
    /// The first wrong setting, and what to do about it.
    pub fn check(self) -> Result<Config, SettingsError> {
        let listen = address::listen(&self.listen)?;
        if self.require_tokens && self.insecure_no_auth {
            return Err(SettingsError::OpenAndClosed);
        }
        let proxy = self.auth_proxy.check()?;
        if proxy.is_some() && self.insecure_no_auth {
            return Err(SettingsError::OpenBehindProxy);
        }
        // With one token only, the other side shows tokens of the store. It must not be open because one file is missing.
        let has_one_token = self.api_token_file.is_some() != self.worker_token_file.is_some();
        if has_one_token && self.insecure_no_auth {
            return Err(SettingsError::OneToken);
        }
        let requires_tokens = self.require_tokens
            || proxy.is_some()
            || has_one_token
            || (!listen.ip().is_loopback() && !self.insecure_no_auth);
        let (api_token, worker_token) =
            token::read_both(self.api_token_file.as_deref(), self.worker_token_file.as_deref())?;
        let tls =
            tls::files(self.tls_cert, self.tls_key, self.tls_client_ca, self.tls_client_auth.as_deref())?;
        Ok(Config {
            listen,
            requires_tokens,
            proxy,
            tls,
            secrets: self.secrets_dir.map(secrets).transpose()?,
            policy_file: self.policy_file,
            registries_file: self.registries_file,
            intervals: intervals(&self.heartbeat, &self.lease)?,
            jobs_max: job_counts::job_count("--max-jobs", "LONGSHORE_MAX_JOBS", &self.max_jobs)?,
            server_limits: ServerLimits {
                running_max: job_counts::optional_count(
                    "--max-running",
                    "LONGSHORE_MAX_RUNNING",
                    self.max_running,
                )?,
                queued_max: job_counts::optional_count(
                    "--max-queued",
                    "LONGSHORE_MAX_QUEUED",
                    self.max_queued,
                )?,
            },
            priority_ageing: waiting::priority_ageing(self.priority_ageing.as_deref())?,
            set_aside_after: waiting::set_aside_after(&self.set_aside_after)?,
            removed_definitions: self.removed_definitions,
            faulty_jobs_file: self.faulty_jobs_file,
            deploys: self.deploys,
            worker_labels: WorkerLabels::parse(&self.worker_labels).map_err(|name| SettingsError::Value {
                flag: "--worker-labels",
                variable: "LONGSHORE_WORKER_LABELS",
                reason: format!("{name:?} is not the name of a label, such as zone or host/*"),
            })?,
            retention: self.retention.check()?,
            api_token,
            worker_token,
            base_path: BasePath::parse(&self.base_path)?,
            public_url: self.public_url.as_deref().map(address::public_url).transpose()?,
            webhook_networks: address::networks(&self.allowed_webhooks)?,
            mail: self.mail.check()?,
            allowed_hosts: self
                .allowed_hosts
                .iter()
                .map(|host| address::host(host))
                .collect::<Result<_, _>>()?,
            data_dir: self.data_dir,
            jobs_file: self.jobs_file,
        })
    }
}

fn secrets(path: PathBuf) -> Result<Arc<SecretsDir>, SettingsError> {
    let shown = path.display().to_string();
    SecretsDir::open(path).map(Arc::new).map_err(|error| SettingsError::Value {
        flag: "--secrets-dir",
        variable: "LONGSHORE_SECRETS_DIR",
        reason: format!("{shown} cannot be listed: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn refusal(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().expect_err("the settings are wrong").to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        let config = Settings::default().check().expect("the defaults");
        assert_eq!(config.intervals, Intervals::default());
        assert!(!config.is_plain_beyond_loopback());
    }

    #[test]
    fn a_wrong_port_is_named() {
        for port in ["0x", "70000", "", "-1"] {
            let text = refusal(|settings| settings.listen = format!("127.0.0.1:{port}"));
            assert!(text.starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")), "{text}");
        }
    }

    #[test]
    fn beyond_loopback_tokens_are_required_unless_they_are_switched_off() {
        let config = |listen: &str, require_tokens, insecure_no_auth| {
            let listen = listen.to_owned();
            let settings = Settings { listen, require_tokens, insecure_no_auth, ..Settings::default() };
            settings.check().expect("the settings")
        };
        for listen in ["0.0.0.0:0", "[::]:8080", "192.0.2.1:80"] {
            assert!(config(listen, false, false).requires_tokens);
            let open = config(listen, false, true);
            assert!(!open.requires_tokens && open.is_plain_beyond_loopback());
        }
        assert!(!config("127.0.0.1:0", false, false).requires_tokens);
        assert!(config("127.0.0.1:0", true, false).requires_tokens, "behind a proxy");
        let both = refusal(|settings| (settings.require_tokens, settings.insecure_no_auth) = (true, true));
        assert!(both.contains("exclude each other"), "{both}");
    }

    #[test]
    fn one_token_alone_makes_the_other_side_show_tokens_of_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "b7Qm2xT9kL4vR8nW1zC6yH3pD5sF0aGj").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let api = Settings { api_token_file: Some(file.clone()), ..Settings::default() };
        assert!(api.check().expect("the settings").requires_tokens, "also on loopback");
        let worker = Settings { worker_token_file: Some(file.clone()), ..Settings::default() };
        assert!(worker.check().expect("the settings").requires_tokens);
        let same = refusal(|settings| {
            settings.api_token_file = Some(file.clone());
            settings.worker_token_file = Some(file.clone());
        });
        assert!(same.contains("hold the same token: workers need one of their own"), "{same}");
        let worker = refusal(|settings| {
            settings.worker_token_file = Some(PathBuf::from("worker"));
            settings.listen = "0.0.0.0:0".to_owned();
            settings.insecure_no_auth = true;
        });
        assert!(
            worker.starts_with("only one of --api-token-file (LONGSHORE_API_TOKEN_FILE) and"),
            "{worker}"
        );
    }

    #[test]
    fn a_wrong_interval_names_its_variable_and_range() {
        let text = refusal(|settings| settings.lease = "banana".to_owned());
        assert!(text.contains("LONGSHORE_LEASE") && text.contains("1s to 30s"), "{text}");
        assert!(text.contains("\"banana\" is not a duration"), "{text}");
        let text = refusal(|settings| settings.heartbeat = "1h".to_owned());
        assert!(text.contains("LONGSHORE_HEARTBEAT") && text.contains("100ms to 10s"), "{text}");
        let text = refusal(|settings| {
            settings.heartbeat = "10s".to_owned();
            settings.lease = "15s".to_owned();
        });
        assert!(text.contains("3 heartbeats"), "{text}");
    }
}
