//! The audit log: every request that was to change something, refused ones too.
//!
//! Requests are collected in memory and written about once a second. Like requests within that time become one row with a count, so that
//! a thousand submissions a second are one row a second. A process that is killed loses what it has not written. Joins of workers and
//! reloads that no request asks for have rows as well.

mod key;
pub(crate) mod note;
mod repeats;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::Timestamp;

use super::actor::Actor;
use super::failures::network;
use super::role::Role;
use crate::store::AuditRow;
use key::{AuditKey, Span};
use note::AuditNote;
use repeats::Repeats;

/// Method and target of a row about requests that differ in them.
pub(crate) const ANY: &str = "*";

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
    repeats: Repeats,
    /// Rows that the store did not take.
    unwritten: Vec<AuditRow>,
    /// Requests for which there was no room.
    left_out: u64,
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
    pub(crate) problem: Option<&'r str>,
    /// The request id; empty if no request was made.
    pub(crate) request_id: &'r str,
    /// The facts that only the handler knows.
    pub(crate) note: AuditNote,
}

impl AuditedRequest<'_> {
    fn key(&self) -> AuditKey {
        AuditKey {
            token: self.actor.and_then(|actor| actor.token.clone()),
            role: self.actor.filter(|actor| actor.token.is_some()).map(|actor| actor.role.name()),
            address: self.address,
            method: self.method.to_owned(),
            target: self.target.to_owned(),
            status: self.status,
            problem: self.problem.map(str::to_owned),
            note: self.note.clone(),
        }
    }
}

impl AuditLog {
    /// Collects a request.
    pub(crate) fn record(&self, request: &AuditedRequest<'_>, now: Timestamp) {
        self.lock().record(request.key(), now, request.request_id);
    }

    /// Collects a refusal that its sender may repeat every few seconds: like ones get a row an hour.
    pub(crate) fn record_refusal(&self, request: &AuditedRequest<'_>, now: Timestamp) {
        let key = request.key();
        let mut collected = self.lock();
        if !collected.repeats.count(&key, now, request.request_id) {
            collected.record(key, now, request.request_id);
        }
    }

    /// Collects a request that its sender is not allowed to make. The first one has a row at once; further ones of this sender to this route
    /// get a row an hour, whatever they ask for: a sender without rights must not push out the rows of others.
    pub(crate) fn record_denial(&self, request: &AuditedRequest<'_>, route: &str, now: Timestamp) {
        let like = AuditKey { target: route.to_owned(), note: AuditNote::default(), ..request.key() };
        let mut collected = self.lock();
        if !collected.repeats.count(&like, now, request.request_id) {
            let path = request.target.split('?').next().unwrap_or_default();
            let first = AuditKey { target: path.to_owned(), ..request.key() };
            collected.record(first, now, request.request_id);
        }
    }

    /// Collects a refusal of a sender without a token. The first one has a row at once; further ones of this network with this status get a
    /// row an hour with this target, usually [`ANY`]: nobody pushes out the rows of others, or fills the disk.
    pub(crate) fn record_unauthenticated(&self, request: &AuditedRequest<'_>, target: &str, now: Timestamp) {
        let like = AuditKey {
            address: request.address.map(network),
            method: ANY.to_owned(),
            target: target.to_owned(),
            problem: None,
            note: AuditNote::default(),
            ..request.key()
        };
        let mut collected = self.lock();
        if !collected.repeats.count_of_network(like, now, request.request_id) {
            collected.record(request.key(), now, request.request_id);
        }
    }

    /// Takes what was collected, the earliest first; with `at_shutdown` also refusals that would wait for their hour.
    pub(super) fn take(&self, now: Timestamp, at_shutdown: bool) -> Vec<AuditRow> {
        let (collected, repeats) = {
            let mut held = self.lock();
            let repeats = held.repeats.take(now, at_shutdown);
            let kept = Collected { repeats: std::mem::take(&mut held.repeats), ..Collected::default() };
            (std::mem::replace(&mut *held, kept), repeats)
        };
        if collected.left_out > 0 {
            tracing::warn!(
                requests = collected.left_out,
                "requests left out of the audit log: too many different ones at once"
            );
        }
        let mut rows = collected.unwritten;
        rows.extend(collected.rows.into_iter().chain(repeats).map(|(key, span)| row(key, span)));
        rows.sort_by_key(|row| row.from);
        rows
    }

    /// Keeps rows that the store did not take for the next [`AuditLog::take`].
    pub(super) fn put_back(&self, rows: Vec<AuditRow>) {
        self.lock().unwritten.extend(rows);
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collected {
    fn record(&mut self, key: AuditKey, now: Timestamp, request_id: &str) {
        let is_full = self.rows.len() + self.unwritten.len() >= COLLECTED_MAX;
        if is_full && !self.rows.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        self.rows.entry(key).or_insert_with(|| Span::new(now)).add(now, request_id);
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
        problem: key.problem,
        request_id: span.request_id,
        object: key.note.object,
        detail: key.note.detail,
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
            note: AuditNote::default(),
        }
    }

    fn take(log: &AuditLog) -> Vec<AuditRow> {
        log.take(Timestamp(0), false)
    }

    #[test]
    fn like_requests_become_one_row_with_a_count() {
        let (log, actor) = (AuditLog::default(), Actor::with_token("ci", Role::Submitter));
        log.record(&request(&actor, "/api/jobs/resize", "a"), Timestamp(5));
        log.record(&request(&actor, "/api/jobs/other", "b"), Timestamp(6));
        log.record(&request(&actor, "/api/jobs/resize", "c"), Timestamp(7));
        let rows = take(&log);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].from, rows[0].to, rows[0].count), (Timestamp(5), Timestamp(7), 2));
        assert_eq!((rows[0].request_id.as_str(), rows[0].token.as_deref()), ("c", Some("ci")));
        assert!(take(&log).is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let (log, actor) = (AuditLog::default(), Actor::anonymous());
        for number in 0..COLLECTED_MAX + 5 {
            log.record(&request(&actor, &number.to_string(), "a"), Timestamp(5));
        }
        let rows = take(&log);
        assert_eq!(rows.len(), COLLECTED_MAX);
        log.put_back(rows);
        log.record(&request(&actor, "one more", "a"), Timestamp(6));
        assert_eq!(take(&log).len(), COLLECTED_MAX, "rows that wait for the store count");
    }

    #[test]
    fn rows_that_the_store_did_not_take_come_again_before_later_ones() {
        let (log, actor) = (AuditLog::default(), Actor::anonymous());
        log.record(&request(&actor, "/first", "a"), Timestamp(5));
        log.put_back(take(&log));
        log.record(&request(&actor, "/second", "b"), Timestamp(6));
        let targets: Vec<_> = take(&log).into_iter().map(|row| row.target).collect();
        assert_eq!(targets, ["/first", "/second"]);
    }

    #[test]
    fn requests_with_other_objects_or_details_have_rows_of_their_own() {
        let (log, actor) = (AuditLog::default(), Actor::with_token("ci", Role::Admin));
        let about = |object: &str, detail: &str| {
            let note = AuditNote { object: Some(object.to_owned()), detail: Some(detail.to_owned()) };
            let request = AuditedRequest { note, ..request(&actor, "/api/tokens", "a") };
            log.record(&request, Timestamp(5));
        };
        about("token a", "role viewer");
        about("token b", "role viewer");
        about("token b", "role admin");
        about("token b", "role admin");
        let mut rows: Vec<_> =
            take(&log).into_iter().map(|row| (row.object.unwrap(), row.detail.unwrap(), row.count)).collect();
        rows.sort();
        let expected =
            [("token a", "role viewer", 1), ("token b", "role admin", 2), ("token b", "role viewer", 1)];
        assert_eq!(
            rows,
            expected.map(|(object, detail, count)| (object.to_owned(), detail.to_owned(), count))
        );
    }

    #[test]
    fn requests_that_are_not_allowed_have_a_row_an_hour_whatever_they_ask_for() {
        let (log, actor) = (AuditLog::default(), Actor::with_token("eyes", Role::Viewer));
        for number in 0..1_000 {
            let target = format!("/api/jobs/name-{number}?n={number}");
            let note = AuditNote { object: Some(target.clone()), detail: None };
            let request = AuditedRequest { status: 403, note, ..request(&actor, &target, "a") };
            log.record_denial(&request, "/api/jobs/{name}", Timestamp(number));
        }
        let taken = |at: i64| -> Vec<(String, u64)> {
            log.take(Timestamp(at), false).into_iter().map(|row| (row.target, row.count)).collect()
        };
        assert_eq!(taken(1_000), [("/api/jobs/name-0".to_owned(), 1)], "at once, and without its query");
        assert_eq!(taken(3_600_000), [("/api/jobs/{name}".to_owned(), 999)]);
        assert_eq!(taken(7_200_000), []);
    }

    #[test]
    fn refusals_of_a_network_without_a_token_have_a_row_an_hour_for_each_status() {
        let log = AuditLog::default();
        let refuse = |address: &str, method, target, status, at| {
            let address = Some(address.parse().unwrap());
            let request = AuditedRequest {
                actor: None,
                address,
                method,
                target,
                status,
                problem: Some("refused"),
                request_id: "",
                note: AuditNote::default(),
            };
            log.record_unauthenticated(&request, ANY, Timestamp(at));
        };
        let taken = |at| -> Vec<(String, String, u16, u64)> {
            let rows = log.take(Timestamp(at), false);
            let mut rows: Vec<_> =
                rows.into_iter().map(|row| (row.method, row.target, row.status, row.count)).collect();
            rows.sort();
            rows
        };
        for number in 0..1_000 {
            let address = format!("2001:db8::{number:x}");
            for (method, target, status) in
                [("POST", "/api/jobs/{name}", 401), ("other", "none", 401), ("PUT", "/login", 405)]
            {
                refuse(&address, method, target, status, number);
            }
        }
        let row =
            |method: &str, target: &str, status, count| (method.to_owned(), target.to_owned(), status, count);
        assert_eq!(taken(1_000), [row("POST", "/api/jobs/{name}", 401, 1), row("PUT", "/login", 405, 1)]);
        assert_eq!(taken(3_600_000), [row("*", "*", 401, 1_999), row("*", "*", 405, 999)]);
    }

    #[test]
    fn refusals_of_many_networks_without_a_token_are_counted_together_in_the_end() {
        let log = AuditLog::default();
        let refused = |network: u32| AuditedRequest {
            actor: None,
            address: Some(IpAddr::from(network.to_be_bytes())),
            method: "POST",
            target: "none",
            status: 401,
            problem: None,
            request_id: "",
            note: AuditNote::default(),
        };
        let mut rows = 0;
        for number in 0..30_000 {
            log.record_unauthenticated(&refused(number), ANY, Timestamp(0));
            if number % 1_000 == 0 {
                rows += log.take(Timestamp(0), false).len();
            }
        }
        rows += log.take(Timestamp(0), false).len();
        assert_eq!(rows, repeats::REPEATS_MAX + 1);
    }

    #[test]
    fn a_refusal_that_comes_again_has_a_row_an_hour() {
        let (log, actor) = (AuditLog::default(), Actor::anonymous());
        let refuse =
            |at: i64| log.record_refusal(&request(&actor, "/api/workers/connect", "a"), Timestamp(at));
        let taken = |at: i64, at_shutdown| -> Vec<(i64, i64, u64)> {
            let rows = log.take(Timestamp(at), at_shutdown);
            rows.into_iter().map(|row| (row.from.0, row.to.0, row.count)).collect()
        };
        const HOUR: i64 = 3_600_000;
        refuse(0);
        assert_eq!(taken(1, false), [(0, 0, 1)], "the first one is written at once");
        refuse(15_000);
        refuse(30_000);
        assert_eq!(taken(HOUR - 1, false), []);
        assert_eq!(taken(HOUR, false), [(15_000, 30_000, 2)]);
        refuse(HOUR + 5);
        assert_eq!(taken(HOUR + 6, true), [(HOUR + 5, HOUR + 5, 1)], "a server that leaves writes all");
        assert_eq!(taken(9 * HOUR, false), []);
        refuse(9 * HOUR);
        assert_eq!(taken(9 * HOUR, false).len(), 1, "after a quiet hour it is a first one again");
    }
}
