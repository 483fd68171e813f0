//! The flags of `longshore server` about what is kept, and for how long.

use server::config::RetentionSettings;

/// Retention. Jobs that have not ended are never deleted.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Retention")]
pub(super) struct RetentionArgs {
    /// Delete jobs this long after their end; or 'forever'.
    #[arg(long, env = "LONGSHORE_KEEP_JOBS", default_value = "30d", value_name = "DURATION")]
    keep_jobs: String,
    /// Keep at most this many ended jobs; or 'unlimited'. Jobs that ended first are deleted first.
    #[arg(long, env = "LONGSHORE_KEEP_JOBS_MAX", default_value = "10000000", value_name = "N")]
    keep_jobs_max: String,
    /// Keep at most this much output of all jobs together; or 'unlimited'. Beyond it, the oldest output is deleted before its job.
    #[arg(long, env = "LONGSHORE_KEEP_OUTPUT_MAX", default_value = "10g", value_name = "SIZE")]
    keep_output_max: String,
    /// Delete idempotency keys after this time.
    #[arg(long, env = "LONGSHORE_KEEP_KEYS", default_value = "7d", value_name = "DURATION")]
    keep_keys: String,
    /// Delete late reports after this time, if their job was not deleted before.
    #[arg(long, env = "LONGSHORE_KEEP_LATE_REPORTS", default_value = "30d", value_name = "DURATION")]
    keep_late_reports: String,
}

impl From<RetentionArgs> for RetentionSettings {
    fn from(flags: RetentionArgs) -> Self {
        Self {
            jobs: flags.keep_jobs,
            jobs_max: flags.keep_jobs_max,
            output_max: flags.keep_output_max,
            keys: flags.keep_keys,
            late_reports: flags.keep_late_reports,
        }
    }
}
