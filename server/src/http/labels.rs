//! Labels of workers, as an operator changes them: a text sets one, `null` takes away what was set.

use std::collections::BTreeMap;
use std::fmt;

use scheduler::input::Operation;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::problem::Problem;
use super::wanted::label_fault;

/// What is to become of labels, in the order in which it was written.
#[derive(Debug)]
pub(super) struct Labels(Vec<(String, Option<String>)>);

impl Labels {
    /// What the scheduler is told.
    ///
    /// # Errors
    /// `invalid_label` for the first one that cannot be.
    pub(super) fn checked(self) -> Result<Operation, Problem> {
        let set = self.0.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        match set.filter_map(|(name, value)| label_fault(name, value)).next() {
            Some(problem) => Err(problem),
            None => Ok(Operation::Labels(self.0)),
        }
    }
}

/// A worker's own labels, with others over them.
pub(super) fn laid_over(own: &[(String, String)], set: &[(String, String)]) -> BTreeMap<String, String> {
    own.iter().chain(set).cloned().collect()
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts and nulls")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs: Vec<(String, Option<String>)> = Vec::new();
                while let Some((name, value)) = map.next_entry()? {
                    if pairs.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom(format_args!("duplicate field {name:?}")));
                    }
                    pairs.push((name, value));
                }
                Ok(Labels(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
