//! Wrong settings, each named by its flag.

use super::{PrivateFileError, TokenError};

/// A setting is wrong.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// `--listen` is not an address.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address as given.
        address: String,
        /// The fault.
        reason: &'static str,
    },
    /// Tokens are both required and switched off.
    #[error("--require-tokens and --insecure-no-auth exclude each other")]
    OpenAndClosed,
    /// Users are signed in by a proxy, and everybody else may do everything.
    #[error("--auth-proxy-header and --insecure-no-auth exclude each other")]
    OpenBehindProxy,
    /// Only one of two tokens is given. Every client that may act as a worker receives every job with its secrets.
    #[error(
        "only one of --api-token-file (LONGSHORE_API_TOKEN_FILE) and --worker-token-file (LONGSHORE_WORKER_TOKEN_FILE) is given, and \
         --insecure-no-auth would open the other side to everybody: give the other token file too, or leave out --insecure-no-auth"
    )]
    OneToken,
    /// Only one of certificate and key is given.
    #[error("{given} is given and {missing} is not: TLS needs a certificate and its key")]
    HalfOfTls {
        /// The flag that is given.
        given: &'static str,
        /// The flag that it needs.
        missing: &'static str,
    },
    /// Only one of two settings of e-mail is given.
    #[error("{given} is given and {missing} is not: e-mail needs both")]
    HalfOfMail {
        /// The flag that is given.
        given: &'static str,
        /// The flag that it needs.
        missing: &'static str,
    },
    /// A token file is unusable.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A file with a password is unusable.
    #[error(transparent)]
    PrivateFile(#[from] PrivateFileError),
    /// A setting does not parse or is out of range.
    #[error("{flag} ({variable}): {reason}")]
    Value {
        /// The flag of the setting.
        flag: &'static str,
        /// The environment variable of the setting.
        variable: &'static str,
        /// The fault, with the limits.
        reason: String,
    },
}
