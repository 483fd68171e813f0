//! Writes the details that only some jobs have: labels, overrides, parameters.

use rusqlite::params;
use scheduler::details::JobDetails;

use super::{Failure, TransactionWriter};
use crate::store::sqlite::{json_column, param_rows, rows};

impl TransactionWriter<'_> {
    /// Stores labels, overrides and parameters of a job. Returns the bit flags for `jobs.details`.
    pub(super) fn insert_details(&mut self, job: i64, details: &JobDetails) -> Result<i64, Failure> {
        let overrides = &details.overrides;
        let detail_flags = if details.labels.is_empty() { 0 } else { rows::HAS_LABELS }
            | if details.has_overrides() { rows::HAS_BODY } else { 0 };
        if detail_flags == 0 {
            return Ok(0);
        }
        self.connection
            .prepare_cached(
                "INSERT INTO details (job, labels, environment, args, input, params, filled_in)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                job,
                json_column::code(&details.labels),
                json_column::code(&overrides.environment),
                json_column::code(&overrides.args),
                overrides.input,
                param_rows::given_code(&details.params),
                param_rows::filled_in_code(&details.params),
            ])?;
        for (name, value) in &details.labels {
            self.connection
                .prepare_cached(
                    "INSERT INTO labels (name, value, job) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute((name, value, job))?;
        }
        Ok(detail_flags)
    }
}
