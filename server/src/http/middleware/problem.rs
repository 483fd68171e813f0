//! Errors as problem documents (RFC 9457). Handlers return a [`Problem`]; `front` writes it, because only `front` knows the request id.
//!
//! Client input is shown shortened and escaped, never a secret. The cause of a 5xx goes to the log and not to the client.

use std::error::Error;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use scheduler::step::Answer;

use crate::engine::Busy;
use crate::http::middleware::code::ProblemCode;
use crate::http::present::shapes;
use crate::store::ReadError;

/// An error to be answered.
#[derive(Clone, Debug)]
pub struct Problem(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: ProblemCode,
    detail: String,
    field: Option<String>,
    hint: Option<String>,
    near: Vec<String>,
    state: Option<&'static str>,
    job: Option<u64>,
    batch: Option<u64>,
    last_event_id: Option<String>,
    errors: Vec<shapes::Fault>,
    headers: HeaderMap,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

/// A problem that the answer shows already, as a page.
#[derive(Clone, Debug)]
pub struct ShownProblem(pub Problem);

impl Problem {
    /// A problem with this code and a detail about this request.
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            detail: detail.into(),
            field: None,
            hint: None,
            near: Vec::new(),
            state: None,
            job: None,
            batch: None,
            last_event_id: None,
            errors: Vec::new(),
            headers: HeaderMap::new(),
            cause: None,
        }))
    }

    /// A bug or an unexpected failure of the server. The cause goes to the log only.
    #[must_use]
    pub fn internal(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(ProblemCode::Internal, "the cause is in the server's log").because(cause)
    }

    /// An answer of the engine that does not fit the request: a bug, answered with 500.
    pub(crate) fn unexpected_answer(answer: &Answer) -> Self {
        Self::internal(UnexpectedAnswer(format!("{answer:?}")))
    }

    /// A failed read of the store. The cause goes to the log only.
    #[must_use]
    pub fn unreadable(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(ProblemCode::StoreUnavailable, "the store could not be read").retry_after(1).because(cause)
    }

    /// All faults of a body as one problem.
    ///
    /// The first fault gives the code; the faults keep the order of the body.
    #[must_use]
    pub fn faults(faults: Vec<(ProblemCode, shapes::Fault)>) -> Self {
        let Some((code, first)) = faults.first().cloned() else {
            return Self::new(ProblemCode::Internal, "a body was refused without a reason");
        };
        let mut problem = Self::new(code, first.detail).field(first.field);
        problem.0.hint = first.hint;
        if faults.len() > 1 {
            problem.0.errors = faults.into_iter().map(|(_, fault)| fault).collect();
        }
        problem
    }

    /// Joins the problems of one body. The first gives the code; `None` if there are none.
    #[must_use]
    pub fn joined(problems: Vec<Self>) -> Option<Self> {
        let faults: Vec<shapes::Fault> =
            problems.iter().flat_map(Self::all_faults).take(FAULTS_MAX).collect();
        let mut first = problems.into_iter().next()?;
        first.0.errors = if faults.len() > 1 { faults } else { Vec::new() };
        Some(first)
    }

    /// The faults of the request: at least one, whose field may be empty.
    #[must_use]
    pub fn all_faults(&self) -> Vec<shapes::Fault> {
        let Parts { code, detail, field, hint, errors, .. } = &*self.0;
        if !errors.is_empty() {
            return errors.clone();
        }
        let (field, detail, hint) = (field.clone().unwrap_or_default(), detail.clone(), hint.clone());
        vec![shapes::Fault { code: code.name().into(), field, detail, hint }]
    }

    /// Lists faults of something other than the request, such as a file.
    #[must_use]
    pub fn errors(mut self, faults: Vec<shapes::Fault>) -> Self {
        self.0.errors = faults;
        self
    }

    /// Names the part of the request that is wrong.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// Adds the entry of the batch and its line in the body.
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
            let details = self.0.errors.iter_mut().map(|fault| &mut fault.detail);
            details.chain([&mut self.0.detail]).for_each(|it| *it = format!("line {line}: {it}"));
        }
        self
    }

    /// Adds to the detail.
    #[must_use]
    pub fn with(mut self, more: &str) -> Self {
        self.0.detail.push_str(more);
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds similar names, and suggests the first.
    #[must_use]
    pub fn near(mut self, names: Vec<String>) -> Self {
        if let Some(first) = names.first() {
            self.0.hint = Some(format!("did you mean \"{first}\"?"));
        }
        self.0.near = names;
        self
    }

    /// Adds the state of the job that causes a conflict.
    #[must_use]
    pub fn state(mut self, state: &'static str) -> Self {
        self.0.state = Some(state);
        self
    }

    /// Adds the number of the job that causes a conflict.
    #[must_use]
    pub fn job(mut self, job: u64) -> Self {
        self.0.job = Some(job);
        self
    }

    /// Adds the number of the batch that causes a conflict.
    #[must_use]
    pub fn batch(mut self, batch: u64) -> Self {
        self.0.batch = Some(batch);
        self
    }

    /// Adds the id of the event after which a client can go on.
    #[must_use]
    pub fn last_event_id(mut self, id: String) -> Self {
        self.0.last_event_id = Some(id);
        self
    }

    /// Adds a `Retry-After` header.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// The code of the problem.
    #[must_use]
    pub fn code(&self) -> ProblemCode {
        self.0.code
    }

    /// The fault of this request, as a sentence.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The advice, if there is one.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The part of the request that is wrong, if one is named.
    #[must_use]
    pub fn wrong_field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// The faults of single fields, each with the name of its field.
    #[must_use]
    pub fn faults_of_fields(&self) -> Vec<(String, String)> {
        let faults = self.0.errors.iter();
        faults.map(|fault| (fault.field.clone(), fault.detail.clone())).collect()
    }

    /// Gives a page that shows the problem its status and headers. `front` finds the problem in the extensions, as [`ShownProblem`].
    #[must_use]
    pub fn shown_by(mut self, mut page: Response) -> Response {
        *page.status_mut() = self.0.code.status();
        page.headers_mut().extend(std::mem::take(&mut self.0.headers));
        page.extensions_mut().insert(ShownProblem(self));
        page
    }

    /// Writes the cause of a 5xx to the log.
    pub fn log_cause(&self, request_id: &str) {
        if let Some(cause) = &self.0.cause {
            let (code, cause) = (self.0.code.name(), chain(cause.as_ref()));
            tracing::error!(request_id, code, %cause, "request failed");
        }
    }

    /// The document. The cause of a 5xx goes to the log with the same request id.
    #[must_use]
    pub fn into_document(self, base: &str, request_id: &str) -> shapes::Problem {
        self.log_cause(request_id);
        let parts = *self.0;
        shapes::Problem {
            kind: format!("{base}/problems/{}", parts.code.name()),
            title: parts.code.title().into(),
            status: parts.code.status().as_u16(),
            code: parts.code.name().into(),
            detail: parts.detail,
            field: parts.field,
            hint: parts.hint,
            near: parts.near,
            state: parts.state.map(Into::into),
            job: parts.job,
            batch: parts.batch,
            last_event_id: parts.last_event_id,
            errors: parts.errors,
            request_id: request_id.to_owned(),
        }
    }

    /// Writes the document as the answer to the request.
    #[must_use]
    pub fn write(mut self, base: &str, request_id: &str) -> Response {
        let (status, headers) = (self.0.code.status(), std::mem::take(&mut self.0.headers));
        let body = serde_json::to_vec(&self.into_document(base, request_id)).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, PROBLEM_JSON);
        response.headers_mut().extend(headers);
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
        Self::new(ProblemCode::Busy, "the server has more requests waiting than it takes")
            .hint("try again in a second; an Idempotency-Key makes that safe")
            .retry_after(1)
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        Self::unreadable(error)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the engine answered {0}")]
struct UnexpectedAnswer(String);

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

/// Faults of one body that are listed.
pub(crate) const FAULTS_MAX: usize = 50;

/// Advice while the server shuts down.
pub(crate) const DRAINING_HINT: &str =
    "try again in some seconds, when the server runs again; an Idempotency-Key makes that safe";

/// Advice for a worker that does not exist.
pub(crate) const UNKNOWN_WORKER_HINT: &str = "GET /api/workers?all=1 lists the workers";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_our_own_mistake_is_not_shown() {
        let secret = std::io::Error::other("secret");
        let problem = Problem::from(ReadError(Box::new(secret)));
        let text = format!("{:?}", problem.write("", "r1").into_body());
        assert!(!text.contains("secret"));
    }

    #[test]
    fn a_busy_answer_says_when_to_retry() {
        let answer = Problem::from(Busy).write("", "r1");
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    }

    #[test]
    fn the_first_fault_gives_the_code_and_all_are_listed() {
        let fault = |field: &str| shapes::Fault { field: field.into(), ..shapes::Fault::default() };
        let problem = Problem::faults(vec![
            (ProblemCode::OutOfRange, fault("priority")),
            (ProblemCode::UnknownField, fault("x")),
        ]);
        assert_eq!(problem.code(), ProblemCode::OutOfRange);
        assert_eq!(problem.0.errors.len(), 2);
    }
}
