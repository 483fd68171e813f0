//! The last 24 hours: how many jobs ended in each of them, and how.

use std::sync::Arc;
use std::time::Duration;

use protocol::Timestamp;

use super::chart::Hour;
use crate::clock;
use crate::http::state::AppState;
use crate::rfc3339::Time;
use crate::store::HourlyEnds;

const HOURS: i64 = 24;
const HOUR_MS: i64 = 3_600_000;

/// A page waits this long for the first count.
const COUNT_TIMEOUT: Duration = Duration::from_millis(40);

/// The begin of the last 24 hours.
pub(super) fn begin() -> Timestamp {
    Timestamp(clock::now().utc.0 - HOURS * HOUR_MS)
}

/// The last count, which may be some seconds old; a new one is begun behind the page's back. `None` if there was none yet.
pub(super) async fn hours(state: &Arc<AppState>) -> Option<Vec<Hour>> {
    if !state.ends.is_fresh() {
        let is_first = state.ends.last().is_none();
        let counter = tokio::spawn(count(Arc::clone(state)));
        if is_first {
            // Without a count after this time, the page says that it is being counted.
            let _ = tokio::time::timeout(COUNT_TIMEOUT, counter).await;
        }
    }
    state.ends.last().map(|hours| by_hour(&hours, clock::now().utc))
}

async fn count(state: Arc<AppState>) {
    let Some(_turn) = state.ends.begin() else { return };
    let since = begin();
    match state.read(move |archive| archive.ends_by_hour(since)).await {
        Ok(hours) => state.ends.set(hours),
        Err(problem) => tracing::debug!(code = problem.code().name(), "ends were not counted"),
    }
}

fn by_hour(ends: &[HourlyEnds], now: Timestamp) -> Vec<Hour> {
    let last = now.0.div_euclid(HOUR_MS);
    let hour = |number: i64| {
        let of_hour = || ends.iter().filter(|ends| ends.hour == number);
        let label = Time(Timestamp(number * HOUR_MS)).to_string();
        Hour {
            label: label.get(11..16).unwrap_or_default().to_owned(),
            from: label,
            until: Time(Timestamp((number + 1) * HOUR_MS)).to_string(),
            succeeded: of_hour().map(|ends| ends.succeeded).sum(),
            failed: of_hour().map(|ends| ends.failed).sum(),
        }
    };
    (last - HOURS + 1..=last).map(hour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_24_hours_with_the_present_one_last() {
        let ends = [HourlyEnds { hour: 100, succeeded: 5, failed: 2 }];
        let hours = by_hour(&ends, Timestamp(100 * HOUR_MS + 5));
        assert_eq!(hours.len(), 24);
        assert_eq!((hours[23].succeeded, hours[23].failed, hours[23].label.as_str()), (5, 2, "04:00"));
        assert_eq!(hours[22].succeeded, 0);
    }
}
