//! `GET /api/jobs/{id}/explain`: the reason why a job is not running, and a verdict for each worker.
//!
//! The scheduler computes the verdicts (`scheduler::explain`); this module turns them into text. Additional facts about workers come from
//! the published snapshot, which is never older, and may be slightly younger.

mod estimate;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use protocol::report::{Availability, Outcome};
use protocol::{JobId, Now, RuntimeKind, Uptime, WorkerId};
use scheduler::definition::Definition;
use scheduler::explain::{Explanation, JobsBefore, Obstacle, PlacementVerdict, WorkerVerdict};
use scheduler::job::State as JobState;
use scheduler::limits::LimitFacts;
use scheduler::placement::exclusion::Excluded;
use scheduler::placement::rules::EXCLUSIVE;
use scheduler::reservation::{Reservation, ResourceKind};
use scheduler::snapshot::{Snapshot, WorkerFacts};
use scheduler::step::PendingReason;

use crate::clock;
use crate::http::api::jobs::find;
use crate::http::api::limits;
use crate::http::middleware::problem::Problem;
use crate::http::present::presenter::{self, Presenter};
use crate::http::present::shapes::{self, Pause, Reason, Time, WorkerRef};
use crate::http::present::timeline::worker_of;
use crate::http::present::worker::suspect_rule;
use crate::http::request::path::Id;
use crate::http::state::AppState;
use crate::store::{AttemptRow, JobRecord, JobRow};

pub(crate) async fn job(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
) -> Result<Json<shapes::Explanation>, Problem> {
    let explanation = state.services.engine.explain(JobId(id)).await?;
    // Read after the engine's answer, which is durable: a job that has left the scheduler has ended in the archive.
    let record = find(&state, JobId(id)).await?;
    let row = &record.row;
    let explanation = explanation.filter(|_| !row.state.has_ended());
    let snapshot = state.services.engine.snapshot();
    let workers = explanation.as_ref().map(|it| verdicts(&record, it, &snapshot)).unwrap_or_default();
    let estimate = match &explanation {
        Some(explanation) => estimate::of(&state, explanation).await?,
        None => None,
    };
    let before = explanation.as_ref().and_then(|it| it.before);
    Ok(Json(shapes::Explanation {
        id,
        name: row.definition.clone(),
        state: row.state.name().into(),
        reason: reason(&state.presenter(), row, explanation.as_ref()),
        limits: explanation.iter().flat_map(|it| &it.limits).map(limits::limit).collect(),
        pauses: explanation
            .iter()
            .flat_map(|it| &it.pauses)
            .map(|(target, since)| Pause::of(target, Some(*since)))
            .collect(),
        before: before.map(|(JobsBefore::Exactly(count) | JobsBefore::MoreThan(count))| count),
        before_at_least: matches!(before, Some(JobsBefore::MoreThan(_))),
        lane_jobs: explanation.as_ref().and_then(|it| it.lane_jobs),
        estimate,
        aged_steps: explanation.as_ref().and_then(|it| it.aged_steps),
        workers,
    }))
}

/// The reason of the job itself. The row is younger than the scheduler's answer, so the state may differ.
fn reason(presenter: &Presenter, row: &JobRow, explanation: Option<&Explanation>) -> Reason {
    let queued = explanation.filter(|it| it.state == row.state && row.state == JobState::Queued);
    if let Some(pending) = queued.and_then(|it| it.pending) {
        let mut reason = presenter::pending(pending);
        if let Some(text) = queued.and_then(|it| pause_text(it, pending).or_else(|| limit_text(it, pending)))
        {
            reason.text = text.into();
        }
        if let Some(steps) = queued.and_then(|it| it.aged_steps).filter(|steps| *steps > 0) {
            reason.text = format!("{}; {}", reason.text, age_text(row.priority, steps)).into();
        }
        return reason;
    }
    if let Some(reason) = presenter.waits_for(row) {
        return reason;
    }
    let text = match &row.attempt {
        Some(attempt) if !row.state.has_ended() => {
            let worker = worker_of(attempt);
            format!(
                "it is {} on {}, as its attempt {}",
                row.state.name(),
                display_name(&worker),
                row.attempts
            )
        }
        _ if row.reason.is_empty() || row.reason == row.state.name() => {
            format!("it has ended: {}", row.state.name())
        }
        _ => format!("it has ended: {}, {}", row.state.name(), row.reason),
    };
    let code = if row.state.has_ended() { "ended" } else { row.state.name() };
    Reason { code: code.into(), text: text.into() }
}

/// The priority that a job has gained by waiting.
fn age_text(priority: i8, steps: u64) -> String {
    let counts_as = i64::from(priority).saturating_add(i64::try_from(steps).unwrap_or(i64::MAX));
    let plural = if steps == 1 { "" } else { "s" };
    format!("its priority {priority} is aged by {steps} step{plural} and counts as {counts_as}")
}

/// The pauses that keep a job waiting, and how to end them.
fn pause_text(explanation: &Explanation, pending: PendingReason) -> Option<String> {
    if pending != PendingReason::Paused {
        return None;
    }
    let paused = explanation.pauses.iter().map(|(target, since)| {
        format!("{} is paused since {}", Pause::of(target, None).words(), Time(*since))
    });
    let paused: Vec<String> = paused.collect();
    (!paused.is_empty()).then(|| paused.join("; "))
}

/// The limit that keeps a job waiting, with its holders and the jobs before this one.
fn limit_text(explanation: &Explanation, pending: PendingReason) -> Option<String> {
    let kept_by = |it: &&LimitFacts| match pending {
        PendingReason::Limited => it.permits.is_some(),
        PendingReason::RateLimited => it.rate.is_some(),
        _ => false,
    };
    let limit = explanation.limits.iter().find(kept_by)?;
    let before = match explanation.before {
        None | Some(JobsBefore::Exactly(0)) => "it is the next one of its kind".to_owned(),
        Some(JobsBefore::Exactly(1)) => "1 job of its kind goes before it".to_owned(),
        Some(JobsBefore::Exactly(more)) => format!("{more} jobs of its kind go before it"),
        Some(JobsBefore::MoreThan(counted)) => format!("more than {counted} jobs of its kind go before it"),
    };
    let Some(permits) = limit.permits else {
        return Some(format!("the {} allows no start now; {before}", limit.id));
    };
    let holders: Vec<String> = limit.holders.iter().map(ToString::to_string).collect();
    let more = if limit.in_use > limit.holders.len() as u64 { " and others" } else { "" };
    Some(format!(
        "the limit {} has no permit left: {} of {permits} are held, by {}{more}; {before}",
        limit.id,
        limit.in_use,
        holders.join(", ")
    ))
}

fn verdicts(record: &JobRecord, explanation: &Explanation, snapshot: &Snapshot) -> Vec<shapes::Verdict> {
    let now = clock::now();
    let verdict = |it: &WorkerVerdict| {
        let facts = snapshot.workers.get(it.worker);
        let refusal = last_refusal(record, it.worker);
        let texts =
            ObstacleText { now, job: record.row.job, definition: &explanation.definition, facts, refusal };
        let obstacles = match &it.verdict {
            PlacementVerdict::Unable(obstacles) => obstacles.iter().map(|it| texts.obstacle(*it)).collect(),
            PlacementVerdict::Holding | PlacementVerdict::Able | PlacementVerdict::LastResort => Vec::new(),
        };
        let (verdict, text) = match it.verdict {
            PlacementVerdict::Holding => ("has_it", "it has the job".into()),
            PlacementVerdict::Able => ("able", "it could take the job now".into()),
            PlacementVerdict::LastResort => (
                "last_resort",
                "the last attempt was here: it gets the job only if nobody else can take it".into(),
            ),
            PlacementVerdict::Unable(_) => ("unable", joined(&obstacles)),
        };
        let worker = WorkerRef { id: it.worker.0, name: it.name.to_string() };
        shapes::Verdict { worker, verdict: verdict.into(), text, obstacles }
    };
    explanation.workers.iter().map(verdict).collect()
}

/// The last attempt that this worker gave back or failed to start.
fn last_refusal(record: &JobRecord, worker: WorkerId) -> Option<&AttemptRow> {
    let is_refusal = |attempt: &&AttemptRow| {
        let outcome = attempt.outcome;
        attempt.worker == worker && matches!(outcome, Some(Outcome::Released | Outcome::HostFailed))
    };
    record.row.attempt.iter().chain(record.past.iter().rev()).find(is_refusal)
}

fn joined(obstacles: &[shapes::Obstacle]) -> shapes::Text {
    let texts: Vec<&str> = obstacles.iter().map(|obstacle| obstacle.text.as_ref()).collect();
    texts.join("; ").into()
}

/// The facts for the text of an obstacle.
struct ObstacleText<'s> {
    now: Now,
    job: JobId,
    definition: &'s Definition,
    /// Absent for a worker that is disconnected and has no attempts.
    facts: Option<&'s WorkerFacts>,
    /// The last attempt of the job that this worker refused.
    refusal: Option<&'s AttemptRow>,
}

impl ObstacleText<'_> {
    fn obstacle(&self, obstacle: Obstacle) -> shapes::Obstacle {
        let until = match obstacle {
            Obstacle::Excluded(_, until) => until.map(|until| self.instant(until)),
            _ => None,
        };
        shapes::Obstacle { code: obstacle.name().into(), text: self.text(obstacle, until).into(), until }
    }

    /// A resource with the amounts that decide: what the job reserves, and what the worker offers and others have reserved.
    fn resource(&self, kind: ResourceKind, with_use: bool) -> String {
        let wanted = Reservation::of(&self.definition.container.resources);
        let offer = self.facts.map(|facts| &facts.offer);
        let used = self.facts.map(|facts| &facts.in_use).filter(|_| with_use);
        let cores = |milli: u64| format!("{}.{:03}", milli / 1_000, milli % 1_000);
        let (name, wanted, offered, used) = match kind {
            ResourceKind::Cpus => (
                "cpus".to_owned(),
                cores(u64::from(wanted.cpus_milli)),
                offer.and_then(|it| it.cpus_milli).map(|milli| cores(u64::from(milli))),
                used.map(|it| cores(it.cpus_milli)),
            ),
            ResourceKind::Memory => (
                "memory".to_owned(),
                format!("{} bytes", wanted.memory_bytes),
                offer.and_then(|it| it.memory_bytes).map(|bytes| bytes.to_string()),
                used.map(|it| it.memory_bytes.to_string()),
            ),
            ResourceKind::Gpus => (
                "gpus".to_owned(),
                wanted.gpus.to_string(),
                offer.map(|it| it.gpus.len().to_string()),
                used.map(|it| it.gpus.len().to_string()),
            ),
            ResourceKind::Custom(index) => {
                let (name, amount) = wanted.custom.get(usize::from(index)).cloned().unwrap_or_default();
                let offered =
                    offer.map(|it| it.custom.iter().find(|(of, _)| *of == name).map_or(0, |it| it.1));
                let used = used.map(|it| it.custom.get(&name).copied().unwrap_or(0).to_string());
                (name, amount.to_string(), offered.map(|amount| amount.to_string()), used)
            }
        };
        let offered = offered.map(|offered| format!(", it offers {offered}")).unwrap_or_default();
        let used = used.map(|used| format!(", {used} reserved")).unwrap_or_default();
        format!("{name} (the job needs {wanted}{offered}{used})")
    }

    fn text(&self, obstacle: Obstacle, until: Option<Time>) -> String {
        match obstacle {
            Obstacle::PinnedElsewhere(only) => {
                format!(
                    "the job may only run on worker {only}: its last attempt was there (retry.on: same), or it is its own as a member (run_on)"
                )
            }
            Obstacle::Offline => "it is not connected".into(),
            Obstacle::Unreachable => match self.facts {
                Some(facts) => format!("it has been unreachable since {}", Time(facts.since)),
                None => "it is unreachable".into(),
            },
            Obstacle::Sibling => "another member of its parent is or was on it (run_on)".to_owned(),
            Obstacle::NotListed => {
                let names = self.definition.placement.workers.iter().map(ToString::to_string);
                format!("the definition lists other workers: {}", names.collect::<Vec<_>>().join(", "))
            }
            Obstacle::NoRuntime => format!("it does not offer the runtime {}", self.runtime().name()),
            Obstacle::Requirement(index) => self.requirement(index),
            Obstacle::Exclusive => match self.label(EXCLUSIVE) {
                Some(labels) => {
                    format!("it takes only jobs that require each of its exclusive labels: {labels}")
                }
                None => "it takes only jobs that require each of its exclusive labels".into(),
            },
            Obstacle::TooLarge(kind) => format!("it offers too little {}", self.resource(kind, false)),
            Obstacle::Resources(kind) => {
                let set_aside = self.facts.and_then(|facts| facts.set_aside_for) == Some(self.job);
                let note = if set_aside {
                    "; it is set aside for this job: later ones get nothing that it needs"
                } else {
                    ""
                };
                format!("other jobs have reserved too much of its {}{note}", self.resource(kind, true))
            }
            Obstacle::RuntimeUnavailable => {
                format!("its runtime {} does not work{}", self.runtime().name(), self.cause())
            }
            Obstacle::Draining => "it is draining: it finishes what it has, and leaves".into(),
            Obstacle::Cordoned => "it is cordoned".into(),
            Obstacle::Excluded(of, _) => {
                let end = until.map_or("until it starts anew".to_owned(), |until| format!("until {until}"));
                let rule = match of {
                    Excluded::Suspect => format!(" ({})", suspect_rule()),
                    Excluded::Anything | Excluded::Runtime(_) | Excluded::Revision(_) => String::new(),
                };
                format!("it is not offered {} {end}{rule}{}", excluded(of), self.refusal())
            }
            Obstacle::Probing => {
                format!(
                    "it is suspect: it gets one job at a time until a container has started ({})",
                    suspect_rule()
                )
            }
            Obstacle::Busy => match self.facts {
                Some(it) => format!("its slots ({}) and its backlog ({}) are taken", it.slots, it.backlog),
                None => "its slots are taken".into(),
            },
            Obstacle::SetAside(job) => {
                format!("it is set aside for job {job}, which goes first once there is room for it")
            }
            Obstacle::Joining => "it has just connected: what it holds is being settled".into(),
        }
    }

    /// The message of its last refusal, if this job was refused; another job may have caused the exclusion.
    fn refusal(&self) -> String {
        match self.refusal.filter(|attempt| !attempt.message.is_empty()) {
            Some(attempt) => format!("; attempt {} ended here: {}", attempt.number, attempt.message),
            None => String::new(),
        }
    }

    fn runtime(&self) -> RuntimeKind {
        self.definition.runtime()
    }

    /// The condition that the worker does not meet, and what it has instead.
    fn requirement(&self, index: u16) -> String {
        let Some(rule) = self.definition.placement.requires.get(usize::from(index)) else {
            return "it does not meet a condition".into();
        };
        match (self.facts, self.label(&rule.label)) {
            (None, _) => format!("needs {rule}"),
            (Some(_), Some(value)) => format!("needs {rule}, has {}={value}", rule.label),
            (Some(_), None) => format!("needs {rule}, has no such label"),
        }
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.facts?.label(name)
    }

    /// The cause for which its runtime is unavailable, with a leading colon.
    fn cause(&self) -> String {
        let runtime = self.runtime();
        let told = self.facts.and_then(|facts| facts.runtimes.iter().find(|(kind, _)| *kind == runtime));
        match told {
            Some((_, Availability::Unavailable(why))) if !why.is_empty() => format!(": {why}"),
            _ => String::new(),
        }
    }

    /// Converts a monotonic time to wall-clock time by the present difference of both clocks.
    fn instant(&self, up: Uptime) -> Time {
        Time(self.now.utc + up.since(self.now.up))
    }
}

const fn excluded(of: Excluded) -> &'static str {
    match of {
        Excluded::Anything => "anything, because it gave work back,",
        Excluded::Suspect => {
            "anything, because it is suspect: it failed to start jobs of several definitions,"
        }
        Excluded::Runtime(_) => "jobs of this runtime, because it gave one back,",
        Excluded::Revision(_) => "this revision, which it could not start or does not allow,",
    }
}

fn display_name(worker: &WorkerRef) -> String {
    if worker.name.is_empty() { format!("worker {}", worker.id) } else { worker.name.clone() }
}
