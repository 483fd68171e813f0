//! An estimate of the wait of a queued job: the jobs before it, how many start together, and how long recent ones took.
//!
//! Without a basis there is none: if other jobs share the limit, if more jobs go before it than are counted, if too few jobs have ended, or
//! if the job waits for something that has no known duration, such as a worker that is away.

use protocol::Timestamp;
use scheduler::explain::{Explanation, JobsBefore};
use scheduler::job::State as JobState;
use scheduler::limits::{LimitFacts, LimitKind};
use scheduler::step::PendingReason;

use crate::clock;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::present::span::span_ms;
use crate::http::present::timeline::ran_ms;
use crate::http::state::AppState;
use crate::store::{JobFilter, JobRow};

/// Estimates the wait of a job.
///
/// # Errors
/// Those of a read.
pub(super) async fn of(
    state: &AppState,
    explanation: &Explanation,
) -> Result<Option<shapes::Estimate>, Problem> {
    let (Some(JobsBefore::Exactly(before)), Some(lane_jobs)) = (explanation.before, explanation.lane_jobs)
    else {
        return Ok(None);
    };
    let name = &explanation.definition.name;
    let (before, at_once, condition) = match explanation.pending {
        // Jobs of other lanes take slots and starts of a rate as well, by turns.
        Some(PendingReason::RateLimited | PendingReason::Busy) if !explanation.lane_has_all => {
            return Ok(None);
        }
        Some(PendingReason::RateLimited) => {
            return Ok(by_rate(explanation, before, clock::now().utc));
        }
        Some(PendingReason::Limited) => match permits(&explanation.limits, lane_jobs) {
            Some(permits) => (before, u64::from(permits), "run at once"),
            None => return Ok(None),
        },
        Some(PendingReason::Busy) => {
            let states = [JobState::Assigned, JobState::Running];
            let held = read(state, name, &states, HELD_MAX).await?;
            let running = held.iter().filter(|row| row.state == JobState::Running).count();
            if running == 0 || held.len() == HELD_MAX {
                return Ok(None);
            }
            // Those that workers have and have not started go before it as well.
            let prefetched = held.len() - running;
            (before + prefetched as u64, running as u64, "run at once, as many as now")
        }
        _ => return Ok(None),
    };
    // Its batch may allow fewer at once. The jobs before it are all of the same batch then.
    let (at_once, condition) = match of_batch(&explanation.limits) {
        Some(permits) if permits < at_once => (permits, "run at once in its batch"),
        _ => (at_once, condition),
    };
    let ended = read(state, name, &[JobState::Succeeded, JobState::Failed], SAMPLES).await?;
    let durations = ended.iter().filter_map(|row| ran_ms(row.attempt.as_ref()?)).collect();
    Ok(by_durations(before, at_once, condition, durations))
}

/// The permits of the limit that the job waits for, if only jobs of its lane wait for it.
fn permits(limits: &[LimitFacts], lane_jobs: u64) -> Option<u32> {
    let of_permits = limits.iter().filter(|limit| limit.permits.is_some());
    let full = of_permits.filter(|limit| limit.in_use >= u64::from(limit.permits.unwrap_or_default()));
    let mut full = full.peekable();
    let limit = full.next()?;
    // Jobs of other definitions hold permits of a group, and take other times.
    let is_own = limit.id.kind != LimitKind::Group && limit.waiting == lane_jobs;
    (is_own && full.peek().is_none()).then_some(limit.permits)?
}

/// The members of its batch that may be on workers at once.
fn of_batch(limits: &[LimitFacts]) -> Option<u64> {
    let batch = limits.iter().find(|limit| limit.id.kind == LimitKind::Batch)?;
    batch.permits.map(u64::from)
}

/// One permit or slot is free again after each part of a job's duration.
fn by_durations(
    before: u64,
    at_once: u64,
    condition: &str,
    mut durations: Vec<u64>,
) -> Option<shapes::Estimate> {
    if durations.len() < SAMPLES_MIN || at_once == 0 {
        return None;
    }
    durations.sort_unstable();
    let median = durations[durations.len() / 2];
    let wait_ms = (before + 1).saturating_mul(median) / at_once;
    let text = format!(
        "{}, {at_once} {condition}, and each takes {}, the median of the last {}",
        goes_before(before),
        span_ms(median),
        durations.len()
    );
    Some(shapes::Estimate { wait_ms, text: text.into() })
}

/// Starts follow each other by the interval of the rate.
fn by_rate(explanation: &Explanation, before: u64, now: Timestamp) -> Option<shapes::Estimate> {
    let (Some(limit), None) = (
        explanation.limits.iter().find(|limit| limit.rate.is_some()),
        explanation.limits.iter().find(|limit| limit.id.kind == LimitKind::Batch),
    ) else {
        return None;
    };
    let interval_ms = limit.rate?.interval.div_ceil(1_000_000);
    let first = limit.next_start?.since(now).as_millis();
    let wait_ms = u64::try_from(first).ok()?.saturating_add(before.saturating_mul(interval_ms));
    let text = format!("{}, and the rate allows a start every {}", goes_before(before), span_ms(interval_ms));
    Some(shapes::Estimate { wait_ms, text: text.into() })
}

fn goes_before(before: u64) -> String {
    match before {
        0 => "no job goes before it".to_owned(),
        1 => "1 job goes before it".to_owned(),
        more => format!("{more} jobs go before it"),
    }
}

/// The newest jobs of a definition in these states.
async fn read(
    state: &AppState,
    name: &str,
    states: &[JobState],
    limit: usize,
) -> Result<Vec<JobRow>, Problem> {
    let filter =
        JobFilter { name: Some(name.to_owned()), states: states.to_vec(), limit, ..JobFilter::default() };
    state.read(move |archive| archive.jobs(&filter)).await
}

/// Durations of which the median is taken: the newest jobs, so that an input that grows is noticed.
const SAMPLES: usize = 20;
/// One or two durations say little.
const SAMPLES_MIN: usize = 3;
/// Jobs on workers that are counted. A definition with more has no estimate.
const HELD_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use scheduler::limits::LimitId;

    use super::*;

    fn limit(kind: LimitKind, in_use: u64, waiting: u64) -> LimitFacts {
        LimitFacts {
            id: LimitId { kind, name: "resize".into(), key: None },
            permits: Some(2),
            rate: None,
            in_use,
            waiting,
            holders: Vec::new(),
            next_start: None,
        }
    }

    #[test]
    fn a_wait_follows_from_the_jobs_before_it_and_their_usual_duration() {
        let estimate = by_durations(3, 2, "run at once", vec![60_000, 10_000, 20_000]).unwrap();
        assert_eq!(estimate.wait_ms, 40_000, "four starts, each after half of 20 seconds");
        assert!(estimate.text.starts_with("3 jobs go before it, 2 run at once, and each takes 20"));
        assert!(estimate.text.ends_with("the median of the last 3"), "{}", estimate.text);
        assert_eq!(by_durations(3, 2, "run at once", vec![1, 2]), None, "two durations are no basis");
        assert_eq!(by_durations(3, 0, "run at once", vec![1, 2, 3]), None);
    }

    #[test]
    fn a_limit_that_others_share_gives_no_estimate() {
        let own = limit(LimitKind::Definition, 2, 5);
        assert_eq!(permits(std::slice::from_ref(&own), 5), Some(2));
        assert_eq!(permits(std::slice::from_ref(&own), 4), None, "another lane waits for it");
        assert_eq!(permits(&[limit(LimitKind::Group, 2, 5)], 5), None);
        assert_eq!(permits(&[own.clone(), limit(LimitKind::Batch, 1, 5)], 5), Some(2), "the batch has room");
        assert_eq!(permits(&[own, limit(LimitKind::Batch, 2, 5)], 5), None, "two limits are full");
        assert_eq!(permits(&[], 5), None);
    }
}
