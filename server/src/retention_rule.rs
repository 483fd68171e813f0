//! The rule that a definition has for its ended jobs (`retention` in jobs.yaml). It is no part of the revision: it holds for all jobs of
//! this name, also for those that ended before it was written.

use std::time::Duration;

use protocol::Timestamp;

use crate::store::DefinitionCutoffs;

/// The rule of one definition. The limits of the server hold beside it: an ended job goes with the first limit that it is beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionRule {
    /// How many ended jobs are kept, the newest ones.
    pub keep: Option<u64>,
    /// How long an ended job is kept, from its end on.
    pub max_age: Option<Duration>,
    /// In place of both for jobs that failed, expired or were lost.
    pub failed_max_age: Option<Duration>,
    /// How long the output of an ended job is kept.
    pub output_max_age: Option<Duration>,
}

impl RetentionRule {
    /// True if the definition has no rule of its own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limits for jobs at this moment; none if the rule is about output only.
    #[must_use]
    pub fn cutoffs(&self, definition: &str, now: Timestamp) -> Option<DefinitionCutoffs> {
        (self.keep.is_some() || self.max_age.is_some() || self.failed_max_age.is_some()).then(|| {
            DefinitionCutoffs {
                definition: definition.into(),
                ended_since: self.max_age.map_or(Timestamp(i64::MIN), |age| now - age),
                ended_max: self.keep,
                failed_since: self.failed_max_age.map(|age| now - age),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_back_from_now_and_a_rule_about_output_has_none() {
        let hour = Duration::from_secs(3_600);
        let rule = RetentionRule { max_age: Some(hour), ..RetentionRule::default() };
        let cutoffs = rule.cutoffs("report", Timestamp(3_600_007)).unwrap();
        assert_eq!(
            (cutoffs.ended_since, cutoffs.ended_max, cutoffs.failed_since),
            (Timestamp(7), None, None)
        );
        let rule = RetentionRule { keep: Some(3), failed_max_age: Some(hour), ..RetentionRule::default() };
        let cutoffs = rule.cutoffs("report", Timestamp(3_600_007)).unwrap();
        assert_eq!(cutoffs.ended_since, Timestamp(i64::MIN));
        assert_eq!((cutoffs.ended_max, cutoffs.failed_since), (Some(3), Some(Timestamp(7))));
        let rule = RetentionRule { output_max_age: Some(hour), ..RetentionRule::default() };
        assert_eq!((rule.cutoffs("report", Timestamp(0)), rule.is_empty()), (None, false));
    }
}
