//! What the engine says → frames: neighbours of one kind share a frame, bodies are filled in, definitions are spelled out.

use std::sync::Arc;

use protocol::close::{self, Close};
use protocol::container::Body;
use protocol::order::{Assignment, Definition};
use protocol::{JobId, Order, ReportNo, wire};
use scheduler::step::{CloseReason, Grant};

use super::accept::Door;
use super::grants::Grants;
use super::presence::Presence;
use super::unsent::Unsent;
use crate::clock;
use crate::engine::ToSession;
use crate::listener::Place;

/// Whether there is more to say after these frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The session goes on.
    More,
    /// Close it so.
    Enough(Close),
}

/// Spells out what the engine says.
pub(super) struct Orders {
    door: Door,
    grants: Arc<Grants>,
    refusal: Close,
    presence: Presence,
    /// The socket's place among the connections. Given back at Welcome: thousands of workers leave those of clients alone.
    place: Option<Arc<Place>>,
}

impl Orders {
    /// What is handed over is added to `grants`.
    pub(super) fn new(
        door: Door,
        grants: Arc<Grants>,
        presence: Presence,
        place: Option<Arc<Place>>,
    ) -> Self {
        Self { door, grants, refusal: close::NORMAL.plain(), presence, place }
    }

    /// The session is over, and closed so.
    pub(super) fn ended(&self, close: Option<&Close>) {
        self.presence.ended(close);
    }

    /// Puts messages into frames, in order, and notes which attempts are in which. Acknowledgements are cumulative: only the last one is
    /// said, behind the others.
    pub(super) async fn put_into_frames(
        &mut self,
        messages: impl Iterator<Item = ToSession>,
        frames: &mut Vec<Vec<u8>>,
        unsent: &mut Unsent,
    ) -> Said {
        let mut grants = Vec::new();
        let mut acknowledged: Option<ReportNo> = None;
        let mut said = Said::More;
        for message in messages {
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
            // Something else comes: what was gathered goes before it.
            if let Err(close) = self.enqueue(std::mem::take(&mut grants), frames, unsent).await {
                return Said::Enough(close);
            }
            match message {
                ToSession::Order(order) => {
                    self.note(&order);
                    pack(&order, frames);
                }
                ToSession::Define(definition) => pack(&define(&definition), frames),
                ToSession::Close(reason) => {
                    said = Said::Enough(self.goodbye(reason));
                    break;
                }
                ToSession::Enqueue(_) => {}
            }
        }
        if let Err(close) = self.enqueue(grants, frames, unsent).await {
            return Said::Enough(close);
        }
        if let Some(number) = acknowledged {
            pack(&Order::Acknowledge(number), frames);
        }
        said
    }

    async fn enqueue(
        &self,
        grants: Vec<Grant>,
        frames: &mut Vec<Vec<u8>>,
        unsent: &mut Unsent,
    ) -> Result<(), Close> {
        if grants.is_empty() {
            return Ok(());
        }
        self.grants.add(grants.iter().map(|grant| grant.token));
        let now = clock::now().utc;
        let mut filled = self.bodies(&grants).await?;
        unsent.framed(frames.len(), grants.len());
        let assignments = grants
            .into_iter()
            .map(|grant| Assignment {
                token: grant.token,
                priority: grant.priority,
                waited: now.since(grant.due_at),
                revision: grant.revision,
                body: filled.take(&grant),
                time_left: grant.time_left,
                memory_bytes: grant.memory_bytes,
            })
            .collect();
        pack_each(assignments, frames);
        Ok(())
    }

    /// What these jobs add to their definitions. If that cannot be read the session closes, and these attempts go back: they were not sent.
    async fn bodies(&self, grants: &[Grant]) -> Result<Filled, Close> {
        let mut filled = Filled::default();
        let mut missing = Vec::new();
        for grant in grants.iter().filter(|grant| grant.has_body) {
            match self.door.bodies.take(grant.token.job) {
                Some(body) => filled.bodies.push((grant.token.job, body)),
                None => missing.push(grant.token.job),
            }
        }
        if !missing.is_empty() {
            let archive = self.door.archive.clone();
            let read = tokio::task::spawn_blocking(move || archive.bodies(&missing)).await;
            match read {
                Ok(Ok(bodies)) => filled.bodies.extend(bodies),
                Ok(Err(error)) => return Err(unreadable(&error)),
                Err(error) => return Err(unreadable(&error)),
            }
        }
        filled.bodies.sort_unstable_by_key(|(job, _)| *job);
        Ok(filled)
    }

    fn note(&mut self, order: &Order) {
        self.presence.note(order);
        match order {
            Order::Welcome(welcome) => {
                drop(self.place.take());
                self.grants.welcome(welcome.worker);
            }
            Order::Refused(refused) => {
                self.presence.refused(&refused.code, &refused.text);
                let code = match refused.code.as_str() {
                    "unsupported_version" => close::UNSUPPORTED_VERSION,
                    "wrong_cluster" | "unknown_worker" => close::WRONG_CLUSTER,
                    _ => close::DUPLICATE_WORKER,
                };
                self.refusal = code.because(&refused.code);
            }
            _ => {}
        }
    }

    fn goodbye(&self, reason: CloseReason) -> Close {
        match reason {
            CloseReason::Refused => self.refusal.clone(),
            CloseReason::Replaced => close::SUPERSEDED.plain(),
            CloseReason::Protocol => close::MALFORMED.because("that makes no sense in this session"),
            CloseReason::Silent => close::SILENT.plain(),
        }
    }
}

#[derive(Default)]
struct Filled {
    bodies: Vec<(JobId, Body)>,
}

impl Filled {
    fn take(&mut self, grant: &Grant) -> Option<Body> {
        let found = self.bodies.binary_search_by_key(&grant.token.job, |(job, _)| *job).ok()?;
        Some(std::mem::take(&mut self.bodies[found].1))
    }
}

fn unreadable(error: &dyn std::error::Error) -> Close {
    tracing::error!(%error, "cannot read what jobs add to their definitions");
    close::INTERNAL_ERROR.plain()
}

fn define(definition: &scheduler::definition::Definition) -> Order {
    Order::Definitions(vec![Definition {
        revision: definition.revision,
        name: definition.name.clone(),
        container: definition.container.clone(),
    }])
}

/// Packs all that fit. One that does not is left out alone: it was checked at the door, so this is a fault of ours.
fn pack_each(assignments: Vec<Assignment>, frames: &mut Vec<Vec<u8>>) {
    let together = Order::Enqueue(assignments);
    if wire::pack_order(&together, frames).is_ok() {
        return;
    }
    let Order::Enqueue(assignments) = together else { return };
    for assignment in assignments {
        let token = assignment.token;
        if let Err(error) = wire::pack_order(&Order::Enqueue(vec![assignment]), frames) {
            tracing::error!(%error, %token, "an attempt does not fit into a frame");
        }
    }
}

/// What does not fit into any frame is left out: it was checked at the door, so this is a fault of ours, and the log says so.
fn pack(order: &Order, frames: &mut Vec<Vec<u8>>) {
    if let Err(error) = wire::pack_order(order, frames) {
        tracing::error!(%error, order = order.name(), "an order does not fit into a frame");
    }
}
