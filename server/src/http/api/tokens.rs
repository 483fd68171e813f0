//! `/api/tokens`: makes, lists and revokes tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::JoinTokenId;
use scheduler::input::Operation;
use scheduler::step::{Answer, Rejection};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::auth::actor::{Actor, Scope};
use crate::auth::audit::note;
use crate::auth::records::{ChangeError, NewToken};
use crate::auth::role::Role;
use crate::clock;
use crate::excerpt::excerpt;
use crate::http::api::submission_answer::json;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::detached::run_detached;
use crate::http::middleware::problem::{DRAINING_HINT, Problem};
use crate::http::present::shapes::{self, Time};
use crate::http::request::body;
use crate::http::request::job_request::label_fault;
use crate::http::request::path::Name;
use crate::http::request::query::{Query, duration, nearest};
use crate::http::state::AppState;
use crate::store::{CommitError, TokenId, TokenRow};
use crate::wildcard;

/// The body of `POST /api/tokens`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// Its name: 1 to 64 letters, digits, dots, dashes or underscores.
    name: String,
    /// `viewer`, `submitter`, `operator`, `admin` or `worker`.
    role: String,
    /// Names and patterns of the definitions that it is for, at least one; absent: all.
    #[serde(default, deserialize_with = "patterns")]
    #[schema(min_items = 1, max_items = 100)]
    definitions: Option<Vec<String>>,
    /// How long it is valid, `1m` to `3650d`; absent: until it is revoked.
    #[serde(default)]
    #[schema(format = "longshore-duration")]
    expires: Option<String>,
    /// For the role `worker`: how many workers may join by it; absent: any number.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000)]
    uses: Option<u32>,
    /// For the role `worker`: labels that workers get that join by it, at most 64.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// A list, and not `null`: a script that has no list would get a token for everything.
fn patterns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

/// `GET /api/tokens`
pub(crate) async fn list(State(state): State<Arc<AppState>>) -> Json<Vec<shapes::Token>> {
    Json(state.services.records.tokens.rows().into_iter().map(|row| token(&state, row)).collect())
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
        out_of_range("role", format!("there is no role \"{}\"", excerpt(&request.role)))
            .hint(format!("the roles are {all}"))
    })?;
    if !is_name(&request.name) {
        return Err(out_of_range("name", "a name has 1 to 64 letters, digits, dots, dashes or underscores"));
    }
    note::object(format!("token {}", request.name));
    note::detail(facts_of(&request, role));
    let are_valid_patterns =
        |list: &Vec<String>| (1..=PATTERNS_MAX).contains(&list.len()) && list.iter().all(|it| is_pattern(it));
    if request.definitions.as_ref().is_some_and(|list| !are_valid_patterns(list)) {
        let detail = format!(
            "it is a list of 1 to {PATTERNS_MAX} names of definitions, in which * stands for any text"
        );
        return Err(
            out_of_range("definitions", detail).hint("a token for all definitions leaves the field out")
        );
    }
    if matches!(role, Role::Worker | Role::Viewer | Role::Admin) && request.definitions.is_some() {
        let detail = format!("a token with the role {role} is for all definitions");
        return Err(out_of_range("definitions", detail));
    }
    check_join(&request, role)?;
    let labels: Vec<(String, String)> = request.labels.into_iter().collect();
    let names: Vec<String> = labels.iter().map(|(name, _)| name.clone()).collect();
    let new = NewToken {
        name: request.name,
        role,
        scope: Scope::new(request.definitions.unwrap_or_default()),
        lifetime: request.expires.as_deref().map(lifetime).transpose()?,
        created_by: Actor::current().token.as_deref().unwrap_or_default().to_owned(),
        uses: request.uses,
        labels,
    };
    let (records, engine) = (Arc::clone(&state.services.records), state.services.engine.clone());
    let (row, text) = run_detached(async move {
        let made = records.create(new).await?;
        if !names.is_empty() && engine.reserve_labels(names).await.is_err() {
            // The engine has ended. The token is in the store and its text is shown this once; the next start reserves the labels of all
            // tokens.
            tracing::warn!(token = %made.0.name, "the labels of a new token are reserved at the next start");
        }
        Ok(made)
    })
    .await?;
    let warnings = unmatched(&state, row.scope.patterns());
    let shown = shapes::NewToken { token: text, facts: token(&state, row), warnings };
    Ok(json(StatusCode::CREATED, HeaderMap::new(), &shown))
}

/// A warning for each name or pattern that fits no present definition. Such a one may come later, so the token is made. Walks over all
/// definitions, for a request of an administrator.
fn unmatched(state: &AppState, patterns: &[String]) -> Vec<String> {
    let definitions = state.services.catalogue.current();
    let names = || definitions.iter().map(|entry| entry.definition.name.as_str());
    let fits_none = |pattern: &&String| !names().any(|name| wildcard::matches(pattern, name));
    let warn = |pattern: &String| {
        let near = nearest(pattern, names());
        let near = near.first().map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default();
        format!("no definition fits \"{}\" now{near}", excerpt(pattern))
    };
    patterns.iter().filter(fits_none).map(warn).collect()
}

/// `POST /api/tokens/{name}/revoke`
pub(crate) async fn revoke(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    request: Request,
) -> Result<Json<shapes::Token>, Problem> {
    let mut query = Query::of(request.uri())?;
    let with_workers = query.switch("workers")?;
    query.finish()?;
    body::none(request.into_body()).await?;
    note::object(format!("token {name}"));
    let (row, workers) = run_detached(revoke_all(Arc::clone(&state), name, with_workers)).await?;
    if let Some(count) = workers {
        note::detail(format!("with its workers: {count}"));
    }
    Ok(Json(shapes::Token { workers_revoked: workers, ..token(&state, row) }))
}

/// Revokes a token, and the workers that have joined by it if they are asked for. Returns the number of these.
async fn revoke_all(
    state: Arc<AppState>,
    name: String,
    with_workers: bool,
) -> Result<(TokenRow, Option<u32>), Problem> {
    let row = match state.services.records.revoke(&name).await {
        // The token may be revoked already, and its workers are not.
        Err(ChangeError::Unknown(_)) if with_workers => last_revoked(&state, &name)?,
        revoked => revoked?,
    };
    let workers = if with_workers { Some(revoke_workers(&state, row.id).await?) } else { None };
    Ok((row, workers))
}

fn last_revoked(state: &AppState, name: &str) -> Result<TokenRow, Problem> {
    let rows = state.services.records.tokens.rows();
    let found = rows.into_iter().rev().find(|row| &*row.name == name);
    found.ok_or_else(|| ChangeError::Unknown(name.to_owned()).into())
}

/// Revokes the workers that have joined by a token, one after another, and returns their number. No worker joins by it any more.
async fn revoke_workers(state: &AppState, id: TokenId) -> Result<u32, Problem> {
    // Answered after the commit of everything that was decided before: the store has every worker that joined by the token.
    state.services.engine.reserve_labels(Vec::new()).await?;
    let rows = state.read(|archive| archive.workers()).await?;
    let joined = |row: &&WorkerRow| row.join_token == Some(JoinTokenId(id.0)) && row.revoked_at.is_none();
    let mut count = 0;
    for row in rows.iter().filter(joined) {
        match state.services.engine.operate(row.worker, Operation::Revoke).await? {
            // It may have been forgotten meanwhile.
            Answer::Done | Answer::Rejected(Rejection::UnknownWorker) => count += 1,
            Answer::Rejected(rejection) => return Err(rejection.into()),
            answer => return Err(Problem::unexpected_answer(&answer)),
        }
    }
    Ok(count)
}

/// Checks what only a token of workers can have.
fn check_join(request: &TokenRequest, role: Role) -> Result<(), Problem> {
    if role != Role::Worker && (request.uses.is_some() || !request.labels.is_empty()) {
        let field = if request.uses.is_some() { "uses" } else { "labels" };
        return Err(out_of_range(field, "only a token with the role worker has uses and labels"));
    }
    if request.uses.is_some_and(|uses| !(1..=USES_MAX).contains(&uses)) {
        return Err(out_of_range(
            "uses",
            format!("a token has 1 to {USES_MAX} uses; without the field any number"),
        ));
    }
    if request.labels.len() > LABELS_MAX {
        return Err(out_of_range("labels", format!("a token grants at most {LABELS_MAX} labels")));
    }
    let faults = request.labels.iter().filter_map(|(name, value)| label_fault(name, value));
    faults.map(Err).next().unwrap_or(Ok(()))
}

/// The facts of a new token, for the audit log.
fn facts_of(request: &TokenRequest, role: Role) -> String {
    let labels = request.labels.iter().map(|(name, value)| format!("{name}={value}"));
    let facts = [
        Some(format!("role {}", role.name())),
        request.definitions.as_ref().map(|list| format!("definitions {}", note::list(list))),
        request.expires.as_ref().map(|expires| format!("expires in {expires}")),
        request.uses.map(|uses| format!("uses {uses}")),
        (!request.labels.is_empty()).then(|| format!("labels {}", note::list(labels))),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The JSON of a token.
fn token(state: &AppState, row: TokenRow) -> shapes::Token {
    let joined = state.services.records.workers.joined(row.id);
    let uses_left = row.uses.map(|uses| uses.saturating_sub(joined));
    let has_expired = row.expires_at.is_some_and(|end| end <= clock::now().utc);
    let state = match row.revoked_at {
        Some(_) => "revoked",
        None if has_expired => "expired",
        None if uses_left == Some(0) => "used_up",
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
        labels: row.labels.into_iter().collect(),
        uses: row.uses,
        uses_left,
        joined: (row.role == Role::Worker).then_some(joined),
        workers_revoked: None,
    }
}

fn lifetime(text: &str) -> Result<Duration, Problem> {
    duration(text).filter(|it| (LIFETIME_MIN..=LIFETIME_MAX).contains(it)).ok_or_else(|| {
        let detail = format!("\"{}\" is not a duration from 1m to 3650d", excerpt(text));
        Problem::new(ProblemCode::InvalidDuration, detail).field("expires").hint("such as 90d")
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

/// The problem of a field whose value is outside of its range.
fn out_of_range(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(ProblemCode::OutOfRange, detail).field(field)
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = error.to_string();
        match error {
            ChangeError::NameTaken(_) => Self::new(ProblemCode::TokenNameTaken, detail)
                .field("name")
                .hint("choose another name, or revoke that token first"),
            ChangeError::Unknown(_) => {
                Self::new(ProblemCode::UnknownToken, detail).hint("GET /api/tokens lists the tokens")
            }
            ChangeError::TooMany => {
                Self::new(ProblemCode::OutOfRange, detail).hint("revoke some that nobody needs")
            }
            ChangeError::NotKept(cause) => Self::unreadable(cause),
            ChangeError::Store(cause @ CommitError::Refused(_)) => Self::internal(cause),
            ChangeError::Store(cause) => Self::unreadable(cause),
            ChangeError::Closed => {
                Self::new(ProblemCode::Draining, detail).hint(DRAINING_HINT).retry_after(5)
            }
        }
    }
}

/// More workers than a server serves.
const USES_MAX: u32 = 1_000_000;
/// As many labels as a worker may claim.
const LABELS_MAX: usize = 64;
const PATTERNS_MAX: usize = 100;
const PATTERN_BYTES_MAX: usize = 200;
const LIFETIME_MIN: Duration = Duration::from_secs(60);
/// Ten years.
const LIFETIME_MAX: Duration = Duration::from_secs(3_650 * 24 * 3_600);
