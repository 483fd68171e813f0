//! The bodies of submissions as the description of the API shows them. The parser reads them by hand; the tests compare both.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Fields of a job beside its definition.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "only described")]
pub(crate) struct JobChanges {
    /// Values for the parameters of the definition.
    params: Option<Map<String, Value>>,
    /// Variables laid over the definition's environment.
    environment: Option<BTreeMap<String, String>>,
    /// Arguments appended to the definition's command.
    args: Option<Vec<String>>,
    /// Any JSON, at most 256 KiB.
    input: Option<Value>,
    /// Higher goes first; instead of the definition's.
    #[schema(minimum = -100, maximum = 100)]
    priority: Option<i64>,
    /// `1s` to `30d`, or `none`, instead of the definition's.
    #[schema(format = "longshore-timeout")]
    timeout: Option<String>,
    /// The job does not start before this instant.
    #[schema(format = DateTime)]
    run_at: Option<String>,
    /// The job does not start before this time has passed since its acceptance. Not together with `run_at`.
    #[schema(format = "longshore-duration")]
    delay: Option<String>,
    /// Labels for people and filters, at most 64.
    labels: Option<BTreeMap<String, String>>,
    /// For a definition with `unique`: the key, instead of the definition's.
    #[schema(min_length = 1, max_length = 256)]
    unique_key: Option<String>,
    /// Jobs and batches that must end before this one starts: numbers of jobs, objects with `job`, `batch` or `name` and the `outcome` that is required, and in entries of a
    /// list names of other entries. At most 1,000.
    after: Option<Vec<Value>>,
    /// The only workers that may run it, of those that the definition allows: names and ids, a list or one. At most 256.
    workers: Option<Value>,
    /// Conditions on the labels of its worker, beside those of the definition: an object of labels with one or several values, a list of
    /// conditions such as `cores >= 8`, or one.
    requires: Option<Value>,
}

/// The body of a submission: one job, or with `count` or `each` a batch.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "only described")]
pub(crate) struct Submission {
    /// The fields of each job.
    #[serde(flatten)]
    job: JobChanges,
    /// Makes a batch with this number of jobs.
    #[schema(minimum = 1, maximum = 100_000)]
    count: Option<i64>,
    /// Makes a batch with a job for each of these parameters, laid over `params`. Not together with `count`.
    each: Option<Vec<Map<String, Value>>>,
    /// The name of the batch.
    batch_name: Option<String>,
    /// After this many failed members, those that have not started are cancelled.
    #[schema(minimum = 1, maximum = 100_000)]
    max_failures: Option<i64>,
    /// Members that may be on workers at once.
    #[schema(minimum = 1, maximum = 100_000)]
    concurrency: Option<i64>,
    /// The unique key of the batch: at most one batch that has not ended has it. `unique_key` is that of each job.
    #[schema(min_length = 1, max_length = 256)]
    batch_unique_key: Option<String>,
    /// The answer if another batch has the key: that batch (`return`, which is the default), 409 (`reject`), or a new batch, for which the other
    /// one is cancelled (`replace`).
    #[schema(value_type = Option<String>)]
    on_duplicate: Option<String>,
}

/// An entry of a list of jobs.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "only described")]
pub(crate) struct Member {
    /// The name of the entry within its list, for `after` of other entries.
    #[serde(rename = "as")]
    #[schema(min_length = 1, max_length = 256)]
    entry_name: Option<String>,
    /// The name of the definition.
    name: String,
    /// The fields of the job.
    #[serde(flatten)]
    job: JobChanges,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::PartialSchema;

    use super::super::fields::{EntryKind, FIELDS};
    use super::*;

    /// The names of all fields, also of those that are flattened into the type.
    fn fields(schema: &Value, all: &mut BTreeSet<String>) {
        let own = schema["properties"].as_object().into_iter().flat_map(Map::keys);
        all.extend(own.cloned());
        for part in schema["allOf"].as_array().into_iter().flatten() {
            match part["$ref"].as_str() {
                Some(_) => fields(&serde_json::to_value(JobChanges::schema()).unwrap(), all),
                None => fields(part, all),
            }
        }
    }

    #[test]
    fn the_described_fields_are_those_that_the_parser_takes() {
        for (kind, schema) in [
            (EntryKind::Job, JobChanges::schema()),
            (EntryKind::Submission, Submission::schema()),
            (EntryKind::Member, Member::schema()),
        ] {
            let mut described = BTreeSet::new();
            fields(&serde_json::to_value(schema).unwrap(), &mut described);
            let parsed: BTreeSet<String> =
                FIELDS[kind.fields()].iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(described, parsed, "{kind:?}");
        }
    }
}
