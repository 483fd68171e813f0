//! The stored form of placement rules. Of an older file without such rules nothing is written.

use protocol::WorkerId;
use scheduler::placement::rules::{
    Comparison, Condition, LabelRule, PlacementRules, PlacementStrategy, Preference, RunOn, WorkerSelector,
};
use serde::{Deserialize, Serialize};

use super::placement::strategies;
use super::stored_form::value_of;

// The fields of each struct are in alphabetical order: serde writes them so, and the keys must be sorted.

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredPlacement {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prefers: Vec<StoredPreference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    requires: Vec<StoredRule>,
    /// A number of workers, or zero for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_on: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strategy: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    workers: Vec<StoredSelector>,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPreference {
    rule: StoredRule,
    weight: i32,
}

/// `is` is a sign of comparison with `bound`, or `in`, `not in`, `exists` or `absent`.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound: Option<i64>,
    is: String,
    label: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredSelector {
    Id(u64),
    Name(String),
}

impl StoredPlacement {
    pub(super) fn of(rules: &PlacementRules) -> Self {
        let strategy = Some(rules.strategy).filter(|it| *it != PlacementStrategy::default());
        let preference =
            |it: &Preference| StoredPreference { rule: StoredRule::of(&it.rule), weight: it.weight };
        let selector = |it: &WorkerSelector| match it {
            WorkerSelector::Id(id) => StoredSelector::Id(id.0),
            WorkerSelector::Name(name) => StoredSelector::Name(name.clone()),
        };
        Self {
            prefers: rules.prefers.iter().map(preference).collect(),
            requires: rules.requires.iter().map(StoredRule::of).collect(),
            run_on: match rules.run_on {
                RunOn::One => None,
                RunOn::All => Some(0),
                RunOn::Count(count) => Some(count),
            },
            strategy: strategy.map(|it| it.name().to_owned()),
            workers: rules.workers.iter().map(selector).collect(),
        }
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The rules; `None` if a word is unknown.
    pub(super) fn rules(self) -> Option<PlacementRules> {
        let preference = |it: StoredPreference| Some(Preference { rule: it.rule.rule()?, weight: it.weight });
        let selector = |it: StoredSelector| match it {
            StoredSelector::Id(id) => WorkerSelector::Id(WorkerId(id)),
            StoredSelector::Name(name) => WorkerSelector::Name(name),
        };
        Some(PlacementRules {
            requires: self.requires.into_iter().map(StoredRule::rule).collect::<Option<_>>()?,
            prefers: self.prefers.into_iter().map(preference).collect::<Option<_>>()?,
            workers: self.workers.into_iter().map(selector).collect(),
            strategy: match self.strategy {
                Some(word) => value_of(&strategies(), &word)?,
                None => PlacementStrategy::default(),
            },
            run_on: match self.run_on {
                None => RunOn::One,
                Some(0) => RunOn::All,
                Some(count) => RunOn::Count(count),
            },
        })
    }
}

impl StoredRule {
    fn of(rule: &LabelRule) -> Self {
        let (is, bound, values) = match &rule.condition {
            Condition::In(values) => ("in", None, values.clone()),
            Condition::NotIn(values) => ("not in", None, values.clone()),
            Condition::Exists => ("exists", None, Vec::new()),
            Condition::Absent => ("absent", None, Vec::new()),
            Condition::Compare(comparison, bound) => (comparison.sign(), Some(*bound), Vec::new()),
        };
        Self { bound, is: is.to_owned(), label: rule.label.clone(), values }
    }

    fn rule(self) -> Option<LabelRule> {
        let condition = match self.is.as_str() {
            "in" => Condition::In(self.values),
            "not in" => Condition::NotIn(self.values),
            "exists" => Condition::Exists,
            "absent" => Condition::Absent,
            sign => {
                let comparison = Comparison::ALL.into_iter().find(|it| it.sign() == sign)?;
                Condition::Compare(comparison, self.bound?)
            }
        };
        Some(LabelRule { label: self.label, condition })
    }
}
