//! JSON of a load that has changed definitions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Text, Time};

/// A load of definitions that has changed some, or the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DefinitionChange {
    /// Its number.
    pub id: u64,
    /// The time of the load.
    pub at: Time,
    /// The cause: `start` of the server with other definitions, `reload` by a request or SIGHUP, `watch` of the file, or `deploy`.
    #[schema(value_type = String)]
    pub cause: Text,
    /// The name of the token, or of the user; absent for starts, SIGHUP and the watch, and for requests without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Revision of the whole set before; absent if no set before is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Revision of the whole set afterwards.
    pub after: String,
    /// Names of new definitions, at most 100.
    pub added: Vec<String>,
    /// The number of further new definitions; absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub added_more: u64,
    /// Names of definitions with other keys, at most 100.
    pub changed: Vec<String>,
    /// The number of further changed definitions; absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changed_more: u64,
    /// Names of definitions that are gone, at most 100.
    pub removed: Vec<String>,
    /// The number of further removed definitions; absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed_more: u64,
    /// True if the policy of the server has other rules; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub policy_changed: bool,
}

impl DefinitionChange {
    /// The change in words: `added a, b and 3 more; removed c`.
    #[must_use]
    pub fn words(&self) -> String {
        let lists = [
            ("added", &self.added, self.added_more),
            ("changed", &self.changed, self.changed_more),
            ("removed", &self.removed, self.removed_more),
        ];
        let of_list = |(verb, names, more): (&str, &Vec<String>, u64)| match (names.join(", "), more) {
            (names, 0) if names.is_empty() => None,
            (names, 0) => Some(format!("{verb} {names}")),
            (names, more) if names.is_empty() => Some(format!("{verb} {more} more")),
            (names, more) => Some(format!("{verb} {names} and {more} more")),
        };
        let policy = self.policy_changed.then(|| "changed the policy".to_owned());
        let parts: Vec<String> = lists.into_iter().filter_map(of_list).chain(policy).collect();
        parts.join("; ")
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_words_has_names_and_how_many_more_there_are() {
        let change: DefinitionChange = serde_json::from_value(serde_json::json!({
            "id": 1, "at": "2026-11-20T13:09:01.177Z", "cause": "deploy", "after": "0",
            "added": ["a", "b"], "added_more": 3, "changed": [], "removed": ["c"], "policy_changed": true
        }))
        .unwrap();
        assert_eq!(change.words(), "added a, b and 3 more; removed c; changed the policy");
        let cut =
            DefinitionChange { added: Vec::new(), removed: Vec::new(), policy_changed: false, ..change };
        assert_eq!(cut.words(), "added 3 more");
    }
}
