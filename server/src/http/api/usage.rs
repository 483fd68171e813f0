//! `GET /api/jobs/{id}/usage`: the resources of an attempt over time. Also the latest sample in the JSON of a running job.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use protocol::{AttemptNo, JobId};

use super::jobs;
use super::logs::add_cuts;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{FullJob, JobUsage, Time, Usage, UsagePoint};
use crate::http::present::waiting;
use crate::http::request::path::Id;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::logs::AttemptKey;
use crate::store::JobRecord;

pub(crate) async fn of_job(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    uri: Uri,
) -> Result<Json<JobUsage>, Problem> {
    let mut query = Query::of(&uri)?;
    let wanted = query.number("attempt")?;
    query.finish()?;
    let record = jobs::find(&state, JobId(id)).await?;
    let mut attempts = record.past.iter().chain(&record.row.attempt).rev();
    let found = match wanted {
        None => attempts.next(),
        Some(number) => attempts.find(|attempt| u64::from(attempt.number.0) == number),
    };
    let Some(attempt) = found else {
        return match wanted {
            None => Ok(Json(JobUsage::default())),
            Some(number) => {
                Err(Problem::new(ProblemCode::UnknownAttempt, format!("job {id} has no attempt {number}")))
            }
        };
    };
    let key = AttemptKey { job: record.row.job, fence: attempt.fence };
    Ok(Json(curve(&state, attempt.number, key)))
}

/// The points of an attempt that this server remembers.
pub(crate) fn curve(state: &AppState, number: AttemptNo, attempt: AttemptKey) -> JobUsage {
    let points = state.services.usage.points(attempt).into_iter();
    let point = |it: crate::usage::Point| UsagePoint {
        at: Time(it.at),
        cpu_ms: it.cpu_ms,
        memory_bytes: it.memory_bytes,
    };
    JobUsage { attempt: number.0, points: points.map(point).collect() }
}

impl AppState {
    /// A job with attempts and timeline, with what its running attempt has used so far, and with what is stored of output that was cut.
    pub(crate) async fn full_job(&self, record: JobRecord) -> FullJob {
        let running = record.row.attempt.as_ref().filter(|it| it.ended_at.is_none());
        let running = running.map(|it| AttemptKey { job: record.row.job, fence: it.fence });
        let latest = running.and_then(|key| self.services.usage.latest(key));
        let revision = record.row.revision;
        let removal = waiting::removal_text(&self.services.catalogue.current(), &record.row);
        let mut full = self.presenter().full(record);
        full.job.pending_reason = full.job.pending_reason.take().map(|reason| reason.and(removal));
        if let (Some(latest), Some(attempt)) = (latest, full.attempts.last_mut()) {
            attempt.usage = Usage::of(&latest);
        }
        add_cuts(self, revision, &mut full).await;
        full
    }
}
