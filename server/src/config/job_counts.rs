//! Limits that are numbers of jobs: `--max-jobs`, `--max-running` and `--max-queued`.

use std::ops::RangeInclusive;

use super::SettingsError;

/// As [`job_count`], for a limit that may be absent.
pub(super) fn optional_count(
    flag: &'static str,
    variable: &'static str,
    text: Option<String>,
) -> Result<Option<usize>, SettingsError> {
    text.map(|text| job_count(flag, variable, &text)).transpose()
}

/// Parses a limit of jobs.
pub(super) fn job_count(
    flag: &'static str,
    variable: &'static str,
    text: &str,
) -> Result<usize, SettingsError> {
    text.parse().ok().filter(|count| JOBS_MAX.contains(count)).ok_or_else(|| SettingsError::Value {
        flag,
        variable,
        reason: format!("\"{text}\" is not a number from {} to {}", JOBS_MAX.start(), JOBS_MAX.end()),
    })
}

/// 100 million jobs take 20 GB of memory, at some 200 bytes each.
const JOBS_MAX: RangeInclusive<usize> = 1..=100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_limit_of_jobs_is_refused_with_its_range() {
        for limit in ["0", "-1", "many", "100000001", "5e6"] {
            let refused = job_count("--max-jobs", "LONGSHORE_MAX_JOBS", limit).expect_err("it is wrong");
            let text = refused.to_string();
            assert!(
                text.starts_with("--max-jobs (LONGSHORE_MAX_JOBS): ") && text.contains("from 1 to 100000000"),
                "{text}"
            );
        }
    }
}
