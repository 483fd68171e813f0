//! The reasons for which the access control refuses requests. Their problem documents are in `http/middleware/denial.rs`.

use super::role::Role;

/// The reason for which a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The request has no token.
    #[error("this request needs a valid token")]
    NoToken,
    /// The token is unknown. The text equals that of [`Denial::NoToken`], so that a guesser learns nothing.
    #[error("this request needs a valid token")]
    InvalidToken,
    /// The token was valid once.
    #[error("the token has expired")]
    Expired,
    /// The token was valid once.
    #[error("the token was revoked")]
    Revoked,
    /// The secret is that of a worker that was revoked.
    #[error("this worker was revoked")]
    WorkerRevoked,
    /// The token is valid, but its role does not allow the request.
    #[error("the token has the role {given}; this request needs the role {needed}")]
    WrongRole {
        /// The role of the token that was given.
        given: Role,
        /// The weakest role that allows the request.
        needed: Role,
    },
    /// The token is valid, but not for jobs of this definition.
    #[error("the token is not for jobs of this definition")]
    OutOfScope {
        /// The names and patterns that the token is for.
        allowed: Vec<String>,
    },
    /// The token is valid, but only for jobs of some definitions, and the request acts on more.
    #[error("the token is for certain definitions only, and this acts on more than these")]
    NeedsWholeScope {
        /// The names and patterns that the token is for.
        allowed: Vec<String>,
    },
    /// Too many requests from its address had different wrong tokens.
    #[error("too many requests from this address had different wrong tokens")]
    TooManyFailures {
        /// Seconds until the server checks a token of this address again.
        retry_after_s: u64,
    },
    /// The proxy that signs users in sends a header that does not name one user.
    #[error("the header {field} {fault}")]
    ProxyHeader {
        /// The header.
        field: String,
        /// Its fault.
        fault: &'static str,
    },
    /// The request carries a token in its URL.
    #[error("a token must not be part of an address")]
    TokenInUrl,
    /// The `Host` of the request is not a name of this server.
    #[error("this server does not answer to the host \"{0}\"")]
    Host(String),
    /// A web page of another site sent the request.
    #[error("the header {field} says that a page of another site sends this request")]
    CrossSite {
        /// The header that shows it.
        field: &'static str,
    },
}
