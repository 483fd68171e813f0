//! The part of the front middleware that writes the audit log: requests that were to change something, and workers that are not let in.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode};

use crate::auth::actor::Actor;
use crate::auth::audit::note::NoteSlot;
use crate::auth::audit::{ANY, AuditedRequest};
use crate::auth::role::Permission;
use crate::clock;
use crate::http::request::request_id::REQUEST_ID;
use crate::http::state::AppState;
use crate::listener::Peer;

/// A request that the audit log gets, once it is answered. A client may leave before that, and the handler ends with it; the request is
/// then recorded as it is dropped, since it may have changed something.
pub(super) struct AuditedExchange {
    state: Arc<AppState>,
    actor: Option<Arc<Actor>>,
    address: Option<IpAddr>,
    method: &'static str,
    /// A request that changes nothing and opens a worker's connection.
    is_connect: bool,
    /// True if the sender has shown no valid token, or needs none.
    is_by_anybody: bool,
    target: String,
    route: String,
    request_id: String,
    note: NoteSlot,
    is_answered: bool,
}

impl AuditedExchange {
    /// Returns nothing for a request that changes nothing. The actor is absent if the access control refused the request.
    pub(super) fn begin(
        state: &Arc<AppState>,
        request: &Request,
        permission: Permission,
        actor: Option<Arc<Actor>>,
        route: &str,
        request_id: &HeaderValue,
    ) -> Option<Self> {
        let is_connect = request.method().is_safe();
        if is_connect && permission != Permission::Connect {
            return None;
        }
        // Workers connect with GET: another method is refused before its sender is looked at.
        let is_by_anybody =
            actor.is_none() || matches!(permission, Permission::Open | Permission::Connect) && !is_connect;
        // The paths that need no token are known routes; a client must not write its own text into the log with them.
        let target = if is_by_anybody { route.to_owned() } else { request.uri().to_string() };
        let is_id_sent = request.headers().get(&REQUEST_ID) == Some(request_id);
        let request_id = match is_by_anybody && is_id_sent {
            true => String::new(),
            false => request_id.to_str().unwrap_or_default().to_owned(),
        };
        Some(Self {
            state: Arc::clone(state),
            actor,
            address: request.extensions().get::<Peer>().map(|peer| peer.address.ip()),
            // The session of a worker that is let in records whether it joins.
            is_answered: is_connect,
            method: known_method(request.method()),
            is_connect,
            is_by_anybody,
            target,
            route: route.to_owned(),
            request_id,
            note: NoteSlot::default(),
        })
    }

    /// The note for the handler of the request.
    pub(super) const fn note(&self) -> &NoteSlot {
        &self.note
    }

    /// Records the answer.
    pub(super) fn answered(mut self, status: StatusCode, problem: Option<&str>) {
        self.is_answered = true;
        self.record(status, problem);
    }

    fn record(&self, status: StatusCode, problem: Option<&str>) {
        let (audit, now) = (&self.state.services.records.audit, clock::now().utc);
        let request = self.request(status.as_u16(), problem);
        let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        // Only a login succeeds without a token.
        let is_refused = !(status.is_success() || status.is_redirection());
        match self.is_connect {
            true if !is_denied => {}
            true if self.is_by_anybody => audit.record_unauthenticated(&request, &self.route, now),
            false if self.is_by_anybody && is_refused => audit.record_unauthenticated(&request, ANY, now),
            // A worker that is refused tries again for ever.
            true => audit.record_refusal(&request, now),
            false if is_denied => audit.record_denial(&request, &self.route, now),
            false => audit.record(&request, now),
        }
    }

    fn request<'r>(&'r self, status: u16, problem: Option<&'r str>) -> AuditedRequest<'r> {
        AuditedRequest {
            actor: self.actor.as_deref(),
            address: self.address,
            method: self.method,
            target: &self.target,
            status,
            problem,
            request_id: &self.request_id,
            note: self.note.read(),
        }
    }
}

impl Drop for AuditedExchange {
    fn drop(&mut self) {
        if !self.is_answered {
            self.record(client_left(), None);
        }
    }
}

/// The status of a request whose client left before the answer, as proxies log it.
fn client_left() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT)
}

/// The method as the log has it. HTTP allows any word as a method; a client must not write its own text into the log with it.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|name| method.as_str() == *name).unwrap_or("other")
}
