//! Retention settings and their meaning.

use std::time::Duration;

use protocol::Timestamp;

use super::SettingsError;
use super::jobs_file::quantity;
use crate::store::RetentionCutoffs;

/// Retention settings as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Ended jobs, from their end on; or `forever`.
    pub jobs: String,
    /// How many ended jobs; or `unlimited`.
    pub jobs_max: String,
    /// Output of all jobs together, as a size; or `unlimited`.
    pub output_max: String,
    /// Idempotency keys.
    pub keys: String,
    /// Late reports.
    pub late_reports: String,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            jobs: "30d".to_owned(),
            jobs_max: "10000000".to_owned(),
            output_max: "10g".to_owned(),
            keys: "7d".to_owned(),
            late_reports: "30d".to_owned(),
        }
    }
}

/// Retention settings, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Ended jobs, from their end on; absent: for ever.
    pub jobs: Option<Duration>,
    /// How many ended jobs; absent: any number.
    pub jobs_max: Option<u64>,
    /// Output of all jobs together, in bytes; absent: any amount.
    pub output_bytes_max: Option<u64>,
    /// Idempotency keys, from the request on.
    pub keys: Duration,
    /// Late reports, from when they came.
    pub late_reports: Duration,
    /// An ended job is kept so long whatever number its definition keeps.
    pub age_min: Duration,
}

impl Retention {
    /// The retention cut-offs as of this moment, with the limit of rows to delete at once.
    #[must_use]
    pub fn cutoffs(&self, now: Timestamp, rows_max: usize) -> RetentionCutoffs {
        RetentionCutoffs {
            ended_since: self.jobs.map_or(Timestamp(i64::MIN), |age| now - age),
            ended_max: self.jobs_max.unwrap_or(u64::MAX),
            keyed_since: now - self.keys,
            late_since: now - self.late_reports,
            rows_max,
            by: None,
        }
    }
}

impl RetentionSettings {
    pub(super) fn check(&self) -> Result<Retention, SettingsError> {
        let jobs = || age("--keep-jobs", "LONGSHORE_KEEP_JOBS", &self.jobs);
        Ok(Retention {
            jobs: unless("forever", &self.jobs, jobs)?,
            jobs_max: unless("unlimited", &self.jobs_max, || count(&self.jobs_max))?,
            output_bytes_max: unless("unlimited", &self.output_max, || size(&self.output_max))?,
            keys: age("--keep-keys", "LONGSHORE_KEEP_KEYS", &self.keys)?,
            late_reports: age("--keep-late-reports", "LONGSHORE_KEEP_LATE_REPORTS", &self.late_reports)?,
            age_min: AGE_MIN,
        })
    }
}

fn unless<T>(
    word: &str,
    text: &str,
    read: impl FnOnce() -> Result<T, SettingsError>,
) -> Result<Option<T>, SettingsError> {
    if text == word { Ok(None) } else { read().map(Some) }
}

fn age(flag: &'static str, variable: &'static str, text: &str) -> Result<Duration, SettingsError> {
    quantity::duration(text, AGE_MIN, AGE_MAX).map_err(|wrong| SettingsError::Value {
        flag,
        variable,
        reason: wrong.to_string(),
    })
}

fn count(text: &str) -> Result<u64, SettingsError> {
    text.parse().ok().filter(|count| *count >= JOBS_MIN).ok_or_else(|| SettingsError::Value {
        flag: "--keep-jobs-max",
        variable: "LONGSHORE_KEEP_JOBS_MAX",
        reason: format!("\"{text}\" is not a number from {JOBS_MIN}, nor \"unlimited\""),
    })
}

fn size(text: &str) -> Result<u64, SettingsError> {
    quantity::size(text, OUTPUT_MIN, OUTPUT_MAX).map_err(|wrong| SettingsError::Value {
        flag: "--keep-output-max",
        variable: "LONGSHORE_KEEP_OUTPUT_MAX",
        reason: wrong.to_string(),
    })
}

/// A shorter time would remove jobs before anybody can look at them.
pub(super) const AGE_MIN: Duration = Duration::from_secs(60);
pub(super) const AGE_MAX: Duration = Duration::from_secs(3_650 * 86_400);
/// A smaller number would remove members of a large batch before the batch has ended.
const JOBS_MIN: u64 = 1_000;
/// Four segments: output is deleted by whole segments, never the newest one.
const OUTPUT_MIN: u64 = 256 << 20;
const OUTPUT_MAX: u64 = 1 << 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut RetentionSettings)) -> String {
        let mut settings = RetentionSettings::default();
        change(&mut settings);
        settings.check().expect_err("the settings are wrong").to_string()
    }

    #[test]
    fn the_defaults_are_those_of_the_manual() {
        let day = Duration::from_secs(86_400);
        let kept = RetentionSettings::default().check().unwrap();
        assert_eq!((kept.jobs, kept.jobs_max), (Some(30 * day), Some(10_000_000)));
        assert_eq!((kept.keys, kept.late_reports), (7 * day, 30 * day));
        assert_eq!(kept.output_bytes_max, Some(10 << 30));
    }

    #[test]
    fn limits_can_be_lifted_in_so_many_words() {
        let settings = RetentionSettings {
            jobs: "forever".to_owned(),
            jobs_max: "unlimited".to_owned(),
            output_max: "unlimited".to_owned(),
            ..RetentionSettings::default()
        };
        let kept = settings.check().unwrap();
        assert_eq!((kept.jobs, kept.jobs_max, kept.output_bytes_max), (None, None, None));
        let cutoffs = kept.cutoffs(Timestamp(0), 5);
        assert_eq!((cutoffs.ended_since, cutoffs.ended_max), (Timestamp(i64::MIN), u64::MAX));
    }

    #[test]
    fn cut_offs_count_back_from_now() {
        let now = Timestamp(40 * 86_400_000);
        let cutoffs = RetentionSettings::default().check().unwrap().cutoffs(now, 5);
        assert_eq!(
            (cutoffs.ended_since, cutoffs.keyed_since),
            (Timestamp(10 * 86_400_000), Timestamp(33 * 86_400_000))
        );
        assert_eq!(cutoffs.late_since, cutoffs.ended_since);
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_limits() {
        let text = refusal(|it| it.jobs = "5 parsecs".to_owned());
        assert!(text.contains("LONGSHORE_KEEP_JOBS") && text.contains("1m to 3650d"), "{text}");
        let text = refusal(|it| it.jobs_max = "-3".to_owned());
        assert!(text.contains("--keep-jobs-max") && text.contains("from 1000"), "{text}");
        let text = refusal(|it| it.output_max = "1m".to_owned());
        assert!(text.contains("--keep-output-max") && text.contains("min 256m"), "{text}");
        let text = refusal(|it| it.keys = "forever".to_owned());
        assert!(text.contains("--keep-keys"), "{text}");
    }
}
