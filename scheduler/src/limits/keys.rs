//! Values of keys. A job's values are computed at its submission; jobs with equal values wait in one lane, so their values are kept once.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::JobId;

use crate::details::JobDetails;
use crate::limits::rules::{KeySource, LimitRules};
use crate::table::{self, Seed, Table};

/// The values of a job's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JobKeys {
    /// Of `concurrency.key`.
    pub concurrency: Option<Arc<str>>,
    /// Of `rate_limit.key`.
    pub rate: Option<Arc<str>>,
    /// The batch that limits its members. Never stored with a job: it follows from the batch.
    pub batch: Option<BatchPermits>,
}

/// Members of a batch that may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchPermits {
    /// The first member.
    pub batch: JobId,
    /// Number of members.
    pub limit: u32,
}

impl JobKeys {
    /// The values for a new job; absent if its definition has no keys.
    #[must_use]
    pub fn of(rules: &LimitRules, details: Option<&JobDetails>) -> Option<Self> {
        let value = |source: &Option<KeySource>| source.as_ref().map(|source| source.value(details));
        let keys = Self {
            concurrency: rules.concurrency.as_ref().and_then(|it| value(&it.key)),
            rate: rules.rate.as_ref().and_then(|it| value(&it.key)),
            batch: None,
        };
        (keys != Self::default()).then_some(keys)
    }
}

impl KeySource {
    /// The value for a job with these details.
    #[must_use]
    pub fn value(&self, details: Option<&JobDetails>) -> Arc<str> {
        match self {
            Self::Constant(value) => value.clone(),
            Self::Label(name) => {
                let labels = details.map_or(&[][..], |details| &details.labels);
                let found = labels.iter().find(|(label, _)| label == name);
                found.map_or("", |(_, value)| String::as_str(value)).into()
            }
            Self::Param(name) => {
                let variables = details.map_or(&[][..], |details| &details.params.variables);
                let is_named = |variable: &str| {
                    variable.strip_prefix("PARAM_").is_some_and(|it| it.eq_ignore_ascii_case(name))
                };
                let found = variables.iter().find(|(variable, _)| is_named(variable));
                found.map_or("", |(_, value)| String::as_str(value)).into()
            }
        }
    }
}

/// Names the values of a job's keys within this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySetNo(pub u32);

impl KeySetNo {
    /// Of jobs without limits.
    pub const UNLIMITED: Self = Self(0);
    /// Of jobs with limits, none of which has a key.
    pub const UNKEYED: Self = Self(1);

    /// Jobs with limits.
    #[must_use]
    pub const fn is_limited(self) -> bool {
        self.0 > Self::UNLIMITED.0
    }

    /// Jobs with limits that have keys.
    #[must_use]
    pub const fn is_keyed(self) -> bool {
        self.0 > Self::UNKEYED.0
    }
}

/// All values that jobs have.
#[derive(Debug, Default)]
pub(super) struct KeySets {
    numbers: Table<JobKeys, KeySetNo>,
    /// From [`KeySetNo`] 2 on, with the number of their jobs.
    entries: Vec<Option<(JobKeys, u64)>>,
    free: BTreeSet<usize>,
}

impl KeySets {
    pub(super) fn new(seed: Seed) -> Self {
        Self { numbers: Table::with_hasher(seed), ..Self::default() }
    }

    pub(super) fn shrink(&mut self) {
        table::shrink(&mut self.numbers);
    }

    /// Counts one more job with these values.
    pub(super) fn take(&mut self, keys: &JobKeys) -> KeySetNo {
        if let Some(number) = self.numbers.get(keys).copied() {
            if let Some((_, jobs)) = self.entry(number) {
                *jobs += 1;
            }
            return number;
        }
        let at = self.free.pop_first().unwrap_or(self.entries.len());
        if at == self.entries.len() {
            self.entries.push(None);
        }
        let number = KeySetNo(u32::try_from(at).unwrap_or(u32::MAX - FIRST).saturating_add(FIRST));
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = Some((keys.clone(), 1));
        }
        self.numbers.insert(keys.clone(), number);
        number
    }

    /// Counts one job less.
    pub(super) fn drop_one(&mut self, number: KeySetNo) {
        let Some((keys, jobs)) = self.entry(number) else { return };
        *jobs -= 1;
        if *jobs > 0 {
            return;
        }
        let keys = keys.clone();
        self.numbers.remove(&keys);
        let at = (number.0 - FIRST) as usize;
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = None;
            self.free.insert(at);
        }
    }

    /// The values with this number.
    pub(super) fn get(&self, number: KeySetNo) -> Option<&JobKeys> {
        let at = number.0.checked_sub(FIRST)? as usize;
        self.entries.get(at)?.as_ref().map(|(keys, _)| keys)
    }

    fn entry(&mut self, number: KeySetNo) -> Option<&mut (JobKeys, u64)> {
        let at = number.0.checked_sub(FIRST)? as usize;
        self.entries.get_mut(at)?.as_mut()
    }
}

/// The first number that names values.
const FIRST: u32 = KeySetNo::UNKEYED.0 + 1;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn keys(value: &str) -> JobKeys {
        JobKeys { concurrency: Some(value.into()), ..JobKeys::default() }
    }

    #[test]
    fn equal_values_share_a_number_that_is_free_again_after_the_last_job() {
        let mut sets = KeySets::default();
        let (a, b) = (sets.take(&keys("a")), sets.take(&keys("b")));
        assert_eq!((a, b, sets.take(&keys("a"))), (KeySetNo(2), KeySetNo(3), a));
        sets.drop_one(a);
        assert_eq!(sets.take(&keys("c")), KeySetNo(4), "one job has it still");
        sets.drop_one(a);
        assert_eq!(sets.take(&keys("d")), a);
    }

    #[test]
    fn a_label_that_a_job_lacks_is_the_empty_value() {
        let details = JobDetails { labels: vec![("tenant".into(), "acme".into())], ..JobDetails::default() };
        let label = |name: &str| KeySource::Label(name.into());
        assert_eq!(&*label("tenant").value(Some(&details)), "acme");
        assert_eq!(&*label("region").value(Some(&details)), "");
        assert_eq!(&*label("tenant").value(None), "");
    }
}
