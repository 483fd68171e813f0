//! Refusals of pages that no page has shown: of the access control, and of addresses that do not exist. A browser gets a page and not the
//! JSON of a problem.

use std::sync::Arc;

use askama::Template;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};

use super::page::{Frame, keep_foreign_content_out, problem_page, problem_page_in, render};
use crate::auth::Admission;
use crate::auth::actor::Actor;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::accept::accepts;
use crate::http::state::AppState;

/// A request of a browser for a page.
#[derive(Debug)]
pub(crate) struct AskedPage {
    /// Its sender; absent if the access control refused it.
    actor: Option<Arc<Actor>>,
    /// True if it sends a form.
    is_form: bool,
}

#[derive(Template)]
#[template(path = "signed_out.html")]
struct SignedOutPage {
    frame: Frame,
    is_form: bool,
}

impl AskedPage {
    /// Returns nothing for requests to the API, and for clients that do not ask for HTML.
    pub(crate) fn of(request: &Request, admitted: Option<&Admission>) -> Option<Self> {
        let path = request.uri().path();
        let is_api = path == "/api" || path.starts_with("/api/");
        (!is_api && asks_for_html(request.headers())).then(|| Self {
            actor: admitted.map(|admission| Arc::clone(&admission.actor)),
            is_form: *request.method() == Method::POST,
        })
    }

    /// Shows a refusal as a page.
    pub(crate) async fn refuse(self, state: &AppState, problem: Problem) -> Response {
        let is_signed_out = matches!(
            problem.code(),
            ProblemCode::InvalidToken | ProblemCode::TokenExpired | ProblemCode::TokenRevoked
        );
        let mut response = match self.actor {
            Some(actor) => actor.serve(async { problem_page(state, problem) }).await,
            // A redirect to the login would lose the form: from this page, the browser can go back to it.
            None if is_signed_out => {
                let frame = Frame::of_unauthenticated(state, "Not signed in");
                match render(&SignedOutPage { frame, is_form: self.is_form }) {
                    Ok(page) => problem.shown_by(page),
                    Err(problem) => problem.into_response(),
                }
            }
            None => problem_page_in(Frame::of_unauthenticated(state, problem.code().title()), problem),
        };
        keep_foreign_content_out(&mut response);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// True if the client names HTML; `*/*` is what API clients send.
fn asks_for_html(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.to_ascii_lowercase().contains("text/html")) && accepts(headers, "text/html")
}
