//! The stored form of limits. Absent where a definition has none, so that definitions without limits keep their revision.

use std::time::Duration;

use scheduler::limits::rules::{Concurrency, KeySource, LimitRules, OnFull, RateLimit};
use scheduler::unique::{Clear, OnDuplicate, UniqueRule};
use serde::{Deserialize, Serialize};

// The fields of each struct are in alphabetical order: serde writes them so, and the keys must be sorted.

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency: Option<StoredConcurrency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queued_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<StoredRate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique: Option<StoredUnique>,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredConcurrency {
    group: Option<String>,
    key: Option<StoredKey>,
    limit: u32,
    on_full: String,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRate {
    burst: u32,
    key: Option<StoredKey>,
    limit: u32,
    per_ms: u64,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredUnique {
    clear: Vec<String>,
    key: Option<StoredKey>,
    on_duplicate: String,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredKey {
    Constant(String),
    Label(String),
    Param(String),
}

impl StoredLimits {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn of(rules: &LimitRules) -> Self {
        Self {
            concurrency: rules.concurrency.as_ref().map(|rule| StoredConcurrency {
                group: rule.group.clone(),
                key: rule.key.as_ref().map(StoredKey::of),
                limit: rule.limit,
                on_full: super::keys::name_of(&OnFull::ALL, &rule.on_full).to_owned(),
            }),
            queued_max: rules.queued_max,
            rate: rules.rate.as_ref().map(|rule| StoredRate {
                burst: rule.burst,
                key: rule.key.as_ref().map(StoredKey::of),
                limit: rule.limit,
                per_ms: u64::try_from(rule.per.as_millis()).unwrap_or(u64::MAX),
            }),
            unique: rules.unique.as_ref().map(|rule| StoredUnique {
                clear: rule.clear.names().iter().map(|name| (*name).to_owned()).collect(),
                key: rule.key.as_ref().map(StoredKey::of),
                on_duplicate: super::keys::name_of(&OnDuplicate::ALL, &rule.on_duplicate).to_owned(),
            }),
        }
    }

    /// The rules; `None` if a word is unknown.
    pub(super) fn rules(self) -> Option<LimitRules> {
        let concurrency = match self.concurrency {
            None => None,
            Some(stored) => {
                let (_, on_full) = OnFull::ALL.into_iter().find(|(name, _)| *name == stored.on_full)?;
                let key = stored.key.map(StoredKey::source);
                Some(Concurrency { limit: stored.limit, key, group: stored.group, on_full })
            }
        };
        let rate = self.rate.map(|stored| RateLimit {
            limit: stored.limit,
            per: Duration::from_millis(stored.per_ms),
            burst: stored.burst,
            key: stored.key.map(StoredKey::source),
        });
        let unique = match self.unique {
            None => None,
            Some(stored) => {
                let clear = [Clear::Always, Clear::Success, Clear::Failed];
                let (_, on_duplicate) =
                    OnDuplicate::ALL.into_iter().find(|(name, _)| *name == stored.on_duplicate)?;
                let clear = clear.into_iter().find(|it| it.names() == stored.clear)?;
                Some(UniqueRule { key: stored.key.map(StoredKey::source), on_duplicate, clear })
            }
        };
        Some(LimitRules { concurrency, rate, queued_max: self.queued_max, unique })
    }
}

impl StoredKey {
    fn of(source: &KeySource) -> Self {
        match source {
            KeySource::Constant(value) => Self::Constant(value.to_string()),
            KeySource::Label(name) => Self::Label(name.clone()),
            KeySource::Param(name) => Self::Param(name.clone()),
        }
    }

    fn source(self) -> KeySource {
        match self {
            Self::Constant(value) => KeySource::Constant(value.into()),
            Self::Label(name) => KeySource::Label(name),
            Self::Param(name) => KeySource::Param(name),
        }
    }
}
