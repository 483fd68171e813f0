//! The one middleware of every request: request id, limits, access, and problem documents. It is one layer because every POST pays for it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use protocol::SUBPROTOCOL;
use tokio::time::Instant;

use crate::auth::Admission;
use crate::auth::role::Permission;
use crate::http::middleware::audited::AuditedExchange;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::cut_at_revocation;
use crate::http::middleware::problem::{Problem, ShownProblem};
use crate::http::request::accept::accepts;
use crate::http::request::request_id::{REQUEST_ID, RequestId, is_request_id};
use crate::http::state::AppState;
use crate::http::web;
use crate::listener::Peer;

/// Checks a request, runs its handler, and writes the problem document if there is one.
pub(crate) async fn serve(State(state): State<Arc<AppState>>, mut request: Request, next: Next) -> Response {
    let id = match request.headers().get(&REQUEST_ID) {
        Some(given) if is_request_id(given) => given.clone(),
        _ => state.next_request_id(),
    };
    request.extensions_mut().insert(RequestId(id.clone()));
    let permission = Permission::needed(request.method(), request.uri().path());
    let is_for_workers = permission == Permission::Connect;
    let (began, method) = (Instant::now(), request.method().clone());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let is_tls = request.extensions().get::<Peer>().is_some_and(|peer| peer.is_tls);
    let admitted = admit(&state, permission, &request);
    let actor = admitted.as_ref().ok().map(|admission| Arc::clone(&admission.actor));
    let mut audited =
        AuditedExchange::begin(&state, &request, permission, actor, route_name(&state, route.as_ref()), &id);
    let asked_page = web::AskedPage::of(&request, admitted.as_ref().ok());
    let is_authenticated = admitted.as_ref().is_ok_and(Admission::is_authenticated);
    let is_unauthenticated_on_reserve = is_on_reserve_connection(&request) && !is_authenticated;
    let allowed = admitted.and_then(|admission| {
        admission.check(permission)?;
        acceptable(&request)?;
        Ok(admission.actor)
    });
    let mut response = match allowed {
        Err(problem) => login_of(&state, &problem, request.method(), request.uri())
            .unwrap_or_else(|| problem.into_response()),
        Ok(actor) => {
            let opener = Arc::clone(&actor);
            let served = AssertUnwindSafe(actor.serve(next.run(request))).catch_unwind();
            let served = match &audited {
                Some(audited) => audited.note().serve(served).await,
                None => served.await,
            };
            let response = served.unwrap_or_else(|_| {
                tracing::error!(request_id = ?id, "request handler panicked; the client gets 500");
                Problem::new(ProblemCode::Internal, "the cause is in the server's log").into_response()
            });
            if is_authenticated { cut_at_revocation::wrap(response, opener) } else { response }
        }
    };
    if let Some(asked) = asked_page
        && let Some(problem) = problem_of(&mut response, is_for_workers)
    {
        let allow = response.headers_mut().remove(header::ALLOW);
        response = asked.refuse(&state, problem).await;
        response.headers_mut().extend(allow.map(|allow| (header::ALLOW, allow)));
    }
    let mut problem_code = None;
    let request_id = id.to_str().unwrap_or_default();
    if let Some(ShownProblem(problem)) = response.extensions_mut().remove() {
        problem_code = Some(problem.code().name());
        problem.log_cause(request_id);
    } else if let Some(problem) = problem_of(&mut response, is_for_workers) {
        problem_code = Some(problem.code().name());
        let written = problem.write(&state.services.base_path, request_id);
        let allow = response.headers_mut().remove(header::ALLOW);
        response = written;
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    let route = route_name(&state, route.as_ref());
    if let Some(audited) = audited.take() {
        audited.answered(response.status(), problem_code);
    }
    let stays = !is_unauthenticated_on_reserve || response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if !stays {
        // Reserve connections are for workers: another client's is closed after one answer.
        headers.insert(header::CONNECTION, CLOSE);
    }
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    if is_tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT);
    }
    state.services.metrics.request(route, method.as_str(), response.status().as_u16(), began.elapsed());
    response
}

/// The route of a request as metrics and the audit log name it.
fn route_name<'r>(state: &AppState, route: Option<&'r MatchedPath>) -> &'r str {
    let route = route.map_or("none", MatchedPath::as_str);
    route.strip_prefix(state.services.base_path.as_str()).unwrap_or(route)
}

/// The way to the login, for a page that needs a token.
fn login_of(state: &AppState, problem: &Problem, method: &Method, uri: &Uri) -> Option<Response> {
    match problem.code() {
        ProblemCode::InvalidToken | ProblemCode::TokenExpired | ProblemCode::TokenRevoked => {
            web::redirect_to_login(&state.services.base_path, method, uri)
        }
        _ => None,
    }
}

fn is_on_reserve_connection(request: &Request) -> bool {
    request.extensions().get::<Peer>().is_some_and(|peer| peer.is_reserve)
}

/// Limits and access, cheapest checks first. The caller checks what the role of the sender allows.
fn admit(state: &AppState, permission: Permission, request: &Request) -> Result<Admission, Problem> {
    let uri_bytes = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    if uri_bytes > URI_BYTES_MAX {
        return Err(Problem::new(
            ProblemCode::UriTooLong,
            format!("{uri_bytes} bytes are too long (max {URI_BYTES_MAX})"),
        )
        .hint("use fewer or shorter parameters; many jobs can be named as \"ids\" in the body of a bulk operation"));
    }
    let headers = request.headers().len();
    if headers > HEADERS_MAX {
        return Err(Problem::new(
            ProblemCode::HeadersTooLarge,
            format!("{headers} headers are too many (max {HEADERS_MAX})"),
        )
        .hint(HEADERS_HINT));
    }
    let header_bytes: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if header_bytes > HEADER_BYTES_MAX {
        return Err(Problem::new(
            ProblemCode::HeadersTooLarge,
            format!("{header_bytes} bytes are too large (max {HEADER_BYTES_MAX})"),
        )
        .hint(HEADERS_HINT));
    }
    let peer = request.extensions().get::<Peer>();
    if peer.is_some_and(|peer| peer.ambiguous_length) {
        let detail = "the request has both a Transfer-Encoding and a Content-Length";
        return Err(Problem::new(ProblemCode::InvalidRequest, detail).header(header::CONNECTION, CLOSE));
    }
    check_host(request)?;
    // Workers and health checks are served even without free connections: workers keep running jobs going, and a failed check would restart
    // the server.
    let has_reserve = match permission {
        Permission::Connect => true,
        Permission::Open => request.uri().path() != "/login",
        _ => false,
    };
    if !has_reserve && is_on_reserve_connection(request) {
        return Err(Problem::new(ProblemCode::Busy, "the server has too many connections").retry_after(5));
    }
    let admission = state.services.access.check(permission, request, peer.map(|peer| peer.address.ip()))?;
    if let Some(peer) = peer.filter(|_| admission.is_authenticated()) {
        peer.permit.mark_authenticated();
    }
    Ok(admission)
}

/// Refuses a request in HTTP/1.1 without exactly one `Host` (RFC 9112, section 3.2): something on the way may read it as one for another
/// host. Older clients send none, and HTTP/2 has the host elsewhere.
fn check_host(request: &Request) -> Result<(), Problem> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let detail = match hosts {
        1 => return Ok(()),
        0 if request.version() != Version::HTTP_11 => return Ok(()),
        0 => "the request has no Host".to_owned(),
        _ => format!("the request has {hosts} Host headers"),
    };
    let hint = "a request in HTTP/1.1 has one header Host with the name of the server";
    Err(Problem::new(ProblemCode::InvalidRequest, detail).field("Host").hint(hint))
}

/// Refuses a request whose `Accept` excludes every type of the answer.
fn acceptable(request: &Request) -> Result<(), Problem> {
    if !request.headers().contains_key(header::ACCEPT) {
        return Ok(());
    }
    let path = request.uri().path();
    let offers: &[&str] = match path {
        "/metrics" => &["text/plain", "application/openmetrics-text"],
        "/api/events" => &["text/event-stream"],
        "/api/jobs" if *request.method() != Method::POST => LISTS_OF_JOBS,
        _ if is_output(path) => &["text/plain", "text/event-stream"],
        _ if path.starts_with("/api/workers/connect") => return Ok(()),
        _ if path.starts_with("/api/") && *request.method() == Method::POST => {
            &["application/json", "text/plain"]
        }
        _ if path.starts_with("/api/") || path == "/version" || path == "/openapi.json" => {
            &["application/json"]
        }
        _ if web::is_page(path) => return Ok(()),
        _ => &["text/plain", "text/markdown", "application/json"],
    };
    if offers.iter().any(|offer| accepts(request.headers(), offer)) {
        return Ok(());
    }
    Err(Problem::new(ProblemCode::NotAcceptable, format!("the answer is {}", offers.join(" or ")))
        .field("Accept"))
}

/// The types of a list of jobs.
const LISTS_OF_JOBS: &[&str] = &["application/json", "application/x-ndjson", "text/csv"];

/// True for `/api/jobs/{id}/logs`. A definition may also be named "logs".
fn is_output(path: &str) -> bool {
    let below = path.strip_prefix("/api/jobs/").and_then(|rest| rest.split_once('/'));
    below.is_some_and(|(_, what)| what == "logs")
}

/// The problem of a response, including those that only the router knows.
fn problem_of(response: &mut Response, is_for_workers: bool) -> Option<Problem> {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        return Some(problem);
    }
    if is_for_workers && response.status() == StatusCode::BAD_REQUEST {
        let why = format!("workers offer the WebSocket subprotocol {SUBPROTOCOL}, and this request does not");
        return Some(
            Problem::new(ProblemCode::SubprotocolRequired, why).field("Sec-WebSocket-Protocol").hint(
                "docs/protocol.md describes the handshake; a worker of another version may offer another",
            ),
        );
    }
    if is_for_workers && response.status().is_client_error() {
        return Some(
            Problem::new(ProblemCode::UpgradeRequired, "workers connect here, by a WebSocket")
                .hint("start a worker with \"longshore worker --server URL\"")
                .header(header::UPGRADE, HeaderValue::from_static("websocket")),
        );
    }
    (response.status() == StatusCode::METHOD_NOT_ALLOWED && response.body().size_hint().upper() == Some(0))
        .then(|| {
            // The router adds the `Allow` header later; this layer does not know it.
            Problem::new(
                ProblemCode::MethodNotAllowed,
                "this address does not take the method of this request",
            )
            .hint("the header Allow names what it takes")
        })
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// A day: a site that gives TLS up is reachable again soon.
const STRICT_TRANSPORT: HeaderValue = HeaderValue::from_static("max-age=86400");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Longer than any URL of the API.
const URI_BYTES_MAX: usize = 8 << 10;
/// More than browsers and proxies send together.
const HEADERS_MAX: usize = 64;
const HEADERS_HINT: &str =
    "send fewer or shorter headers; often it is cookies of other pages of the same host";
const HEADER_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_path_names_output() {
        assert!(is_output("/api/jobs/12/logs"));
        for other in ["/api/jobs/logs", "/api/definitions/logs", "/api/jobs/1/2/logs", "/api/workers/1/logs"]
        {
            assert!(!is_output(other), "{other}");
        }
    }
}
