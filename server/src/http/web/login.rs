//! `/login`: the API token as a form. A session cookie stands for it afterwards.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::response::Response;

use super::actions::form_within;
use super::is_page;
use super::page::{Frame, render, see_other};
use crate::auth::audit::note;
use crate::auth::sessions;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::{Query, encode};
use crate::http::state::AppState;
use crate::listener::Peer;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    /// The page to go on with.
    to: String,
    /// Why the last try failed; empty at the first.
    fault: String,
}

/// `GET /login?to=`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let to = query.text("to")?.filter(|to| to.len() <= TO_BYTES_MAX).unwrap_or_default();
    query.finish()?;
    render(&LoginPage { frame: Frame::of_login(&state), to, fault: String::new() })
}

/// `POST /login`: checks the token and sets the cookie.
pub(crate) async fn sign_in(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Problem> {
    let peer = request.extensions().get::<Peer>().cloned();
    // A proxy in front of the server may be the one that speaks TLS: then the browser says so.
    let is_tls = peer.as_ref().is_some_and(|peer| peer.is_tls) || is_from_https(request.headers());
    let address = peer.map(|peer| peer.address.ip());
    let fields = form_within(request, LOGIN_BYTES_MAX).await?;
    let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.trim());
    let to = field("to").unwrap_or_default();
    match state.services.access.sign_in(field("token").unwrap_or_default(), address) {
        Ok((session, holder)) => {
            if let Some(name) = &holder.token {
                note::object(format!("token {name}"));
            }
            let base = &state.services.base_path;
            let mut response = see_other(base, own_page(to));
            let secure = if is_tls { "; Secure" } else { "" };
            let cookie = format!(
                "{}={session}; Path={}; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
                state.services.access.session_cookie(),
                cookie_path(base),
                sessions::LIFETIME.as_secs()
            );
            if let Ok(cookie) = HeaderValue::try_from(cookie) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            Ok(response)
        }
        Err(denial) => {
            let fault = denial.to_string();
            let page = render(&LoginPage { frame: Frame::of_login(&state), to: to.to_owned(), fault })?;
            Ok(Problem::from(denial).shown_by(page))
        }
    }
}

fn is_from_https(headers: &HeaderMap) -> bool {
    headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// Bytes of a login: a token, and the page to go on with. Anybody may send one, and the memory for it is not counted.
const LOGIN_BYTES_MAX: usize = 4 << 10;

/// A longer address of a page is left out: a form may write it in three times as many bytes.
const TO_BYTES_MAX: usize = 1 << 10;

/// `POST /logout`
pub(crate) async fn sign_out(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    state.services.access.sign_out(&headers);
    let base = &state.services.base_path;
    let mut response = see_other(base, "/login");
    let path = cookie_path(base);
    let cookie = state.services.access.session_cookie();
    let gone = format!("{cookie}=; Path={path}; HttpOnly; SameSite=Strict; Max-Age=0");
    if let Ok(cookie) = HeaderValue::try_from(gone) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// The paths that the cookie is sent with: the base path with and without a slash after it, and all below it.
fn cookie_path(base: &str) -> &str {
    if base.is_empty() { "/" } else { base }
}

/// The answer to a page that needs a token: the login form, which leads back to the page. `uri` is without the base path.
pub(crate) fn redirect_to_login(base: &str, method: &Method, uri: &Uri) -> Option<Response> {
    let path = uri.path();
    if *method != Method::GET || !is_page(path) {
        return None;
    }
    let to = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Some(see_other(base, &format!("/login?{}", encode([("to", to.as_str())]))))
}

/// A path of this server, never another site's address.
fn own_page(to: &str) -> &str {
    let path = to.split('?').next().unwrap_or_default();
    let is_own = to.starts_with('/') && !to.starts_with("//") && !to.contains('\\') && is_page(path);
    if is_own { to } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_this_server_only() {
        assert_eq!(own_page("/jobs?state=failed"), "/jobs?state=failed");
        for other in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/api/jobs"] {
            assert_eq!(own_page(other), "/", "{other}");
        }
    }

    #[test]
    fn only_pages_that_are_read_lead_to_the_login() {
        let leads = |method, uri: &str| redirect_to_login("/b", &method, &uri.parse().unwrap()).is_some();
        assert!(leads(Method::GET, "/jobs?state=failed"));
        assert!(!leads(Method::POST, "/jobs/1/cancel"));
        assert!(!leads(Method::GET, "/api/jobs"));
    }
}
