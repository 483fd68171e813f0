//! Reports that an address is locked out: in the log, in the audit log and as a metric. Otherwise nobody would know why the valid tokens
//! of that address are refused.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use protocol::Timestamp;

use super::audit::note::AuditNote;
use super::audit::{AuditLog, AuditedRequest};
use super::failures::network;
use crate::clock;
use crate::metrics::Metrics;
use crate::rfc3339::Time;

/// The records that a lock-out is written to.
#[derive(Debug)]
pub(super) struct LockOutReport {
    pub(super) audit: Arc<AuditLog>,
    pub(super) metrics: Arc<Metrics>,
}

impl LockOutReport {
    /// Counts a lock-out, and audits it: like ones of a network become a row an hour.
    pub(super) fn record(&self, address: IpAddr) {
        let address = network(address);
        self.metrics.address_locked_out();
        let request = AuditedRequest {
            actor: None,
            address: Some(address),
            // The request with the wrong token may have had any address, which the client chose.
            method: "LOCK-OUT",
            target: "access",
            status: 429,
            problem: Some("too_many_failures"),
            request_id: "",
            note: AuditNote {
                object: Some(format!("address {address}")),
                detail: Some("too many different wrong tokens".to_owned()),
            },
        };
        self.audit.record_refusal(&request, clock::now().utc);
    }
}

/// Logs that an address is locked out from now on.
pub(super) fn log(address: IpAddr, wait: Duration) {
    let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    tracing::warn!(
        address = %network(address),
        until = %Time(Timestamp(clock::now().utc.0.saturating_add(wait))),
        "too many different wrong tokens: all requests with a token from this address are refused, valid ones too; \
         find the client with the wrong token there. If the address is that of a proxy or gateway, the client is behind it"
    );
}
