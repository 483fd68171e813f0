//! The serde form of a condition on a label: flat. `is` is a sign of comparison with `bound`, or `in`, `not in`, `exists` or `absent`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Comparison, Condition, LabelRule};
use crate::defaults::is_default;

#[derive(Serialize, Deserialize)]
pub(super) struct RuleForm {
    label: String,
    is: String,
    #[serde(default, skip_serializing_if = "is_default")]
    bound: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    values: Vec<String>,
}

impl From<LabelRule> for RuleForm {
    fn from(LabelRule { label, condition }: LabelRule) -> Self {
        let (is, bound, values) = match condition {
            Condition::In(values) => ("in", None, values),
            Condition::NotIn(values) => ("not in", None, values),
            Condition::Exists => ("exists", None, Vec::new()),
            Condition::Absent => ("absent", None, Vec::new()),
            Condition::Compare(comparison, bound) => (comparison.sign(), Some(bound), Vec::new()),
        };
        Self { label, is: is.to_string(), bound, values }
    }
}

impl TryFrom<RuleForm> for LabelRule {
    type Error = &'static str;

    fn try_from(form: RuleForm) -> Result<Self, Self::Error> {
        let condition = match (form.is.as_str(), form.bound) {
            ("in", _) => Condition::In(form.values),
            ("not in", _) => Condition::NotIn(form.values),
            ("exists", _) => Condition::Exists,
            ("absent", _) => Condition::Absent,
            (sign, Some(bound)) => {
                let comparison = Comparison::ALL.into_iter().find(|it| it.sign() == sign);
                Condition::Compare(comparison.ok_or("a condition has an unknown sign")?, bound)
            }
            (_, None) => return Err("a condition is of an unknown kind"),
        };
        Ok(Self { label: form.label, condition })
    }
}
