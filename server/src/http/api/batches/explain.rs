//! `GET /api/batches/{id}/explain`: why the members of a batch wait. The first of the waiting members are grouped by their pending reason, and
//! one job of each group is explained as `GET /api/jobs/{id}/explain` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use protocol::JobId;
use scheduler::limits::{LimitKind, LimitSelection};
use scheduler::step::PendingReason;

use super::find;
use crate::http::api::{explain, limits};
use crate::http::middleware::problem::Problem;
use crate::http::present::batch::summary;
use crate::http::present::presenter;
use crate::http::present::shapes::{self, Reason, WaitingMembers};
use crate::http::request::path::Id;
use crate::http::state::AppState;

pub(crate) async fn explain(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
) -> Result<Json<shapes::BatchExplanation>, Problem> {
    let row = find(&state, JobId(id)).await?;
    let (asked, limit) = (row.clone(), COUNTED + 1);
    let mut members = state.read(move |archive| archive.waiting_members(&asked, limit)).await?;
    let more = members.len() > COUNTED;
    members.truncate(COUNTED);
    let reasons = match members.is_empty() {
        true => Vec::new(),
        false => state.services.engine.pending_reasons(members).await?,
    };
    let counted = reasons.len() as u64;
    let mut groups: BTreeMap<PendingReason, (u64, JobId)> = BTreeMap::new();
    for (job, reason) in reasons {
        groups.entry(reason).or_insert((0, job)).0 += 1;
    }
    let mut waiting = Vec::new();
    for (reason, (count, example)) in groups {
        waiting.push(WaitingMembers {
            reason: words(&state, reason, example).await?,
            count,
            example: example.0,
        });
    }
    waiting.sort_by_key(|group| std::cmp::Reverse(group.count));
    let limit = match row.concurrency.filter(|_| row.ended_at.is_none()) {
        Some(_) => {
            let found = state.services.engine.limits(LimitSelection::Named(id.to_string().into())).await?;
            found.limits.iter().find(|limit| limit.id.kind == LimitKind::Batch).map(limits::limit)
        }
        None => None,
    };
    let batch = summary(row, &state.services.engine.snapshot().pauses);
    Ok(Json(shapes::BatchExplanation { batch, limit, waiting, counted, more }))
}

/// The reason in the words of an example, unless that waits for something else by now.
async fn words(state: &AppState, reason: PendingReason, example: JobId) -> Result<Reason, Problem> {
    let explained = explain::explain(state, example.0).await?.reason;
    Ok(if explained.code == reason.name() { explained } else { presenter::pending(reason) })
}

/// Waiting members that are counted. Each costs a look-up, while all inputs of the engine wait.
const COUNTED: usize = 500;
