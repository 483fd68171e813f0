//! Writes what some jobs have beside their row: labels, overrides, parameters.

use rusqlite::params;
use scheduler::input::JobDetails;

use super::{Failure, TransactionWriter};
use crate::store::sqlite::{json_column, param_rows, rows};

impl TransactionWriter<'_> {
    /// Stores what a job has beside its row, and says what that is.
    pub(super) fn details(&mut self, job: i64, details: &JobDetails) -> Result<i64, Failure> {
        let body = &details.body;
        let has = if details.labels.is_empty() { 0 } else { rows::HAS_LABELS }
            | if details.has_overrides() { rows::HAS_BODY } else { 0 };
        if has == 0 {
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
                json_column::code(&body.environment),
                json_column::code(&body.args),
                body.input,
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
        Ok(has)
    }
}
