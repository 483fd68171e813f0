//! Refusals of the access control as problems.

use axum::http::{HeaderValue, header};

use crate::auth::Denial;
use crate::auth::audit::note;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;

impl From<Denial> for Problem {
    fn from(denial: Denial) -> Self {
        let detail = denial.to_string();
        match denial {
            Denial::NoToken | Denial::InvalidToken => Self::new(ProblemCode::InvalidToken, detail)
                .hint("send the header \"Authorization: Bearer <token>\"")
                .header(header::WWW_AUTHENTICATE, BEARER),
            Denial::Expired => Self::new(ProblemCode::TokenExpired, detail)
                .hint("an administrator makes another one with: longshore token create")
                .header(header::WWW_AUTHENTICATE, BEARER),
            Denial::Revoked => Self::new(ProblemCode::TokenRevoked, detail)
                .hint("an administrator makes another one with: longshore token create")
                .header(header::WWW_AUTHENTICATE, BEARER),
            Denial::WorkerRevoked => Self::new(ProblemCode::WorkerRevoked, detail)
                .hint("with a valid join token and --rejoin it joins as a new worker")
                .header(header::WWW_AUTHENTICATE, BEARER),
            Denial::WrongRole { needed, .. } => Self::new(ProblemCode::Forbidden, detail)
                .hint(format!("use a token with the role {needed} or a stronger one")),
            Denial::OutOfScope { allowed } | Denial::NeedsWholeScope { allowed } => {
                Self::new(ProblemCode::OutOfScope, detail).hint(scope_hint(&allowed))
            }
            Denial::TooManyFailures { retry_after_s } => {
                Self::new(ProblemCode::TooManyFailures, detail).retry_after(retry_after_s)
            }
            Denial::ProxyHeader { field, .. } => Self::new(ProblemCode::InvalidRequest, detail)
                .field(field)
                .hint("the proxy that signs users in sets this header once, and removes what clients send"),
            Denial::TokenInUrl => Self::new(ProblemCode::TokenInUrl, detail).hint(
                "addresses end up in logs: send the header \"Authorization: Bearer <token>\", and replace this token",
            ),
            Denial::Host(_) => Self::new(ProblemCode::HostNotAllowed, detail)
                .field("Host")
                .hint("start the server with --allow-host NAME to let it answer to this name"),
            Denial::CrossSite { field } => Self::new(ProblemCode::CrossSite, detail).field(field),
        }
    }
}

/// Names the definitions of the token, which its holder may know. It says nothing about the definition that was asked for: it may exist or not.
fn scope_hint(allowed: &[String]) -> String {
    let names = note::list(allowed.iter().map(|name| format!("\"{name}\"")));
    format!("the token is for {names}; \"longshore whoami\" shows what it allows")
}

const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
