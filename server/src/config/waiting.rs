//! Settings about jobs that wait: `--priority-ageing` and `--set-aside-after`.

use std::ops::RangeInclusive;
use std::time::Duration;

use scheduler::PriorityAgeing;

use super::SettingsError;
use super::jobs_file::quantity;

/// Parses the period of `--priority-ageing`. Priorities do not grow if it is absent.
pub(super) fn priority_ageing(period: Option<&str>) -> Result<PriorityAgeing, SettingsError> {
    let Some(text) = period else { return Ok(PriorityAgeing::OFF) };
    let value = |reason| SettingsError::Value {
        flag: "--priority-ageing",
        variable: "LONGSHORE_PRIORITY_AGEING",
        reason,
    };
    let (shortest, longest) = PriorityAgeing::PERIODS.into_inner();
    let period = quantity::duration(text, shortest, longest).map_err(|wrong| value(wrong.to_string()))?;
    PriorityAgeing::every(period).ok_or_else(|| value(format!("{text:?} is not a possible period")))
}

/// Possible values. The scheduler searches once a second, so less makes no difference; with more than a day `off` is meant.
const SET_ASIDE_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// Parses the time of `--set-aside-after`. With `off` no worker is set aside.
pub(super) fn set_aside_after(wait: &str) -> Result<Option<Duration>, SettingsError> {
    if wait == "off" {
        return Ok(None);
    }
    let (shortest, longest) = SET_ASIDE_AFTER.into_inner();
    let wait = quantity::duration(wait, shortest, longest).map_err(|wrong| SettingsError::Value {
        flag: "--set-aside-after",
        variable: "LONGSHORE_SET_ASIDE_AFTER",
        reason: format!("{wrong}; off sets no worker aside"),
    })?;
    Ok(Some(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_duration_within_its_bounds() {
        assert_eq!(priority_ageing(None).ok(), Some(PriorityAgeing::OFF));
        let hour = PriorityAgeing::every(Duration::from_secs(3_600));
        assert_eq!(priority_ageing(Some("1h")).ok(), hour);
        assert!(hour.is_some());
        for wrong in ["", "0", "0s", "-1h", "999ms", "31d", "60", "soon", "1e9h"] {
            let text = priority_ageing(Some(wrong)).expect_err("it is wrong").to_string();
            assert!(text.starts_with("--priority-ageing (LONGSHORE_PRIORITY_AGEING): "), "{text}");
            assert!(text.contains("1s to 7d"), "{text}");
        }
    }

    #[test]
    fn a_wait_before_a_worker_is_set_aside_is_a_duration_or_off() {
        assert_eq!(set_aside_after("off").ok(), Some(None));
        assert_eq!(set_aside_after("5m").ok(), Some(Some(Duration::from_secs(300))));
        for wrong in ["", "0", "0s", "2d", "5", "never", "OFF"] {
            let text = set_aside_after(wrong).expect_err("it is wrong").to_string();
            assert!(text.starts_with("--set-aside-after (LONGSHORE_SET_ASIDE_AFTER): "), "{text}");
            assert!(text.ends_with("off sets no worker aside"), "{text}");
        }
    }
}
