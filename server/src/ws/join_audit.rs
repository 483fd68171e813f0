//! Rows of the audit log about workers that join, and about those that are refused after the handshake. The middleware of the router records
//! the others, whose token or secret is wrong.

use std::net::IpAddr;
use std::sync::Arc;

use protocol::WorkerId;

use crate::auth::actor::Actor;
use crate::auth::audit::AuditedRequest;
use crate::auth::audit::note::AuditNote;
use crate::auth::records::AccessRecords;
use crate::clock;

/// The worker of one connection, for the audit log.
pub(super) struct JoinAudit {
    /// Absent in tests of sessions.
    records: Option<Arc<AccessRecords>>,
    actor: Arc<Actor>,
    address: IpAddr,
    /// The name that the worker gives itself.
    name: Arc<str>,
}

impl JoinAudit {
    pub(super) const fn new(
        records: Option<Arc<AccessRecords>>,
        actor: Arc<Actor>,
        address: IpAddr,
        name: Arc<str>,
    ) -> Self {
        Self { records, actor, address, name }
    }

    /// Records the worker if it has joined, and did not only connect again.
    pub(super) fn welcomed(&self, worker: WorkerId) {
        let Some(records) = &self.records else { return };
        if !records.workers.take_new(worker) {
            return;
        }
        let note = AuditNote {
            object: Some(format!("worker {worker} ({})", self.name)),
            detail: Some("joined".to_owned()),
        };
        records.audit.record(&self.request(SWITCHING_PROTOCOLS, None, note), clock::now().utc);
    }

    /// Records a refusal.
    pub(super) fn refused(&self, code: &str) {
        let Some(records) = &self.records else { return };
        let note = AuditNote { object: Some(format!("worker {}", self.name)), detail: None };
        records.audit.record_refusal(&self.request(FORBIDDEN, Some(code), note), clock::now().utc);
    }

    fn request<'r>(&'r self, status: u16, problem: Option<&'r str>, note: AuditNote) -> AuditedRequest<'r> {
        AuditedRequest {
            actor: Some(&*self.actor),
            address: Some(self.address),
            method: "GET",
            target: "/api/workers/connect",
            status,
            problem,
            request_id: "",
            note,
        }
    }
}

const SWITCHING_PROTOCOLS: u16 = 101;
/// The answer to the handshake was another: the reason is in the close frame. It is recorded like a refused request.
const FORBIDDEN: u16 = 403;
