//! The frame of every page: navigation, headers, and problems as pages.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{actions, assets, format};
use crate::auth::actor::Actor;
use crate::auth::role::Permission;
use crate::clock;
use crate::http::middleware::problem::Problem;
use crate::http::present::caller;
use crate::http::state::AppState;

/// The facts that the frame of a page needs.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The path prefix of all links.
    pub(crate) base: String,
    /// The title of the page.
    pub(crate) title: String,
    /// The entry of the navigation that is marked.
    pub(crate) section: &'static str,
    /// True if people sign in here, so that they can sign out.
    pub(crate) has_login: bool,
    /// True on pages for people who have not signed in.
    is_login: bool,
    /// The sender of the request: the page offers only what the role allows.
    actor: Arc<Actor>,
}

impl Frame {
    /// The frame of a page in a section of the navigation.
    pub(crate) fn new(state: &AppState, section: &'static str, title: impl Into<String>) -> Self {
        let actor = Actor::current();
        Self {
            base: state.services.base_path.clone(),
            title: title.into(),
            section,
            is_login: false,
            has_login: state.services.access.needs_token() && !actor.is_of_proxy(),
            actor,
        }
    }

    /// The frame of the page on which people sign in.
    pub(crate) fn of_login(state: &AppState) -> Self {
        Self::of_unauthenticated(state, "Sign in")
    }

    /// The frame of a page for somebody who is not signed in.
    pub(crate) fn of_unauthenticated(state: &AppState, title: impl Into<String>) -> Self {
        Self { is_login: true, ..Self::new(state, "", title) }
    }

    /// False on the login page of a server that needs a token: links to other pages, and the sign-out, are for people who have signed in.
    pub(crate) fn has_navigation(&self) -> bool {
        !(self.is_login && self.has_login)
    }

    /// The address of a static file; it changes with the content, so that browsers may keep the file for ever.
    pub(crate) fn asset(&self, file: &str) -> String {
        format!("{}/static/{}/{file}", self.base, assets::version())
    }

    /// True if the sender may submit, cancel and retry jobs.
    pub(crate) fn may_submit(&self) -> bool {
        self.actor.role.allows(Permission::Submit)
    }

    /// True if the sender may also act on jobs of this definition.
    pub(crate) fn may_run(&self, definition: &str) -> bool {
        self.may_submit() && self.actor.scope.includes(definition)
    }

    /// True if the sender may act on jobs of all these definitions.
    pub(crate) fn may_run_all<'n>(&self, mut definitions: impl Iterator<Item = &'n str>) -> bool {
        self.may_submit() && definitions.all(|definition| self.actor.scope.includes(definition))
    }

    /// True if the sender may act on jobs of every definition.
    pub(crate) fn has_whole_scope(&self) -> bool {
        self.actor.has_whole_scope()
    }

    /// True if the sender may release jobs and pause definitions, those of its scope.
    pub(crate) fn may_operate(&self) -> bool {
        self.actor.role.allows(Permission::Operate)
    }

    /// True if the sender may pause this definition.
    pub(crate) fn may_pause(&self, definition: &str) -> bool {
        self.may_operate() && self.actor.scope.includes(definition)
    }

    /// True if the sender may operate workers, and pause everything.
    pub(crate) fn may_operate_all(&self) -> bool {
        self.may_operate() && self.has_whole_scope()
    }

    /// True if the sender may read the audit log.
    pub(crate) fn may_administer(&self) -> bool {
        self.actor.role.allows(Permission::Administer)
    }

    /// The name of the token of the sender, with its role.
    pub(crate) fn signed_in_as(&self) -> Option<String> {
        self.actor.token.as_ref().map(|name| format!("{name} ({})", self.actor.role))
    }

    /// How long the token of the sender is still valid, if that is not long any more.
    pub(crate) fn token_expires_in(&self) -> Option<String> {
        caller::remaining(&self.actor, clock::now().utc).map(format::span)
    }

    /// An idempotency key for one form of this rendering.
    pub(crate) fn new_key(&self) -> String {
        actions::new_key()
    }

    /// `page` for the marked entry of the navigation, for `aria-current`.
    pub(crate) fn current(&self, section: &str) -> &'static str {
        if self.section == section { "page" } else { "false" }
    }
}

/// Renders a page.
///
/// # Errors
/// `internal` if the template fails.
pub(crate) fn render(page: &impl Template) -> Result<Response, Problem> {
    let text = page.render().map_err(Problem::internal)?;
    Ok(([(header::CONTENT_TYPE, HTML)], text).into_response())
}

/// Leads the browser to another page after a change.
pub(crate) fn see_other(base: &str, path: &str) -> Response {
    let target = HeaderValue::try_from(format!("{base}{path}")).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, target)]).into_response()
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    frame: Frame,
    code: &'static str,
    heading: &'static str,
    field: Option<String>,
    detail: String,
    hint: Option<String>,
    faults: Vec<(String, String)>,
}

/// Shows problems of pages as pages, and sets the headers that keep foreign content out.
pub(crate) async fn present(State(state): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let is_file = request.uri().path().starts_with("/static/");
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem_page(&state, problem);
    }
    keep_foreign_content_out(&mut response);
    let headers = response.headers_mut();
    if !is_file || !is_read {
        headers.insert(header::CACHE_CONTROL, NO_STORE);
    }
    response
}

pub(super) fn keep_foreign_content_out(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::REFERRER_POLICY, SAME_ORIGIN);
    headers.insert(CROSS_ORIGIN_OPENER_POLICY, SAME_ORIGIN);
}

/// A page that shows a problem.
pub(super) fn problem_page(state: &AppState, problem: Problem) -> Response {
    let frame = Frame::new(state, "", problem.code().title());
    problem_page_in(frame, problem)
}

/// A page that shows a problem, in this frame.
pub(super) fn problem_page_in(frame: Frame, problem: Problem) -> Response {
    let page = ProblemPage {
        frame,
        code: problem.code().name(),
        heading: problem.code().title(),
        field: problem.wrong_field().map(|field| field.trim_start_matches('?').to_owned()),
        detail: problem.detail().to_owned(),
        hint: problem.advice().map(str::to_owned),
        faults: problem.faults_of_fields(),
    };
    match render(&page) {
        Ok(page) => problem.shown_by(page),
        Err(problem) => problem.into_response(),
    }
}

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Only the server's own files; no inline script or style, no frame around the page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
);
