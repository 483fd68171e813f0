//! Writes the details that only some jobs have: their requester, labels, overrides, parameters.

use std::sync::Arc;

use protocol::{JobId, Timestamp};
use rusqlite::params;
use scheduler::batches::BatchMember;
use scheduler::definition::Definition;
use scheduler::details::JobDetails;
use scheduler::results::ResultParams;
use scheduler::step::{AddedJob, Note};

use super::{Failure, TransactionWriter};
use crate::params::params_of_predecessors;
use crate::store::sqlite::blocks::SEEN_REQUESTER;
use crate::store::sqlite::{dependencies, json_column, notes, param_rows, positions, rows, schedules};
use crate::store::{PARENT_SLOT_VARIABLE, hook_parent};

impl TransactionWriter<'_> {
    /// The number of the requester's name, for a job of this block.
    pub(super) fn requester_id(
        &mut self,
        name: Option<&Arc<str>>,
        block: i64,
    ) -> Result<Option<i64>, Failure> {
        let Some(name) = name else { return Ok(None) };
        let id = match self.cache.requester_ids.get(name) {
            Some(id) => *id,
            None => {
                self.connection
                    .prepare_cached("INSERT INTO submitters (name) VALUES (?1) ON CONFLICT DO NOTHING")?
                    .execute([&**name])?;
                let id = self
                    .connection
                    .prepare_cached("SELECT id FROM submitters WHERE name = ?1")?
                    .query_row([&**name], |row| row.get(0))?;
                self.cache.requester_ids.insert(Arc::clone(name), id);
                id
            }
        };
        self.index_block(SEEN_REQUESTER, id, block)?;
        Ok(Some(id))
    }

    /// Stores labels, overrides and parameters of a job, and the workers that it asks for. Returns the bit flags for `jobs.details`.
    pub(super) fn insert_details(&mut self, job: i64, added: &AddedJob) -> Result<i64, Failure> {
        if added.details.is_none() && added.narrowing.is_none() {
            return Ok(0);
        }
        let none = JobDetails::default();
        let details = added.details.as_deref().unwrap_or(&none);
        let overrides = &details.overrides;
        let detail_flags = if details.labels.is_empty() { 0 } else { rows::HAS_LABELS }
            | if details.has_overrides() { rows::HAS_OVERRIDES } else { 0 }
            | if added.narrowing.is_some() { rows::HAS_NARROWING } else { 0 };
        if detail_flags == 0 {
            return Ok(0);
        }
        let environment = match self.instant_of_chain(added)? {
            None => json_column::code(&overrides.environment),
            Some(at) => {
                let variable = (PARENT_SLOT_VARIABLE.to_owned(), at);
                json_column::code(
                    &overrides.environment.iter().cloned().chain([variable]).collect::<Vec<_>>(),
                )
            }
        };
        self.connection
            .prepare_cached(
                "INSERT INTO details (job, labels, environment, args, input, params, filled_in, narrowing)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                job,
                json_column::code(&details.labels),
                environment,
                json_column::code(&overrides.args),
                overrides.input,
                param_rows::given_json(&details.params),
                param_rows::filled_in_json(&details.params),
                // Names and numbers always have a JSON form.
                added.narrowing.as_ref().and_then(|narrowing| serde_json::to_string(&**narrowing).ok()),
            ])?;
        let told = overrides.environment.iter().find(|(name, _)| name == BatchMember::INDEX_VARIABLE);
        let told = told.and_then(|(_, position)| position.parse().ok());
        if let (Some(batch), Some(position)) = (added.batch, told) {
            positions::insert(self.connection, job, batch, position)?;
        }
        for (name, value) in &details.labels {
            self.connection
                .prepare_cached(
                    "INSERT INTO labels (name, value, job) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute((name, value, job))?;
        }
        Ok(detail_flags)
    }

    /// The instant for the job of a hook: that of the job whose hook it is.
    fn instant_of_chain(&self, added: &AddedJob) -> Result<Option<String>, Failure> {
        let Some(parent) = hook_parent(added) else { return Ok(None) };
        Ok(schedules::for_followers(self.connection, parent)?)
    }

    /// Adds the parameters that a job takes from the results of the jobs that it came after, and a note about those that are left out.
    pub(super) fn take_results(
        &self,
        job: JobId,
        definition: &Definition,
        at: Timestamp,
    ) -> Result<(), Failure> {
        let results = dependencies::results(self.connection, job, RESULTS_MAX)?;
        let details = rows::details(self.connection, job)?.unwrap_or_default();
        let ResultParams { params, left_out } =
            params_of_predecessors(&definition.submission, &details, &results);
        if let Some(params) = params {
            self.connection
                .prepare_cached("UPDATE details SET params = ?2, filled_in = ?3 WHERE job = ?1")?
                .execute(params![
                    job.0.cast_signed(),
                    param_rows::given_json(&params),
                    param_rows::filled_in_json(&params),
                ])?;
        }
        if !left_out.is_empty() {
            notes::write(self.connection, job, at, &Note::ResultLeftOut { why: left_out.join("; ") })?;
        }
        Ok(())
    }
}

/// Results that one job takes parameters from: those with the highest numbers. Each may have 64 KiB, and the writer reads them.
const RESULTS_MAX: usize = 100;
