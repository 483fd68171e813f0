//! Errors that keep a server from starting, or end it.

use crate::auth::first_token::FirstTokenError;
use crate::config::jobs_file::Faults;
use crate::engine::EngineError;
use crate::listener::ListenError;
use crate::listener::tls_files::TlsError;
use crate::logs::LogsError;
use crate::policy::PolicyError;
use crate::registries::RegistriesError;
use crate::store::{LoadError, ReadError};

/// An error at start, or one that ends the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// jobs.yaml has faults; the text lists all of them.
    #[error("{0}")]
    JobsFile(Faults),
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The logins for registries cannot be used.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// The data directory or the store in it is unusable.
    #[error(transparent)]
    Store(#[from] LoadError),
    /// The output log cannot be opened.
    #[error(transparent)]
    Logs(#[from] LogsError),
    /// Certificate or key for TLS are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The port is not available.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The tokens of the store cannot be read.
    #[error("cannot read the tokens of the store")]
    Tokens(#[source] ReadError),
    /// The store cannot be read for lost workers.
    #[error("cannot read the lost workers")]
    LostWorkers(#[source] ReadError),
    /// The history of the definitions cannot be read.
    #[error("cannot read the history of the definitions in the store")]
    History(#[source] ReadError),
    /// The client for notifications cannot be set up.
    #[error("cannot set up the client for notifications")]
    WebClient(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The client for e-mail cannot be set up.
    #[error("cannot set up the client for e-mail")]
    MailClient(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file for the first token cannot be written.
    #[error(transparent)]
    FirstToken(#[from] FirstTokenError),
    /// The engine cannot start, or had to stop.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
