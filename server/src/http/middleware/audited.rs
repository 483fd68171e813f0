//! The part of the front middleware that writes the audit log: requests that were to change something, and workers that are not let in.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode};

use crate::auth::actor::Actor;
use crate::auth::audit::AuditedRequest;
use crate::auth::audit::note::NoteSlot;
use crate::auth::role::Permission;
use crate::clock;
use crate::http::state::AppState;
use crate::listener::Peer;

/// A request that the audit log gets, once it is answered. A client may leave before that, and the handler ends with it; the request is
/// then recorded as it is dropped, since it may have changed something.
pub(super) struct AuditedExchange {
    state: Arc<AppState>,
    actor: Option<Arc<Actor>>,
    address: Option<IpAddr>,
    method: Method,
    target: String,
    route: String,
    request_id: HeaderValue,
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
        let method = request.method().clone();
        if method.is_safe() && permission != Permission::Connect {
            return None;
        }
        // The paths that need no token are known routes; a client must not write its own text into the log with them.
        let target = match actor.is_some() && permission != Permission::Open {
            true => request.uri().to_string(),
            false => route.to_owned(),
        };
        Some(Self {
            state: Arc::clone(state),
            actor,
            address: request.extensions().get::<Peer>().map(|peer| peer.address.ip()),
            // The session of a worker that is let in records whether it joins.
            is_answered: method.is_safe(),
            method,
            target,
            route: route.to_owned(),
            request_id: request_id.clone(),
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
        let audit = &self.state.services.records.audit;
        let request = self.request(status.as_u16(), problem);
        let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        match self.method.is_safe() {
            false if is_denied => audit.record_denial(&request, &self.route, clock::now().utc),
            false => audit.record(&request, clock::now().utc),
            // A worker that is refused tries again for ever.
            true if is_denied => {
                audit.record_refusal(&request, clock::now().utc);
            }
            true => {}
        }
    }

    fn request<'r>(&'r self, status: u16, problem: Option<&'r str>) -> AuditedRequest<'r> {
        AuditedRequest {
            actor: self.actor.as_deref(),
            address: self.address,
            method: self.method.as_str(),
            target: &self.target,
            status,
            problem,
            request_id: self.request_id.to_str().unwrap_or_default(),
            note: self.note.read(),
        }
    }
}

impl Drop for AuditedExchange {
    fn drop(&mut self) {
        if !self.is_answered {
            let request = self.request(CLIENT_LEFT, None);
            self.state.services.records.audit.record(&request, clock::now().utc);
        }
    }
}

/// The status of a request whose client left before the answer, as proxies log it.
const CLIENT_LEFT: u16 = 499;
