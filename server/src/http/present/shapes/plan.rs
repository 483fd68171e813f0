//! JSON of a plan: the effect that a reload would have.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{NotifyTarget, Time};

/// Several jobs files, as a directory has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsFiles {
    /// The files, at most 1000. They are read in the order of their names.
    pub files: Vec<JobsFile>,
}

/// A jobs file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsFile {
    /// Its name, without a directory: `NAME.yaml` or `NAME.yml`.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The effect that a reload of a jobs file would have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Revision of the present set: `expect` of a reload.
    pub current_revision: String,
    /// Revision of the set after the reload: `expect_new` of it.
    pub revision: String,
    /// New definitions.
    pub added: Vec<PlannedDefinition>,
    /// Definitions that would be gone.
    pub removed: Vec<PlannedDefinition>,
    /// Definitions of which a key has another value.
    pub changed: Vec<ChangedDefinition>,
    /// The number of definitions that stay as they are.
    pub unchanged: usize,
    /// Warnings of the file, and of pauses that would no longer hold.
    pub warnings: Vec<String>,
    /// The server cancels waiting jobs of removed definitions (`--removed-definitions cancel`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancels_removed: bool,
}

/// The effect of a deploy: that of a reload of the same text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Deployed {
    /// The changes. `current_revision` is the revision before the deploy, `revision` the one after it.
    #[serde(flatten)]
    pub plan: Plan,
    /// Nothing was changed, only checked.
    pub dry_run: bool,
    /// The policy has other rules than before: it was read again, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub policy_changed: bool,
    /// The name of the file with the former text, beside the jobs file of the server; absent if nothing was written, if there was no file, or
    /// if its text could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_file: Option<String>,
}

/// A definition that a reload would add or remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedDefinition {
    /// Its name.
    pub name: String,
    /// Its next three slots by its schedules, if it is added. Pauses do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Time>,
    /// Queued jobs of this name. They keep their revision, but for keys with `at_once`, and still run, also if the definition is removed,
    /// unless `cancels_removed` is set.
    pub queued: u64,
    /// Jobs of this name that wait for their time, likewise.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scheduled: u64,
    /// Conditions of `requires` that no connected worker fulfils, while workers are connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A definition that a reload would change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangedDefinition {
    /// The definition.
    #[serde(flatten)]
    pub definition: PlannedDefinition,
    /// The present revision.
    pub from_revision: String,
    /// The revision after the reload; the same if no changed key belongs to jobs.
    pub to_revision: String,
    /// The keys with another value.
    pub keys: Vec<KeyChange>,
}

impl KeyChange {
    /// A value of this key in words: a text as it is, the targets of `notify` as people say them, everything else as JSON.
    #[must_use]
    pub fn value_in_words(key: &str, value: Option<&Value>) -> String {
        let targets =
            |value: &Value| Vec::<NotifyTarget>::deserialize(value).ok().filter(|_| key == "notify");
        match value {
            None => "none".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => match targets(value) {
                Some(targets) => targets.iter().map(NotifyTarget::words).collect::<Vec<_>>().join("; "),
                None => value.to_string(),
            },
        }
    }
}

/// A key with another value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyChange {
    /// The key as `GET /api/definitions/{name}` has it; `retry.max` for a key within a key.
    pub key: String,
    /// The present value; absent if there is none, or if it is hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The value after the reload; absent if there is none, or if it is hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
    /// It acts at once, also on jobs that were made before. Other keys hold for jobs that are made after the reload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_once: bool,
    /// The values differ and are not shown, because they may be secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_notifications_are_shown_in_words() {
        let targets = serde_json::json!([
            { "kind": "webhook", "host": "hooks.example", "on": ["failed", "lost"], "period_ms": 900_000, "signed": true },
            { "kind": "email", "host": "ops@example.org", "on": ["late"], "period_ms": 3_600_000, "signed": false, "output_lines": 20 }
        ]);
        let words = "webhook hooks.example on failed, lost, at most every 15m, signed; \
            email ops@example.org on late, at most every 1h, with 20 lines of output";
        assert_eq!(KeyChange::value_in_words("notify", Some(&targets)), words);
        assert_eq!(KeyChange::value_in_words("tags", Some(&serde_json::json!(["a"]))), "[\"a\"]");
        assert_eq!(KeyChange::value_in_words("notify", None), "none");
    }
}
