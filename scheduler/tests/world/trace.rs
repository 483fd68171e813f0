//! A step in words, one line for each change and effect, and for each worker that is set aside or open again.

use crate::world::World;
use crate::world::protocol::{JobId, Order, SessionId, Timestamp};
use crate::world::scheduler::dependencies::PredecessorId;
use crate::world::scheduler::details::JobDetails;
use crate::world::scheduler::hooks::HookResult;
use crate::world::scheduler::pauses::PauseChange;
use crate::world::scheduler::run_on::MemberPlan;
use crate::world::scheduler::step::{Answer, Change, ClosedAttempt, Effect, Grant, Note, Step};

/// The lines of the step with this index.
pub(crate) fn lines(world: &World, start: Timestamp, index: usize) -> Vec<String> {
    let Step { changes, effects } = &world.steps[index].1;
    let changes = changes.iter().map(|change| change_line(start, change));
    let effects = effects.iter().map(|effect| effect_line(world, effect));
    changes.chain(effects).chain(set_aside_lines(world, index)).collect()
}

fn set_aside_lines(world: &World, index: usize) -> Vec<String> {
    let now = &world.set_aside[index];
    let before = index.checked_sub(1).map(|index| world.set_aside[index].clone()).unwrap_or_default();
    let ended = before.keys().filter(|worker| !now.contains_key(worker));
    let ended = ended.map(|worker| format!("worker {worker} not set aside any more"));
    let begun = now.iter().filter(|(worker, job)| before.get(worker) != Some(job));
    ended.chain(begun.map(|(worker, job)| format!("worker {worker} set aside for j{job}"))).collect()
}

fn change_line(start: Timestamp, change: &Change) -> String {
    let at = |at: &Timestamp| format!("{}ms", at.0 - start.0);
    match change {
        Change::Added(it) => {
            let parent = it.details.as_ref().map(|details| parent_words(start, details)).unwrap_or_default();
            let by = it.submitted_by.as_ref().map(|name| format!(" by {name}")).unwrap_or_default();
            format!("change j{} added {} due {}{by}{parent}", it.job, it.state.name(), at(&it.due_at))
        }
        Change::Assigned(it) => {
            format!("change j{} assigned to worker {} attempt {}", it.token, it.worker, it.number)
        }
        Change::Started { token, at: when, .. } => format!("change j{token} started {}", at(when)),
        Change::Stopping { token, cause, by, .. } => {
            format!("change j{token} stopping: {} by {by}", cause.name())
        }
        Change::AttemptClosed { job, closed, due_at, state } => {
            format!("change j{job} waits again: {} due {} after {}", state.name(), at(due_at), end(closed))
        }
        Change::BecameDue { job } => format!("change j{job} due"),
        Change::Expiry { job, at: Some(deadline) } => format!("change j{job} expires {}", at(deadline)),
        Change::Expiry { job, at: None } => format!("change j{job} does not expire"),
        Change::Updated(it) => {
            let (state, due) = (it.state.name(), at(&it.due_at));
            format!("change j{} updated: {state} due {due} priority {}", it.job, it.priority)
        }
        Change::ContainerGone { token, worker, .. } => {
            format!("change j{} confirmed: {token} is gone from worker {worker}", token.job)
        }
        Change::QuarantineReleased { job } => format!("change j{job} freed"),
        Change::Ended(it) => {
            let closed = it.closed.as_ref().map_or(String::from("no attempt"), end);
            let confirmed = if it.confirmed { "" } else { " unconfirmed" };
            format!("change j{} ended {}{confirmed} ({:?}) with {closed}", it.job, it.state.name(), it.reason)
        }
        Change::Noted { job, note, .. } => match note {
            Note::LateReport { token, worker, said } => {
                format!("note j{job} late report of {token} by worker {worker}: {said}")
            }
            Note::Unreachable { token, worker } => {
                format!("note j{job} {token} unreachable on worker {worker}")
            }
            Note::Revived { token, worker } => format!("note j{job} {token} revived on worker {worker}"),
            Note::CancelRequested { by } => format!("note j{job} cancel requested by {by}"),
            Note::ContainerGone { token, worker } => format!("note j{job} {token} gone from worker {worker}"),
            Note::Released { by } => format!("note j{job} released by {by}"),
            Note::WorkersLeftOut { workers } => format!("note j{job} no member for {workers}"),
            Note::ResultLeftOut { why } => format!("note j{job} left out {why}"),
            Note::Updated { by, due_at, priority } => {
                format!("note j{job} updated by {by}: due {} priority {priority}", at(due_at))
            }
        },
        Change::BatchAdded(it) => {
            let max = it.options.max_failures.map(|max| format!(" max_failures={max}")).unwrap_or_default();
            let limit =
                it.options.concurrency.map(|limit| format!(" concurrency={limit}")).unwrap_or_default();
            let key = it.options.unique.as_ref().map(|it| format!(" key={}", it.key)).unwrap_or_default();
            format!("change batch j{} x{}{max}{limit}{key}", it.first, it.count)
        }
        Change::BatchCancelled { first, by, .. } => format!("change batch j{first} cancelled by {by}"),
        Change::BatchReplaced { first, by } => format!("change batch j{first} replaced by batch j{by}"),
        Change::BatchChanged { first, limits } => {
            let text = |limit: Option<u32>| limit.map_or("none".into(), |limit| limit.to_string());
            let (failures, at_once) = (text(limits.max_failures), text(limits.concurrency));
            format!("change batch j{first} max_failures={failures} concurrency={at_once}")
        }
        Change::BatchEnded { first, count, failed, state, .. } => {
            format!("change batch j{first} x{count} ended {}, {failed} failed", state.name())
        }
        Change::PendingBatch { first, last } => format!("change j{first} to j{last} forming"),
        Change::BatchCompleted { first } => format!("change j{first} formed"),
        Change::IdempotencyKeyStored { key, holder, .. } => {
            format!("change key {key} holds j{} x{}", holder.job, holder.count)
        }
        Change::NumbersSkipped { after, job, fence, .. } => {
            format!("change jobs after j{after} to j{job} and fences to {fence} left out")
        }
        Change::CordonEnded { row, until } => {
            format!("change worker {} takes jobs again: its cordon was until {}", row.worker, at(until))
        }
        Change::Worker(row) => {
            let drain = row.drain.map(|drain| match drain.deadline {
                Some(deadline) => format!(" drained, at the latest {}", at(&deadline)),
                None => " drained".into(),
            });
            let drain = drain.unwrap_or_default();
            let cordon = row.cordon.as_ref().filter(|cordon| !cordon.origin.by.is_empty()).map(|cordon| {
                let reason = cordon.origin.reason.as_deref().unwrap_or("no reason");
                format!(" since {} by {}: {reason}", at(&cordon.since), cordon.origin.by)
            });
            let until = row.cordon_end().map(|end| format!(" until {}", at(&end))).unwrap_or_default();
            let cordon = format!("{}{until}", cordon.unwrap_or_default());
            let labels: String = row.labels.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            let granted: String =
                row.granted.iter().map(|(name, value)| format!(" granted {name}={value}")).collect();
            let revoked = row.revoked_at.map(|_| " revoked").unwrap_or_default();
            let (worker, name) = (row.worker, &row.name);
            format!(
                "change worker {worker} {name:?} cordoned={}{cordon}{drain}{labels}{granted}{revoked}",
                row.cordoned
            )
        }
        Change::WorkerForgotten(worker) => format!("change worker {worker} forgotten"),
        Change::Schedule(row) => {
            let removed = row.removed_at.map(|since| format!(" removed {}", at(&since))).unwrap_or_default();
            let last = row.last_fire.map(|last| format!(" last {} j{}", at(&last.slot), last.job));
            let last = last.unwrap_or_default();
            let (name, id) = (&row.definition, &row.schedule);
            format!("change schedule {name}/{id} decided until {}{last}{removed}", at(&row.cursor))
        }
        Change::Fire(row) => {
            let reason = row.verdict.reason().map(|reason| format!(" {reason}")).unwrap_or_default();
            let job = row.verdict.job().map(|job| format!(" j{job}")).unwrap_or_default();
            let exact = if row.count.exact { "" } else { "+" };
            let (name, id, verdict) = (&row.definition, &row.schedule, row.verdict.name());
            let (from, to, count) = (at(&row.from), at(&row.to), row.count.count);
            format!("change slots {name}/{id} {from} to {to} ({count}{exact}) {verdict}{reason}{job}")
        }
        Change::Expectation(row) => {
            let since = row.awaited_since.map(|since| format!(" awaited since {}", at(&since)));
            let stale = row.stale_since.map(|since| format!(" stale {}", at(&since)));
            let slow = row.slow.map(|slow| format!(" slow {} j{}", at(&slow.since), slow.job));
            let told: String = [since, stale, slow].into_iter().flatten().collect();
            format!("change expectation {}{told}", row.definition)
        }
        Change::ExpectationDropped { definition } => format!("change expectation {definition} dropped"),
        Change::Hook(row) => {
            let (parent, event, target) = (row.parent, row.event.name(), &row.target);
            let result = match row.result {
                HookResult::Made { job, depth } => format!("j{job} depth {depth}"),
                HookResult::LeftOut(refusal) => format!("left out: {}", refusal.name()),
            };
            format!("change hook {event} of j{parent}: {target} {result}")
        }
        Change::Dependency(row) => {
            let ended = row.ended.map(|state| format!(", which ended {}", state.name())).unwrap_or_default();
            let on = match row.on {
                PredecessorId::Job(job) => format!("j{job}"),
                PredecessorId::Batch(first) => format!("batch j{first}"),
            };
            format!("change j{} after {on} {}{ended}", row.job, row.requires.name())
        }
        Change::ResultsTaken { job, .. } => format!("change j{job} takes results"),
        Change::DependenciesDropped { job, is_skipped } => {
            format!("change j{job} waits for no others{}", if *is_skipped { ", skipped" } else { "" })
        }
        Change::Unique(row) => {
            let before = |before: JobId| format!(" after j{before}");
            let holder = row.holder.map_or("free".into(), |it| {
                format!("j{}{}", it.job, it.predecessor.map(before).unwrap_or_default())
            });
            format!("change key {} of {}: {holder}", row.id.key, row.id.definition)
        }
        Change::Parent(row) => {
            let plan = match &row.plan {
                MemberPlan::All => "all".into(),
                MemberPlan::Count { members, except } if except.is_empty() => members.to_string(),
                MemberPlan::Count { members, except } => format!("{members} except {except:?}"),
                MemberPlan::Workers(workers) => format!("{workers:?}"),
            };
            let counts = row.counts;
            let kinds = [
                (counts.succeeded, "succeeded"),
                (counts.failed, "failed"),
                (counts.cancelled, "cancelled"),
                (counts.expired, "expired"),
                (counts.lost, "lost"),
            ];
            let ended: String = kinds
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, name)| format!(", {count} {name}"))
                .collect();
            let made = if row.is_complete { "" } else { " so far" };
            let started = row.started_at.map(|since| format!(", started {}", at(&since))).unwrap_or_default();
            let by = row.cancelled_by.as_ref().map(|by| format!(", cancelled by {by}")).unwrap_or_default();
            format!(
                "change parent j{} on {plan}: {} members{made}{ended}{started}{by}",
                row.job, counts.total
            )
        }
        Change::Member(row) => {
            let pinned = row.pinned.map(|only| format!(" on worker {only} only")).unwrap_or_default();
            format!("change j{} is a member of j{}{pinned}", row.job, row.parent)
        }
        Change::WorkerUsed(of) => {
            format!("change worker {} is left to j{} of j{}", of.worker, of.member, of.parent)
        }
        Change::RateUsed(row) => format!("change {} recovers {}", row.id, at(&row.recovered)),
        Change::Paused { target, pause } => {
            let (state, in_force) = match pause {
                PauseChange::Set(pause) => ("paused", Some(pause)),
                PauseChange::Resumed { .. } => ("goes on", None),
                PauseChange::Ended(_) => ("goes on: its time has come", None),
                PauseChange::BatchEnded => ("goes on: it has ended", None),
            };
            let until = in_force.and_then(|pause| pause.until).map(|until| format!(" until {}", at(&until)));
            let by = match pause {
                PauseChange::Set(pause) => &*pause.origin.by,
                PauseChange::Resumed { by } => by,
                PauseChange::Ended(_) | PauseChange::BatchEnded => "",
            };
            let by = Some(by).filter(|by| !by.is_empty());
            let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
            let reason = in_force.and_then(|pause| pause.origin.reason.as_deref());
            let reason = reason.map(|reason| format!(" because {reason:?}")).unwrap_or_default();
            format!("change {target:?} {state}{}{by}{reason}", until.unwrap_or_default())
        }
    }
}

/// The facts about its parent that the job of a hook gets, with times since the start of the scenario.
fn parent_words(start: Timestamp, details: &JobDetails) -> String {
    let fact = |(name, value): &(String, String)| {
        let name = name.strip_prefix("LONGSHORE_PARENT_")?;
        let Ok(at) = value.parse::<jiff::Timestamp>() else { return Some(format!("{name}={value:?}")) };
        Some(format!("{name}={}ms", at.as_millisecond() - start.0))
    };
    let facts: Vec<String> = details.overrides.environment.iter().filter_map(fact).collect();
    let params = details.params.variables.iter().map(|(name, value)| format!(" {name}={value:?}"));
    if facts.is_empty() {
        String::new()
    } else {
        format!(" told {}{}", facts.join(" "), params.collect::<String>())
    }
}

fn end(closed: &ClosedAttempt) -> String {
    let code = closed.exit_code.map(|code| format!(" exit {code}")).unwrap_or_default();
    format!("{}#{} {}{code}", closed.token.job, closed.token.fence, closed.outcome.name())
}

fn grant_words(grant: &Grant) -> String {
    let memory = grant.memory_bytes.map(|bytes| format!(" memory={}m", bytes >> 20)).unwrap_or_default();
    let gpus = if grant.gpus.is_empty() { String::new() } else { format!(" gpus={}", grant.gpus.join(",")) };
    format!("j{}{memory}{gpus}", grant.token)
}

fn effect_line(world: &World, effect: &Effect) -> String {
    let who = |session: &SessionId| {
        let found = world.workers.iter().find(|(_, member)| member.session == Some(*session));
        found.map_or_else(|| format!("session {session}"), |(name, _)| name.clone())
    };
    match effect {
        Effect::Reply(_, answer) => format!("reply {}", answer_words(answer)),
        Effect::Send(session, order) => format!("order {} {}", who(session), order_words(order)),
        Effect::Define(session, definition) => format!("order {} define {}", who(session), definition.name),
        Effect::Enqueue(session, grants) => {
            let list: Vec<String> = grants.iter().map(grant_words).collect();
            format!("order {} enqueue {}", who(session), list.join(" "))
        }
        Effect::Close(session, reason) => format!("close {} {reason:?}", who(session)),
        Effect::JobEnded(job, state) => format!("tell j{job} {}", state.name()),
    }
}

fn order_words(order: &Order) -> String {
    match order {
        Order::Welcome(it) => format!("welcome worker {} last report {}", it.worker, it.last_report),
        Order::Reconciled(it) => {
            let list: Vec<String> =
                it.attempts.iter().map(|(token, verdict)| format!("j{token} {verdict:?}")).collect();
            format!("reconciled [{}]", list.join(", "))
        }
        Order::Cancel(it) => format!("cancel j{} {}", it.token, it.cause.name()),
        Order::Recall(tokens) => {
            let list: Vec<String> = tokens.iter().map(|token| format!("j{token}")).collect();
            format!("recall {}", list.join(" "))
        }
        Order::Acknowledge(number) => format!("acknowledge {number}"),
        Order::Pulse(_) => "pulse".into(),
        Order::Configure(it) => {
            let slots = it.slots.map(|slots| format!(" slots={slots}")).unwrap_or_default();
            let heartbeat =
                it.intervals.map(|all| format!(" heartbeat={:?}", all.heartbeat)).unwrap_or_default();
            format!("configure{slots} drain={}{heartbeat}", it.drain)
        }
        Order::Refused(it) => format!("refused {}: {}", it.code, it.text),
        other => other.name().to_lowercase(),
    }
}

fn answer_words(answer: &Answer) -> String {
    match answer {
        Answer::Accepted(it) => {
            let pending = it.pending.map(|reason| format!(" ({})", reason.name())).unwrap_or_default();
            let replaces =
                it.replaces.map(|batch| format!(" in place of batch j{batch}")).unwrap_or_default();
            format!("accepted j{} x{} {}{pending}{replaces}", it.first, it.count, it.state.name())
        }
        Answer::Replayed(holder) => format!("replayed j{} x{}", holder.job, holder.count),
        Answer::Duplicate(job) => format!("duplicate of j{job}"),
        Answer::ExistingBatch { first, count } => format!("batch j{first} x{count} exists"),
        Answer::CancelRequested { state } => format!("cancelling {}", state.name()),
        Answer::BatchCancelRequested { live, ended } => format!("cancelling {live}, {ended} ended"),
        Answer::Done => "done".into(),
        Answer::Pause(result) if result.is_changed() => "done".into(),
        Answer::Pause(_) => "unchanged".into(),
        Answer::Rejected(rejection) => format!("rejected {rejection:?}"),
    }
}
