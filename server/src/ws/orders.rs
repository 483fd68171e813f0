//! Turns messages of the engine into frames: joins neighbours of one kind, adds overrides and definitions.

use std::sync::Arc;

use protocol::close::{self, Close};
use protocol::container::Overrides;
use protocol::order::{Assignment, Definition};
use protocol::{JobId, Order, ReportNo, wire};
use scheduler::batches::BatchMember;
use scheduler::step::{CloseReason, Grant};

use super::acceptor::WorkerAcceptor;
use super::grants::Grants;
use super::join_audit::JoinAudit;
use super::secrets::SessionSecrets;
use super::session_log::SessionLog;
use super::unsent::UnsentAttempts;
use crate::clock;
use crate::engine::{RefusedSession, ToSession};
use crate::listener::ConnectionPermit;
use crate::own_variables::with_own_variables;

/// The state of the session after these frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    /// The session goes on.
    Open,
    /// The session is to be closed.
    Close(Close),
}

/// Encodes the engine's messages of one session.
pub(super) struct Orders {
    acceptor: WorkerAcceptor,
    grants: Arc<Grants>,
    refusal: Close,
    session_log: SessionLog,
    secrets: SessionSecrets,
    audit: JoinAudit,
    /// The permit of the connection. Dropped at Welcome: thousands of workers leave the connections to clients.
    permit: Option<Arc<ConnectionPermit>>,
}

impl Orders {
    /// Assigned attempts are added to `grants`.
    pub(super) fn new(
        acceptor: WorkerAcceptor,
        grants: Arc<Grants>,
        session_log: SessionLog,
        secrets: SessionSecrets,
        audit: JoinAudit,
        permit: Option<Arc<ConnectionPermit>>,
    ) -> Self {
        Self { acceptor, grants, refusal: close::NORMAL.plain(), session_log, secrets, audit, permit }
    }

    /// Logs the end of the session, and notes a worker that did not leave.
    pub(super) fn ended(&self, close: Option<&Close>) {
        if let Some(lost) = self.session_log.ended(close) {
            self.acceptor.machines.lose(lost, clock::now().utc);
        }
    }

    /// Encodes messages in order, and records which attempts are in which frame. It stops after [`FRAMED_BYTES`], and leaves the other
    /// messages. Acknowledgements are cumulative: only the last one is sent, after the other frames.
    pub(super) async fn put_into_frames(
        &mut self,
        messages: &mut impl Iterator<Item = ToSession>,
        frames: &mut Vec<Vec<u8>>,
        unsent: &mut UnsentAttempts,
    ) -> SessionState {
        let mut grants = Vec::new();
        let mut acknowledged: Option<ReportNo> = None;
        let mut state = SessionState::Open;
        let mut size = FramedSize::default();
        while size.of(frames) < FRAMED_BYTES
            && let Some(message) = messages.next()
        {
            match message {
                ToSession::Enqueue(more) => {
                    grants.extend(more);
                    continue;
                }
                ToSession::Order(Order::Acknowledge(number)) => {
                    acknowledged = acknowledged.max(Some(number));
                    continue;
                }
                _ => {}
            }
            // Assignments gathered so far go before a message of another kind.
            if let Err(close) = self.enqueue(std::mem::take(&mut grants), frames, unsent).await {
                return SessionState::Close(close);
            }
            match message {
                ToSession::Order(order) => {
                    self.note(&order);
                    pack(&order, frames);
                }
                ToSession::Define(definition) => {
                    self.secrets.define(&definition);
                    pack(&define(&definition), frames);
                }
                ToSession::Close(reason) => {
                    state = SessionState::Close(self.close_for(reason));
                    break;
                }
                ToSession::Refuse(cause) => {
                    state = SessionState::Close(close_for_refused(cause));
                    break;
                }
                ToSession::Enqueue(_) => {}
            }
        }
        if let Err(close) = self.enqueue(grants, frames, unsent).await {
            return SessionState::Close(close);
        }
        if let Some(number) = acknowledged {
            pack(&Order::Acknowledge(number), frames);
        }
        state
    }

    async fn enqueue(
        &self,
        grants: Vec<Grant>,
        frames: &mut Vec<Vec<u8>>,
        unsent: &mut UnsentAttempts,
    ) -> Result<(), Close> {
        if grants.is_empty() {
            return Ok(());
        }
        self.grants.add(grants.iter().map(|grant| (grant.token, grant.revision)));
        let now = clock::now().utc;
        let mut filled = self.overrides(&grants).await?;
        let secrets = self.secrets.read(grants.iter().map(|grant| grant.revision)).await;
        unsent.framed(frames.len(), grants.len());
        let assignments = grants
            .into_iter()
            .map(|grant| {
                let overrides = with_position(filled.take(&grant), grant.member);
                let overrides = with_own_variables(overrides, &grant, self.session_log.name());
                let overrides = match &self.acceptor.tracer {
                    Some(tracer) => tracer.hand_over(grant.token, overrides),
                    None => overrides,
                };
                let secrets = secrets.get(&grant.revision).cloned();
                let secrets = self.secrets.with_params(grant.revision, secrets, overrides.as_ref());
                Assignment {
                    token: grant.token,
                    priority: grant.priority,
                    waited: now.since(grant.due_at),
                    revision: grant.revision,
                    overrides,
                    time_left: grant.time_left,
                    memory_bytes: grant.memory_bytes,
                    secrets,
                    gpus: grant.gpus,
                }
            })
            .collect();
        pack_each(assignments, frames);
        Ok(())
    }

    /// The overrides of these jobs. If they cannot be read, the session closes and the attempts go back, since they were not sent.
    async fn overrides(&self, grants: &[Grant]) -> Result<OverridesOf, Close> {
        let mut filled = OverridesOf::default();
        let mut missing = Vec::new();
        for grant in grants.iter().filter(|grant| grant.has_overrides) {
            match self.acceptor.overrides.take(grant.token.job) {
                Some(overrides) => filled.overrides.push((grant.token.job, overrides)),
                None => missing.push(grant.token.job),
            }
        }
        if !missing.is_empty() {
            let archive = self.acceptor.archive.clone();
            let read = tokio::task::spawn_blocking(move || archive.overrides(&missing)).await;
            match read {
                Ok(Ok(overrides)) => filled.overrides.extend(overrides),
                Ok(Err(error)) => return Err(unreadable(&error)),
                Err(error) => return Err(unreadable(&error)),
            }
        }
        filled.overrides.sort_unstable_by_key(|(job, _)| *job);
        Ok(filled)
    }

    fn note(&mut self, order: &Order) {
        self.session_log.note(order);
        match order {
            Order::Welcome(welcome) => {
                drop(self.permit.take());
                self.grants.set_worker(welcome.worker);
                self.acceptor.machines.regain(welcome.worker);
                self.audit.welcomed(welcome.worker);
            }
            Order::Refused(refused) => {
                self.session_log.refused(&refused.code, &refused.text);
                self.audit.refused(&refused.code);
                let code = match refused.code.as_str() {
                    "unsupported_version" => close::UNSUPPORTED_VERSION,
                    "worker_revoked" | "token_used_up" => close::UNAUTHORIZED,
                    "wrong_cluster" | "unknown_worker" => close::WRONG_CLUSTER,
                    _ => close::DUPLICATE_WORKER,
                };
                self.refusal = code.with_reason(format_args!("{}: {}", refused.code, refused.text));
            }
            _ => {}
        }
    }

    fn close_for(&self, reason: CloseReason) -> Close {
        match reason {
            CloseReason::Refused => self.refusal.clone(),
            CloseReason::Revoked => close::UNAUTHORIZED.with_reason("the worker was revoked"),
            CloseReason::Replaced => close::SUPERSEDED.plain(),
            CloseReason::Protocol(rule) => close::MALFORMED.with_reason(rule),
            CloseReason::Silent => close::SILENT.plain(),
            CloseReason::Unanswered(token) => close::UNANSWERED
                .with_reason(format_args!("job {} was enqueued twice as attempt {}", token.job, token.fence)),
        }
    }
}

fn close_for_refused(cause: RefusedSession) -> Close {
    match cause {
        RefusedSession::TooManyJoins => {
            close::RATE_LIMITED.with_reason("more new workers than may join in a minute; try again")
        }
        RefusedSession::ByStore => close::INTERNAL_ERROR
            .with_reason("the store refused the changes of this message twice; the server's log says more"),
    }
}

/// Encoded bytes after which a session writes before it encodes more: a worker that does not read makes the server hold little more.
const FRAMED_BYTES: usize = 4 << 20;

/// The size of frames to which others are added.
#[derive(Default)]
struct FramedSize {
    frames: usize,
    bytes: usize,
}

impl FramedSize {
    fn of(&mut self, frames: &[Vec<u8>]) -> usize {
        self.bytes += frames.iter().skip(self.frames).map(Vec::len).sum::<usize>();
        self.frames = frames.len();
        self.bytes
    }
}

#[derive(Default)]
struct OverridesOf {
    overrides: Vec<(JobId, Overrides)>,
}

impl OverridesOf {
    fn take(&mut self, grant: &Grant) -> Option<Overrides> {
        let found = self.overrides.binary_search_by_key(&grant.token.job, |(job, _)| *job).ok()?;
        Some(std::mem::take(&mut self.overrides[found].1))
    }
}

/// Tells a member of a batch its position.
fn with_position(overrides: Option<Overrides>, member: Option<BatchMember>) -> Option<Overrides> {
    let Some(member) = member else { return overrides };
    let mut overrides = overrides.unwrap_or_default();
    // The repetition of a member does the work of that position, also if it is a member of another batch.
    let is_new = |name: &str| overrides.environment.iter().all(|(known, _)| known != name);
    let variables: Vec<_> = member.variables().into_iter().filter(|(name, _)| is_new(name)).collect();
    overrides.environment.extend(variables);
    Some(overrides)
}

fn unreadable(error: &dyn std::error::Error) -> Close {
    tracing::error!(%error, "cannot read the overrides of jobs; the session closes and the attempts are requeued");
    close::INTERNAL_ERROR.plain()
}

fn define(definition: &scheduler::definition::Definition) -> Order {
    Order::define(Definition {
        revision: definition.revision,
        name: definition.name.clone(),
        container: definition.container.clone(),
    })
}

/// Encodes all that fit. An assignment that does not fit is dropped: submission checks the size, so this is a bug.
fn pack_each(assignments: Vec<Assignment>, frames: &mut Vec<Vec<u8>>) {
    let together = Order::Enqueue(assignments);
    if wire::pack_order(&together, frames).is_ok() {
        return;
    }
    let Order::Enqueue(assignments) = together else { return };
    for assignment in assignments {
        let token = assignment.token;
        if let Err(error) = wire::pack_order(&Order::Enqueue(vec![assignment]), frames) {
            tracing::error!(%error, %token, "attempt not sent: it does not fit into a frame");
        }
    }
}

/// Encodes an order. One that does not fit is dropped and logged: submission checks the size, so this is a bug.
fn pack(order: &Order, frames: &mut Vec<Vec<u8>>) {
    if let Err(error) = wire::pack_order(order, frames) {
        tracing::error!(%error, order = order.name(), "order not sent: it does not fit into a frame");
    }
}
