//! Why is this job not running? The job's own reason, and what each worker has against taking it.
//!
//! The scheduler decides what is in the way (`scheduler::explain`); here it is put into words. Facts about workers that only words need
//! come from the published snapshot, which may be a moment older.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use protocol::report::Availability;
use protocol::{JobId, Now, RuntimeKind, Uptime};
use scheduler::exclusion::Excluded;
use scheduler::explain::{Explanation, Obstacle, Verdict, WorkerVerdict};
use scheduler::job::State as JobState;
use scheduler::snapshot::{Snapshot, WorkerFacts};

use super::desk::Desk;
use super::jobs::find;
use super::path::Id;
use super::problem::Problem;
use super::show::{self, Show};
use super::story::worker_of;
use super::view::{self, Reason, Time, WorkerRef};
use crate::clock;
use crate::store::JobRow;

pub(super) async fn job(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
) -> Result<Json<view::Explanation>, Problem> {
    let explanation = desk.app.engine.explain(JobId(id)).await?;
    // Read after the answer, which came only when all that it says was durable: who has left the scheduler has ended here.
    let row = find(&desk, JobId(id)).await?.row;
    let explanation = explanation.filter(|_| !row.state.has_ended());
    let snapshot = desk.app.engine.snapshot();
    let workers = explanation.as_ref().map(|it| verdicts(it, &snapshot)).unwrap_or_default();
    Ok(Json(view::Explanation {
        id,
        name: row.definition.clone(),
        state: row.state.name().into(),
        reason: reason(&desk.show(), &row, explanation.as_ref()),
        workers,
    }))
}

/// The job's own reason. It may have moved since the scheduler was asked: its row is younger.
fn reason(show: &Show, row: &JobRow, explanation: Option<&Explanation>) -> Reason {
    let waits_in_line = explanation.filter(|it| it.state == row.state && row.state == JobState::Queued);
    if let Some(pending) = waits_in_line.and_then(|it| it.pending) {
        return show::pending(pending);
    }
    if let Some(reason) = show.waits_for(row) {
        return reason;
    }
    let text = match &row.attempt {
        Some(attempt) if !row.state.has_ended() => {
            let worker = worker_of(attempt);
            format!("it is {} on {}, as its attempt {}", row.state.name(), called(&worker), row.attempts)
        }
        _ if row.reason.is_empty() || row.reason == row.state.name() => {
            format!("it has ended: {}", row.state.name())
        }
        _ => format!("it has ended: {}, {}", row.state.name(), row.reason),
    };
    let code = if row.state.has_ended() { "ended" } else { row.state.name() };
    Reason { code: code.into(), text: text.into() }
}

fn verdicts(explanation: &Explanation, snapshot: &Snapshot) -> Vec<view::Verdict> {
    let now = clock::now();
    let verdict = |it: &WorkerVerdict| {
        let at = snapshot.workers.binary_search_by_key(&it.worker, |facts| facts.id);
        let facts = at.ok().map(|at| &snapshot.workers[at]);
        let words = Words { now, runtime: explanation.runtime, facts };
        let obstacles = match &it.verdict {
            Verdict::Unable(obstacles) => obstacles.iter().map(|it| words.obstacle(*it)).collect(),
            Verdict::HasIt | Verdict::Able | Verdict::LastResort => Vec::new(),
        };
        let (verdict, text) = match it.verdict {
            Verdict::HasIt => ("has_it", "it has the job".into()),
            Verdict::Able => ("able", "it could take the job now".into()),
            Verdict::LastResort => (
                "last_resort",
                "the last attempt was here: it gets the job only if nobody else can take it".into(),
            ),
            Verdict::Unable(_) => ("unable", joined(&obstacles)),
        };
        let worker = WorkerRef { id: it.worker.0, name: it.name.to_string() };
        view::Verdict { worker, verdict: verdict.into(), text, obstacles }
    };
    explanation.workers.iter().map(verdict).collect()
}

fn joined(obstacles: &[view::Obstacle]) -> view::Word {
    let texts: Vec<&str> = obstacles.iter().map(|obstacle| obstacle.text.as_ref()).collect();
    texts.join("; ").into()
}

/// What is needed to say what is in a worker's way.
struct Words<'s> {
    now: Now,
    runtime: RuntimeKind,
    /// Absent for one that is away and has no attempts.
    facts: Option<&'s WorkerFacts>,
}

impl Words<'_> {
    fn obstacle(&self, obstacle: Obstacle) -> view::Obstacle {
        let until = match obstacle {
            Obstacle::Excluded(_, until) => until.map(|until| self.instant(until)),
            _ => None,
        };
        view::Obstacle { code: obstacle.name().into(), text: self.text(obstacle, until).into(), until }
    }

    fn text(&self, obstacle: Obstacle, until: Option<Time>) -> String {
        match obstacle {
            Obstacle::PinnedElsewhere(only) => {
                format!("the job may only run where its last attempt was (retry.on: same), on worker {only}")
            }
            Obstacle::Offline => "it is not connected".into(),
            Obstacle::Unreachable => match self.facts {
                Some(facts) => format!("it has been unreachable since {}", Time(facts.since)),
                None => "it is unreachable".into(),
            },
            Obstacle::NoRuntime => format!("it does not offer the runtime {}", self.runtime.name()),
            Obstacle::RuntimeUnavailable => {
                format!("its runtime {} does not work{}", self.runtime.name(), self.fault())
            }
            Obstacle::Draining => "it is draining: it finishes what it has, and leaves".into(),
            Obstacle::Cordoned => "it is cordoned".into(),
            Obstacle::Excluded(of, _) => {
                let end = until.map_or("until it starts anew".to_owned(), |until| format!("until {until}"));
                format!("it is not offered {} {end}", excluded(of))
            }
            Obstacle::Busy => match self.facts {
                Some(it) => format!("its slots ({}) and its backlog ({}) are taken", it.slots, it.backlog),
                None => "its slots and its backlog are taken".into(),
            },
            Obstacle::Joining => "it has just connected: what it holds is being settled".into(),
        }
    }

    /// Why its runtime does not work.
    fn fault(&self) -> String {
        let told = self.facts.and_then(|facts| facts.runtimes.iter().find(|(kind, _)| *kind == self.runtime));
        match told {
            Some((_, Availability::Unavailable(why))) if !why.is_empty() => format!(": {why}"),
            _ => String::new(),
        }
    }

    /// When the monotonic clock shows this, if the clock on the wall goes on as it does.
    fn instant(&self, up: Uptime) -> Time {
        Time(self.now.utc + up.since(self.now.up))
    }
}

const fn excluded(of: Excluded) -> &'static str {
    match of {
        Excluded::Anything => "anything, because it gave work back,",
        Excluded::Runtime(_) => "jobs of this runtime, because it gave one back,",
        Excluded::Revision(_) => "this revision, which it could not start or does not allow,",
    }
}

fn called(worker: &WorkerRef) -> String {
    if worker.name.is_empty() { format!("worker {}", worker.id) } else { worker.name.clone() }
}
