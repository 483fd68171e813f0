//! `/api/tokens`: makes, lists and revokes tokens.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::auth::actor::{Actor, Scope};
use crate::auth::records::{ChangeError, NewToken};
use crate::auth::role::Role;
use crate::clock;
use crate::excerpt::excerpt;
use crate::http::api::submit::json;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::body;
use crate::http::request::path::Name;
use crate::http::request::query::duration;
use crate::http::state::AppState;
use crate::store::TokenRow;

/// The body of `POST /api/tokens`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// Its name: 1 to 64 letters, digits, dots, dashes or underscores.
    name: String,
    /// `viewer`, `submitter`, `operator`, `admin` or `worker`.
    role: String,
    #[serde(default)]
    /// Names and patterns of the definitions that it is for; empty: all.
    definitions: Vec<String>,
    #[serde(default)]
    /// How long it is valid, `1m` to `3650d`; absent: until it is revoked.
    #[schema(format = "longshore-duration")]
    expires: Option<String>,
}

/// `GET /api/tokens`
pub(crate) async fn list(State(state): State<Arc<AppState>>) -> Json<Vec<shapes::Token>> {
    Json(state.services.records.tokens.rows().into_iter().map(token).collect())
}

/// `POST /api/tokens`
pub(crate) async fn create(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Problem> {
    state.check_not_draining()?;
    let (parts, body) = request.into_parts();
    let request: TokenRequest = body::json(&parts.headers, body).await?;
    let role = Role::find(&request.role).ok_or_else(|| {
        let all = Role::ALL.map(Role::name).join(", ");
        wrong("role", format!("there is no role \"{}\"", excerpt(&request.role)))
            .hint(format!("the roles are {all}"))
    })?;
    if !is_name(&request.name) {
        return Err(wrong("name", "a name has 1 to 64 letters, digits, dots, dashes or underscores"));
    }
    if request.definitions.len() > PATTERNS_MAX || request.definitions.iter().any(|it| !is_pattern(it)) {
        let detail = format!(
            "it is a list of at most {PATTERNS_MAX} names of definitions, in which * stands for any text"
        );
        return Err(wrong("definitions", detail));
    }
    if role == Role::Worker && !request.definitions.is_empty() {
        return Err(wrong("definitions", "a token for workers is for all definitions"));
    }
    let new = NewToken {
        name: request.name,
        role,
        scope: Scope::new(request.definitions),
        lifetime: request.expires.as_deref().map(lifetime).transpose()?,
        created_by: Actor::current().token.as_deref().unwrap_or_default().to_owned(),
    };
    let (row, text) = state.services.records.create(new).await?;
    let shown = shapes::NewToken { token: text, facts: token(row) };
    Ok(json(StatusCode::CREATED, HeaderMap::new(), &shown))
}

/// `POST /api/tokens/{name}/revoke`
pub(crate) async fn revoke(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    request: Request,
) -> Result<Json<shapes::Token>, Problem> {
    body::none(request.into_body()).await?;
    Ok(Json(token(state.services.records.revoke(&name).await?)))
}

/// The JSON of a token.
fn token(row: TokenRow) -> shapes::Token {
    let has_expired = row.expires_at.is_some_and(|end| end <= clock::now().utc);
    let state = match row.revoked_at {
        Some(_) => "revoked",
        None if has_expired => "expired",
        None => "valid",
    };
    shapes::Token {
        name: row.name.to_string(),
        role: row.role.name().into(),
        definitions: row.scope.patterns().to_vec(),
        state: state.into(),
        created_at: Time(row.created_at),
        created_by: Some(row.created_by).filter(|name| !name.is_empty()),
        expires_at: row.expires_at.map(Time),
        last_used_at: row.last_used_at.map(Time),
        revoked_at: row.revoked_at.map(Time),
    }
}

fn lifetime(text: &str) -> Result<Duration, Problem> {
    duration(text).filter(|it| (LIFETIME_MIN..=LIFETIME_MAX).contains(it)).ok_or_else(|| {
        let detail = format!("\"{}\" is not a duration from 1m to 3650d", excerpt(text));
        Problem::new(Code::InvalidDuration, detail).field("expires").hint("such as 90d")
    })
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(is_letter)
}

fn is_pattern(pattern: &str) -> bool {
    (1..=PATTERN_BYTES_MAX).contains(&pattern.len())
        && pattern.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::OutOfRange, detail).field(field)
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = error.to_string();
        match error {
            ChangeError::NameTaken(_) => Self::new(Code::TokenNameTaken, detail)
                .field("name")
                .hint("choose another name, or revoke that token first"),
            ChangeError::Unknown(_) => {
                Self::new(Code::UnknownToken, detail).hint("GET /api/tokens lists the tokens")
            }
            ChangeError::TooMany => Self::new(Code::OutOfRange, detail).hint("revoke some that nobody needs"),
            ChangeError::NotKept(cause) => Self::unreadable(cause),
            ChangeError::Store(cause) => Self::unreadable(cause),
            ChangeError::Closed => Self::new(Code::Draining, detail).retry_after(5),
        }
    }
}

const PATTERNS_MAX: usize = 100;
const PATTERN_BYTES_MAX: usize = 200;
const LIFETIME_MIN: Duration = Duration::from_secs(60);
/// Ten years.
const LIFETIME_MAX: Duration = Duration::from_secs(3_650 * 24 * 3_600);
