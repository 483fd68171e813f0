//! Growth of the priority of waiting jobs, as `--priority-ageing` gives it.

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
