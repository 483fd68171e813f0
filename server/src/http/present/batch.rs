//! Fills the JSON of batches from their rows.

use protocol::Timestamp;
use scheduler::pauses::Pauses;

use crate::clock;
use crate::http::present::shapes::{self, Time};
use crate::store::BatchRow;

/// A batch as lists show it.
pub(crate) fn summary(row: BatchRow, pauses: &Pauses) -> shapes::BatchSummary {
    summary_at(row, pauses, clock::now().utc)
}

fn summary_at(row: BatchRow, pauses: &Pauses, now: Timestamp) -> shapes::BatchSummary {
    // The snapshot of the pauses may be older than the row.
    let pause = pauses.of_batch(row.first).filter(|_| row.ended_at.is_none());
    let counts = row.counts;
    let ended = row.count.saturating_sub(counts.live());
    shapes::BatchSummary {
        id: row.first.0,
        state: row.state.name().into(),
        created_at: Time(row.created_at),
        ended_at: row.ended_at.map(Time),
        count: row.count,
        counts: shapes::BatchCounts {
            scheduled: counts.scheduled,
            queued: counts.queued,
            assigned: counts.assigned,
            running: counts.running,
            quarantined: counts.quarantined,
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
            expired: counts.expired,
            lost: counts.lost,
        },
        progress: f64::from(ended) / f64::from(row.count.max(1)),
        eta: estimated_end(&row, ended, now).filter(|_| pause.is_none()).map(Time),
        max_failures: row.max_failures,
        max_failures_reached: row.has_reached_max_failures(),
        cancelled_by: row.cancelled_by,
        cancelled_at: row.cancelled_at.map(Time),
        unique_key: row.unique_key,
        on_duplicate: row.on_duplicate.map(|it| it.name().into()),
        replaced_by: row.replaced_by.map(|by| by.0),
        pause: pause.map(|(target, pause)| shapes::Pause::of(&target, pause)),
        concurrency: row.concurrency,
        retry_of: row.retry_of.map(|of| of.0),
        retried_as: row.retried_as.map(|by| by.0),
        removed: row.removed,
        skipped: row.skipped,
        submitted_by: row.submitted_by,
        name: row.name,
        definition: row.definition,
        definitions_differ: row.definitions_differ,
    }
}

/// The end, if the rest takes as long for each member as those that have ended took since the batch was accepted.
fn estimated_end(row: &BatchRow, ended: u32, now: Timestamp) -> Option<Timestamp> {
    let live = row.counts.live();
    if live == 0 || ended == 0 {
        return None;
    }
    let passed = u64::try_from(now.since(row.created_at).as_millis()).ok()?;
    let rest = u128::from(passed) * u128::from(live) / u128::from(ended);
    Some(Timestamp(now.0.checked_add(i64::try_from(rest).ok()?)?))
}

#[cfg(test)]
mod tests {
    use protocol::JobId;
    use scheduler::pauses::PauseTarget;

    use super::*;
    use crate::store::{BatchCounts, BatchState};

    fn row(live: u32, succeeded: u32) -> BatchRow {
        BatchRow {
            first: JobId(1),
            name: None,
            definition: None,
            definitions_differ: false,
            created_at: Timestamp(1_000),
            count: live + succeeded,
            cancelled_by: None,
            cancelled_at: None,
            unique_key: None,
            on_duplicate: None,
            replaced_by: None,
            max_failures: None,
            concurrency: None,
            retry_of: None,
            submitted_by: None,
            retried_as: None,
            ended_at: None,
            state: BatchState::Running,
            removed: 0,
            skipped: 0,
            counts: BatchCounts { queued: live, succeeded, ..BatchCounts::default() },
        }
    }

    #[test]
    fn a_batch_in_which_too_many_failed_says_so() {
        let reached = |max_failures, failed, lost| {
            let counts = BatchCounts { failed, lost, ..BatchCounts::default() };
            summary(BatchRow { max_failures, counts, ..row(0, 9) }, &Pauses::default()).max_failures_reached
        };
        assert!(reached(Some(2), 1, 1) && reached(Some(2), 3, 0));
        assert!(!reached(Some(2), 1, 0) && !reached(None, 9, 0));
    }

    #[test]
    fn the_rest_is_expected_to_take_as_long_for_each_member_as_what_has_ended() {
        let at = |live, succeeded| {
            let summary = summary_at(row(live, succeeded), &Pauses::default(), Timestamp(11_000));
            (summary.progress, summary.eta.map(|eta| eta.0.0))
        };
        assert_eq!(at(30, 10), (0.25, Some(41_000)));
        assert_eq!(at(40, 0), (0.0, None), "nothing to go by");
        assert_eq!(at(0, 40), (1.0, None));
        let pauses = Pauses::of([(PauseTarget::Batch(JobId(1)), Timestamp(5_000).into())]);
        let paused = summary_at(row(30, 10), &pauses, Timestamp(11_000));
        assert_eq!(
            (paused.pause.is_some(), paused.eta),
            (true, None),
            "nobody knows how long the pause lasts"
        );
    }
}
