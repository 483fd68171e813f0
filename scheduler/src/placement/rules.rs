//! Placement rules of a definition: conditions on the labels of workers, preferences, and a list of workers.
//!
//! A worker's label is text. A comparison holds only if the label is a whole number.

mod rule_form;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use protocol::WorkerId;
use serde::{Deserialize, Serialize};

use crate::defaults::is_default;
use rule_form::RuleForm;

/// Workers that may run the jobs of a definition, and those that are chosen first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacementRules {
    /// Conditions that a worker must meet, all of them.
    #[serde(skip_serializing_if = "is_default")]
    pub requires: Vec<LabelRule>,
    /// Conditions by which a worker is chosen before others.
    #[serde(skip_serializing_if = "is_default")]
    pub prefers: Vec<Preference>,
    /// The only workers that may run the jobs; any if empty.
    #[serde(skip_serializing_if = "is_default")]
    pub workers: Vec<WorkerSelector>,
    /// Order of the workers that are able to take a job.
    #[serde(skip_serializing_if = "is_default")]
    pub strategy: PlacementStrategy,
    /// The number of workers that run each job.
    #[serde(skip_serializing_if = "is_default")]
    pub run_on: RunOn,
}

/// The number of workers that run each job of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u32", from = "u32")]
pub enum RunOn {
    /// One worker.
    #[default]
    One,
    /// Each that is connected and eligible when the job is due.
    All,
    /// This number of workers, each once; 2 to [`Self::COUNT_MAX`].
    Count(u32),
}

impl RunOn {
    /// Workers of one job. The choice of a worker passes over the siblings' workers, so its cost grows with this.
    pub const COUNT_MAX: u32 = 1_000;
}

/// The stored form: the number, or zero for all.
impl From<RunOn> for u32 {
    fn from(run_on: RunOn) -> Self {
        match run_on {
            RunOn::One => 1,
            RunOn::All => 0,
            RunOn::Count(count) => count,
        }
    }
}

impl From<u32> for RunOn {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::All,
            1 => Self::One,
            count => Self::Count(count),
        }
    }
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "RuleForm", try_from = "RuleForm")]
pub struct LabelRule {
    /// Name of the label.
    pub label: String,
    /// The condition on its value.
    pub condition: Condition,
}

/// A condition on the value of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// The value is one of these; not empty.
    In(Vec<String>),
    /// The label is absent, or its value is none of these; not empty.
    NotIn(Vec<String>),
    /// The label has any value.
    Exists,
    /// The label is absent.
    Absent,
    /// The value is a whole number with this relation to the given one.
    Compare(Comparison, i64),
}

/// A relation between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    /// Less than the given number.
    Less,
    /// Less than or equal to it.
    AtMost,
    /// Equal to it or greater.
    AtLeast,
    /// Greater than the given number.
    Greater,
}

impl Comparison {
    /// All relations.
    pub const ALL: [Self; 4] = [Self::Less, Self::AtMost, Self::AtLeast, Self::Greater];

    /// The sign in jobs.yaml.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Greater => ">",
        }
    }

    const fn holds(self, value: i64, bound: i64) -> bool {
        match self {
            Self::Less => value < bound,
            Self::AtMost => value <= bound,
            Self::AtLeast => value >= bound,
            Self::Greater => value > bound,
        }
    }
}

/// A preference: workers that meet the condition score its weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Preference {
    /// The condition.
    pub rule: LabelRule,
    /// Added to the score; −100 to 100. A negative weight makes workers the later choice.
    pub weight: i32,
}

/// A worker in the list of a definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerSelector {
    /// The worker with this id.
    Id(WorkerId),
    /// Workers that have this name now.
    Name(String),
}

impl fmt::Display for WorkerSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Order in which able workers are tried. A free slot always goes before a place in a backlog, and a preferred worker before others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementStrategy {
    /// The least loaded worker first.
    #[default]
    Spread,
    /// The most loaded worker with a free slot first, so that others become empty.
    Pack,
    /// Any worker with a free slot.
    Random,
}

impl PlacementStrategy {
    /// All strategies.
    pub const ALL: [Self; 3] = [Self::Spread, Self::Pack, Self::Random];

    /// Name in jobs.yaml and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Pack => "pack",
            Self::Random => "random",
        }
    }
}

impl LabelRule {
    /// The condition holds for this value of the label, or for its absence.
    #[must_use]
    pub fn holds(&self, value: Option<&str>) -> bool {
        let is_listed = |list: &[String]| value.is_some_and(|value| list.iter().any(|it| it == value));
        match &self.condition {
            Condition::In(list) => is_listed(list),
            Condition::NotIn(list) => !is_listed(list),
            Condition::Exists => value.is_some(),
            Condition::Absent => value.is_none(),
            Condition::Compare(comparison, bound) => value
                .and_then(|value| value.parse().ok())
                .is_some_and(|value: i64| comparison.holds(value, *bound)),
        }
    }

    /// The condition as jobs.yaml writes it.
    #[must_use]
    pub fn in_grammar(&self) -> String {
        let label = &self.label;
        match &self.condition {
            Condition::In(list) if list.len() == 1 => format!("{label}={}", list.join("")),
            Condition::Exists => label.clone(),
            Condition::Absent => format!("!{label}"),
            Condition::In(_) | Condition::NotIn(_) | Condition::Compare(..) => self.to_string(),
        }
    }

    /// A job with this rule asks for the label, so it may run where the label is exclusive.
    #[must_use]
    pub const fn asks_for_label(&self) -> bool {
        match self.condition {
            Condition::In(_) | Condition::Exists | Condition::Compare(..) => true,
            Condition::NotIn(_) | Condition::Absent => false,
        }
    }
}

impl fmt::Display for LabelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.label;
        match &self.condition {
            Condition::In(list) => match &list[..] {
                [only] => write!(f, "{label}={only}"),
                list => write!(f, "{label} in ({})", list.join(", ")),
            },
            Condition::NotIn(list) => write!(f, "{label} not in ({})", list.join(", ")),
            Condition::Exists => write!(f, "a label {label}"),
            Condition::Absent => write!(f, "no label {label}"),
            Condition::Compare(comparison, bound) => write!(f, "{label} {} {bound}", comparison.sign()),
        }
    }
}

/// Name of the label that lists, separated by commas, the worker's exclusive labels: it takes only jobs that ask for one of each.
pub const EXCLUSIVE: &str = "exclusive";

/// The exclusive labels that this value of the label [`EXCLUSIVE`] names.
pub fn exclusive_labels(value: Option<&str>) -> impl Iterator<Item = String> {
    value
        .into_iter()
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn rule(condition: Condition) -> LabelRule {
        LabelRule { label: "cores".into(), condition }
    }

    #[test]
    fn a_condition_holds_for_the_values_that_it_names() {
        let listed = || vec!["4".to_string(), "8".to_string()];
        let cases = [
            (Condition::In(listed()), [false, true, false, false]),
            (Condition::NotIn(listed()), [true, false, true, true]),
            (Condition::Exists, [false, true, true, true]),
            (Condition::Absent, [true, false, false, false]),
            (Condition::Compare(Comparison::Greater, 4), [false, false, true, false]),
            (Condition::Compare(Comparison::AtLeast, 4), [false, true, true, false]),
            (Condition::Compare(Comparison::Less, 16), [false, true, false, false]),
            (Condition::Compare(Comparison::AtMost, 16), [false, true, true, false]),
        ];
        for (condition, holds) in cases {
            let rule = rule(condition);
            assert_eq!(
                [None, Some("4"), Some("16"), Some("many")].map(|value| rule.holds(value)),
                holds,
                "{rule}"
            );
        }
    }

    #[test]
    fn a_list_of_exclusive_labels_ignores_blanks() {
        let labels = |value| exclusive_labels(value).collect::<Vec<_>>();
        assert_eq!(labels(Some("gpu, team,,")), ["gpu", "team"]);
        assert!(labels(None).is_empty());
    }
}
