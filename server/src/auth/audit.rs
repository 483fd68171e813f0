//! The audit log: every request that was to change something, refused ones too.
//!
//! Requests are collected in memory and written about once a second. Like requests within that time become one row with a count, so that
//! a thousand submissions a second are one row a second. A process that is killed loses what it has not written.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::Timestamp;

use super::actor::Actor;
use super::role::Role;
use crate::store::AuditRow;

/// Different requests that wait to be written. Of more than these, the log of the server says how many there were.
const COLLECTED_MAX: usize = 10_000;

/// The requests that were not written yet.
#[derive(Debug, Default)]
pub struct AuditLog {
    collected: Mutex<Collected>,
}

#[derive(Debug, Default)]
struct Collected {
    rows: HashMap<AuditKey, Span>,
    /// Rows that the store did not take.
    unwritten: Vec<AuditRow>,
    /// Requests for which there was no room.
    left_out: u64,
}

/// The facts that like requests have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AuditKey {
    token: Option<Arc<str>>,
    role: Option<&'static str>,
    address: Option<IpAddr>,
    method: String,
    target: String,
    status: u16,
    problem: Option<&'static str>,
}

/// How many like requests there were, and when.
#[derive(Clone, Debug)]
struct Span {
    from: Timestamp,
    to: Timestamp,
    count: u64,
    request_id: String,
}

/// An answered request.
#[derive(Clone, Debug)]
pub(crate) struct AuditedRequest<'r> {
    /// Its sender; absent if the access control refused it.
    pub(crate) actor: Option<&'r Actor>,
    /// The address of the client.
    pub(crate) address: Option<IpAddr>,
    /// The method.
    pub(crate) method: &'r str,
    /// The path and query; the route if the sender is not to choose the text (see [`AuditRow::target`]).
    pub(crate) target: &'r str,
    /// The status of the answer.
    pub(crate) status: u16,
    /// The code of the problem.
    pub(crate) problem: Option<&'static str>,
    /// The request id.
    pub(crate) request_id: &'r str,
}

impl AuditLog {
    /// Collects a request.
    pub(crate) fn record(&self, request: &AuditedRequest<'_>, now: Timestamp) {
        let key = AuditKey {
            token: request.actor.and_then(|actor| actor.token.clone()),
            role: request.actor.filter(|actor| actor.token.is_some()).map(|actor| actor.role.name()),
            address: request.address,
            method: request.method.to_owned(),
            target: request.target.to_owned(),
            status: request.status,
            problem: request.problem,
        };
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = collected.rows.len() + collected.unwritten.len() >= COLLECTED_MAX;
        if is_full && !collected.rows.contains_key(&key) {
            collected.left_out += 1;
            return;
        }
        let new = Span { from: now, to: now, count: 0, request_id: String::new() };
        let span = collected.rows.entry(key).or_insert(new);
        span.to = now;
        span.count += 1;
        request.request_id.clone_into(&mut span.request_id);
    }

    /// Takes what was collected, the earliest first.
    pub(super) fn take(&self) -> Vec<AuditRow> {
        let collected = std::mem::take(&mut *self.collected.lock().unwrap_or_else(PoisonError::into_inner));
        if collected.left_out > 0 {
            tracing::warn!(
                requests = collected.left_out,
                "requests left out of the audit log: too many different ones at once"
            );
        }
        let mut rows = collected.unwritten;
        rows.extend(collected.rows.into_iter().map(|(key, span)| row(key, span)));
        rows.sort_by_key(|row| row.from);
        rows
    }

    /// Keeps rows that the store did not take for the next [`AuditLog::take`].
    pub(super) fn put_back(&self, rows: Vec<AuditRow>) {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).unwritten.extend(rows);
    }
}

fn row(key: AuditKey, span: Span) -> AuditRow {
    AuditRow {
        id: 0,
        from: span.from,
        to: span.to,
        count: span.count,
        token: key.token,
        role: key.role.and_then(Role::find),
        address: key.address,
        method: key.method,
        target: key.target,
        status: key.status,
        problem: key.problem.map(str::to_owned),
        request_id: span.request_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'r>(actor: &'r Actor, target: &'r str, request_id: &'r str) -> AuditedRequest<'r> {
        let (method, status) = ("POST", 201);
        AuditedRequest {
            actor: Some(actor),
            address: None,
            method,
            target,
            status,
            problem: None,
            request_id,
        }
    }

    #[test]
    fn like_requests_become_one_row_with_a_count() {
        let (log, actor) = (AuditLog::default(), Actor::with_token("ci", Role::Submitter));
        log.record(&request(&actor, "/api/jobs/resize", "a"), Timestamp(5));
        log.record(&request(&actor, "/api/jobs/other", "b"), Timestamp(6));
        log.record(&request(&actor, "/api/jobs/resize", "c"), Timestamp(7));
        let rows = log.take();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].from, rows[0].to, rows[0].count), (Timestamp(5), Timestamp(7), 2));
        assert_eq!((rows[0].request_id.as_str(), rows[0].token.as_deref()), ("c", Some("ci")));
        assert!(log.take().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let (log, actor) = (AuditLog::default(), Actor::anonymous());
        for number in 0..COLLECTED_MAX + 5 {
            log.record(&request(&actor, &number.to_string(), "a"), Timestamp(5));
        }
        let rows = log.take();
        assert_eq!(rows.len(), COLLECTED_MAX);
        log.put_back(rows);
        log.record(&request(&actor, "one more", "a"), Timestamp(6));
        assert_eq!(log.take().len(), COLLECTED_MAX, "rows that wait for the store count");
    }

    #[test]
    fn rows_that_the_store_did_not_take_come_again_before_later_ones() {
        let (log, actor) = (AuditLog::default(), Actor::anonymous());
        log.record(&request(&actor, "/first", "a"), Timestamp(5));
        log.put_back(log.take());
        log.record(&request(&actor, "/second", "b"), Timestamp(6));
        let targets: Vec<_> = log.take().into_iter().map(|row| row.target).collect();
        assert_eq!(targets, ["/first", "/second"]);
    }
}
