//! A decision as a list of sentences: what is compared.

use crate::world::protocol::Order;
use crate::world::scheduler::step::{Answer, Change, CloseReason, Effect, Note, Step};

pub(crate) fn lines(step: &Step) -> Vec<String> {
    let changes = step.changes.iter().filter_map(change);
    changes.chain(step.effects.iter().flat_map(effect)).collect()
}

pub(super) fn change(change: &Change) -> Option<String> {
    Some(match change {
        Change::Added(it) => format!("j{} added {} due {}", it.job, it.state.name(), it.due_at.0),
        Change::Assigned(it) => {
            format!("j{} assigned w{} attempt {} on {}", it.token, it.worker, it.number, it.session)
        }
        Change::Started { token, at, .. } => format!("j{token} started at {}", at.0),
        Change::Stopping { token, cause, .. } => format!("j{token} stopping {}", cause.name()),
        Change::AttemptClosed { closed, due_at, state, .. } => {
            format!("j{} {}, then {} due {}", closed.token, closed.outcome.name(), state.name(), due_at.0)
        }
        Change::BecameDue { job } => format!("j{job} due"),
        Change::QuarantineReleased { job } => format!("j{job} freed"),
        Change::Expiry { job, at } => format!("j{job} expires {:?}", at.map(|at| at.0)),
        Change::Updated(it) => {
            format!("j{} updated: {} due {} p{}", it.job, it.state.name(), it.due_at.0, it.priority)
        }
        Change::Ended(it) => {
            let closed = it.closed.as_ref().map(|it| format!("{} {}", it.token, it.outcome.name()));
            ended(it.job.0, it.state.name(), it.confirmed, closed)
        }
        Change::Noted { job, note, .. } => match note {
            Note::LateReport { token, worker, said } => {
                format!("j{job} noted late {token} of w{worker}: {said}")
            }
            Note::Unreachable { token, worker } => format!("j{job} noted {token} unreachable on w{worker}"),
            Note::Revived { token, worker } => format!("j{job} noted {token} revived on w{worker}"),
            Note::CancelRequested { by } => format!("j{job} noted cancel by {by}"),
            Note::Released { by } => format!("j{job} noted freed by {by}"),
            Note::WorkersLeftOut { workers } => format!("j{job} noted no member for {workers}"),
            Note::ResultLeftOut { why } => format!("j{job} noted left out {why}"),
            Note::Updated { by, due_at, priority } => {
                format!("j{job} noted updated by {by}: due {} p{priority}", due_at.0)
            }
            Note::ContainerGone { token, .. } => format!("j{job} noted {token} confirmed"),
        },
        Change::ContainerGone { token, worker, .. } => format!("j{token} confirmed by w{worker}"),
        Change::NumbersSkipped { after, job, fence, .. } => {
            format!("numbers {after} to {job}, and fences to {fence}, left out")
        }
        Change::WorkerForgotten(worker) => format!("w{worker} forgotten"),
        Change::CordonEnded { row, .. } => format!("w{} takes jobs again", row.worker),
        // Rows of workers are told by what they lead to.
        Change::Worker(_) | Change::IdempotencyKeyStored { .. } | Change::Schedule(_) => return None,
        Change::Fire(row) => format!("slots {} to {}: {:?}", row.from.0, row.to.0, row.verdict),
        Change::Hook(row) => format!("j{} {} {}: {:?}", row.parent, row.event.name(), row.target, row.result),
        Change::Dependency(row) => format!("{row:?}"),
        Change::DependenciesDropped { job, .. } => format!("j{job} waits for no others"),
        Change::ResultsTaken { job, .. } => format!("j{job} takes results"),
        Change::Unique(row) => format!("key {} of {}: {:?}", row.id.key, row.id.definition, row.holder),
        // The model runs each job on one worker.
        Change::Parent(row) => format!("{row:?}"),
        Change::Member(row) => format!("{row:?}"),
        Change::WorkerUsed(of) => format!("{of:?}"),
        Change::RateUsed(row) => format!("{} recovers {}", row.id, row.recovered.0),
        Change::Paused { target, pause } => match pause.in_force() {
            Some(pause) => format!("{target:?} paused until {:?}", pause.until),
            None => format!("{target:?} goes on"),
        },
        Change::Expectation(row) => format!("{row:?}"),
        Change::ExpectationDropped { definition } => format!("{definition} is expected no more"),
        Change::PendingBatch { first, last } => format!("j{first} to j{last} forming"),
        Change::BatchCompleted { first } => format!("j{first} formed"),
        // They follow from the ends of the members, which the ledger counts.
        Change::BatchAdded(_)
        | Change::BatchCancelled { .. }
        | Change::BatchReplaced { .. }
        | Change::BatchChanged { .. }
        | Change::BatchEnded { .. } => return None,
    })
}

pub(super) fn ended(job: u64, state: &str, confirmed: bool, closed: Option<String>) -> String {
    let closed = closed.unwrap_or_else(|| "no attempt".into());
    format!("j{job} ended {state} with {closed}{}", if confirmed { "" } else { ", unconfirmed" })
}

fn effect(effect: &Effect) -> Vec<String> {
    match effect {
        Effect::Reply(ticket, Answer::Pause(result)) => {
            vec![format!("reply {}: {}", ticket.0, if result.is_changed() { "Done" } else { "Unchanged" })]
        }
        Effect::Reply(ticket, answer) => vec![format!("reply {}: {answer:?}", ticket.0)],
        Effect::Send(to, order) => match order {
            Order::Cancel(it) => vec![format!("to {to}: cancel {} {}", it.token, it.cause.name())],
            Order::Recall(tokens) => tokens.iter().map(|it| format!("to {to}: recall {it}")).collect(),
            Order::Reconciled(it) => {
                it.attempts.iter().map(|(token, verdict)| format!("to {to}: {verdict:?} {token}")).collect()
            }
            Order::Acknowledge(number) => vec![format!("to {to}: acknowledge {number}")],
            Order::Welcome(it) => vec![format!("to {to}: welcome w{} after {}", it.worker, it.last_report)],
            // Settings of the worker and signs of life.
            Order::Configure(_) | Order::Pulse(_) => Vec::new(),
            other => vec![format!("to {to}: {}", other.name())],
        },
        Effect::Define(to, definition) => vec![format!("to {to}: define {}", definition.name)],
        Effect::Enqueue(to, grants) => {
            let line = |it: &crate::world::scheduler::step::Grant| {
                format!(
                    "to {to}: enqueue {} p{} due {} for {:?} with {:?} and {:?}",
                    it.token, it.priority, it.due_at.0, it.time_left, it.memory_bytes, it.gpus
                )
            };
            grants.iter().map(line).collect()
        }
        Effect::Close(session, CloseReason::Protocol(_)) => vec![format!("close {session}: Protocol")],
        Effect::Close(session, reason) => vec![format!("close {session}: {reason:?}")],
        Effect::JobEnded(job, state) => vec![format!("tell j{job} {}", state.name())],
    }
}
