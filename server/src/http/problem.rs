//! Every error becomes a problem document (RFC 9457). Handlers return a [`Problem`]; `front` writes it, because it alone
//! knows the request's id.
//!
//! What a client sent is shown back shortened and escaped, never a secret. The cause of a 5xx goes to the log, not to the client.

use std::error::Error;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use scheduler::step::{PendingReason, Rejection};

use super::code::Code;
use super::view;
use crate::auth::Denial;
use crate::engine::Busy;
use crate::store::ReadError;

/// An error on its way to the client.
#[derive(Clone, Debug)]
pub struct Problem(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: Code,
    detail: String,
    field: Option<String>,
    hint: Option<String>,
    near: Vec<String>,
    state: Option<&'static str>,
    errors: Vec<view::Fault>,
    headers: HeaderMap,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Problem {
    /// A problem with this code, and what is wrong with this very request.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            detail: detail.into(),
            field: None,
            hint: None,
            near: Vec::new(),
            state: None,
            errors: Vec::new(),
            headers: HeaderMap::new(),
            cause: None,
        }))
    }

    /// Our own mistake. The cause is written to the log only.
    #[must_use]
    pub fn internal(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(Code::Internal, "the cause is in the server's log").because(cause)
    }

    /// Something that should be readable is not. The cause is written to the log only.
    #[must_use]
    pub fn unreadable(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(Code::StoreUnavailable, "the store could not be read").retry_after(1).because(cause)
    }

    /// All faults of a body at once.
    ///
    /// The first one gives the document its code; they come in the order of the body.
    #[must_use]
    pub fn faults(faults: Vec<(Code, view::Fault)>) -> Self {
        let Some((code, first)) = faults.first().cloned() else {
            return Self::new(Code::Internal, "a body was refused without a reason");
        };
        let mut problem = Self::new(code, first.detail).field(first.field);
        problem.0.hint = first.hint;
        if faults.len() > 1 {
            problem.0.errors = faults.into_iter().map(|(_, fault)| fault).collect();
        }
        problem
    }

    /// The problems of one body as one. The first one gives the document its code; nothing if there are none.
    #[must_use]
    pub fn joined(problems: Vec<Self>) -> Option<Self> {
        let faults: Vec<view::Fault> = problems.iter().flat_map(Self::as_faults).take(FAULTS_MAX).collect();
        let mut first = problems.into_iter().next()?;
        first.0.errors = if faults.len() > 1 { faults } else { Vec::new() };
        Some(first)
    }

    fn as_faults(&self) -> Vec<view::Fault> {
        let Parts { code, detail, field, hint, errors, .. } = &*self.0;
        if !errors.is_empty() {
            return errors.clone();
        }
        let (field, detail, hint) = (field.clone().unwrap_or_default(), detail.clone(), hint.clone());
        vec![view::Fault { code: code.name().into(), field, detail, hint }]
    }

    /// Lists all faults of something that is not the request.
    #[must_use]
    pub fn errors(mut self, faults: Vec<view::Fault>) -> Self {
        self.0.errors = faults;
        self
    }

    /// Says which part of the request is meant.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// Says in which entry of a batch the fault is, and on which line of the body.
    #[must_use]
    pub fn within(mut self, entry: &str, line: Option<usize>) -> Self {
        let inside = |field: &str| match field {
            "" => entry.to_owned(),
            field => format!("{entry}.{field}"),
        };
        self.0.field = Some(inside(self.0.field.as_deref().unwrap_or_default()));
        for fault in &mut self.0.errors {
            fault.field = inside(&fault.field);
        }
        if let Some(line) = line {
            self.0.detail = format!("line {line}: {}", self.0.detail);
        }
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Names that the client may have meant.
    #[must_use]
    pub fn near(mut self, names: Vec<String>) -> Self {
        if let Some(first) = names.first() {
            self.0.hint = Some(format!("did you mean \"{first}\"?"));
        }
        self.0.near = names;
        self
    }

    /// The state of the job that is in the way.
    #[must_use]
    pub fn state(mut self, state: &'static str) -> Self {
        self.0.state = Some(state);
        self
    }

    /// Asks the client to come back.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Sends this header along.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// What is wrong.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Writes the document. The log gets the cause of a 5xx, with the same id.
    #[must_use]
    pub fn write(self, base: &str, request_id: &str) -> Response {
        let parts = *self.0;
        if let Some(cause) = &parts.cause {
            tracing::error!(
                request_id,
                code = parts.code.name(),
                cause = %chain(cause.as_ref()),
                "a request failed"
            );
        }
        let document = view::Problem {
            kind: format!("{base}/problems/{}", parts.code.name()),
            title: parts.code.title().into(),
            status: parts.code.status().as_u16(),
            code: parts.code.name().into(),
            detail: parts.detail,
            field: parts.field,
            hint: parts.hint,
            near: parts.near,
            state: parts.state.map(Into::into),
            errors: parts.errors,
            request_id: request_id.to_owned(),
        };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = (parts.code.status(), body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, PROBLEM_JSON);
        response.headers_mut().extend(parts.headers);
        response
    }

    fn because(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.0.cause = Some(Arc::new(cause));
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.0.code.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Busy> for Problem {
    fn from(_: Busy) -> Self {
        Self::new(Code::Busy, "the server has more requests waiting than it takes")
            .hint("try again in a second; an Idempotency-Key makes that safe")
            .retry_after(1)
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        Self::unreadable(error)
    }
}

impl From<Denial> for Problem {
    fn from(denial: Denial) -> Self {
        let detail = denial.to_string();
        match denial {
            Denial::NoToken | Denial::InvalidToken => Self::new(Code::InvalidToken, detail)
                .hint("send the header \"Authorization: Bearer <token>\"")
                .header(header::WWW_AUTHENTICATE, BEARER),
            Denial::WrongRole { .. } => Self::new(Code::Forbidden, detail),
            Denial::TooManyFailures { retry_after_s } => {
                Self::new(Code::TooManyFailures, detail).retry_after(retry_after_s)
            }
            Denial::TokenInUrl => Self::new(Code::TokenInUrl, detail).hint(
                "addresses end up in logs: send the header \"Authorization: Bearer <token>\", and replace this token",
            ),
            Denial::Host(_) => Self::new(Code::HostNotAllowed, detail)
                .field("Host")
                .hint("start the server with --allow-host NAME to let it answer to this name"),
            Denial::CrossSite { field } => Self::new(Code::CrossSite, detail).field(field),
        }
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::UnknownDefinition => {
                Self::new(Code::UnknownJob, "the definition has just been removed")
            }
            Rejection::Disabled => {
                Self::new(Code::DefinitionDisabled, "the definition has \"enabled: false\"")
                    .hint("enable it in jobs.yaml, and reload that")
            }
            Rejection::KeyMismatch(holder) => Self::new(
                Code::IdempotencyMismatch,
                format!("this key made job {} by another request", holder.job),
            )
            .field("Idempotency-Key")
            .hint("use a new key for a new request"),
            Rejection::KeyReadingTooOld | Rejection::Crowded => Self::from(Busy),
            Rejection::QueueFull { jobs_max, asked } if asked > jobs_max => Self::new(
                Code::QueueFull,
                format!("these are {asked} jobs, of which {jobs_max} at once may not have ended"),
            )
            .hint("divide the batch, or start the server with a larger --max-jobs"),
            Rejection::QueueFull { jobs_max, .. } => Self::new(
                Code::QueueFull,
                format!("with these there would be more than {jobs_max} jobs that have not ended"),
            )
            .hint("let some end, cancel some, or start the server with a larger --max-jobs")
            .retry_after(10),
            Rejection::NoWorker(reason) => Self::new(Code::NoWorker, pending_text(reason)).retry_after(5),
            Rejection::NotLive => Self::new(Code::JobNotFound, "there is no such job"),
            Rejection::NothingToRelease(state) => Self::new(
                Code::NothingToRelease,
                format!("the job is {} on a worker that answers for it", state.name()),
            )
            .state(state.name())
            .hint("to end it, cancel it"),
            Rejection::UnknownWorker => Self::new(Code::UnknownWorker, "there is no such worker"),
            Rejection::RefusedBefore => Self::new(
                Code::RefusedByStore,
                "what this request leads to was refused twice by the server's store",
            )
            .hint("the server's operator finds more in its log and its data directory"),
            Rejection::TooManyLabels => {
                Self::new(Code::TooLong, "a worker has at most 64 labels that are set here").field("labels")
            }
            Rejection::WorkerAway => Self::new(Code::WorkerAway, "it is not connected, and cannot be told")
                .hint("ask again when it is back"),
            Rejection::NotUnmanaged => {
                Self::new(Code::UnknownAttempt, "it has no such attempt that this server never gave")
                    .hint("'unmanaged' of the worker lists them")
            }
            Rejection::WorkerConnected => {
                Self::new(Code::WorkerConnected, "it is connected, or still has attempts")
                    .hint("stop it, or drain it, first; what waits for it can be released")
            }
        }
    }
}

/// Why a job waits, for people.
#[must_use]
pub const fn pending_text(reason: PendingReason) -> &'static str {
    match reason {
        PendingReason::NotDue => "it is not due yet",
        PendingReason::NoWorker => "no worker is connected",
        PendingReason::PinnedWorkerAway => {
            "it may only run where its last attempt was (retry.on: same), and that worker is not connected"
        }
        PendingReason::NoRuntime => "workers are connected, but none offers its runtime",
        PendingReason::Cordoned => "the workers that could run it are cordoned or draining",
        PendingReason::Excluded => {
            "the workers that could run it have refused it, or failed to start it: its attempts tell why"
        }
        PendingReason::Busy => "the slots and backlogs of all workers that could run it are taken",
        PendingReason::Soon => "it is about to be placed",
        PendingReason::Quarantined => {
            "it is held because it kept losing its workers: release it, or cancel it"
        }
    }
}

/// What a client sent, fit to be shown: escaped, and shortened to 80 characters.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut short: String = text.escape_debug().take(SHOWN_CHARS_MAX).collect();
    if text.escape_debug().nth(SHOWN_CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
const SHOWN_CHARS_MAX: usize = 80;

/// So many faults of one body are told; more help nobody.
pub(super) const FAULTS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_is_shown_short_and_escaped() {
        assert_eq!(shown("a\n\u{1b}[31m\"b"), "a\\n\\u{1b}[31m\\\"b");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), 81);
    }

    #[test]
    fn the_cause_of_our_own_mistake_is_not_shown() {
        let secret = std::io::Error::other("secret");
        let problem = Problem::from(ReadError(Box::new(secret)));
        let text = format!("{:?}", problem.write("", "r1").into_body());
        assert!(!text.contains("secret"));
    }

    #[test]
    fn whom_the_engine_cannot_take_is_told_when_to_come_back() {
        let answer = Problem::from(Busy).write("", "r1");
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    }

    #[test]
    fn the_first_fault_gives_the_code_and_all_are_listed() {
        let fault = |field: &str| view::Fault { field: field.into(), ..view::Fault::default() };
        let problem =
            Problem::faults(vec![(Code::OutOfRange, fault("priority")), (Code::UnknownField, fault("x"))]);
        assert_eq!(problem.code(), Code::OutOfRange);
        assert_eq!(problem.0.errors.len(), 2);
    }
}
