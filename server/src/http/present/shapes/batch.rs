//! JSON of batches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Dependency, Limit, ListedJob, Pause, Reason, Refusal, Text, Time};

/// The jobs of one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// The number of the batch, which is that of its first job. `GET /api/jobs?batch=` lists the members. Absent, with `first` and `last`, if
    /// `count` is 0: there is no batch.
    #[serde(default, skip_serializing_if = "is_no_job")]
    pub batch: u64,
    /// How many jobs it has.
    pub count: u32,
    /// The first job's number.
    #[serde(default, skip_serializing_if = "is_no_job")]
    pub first: u64,
    /// The last job's number; all between belong to it.
    #[serde(default, skip_serializing_if = "is_no_job")]
    pub last: u64,
    /// The time of acceptance; absent in the answer to a repeated request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// True in the answer to a repeated request: an earlier one with this idempotency key made the batch, and nothing was made now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// True if this batch was there before and has the unique key of the request: nothing was made now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// The batch that had the unique key, and that was cancelled for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u64>,
    /// Jobs of the request that were not made, because others have their unique keys.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u32,
    /// The job that has the first of these keys, if all jobs of the request are duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<u64>,
    /// A warning beside the accepted batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<Reason>,
}

/// A batch, as lists show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchSummary {
    /// Its number, which is that of its first job. `GET /api/jobs?batch=` lists the members.
    pub id: u64,
    /// Its name, if it was given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the definition of its first member, or of another member if that is not kept any more. Absent once all were removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// True if its last member has another definition. A batch of one request to a definition has one for all members; one of a list may have
    /// others between two members of the same definition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub definitions_differ: bool,
    /// `waiting`, `running`, `succeeded`, `failed` or `cancelled`.
    #[schema(value_type = String)]
    pub state: Text,
    /// The time of acceptance.
    pub created_at: Time,
    /// The name of the token whose holder made it, as jobs have it. Absent as there, and once all of its members were removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The end of its last member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// The number of members.
    pub count: u32,
    /// Members by state.
    pub counts: BatchCounts,
    /// The part of the members that have ended, from 0 to 1.
    pub progress: f64,
    /// The estimated end, if the rest takes as long for each member as those that have ended took since the acceptance; absent while
    /// the batch is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Time>,
    /// After this many failed members, those that have not started are cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<u32>,
    /// True once this number of members has failed: those that had not started were cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub max_failures_reached: bool,
    /// The first requester of a cancel of the whole batch, and its time in `cancelled_at`. No member was sent to a worker since; those that had
    /// not ended are cancelled. Absent if members were cancelled one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The time of that request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<Time>,
    /// Its unique key: no other batch had it until this one ended, or was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// The answer to a request with the key of another batch, as the request for this batch chose it: `return`, `replace` or `reject`. Present
    /// with `unique_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub on_duplicate: Option<Text>,
    /// The batch that took its unique key before it had ended. It was cancelled, unless it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<u64>,
    /// Its pause: its waiting members are not sent to workers. Pauses of definitions, groups and the server are in `GET /api/pauses` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Members that may be on workers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The batch whose members it repeats; absent if that is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<u64>,
    /// The latest batch that repeats members of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<u64>,
    /// Members that are no longer kept.
    #[serde(default)]
    pub removed: u32,
    /// Cancelled members that were skipped: the end of another job that they required did not come, and nothing went wrong.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u32,
}

impl BatchSummary {
    /// The definitions in words: `extract`, or `extract and others`. Empty if no member is kept.
    #[must_use]
    pub fn definitions_text(&self) -> String {
        match (&self.definition, self.definitions_differ) {
            (None, _) => String::new(),
            (Some(definition), false) => definition.clone(),
            (Some(definition), true) => format!("{definition} and others"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_none_of_them(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_no_job(number: &u64) -> bool {
    *number == 0
}

/// Members of a batch by state, with those that are no longer kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "the names of the states of a job")]
pub struct BatchCounts {
    pub scheduled: u32,
    pub queued: u32,
    pub assigned: u32,
    pub running: u32,
    pub quarantined: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub expired: u32,
    pub lost: u32,
}

impl BatchCounts {
    /// Members that have not ended.
    #[must_use]
    pub const fn live(&self) -> u32 {
        self.scheduled + self.queued + self.assigned + self.running + self.quarantined
    }

    /// The states that members are in, with their number.
    pub fn by_state(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        let all = [
            ("scheduled", self.scheduled),
            ("queued", self.queued),
            ("assigned", self.assigned),
            ("running", self.running),
            ("quarantined", self.quarantined),
            ("succeeded", self.succeeded),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("expired", self.expired),
            ("lost", self.lost),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }

    /// Members that failed, expired, or were lost.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failed + self.expired + self.lost
    }
}

/// A batch with its first failures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FullBatch {
    /// The batch.
    #[serde(flatten)]
    pub batch: BatchSummary,
    /// The first members that failed, expired or were lost, at most 10, in the order of their numbers, without labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<ListedJob>,
    /// The jobs that come after the whole batch, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependents: Vec<Dependency>,
    /// The members that failed, expired or were lost, by the outcome of their last attempt: `failed`, `timed_out`, `oom_killed` and others.
    /// Those that no worker had, and those that are no longer kept, are not counted. Absent if more than 10,000 failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<String, u32>,
}

impl FullBatch {
    /// The outcomes in words, most first: `2 timed_out, 1 failed`.
    #[must_use]
    pub fn outcomes_text(&self) -> String {
        let mut all: Vec<(&String, &u32)> = self.outcomes.iter().collect();
        all.sort_by_key(|(outcome, count)| (std::cmp::Reverse(**count), *outcome));
        let words = all.iter().map(|(outcome, count)| format!("{count} {outcome}"));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Why the members of a batch wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchExplanation {
    /// The batch.
    #[serde(flatten)]
    pub batch: BatchSummary,
    /// Its limit on members at once, with those that hold a place; absent if it has none, or if all of its members have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The waiting members by their pending reason, most first.
    pub waiting: Vec<WaitingMembers>,
    /// The number of members that `waiting` counts: at most the first 500 that wait.
    pub counted: u64,
    /// True if more members wait than are counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// Members of a batch that wait for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitingMembers {
    /// The reason, in the words of the example.
    pub reason: Reason,
    /// How many of the counted members have it.
    pub count: u64,
    /// The first of them. `GET /api/jobs/{id}/explain` has the verdict of each worker.
    pub example: u64,
}

/// The result of the retry of a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RetriedBatch {
    /// The new batch; absent if none was made.
    #[serde(flatten)]
    pub batch: Option<Batch>,
    /// The batch whose members were to be retried.
    pub retry_of: u64,
    /// True if the members were only counted.
    pub dry_run: bool,
    /// The number of members that were to be retried.
    pub matched: u64,
    /// The number of those that cannot be retried, and are not in the new batch.
    pub refused: u64,
    /// The first refusals, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// The members that are not among `matched` because somebody cancelled them; `cancelled=1` retries them too.
    #[serde(default, skip_serializing_if = "is_none_of_them")]
    pub cancelled: u64,
    /// The members that have not ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unended: u32,
}
