//! Label changes of workers: a text sets a label, `null` removes one that was set.

use std::collections::BTreeMap;
use std::fmt;

use scheduler::input::Operation;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::http::middleware::problem::Problem;
use crate::http::request::job_request::label_fault;

/// The changes in the order of the body.
#[derive(Debug)]
pub(crate) struct Labels(Vec<(String, Option<String>)>);

impl Labels {
    /// The operation for the scheduler.
    ///
    /// # Errors
    /// `invalid_label` for the first label that is not allowed.
    pub(crate) fn checked(self) -> Result<Operation, Problem> {
        let set = self.0.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        match set.filter_map(|(name, value)| label_fault(name, value)).next() {
            Some(problem) => Err(problem),
            None => Ok(Operation::Labels(self.0)),
        }
    }
}

/// The labels of a worker; of one name the last of these lists counts.
pub(crate) fn merge_labels(lists: &[&[(String, String)]]) -> BTreeMap<String, String> {
    lists.iter().copied().flatten().cloned().collect()
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
