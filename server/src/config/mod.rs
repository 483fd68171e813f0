//! What the server is told from outside: its settings, and the jobs file.
//!
//! [`Settings`] are words as flags and variables give them; [`Settings::check`] turns them into a [`Config`], or says which one is
//! wrong, by the names that people know it by. Inside of the server there are only parsed, valid values. Where settings come from
//! (flags, then `LONGSHORE_*`) is no concern of this module.

mod address;
pub mod jobs_file;
mod retention;
mod token;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use protocol::order::Intervals;

pub use address::BasePath;
use jobs_file::quantity;
pub use retention::{Retention, RetentionSettings};
pub use token::{Token, TokenError};

/// The server's settings as they are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `host:port` to listen on; port 0 takes a free one.
    pub listen: String,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// The definitions.
    pub jobs_file: PathBuf,
    /// A file with the token for the interface.
    pub api_token_file: Option<PathBuf>,
    /// A file with the token for workers.
    pub worker_token_file: Option<PathBuf>,
    /// Listen beyond loopback without tokens.
    pub insecure_no_auth: bool,
    /// The path under which everything is served; empty for none.
    pub base_path: String,
    /// Host names to answer to beside the own address.
    pub allowed_hosts: Vec<String>,
    /// Between two heartbeats of a worker.
    pub heartbeat: String,
    /// How long a worker's lease lasts after a heartbeat.
    pub lease: String,
    /// How many jobs may wait or run at once.
    pub max_jobs: String,
    /// What is kept how long.
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
            insecure_no_auth: false,
            base_path: String::new(),
            allowed_hosts: Vec::new(),
            heartbeat: "5s".to_owned(),
            lease: "30s".to_owned(),
            max_jobs: "5000000".to_owned(),
            retention: RetentionSettings::default(),
        }
    }
}

/// The server's settings, parsed and valid.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// The definitions.
    pub jobs_file: PathBuf,
    /// What the interface asks for; absent: it is open.
    pub api_token: Option<Token>,
    /// What workers are asked for; absent: nothing.
    pub worker_token: Option<Token>,
    /// The path under which everything is served.
    pub base_path: BasePath,
    /// Host names to answer to beside the own address, in lower case.
    pub allowed_hosts: Vec<String>,
    /// Times that the server and its workers keep.
    pub intervals: Intervals,
    /// How many jobs that have not ended there may be.
    pub jobs_max: usize,
    /// What is kept how long.
    pub retention: Retention,
}

impl Config {
    /// Whether tokens cross a network in plain text: worth a warning at start.
    #[must_use]
    pub fn is_plain_beyond_loopback(&self) -> bool {
        !self.listen.ip().is_loopback()
    }
}

impl Settings {
    /// Parses and checks them. Reads the token files.
    ///
    /// # Errors
    /// The first setting that is wrong, and what to do about it.
    pub fn check(self) -> Result<Config, SettingsError> {
        let listen = address::listen(&self.listen)?;
        let has_tokens = self.api_token_file.is_some() && self.worker_token_file.is_some();
        if !listen.ip().is_loopback() && !has_tokens && !self.insecure_no_auth {
            return Err(SettingsError::OpenBeyondLoopback);
        }
        match (&self.api_token_file, &self.worker_token_file) {
            (Some(_), None) => return Err(SettingsError::OneToken(API_TOKEN_FILE, WORKER_TOKEN_FILE)),
            (None, Some(_)) => return Err(SettingsError::OneToken(WORKER_TOKEN_FILE, API_TOKEN_FILE)),
            (Some(_), Some(_)) | (None, None) => {}
        }
        Ok(Config {
            listen,
            intervals: intervals(&self.heartbeat, &self.lease)?,
            jobs_max: jobs_max(&self.max_jobs)?,
            retention: self.retention.check()?,
            api_token: self.api_token_file.as_deref().map(token::read).transpose()?,
            worker_token: self.worker_token_file.as_deref().map(token::read).transpose()?,
            base_path: BasePath::parse(&self.base_path)?,
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

/// A setting is wrong.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// `--listen` is no address.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Everybody on the network could run what they like.
    #[error(
        "refusing to listen beyond loopback without tokens; use --api-token-file and --worker-token-file, or --insecure-no-auth"
    )]
    OpenBeyondLoopback,
    /// One door would be locked and the other one open: whoever may be a worker is given every job, with its secrets.
    #[error("{0} is given and {1} is not: the other half would be open to everybody; give both, or neither")]
    OneToken(&'static str, &'static str),
    /// A token file is no good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A setting is not what its name asks for.
    #[error("{flag} ({variable}): {reason}")]
    Value {
        /// Its flag.
        flag: &'static str,
        /// Its environment variable.
        variable: &'static str,
        /// What is wrong with it, with its limits.
        reason: String,
    },
}

fn intervals(heartbeat: &str, lease: &str) -> Result<Intervals, SettingsError> {
    let value = |flag, variable, reason| SettingsError::Value { flag, variable, reason };
    let heartbeat = quantity::duration(heartbeat, HEARTBEAT_MIN, HEARTBEAT_MAX)
        .map_err(|wrong| value("--heartbeat", "LONGSHORE_HEARTBEAT", wrong.to_string()))?;
    let lease = quantity::duration(lease, LEASE_MIN, LEASE_MAX)
        .map_err(|wrong| value("--lease", "LONGSHORE_LEASE", wrong.to_string()))?;
    if lease < heartbeat * HEARTBEATS_PER_LEASE {
        let reason = format!("it must be at least {HEARTBEATS_PER_LEASE} heartbeats of {heartbeat:?}");
        return Err(value("--lease", "LONGSHORE_LEASE", reason));
    }
    Ok(Intervals { heartbeat, lease, start_gate: lease / START_GATES_PER_LEASE })
}

fn jobs_max(text: &str) -> Result<usize, SettingsError> {
    text.parse().ok().filter(|count| JOBS_MAX.contains(count)).ok_or_else(|| SettingsError::Value {
        flag: "--max-jobs",
        variable: "LONGSHORE_MAX_JOBS",
        reason: format!("\"{text}\" is not a number from {} to {}", JOBS_MAX.start(), JOBS_MAX.end()),
    })
}

const API_TOKEN_FILE: &str = "--api-token-file (LONGSHORE_API_TOKEN_FILE)";
const WORKER_TOKEN_FILE: &str = "--worker-token-file (LONGSHORE_WORKER_TOKEN_FILE)";

const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
const HEARTBEAT_MAX: Duration = Duration::from_secs(10);
const LEASE_MIN: Duration = Duration::from_secs(1);
/// What the defaults of jobs are made for; a shorter one is for tests.
const LEASE_MAX: Duration = Duration::from_secs(30);
/// Two heartbeats may go astray.
const HEARTBEATS_PER_LEASE: u32 = 3;
/// Clocks may differ in their pace by 5 % each way, over a whole lease.
const START_GATES_PER_LEASE: u32 = 10;

/// The most of them take 20 GB of memory, at some 200 bytes each.
const JOBS_MAX: RangeInclusive<usize> = 1..=100_000_000;

#[cfg(test)]
mod tests {
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
    fn a_limit_of_jobs_that_is_none_is_told_with_its_range() {
        for limit in ["0", "-1", "many", "100000001", "5e6"] {
            let text = refusal(|settings| settings.max_jobs = limit.to_owned());
            assert!(
                text.starts_with("--max-jobs (LONGSHORE_MAX_JOBS): ") && text.contains("from 1 to 100000000"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_wrong_port_is_named() {
        for port in ["0x", "70000", "", "-1"] {
            let text = refusal(|settings| settings.listen = format!("127.0.0.1:{port}"));
            assert!(text.starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")), "{text}");
        }
    }

    #[test]
    fn beyond_loopback_needs_both_tokens_or_so_many_words() {
        let expected = "refusing to listen beyond loopback without tokens; use --api-token-file and \
                        --worker-token-file, or --insecure-no-auth";
        for listen in ["0.0.0.0:0", "[::]:8080", "192.0.2.1:80"] {
            assert_eq!(refusal(|settings| settings.listen = listen.to_owned()), expected);
            let one_token = |settings: &mut Settings| {
                settings.listen = listen.to_owned();
                settings.api_token_file = Some(PathBuf::from("api"));
            };
            assert_eq!(refusal(one_token), expected);
            let open =
                Settings { listen: listen.to_owned(), insecure_no_auth: true, ..Settings::default() }.check();
            assert!(open.is_ok_and(|config| config.is_plain_beyond_loopback()));
        }
    }

    #[test]
    fn one_token_alone_is_refused_wherever_the_server_listens() {
        let api = refusal(|settings| settings.api_token_file = Some(PathBuf::from("api")));
        assert!(
            api.starts_with("--api-token-file (LONGSHORE_API_TOKEN_FILE) is given and --worker"),
            "{api}"
        );
        let worker = refusal(|settings| {
            settings.worker_token_file = Some(PathBuf::from("worker"));
            settings.listen = "0.0.0.0:0".to_owned();
            settings.insecure_no_auth = true;
        });
        assert!(worker.contains("and --api-token-file (LONGSHORE_API_TOKEN_FILE) is not"), "{worker}");
        assert!(worker.ends_with("give both, or neither"), "{worker}");
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
