//! Like requests, which become one row of the audit log.

use std::net::IpAddr;
use std::sync::Arc;

use protocol::Timestamp;

use super::note::AuditNote;

/// The facts that like requests have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AuditKey {
    pub(super) token: Option<Arc<str>>,
    pub(super) role: Option<&'static str>,
    pub(super) address: Option<IpAddr>,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) status: u16,
    pub(super) problem: Option<String>,
    pub(super) note: AuditNote,
}

/// How many like requests there were, and when.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) count: u64,
    pub(super) request_id: String,
}

impl Span {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { from: now, to: now, count: 0, request_id: String::new() }
    }

    pub(super) fn add(&mut self, now: Timestamp, request_id: &str) {
        self.to = now;
        self.count += 1;
        request_id.clone_into(&mut self.request_id);
    }
}
