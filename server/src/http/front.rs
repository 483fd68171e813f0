//! What is done for every request: its id, the guards, and the writing of problems. One small layer, because it is paid by every POST.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::code::Code;
use super::desk::Desk;
use super::problem::Problem;
use crate::auth::{Pass, Role};
use crate::listener::Peer;

/// Guards a request, has it handled, and writes the problem if it ended in one.
pub(super) async fn serve(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    let id = match request.headers().get(&REQUEST_ID) {
        Some(given) if is_request_id(given) => given.clone(),
        _ => desk.next_request_id(),
    };
    let is_for_workers = role_of(request.uri().path()) == Role::Worker;
    let admitted = admit(&desk, &request);
    let is_strangers_in_a_crowd =
        is_crowded(&request) && !admitted.as_ref().is_ok_and(|pass| *pass == Pass::ByToken);
    let mut response = match admitted {
        Err(problem) => problem.into_response(),
        Ok(_) => AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(request_id = ?id, "a handler panicked");
            Problem::new(Code::Internal, "the cause is in the server's log").into_response()
        }),
    };
    if let Some(problem) = problem_of(&mut response, is_for_workers) {
        let written = problem.write(&desk.app.base_path, id.to_str().unwrap_or_default());
        let allow = response.headers_mut().remove(header::ALLOW);
        response = written;
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    let stays = !is_strangers_in_a_crowd || response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if !stays {
        // The reserve is for workers: who merely probes makes room after each answer.
        headers.insert(header::CONNECTION, CLOSE);
    }
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

fn is_crowded(request: &Request) -> bool {
    request.extensions().get::<Peer>().is_some_and(|peer| peer.crowded)
}

/// The guards, in the order of their cost.
fn admit(desk: &Desk, request: &Request) -> Result<Pass, Problem> {
    let uri_bytes = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    if uri_bytes > URI_BYTES_MAX {
        return Err(Problem::new(
            Code::UriTooLong,
            format!("{uri_bytes} bytes are too long (max {URI_BYTES_MAX})"),
        ));
    }
    let headers = request.headers().len();
    if headers > HEADERS_MAX {
        return Err(Problem::new(
            Code::HeadersTooLarge,
            format!("{headers} headers are too many (max {HEADERS_MAX})"),
        ));
    }
    let header_bytes: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if header_bytes > HEADER_BYTES_MAX {
        return Err(Problem::new(
            Code::HeadersTooLarge,
            format!("{header_bytes} bytes are too large (max {HEADER_BYTES_MAX})"),
        ));
    }
    let role = role_of(request.uri().path());
    let peer = request.extensions().get::<Peer>();
    if peer.is_some_and(|peer| peer.ambiguous_length) {
        let detail = "the request has both a Transfer-Encoding and a Content-Length";
        return Err(Problem::new(Code::InvalidRequest, detail).header(header::CONNECTION, CLOSE));
    }
    // Workers keep what is accepted going, and a probe must not think that the server is dead.
    if role == Role::Api && is_crowded(request) {
        return Err(Problem::new(Code::Busy, "the server has too many connections").retry_after(5));
    }
    let pass = desk.app.access.check(role, request, peer.map(|peer| peer.address.ip()))?;
    if let Some(peer) = peer.filter(|_| pass == Pass::ByToken) {
        peer.place.note_token();
    }
    acceptable(request)?;
    Ok(pass)
}

fn role_of(path: &str) -> Role {
    match path {
        "/healthz" | "/readyz" => Role::Open,
        "/api/workers/connect" => Role::Worker,
        _ if path.starts_with("/problems/") => Role::Open,
        _ => Role::Api,
    }
}

/// Whether the client takes what its address has to give.
fn acceptable(request: &Request) -> Result<(), Problem> {
    if !request.headers().contains_key(header::ACCEPT) {
        return Ok(());
    }
    let path = request.uri().path();
    let offers: &[&str] = match path {
        _ if is_output(path) => &["text/plain", "text/event-stream"],
        _ if path.starts_with("/api/workers/connect") => return Ok(()),
        _ if path.starts_with("/api/") && *request.method() == Method::POST => {
            &["application/json", "text/plain"]
        }
        _ if path.starts_with("/api/") || path == "/version" => &["application/json"],
        _ => &["text/plain", "text/markdown", "application/json"],
    };
    if offers.iter().any(|offer| accepts(request.headers(), offer)) {
        return Ok(());
    }
    Err(Problem::new(Code::NotAcceptable, format!("the answer is {}", offers.join(" or "))).field("Accept"))
}

/// Whether it is the address of a job's output: `/api/jobs/{id}/logs`. A definition may be called "logs", too.
fn is_output(path: &str) -> bool {
    let below = path.strip_prefix("/api/jobs/").and_then(|rest| rest.split_once('/'));
    below.is_some_and(|(_, what)| what == "logs")
}

/// Whether a client takes this type. Weights are not compared; a weight of zero is a no.
pub(super) fn accepts(headers: &HeaderMap, offer: &str) -> bool {
    let kind = offer.split('/').next().unwrap_or_default();
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            let matches = name == "*/*"
                || name.eq_ignore_ascii_case(offer)
                || name.strip_suffix("/*").is_some_and(|name| name.eq_ignore_ascii_case(kind));
            if matches && !refused {
                return true;
            }
        }
    }
    !any
}

/// The problem in which a request ended, also where the router alone knows of it.
fn problem_of(response: &mut Response, is_for_workers: bool) -> Option<Problem> {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        return Some(problem);
    }
    if is_for_workers && response.status().is_client_error() {
        return Some(
            Problem::new(Code::UpgradeRequired, "workers connect here, by a WebSocket")
                .hint("start a worker with \"longshore worker --server URL\"")
                .header(header::UPGRADE, HeaderValue::from_static("websocket")),
        );
    }
    (response.status() == StatusCode::METHOD_NOT_ALLOWED && response.body().size_hint().upper() == Some(0))
        .then(|| {
            // The router adds the header behind us: nobody knows it here.
            Problem::new(Code::MethodNotAllowed, "this address does not take the method of this request")
                .hint("the header Allow names what it takes")
        })
}

fn is_request_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const REQUEST_ID_BYTES_MAX: usize = 64;

/// Longer than any address of ours; what common servers take.
const URI_BYTES_MAX: usize = 8 << 10;
/// More than browsers and proxies together send.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn who_names_no_type_takes_any() {
        assert!(accepts(&HeaderMap::new(), "application/json"));
    }

    #[test]
    fn output_is_known_by_its_whole_address() {
        assert!(is_output("/api/jobs/12/logs"));
        for other in ["/api/jobs/logs", "/api/definitions/logs", "/api/jobs/1/2/logs", "/api/workers/1/logs"]
        {
            assert!(!is_output(other), "{other}");
        }
    }

    #[test]
    fn types_match_by_name_family_or_star() {
        for value in ["*/*", "application/*", "text/html, application/JSON;q=0.5"] {
            assert!(accepts(&accept(value), "application/json"), "{value}");
        }
        for value in ["application/xml", "application/json;q=0", "text/*"] {
            assert!(!accepts(&accept(value), "application/json"), "{value}");
        }
    }
}
